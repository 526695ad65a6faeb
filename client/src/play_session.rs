// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a play: PLAY, keep-alives, a pause, any kind of end, and the verdict.
//!
//! One task waits for five things at once: BYE, the end of the RTSP connection, the caller's stop,
//! the clock, and RTCP. A thread of its own receives the packets; this task only reads its
//! statistics.
//!
//! Sources: RFC 2326 §10.5–10.8, §12.37 (keep-alive), Appendix B (a pause leaves no gap); RFC 3550
//! §6.6.
//! Does not begin again after the connection is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until, timeout};
use wire::mp2t::CLOCK_RATE_HZ;
use wire::rtp::Reception;
use wire::rtsp::client::SetupReply;
use wire::rtsp::{NptRange, NptStart};

use super::frame_reader::UnexpectedFrames;
use super::lateness::LATE;
use super::play::{Play, PlayProgress, Stop};
use super::receive_thread::{Command, ReceiveResult, ReceiveThread, StreamStats};
use super::rtcp_reporter::RtcpReporter;
use super::rtsp_connection::RtspConnection;
use super::transport::StreamTransport;
use super::verdict::{
    AnnouncedStream, MissingPackets, PlayEnd, RecordedFile, SHORT_S_MAX, Verdict,
};
use crate::error::Error;

/// The receiving thread and the reporter of a play.
pub(super) struct ReceiverTasks {
    pub(super) receiving: ReceiveThread,
    pub(super) reporter: RtcpReporter,
    pub(super) transport: StreamTransport,
    /// Place where packets are expected, for messages.
    pub(super) place: String,
    pub(super) unexpected_frames: Arc<UnexpectedFrames>,
    pub(super) buffer_bytes: usize,
}

/// A session being played.
pub(super) struct PlaySession {
    options: Play,
    control: RtspConnection,
    place: String,
    session_timeout: Duration,
    announced: AnnouncedStream,
    /// Length of the stream by its description.
    described: Option<Duration>,
    /// True where the last answer to PLAY has a range without an end.
    is_open: bool,
    /// Length of the announced range.
    media_total: Option<Duration>,
    /// The RTP timestamp at the end of the announced range.
    end_timestamp: Option<u32>,
    stage: PlayStage,
    pauses: u32,
    /// Times of the first answer to PLAY and of the last.
    began: Instant,
    resumed: Instant,
    keep_alive_at: Instant,
    /// Time at which enough was played.
    leave_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum PlayStage {
    Playing { pause_at: Option<Instant> },
    Paused { since: Instant, until: Instant },
}

impl PlaySession {
    pub(super) fn new(
        options: Play,
        control: RtspConnection,
        set_up: &SetupReply,
        described: Option<Duration>,
    ) -> PlaySession {
        let now = Instant::now();
        let session_timeout_s = set_up.timeout.as_secs();
        PlaySession {
            options,
            control,
            place: String::new(),
            session_timeout: set_up.timeout,
            announced: AnnouncedStream { session_timeout_s, ..AnnouncedStream::default() },
            described,
            is_open: false,
            media_total: None,
            end_timestamp: None,
            stage: PlayStage::Playing { pause_at: None },
            pauses: 0,
            began: now,
            resumed: now,
            keep_alive_at: now,
            leave_at: None,
        }
    }

    /// Plays to the end, and leaves no thread and no session behind.
    pub(super) async fn play_to_end(
        mut self,
        range: NptRange,
        equipment: ReceiverTasks,
        stop: &mut Stop,
        progress: &mut impl FnMut(&PlayProgress),
    ) -> Result<Verdict, Error> {
        let ReceiverTasks { receiving, reporter, transport, place, .. } = equipment;
        self.place = place;
        let end = tokio::select! {
            end = self.run(range, &receiving, &reporter, stop, progress) => end,
            never = reporter.exchange() => match never {},
        };
        tokio::select! {
            () = self.leave(&reporter, &receiving) => {}
            never = reporter.exchange() => match never {},
        }
        let stats = receiving.shared();
        let ended = receiving.stop().await;
        let (end, result) = (end?, ended?);
        let stats = super::receive_thread::lock(&stats);
        let (unexpected_frames, unexpected_channel) = equipment.unexpected_frames.seen();
        Ok(Verdict {
            transport,
            receive_buffer_bytes: equipment.buffer_bytes,
            unexpected_frames,
            unexpected_channel,
            ..self.verdict(end, &stats, &result, reporter.sent())
        })
    }

