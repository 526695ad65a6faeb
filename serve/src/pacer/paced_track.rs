// SPDX-License-Identifier: MIT OR Apache-2.0
//! A track of a session on a pacer thread: sends the due packets, chapter by chapter.
//!
//! Costs per burst: some binary searches in the layout of a second, which has tens to hundreds of
//! units, and one send call per row; a lock and a look-up once a second.
//!
//! Sources: RFC 3550 §5.1; `media::payload::Layout`.
//! Does not have a clock ([`super::paced_tracks`] has one for all tracks of a session).

use std::sync::{Arc, Weak};
use std::time::Duration;

use media::payload::{PACKET_BYTES_MAX, RtpValues};
use media::tracks::CHAPTER_TICKS;
use paths::{INTERLEAVED_PACKETS_MAX, SendError, SendStats};
use wire::mp2t;

use super::Tools;
use super::departures::Departures;
use super::media_target::{MediaTarget, log_lowered_segment_limit};
use crate::library::track_asset::{Chapter, ChapterKey, TrackSource};
use crate::play::{Link, MediaClock, PacketTrace, Sent, TracedCall, icmp_faults};
use crate::prefetch::{ChapterMark, ChapterRequest, PrefetchHandle};

/// A track of a session.
pub(crate) struct PacedTrack {
    /// Index of the track in the file.
    pub(super) own: usize,
    /// Index of the track in the presentation that is played; it differs from `own` in trick play
    /// only.
    pub(super) index: usize,
    pub(super) to: MediaTarget,
    pub(super) link: Arc<Link>,
    pub(super) departures: Option<Departures>,
    payload_type: u8,
    ssrc: u32,
    /// Sequence number of the next packet.
    pub(super) sequence: u16,
    /// Timestamp of the start of the file.
    pub(super) timestamp: u32,
    chapter: u32,
    /// The current chapter; `None` until it is in memory.
    current: Option<Arc<Chapter>>,
    /// The preceding chapter, to which ICMP may refer while other owners keep it in memory.
    before: Weak<Chapter>,
    /// Due time at which the track begins in its chapter, until that is in memory.
    begin_ticks: Option<u64>,
    /// Due time of the next packet of a paused track, until its chapter is in memory again.
    paused_ticks: Option<u64>,
    /// Next packet in the chapter.
    next: u32,
    /// Replies to the requests for the current chapter and for the next.
    marks: [Arc<ChapterMark>; 2],
    pub(super) is_over: bool,
    /// Due time from which the track waits for more of a recording; 0 if it does not wait.
    awaits_from: u64,
    /// True while trick play omits the track.
    pub(super) is_silent: bool,
}

/// State of the next packet of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It is in memory, or the track is over.
    Ready,
    /// It is to be read.
    Missing,
    /// It is to be recorded.
    Awaited,
}

impl PacedTrack {
    pub(crate) fn new(
        source: &TrackSource,
        (index, payload_type): (usize, u8),
        to: MediaTarget,
        link: Arc<Link>,
    ) -> PacedTrack {
        let identity = source.asset.presentation.tracks()[index].identity;
        link.start_at(identity.first_sequence.into(), 0);
        PacedTrack {
            own: index,
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
            before: Weak::new(),
            begin_ticks: Some(0),
            paused_ticks: None,
            next: 0,
            marks: Default::default(),
            is_over: false,
            awaits_from: 0,
            is_silent: false,
        }
    }

    /// Creates the track for the pictures of a transport stream, which continues with `sequence`.
    pub(super) fn of_stream(
        source: &TrackSource,
        sequence: u16,
        to: MediaTarget,
        link: Arc<Link>,
        departures: Option<Departures>,
    ) -> PacedTrack {
        let track = PacedTrack::new(source, (0, mp2t::PAYLOAD_TYPE), to, link);
        track.link.start_at(sequence.into(), 0);
        PacedTrack { departures, sequence, ..track }
    }

