// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cost of a packet by each member of `paths::PATHS`, from two readings of the clock. Under
//! `-icount` the clock counts instructions.
//!
//! The job runs the server's code: it passes batches of packets to a path object and makes the
//! headers for each batch. Datagrams go to the dummy interface, which drops them below the whole
//! network stack. A download goes over the loopback interface to a thread of this program, which
//! discards it unread (`MSG_TRUNC`), so its figure includes both ends.
//!
//! Each member sends the whole file once before it is measured, which maps pages and grows buffers.
//! A member that cannot run here is reported in a line `guest: skip`.
//!
//! Settings: `members=rtp/mmap_gso,udp/sendfile` (all), `packets=` (20,480), `rounds=` (1), and
//! `segments=` (as many as the path and 64 KiB allow; 1: no segmentation by the kernel).
//!
//! Sources: *data-paths*, tables 1-A to 1-C.
//!
//! Does not pace, serve several sessions, or compare received bytes (`verify` does).

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use paths::{
    Destination, DownloadPath, Feed, Host, Open, PATHS, SEGMENTS_MAX, SendError, SendStats, Spec,
    StreamPath,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_tcp_congestion, set_tcp_cork};
use rustix::net::{RecvFlags, recv};

use crate::error::Error;
use crate::fixture::{BatchBuffers, Fixture, FixtureShape};
use crate::guest_job::GuestJob;
use crate::meter;
use crate::protocol::{ConsoleLine, WorkDone};
use crate::settings::GuestSettings;

/// The job.
pub(crate) static JOB: GuestJob = GuestJob { name: "paths", run };

/// Bytes of an RTP packet with 7 packets of a transport stream.
pub(crate) const DATAGRAM_BYTES: u32 = wire::mp2t::PACKET_BYTES as u32;
/// Messages that one `sendmmsg` sends; most paths send shorter segment runs.
const BATCH_PACKETS: u32 = 1024;
/// Packets of the file, which is sent repeatedly.
const FILE_PACKETS: u32 = 4 * BATCH_PACKETS;
const PACKETS: u64 = 5 * FILE_PACKETS as u64;
/// Address of the dummy interface, and of a neighbour: the link needs no address resolution.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const NEIGHBOUR: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 9, 0, 2), 5004);
const STEP_BYTES_MAX: u64 = 1 << 20;
/// Time after which the kernel's work from boot has ended. Under `-icount` sleeping costs nothing.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
const WRITABLE_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
const DISCARDED_BYTES: usize = 1 << 20;

fn run(settings: &GuestSettings) -> Result<(), Error> {
    let packets = settings.number("packets").unwrap_or(PACKETS);
    let fixture = Fixture::make(FixtureShape {
        packets: FILE_PACKETS,
        datagram_bytes: DATAGRAM_BYTES,
        last_bytes: DATAGRAM_BYTES,
        start_bytes: 0,
        first_sequence: 0,
    })?;
    let segments = settings.number("segments").map_or(SEGMENTS_MAX, |most| most as u32);
    sleep(SETTLED_AFTER);
    for _ in 0..settings.number("rounds").unwrap_or(1) {
        for spec in wanted(settings)? {
            let measured = match spec.open {
                Open::Stream { .. } => stream(spec, &fixture, segments, packets),
                Open::Download(_) => download(spec, &fixture, packets),
                Open::Interleaved { .. } => unreachable!("not a member of PATHS"),
            };
            settle(spec, measured)?;
        }
    }
    Ok(())
}

/// Returns the members named in the settings, or all; reports and leaves out those that this
/// machine cannot use.
pub(crate) fn wanted(settings: &GuestSettings) -> Result<Vec<&'static Spec>, Error> {
    let names = settings.text("members").map(|names| names.split(',').collect::<Vec<_>>());
    for name in names.iter().flatten() {
        if !PATHS.iter().any(|spec| spec.to_string() == *name) {
            let known = PATHS.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(Error::Word { word: (*name).to_owned(), known });
        }
    }
    let host = Host::here();
    let is_wanted = |spec: &&&Spec| match &names {
        Some(names) => names.contains(&spec.to_string().as_str()),
        None => true,
    };
    let mut usable = Vec::new();
    for spec in PATHS.iter().filter(is_wanted) {
        match (spec.probe)(&host) {
            Ok(()) => usable.push(*spec),
            Err(reason) => ConsoleLine::Skip(&format!("{spec}: {reason}")).say(),
        }
    }
    Ok(usable)
}

