// SPDX-License-Identifier: MIT OR Apache-2.0
//! One session of an asset with tracks on a pacer thread: sends the due packets of all its tracks
//! by one clock.
//!
//! Each track advances chapter by chapter (a chapter is a second of its packets, laid out by a
//! reader thread). It requests the next chapter when it enters one, so the pacer never waits for a
//! disk. A step sends every packet of every track that becomes due before the session's next wake,
//! in as few calls as rows of equal packets allow. The clock starts when the first chapters of all
//! tracks are in memory, so the tracks stay synchronous. A packet is sent at most three bursts
//! early: one as in any session, and two if that avoids splitting a row. Costs per step and track:
//! some binary searches in the layout of a second and one send call per row; a lock and a look-up
//! once a second. Allocates nothing but the request for a chapter that is not in memory.
//!
//! Sources: ARCHITECTURE.md, "A streamed byte's journey"; RFC 3550 §5.1; RFC 2326 Appendix B
//! (sequence numbers and timestamps continue over jumps).
//! Does not choose its wakes ([`super::wheel`]) and never blocks. Does not send wire images.

use std::sync::Arc;
use std::time::{Duration, Instant};

use media::TICKS_PER_SECOND;
use media::payload::PACKET_BYTES_MAX;
use media::tracks::CHAPTER_TICKS;
use paths::SendError;

use super::media_target::BACKLOG_MAX;
use super::paced_stream::{Step, StreamEnd};
use super::paced_track::{PacedTrack, Readiness};
use super::{CATCH_UP, Tools};
use crate::library::track_asset::{TrackAsset, TrackSource};
use crate::play::{MediaClock, PacketTrace, Shift, Speed};

/// State of a session on its pacer.
pub(crate) struct PacedTracks {
    source: Arc<TrackSource>,
    tracks: Vec<PacedTrack>,
    /// Mean packets a second.
    pub(crate) packets_per_s: u64,
    speed: Speed,
    clock: Option<MediaClock>,
    /// Earliest start of the next play's clock: the end of the media sent so far.
    pub(super) sent_until: Option<Instant>,
    /// Start of the clock of a play that follows another, until the clock has started.
    pub(super) begins_at: Option<Instant>,
    /// Due time at which the last play stopped.
    stopped_at: u64,
    playing: bool,
    /// Due time before which packets are sent.
    limit_ticks: u64,
    /// Time since which a recording that ran dry has not had enough to play again.
    starved: Option<Instant>,
    /// Time for which it had nothing, less that by which gaps were shortened since.
    waited: Duration,
    /// Set while a client traces it.
    pub(super) trace: Option<Box<PacketTrace>>,
    /// Number of the current PLAY.
    pub(crate) play: u64,
    /// Consecutive steps that could send nothing.
    pub(crate) waits: u32,
    /// Tick of the only valid wheel entry.
    pub(crate) wake: super::wheel::Tick,
}

/// Beginning of a play.
pub(crate) struct TrackStart {
    /// The file, or its pictures at another rate.
    pub(crate) source: Arc<TrackSource>,
    /// Sequence number with which the pictures of a transport stream continue after the stream
    /// itself; tracks continue with their own.
    pub(crate) sequence: u16,
    pub(crate) speed: Speed,
    /// Start position of the tracks; `None` if each continues with its next packet.
    pub(crate) at: Option<TrackPlace>,
    /// Due time before which packets are sent.
    pub(crate) limit_ticks: u64,
}

/// A position in a presentation, on both of its timelines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackPlace {
    /// Due time of the random-access point of the leading track.
    pub(crate) leading_ticks: u64,
    /// Due time from which the other tracks are sent.
    pub(crate) other_ticks: u64,
    /// Ticks added to presentation time so that timestamps continue over jumps.
    pub(crate) shift_ticks: i64,
}

impl TrackPlace {
    /// Returns the due time from which a track of the file is sent.
    pub(super) fn begin_ticks(&self, asset: &TrackAsset, own: usize) -> u64 {
        if own == asset.leading_index() { self.leading_ticks } else { self.other_ticks }
    }
}

