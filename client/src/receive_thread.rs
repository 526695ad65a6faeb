// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving thread of a play: reads packets from one socket, or from the RTSP connection, into
//! the statistics and the file.
//!
//! It is a separate thread, because a task on a shared executor is delayed while others are busy.
//! The kernel timestamps datagrams, so the thread's own scheduling delay is not included. Costs two
//! system calls for up to 32 packets ([`SocketReader`]), one lock that is hardly ever contended,
//! and one copy when a file is written. Packets of the RTSP connection arrive in batches from the
//! task that reads it, with the times of its reads ([`FrameQueue`]).
//!
//! Packets may arrive before the answer to PLAY has been read, and that answer names the first of
//! them. They are held with their times until then ([`Command::Begin`]), so that losses at the very
//! start count.
//!
//! Sources: RFC 3550 §5.1, A.1; RFC 2326 §12.33 (RTP-Info); poll(2).
//! Does not send reports ([`super::rtcp_reporter`] does).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use media::Codec;
use paths::dropped_packets;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;
use wire::reorder::Limits;

use super::file_writer::{FileWriter, WrittenFile};
use super::frame_reader::{FrameBatch, FrameQueue};
use super::play_consumer::{PlayConsumer, TrackConsumer};
use super::stream_stats::{StreamStats, lock};
use super::track_receiver::{TRACK_REORDER, TrackReceiver};
use crate::error::Error;
use crate::rtp_receiver::{
    ArrivalClock, PacketConsumer, RtpReceiver, SingleSource, SocketDatagram, SocketReader,
};

/// The sender of a stream, as announced in SETUP.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnnouncedSender {
    /// Host that sends; none if unknown, and then any host is accepted.
    pub(super) host: Option<IpAddr>,
    /// None where SETUP names no SSRC; the first packet then sets it.
    pub(super) ssrc: Option<u32>,
    pub(super) payload_type: u8,
    pub(super) clock_rate_hz: u32,
}

/// Content of the packets, and its consumer.
pub(super) enum StreamFormat {
    /// A transport stream, optionally with a file for its unchanged bytes.
    TransportStream(Option<FileWriter>),
    /// A track, whose access units are assembled.
    Track(Box<TrackReceiver>),
}

/// Source of the packets.
pub(super) enum PacketInput {
    /// Datagrams.
    Socket(UdpSocket),
    /// Frames of the RTSP connection.
    Frames(FrameQueue),
}

/// Command to the thread.
#[derive(Debug, Clone, Copy)]
pub(super) enum Command {
    /// PLAY is about to be sent: hold packets.
    Hold,
    /// PLAY was answered: start a new clock, at this sequence number if one was announced.
    Begin { sequence: Option<u16> },
    /// PAUSE was answered.
    Pause,
    Stop {
        /// The sender continues: the last access unit may be incomplete.
        is_cut: bool,
    },
}

/// Handle of the thread. Dropping it stops the thread.
pub(super) struct ReceiveThread {
    commands: Sender<Command>,
    stats: Arc<Mutex<StreamStats>>,
    result: oneshot::Receiver<Result<ReceiveResult, Error>>,
}

/// Result of the thread.
#[derive(Debug, Clone)]
pub(super) struct ReceiveResult {
    /// Format of a track, if it was found.
    pub(super) codec: Option<Codec>,
    pub(super) written: Option<WrittenFile>,
    /// Packets missing from the file.
    pub(super) file_missing: u64,
}

impl ReceiveThread {
    /// Starts the thread; packets are held until the first [`Command::Begin`].
    pub(super) fn start(
        input: PacketInput,
        source: AnnouncedSender,
        format: StreamFormat,
    ) -> Result<ReceiveThread, Error> {
        if let PacketInput::Socket(socket) = &input {
            SocketReader::prepare(socket)?;
        }
        let reorder = match &format {
            StreamFormat::TransportStream(output) => output.is_some().then(Limits::default),
            StreamFormat::Track(_) => Some(TRACK_REORDER),
        };
        let single = SingleSource::new(source.ssrc, source.clock_rate_hz);
        let receiver = RtpReceiver::new(source.payload_type, single, reorder);
        let stats = Arc::new(Mutex::new(StreamStats::new(receiver, source.clock_rate_hz)));
        let (commands, inbox) = channel();
        let (end, result) = oneshot::channel();
        let reader = SocketReader::new();
        let thread = Thread {
            source,
            stats: stats.clone(),
            inbox,
            phase: Phase::Held(HeldUntilPlay::default()),
            clock: reader.clock,
            format,
        };
        std::thread::Builder::new()
            .name("receive".to_owned())
            .spawn(move || {
                // The handle is gone where the play was given up.
                let _ = end.send(match input {
                    PacketInput::Socket(socket) => thread.run(socket, reader),
                    PacketInput::Frames(frames) => thread.run_frames(&frames),
                });
            })
            .map_err(|source| Error::Host {
                call: "clone",
                object: "thread receive".into(),
                source,
            })?;
        Ok(ReceiveThread { commands, stats, result })
    }