/// Reports a member that this machine or route cannot use; any other error ends the run.
pub(crate) fn settle(spec: &Spec, outcome: Result<(), Failure>) -> Result<(), Error> {
    match outcome {
        Ok(()) => Ok(()),
        Err(Failure::Send(error @ SendError::Unframed { .. })) => {
            ConsoleLine::Skip(&format!("{spec}: {error}")).say();
            Ok(())
        }
        Err(Failure::Send(error)) => Err(failed(spec, error)),
        Err(Failure::Other(error)) => Err(error),
    }
}

/// Reason why a member was not measured.
pub(crate) enum Failure {
    Send(SendError),
    Other(Error),
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Failure {
        Failure::Send(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Other(error)
    }
}

/// Returns an error of the crate `paths` about a member.
pub(crate) fn failed(spec: &Spec, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::host("send by", spec.to_string())(std::io::Error::other(error))
}

fn stream(
    spec: &'static Spec,
    fixture: &Fixture,
    segments: u32,
    packets: u64,
) -> Result<(), Failure> {
    let mut sender = StreamSender::open(spec, fixture, OWN, SocketAddr::from(NEIGHBOUR))?;
    sender.to.limit_segments(segments);
    sender.send(u64::from(fixture.shape.packets))?;
    let mut sent = Ok(());
    meter::measure(&spec.to_string(), || {
        let before = sender.stats;
        sent = sender.send(packets);
        Ok(work(&sender.stats.since(&before)))
    })?;
    Ok(sent?)
}

fn work(stats: &SendStats) -> WorkDone {
    WorkDone { bytes: stats.bytes, calls: stats.calls, packets: stats.packets }
}

/// A stream path and its destination.
pub(crate) struct StreamSender<'a> {
    path: Box<dyn StreamPath>,
    feed: Feed,
    to: Destination,
    fixture: &'a Fixture,
    room: BatchBuffers,
    next: u32,
    pub(crate) stats: SendStats,
}

impl<'a> StreamSender<'a> {
    pub(crate) fn open(
        spec: &'static Spec,
        fixture: &'a Fixture,
        from: Ipv4Addr,
        to: SocketAddr,
    ) -> Result<StreamSender<'a>, Error> {
        let Open::Stream { feed, open, .. } = spec.open else {
            panic!("{spec} does not send datagrams");
        };
        let path = open().map_err(|error| failed(spec, error))?;
        let socket = UdpSocket::bind((from, 0)).map_err(Error::host("bind", from.to_string()))?;
        socket.connect(to).map_err(Error::host("connect", to.to_string()))?;
        let to = Destination::new(socket, to.to_string()).map_err(|error| failed(spec, error))?;
        let (room, stats) = (BatchBuffers::default(), SendStats::default());
        Ok(StreamSender { path, feed, to, fixture, room, next: 0, stats })
    }

    /// Sends `packets` packets; continues at the first after the last.
    fn send(&mut self, packets: u64) -> Result<(), SendError> {
        let mut left = packets;
        while left > 0 {
            let most = u32::try_from(left).unwrap_or(u32::MAX).min(BATCH_PACKETS);
            left -= u64::from(self.step(most)?);
        }
        Ok(())
    }

    /// Sends as many of the next `packets_max` packets as the socket accepts, at least one; returns
    /// their number.
    pub(crate) fn step(&mut self, packets_max: u32) -> Result<u32, SendError> {
        let packets = self.fixture.shape.packets;
        let end = self.next.saturating_add(packets_max).min(packets);
        let accepted = loop {
            let batch = self.fixture.batch(self.feed, self.next..end, &mut self.room);
            match self.path.send(&batch, &mut self.to, &mut self.stats) {
                Err(SendError::Blocked) if is_writable(&self.to) => {}
                result => break result?,
            }
        };
        self.next += accepted;
        if self.next == packets {
            self.next = 0;
        }
        Ok(accepted)
    }
}