impl PacedTracks {
    /// Creates a session that does not play yet.
    pub(crate) fn new(source: Arc<TrackSource>, first: PacedTrack) -> PacedTracks {
        let packets_per_s = packets_per_s(&source, first.own);
        PacedTracks {
            source,
            tracks: vec![first],
            packets_per_s,
            speed: Speed::ONE,
            clock: None,
            sent_until: None,
            begins_at: None,
            stopped_at: 0,
            playing: false,
            limit_ticks: 0,
            starved: None,
            waited: Duration::ZERO,
            trace: None,
            play: 0,
            waits: 0,
            wake: 0,
        }
    }

    /// Returns its first track, for a session that continues as a transport stream.
    pub(super) fn into_first(self) -> PacedTrack {
        self.tracks.into_iter().next().expect("a session has a track")
    }

    /// Returns the latest track, while it is being added.
    pub(super) fn last_track(&mut self) -> &mut PacedTrack {
        self.tracks.last_mut().expect("a session has a track")
    }

    /// Adds a track; returns its packets a second.
    pub(super) fn add(&mut self, track: PacedTrack) -> u64 {
        let added = packets_per_s(&self.source, track.own);
        self.packets_per_s += added;
        self.tracks.push(track);
        added
    }

    /// Starts to play.
    pub(super) fn play_from(&mut self, start: TrackStart, now: Instant) {
        self.stop(now);
        self.source = start.source.newest();
        (self.limit_ticks, self.speed) = (start.limit_ticks, start.speed);
        (self.starved, self.waited) = (None, Duration::ZERO);
        let asset = &self.source.asset;
        for track in &mut self.tracks {
            track.continue_recording();
            track.link.note_play(self.play, Shift::default());
            let Some(index) = asset.index_of(track.own) else {
                track.silence();
                continue;
            };
            track.index = index;
            if let Some(place) = start.at {
                track.seek(&self.source, place.begin_ticks(asset, track.own));
                let about = &asset.presentation.tracks()[index];
                track.timestamp = about.timestamp(place.shift_ticks);
            } else if track.next_ticks().is_some() {
                track.is_over = false;
            }
        }
        // This position holds until the first packet has started the clock.
        self.stopped_at = self.position();
        self.playing = true;
    }

    /// Stops sending and records the end of the media already sent: the next play begins no
    /// earlier.
    pub(super) fn stop(&mut self, now: Instant) {
        if let Some(clock) = self.clock.take() {
            // The next picture may be many seconds away if only key frames are sent.
            let latest = now + AHEAD_MAX;
            self.stopped_at = self.position().min(clock.ticks_at(latest));
            self.sent_until = Some(clock.moment_of(self.stopped_at).min(latest));
        }
        self.tracks.iter_mut().for_each(PacedTrack::release);
        self.begins_at = None;
        self.playing = false;
    }

    /// Returns the moment at which the media to send ends, by the running clock.
    pub(super) fn end_moment(&self) -> Option<Instant> {
        let end_ticks = self.source.asset.presentation.duration_ticks().min(self.limit_ticks);
        self.clock.map(|clock| clock.moment_of(end_ticks))
    }

    /// Returns the sequence number of the first track's next packet.
    pub(super) fn first_sequence(&self) -> u16 {
        self.tracks[0].sequence
    }

    /// Returns the indices of its tracks in the file.
    pub(super) fn own_tracks(&self) -> Vec<usize> {
        self.tracks.iter().map(|track| track.own).collect()
    }

    /// Returns the due time at which play stopped: that of the next packet, or if that is far away,
    /// the due time of the moment of the stop.
    pub(super) fn stopped_at(&self) -> u64 {
        self.stopped_at
    }

    pub(super) fn is_playing(&self) -> bool {
        self.playing
    }

    /// Returns the due time of the next packet of any track; at the end of the play, the due time
    /// of that end.
    pub(super) fn position(&self) -> u64 {
        let next = self.tracks.iter().filter_map(PacedTrack::next_ticks).min();
        let next = next.unwrap_or(self.source.asset.presentation.duration_ticks());
        next.min(self.limit_ticks)
    }

