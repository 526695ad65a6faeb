// SPDX-License-Identifier: MIT OR Apache-2.0
//! paced_tracks: one session of an asset with tracks on a pacer thread: sends the due packets of
//! all its tracks by one clock.
//!
//! Each track goes from chapter to chapter (a second of its packets, laid out by a reader thread);
//! the next is asked for when one is entered, so the pacer never waits for a disk. A step sends
//! every packet of every track that becomes due before the session's next wake, in as few calls as
//! rows of equal packets allow. The clock starts when the first chapters of all tracks are there,
//! so they stay in step. A packet leaves at most two bursts early: one as everywhere, and one where
//! that saves cutting a row. Costs per step and track: two binary searches in the layout of a
//! second and one send call per row; a lock and a look-up once a second. No allocation but that of
//! the request for a chapter that is not in memory.
//!
//! Sources: ARCHITECTURE.md, "A streamed byte's journey"; RFC 3550 §5.1; RFC 2326 Appendix B
//! (sequence numbers and timestamps continue over jumps).
//! Does not choose its wakes ([`super::wheel`]) and never blocks. Does not send wire images.

use std::sync::Arc;
use std::time::{Duration, Instant};

use media::payload::{PACKET_BYTES_MAX, RtpValues};
use media::tracks::CHAPTER_TICKS;
use paths::{INTERLEAVED_PACKETS_MAX, SendError, SendStats};

use super::departures::Departures;
use super::media_target::{BACKLOG_MAX, MediaTarget};
use super::paced_stream::{Step, StreamEnd, ticks};
use super::{CATCH_UP, Tools};
use crate::library::track_asset::{Chapter, ChapterKey, TrackSource};
use crate::prefetch::{ChapterMark, ChapterRequest, PrefetchHandle};
use crate::rtsp::icmp_faults;
use crate::rtsp::stream_session::{Link, MediaClock, Sent};

/// State of a session on its pacer.
pub(crate) struct PacedTracks {
    source: Arc<TrackSource>,
    tracks: Vec<PacedTrack>,
    /// Mean packets a second.
    pub(crate) packets_per_s: u64,
    clock: Option<MediaClock>,
    /// Earliest start of the next play's clock: the end of the media sent so far.
    sent_until: Option<Instant>,
    playing: bool,
    /// Due time before which packets are sent.
    limit_ticks: u64,
    /// Number of the current PLAY.
    pub(crate) play: u64,
    /// Consecutive steps that could send nothing.
    pub(crate) waits: u32,
    /// Tick of the only valid wheel entry.
    pub(crate) wake: super::wheel::Tick,
}

/// A track of a session.
pub(crate) struct PacedTrack {
    /// Index of the track in the presentation.
    index: usize,
    to: MediaTarget,
    link: Arc<Link>,
    pub(super) departures: Option<Departures>,
    payload_type: u8,
    ssrc: u32,
    /// Sequence number of the next packet.
    sequence: u16,
    /// Timestamp of the title's start.
    timestamp: u32,
    chapter: u32,
    /// The chapter in work; unset until it is in memory.
    current: Option<Arc<Chapter>>,
    /// The chapter before, to which ICMP may refer.
    before: Option<Arc<Chapter>>,
    /// Due time at which the track begins in its chapter, until that is there.
    begin_ticks: Option<u64>,
    /// Next packet in the chapter.
    next: u32,
    /// Answer to the request for the chapter in work, and to that for the next.
    marks: [Arc<ChapterMark>; 2],
    is_over: bool,
}

/// Beginning of a play.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackStart {
    /// Where each track begins; unset where each goes on with its next packet.
    pub(crate) at: Option<TrackPlace>,
    /// Due time before which packets are sent.
    pub(crate) limit_ticks: u64,
}