    /// Sends TEARDOWN. A server that does not answer forgets the session after its time-out.
    async fn leave(&mut self, reporter: &RtcpReporter, receiving: &ReceiveThread) {
        let leave_session = async {
            reporter.leave().await;
            self.control.ask("TEARDOWN", |client| client.teardown()).await
        };
        let is_answered = matches!(timeout(LEAVE_WAIT, leave_session).await, Ok(Ok(_)));
        let has_sent_bye = receiving.stats().rtcp.has_sent_bye;
        if is_answered && !has_sent_bye {
            // BYE carries the number of packets sent; packets under way are still received.
            let _ = timeout(SETTLE, reporter.bye.notified()).await;
            settle(receiving).await;
        }
    }

    async fn run(
        &mut self,
        range: NptRange,
        receiving: &ReceiveThread,
        reporter: &RtcpReporter,
        stop: &mut Stop,
        progress: &mut impl FnMut(&PlayProgress),
    ) -> Result<PlayEnd, Error> {
        tokio::select! {
            begun = self.begin(range, receiving) => begun?,
            () = &mut *stop => return Ok(PlayEnd::Stopped),
        }
        let mut check_at = Instant::now();
        loop {
            let due = self.due(check_at);
            tokio::select! {
                () = &mut *stop => return Ok(PlayEnd::Stopped),
                () = reporter.bye.notified() => {
                    settle(receiving).await;
                    return Ok(PlayEnd::Bye);
                }
                found = self.control.closed() => {
                    return Ok(closed_or_bye(reporter, receiving, found).await);
                }
                () = sleep_until(due.into()) => {}
            }
            let now = Instant::now();
            if now >= check_at {
                check_at = now + CHECK_EVERY;
                progress(&self.progress(&receiving.stats(), now));
                if let Some(end) = self.end_reason(&receiving.stats(), now)? {
                    return Ok(end);
                }
            }
            let sent = tokio::select! {
                sent = self.send_due_requests(now, receiving) => sent,
                // A late answer is not mistaken for that to TEARDOWN: it has another CSeq.
                () = &mut *stop => return Ok(PlayEnd::Stopped),
            };
            match sent {
                Ok(()) => {}
                Err(_) if receiving.stats().rtcp.has_sent_bye => return Ok(PlayEnd::Bye),
                Err(error) => {
                    return Ok(closed_or_bye(reporter, receiving, error.to_string()).await);
                }
            }
        }
    }

    /// Sends the first PLAY.
    async fn begin(&mut self, range: NptRange, receiving: &ReceiveThread) -> Result<(), Error> {
        self.play(Some(range), receiving).await?;
        self.began = self.resumed;
        self.keep_alive_at = self.began + self.keep_alive_every();
        let at = self.options.pause.map(|(at, _)| self.began + at);
        self.stage = PlayStage::Playing { pause_at: at };
        if let Some(length) = self.options.length {
            // A server that keeps to the range ends by itself; it may begin earlier than asked for.
            let total = self.media_total.filter(|total| *total <= length + EARLIER_MAX);
            self.leave_at = Some(self.began + total.map_or(length, |total| total + LENGTH_GRACE));
        }
        Ok(())
    }

    /// Sends PLAY; its packets are on a new clock.
    async fn play(
        &mut self,
        range: Option<NptRange>,
        receiving: &ReceiveThread,
    ) -> Result<(), Error> {
        receiving.command(Command::Hold);
        let reply = self.control.ask("PLAY", |client| client.play(range)).await?;
        self.resumed = Instant::now();
        let started = self.control.client.started(&reply);
        let started = started.map_err(|malformed| self.control.fault("PLAY", malformed))?;
        receiving.command(Command::Begin { sequence: started.sequence });
        if self.pauses == 0 {
            self.announced.sequence = started.sequence;
            self.announced.timestamp = started.timestamp;
        }
        let Some(range) = started.range else { return Ok(()) };
        self.announced.range = Some(range.to_string());
        self.is_open = range.end.is_none();
        let NptStart::At(from) = range.start else { return Ok(()) };
        let length = range.end.map(|end| end.saturating_sub(from));
        if self.pauses == 0 {
            self.media_total = length;
        }
        self.end_timestamp = started.timestamp.zip(length).map(|(timestamp, length)| {
            let stamps = length.as_nanos() * u128::from(CLOCK_RATE_HZ) / 1_000_000_000;
            // Modulo 2^32, as timestamps are.
            timestamp.wrapping_add(stamps as u32)
        });
        Ok(())
    }

    /// Time of the next check.
    fn due(&self, check_at: Instant) -> Instant {
        let turn = match self.stage {
            PlayStage::Playing { pause_at } => pause_at,
            PlayStage::Paused { until, .. } => Some(until),
        };
        let due = check_at.min(self.keep_alive_at);
        turn.map_or(due, |turn| turn.min(due))
    }

