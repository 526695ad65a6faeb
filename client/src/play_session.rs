// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a play: PLAY, keep-alives, a pause, every kind of end, and the verdict.
//!
//! One task waits for five events at once: BYE, the end of the RTSP connection, the caller's stop,
//! the clock, and RTCP. A thread for each stream receives the packets; this task only reads its
//! statistics. A transport stream is one stream; a presentation has one stream for each track.
//!
//! Sources: RFC 2326 §10.5–10.8, §12.37 (keep-alive), Appendix B (a pause leaves no gap); RFC 3550
//! §6.6.
//! Does not reconnect after the connection is lost.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until, timeout};
use wire::rtp::Reception;
use wire::rtsp::client::{SetupReply, StreamStart};
use wire::rtsp::{NptRange, NptStart};

use super::output_end::OutputEnd;
use super::packet_intake::Command;
use super::play::{Play, PlayProgress};
use super::play_verdict::EndedStream;
use super::receive_thread::ReceiveThread;
use super::rtcp_reporter::RtcpReporter;
use super::rtsp_connection::RtspConnection;
use super::stop::{Stop, stopped};
use super::stream_stats::StreamStats;
use super::track_file::TrackFile;
use super::transport::StreamTransport;
use super::verdict::{AnnouncedStream, PlayEnd, SHORT_S_MAX, Verdict};
use crate::error::Error;

/// The streams of a play, and their shared state.
pub(super) struct ReceiverTasks {
    pub(super) streams: Vec<StreamTasks>,
    pub(super) transport: StreamTransport,
    pub(super) track_file: Option<TrackFile>,
    pub(super) output_end: OutputEnd,
}

/// The receiving thread and the reporter of a stream.
pub(super) struct StreamTasks {
    pub(super) receiving: ReceiveThread,
    pub(super) reporter: RtcpReporter,
    /// URL of its SETUP.
    pub(super) url: String,
    /// Its format as the description names it; none for a transport stream.
    pub(super) track: Option<String>,
    pub(super) clock_rate_hz: u32,
    /// Place where packets are expected, for messages.
    pub(super) place: String,
    pub(super) buffer_bytes: usize,
}