    /// Sends the packets due before `wake`. The step itself is late by `overslept`.
    pub(super) fn step(
        &mut self,
        now: Instant,
        (wake, overslept): (Instant, Duration),
        tools: &mut Tools,
    ) -> Step {
        self.take_newest();
        let mut all_are_ready = true;
        for track in &mut self.tracks {
            match track.make_ready(&self.source, self.limit_ticks, &tools.readers) {
                Ok(readiness) => all_are_ready &= readiness != Readiness::Missing,
                Err(reason) => return self.broken(&reason),
            }
        }
        if self.tracks.iter().all(|track| track.is_over) {
            return Step::Ended(StreamEnd::Finished);
        }
        if let Some(step) = self.await_more(now) {
            return step;
        }
        if !all_are_ready && self.clock.is_none() {
            return Step::Wait;
        }
        let clock = self.clock_at(now, tools);
        let clock = self.without_gap(clock, now);
        let lead = self.tracks.iter().map(|track| track.lead(tools.burst)).max();
        let lead = lead.unwrap_or_default();
        // After a stall a step sends at most a burst, or more if the processor was preempted.
        let span = clock.speed.ticks(tools.burst + lead + CATCH_UP * overslept);
        let cap = self.position() + span + 1;
        let horizon = clock.ticks_at(wake + lead).min(cap).min(self.limit_ticks);
        let (mut is_missing, mut is_full) = (false, false);
        for track in &mut self.tracks {
            // A burst may extend into the next chapter. At the limit, units that have begun are
            // sent whole.
            let is_last = horizon >= self.limit_ticks;
            while !track.is_over && track.next_ticks().is_some_and(|due| is_last || due < horizon) {
                match track.make_ready(&self.source, self.limit_ticks, &tools.readers) {
                    Ok(Readiness::Ready) => {}
                    Ok(Readiness::Missing) => {
                        is_missing = true;
                        break;
                    }
                    Ok(Readiness::Awaited) => break,
                    Err(reason) => return self.broken(&reason),
                }
                let watched = (clock, self.trace.as_deref_mut());
                match track.send_due(&self.source, (horizon, self.limit_ticks), watched, tools) {
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
            // After the last packet of a chapter the next chapter follows, or the end. A failure
            // shows when the chapter is needed.
            let _ = track.make_ready(&self.source, self.limit_ticks, &tools.readers);
        }
        if self.tracks.iter().all(|track| track.is_over) {
            return Step::Ended(StreamEnd::Finished);
        }
        let due = clock.moment_of(self.position());
        Step::Sent { due: due.checked_sub(lead).unwrap_or(due) }
    }

    /// Switches to the newest plan of a recording, in good time: its chapters are laid out anew.
    fn take_newest(&mut self) {
        let settled = self.source.asset.settled_ticks();
        let is_near = settled <= self.position().saturating_add(NEWEST_AHEAD_TICKS);
        if !is_near && self.starved.is_none() {
            return;
        }
        let newest = self.source.newest();
        if !Arc::ptr_eq(&newest, &self.source) {
            self.tracks.iter_mut().for_each(PacedTrack::continue_recording);
            self.source = newest;
        }
    }

    /// Waits for more of a recording whose known packets were sent. After it has run dry it waits
    /// for some seconds of media, so that a viewer who has caught up stops once and not at every
    /// fragment. The clock stops meanwhile.
    fn await_more(&mut self, now: Instant) -> Option<Step> {
        let (settled, at) = (self.source.asset.settled_ticks(), self.position());
        let wanted = if self.starved.is_some() { CUSHION_TICKS } else { 1 };
        if settled >= self.limit_ticks || settled.saturating_sub(at) >= wanted {
            let since = self.starved.take();
            self.waited +=
                since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            return None;
        }
        self.starved.get_or_insert(now);
        if let Some(clock) = self.clock.take() {
            self.sent_until = Some(clock.moment_of(at));
            self.stopped_at = at;
        }
        Some(Step::Sent { due: now + LOOK_EVERY })
    }

    /// Shortens a gap in the times of a recording by the time for which the session has waited for
    /// more of it: the recorder was silent for the same reason.
    fn without_gap(&mut self, clock: MediaClock, now: Instant) -> MediaClock {
        let ahead = clock.moment_of(self.position()).saturating_duration_since(now);
        let skipped = ahead.saturating_sub(GAP_LEFT).min(self.waited);
        let moment = clock.moment.checked_sub(skipped).filter(|_| !skipped.is_zero());
        let Some(moment) = moment else { return clock };
        self.waited -= skipped;
        let clock = MediaClock { moment, ..clock };
        self.tracks.iter().for_each(|track| track.link.start_clock(clock));
        self.clock = Some(clock);
        clock
    }

    fn broken(&self, reason: &str) -> Step {
        Step::Ended(StreamEnd::Broken(format!("{}: {reason}", self.source.asset.name)))
    }

    /// Counts a stall of the disk, unless a slow reader has just skipped to another position.
    fn count_stall(&self, tools: &mut Tools) {
        if !self.is_blocked() {
            tools.counters().cold_stalls += 1;
            self.tracks[0].link.count_stall();
        }
    }

    fn is_blocked(&self) -> bool {
        self.tracks.iter().any(|track| track.to.is_blocked())
    }

    /// Returns the running clock; starts it at the first packet, and moves it if it is too far
    /// behind.
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
                let joins = |at: &Instant| now.saturating_duration_since(*at) < behind_max;
                // After a clock that was behind, `sent_until` lies in the past.
                let resumed = || self.sent_until.map_or(now, |until| until.max(now));
                let moment = self.begins_at.take().filter(joins).unwrap_or_else(resumed);
                let clock = MediaClock { moment, ticks: at, speed: self.speed };
                self.tracks.iter().for_each(|track| track.link.start_clock(clock));
                clock
            }
        };
        self.clock = Some(clock);
        clock
    }

    /// Skips the packets that a slow reader has missed, once its backlog reaches the limit: all
    /// tracks move to the first random-access point that is not yet due.
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
            // After the last random-access point, an incomplete picture is better than none.
            None => (in_time, in_time),
        };
        let leading_index = presentation.leading_index();
        let mut missed = 0;
        for track in self.tracks.iter_mut().filter(|track| !track.is_silent) {
            let to = if track.index == leading_index { leading } else { other };
            let from = track.next_ticks().unwrap_or(to).min(to);
            let packets = presentation.packets_between(track.index, from..to);
            track.seek(&self.source, to);
            // The gap shows a receiver that packets are missing.
            track.sequence = track.sequence.wrapping_add(packets.clamp(1, 1 << 14) as u16);
            track.link.skip(track.sequence.into(), packets);
            missed += packets;
        }
        let counters = tools.counters();
        counters.reader_skips += 1;
        counters.packets_skipped += missed;
    }
}

/// Returns the packets a second of a track of the file. A track that the source does not send, such
/// as audio beside pictures at another rate, counts as one.
fn packets_per_s(source: &TrackSource, own: usize) -> u64 {
    let Some(index) = source.asset.index_of(own) else { return 1 };
    let bytes = source.asset.presentation.track_bits_per_second(index) / 8;
    bytes / PACKET_BYTES_MAX as u64 + 1
}

/// Media left at which a session looks for a newer plan of a recording: the chapter that is sent
/// and the next.
const NEWEST_AHEAD_TICKS: u64 = 2 * CHAPTER_TICKS;
/// Media of a recording to wait for after running dry: more than one fragment.
const CUSHION_TICKS: u64 = 3 * TICKS_PER_SECOND;
/// Time that is left of a gap.
const GAP_LEFT: Duration = Duration::from_secs(1);
/// Interval at which the recording of a waiting viewer is checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Most media that a session sends ahead: a burst, and the lead of departure times.
const AHEAD_MAX: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests;
