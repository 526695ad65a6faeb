// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets of one stream: read from a socket or from the RTSP connection, into the statistics
//! and the file or the units of a track.
//!
//! A thread runs it step by step: one for each stream of a play ([`super::receive_thread`]), one
//! for all tracks of a camera ([`super::camera_thread`]). The kernel timestamps datagrams, so the
//! thread's own scheduling delay is not included. Costs a system call for up to 32 packets
//! ([`SocketReader`]), one lock that is hardly ever contended, and one copy when a file is written.
//! Packets of the RTSP connection arrive in batches from the task that reads it, with the times of
//! its reads ([`FrameQueue`]).
//!
//! Packets may arrive before the answer to PLAY has been read, and that answer names the first of
//! them. They are held with their times until then ([`Command::Begin`]), so that losses at the very
//! start count.
//!
//! Sources: RFC 3550 §5.1, A.1; RFC 2326 §12.33 (RTP-Info).
//! Does not wait for packets.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use clock::Clock;
use media::Codec;
use paths::dropped_packets;
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

/// Handle of an intake. Dropping it stops the intake.
pub(super) struct IntakeHandle {
    commands: Sender<Command>,
    stats: Arc<Mutex<StreamStats>>,
}

/// Result of an intake.
#[derive(Debug, Clone)]
pub(super) struct ReceiveResult {
    /// Format of a track, if it was found.
    pub(super) codec: Option<Codec>,
    pub(super) written: Option<WrittenFile>,
    /// Packets missing from the file.
    pub(super) file_missing: u64,
}

/// State of an intake after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntakeStep {
    /// More packets may wait.
    More,
    /// All packets were read.
    Empty,
    /// It was stopped, and all packets were read.
    Ended,
}

impl IntakeHandle {
    pub(super) fn command(&self, command: Command) {
        // An intake that has ended has given its reason in its result.
        let _ = self.commands.send(command);
    }

    pub(super) fn stats(&self) -> MutexGuard<'_, StreamStats> {
        lock(&self.stats)
    }

    pub(super) fn shared(&self) -> Arc<Mutex<StreamStats>> {
        self.stats.clone()
    }
}

/// The packets of one stream, in the thread that reads them.
pub(super) struct Intake {
    source: AnnouncedSender,
    stats: Arc<Mutex<StreamStats>>,
    inbox: Receiver<Command>,
    phase: Phase,
    pub(super) clock: ArrivalClock,
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
    /// Reads the datagrams in the socket, until this time of its clock at most.
    Stopping {
        until: Duration,
        is_cut: bool,
    },
}

/// Operation on the receiver of a stream.
enum ReceiverStep<'a> {
    Datagram(SocketDatagram<'a>),
    Expire(Duration),
    Finish,
}