    /// Sends nothing until the next play.
    pub(super) fn silence(&mut self) {
        (self.is_over, self.is_silent) = (true, true);
        (self.current, self.before) = (None, Weak::new());
        self.marks = Default::default();
        self.paused_ticks = None;
    }

    /// Releases its chapters: a session that does not play holds no layouts. It continues with the
    /// same packet.
    pub(super) fn release(&mut self) {
        if self.current.is_some() {
            self.paused_ticks = self.next_ticks();
        }
        (self.current, self.before) = (None, Weak::new());
        self.marks = Default::default();
    }

    /// True while it keeps chapters in memory.
    #[cfg(test)]
    pub(super) fn holds_layouts(&self) -> bool {
        self.current.is_some() || self.marks.iter().any(|mark| mark.answer().is_some())
    }

    /// Prepares the departure times of its target.
    pub(super) fn prepare(&mut self, pacing: &super::PacingChoice) {
        if let MediaTarget::Datagrams(to) = &mut self.to {
            self.departures = pacing.prepare(to);
        }
    }

    /// Moves to the first unit that is due at `ticks` or later.
    pub(super) fn seek(&mut self, source: &TrackSource, ticks: u64) {
        let presentation = &source.asset.presentation;
        let is_growing = source.asset.is_growing();
        self.is_over = ticks >= presentation.duration_ticks() && !is_growing;
        self.is_silent = false;
        (self.chapter, self.next) = (presentation.chapter_at(ticks), 0);
        (self.current, self.before) = (None, Weak::new());
        self.marks = Default::default();
        (self.begin_ticks, self.paused_ticks) = (Some(ticks), None);
        self.awaits_from = 0;
    }

    /// Continues with a longer recording. Samples that came late for what was sent meanwhile are
    /// left out.
    pub(super) fn continue_recording(&mut self) {
        let from = std::mem::take(&mut self.awaits_from);
        // Not one that begins in its chapter.
        if self.begin_ticks.is_none() {
            let before = (from / CHAPTER_TICKS).saturating_sub(1);
            let chapter = self.chapter.max(u32::try_from(before).unwrap_or(u32::MAX));
            if std::mem::replace(&mut self.chapter, chapter) != chapter {
                self.marks = Default::default();
            }
        }
    }

    fn enter(&mut self, chapter: u32) {
        self.before = self.current.take().as_ref().map_or_else(Weak::new, Arc::downgrade);
        (self.chapter, self.next) = (chapter, 0);
        self.marks.rotate_left(1);
        self.marks[1] = Arc::default();
    }

    /// Makes the next packet available: advances to the following chapters as far as they are in
    /// memory. The error is the reason why one cannot be read.
    pub(super) fn make_ready(
        &mut self,
        source: &Arc<TrackSource>,
        limit_ticks: u64,
        readers: &PrefetchHandle,
    ) -> Result<Readiness, String> {
        let settled = source.asset.settled_ticks();
        while !self.is_over {
            if self.current.is_none() {
                if u64::from(self.chapter) * CHAPTER_TICKS >= settled {
                    self.awaits_from = settled;
                    return Ok(Readiness::Awaited);
                }
                let chapter = self.obtain(source, 0, readers)?;
                let Some(chapter) = chapter else { return Ok(Readiness::Missing) };
                if let Some(ticks) = self.begin_ticks.take() {
                    self.next = chapter.layout.unit_due(ticks);
                }
                (self.current, self.paused_ticks) = (Some(chapter), None);
                // The request is made a second ahead; a failure shows when the chapter is needed.
                let _ = self.obtain(source, 1, readers);
            }
            let layout = &self.current.as_ref().expect("set above").layout;
            if self.next < layout.packets() {
                // A unit that is due before the limit is sent whole.
                self.is_over = self.next >= layout.unit_due(limit_ticks);
                return Ok(Readiness::Ready);
            }
            let end = limit_ticks.min(settled);
            let following = self.following(source);
            match following.filter(|&next| u64::from(next) * CHAPTER_TICKS < end) {
                Some(following) => self.enter(following),
                None if settled < limit_ticks => {
                    self.awaits_from = settled;
                    return Ok(Readiness::Awaited);
                }
                None => self.is_over = true,
            }
        }
        Ok(Readiness::Ready)
    }