/// A place of a presentation, on both of its timelines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackPlace {
    /// Due time of the random-access point of the leading track.
    pub(crate) leading_ticks: u64,
    /// Due time from which the other tracks are sent.
    pub(crate) other_ticks: u64,
    /// What is added to presentation time so that timestamps continue over jumps, in ticks.
    pub(crate) shift_ticks: i64,
}

impl PacedTrack {
    pub(crate) fn new(
        source: &TrackSource,
        (index, payload_type): (usize, u8),
        to: MediaTarget,
        link: Arc<Link>,
    ) -> PacedTrack {
        let identity = source.asset.presentation.tracks()[index].identity;
        link.start_at(identity.first_sequence.into());
        PacedTrack {
            index,
            to,
            link,
            departures: None,
            payload_type,
            ssrc: identity.ssrc,
            sequence: identity.first_sequence,
            timestamp: identity.first_timestamp,
            chapter: 0,
            current: None,
            before: None,
            begin_ticks: Some(0),
            next: 0,
            marks: Default::default(),
            is_over: false,
        }
    }

    /// Prepares the target's departures.
    pub(super) fn prepare(&mut self, pacing: &super::PacingChoice) {
        if let MediaTarget::Datagrams(to) = &mut self.to {
            self.departures = pacing.prepare(to);
        }
    }

    /// Goes to the first unit that is due at `ticks` or later.
    fn seek(&mut self, source: &TrackSource, ticks: u64) {
        let presentation = &source.asset.presentation;
        self.is_over = ticks >= presentation.duration_ticks();
        (self.chapter, self.next) = (presentation.chapter_at(ticks), 0);
        (self.current, self.before) = (None, None);
        self.marks = Default::default();
        self.begin_ticks = Some(ticks);
    }

    fn enter(&mut self, chapter: u32) {
        self.before = self.current.take();
        (self.chapter, self.next) = (chapter, 0);
        self.marks.rotate_left(1);
        self.marks[1] = Arc::default();
    }

    /// Makes the next packet available: goes on to the following chapters as far as they are there.
    /// Returns false when one is missing; the error is why it cannot be had.
    fn make_ready(
        &mut self,
        source: &Arc<TrackSource>,
        limit_ticks: u64,
        readers: &PrefetchHandle,
    ) -> Result<bool, String> {
        while !self.is_over {
            if self.current.is_none() {
                let Some(chapter) = self.obtain(source, 0, readers)? else { return Ok(false) };
                if let Some(ticks) = self.begin_ticks.take() {
                    self.next = chapter.layout.unit_due(ticks);
                }
                self.current = Some(chapter);
                // Asked for a second ahead; a failure shows when it is needed.
                let _ = self.obtain(source, 1, readers);
            }
            let layout = &self.current.as_ref().expect("set above").layout;
            if self.next < layout.packets() {
                self.is_over = layout.ticks(self.next) >= limit_ticks;
                return Ok(true);
            }
            let following = self.following(source);
            match following.filter(|&next| u64::from(next) * CHAPTER_TICKS < limit_ticks) {
                Some(following) => self.enter(following),
                None => self.is_over = true,
            }
        }
        Ok(true)
    }

    /// Returns the next chapter with packets; a long pause has none.
    fn following(&self, source: &TrackSource) -> Option<u32> {
        source.asset.presentation.following_chapter(self.index, self.chapter)
    }

    /// Returns the chapter in work (`ahead` 0) or the following one (1) if it is in memory; asks
    /// for it otherwise.
    fn obtain(
        &mut self,
        source: &Arc<TrackSource>,
        ahead: usize,
        readers: &PrefetchHandle,
    ) -> Result<Option<Arc<Chapter>>, String> {
        let chapter = if ahead == 0 { Some(self.chapter) } else { self.following(source) };
        let Some(chapter) = chapter else { return Ok(None) };
        let key = ChapterKey { track: self.index, chapter };
        let mark = &self.marks[ahead];
        if let Some(answer) = mark.answer() {
            return answer.map(Some);
        }
        if let Some(chapter) = source.fresh(key) {
            mark.set(Ok(chapter.clone()));
            return Ok(Some(chapter));
        }
        if mark.ask() {
            let request = ChapterRequest { source: source.clone(), key, mark: mark.clone() };
            readers.ask_chapter(request);
        }
        Ok(None)
    }