/// A session being played.
pub(super) struct PlaySession {
    pub(super) options: Play,
    control: RtspConnection,
    session_timeout: Duration,
    pub(super) announced: AnnouncedStream,
    /// Length of the stream by its description.
    pub(super) described: Option<Duration>,
    /// Streams of the description that are not played, each with its reason.
    pub(super) left_out: Vec<String>,
    /// True where the last answer to PLAY has a range without an end.
    pub(super) is_open: bool,
    /// Length of the announced range.
    media_total: Option<Duration>,
    /// The RTP timestamp at the end of the announced range, of each stream.
    end_timestamps: Vec<Option<u32>>,
    stage: PlayStage,
    pub(super) pauses: u32,
    /// Times of the first answer to PLAY and of the last.
    pub(super) began: Instant,
    resumed: Instant,
    keep_alive_at: Instant,
    /// Time at which the requested length has been played.
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
            session_timeout: set_up.timeout,
            announced: AnnouncedStream { session_timeout_s, ..AnnouncedStream::default() },
            described,
            left_out: Vec::new(),
            is_open: false,
            media_total: None,
            end_timestamps: Vec::new(),
            stage: PlayStage::Playing { pause_at: None },
            pauses: 0,
            began: now,
            resumed: now,
            keep_alive_at: now,
            leave_at: None,
        }
    }

    /// Plays to the end; all threads and the session have ended afterwards.
    pub(super) async fn play_to_end(
        mut self,
        range: NptRange,
        equipment: ReceiverTasks,
        stop: &mut Stop,
        progress: &mut impl FnMut(&PlayProgress),
    ) -> Result<Verdict, Error> {
        let ReceiverTasks { streams, transport, track_file, output_end } = equipment;
        let end = tokio::select! {
            end = self.run(range, &streams, track_file.as_ref(), stop, progress) => end,
            never = exchange(&streams) => match never {},
        };
        let is_stopped = matches!(end, Ok(PlayEnd::Stopped));
        let is_cut = is_stopped || matches!(end, Ok(PlayEnd::Length));
        tokio::select! {
            () = self.leave(&streams) => {}
            never = exchange(&streams) => match never {},
        }
        let finished = async {
            let mut ended = Vec::with_capacity(streams.len());
            for stream in streams {
                let StreamTasks {
                    receiving,
                    reporter,
                    url: _,
                    track,
                    clock_rate_hz,
                    buffer_bytes,
                    ..
                } = stream;
                let stats = receiving.intake.shared();
                let reports_sent = reporter.sent();
                drop(reporter);
                let result = receiving.stop(is_cut).await;
                ended.push((stats, result, track, clock_rate_hz, buffer_bytes, reports_sent));
            }
            let file = match track_file {
                // The queue ended with the threads.
                Some(file) => Some(file.finish().await?),
                None => None,
            };
            Ok((ended, file))
        };
        let path = self.options.output.clone().unwrap_or_default();
        let (ended, file) = output_end.wait(&path, finished, stop, is_stopped).await?;
        let end = end?;
        let mut streams = Vec::with_capacity(ended.len());
        for (stats, result, track, clock_rate_hz, buffer_bytes, reports_sent) in ended {
            let result = result?;
            streams.push(EndedStream {
                stats,
                result,
                track,
                clock_rate_hz,
                buffer_bytes,
                reports_sent,
            });
        }
        let (unexpected_frames, unexpected_channel) = self.control.unasked.frames();
        Ok(Verdict {
            transport,
            unexpected_frames,
            unexpected_channel,
            stray_bytes: self.control.unasked.stray_bytes(),
            ..self.verdict(end, &streams, file)
        })
    }

    /// Sends TEARDOWN. A server that does not answer drops the session after its time-out.
    async fn leave(&mut self, streams: &[StreamTasks]) {
        let leave_session = async {
            for stream in streams {
                stream.reporter.leave().await;
            }
            self.control.ask("TEARDOWN", |client| client.teardown()).await
        };
        let is_answered = matches!(timeout(LEAVE_WAIT, leave_session).await, Ok(Ok(_)));
        if is_answered && !has_sent_bye(streams) {
            // The compound packet with BYE carries the number of packets sent; packets in flight
            // are still received.
            let _ = timeout(SETTLE, byes(streams)).await;
            settle(streams).await;
        }
    }

    async fn run(
        &mut self,
        range: NptRange,
        streams: &[StreamTasks],
        file: Option<&TrackFile>,
        stop: &mut Stop,
        progress: &mut impl FnMut(&PlayProgress),
    ) -> Result<PlayEnd, Error> {
        tokio::select! {
            begun = self.begin(range, streams, file) => begun?,
            () = stopped(stop) => return Ok(PlayEnd::Stopped),
        }
        let mut check_at = Instant::now();
        loop {
            let due = self.due(check_at);
            tokio::select! {
                () = stopped(stop) => return Ok(PlayEnd::Stopped),
                () = byes(streams) => {
                    settle(streams).await;
                    // The play continues where BYE was for an SSRC that the sender has changed.
                    if has_sent_bye(streams) {
                        return Ok(PlayEnd::Bye);
                    }
                }
                found = self.control.closed() => {
                    return Ok(closed_or_bye(streams, found).await);
                }
                () = sleep_until(due.into()) => {}
            }
            let now = Instant::now();
            if now >= check_at {
                let is_late = now.saturating_duration_since(check_at) >= CHECK_EVERY;
                check_at = now + CHECK_EVERY;
                progress(&self.progress(streams, now));
                if file.is_some_and(TrackFile::is_broken) {
                    // The writer gives its reason when it is finished.
                    return Ok(PlayEnd::Stopped);
                }
                if let Some(end) = self.end_reason(streams, now, is_late)? {
                    return Ok(end);
                }
            }
            let sent = tokio::select! {
                sent = self.send_due_requests(now, streams) => sent,
                // The answer to TEARDOWN has another CSeq than a late one to this request.
                () = stopped(stop) => return Ok(PlayEnd::Stopped),
            };
            match sent {
                Ok(()) => {}
                Err(_) if has_sent_bye(streams) => return Ok(PlayEnd::Bye),
                Err(error) => {
                    return Ok(closed_or_bye(streams, error.to_string()).await);
                }
            }
        }
    }

    /// Sends the first PLAY.
    async fn begin(
        &mut self,
        range: NptRange,
        streams: &[StreamTasks],
        file: Option<&TrackFile>,
    ) -> Result<(), Error> {
        let starts = self.play(Some(range), streams).await?;
        if let Some(file) = file {
            file.begin_at(starts.iter().map(|start| start.timestamp).collect());
        }
        self.began = self.resumed;
        self.keep_alive_at = self.began + self.keep_alive_every();
        let at = self.options.pause.map(|(at, _)| self.began + at);
        self.stage = PlayStage::Playing { pause_at: at };
        if let Some(length) = self.options.length {
            // A server that keeps to the range ends by itself; it may begin earlier than requested.
            let total = self.media_total.filter(|total| *total <= length + EARLIER_MAX);
            self.leave_at = Some(self.began + total.map_or(length, |total| total + LENGTH_GRACE));
        }
        Ok(())
    }

    /// Sends PLAY; the packets after it use a new clock. Returns the start of each stream.
    async fn play(
        &mut self,
        range: Option<NptRange>,
        streams: &[StreamTasks],
    ) -> Result<Vec<StreamStart>, Error> {
        for stream in streams {
            stream.receiving.intake.command(Command::Hold);
        }
        let reply = self.control.ask("PLAY", |client| client.play(range)).await?;
        self.resumed = Instant::now();
        let urls: Vec<_> = streams.iter().map(|stream| stream.url.clone()).collect();
        let started = self.control.client.streams_started(&reply, &urls);
        let (started, starts) =
            started.map_err(|malformed| self.control.fault("PLAY", malformed))?;
        self.control.note_ignored("PLAY", &started.ignored);
        for (stream, start) in streams.iter().zip(&starts) {
            stream.receiving.intake.command(Command::Begin { sequence: start.sequence });
        }
        if self.pauses == 0 {
            self.announced.sequence = started.sequence;
            self.announced.timestamp = started.timestamp;
        }
        let Some(range) = started.range else { return Ok(starts) };
        self.announced.range = Some(range.to_string());
        self.is_open = range.end.is_none();
        let NptStart::At(from) = range.start else { return Ok(starts) };
        let length = range.end.map(|end| end.saturating_sub(from));
        if self.pauses == 0 {
            self.media_total = length;
        }
        let end_timestamp = |(stream, start): (&StreamTasks, &StreamStart)| {
            let (timestamp, length) = start.timestamp.zip(length)?;
            let stamps = length.as_nanos() * u128::from(stream.clock_rate_hz) / 1_000_000_000;
            // Modulo 2^32, as timestamps are.
            Some(timestamp.wrapping_add(stamps as u32))
        };
        self.end_timestamps = streams.iter().zip(&starts).map(end_timestamp).collect();
        Ok(starts)
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
        streams: &[StreamTasks],
    ) -> Result<(), Error> {
        match self.stage {
            PlayStage::Playing { pause_at: Some(at) } if now >= at => {
                self.control.ask("PAUSE", |client| client.pause()).await?;
                for stream in streams {
                    stream.receiving.intake.command(Command::Pause);
                }
                let since = Instant::now();
                let rest = self.options.pause.map_or(Duration::ZERO, |(_, rest)| rest);
                self.stage = PlayStage::Paused { since, until: since + rest };
                self.pauses += 1;
            }
            PlayStage::Paused { since, until } if now >= until => {
                self.play(None, streams).await?;
                let rested = self.resumed - since;
                self.leave_at = self.leave_at.map(|at| at + rested);
                self.stage = PlayStage::Playing { pause_at: None };
            }
            _ => {}
        }
        if now >= self.keep_alive_at {
            self.keep_alive_at = now + self.keep_alive_every();
            self.control.keep_alive()?;
        }
        Ok(())
    }

    fn keep_alive_every(&self) -> Duration {
        (self.session_timeout / 3).max(KEEP_ALIVE_EVERY_MIN)
    }

    /// Returns the reason of an end that the server has not signalled. A late check ignores elapsed
    /// times: this process was stalled, and packets and BYE may wait to be read.
    fn end_reason(
        &self,
        streams: &[StreamTasks],
        now: Instant,
        is_late: bool,
    ) -> Result<Option<PlayEnd>, Error> {
        let is_broken = |stream: &StreamTasks| {
            let stats = stream.receiving.intake.stats();
            stats.is_output_broken || !stats.is_receiving
        };
        if streams.iter().any(is_broken) {
            // The thread gives its reason when it is stopped.
            return Ok(Some(PlayEnd::Stopped));
        }
        if is_late || matches!(self.stage, PlayStage::Paused { .. }) {
            return Ok(None);
        }
        if self.leave_at.is_some_and(|at| now >= at) {
            return Ok(Some(PlayEnd::Length));
        }
        let lasts =
            streams.iter().filter_map(|stream| stream.receiving.intake.stats().packets.last);
        let heard = lasts.max();
        let quiet = now
            .saturating_duration_since(heard.map_or(self.resumed, |last| last.max(self.resumed)));
        let shorts = (0..streams.len()).map(|index| self.short_s(streams, index));
        let is_complete = shorts.into_iter().all(|short| short.is_some_and(|s| s <= SHORT_S_MAX));
        if quiet >= QUIET && is_complete {
            return Ok(Some(PlayEnd::Quiet));
        }
        if quiet < SILENCE {
            return Ok(None);
        }
        match heard {
            Some(_) => Ok(Some(PlayEnd::Silent { seconds: quiet.as_secs() })),
            None => Err(self.no_packet_error(streams)),
        }
    }

    fn no_packet_error(&self, streams: &[StreamTasks]) -> Error {
        let places: Vec<_> = streams.iter().map(|stream| stream.place.as_str()).collect();
        let (seconds, place) = (SILENCE.as_secs(), places.join(" or "));
        let mut found = format!("no packet came {place} in {seconds} s");
        let (mut foreign, mut malformed, mut from) = (0, 0, None);
        for stream in streams {
            let stats = stream.receiving.intake.stats();
            foreign += stats.packets.unexpected_source;
            malformed += stats.packets.malformed;
            from = from.or(stats.packets.unexpected_from);
        }
        match from {
            Some(from) => found.push_str(&format!(
                ", but {foreign} datagrams from {from}, where nobody was to send from"
            )),
            None if foreign + malformed > 0 => found.push_str(&format!(
                ", but {} datagrams that were not of the stream",
                foreign + malformed
            )),
            None => found.push_str("; is a firewall between?"),
        }
        self.control.no_packet(found)
    }

    /// Seconds of the announced range of a stream that have not arrived.
    fn short_s(&self, streams: &[StreamTasks], index: usize) -> Option<f64> {
        let stream = &streams[index];
        self.short_of(&stream.receiving.intake.stats(), index, stream.clock_rate_hz)
    }

    /// Computes the same from the statistics of a stream.
    pub(super) fn short_of(
        &self,
        stats: &StreamStats,
        index: usize,
        clock_rate_hz: u32,
    ) -> Option<f64> {
        stats.packets.last?;
        let end = (*self.end_timestamps.get(index)?)?;
        let stamps = end.wrapping_sub(stats.packets.last_timestamp).cast_signed();
        Some(f64::from(stamps) / f64::from(clock_rate_hz))
    }

    fn progress(&self, streams: &[StreamTasks], now: Instant) -> PlayProgress {
        let mut progress = PlayProgress {
            packets: 0,
            payload_bytes: 0,
            lost: 0,
            media: Duration::ZERO,
            media_total: self.media_total,
            wall: now.saturating_duration_since(self.began),
            lateness: Duration::ZERO,
            is_paused: matches!(self.stage, PlayStage::Paused { .. }),
        };
        for stream in streams {
            let stats = stream.receiving.intake.stats();
            progress.packets += stats.reception().received();
            progress.payload_bytes += stats.packets.payload_bytes;
            progress.lost += lost(stats.reception());
            progress.media = progress.media.max(media_of(&stats, stream.clock_rate_hz));
            progress.lateness = progress.lateness.max(stats.packets.lateness.last());
        }
        progress
    }
}