    pub(super) fn command(&self, command: Command) {
        // A thread that has ended has given its reason to `stop`.
        let _ = self.commands.send(command);
    }

    pub(super) fn stats(&self) -> MutexGuard<'_, StreamStats> {
        lock(&self.stats)
    }

    pub(super) fn shared(&self) -> Arc<Mutex<StreamStats>> {
        self.stats.clone()
    }

    /// Reads the datagrams left in the socket, closes the file, and ends the thread.
    pub(super) async fn stop(self, is_cut: bool) -> Result<ReceiveResult, Error> {
        self.command(Command::Stop { is_cut });
        self.result.await.unwrap_or_else(|_| {
            let source = io::Error::other("the thread panicked");
            Err(Error::Host { call: "receive", object: "RTP".into(), source })
        })
    }
}

struct Thread {
    source: AnnouncedSender,
    stats: Arc<Mutex<StreamStats>>,
    inbox: Receiver<Command>,
    phase: Phase,
    clock: ArrivalClock,
    format: StreamFormat,
}

/// Datagrams that wait for the answer to PLAY: sender, time of arrival, bytes.
#[derive(Default)]
struct HeldUntilPlay {
    datagrams: Vec<(SocketAddr, Duration, Vec<u8>)>,
    bytes: usize,
}

enum Phase {
    Held(HeldUntilPlay),
    Playing,
    Paused(Instant),
    /// Reads the datagrams in the socket, until this time at most.
    Stopping {
        until: Instant,
        is_cut: bool,
    },
}

/// Operation on the receiver of a stream.
enum ReceiverStep<'a> {
    Datagram(SocketDatagram<'a>),
    Expire(Duration),
    Finish,
}

impl Thread {
    fn run(mut self, socket: UdpSocket, mut reader: SocketReader) -> Result<ReceiveResult, Error> {
        let mut failure = None;
        loop {
            let is_stopping = self.is_stopping();
            wait(&socket, if is_stopping { Duration::ZERO } else { CHECK_EVERY });
            let now = Instant::now();
            match reader.read(&socket) {
                Ok((_, datagrams)) => {
                    // Handled before the packets, because a command precedes the packets that it
                    // causes.
                    self.handle_commands();
                    let mut is_idle = true;
                    for datagram in datagrams {
                        is_idle = false;
                        self.receive(datagram);
                    }
                    if is_idle && is_stopping {
                        break;
                    }
                    self.expire();
                }
                Err(errno) => {
                    let source = io::Error::from(errno);
                    let port = socket.local_addr().map_or(0, |local| local.port());
                    let object = format!("UDP port {port}");
                    failure = Some(Error::Host { call: "recvmmsg", object, source });
                    break;
                }
            }
            if matches!(self.phase, Phase::Stopping { until, .. } if now >= until) {
                break;
            }
        }
        let kernel_drops = dropped_packets(&socket).ok().map(u64::from);
        self.result(kernel_drops, failure)
    }

    /// Receives the batches queued by the task that reads the connection.
    fn run_frames(mut self, frames: &FrameQueue) -> Result<ReceiveResult, Error> {
        loop {
            let is_stopping = self.is_stopping();
            let batch = match is_stopping {
                true => frames.next(),
                false => frames.wait(CHECK_EVERY),
            };
            // Handled before the packets, as in `run`.
            self.handle_commands();
            match batch {
                Some(batch) => {
                    self.receive_batch(&batch, frames.from);
                    self.expire();
                }
                None if is_stopping => break,
                None => {}
            }
            if matches!(self.phase, Phase::Stopping { until, .. } if Instant::now() >= until) {
                break;
            }
        }
        // TCP has no count of drops, because it drops nothing.
        self.result(None, None)
    }

    fn receive_batch(&mut self, batch: &FrameBatch, from: SocketAddr) {
        let at = self.clock.since(batch.at);
        for bytes in batch.packets() {
            self.receive(SocketDatagram { bytes, is_cut: false, from, at, dropped: 0 });
        }
    }

    fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. })
    }

    fn result(
        &mut self,
        kernel_drops: Option<u64>,
        failure: Option<Error>,
    ) -> Result<ReceiveResult, Error> {
        {
            let mut stats = lock(&self.stats);
            (stats.is_receiving, stats.kernel_drops) = (false, kernel_drops);
        }
        let written = self.close()?;
        let file_missing = lock(&self.stats).receiver.missing();
        let codec = match &self.format {
            StreamFormat::Track(track) => track.codec().cloned(),
            StreamFormat::TransportStream(_) => None,
        };
        failure.map_or(Ok(ReceiveResult { codec, written, file_missing }), Err)
    }

    fn close(&mut self) -> Result<Option<WrittenFile>, Error> {
        self.with_receiver(ReceiverStep::Finish);
        let is_cut = matches!(self.phase, Phase::Stopping { is_cut: true, .. });
        match &mut self.format {
            StreamFormat::TransportStream(output) => {
                output.take().map(FileWriter::finish).transpose()
            }
            StreamFormat::Track(track) => {
                let mut stats = lock(&self.stats);
                track.finish(is_cut);
                track.flush_times(&mut stats.packets.lateness);
                stats.units = track.counts();
                Ok(None)
            }
        }
    }

    /// Runs an operation of the receiver with this thread's consumer.
    fn with_receiver(&mut self, step: ReceiverStep<'_>) {
        let mut guard = lock(&self.stats);
        let StreamStats { receiver, packets, units, is_output_broken, rtcp, .. } = &mut *guard;
        let paused_since = match self.phase {
            Phase::Paused(since) => Some(since),
            _ => None,
        };
        let clock = self.clock;
        match &mut self.format {
            StreamFormat::TransportStream(output) => {
                let mut consumer = PlayConsumer { packets, output, clock, paused_since };
                step.take(receiver, &mut consumer);
                *is_output_broken = output.as_ref().is_some_and(FileWriter::is_broken);
            }
            StreamFormat::Track(track) => {
                // Sent ahead of the units to which the report applies.
                if let Some((sender, _)) = &rtcp.last_sender
                    && rtcp.passed_on < rtcp.sender_reports
                {
                    rtcp.passed_on = rtcp.sender_reports;
                    track.report(sender);
                }
                let mut consumer = TrackConsumer { packets, track, clock, paused_since };
                step.take(receiver, &mut consumer);
                *units = track.counts();
            }
        }
    }

    fn handle_commands(&mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(Command::Hold) => self.phase = Phase::Held(HeldUntilPlay::default()),
                Ok(Command::Begin { sequence }) => self.begin(sequence),
                Ok(Command::Pause) => self.phase = Phase::Paused(Instant::now()),
                Err(TryRecvError::Empty) => return,
                command @ (Ok(Command::Stop { .. }) | Err(TryRecvError::Disconnected)) => {
                    if !self.is_stopping() {
                        self.begin_held();
                        let is_cut = !matches!(command, Ok(Command::Stop { is_cut: false }));
                        self.phase = Phase::Stopping { until: Instant::now() + STOP_AFTER, is_cut };
                    }
                    return;
                }
            }
        }
    }

    fn begin(&mut self, sequence: Option<u16>) {
        {
            let mut stats = lock(&self.stats);
            if let StreamFormat::Track(track) = &mut self.format {
                track.flush_times(&mut stats.packets.lateness);
            }
            stats.receiver.expect_first(sequence);
            stats.receiver.sources.renew_clock();
            stats.packets.lateness.renew();
        }
        self.begin_held();
    }

    fn begin_held(&mut self) {
        if let Phase::Held(held) = std::mem::replace(&mut self.phase, Phase::Playing) {
            for (from, at, bytes) in held.datagrams {
                let bytes = &bytes[..];
                let datagram = SocketDatagram { bytes, is_cut: false, from, at, dropped: 0 };
                self.with_receiver(ReceiverStep::Datagram(datagram));
            }
        }
    }

    fn receive(&mut self, datagram: SocketDatagram<'_>) {
        let SocketDatagram { bytes, from, at, .. } = datagram;
        let is_other = |host: IpAddr| from.ip().to_canonical() != host.to_canonical();
        if self.source.host.is_some_and(is_other) {
            let packets = &mut lock(&self.stats).packets;
            packets.unexpected_source += 1;
            packets.unexpected_from = Some(from);
            return;
        }
        if let Phase::Held(held) = &mut self.phase {
            if held.datagrams.len() < HELD_PACKETS_MAX && held.bytes < HELD_BYTES_MAX {
                held.datagrams.push((from, at, bytes.to_vec()));
                held.bytes += bytes.len();
                return;
            }
            // The answer is overdue: continue without its announcement.
            self.begin_held();
        }
        self.with_receiver(ReceiverStep::Datagram(datagram));
    }

    /// Gives up holes whose waiting time has expired.
    fn expire(&mut self) {
        if matches!(self.format, StreamFormat::Track(_)) {
            let now = self.clock.since(Instant::now());
            self.with_receiver(ReceiverStep::Expire(now));
        }
    }
}