    /// Due time of the next packet, or of its chapter while that is not there; `None` at the end.
    fn next_ticks(&self) -> Option<u64> {
        if self.is_over {
            return None;
        }
        let begins = u64::from(self.chapter) * CHAPTER_TICKS;
        let layout = self.current.as_ref().map(|chapter| &chapter.layout);
        match layout {
            Some(layout) if self.next < layout.packets() => Some(layout.ticks(self.next)),
            // The next begins then at the earliest.
            Some(_) => Some(begins + CHAPTER_TICKS),
            None => Some(self.begin_ticks.unwrap_or(begins)),
        }
    }

    fn values(&self) -> RtpValues {
        RtpValues {
            payload_type: self.payload_type,
            ssrc: self.ssrc,
            sequence: self.sequence.wrapping_sub(self.next as u16),
            timestamp: self.timestamp,
        }
    }

    fn lead(&self, burst: Duration) -> Duration {
        self.departures.as_ref().map_or(Duration::ZERO, |departures| departures.lead(burst))
    }

    /// Sends the packets of the chapter in work that are due before `horizon`; returns false when
    /// the target takes no more now.
    fn send_due(
        &mut self,
        source: &TrackSource,
        horizon: u64,
        clock: MediaClock,
        tools: &mut Tools,
    ) -> Result<bool, SendError> {
        let Some(chapter) = self.current.clone() else { return Ok(true) };
        let layout = &chapter.layout;
        // The end of a row that is due within a burst leaves with the rest of it, by one call.
        let later = horizon.saturating_add(ticks(tools.burst));
        let end = layout.packets_in_rows_before(horizon, later);
        let reading = self.departures.as_ref().map(Departures::reading);
        let most = self.packets_a_call(end.saturating_sub(self.next));
        let mut progress = Sent::default();
        let mut outcome = Ok(true);
        while self.next < end {
            let row = layout.row(self.next, (end - self.next).min(most));
            let due = clock.moment_of(layout.ticks(self.next));
            let late = Instant::now().saturating_duration_since(due);
            let at = reading.map(|reading| reading.departure(due));
            let packets = self.next..self.next + row.packets;
            let (mut tally, was_blocked) = (SendStats::default(), self.to.is_blocked());
            let values = self.values();
            let run = (layout, packets, &values);
            let sent = match &mut self.to {
                MediaTarget::Datagrams(to) => {
                    let (path, batch) = tools.track_batch(source, run, at);
                    path.send(&batch, to, &mut tally)
                }
                MediaTarget::Stream(to) => {
                    let (path, batch) = tools.framed_track_batch(source, run, to.channel);
                    let mut output = to.output.lock();
                    let sent = path.send(&batch, &mut output, &mut tally);
                    to.is_blocked |= sent == Err(SendError::Blocked) || output.rest_bytes() > 0;
                    sent
                }
            };
            let count = *sent.as_ref().unwrap_or(&0);
            match was_blocked {
                // The reader was late, not this server.
                true => tools.counters().record_late_reader(&tally, count.into()),
                false => tools.counters().record(&tally, late, count.into()),
            }
            match sent {
                Ok(0) | Err(SendError::Blocked) => {
                    outcome = Ok(false);
                    break;
                }
                Ok(_) => {
                    let octets = layout.payload_bytes(self.next..self.next + count);
                    self.next += count;
                    self.sequence = self.sequence.wrapping_add(count as u16);
                    let late = if was_blocked { Duration::ZERO } else { late };
                    progress.add(count.into(), octets, late);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if progress.packets > 0 {
            self.link.count(self.sequence.into(), progress);
        }
        self.ask_missed(tools);
        outcome
    }

    /// Returns the most packets of one send call of a burst of so many.
    fn packets_a_call(&self, burst_packets: u32) -> u32 {
        let shared = self.departures.as_ref().map(|d| d.packets(burst_packets.into()));
        match self.to {
            MediaTarget::Stream(_) => INTERLEAVED_PACKETS_MAX as u32,
            MediaTarget::Datagrams(_) => shared
                .map_or(BATCH_PACKETS_MAX, |packets| packets.min(BATCH_PACKETS_MAX.into()) as u32),
        }
    }

    fn ask_missed(&mut self, tools: &mut Tools) {
        if let MediaTarget::Datagrams(to) = &mut self.to {
            if let Some(fall) = to.take_segment_limit_lowered() {
                let (name, from, to) = (to.name(), fall.from, fall.to);
                let why = fall.errno.map_or("taken in pieces".to_owned(), |e| e.to_string());
                tracing::warn!("{name}: {why} with {from} packets a call; {to} from now on");
            }
            if self.departures.as_mut().is_some_and(|departures| departures.is_time_to_ask()) {
                tools.counters().departures_missed += to.take_missed_departures();
            }
        }
    }

    /// Records ICMP reports about the track's packets; counts and ignores the rest.
    fn judge_reports(&mut self, tools: &mut Tools) {
        let MediaTarget::Datagrams(to) = &mut self.to else { return };
        let reports = to.take_reports();
        if reports.is_empty() {
            return;
        }
        let (is_cut, name) = (to.is_cut_on_the_way(), to.name().to_owned());
        let mut ignored = 0;
        for report in &reports {
            match icmp_faults::kind(report.fault, PACKET_BYTES_MAX as u64, is_cut) {
                Some(kind) if self.has_sent(report.quote()) => {
                    self.link.report_fault(kind, Instant::now());
                }
                _ => ignored += 1,
            }
        }
        let counters = tools.counters();
        counters.icmp_verified += reports.len() as u64 - ignored;
        counters.icmp_ignored += ignored;
        if ignored > 0 {
            tools.say_ignored(&name);
        }
    }

    /// True when `quote` begins like a packet that was sent in this chapter or the one before.
    fn has_sent(&self, quote: &[u8]) -> bool {
        let Some(quoted) = quote.first_chunk::<{ paths::QUOTE_BYTES }>() else { return false };
        let back =
            u32::from(self.sequence.wrapping_sub(u16::from_be_bytes([quoted[2], quoted[3]])));
        let Some(current) = &self.current else { return false };
        let values = self.values();
        let mut head = Vec::new();
        if let Some(packet) = self.next.checked_sub(back).filter(|_| back > 0) {
            current.layout.write_head(packet, &values, &mut head);
        } else if let Some(before) = &self.before
            && let Some(packet) = (before.layout.packets() + self.next).checked_sub(back)
            && packet < before.layout.packets()
        {
            let sequence = values.sequence.wrapping_sub(before.layout.packets() as u16);
            before.layout.write_head(packet, &RtpValues { sequence, ..values }, &mut head);
        }
        head.starts_with(quoted)
    }
}

impl PacedTracks {
    /// Creates a session that does not play yet.
    pub(crate) fn new(source: Arc<TrackSource>, first: PacedTrack) -> PacedTracks {
        let packets_per_s = packets_per_s(&source, first.index);
        PacedTracks {
            source,
            tracks: vec![first],
            packets_per_s,
            clock: None,
            sent_until: None,
            playing: false,
            limit_ticks: 0,
            play: 0,
            waits: 0,
            wake: 0,
        }
    }

    /// The track that was added last, while it is added.
    pub(super) fn last_track(&mut self) -> &mut PacedTrack {
        self.tracks.last_mut().expect("a session has a track")
    }

    /// Adds a track; returns the packets a second that it adds.
    pub(super) fn add(&mut self, track: PacedTrack) -> u64 {
        let added = packets_per_s(&self.source, track.index);
        self.packets_per_s += added;
        self.tracks.push(track);
        added
    }

    /// Starts to play.
    pub(super) fn play_from(&mut self, start: TrackStart) {
        self.halt();
        let presentation = &self.source.asset.presentation;
        self.limit_ticks = start.limit_ticks;
        let leading = presentation.leading_index();
        for track in &mut self.tracks {
            if let Some(place) = start.at {
                let is_leading = track.index == leading;
                let from = if is_leading { place.leading_ticks } else { place.other_ticks };
                track.seek(&self.source, from);
                let about = &presentation.tracks()[track.index];
                track.timestamp = about.timestamp(place.shift_ticks);
            } else if track.next_ticks().is_some() {
                track.is_over = false;
            }
        }
        self.playing = true;
    }

    /// Stops sending and records how long the media sent ahead lasts: the next play begins no
    /// earlier.
    pub(super) fn halt(&mut self) {
        if let Some(clock) = self.clock.take() {
            self.sent_until = Some(clock.moment_of(self.position()));
        }
        self.playing = false;
    }

    pub(super) fn is_playing(&self) -> bool {
        self.playing
    }

    /// Returns the due time of the next packet of any track; at the end of the play that of the end.
    pub(super) fn position(&self) -> u64 {
        let next = self.tracks.iter().filter_map(PacedTrack::next_ticks).min();
        next.unwrap_or(self.source.asset.presentation.duration_ticks().min(self.limit_ticks))
    }

    /// Sends the packets due before `wake`. The step itself is late by `overslept`.
    pub(super) fn step(
        &mut self,
        now: Instant,
        (wake, overslept): (Instant, Duration),
        tools: &mut Tools,
    ) -> Step {
        let mut all_are_ready = true;
        for track in &mut self.tracks {
            match track.make_ready(&self.source, self.limit_ticks, &tools.readers) {
                Ok(is_ready) => all_are_ready &= is_ready,
                Err(reason) => return self.broken(&reason),
            }
        }
        if self.tracks.iter().all(|track| track.is_over) {
            return Step::Ended(StreamEnd::Finished);
        }
        if !all_are_ready && self.clock.is_none() {
            return Step::Wait;
        }
        let clock = self.clock_at(now, tools);
        let lead = self.tracks.iter().map(|track| track.lead(tools.burst)).max();
        let lead = lead.unwrap_or_default();
        // After a stall a step sends at most a burst, or more when the processor was taken away.
        let cap = self.position() + ticks(tools.burst + lead + CATCH_UP * overslept) + 1;
        let horizon = clock.ticks_at(wake + lead).min(cap).min(self.limit_ticks);
        let (mut is_missing, mut is_full) = (false, false);
        for track in &mut self.tracks {
            // A burst may reach into the next chapter.
            while !track.is_over && track.next_ticks().is_some_and(|due| due < horizon) {
                match track.make_ready(&self.source, self.limit_ticks, &tools.readers) {
                    Ok(true) => {}
                    Ok(false) => {
                        is_missing = true;
                        break;
                    }
                    Err(reason) => return self.broken(&reason),
                }
                match track.send_due(&self.source, horizon, clock, tools) {
                    Ok(true) => {}
                    Ok(false) => {
                        is_full = true;
                        break;
                    }
                    Err(SendError::Gone { .. }) => return Step::Ended(StreamEnd::Gone),
                    Err(error) => return self.broken(&error.to_string()),
                }
            }
            track.judge_reports(tools);
        }
        if self.is_blocked() {
            self.skip_missed(now, clock, tools);
        }
        if is_missing {
            self.count_stall(tools);
        }
        if is_missing || is_full {
            return Step::Wait;
        }
        if clock.ticks_at(now) >= cap {
            return Step::Behind;
        }
        for track in &mut self.tracks {
            track.to.note_in_time();
            // Behind the last packet of a chapter: the next one, or the end. A failure shows when
            // the chapter is needed.
            let _ = track.make_ready(&self.source, self.limit_ticks, &tools.readers);
        }
        if self.tracks.iter().all(|track| track.is_over) {
            return Step::Ended(StreamEnd::Finished);
        }
        let due = clock.moment_of(self.position());
        Step::Sent { due: due.checked_sub(lead).unwrap_or(due) }
    }

    fn broken(&self, reason: &str) -> Step {
        Step::Ended(StreamEnd::Broken(format!("{}: {reason}", self.source.asset.name)))
    }

    /// Counts a stall of the disk, unless a slow reader has just skipped to another place.
    fn count_stall(&self, tools: &mut Tools) {
        if !self.is_blocked() {
            tools.counters().cold_stalls += 1;
            self.tracks[0].link.count_stall();
        }
    }

    fn is_blocked(&self) -> bool {
        self.tracks.iter().any(|track| track.to.is_blocked())
    }

    /// Returns the running clock; starts it at the first packet, moves it when too far behind.
    fn clock_at(&mut self, now: Instant, tools: &mut Tools) -> MediaClock {
        let at = self.position();
        let behind_max = self.tracks.iter().map(|track| track.to.behind_max()).max();
        let behind_max = behind_max.expect("a session has a track");
        let clock = match self.clock {
            Some(clock) if now.saturating_duration_since(clock.moment_of(at)) < behind_max => clock,
            found => {
                if found.is_some() {
                    tools.counters().clock_moves += 1;
                    let (name, seconds) = (&self.source.asset.name, behind_max.as_secs());
                    tracing::warn!("{name}: over {seconds} s behind; the stream's clock is moved");
                }
                // After a clock that was behind, `sent_until` lies in the past.
                let moment = self.sent_until.map_or(now, |until| until.max(now));
                let clock = MediaClock { moment, ticks: at };
                self.tracks.iter().for_each(|track| track.link.start_clock(clock));
                clock
            }
        };
        self.clock = Some(clock);
        clock
    }

    /// Skips what a slow reader has missed, once its backlog is at the limit: all tracks go to the
    /// first random-access point that is not yet due.
    fn skip_missed(&mut self, now: Instant, clock: MediaClock, tools: &mut Tools) {
        let from = self.position();
        if now.saturating_duration_since(clock.moment_of(from)) < BACKLOG_MAX {
            return;
        }
        let presentation = &self.source.asset.presentation;
        let in_time = clock.ticks_at(now).min(self.limit_ticks);
        let entry = presentation.entry_from(in_time).filter(|e| e.due_ticks < self.limit_ticks);
        let (leading, other) = match entry {
            Some(entry) => {
                let presented = i64::try_from(entry.presented_ticks).unwrap_or(i64::MAX);
                (entry.due_ticks, presentation.due_of_presented(presented))
            }
            // Behind the last place to start a part of a picture is better than none.
            None => (in_time, in_time),
        };
        let leading_index = presentation.leading_index();
        let mut missed = 0;
        for track in &mut self.tracks {
            let to = if track.index == leading_index { leading } else { other };
            let from = track.next_ticks().unwrap_or(to).min(to);
            let packets = presentation.packets_between(track.index, from..to);
            track.seek(&self.source, to);
            // A receiver sees by the gap that packets are missing.
            track.sequence = track.sequence.wrapping_add(packets.clamp(1, 1 << 14) as u16);
            track.link.skip(track.sequence.into(), packets);
            missed += packets;
        }
        let counters = tools.counters();
        counters.reader_skips += 1;
        counters.packets_skipped += missed;
    }
}

fn packets_per_s(source: &TrackSource, track: usize) -> u64 {
    let bytes = source.asset.presentation.track_bits_per_second(track) / 8;
    bytes / PACKET_BYTES_MAX as u64 + 1
}

/// Most packets of a call: a GSO batch is limited to 64 KiB.
const BATCH_PACKETS_MAX: u32 = (u16::MAX as usize / PACKET_BYTES_MAX) as u32;