/// A packet before the announced first one counts as received (A.1) and must not hide a gap.
pub(super) fn lost(reception: &Reception) -> u64 {
    let in_gaps: u64 = reception.gaps().iter().map(|gap| gap.packets).sum();
    reception.lost().max(in_gaps + reception.gaps_unlisted())
}

/// Length of the media received of a stream.
pub(super) fn media_of(stats: &StreamStats, clock_rate_hz: u32) -> Duration {
    let stamps = stats.packets.lateness.media_stamps().max(0).unsigned_abs();
    Duration::from_secs(stamps) / clock_rate_hz.max(1)
}

/// Exchanges RTCP on all streams until it is dropped.
async fn exchange(streams: &[StreamTasks]) -> Infallible {
    let mut exchanges: Vec<Pin<Box<dyn Future<Output = Infallible> + Send + '_>>> = Vec::new();
    for stream in streams {
        exchanges.push(Box::pin(stream.reporter.exchange()));
    }
    poll_fn(|context| {
        for exchange in &mut exchanges {
            if let Poll::Ready(never) = exchange.as_mut().poll(context) {
                match never {}
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits until the sender has sent BYE on all streams.
async fn byes(streams: &[StreamTasks]) {
    for stream in streams {
        // The notification stays stored where a wait is dropped.
        while !stream.receiving.intake.stats().has_sent_bye() {
            stream.reporter.bye.notified().await;
        }
    }
}

fn has_sent_bye(streams: &[StreamTasks]) -> bool {
    streams.iter().all(|stream| stream.receiving.intake.stats().has_sent_bye())
}

/// Waits until no more packets are in flight.
async fn settle(streams: &[StreamTasks]) {
    let until = Instant::now() + SETTLE_MAX;
    loop {
        sleep(SETTLE / 2).await;
        let last =
            streams.iter().filter_map(|stream| stream.receiving.intake.stats().packets.last).max();
        if Instant::now() >= until || last.is_none_or(|last| last.elapsed() >= SETTLE) {
            return;
        }
    }
}

/// Returns the end after the connection is lost. A server that stops sends BYE first, which may
/// still be in flight.
async fn closed_or_bye(streams: &[StreamTasks], found: String) -> PlayEnd {
    let bye = timeout(BYE_WAIT, byes(streams)).await;
    settle(streams).await;
    if bye.is_ok() { PlayEnd::Bye } else { PlayEnd::Closed { found } }
}

const CHECK_EVERY: Duration = Duration::from_millis(250);
/// A stream has failed after a silence of this length.
const SILENCE: Duration = Duration::from_secs(5);
/// Silence after which a completely received range has ended, and BYE is lost.
const QUIET: Duration = Duration::from_secs(2);
const SETTLE: Duration = Duration::from_millis(100);
const SETTLE_MAX: Duration = Duration::from_secs(1);
const BYE_WAIT: Duration = Duration::from_millis(500);
const LEAVE_WAIT: Duration = Duration::from_secs(2);
/// A zero or very short time-out must not make this client flood the server.
const KEEP_ALIVE_EVERY_MIN: Duration = Duration::from_secs(1);
/// A group of pictures: play may begin this much earlier than requested.
const EARLIER_MAX: Duration = Duration::from_secs(30);
/// Time granted to the server to end a range by itself.
const LENGTH_GRACE: Duration = Duration::from_secs(2);