impl ReceiverStep<'_> {
    fn take(self, receiver: &mut RtpReceiver<SingleSource>, consumer: &mut impl PacketConsumer) {
        match self {
            ReceiverStep::Datagram(SocketDatagram { bytes, from, at, .. }) => {
                receiver.receive(bytes, from, at, consumer);
            }
            ReceiverStep::Expire(now) => receiver.expire(now, consumer),
            ReceiverStep::Finish => receiver.finish(consumer),
        }
    }
}

/// Waits for a datagram, for this time at most. The next read returns any error.
fn wait(socket: &UdpSocket, at_most: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: at_most.subsec_nanos().into() };
    let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout));
}

/// Longest delay of a command when no packet arrives.
const CHECK_EVERY: Duration = Duration::from_millis(20);
/// Limit on receiving from a sender that ignores the end of the play.
const STOP_AFTER: Duration = Duration::from_millis(200);
/// Ten seconds of 8 Mb/s: a slower answer is not awaited.
const HELD_PACKETS_MAX: usize = 8192;
const HELD_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use media::depayload::Depayloader;
    use wire::rtcp::SenderInfo;
    use wire::rtp::Header;

    use super::*;
    use crate::{SenderClock, TrackEvent, TrackOrigin, TrackQueue};

    #[test]
    fn a_receiver_that_is_dropped_leaves_no_thread_behind() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let host = IpAddr::from(Ipv4Addr::LOCALHOST);
        let source = AnnouncedSender {
            host: Some(host),
            ssrc: None,
            payload_type: 33,
            clock_rate_hz: 90_000,
        };
        let format = StreamFormat::TransportStream(None);
        let receiving = ReceiveThread::start(PacketInput::Socket(socket), source, format).unwrap();
        let stats = receiving.shared();
        drop(receiving);
        // The thread holds the other end; a minute only guards against a hang.
        let until = Instant::now() + Duration::from_secs(60);
        while Arc::strong_count(&stats) > 1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(Arc::strong_count(&stats), 1);
    }

    #[test]
    fn a_sender_report_is_passed_on_ahead_of_the_units_behind_it() {
        let text = b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 5004 RTP/AVP 0\r\n";
        let offer = wire::sdp::parse_tracks(text).unwrap();
        let depayloader = Depayloader::new(&offer.tracks[0]).unwrap();
        let (mut sinks, queue) = TrackQueue::new(1);
        let track = TrackReceiver::new(depayloader, false, sinks.pop());
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = socket.local_addr().unwrap();
        let (ssrc, timestamp, clock_rate_hz) = (7, 160, 8000);
        let source =
            AnnouncedSender { host: None, ssrc: Some(ssrc), payload_type: 0, clock_rate_hz };
        let format = StreamFormat::Track(Box::new(track));
        let receiving = ReceiveThread::start(PacketInput::Socket(socket), source, format).unwrap();
        let ntp = 5 << 32;
        let sender = SenderInfo { ssrc, ntp, rtp_timestamp: timestamp, packets: 0, octets: 0 };
        {
            let mut stats = receiving.stats();
            stats.rtcp.last_sender = Some((sender, Instant::now()));
            stats.rtcp.sender_reports = 1;
        }
        receiving.command(Command::Begin { sequence: Some(1) });
        let sending = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for sequence in 1..=3 {
            let header =
                Header { payload_type: 0, marker: false, sequence, timestamp, ssrc }.write();
            sending.send_to(&[&header[..], &[0xff; 160]].concat(), to).unwrap();
        }
        let next = || queue.next(Duration::from_secs(60)).unwrap().expect("an event").1;
        let TrackEvent::Report(clock) = next() else { panic!("no report") };
        let origin = TrackOrigin { timestamp, clock_rate_hz };
        assert_eq!(clock, SenderClock { ntp, origin });
        assert!(matches!(next(), TrackEvent::Codec(_)));
        // The report is sent once.
        assert!((0..3).all(|_| matches!(next(), TrackEvent::Unit(_))));
    }
}