    /// Sends the requests that are due.
    async fn send_due_requests(
        &mut self,
        now: Instant,
        receiving: &ReceiveThread,
    ) -> Result<(), Error> {
        match self.stage {
            PlayStage::Playing { pause_at: Some(at) } if now >= at => {
                self.control.ask("PAUSE", |client| client.pause()).await?;
                receiving.command(Command::Pause);
                let since = Instant::now();
                let rest = self.options.pause.map_or(Duration::ZERO, |(_, rest)| rest);
                self.stage = PlayStage::Paused { since, until: since + rest };
                self.pauses += 1;
            }
            PlayStage::Paused { since, until } if now >= until => {
                self.play(None, receiving).await?;
                let rested = self.resumed - since;
                self.leave_at = self.leave_at.map(|at| at + rested);
                self.stage = PlayStage::Playing { pause_at: None };
            }
            _ => {}
        }
        if now >= self.keep_alive_at {
            self.keep_alive_at = now + self.keep_alive_every();
            self.control.ask("GET_PARAMETER", |client| client.get_parameter()).await?;
        }
        Ok(())
    }

    fn keep_alive_every(&self) -> Duration {
        (self.session_timeout / 3).max(KEEP_ALIVE_EVERY_MIN)
    }

    /// Returns the reason of an end that the server has not signalled.
    fn end_reason(&self, stats: &StreamStats, now: Instant) -> Result<Option<PlayEnd>, Error> {
        if stats.is_output_broken || !stats.is_receiving {
            // The thread gives its reason when it is stopped.
            return Ok(Some(PlayEnd::Stopped));
        }
        if matches!(self.stage, PlayStage::Paused { .. }) {
            return Ok(None);
        }
        if self.leave_at.is_some_and(|at| now >= at) {
            return Ok(Some(PlayEnd::Length));
        }
        let last = stats.packets.last.map_or(self.resumed, |last| last.max(self.resumed));
        let quiet = now.saturating_duration_since(last);
        let is_complete = self.short_s(stats).is_some_and(|short| short <= SHORT_S_MAX);
        if quiet >= QUIET && is_complete {
            return Ok(Some(PlayEnd::Quiet));
        }
        if quiet < SILENCE {
            return Ok(None);
        }
        match stats.packets.last {
            Some(_) => Ok(Some(PlayEnd::Silent { seconds: quiet.as_secs() })),
            None => Err(self.no_packet_error(stats)),
        }
    }

    fn no_packet_error(&self, stats: &StreamStats) -> Error {
        let mut found = format!("no packet came {} in {} s", self.place, SILENCE.as_secs());
        match stats.packets.unexpected_from {
            Some(from) => found.push_str(&format!(
                ", but {} datagrams from {from}, where nobody was to send from",
                stats.packets.unexpected_source
            )),
            None if stats.packets.unexpected_source + stats.packets.malformed > 0 => found
                .push_str(&format!(
                    ", but {} datagrams that were not of the stream",
                    stats.packets.unexpected_source + stats.packets.malformed
                )),
            None => found.push_str("; is a firewall between?"),
        }
        self.control.no_packet(found)
    }

    /// Seconds of the announced range that have not arrived.
    fn short_s(&self, stats: &StreamStats) -> Option<f64> {
        stats.packets.last?;
        let end = self.end_timestamp?;
        let stamps = end.wrapping_sub(stats.packets.last_timestamp).cast_signed();
        Some(f64::from(stamps) / f64::from(CLOCK_RATE_HZ))
    }

    /// Seconds that are missing of the length asked for, of a stream that the sender has ended and
    /// that has no end itself; 0 where no length was asked for. None for any other end.
    fn early_s(&self, end: &PlayEnd, stats: &StreamStats) -> Option<f64> {
        let has_end = self.described.is_some() || !self.is_open;
        if has_end || *end != PlayEnd::Bye {
            return None;
        }
        let Some(length) = self.options.length else { return Some(0.0) };
        let short = length.as_secs_f64() - media(stats).as_secs_f64();
        (short > SHORT_S_MAX).then_some(short)
    }

    fn progress(&self, stats: &StreamStats, now: Instant) -> PlayProgress {
        PlayProgress {
            packets: stats.reception().received(),
            payload_bytes: stats.packets.payload_bytes,
            lost: lost(stats.reception()),
            media: media(stats),
            media_total: self.media_total,
            wall: now.saturating_duration_since(self.began),
            lateness: stats.packets.lateness.last(),
            is_paused: matches!(self.stage, PlayStage::Paused { .. }),
        }
    }

