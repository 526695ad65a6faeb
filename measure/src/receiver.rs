// SPDX-License-Identifier: MIT OR Apache-2.0
//! The far end: checks the bytes that a member sends before its time counts.
//!
//! The sending thread itself receives datagrams after each batch, from a socket of the second
//! namespace whose buffer holds a batch; a slow receiver cannot lose any. A separate thread reads a
//! TCP connection: it compares bytes when a member is verified, and discards them without a copy by
//! `MSG_TRUNC` when it is timed. The CPU cost of that receiving is included in the figure.
//!
//! Sources: recv(2) (`MSG_TRUNC` of tcp(7)), socket(7) (`SO_RCVBUFFORCE`).
//! Does not repair; the first wrong byte ends the run.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use paths::{MappedFile, SendError, SendStats, Spec, Transport};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{RecvFlags, recv};

use crate::error::Error;
use crate::fixture::{Fixture, Image};
use crate::meter::thread_time;
use crate::network::Network;
use crate::sender::{DownloadSender, Sender};

/// Sends some batches of a member to a socket behind the veth pair and compares every byte.
///
/// # Errors
/// [`Error::Wrong`] with the packet; also when the path refuses to send.
pub fn verify_datagrams(
    spec: &'static Spec,
    (fixture, image): (&Fixture, &Image),
    (datagram_bytes, segments): (u32, u32),
    network: &Network,
) -> Result<(), Error> {
    let wrong = |found: String| Error::Wrong { member: spec.to_string(), found };
    let socket = network.far_udp(0)?;
    prepare(&socket).map_err(Error::host("the receiving socket"))?;
    let to = socket.local_addr().map_err(Error::host("the receiving socket"))?;
    let sizes = (datagram_bytes, segments);
    let mut sender = Sender::open(spec, fixture, image, sizes, to)?;
    let source = match spec.transport {
        Transport::Rtp => &image.media,
        _ => &fixture.file,
    };
    let size = datagram_bytes as usize;
    let (mut expected, mut found) = (vec![0; size], vec![0; size + 1]);
    let (mut verified, mut first) = (0, true);
    while verified < VERIFIED_PACKETS.max(3 * u64::from(segments)) {
        let packets = if first { sender.first_step() } else { sender.step() };
        let packets = packets.map_err(|error| wrong(error.to_string()))?;
        first = false;
        verified += packets.end - packets.start;
        for packet in packets {
            let bytes = socket.recv(&mut found).map_err(|e| wrong(format!("{packet}: {e}")))?;
            let offset = packet * u64::from(datagram_bytes);
            source
                .file()
                .read_exact_at(&mut expected, offset)
                .map_err(Error::host("reading what was to be sent"))?;
            if found[..bytes] != expected {
                let found = format!("packet {packet}: not the bytes that were to be sent");
                return Err(wrong(found));
            }
        }
    }
    Ok(())
}

/// Sets a buffer for several batches, and a timeout that suffices on a machine under load.
fn prepare(socket: &UdpSocket) -> std::io::Result<()> {
    if set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER_BYTES).is_err() {
        set_socket_recv_buffer_size(socket, RECEIVE_BUFFER_BYTES)?;
    }
    socket.set_read_timeout(Some(TIMEOUT))
}

/// Sends a part of the file over TCP and compares every byte. Each step starts when the bytes of
/// the previous one have arrived, so no socket is full. Returns the statistics and the number of
/// steps: calls and copies of a step without refusals.
pub fn verify_download(
    spec: &'static Spec,
    media: &MappedFile,
    step_bytes: u64,
    network: &Network,
) -> Result<(SendStats, u64), Error> {
    let wrong = |found: String| Error::Wrong { member: spec.to_string(), found };
    let (listener, to) = listen(network)?;
    let all =
        (VERIFIED_STEPS * step_bytes).clamp(3 * step_bytes, VERIFIED_BYTES.max(3 * step_bytes));
    let all = all.min(media.bytes());
    let so_far = AtomicU64::new(0);
    // The connection is made before the reader waits for it.
    let mut download = DownloadSender::open(spec, media, step_bytes, to)?;
    download.uncork().map_err(Error::host("TCP_CORK"))?;
    std::thread::scope(|scope| {
        let progress = &so_far;
        let reader = scope.spawn(move || compare(&listener, media, progress));
        let mut first = (SendStats::default(), 0);
        let mut step_by_step = || {
            while download.stats.bytes < all {
                download.step(all)?;
                let there = || so_far.load(Ordering::Acquire);
                while there() < download.stats.bytes && !reader.is_finished() {
                    std::thread::sleep(ARRIVAL_LOOK);
                }
                if first.1 == 0 {
                    // The first step sets options.
                    first = (download.stats, download.steps);
                }
            }
            Ok(())
        };
        let sent: Result<(), SendError> = step_by_step();
        let finished = download.finish();
        let counted = (download.stats.since(&first.0), download.steps - first.1);
        drop(download);
        // An error of the reader explains one of the sender, so it is reported first.
        let found = reader.join().expect("it does not panic").map_err(wrong)?;
        sent.map_err(|error| wrong(error.to_string()))?;
        finished.map_err(Error::host("shutdown"))?;
        if found != all {
            return Err(wrong(format!("{} bytes missing", all.saturating_sub(found))));
        }
        Ok(counted)
    })
}