    /// Returns the next chapter with packets; a gap in the track has chapters without any.
    fn following(&self, source: &TrackSource) -> Option<u32> {
        source.asset.presentation.following_chapter(self.index, self.chapter)
    }

    /// Returns the current chapter (`ahead` 0) or the following one (1) if it is in memory;
    /// requests it otherwise.
    fn obtain(
        &mut self,
        source: &Arc<TrackSource>,
        ahead: usize,
        readers: &PrefetchHandle,
    ) -> Result<Option<Arc<Chapter>>, String> {
        let chapter = if ahead == 0 { Some(self.chapter) } else { self.following(source) };
        let settled = source.asset.settled_ticks();
        let is_whole = |chapter: &u32| u64::from(*chapter) * CHAPTER_TICKS < settled;
        let Some(chapter) = chapter.filter(is_whole) else { return Ok(None) };
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

    /// Returns the due time of the next packet, or of its chapter while that is not in memory;
    /// `None` at the end.
    pub(super) fn next_ticks(&self) -> Option<u64> {
        if self.is_over {
            return None;
        }
        let begins = u64::from(self.chapter) * CHAPTER_TICKS;
        let layout = self.current.as_ref().map(|chapter| &chapter.layout);
        let next = match layout {
            Some(layout) if self.next < layout.packets() => layout.ticks(self.next),
            // The next chapter begins at this time at the earliest.
            Some(_) => begins + CHAPTER_TICKS,
            None => self.begin_ticks.or(self.paused_ticks).unwrap_or(begins),
        };
        Some(next.max(self.awaits_from))
    }

    fn values(&self) -> RtpValues {
        RtpValues {
            payload_type: self.payload_type,
            ssrc: self.ssrc,
            sequence: self.sequence.wrapping_sub(self.next as u16),
            timestamp: self.timestamp,
        }
    }

    pub(super) fn lead(&self, burst: Duration) -> Duration {
        self.departures.as_ref().map_or(Duration::ZERO, |departures| departures.lead(burst))
    }

    /// Sends the packets of the current chapter that are due before `horizon`, or of units that are
    /// due before `limit_ticks` once it is reached; returns false if the target accepts no more
    /// now.
    pub(super) fn send_due(
        &mut self,
        source: &TrackSource,
        (horizon, limit_ticks): (u64, u64),
        (clock, mut trace): (MediaClock, Option<&mut PacketTrace>),
        tools: &mut Tools,
    ) -> Result<bool, SendError> {
        let Some(chapter) = self.current.clone() else { return Ok(true) };
        let layout = &chapter.layout;
        // The end of a row that is due soon is sent with the rest of it, by one call.
        let later = horizon.saturating_add(clock.speed.ticks(ROW_BURSTS * tools.burst));
        let last = layout.unit_due(limit_ticks);
        let end = match horizon < limit_ticks {
            true => layout.packets_in_rows_before(horizon, later).min(last),
            false => last,
        };
        let reading = self.departures.as_ref().map(Departures::reading);
        let most = self.packets_a_call(end.saturating_sub(self.next));
        let path = match self.to {
            MediaTarget::Stream(_) => tools.framed_name(false),
            MediaTarget::Datagrams(_) => {
                let packets = end.saturating_sub(self.next).min(BATCH_PACKETS_MAX);
                tools.datagram_name(false, packets.into(), self.departures.is_some())
            }
        };
        let mut progress = Sent { path, ..Sent::default() };
        let mut outcome = Ok(true);
        while self.next < end {
            let row = layout.row(self.next, (end - self.next).min(most));
            let due = clock.moment_of(layout.ticks(self.next));
            let now = tools.clock.now();
            let late = now.saturating_duration_since(due);
            let at = reading.map(|reading| reading.departure(due));
            let packets = self.next..self.next + row.packets;
            let (mut stats, was_blocked) = (SendStats::default(), self.to.is_blocked());
            let values = self.values();
            let run = (layout, packets, &values);
            let sent = match &mut self.to {
                MediaTarget::Datagrams(to) => {
                    let (path, batch) = tools.track_batch(source, run, at);
                    path.send(&batch, to, &mut stats)
                }
                MediaTarget::Stream(to) => {
                    let (path, batch) = tools.framed_track_batch(source, run, to.channel);
                    let mut output = to.output.lock();
                    let sent = path.send(&batch, &mut output, &mut stats);
                    to.is_blocked |= sent == Err(SendError::Blocked) || output.rest_bytes() > 0;
                    sent
                }
            };
            let count = *sent.as_ref().unwrap_or(&0);
            match was_blocked {
                // The reader was late, not this server.
                true => tools.counters().record_late_reader(&stats, count.into()),
                false => tools.counters().record(&stats, late, count.into()),
            }
            progress.refused += stats.refused;
            match sent {
                Ok(0) | Err(SendError::Blocked) => {
                    outcome = Ok(false);
                    break;
                }
                Ok(_) => {
                    if let Some(trace) = &mut trace {
                        let (track, sequence, packets) = (self.own, self.sequence, count);
                        let call = TracedCall { track, sequence, packets, sent: now, path };
                        let due = |place| clock.moment_of(layout.ticks(self.next + place));
                        trace.record(call, due);
                    }
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
        if !progress.is_empty() {
            self.link.count(self.sequence.into(), progress);
        }
        self.ask_missed(tools);
        outcome
    }

    /// Returns the most packets of one send call in a burst of `burst_packets`.
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
            log_lowered_segment_limit(to);
            let now = tools.clock.now();
            if self.departures.as_mut().is_some_and(|departures| departures.is_time_to_ask(now)) {
                tools.counters().departures_missed += to.take_missed_departures();
            }
        }
    }

    /// Records ICMP reports about the track's packets; counts and ignores the rest.
    pub(super) fn judge_reports(&mut self, tools: &mut Tools) {
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
                    self.link.report_fault(kind, tools.clock.now());
                }
                _ => ignored += 1,
            }
        }
        let counters = tools.counters();
        counters.icmp_verified += reports.len() as u64 - ignored;
        counters.icmp_ignored += ignored;
        if ignored > 0 {
            tools.log_ignored(&name);
        }
    }

    /// True if `quote` begins like a packet that was sent in this chapter or the preceding one.
    fn has_sent(&self, quote: &[u8]) -> bool {
        let Some(quoted) = quote.first_chunk::<{ paths::QUOTE_BYTES }>() else { return false };
        let back =
            u32::from(self.sequence.wrapping_sub(u16::from_be_bytes([quoted[2], quoted[3]])));
        let Some(current) = &self.current else { return false };
        let values = self.values();
        let mut head = Vec::new();
        if let Some(packet) = self.next.checked_sub(back).filter(|_| back > 0) {
            current.layout.write_head(packet, &values, &mut head);
        } else if let Some(before) = self.before.upgrade()
            && let Some(packet) = (before.layout.packets() + self.next).checked_sub(back)
            && packet < before.layout.packets()
        {
            let sequence = values.sequence.wrapping_sub(before.layout.packets() as u16);
            before.layout.write_head(packet, &RtpValues { sequence, ..values }, &mut head);
        }
        head.starts_with(quoted)
    }
}

/// Most packets of a call: a GSO batch is limited to 64 KiB.
const BATCH_PACKETS_MAX: u32 = (u16::MAX as usize / PACKET_BYTES_MAX) as u32;
/// Bursts by which the end of a row may be sent early: a picture at 25 a second is spread over two
/// bursts, so one call sends it wherever in a burst it begins.
const ROW_BURSTS: u32 = 2;