    fn verdict(
        mut self,
        end: PlayEnd,
        stats: &StreamStats,
        result: &ReceiveResult,
        reports_sent: u64,
    ) -> Verdict {
        let reception = stats.reception();
        let wall = stats.packets.last.map(|last| last.saturating_duration_since(self.began));
        self.announced.first_received = stats.receiver.sources.first_received;
        let gaps = reception.gaps().iter();
        let early_s = self.early_s(&end, stats);
        let ended_by_itself = matches!(end, PlayEnd::Bye | PlayEnd::Quiet | PlayEnd::Silent { .. });
        Verdict {
            packets: reception.received(),
            payload_bytes: stats.packets.payload_bytes,
            lost: lost(reception),
            lost_at_ends: lost_at_ends(stats),
            gaps: gaps
                .map(|g| MissingPackets { sequence: g.first as u16, packets: g.packets })
                .collect(),
            gaps_unlisted: reception.gaps_unlisted(),
            duplicates: reception.duplicates(),
            reordered: reception.reordered(),
            restarts: reception.restarts(),
            strays: reception.strays(),
            unexpected_source: stats.packets.unexpected_source,
            malformed: stats.packets.malformed + stats.rtcp.malformed,
            bad_payload_size: stats.packets.bad_payload_size,
            while_paused: stats.packets.while_paused,
            kernel_drops: result.kernel_drops,
            transport: StreamTransport::Udp,
            transport_reason: None,
            unexpected_frames: 0,
            unexpected_channel: None,
            receive_buffer_bytes: 0,
            jitter_ms: ms(reception.jitter_time()),
            lateness: stats.packets.lateness.milliseconds(LATE),
            sender_reports: stats.rtcp.sender_reports,
            reports_sent,
            bye: stats.rtcp.has_sent_bye,
            pauses: self.pauses,
            wall_s: wall.unwrap_or_default().as_secs_f64(),
            media_s: media(stats).as_secs_f64(),
            short_s: self
                .short_s(stats)
                .filter(|_| ended_by_itself)
                .or(early_s.filter(|_| self.options.length.is_some())),
            ended_early: early_s.is_some(),
            announced: self.announced,
            output: self.options.output.zip(result.written).map(|(path, written)| RecordedFile {
                path,
                bytes: written.bytes,
                missing: result.file_missing,
                left_out_bytes: written.left_out_bytes,
            }),
            url: self.options.url,
            end,
        }
    }
}

/// A packet from before the announced first counts as received (A.1) and must not hide a gap.
fn lost(reception: &Reception) -> u64 {
    let in_gaps: u64 = reception.gaps().iter().map(|gap| gap.packets).sum();
    reception.lost().max(in_gaps + reception.gaps_unlisted())
}

/// Packets that the sender has counted and that no gap shows.
fn lost_at_ends(stats: &StreamStats) -> u64 {
    let Some((sender, _)) = stats.rtcp.last_sender else { return 0 };
    // Both counts are modulo 2^32. A sender that counted before this session (a relay) differs by
    // more than any stream loses at its ends.
    let beyond = sender.packets.wrapping_sub(stats.reception().expected() as u32);
    if stats.reception().restarts() == 0 && beyond <= LOST_AT_ENDS_MAX {
        u64::from(beyond)
    } else {
        0
    }
}

fn media(stats: &StreamStats) -> Duration {
    Duration::from_secs(stats.packets.lateness.media_stamps().max(0).unsigned_abs()) / CLOCK_RATE_HZ
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Waits until no more packets are under way.
async fn settle(receiving: &ReceiveThread) {
    let until = Instant::now() + SETTLE_MAX;
    loop {
        sleep(SETTLE / 2).await;
        let last = receiving.stats().packets.last;
        if Instant::now() >= until || last.is_none_or(|last| last.elapsed() >= SETTLE) {
            return;
        }
    }
}

/// Returns the end after the connection is lost. A server that stops sends BYE before, which may
/// still be under way.
async fn closed_or_bye(
    reporter: &RtcpReporter,
    receiving: &ReceiveThread,
    found: String,
) -> PlayEnd {
    let bye = timeout(BYE_WAIT, reporter.bye.notified()).await;
    settle(receiving).await;
    if bye.is_ok() { PlayEnd::Bye } else { PlayEnd::Closed { found } }
}

const CHECK_EVERY: Duration = Duration::from_millis(250);
/// A stream that is silent for so long has failed.
const SILENCE: Duration = Duration::from_secs(5);
/// Everything has arrived, and BYE is lost.
const QUIET: Duration = Duration::from_secs(2);
const SETTLE: Duration = Duration::from_millis(100);
const SETTLE_MAX: Duration = Duration::from_secs(1);
const BYE_WAIT: Duration = Duration::from_millis(500);
const LEAVE_WAIT: Duration = Duration::from_secs(2);
/// A server that announces no time-out must not make this client a flood.
const KEEP_ALIVE_EVERY_MIN: Duration = Duration::from_secs(1);
/// A group of pictures: play may begin so much earlier than asked for.
const EARLIER_MAX: Duration = Duration::from_secs(30);
/// Time that the server is given to end a range by itself.
const LENGTH_GRACE: Duration = Duration::from_secs(2);
pub(super) const LOST_AT_ENDS_MAX: u32 = 1 << 16;
