// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts the packets that a channel sends into segments of HLS, as they are written to the window.
//!
//! Parts begin at tables, at any place in a group of pictures. So segments are cut over all parts
//! as over one file, at key frames, and one segment per part lies in two parts: it is sent as two
//! ranges, without a copy. A segment ends where another programme begins (EXT-X-DISCONTINUITY):
//! clock and counters continue there, encodings do not.
//!
//! The playlist lists the time shift, six target durations at least. Once a player has requested
//! it, the window keeps its segments, and those that have left the playlist for the same time plus
//! a segment (RFC 8216 §6.2.2), a minute at most.
//!
//! Costs a look at each header word of what was written, by the thread that reads it for plans, and
//! another read of the first 512 KB of each programme, for its codecs.
//!
//! Sources: RFC 8216 §4.3.2.3 (discontinuities), §6.2.2.
//! Does not read files ([`super::planner`] does).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use media::{GrowingSegments, StreamUnits, Survey, TICKS_PER_SECOND, TS_PACKET_BYTES};

use super::{ChannelWindow, WindowPart};
use crate::web::{LiveState, ShownTracks, TICKS_PER_US};

/// Cuts the segments of one window.
#[derive(Default)]
pub(super) struct LiveCutter {
    generation: u64,
    units: StreamUnits,
    /// Number of the byte from which packets count; set by the first part.
    first_byte: Option<u64>,
    /// Part that was read last.
    part: Option<Arc<WindowPart>>,
    /// Wall time of the clock's zero.
    zero: Option<SystemTime>,
    /// Segments whose tracks were looked for, where a programme begins with them.
    surveyed: usize,
}

impl LiveCutter {
    /// Processes the next bytes of a part, which begin at `offset` of it.
    pub(super) fn feed(
        &mut self,
        window: &ChannelWindow,
        part: &Arc<WindowPart>,
        offset: u64,
        bytes: &[u8],
    ) {
        let generation = window.live.slot().generation;
        if generation != self.generation {
            *self = LiveCutter { generation, ..LiveCutter::default() };
        }
        if !self.part.as_ref().is_some_and(|before| Arc::ptr_eq(before, part)) {
            self.begin(part, offset);
        }
        let first_byte = self.first_byte.expect("it has begun");
        let at = (part.first_byte + offset - first_byte) / PACKET_BYTES;
        // Bytes that were dropped before they were read are missing.
        if self.units.packets() < at {
            self.units.skip_to(at);
            self.units.note_join(at);
        }
        for join in part.take_joins(offset + bytes.len() as u64) {
            self.units.note_join((part.first_byte + join - first_byte) / PACKET_BYTES);
        }
        self.units.feed(bytes);
    }

    /// Begins with a part.
    fn begin(&mut self, part: &Arc<WindowPart>, offset: u64) {
        let before = self.part.replace(part.clone());
        let packet = match self.first_byte {
            None => {
                self.first_byte = Some(part.first_byte + offset);
                0
            }
            Some(first_byte) => (part.first_byte - first_byte) / PACKET_BYTES,
        };
        let ends = before.as_ref().map(|before| before.ends.load(Ordering::Relaxed));
        if ends != Some(part.first_ticks) {
            self.units.note_join(packet);
        }
        let media = Duration::from_micros(self.units.ticks() / TICKS_PER_US);
        self.zero = part.began.checked_sub(media);
    }

    /// Cuts the new bytes.
    pub(super) fn cut(&mut self, window: &ChannelWindow) {
        let Some(first_byte) = self.first_byte else { return };
        let oldest = window.parts.lock().front().map(|part| part.first_byte);
        let mut slot = window.live.slot();
        if slot.generation != self.generation {
            return;
        }
        slot.first_byte = first_byte;
        if slot.state.is_none() {
            let apart = window.apart_ticks.load(Ordering::Relaxed);
            let segments = GrowingSegments::of_channel(&self.units, apart);
            if segments.is_none() && !self.units.has_starts() {
                self.units.forget_before(self.units.packets());
            }
            slot.state = segments.map(LiveState::channel);
        }
        let Some(state) = &mut slot.state else { return };
        let listed = |state: &LiveState| {
            let next = state.segments.next_number();
            (next, state.segments.parts(next).len())
        };
        let before = listed(state);
        state.segments.extend_channel(&self.units);
        let began = Duration::from_micros(state.segments.first_ticks() / TICKS_PER_US);
        if let Some(began) = self.zero.and_then(|zero| zero.checked_add(began)) {
            state.note_date(began);
        }
        let target = state.segments.target_s() * TICKS_PER_SECOND;
        let wanted = window.assets.reach.shift_ticks().max(LISTED_TARGETS * target);
        state.segments.forget_before(oldest.unwrap_or(u64::MAX).saturating_sub(first_byte));
        state.slide(wanted);
        if window.live.is_asked() {
            window.assets.reach.keep(wanted + (wanted + target).min(GONE_TICKS_MAX));
        }
        self.units.forget_before(state.segments.next_byte() / PACKET_BYTES);
        let has_grown = before != listed(state);
        let begun = self.begun(&state.segments);
        drop(slot);
        if let Some((mut beginning, file)) = begun {
            let bytes = file.start + first_byte..file.end + first_byte;
            beginning.extend(window.read(bytes).unwrap_or_default());
            self.show(window, &beginning);
        }
        if has_grown {
            window.live.note_grown();
        }
    }

    /// Returns the tables and the first bytes of the last segment with which a programme begins,
    /// once.
    fn begun(&mut self, segments: &GrowingSegments) -> Option<(Vec<u8>, Range<u64>)> {
        let from = self.surveyed.max(segments.first_number());
        self.surveyed = segments.next_number();
        let begins = |&number: &usize| {
            number == 0 || segments.segment(number).is_some_and(|segment| segment.is_break)
        };
        let segment = segments.segment((from..self.surveyed).rfind(begins)?)?;
        let end = segment.file.end.min(segment.file.start + SURVEY_BYTES_MAX);
        Some((segment.tables.to_vec(), segment.file.start..end))
    }

    /// Records the tracks of a programme, found in its beginning.
    fn show(&self, window: &ChannelWindow, beginning: &[u8]) {
        let mut survey = Survey::default();
        survey.feed(beginning);
        let Some(programme) = survey.finish().into_iter().next() else { return };
        let shown = ShownTracks::of(&programme.tracks);
        let mut slot = window.live.slot();
        if let Some(state) = slot.state_of(self.generation) {
            state.show(shown);
        }
    }
}

const PACKET_BYTES: u64 = TS_PACKET_BYTES as u64;
/// Target durations that a playlist lists at least: players begin three behind the last.
const LISTED_TARGETS: u64 = 6;
/// Longest time for which segments are kept that have left the playlist.
const GONE_TICKS_MAX: u64 = 60 * TICKS_PER_SECOND;
/// Bytes of a segment in which tracks are looked for.
const SURVEY_BYTES_MAX: u64 = 2789 * PACKET_BYTES;