/// Accepts a connection and compares its bytes with `media` from the start; returns their number.
/// `so_far` follows it.
pub(crate) fn compare(
    listener: &TcpListener,
    media: &MappedFile,
    so_far: &AtomicU64,
) -> Result<u64, String> {
    let (mut connection, _) = listener.accept().map_err(|error| error.to_string())?;
    let set = connection.set_read_timeout(Some(TIMEOUT));
    set.map_err(|error| error.to_string())?;
    let (mut found, mut expected) = (vec![0; 65_536], vec![0; 65_536]);
    let mut at = 0;
    loop {
        let bytes = connection.read(&mut found).map_err(|error| format!("byte {at}: {error}"))?;
        if bytes == 0 {
            return Ok(at);
        }
        let read = media.file().read_exact_at(&mut expected[..bytes], at);
        read.map_err(|error| format!("byte {at}: {error}"))?;
        if found[..bytes] != expected[..bytes] {
            return Err(format!("bytes {at} to {}: not those of the file", at + bytes as u64));
        }
        at += bytes as u64;
        so_far.store(at, Ordering::Release);
    }
}

/// A thread that receives a connection's bytes without copying them.
pub struct Drain {
    thread: JoinHandle<std::io::Result<(u64, Duration)>>,
    so_far: Arc<Progress>,
}

/// Bytes that a drain has received, and its processor time in nanoseconds.
#[derive(Default)]
struct Progress {
    bytes: AtomicU64,
    processor_ns: AtomicU64,
}

impl Drain {
    /// Accepts the connection that waits at `listener` and receives its bytes.
    pub fn start(listener: TcpListener) -> Drain {
        let so_far = Arc::new(Progress::default());
        let progress = so_far.clone();
        let thread = std::thread::spawn(move || {
            let (connection, _) = listener.accept()?;
            drain(&connection, &progress)
        });
        Drain { thread, so_far }
    }

    /// Waits until `bytes` bytes have been received or the drain has ended; returns its processor
    /// time.
    pub fn await_bytes(&self, bytes: u64) -> Duration {
        while self.so_far.bytes.load(Ordering::Acquire) < bytes && !self.thread.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Duration::from_nanos(self.so_far.processor_ns.load(Ordering::Acquire))
    }

    /// Waits for the connection's end; returns bytes received and the thread's processor time.
    pub fn finish(self) -> Result<(u64, Duration), Error> {
        let drained = self.thread.join().expect("it does not panic");
        drained.map_err(Error::host("receiving"))
    }
}

fn drain(connection: &TcpStream, progress: &Progress) -> std::io::Result<(u64, Duration)> {
    let mut room = vec![0_u8; DRAIN_BYTES];
    let mut all = 0;
    loop {
        match recv(connection, &mut room, RecvFlags::TRUNC) {
            Ok((_, 0)) => return Ok((all, thread_time())),
            Ok((_, bytes)) => {
                all += bytes as u64;
                // One clock call for a chunk of up to a mebibyte.
                progress.processor_ns.store(thread_time().as_nanos() as u64, Ordering::Release);
                progress.bytes.store(all, Ordering::Release);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns a listening socket at the far end, and its address.
pub fn listen(network: &Network) -> Result<(TcpListener, SocketAddr), Error> {
    let listener = network.far_tcp()?;
    let to = listener.local_addr().map_err(Error::host("the listening socket"))?;
    Ok((listener, to))
}

const VERIFIED_PACKETS: u64 = 500;
const VERIFIED_BYTES: u64 = 8 << 20;
const VERIFIED_STEPS: u64 = 2000;
pub(crate) const ARRIVAL_LOOK: Duration = Duration::from_micros(30);
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);
const DRAIN_BYTES: usize = 1 << 20;
