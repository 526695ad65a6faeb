// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire receive` under test: started on ports of this machine, stopped by SIGTERM, its figures
//! read; and a sender of valid or invalid packets that a test chooses.
//!
//! The sender waits for room in the receiving socket, so that nothing is lost however late the
//! recorder is.
//!
//! Sources: RFC 3550 §5.1, RFC 2250 §2; proc_net(5), `/proc/net/udp`.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::clip::PAYLOAD_BYTES;
use super::{PROGRAM, Place, await_true, watchdog};

/// A running `pagewire receive`. It is killed when dropped without being stopped.
pub(crate) struct Recorder {
    child: Child,
    place: Place,
}

/// Result of a recorder.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) status: ExitStatus,
    /// The summary it printed.
    pub(crate) summary: Value,
    pub(crate) log: String,
}

impl Recorded {
    /// Returns the figures of one stream.
    pub(crate) fn stream(&self, index: usize) -> &Value {
        &self.summary["streams"][index]
    }

    /// Returns one figure of the first stream.
    #[track_caller]
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let figure = &self.stream(0)[name];
        figure.as_u64().unwrap_or_else(|| panic!("no figure {name} in {:#}", self.summary))
    }

    /// Asserts a successful end, and returns the result.
    #[track_caller]
    pub(crate) fn well(self) -> Recorded {
        assert!(self.status.success(), "{}: {:#}\n{}", self.status, self.summary, self.log);
        self
    }
}

impl Recorder {
    /// Records these URLs to `INDEX.ts` in the folder of a place.
    pub(crate) fn start(place: &Place, urls: &[String], options: &[&str]) -> Recorder {
        let pattern = place.folder().join("{index}.ts");
        let pattern = pattern.to_str().expect("a folder in UTF-8");
        Recorder::by(Command::new(PROGRAM), place, urls, &[&["-o", pattern], options].concat())
    }

    /// As [`Recorder::start`], with a command that runs the program, and with all options.
    pub(crate) fn by(
        mut command: Command,
        place: &Place,
        urls: &[String],
        options: &[&str],
    ) -> Recorder {
        if command.get_envs().all(|(name, _)| name != CACHE_HOME) {
            // Calibrated once for all tests, outside the user's own cache.
            command.env(CACHE_HOME, env!("CARGO_TARGET_TMPDIR"));
        }
        let create = |name: &str| File::create(place.top().join(name)).expect("a file");
        let child = command
            .arg("--log=info")
            .args(["receive", "--json", "--cache"])
            .arg(place.cache())
            .args(options)
            .args(urls)
            .stdin(Stdio::null())
            .stdout(create("summary"))
            .stderr(create("recorder.log"))
            .spawn()
            .expect("the program under test starts");
        let mut recorder = Recorder { child, place: place.clone() };
        recorder.await_log("pagewire receiving: ");
        recorder
    }

    pub(crate) fn log(&self) -> String {
        let path = self.place.top().join("recorder.log");
        fs::read_to_string(path).unwrap_or_else(|error| error.to_string())
    }