impl Intake {
    /// An intake that holds packets until the first [`Command::Begin`], on `clock`.
    ///
    /// # Errors
    /// A socket that does not report times of arrival.
    pub(super) fn new(
        input: &PacketInput,
        source: AnnouncedSender,
        format: StreamFormat,
        clock: &Clock,
    ) -> Result<(IntakeHandle, Intake), Error> {
        if let PacketInput::Socket(socket) = input {
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
        let intake = Intake {
            source,
            stats: stats.clone(),
            inbox,
            phase: Phase::Held(HeldUntilPlay::default()),
            clock: ArrivalClock::start(clock),
            format,
        };
        Ok((IntakeHandle { commands, stats }, intake))
    }

    /// Receives the datagrams of one call.
    ///
    /// # Errors
    /// The socket has failed; [`close`](Self::close) ends the intake.
    pub(super) fn read(
        &mut self,
        reader: &mut SocketReader,
        socket: &UdpSocket,
    ) -> Result<IntakeStep, Error> {
        let (is_stopping, now) = (self.is_stopping(), self.clock.now());
        let (more, datagrams) = reader.read(socket).map_err(|errno| {
            let port = socket.local_addr().map_or(0, |local| local.port());
            let object = format!("UDP port {port}");
            Error::Host { call: "recvmmsg", object, source: io::Error::from(errno) }
        })?;
        // Handled before the packets, because a command precedes the packets that it causes.
        self.handle_commands();
        let mut last_at = None;
        for datagram in datagrams {
            last_at = Some(datagram.at);
            self.receive(datagram);
        }
        if last_at.is_none() && is_stopping || self.is_overdue() {
            return Ok(IntakeStep::Ended);
        }
        // A packet that fills a hole may be among those not read yet.
        self.have_read(last_at.filter(|_| more).unwrap_or(now));
        Ok(if more { IntakeStep::More } else { IntakeStep::Empty })
    }

    /// Receives a batch queued by the task that reads the connection; waits for it, for this time
    /// at most.
    pub(super) fn read_frames(&mut self, frames: &FrameQueue, at_most: Duration) -> IntakeStep {
        let (is_stopping, now) = (self.is_stopping(), self.clock.now());
        let batch = match is_stopping || at_most.is_zero() {
            true => frames.next(),
            false => frames.wait(at_most),
        };
        // Handled before the packets, as in `read`.
        self.handle_commands();
        let step = match &batch {
            Some(batch) => {
                self.receive_batch(batch, frames.from);
                self.have_read(self.clock.since(batch.at));
                IntakeStep::More
            }
            None if is_stopping => IntakeStep::Ended,
            None => {
                self.have_read(now);
                IntakeStep::Empty
            }
        };
        if self.is_overdue() { IntakeStep::Ended } else { step }
    }

    /// Ends the intake of this input: completes the file or the last unit.
    ///
    /// # Errors
    /// `failure`, or the output's.
    pub(super) fn close(
        mut self,
        input: &PacketInput,
        failure: Option<Error>,
    ) -> Result<ReceiveResult, Error> {
        // TCP has no count of drops, because it drops nothing.
        let kernel_drops = match input {
            PacketInput::Socket(socket) => dropped_packets(socket).ok().map(u64::from),
            PacketInput::Frames(_) => None,
        };
        {
            let mut stats = lock(&self.stats);
            (stats.is_receiving, stats.kernel_drops) = (false, kernel_drops);
        }
        let written = self.complete()?;
        let file_missing = lock(&self.stats).receiver.missing();
        let codec = match &self.format {
            StreamFormat::Track(track) => track.codec().cloned(),
            StreamFormat::TransportStream(_) => None,
        };
        failure.map_or(Ok(ReceiveResult { codec, written, file_missing }), Err)
    }

    /// Access units of a track so far, those of them with which decoding can begin, and true if its
    /// codec is known; `None` for a transport stream.
    pub(super) fn units(&self) -> Option<(u64, u64, bool)> {
        match &self.format {
            StreamFormat::Track(track) => {
                let counts = track.counts();
                Some((counts.units, counts.starts, track.codec().is_some()))
            }
            StreamFormat::TransportStream(_) => None,
        }
    }

    fn receive_batch(&mut self, batch: &FrameBatch, from: SocketAddr) {
        let at = self.clock.since(batch.at);
        for bytes in batch.packets() {
            self.receive(SocketDatagram { bytes, is_cut: false, from, at, dropped: 0 });
        }
    }

    /// True once it was stopped: it reads the packets that wait.
    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. })
    }

    /// The sender ignores the end of the play.
    fn is_overdue(&self) -> bool {
        matches!(self.phase, Phase::Stopping { until, .. } if self.clock.now() >= until)
    }

    fn complete(&mut self) -> Result<Option<WrittenFile>, Error> {
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
        let clock = &self.clock;
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
        guard.accept_report_ahead();
    }

    fn handle_commands(&mut self) {
        while !self.is_stopping() {
            match self.inbox.try_recv() {
                Ok(command) => self.handle(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.handle(Command::Stop { is_cut: true }),
            }
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Hold => self.phase = Phase::Held(HeldUntilPlay::default()),
            Command::Begin { sequence } => self.begin(sequence),
            Command::Pause => self.phase = Phase::Paused(self.clock.instant(self.clock.now())),
            Command::Stop { is_cut } => {
                self.begin_held();
                self.phase = Phase::Stopping { until: self.clock.now() + STOP_AFTER, is_cut };
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
            lock(&self.stats).packets.refused_host(from);
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

    /// All packets that arrived until then were received: gives up holes whose waiting time has
    /// expired, and passes the progress on.
    fn have_read(&mut self, until: Duration) {
        if matches!(self.format, StreamFormat::Track(_)) {
            self.with_receiver(ReceiverStep::Expire(until));
        }
        if let StreamFormat::Track(track) = &self.format
            && !matches!(self.phase, Phase::Held(_))
        {
            let held = lock(&self.stats).receiver.held_since();
            track.read_until(self.clock.instant(held.map_or(until, |held| until.min(held))));
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

/// Limit on receiving from a sender that ignores the end of the play.
const STOP_AFTER: Duration = Duration::from_millis(200);
/// Ten seconds of 8 Mb/s: a slower answer is not awaited.
const HELD_PACKETS_MAX: usize = 8192;
const HELD_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests;