/// Waits until a socket accepts data; returns false after `WRITABLE_TIMEOUT`.
fn is_writable(socket: &impl AsFd) -> bool {
    let mut asked = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut asked, Some(&WRITABLE_TIMEOUT)).is_ok_and(|ready| ready > 0)
}

/// Measures a download in steps of a packet, and one in the largest steps, in which a call can
/// carry more than it was read for.
fn download(spec: &'static Spec, fixture: &Fixture, packets: u64) -> Result<(), Failure> {
    for (step_bytes, suffix) in [(u64::from(DATAGRAM_BYTES), ""), (STEP_BYTES_MAX, "/1M")] {
        let (mut source, sink) = DownloadSender::open(spec, fixture, step_bytes)?;
        source.send(fixture.image().bytes())?;
        let bytes = packets * u64::from(DATAGRAM_BYTES);
        let mut sent = Ok(());
        meter::measure(&format!("{spec}{suffix}"), || {
            let before = source.stats;
            sent = source.send(bytes);
            let WorkDone { bytes, calls, .. } = work(&source.stats.since(&before));
            // Counts the packets that the same bytes would be as datagrams.
            Ok(WorkDone { bytes, calls, packets: bytes / u64::from(DATAGRAM_BYTES) })
        })?;
        sent?;
        drop(source);
        sink.join().expect("the sink does not panic").map_err(Error::host("recv", "loopback"))?;
    }
    Ok(())
}

/// A download path and its connection.
pub(crate) struct DownloadSender<'a> {
    path: Box<dyn DownloadPath>,
    socket: TcpStream,
    fixture: &'a Fixture,
    step_bytes: u64,
    at: u64,
    stats: SendStats,
}

/// Thread that reads a connection to its end; returns the bytes received.
type SinkThread = JoinHandle<std::io::Result<u64>>;

impl<'a> DownloadSender<'a> {
    fn open(
        spec: &'static Spec,
        fixture: &'a Fixture,
        step_bytes: u64,
    ) -> Result<(DownloadSender<'a>, SinkThread), Error> {
        let (download, accepted) = Self::connect(spec, fixture, step_bytes)?;
        Ok((download, spawn(move || discard(&accepted))))
    }

    /// Connects both ends of a connection over loopback.
    pub(crate) fn connect(
        spec: &'static Spec,
        fixture: &'a Fixture,
        step_bytes: u64,
    ) -> Result<(DownloadSender<'a>, TcpStream), Error> {
        let Open::Download(open) = spec.open else { panic!("{spec} does not download") };
        let path = open().map_err(|error| failed(spec, error))?;
        let connected = || -> std::io::Result<(TcpStream, TcpStream)> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let socket = TcpStream::connect(listener.local_addr()?)?;
            let (accepted, _) = listener.accept()?;
            socket.set_nonblocking(true)?;
            // Makes full segments for all step sizes, and uses the congestion control that every
            // kernel has.
            set_tcp_cork(&socket, true)?;
            set_tcp_congestion(&socket, "reno")?;
            Ok((socket, accepted))
        };
        let (socket, accepted) = connected().map_err(Error::host("connect", "loopback"))?;
        let stats = SendStats::default();
        Ok((DownloadSender { path, socket, fixture, step_bytes, at: 0, stats }, accepted))
    }

    /// Sends `bytes` bytes; continues at the file's start after its end.
    pub(crate) fn send(&mut self, bytes: u64) -> Result<(), SendError> {
        let media = self.fixture.image();
        let end = self.stats.bytes + bytes;
        while self.stats.bytes < end {
            let left = media.bytes() - self.at;
            let wanted = self.step_bytes.min(left).min(end - self.stats.bytes);
            let socket = self.socket.as_fd();
            match self.path.send(media, self.at, wanted, socket, &mut self.stats) {
                Ok(sent) => self.at = if sent == left { 0 } else { self.at + sent },
                Err(SendError::Blocked) if is_writable(&self.socket) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Receives and discards all bytes.
fn discard(socket: &TcpStream) -> std::io::Result<u64> {
    let mut buffer = vec![0_u8; DISCARDED_BYTES];
    let mut bytes = 0;
    loop {
        match recv(socket, &mut buffer[..], RecvFlags::TRUNC)? {
            (_, 0) => return Ok(bytes),
            (_, received) => bytes += received as u64,
        }
    }
}