    /// Waits until its log contains `words`.
    #[track_caller]
    pub(crate) fn await_log(&mut self, words: &str) {
        let deadline = Instant::now() + READY_WAIT;
        while !self.log().contains(words) {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{words:?} is not in the log ({ended:?}): {}",
                self.log()
            );
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until a file has so many bytes.
    #[track_caller]
    pub(crate) fn await_bytes(&self, name: &str, bytes: u64) {
        let path = self.place.folder().join(name);
        let deadline = Instant::now() + READY_WAIT;
        while fs::metadata(&path).map_or(0, |found| found.len()) < bytes {
            assert!(Instant::now() < deadline, "{name} does not get {bytes} bytes: {}", self.log());
            thread::sleep(LOOK_EVERY);
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits for its figures.
    #[track_caller]
    pub(crate) fn stop(self) -> Recorded {
        // A recorder that has just ended by itself is as good.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.ended()
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub(crate) fn ended(mut self) -> Recorded {
        let status = watchdog::wait(&mut self.child, END_WAIT);
        let log = self.log();
        let status = status.unwrap_or_else(|| panic!("it does not end; log: {log}"));
        let summary = fs::read(self.place.top().join("summary")).expect("it was made");
        let summary = serde_json::from_slice(&summary).unwrap_or(Value::Null);
        Recorded { status, summary, log }
    }

    /// Ends the process as a power loss would, but without affecting the machine.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it still runs");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // After a stop the process has already been waited for, and both calls have no effect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the names of the files in the folder, in order.
pub(crate) fn files(place: &Place) -> Vec<PathBuf> {
    let listed = fs::read_dir(place.folder()).expect("it is there");
    let mut files: Vec<_> = listed.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Returns the URL of a port of this machine.
pub(crate) fn url(port: u16) -> String {
    format!("udp://127.0.0.1:{port}")
}

/// Sends packets to one address.
pub(crate) struct Sender {
    pub(crate) socket: UdpSocket,
    pub(crate) to: SocketAddr,
    /// `None` for a plain transport stream.
    pub(crate) rtp: Option<Rtp>,
}

/// The next header.
#[derive(Clone, Copy)]
pub(crate) struct Rtp {
    pub(crate) ssrc: u32,
    pub(crate) sequence: u16,
    pub(crate) timestamp: u32,
}

impl Sender {
    /// Returns a sender of RTP to a port of this machine.
    pub(crate) fn rtp(port: u16, ssrc: u32, sequence: u16) -> Sender {
        let rtp = Some(Rtp { ssrc, sequence, timestamp: 0xffff_0000 });
        Sender { rtp, ..Sender::bare(port) }
    }

    /// Returns a sender of a plain transport stream to a port of this machine.
    pub(crate) fn bare(port: u16) -> Sender {
        Sender::to((Ipv4Addr::LOCALHOST, port).into(), Ipv4Addr::LOCALHOST.into())
    }

    /// Returns a sender to an address, from one of this machine's addresses.
    pub(crate) fn to(to: SocketAddr, from: IpAddr) -> Sender {
        let socket = UdpSocket::bind((from, 0)).expect("a free port");
        Sender { socket, to, rtp: None }
    }

    /// Returns the next datagram with this payload.
    pub(crate) fn datagram(&mut self, payload: &[u8]) -> Vec<u8> {
        let Some(rtp) = &mut self.rtp else { return payload.to_vec() };
        let mut packet = vec![0x80, 33];
        packet.extend(rtp.sequence.to_be_bytes());
        packet.extend(rtp.timestamp.to_be_bytes());
        packet.extend(rtp.ssrc.to_be_bytes());
        packet.extend_from_slice(payload);
        rtp.sequence = rtp.sequence.wrapping_add(1);
        rtp.timestamp = rtp.timestamp.wrapping_add(1900);
        packet
    }

    pub(crate) fn send_raw(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.to).expect("a datagram goes out");
    }

    pub(crate) fn send(&mut self, payload: &[u8]) {
        let datagram = self.datagram(payload);
        self.send_raw(&datagram);
    }

    /// Sends a stream, as fast as it is received.
    pub(crate) fn send_all(&mut self, stream: &[u8]) {
        for (index, payload) in stream.chunks(PAYLOAD_BYTES).enumerate() {
            if index % BURST == 0 {
                self.await_room();
            }
            self.send(payload);
        }
    }

    /// Waits until the receiving sockets have room for [`BURST`] packets; returns at once where
    /// none is open.
    pub(crate) fn await_room(&self) {
        let deadline = Instant::now() + READY_WAIT;
        loop {
            let unread = unread_bytes(self.to.port());
            if unread <= UNREAD_BYTES_MAX {
                return;
            }
            assert!(Instant::now() < deadline, "{unread} bytes at {} are not received", self.to);
            thread::sleep(ROOM_LOOK_EVERY);
        }
    }
}

/// Waits until the sockets with a local port have no unread packet.
#[track_caller]
pub(crate) fn await_read(port: u16) {
    await_true("all packets are received", || unread_bytes(port) == 0);
}

/// Returns the memory used by unread packets at the fullest UDP socket of this network with a local
/// port.
fn unread_bytes(port: u16) -> u64 {
    let port = format!(":{port:04X}");
    let unread = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let is_it = fields.next()?.ends_with(&port);
        let (_, unread) = fields.nth(2)?.split_once(':')?;
        u64::from_str_radix(unread, 16).ok().filter(|_| is_it)
    };
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(fs::read_to_string);
    let of_table = |table: &String| table.lines().filter_map(unread).max();
    tables.iter().flatten().filter_map(of_table).max().unwrap_or(0)
}

/// Calibrations are kept below it.
pub(crate) const CACHE_HOME: &str = "XDG_CACHE_HOME";
/// Packets between two checks of the receiving socket: 37 kB of its memory.
pub(crate) const BURST: usize = 16;
/// A socket has 208 KiB with the default `rmem_default`, and a packet uses 2.3 kB of it.
const UNREAD_BYTES_MAX: u64 = 64 << 10;
const ROOM_LOOK_EVERY: Duration = Duration::from_millis(2);
const READY_WAIT: Duration = Duration::from_secs(60);
const END_WAIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
