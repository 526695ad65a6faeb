// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of a transport stream while it is recorded or sent, and parts of them: the list grows,
//! and earlier cuts do not change.
//!
//! The target duration is chosen once, from the first key frames: the shortest that they allow, at
//! least two seconds. A segment ends at the first key frame about that long after its
//! start, or at an earlier one if the next may be too late, judged by the longest distance of the
//! first key frames. If there is none in time it ends with another picture, or by the clock if
//! pictures are missing. It also ends at a reset of the clock, and after tables that name other
//! streams: before the first picture if the pictures are other ones, before the first key frame if
//! the sound is. Only settled media is cut: packets and times that a longer plan does not change.
//!
//! A part has whole access units, lasting at most [`PART_TICKS`]; the last part of a segment may be
//! shorter. Their duration is chosen once, from the first access units: parts may be no longer, and
//! little shorter. Parts are cut before the end of their segment is known, so a segment never ends
//! before the last part that was cut. A segment has no parts if its access units have such times
//! that its first part is longer, or much shorter.
//!
//! A channel, which has no end, is cut by its access units ([`StreamUnits`]) in place of a plan.
//! Its first segment begins with a key frame, and the oldest segments are dropped. Byte offsets
//! continue to count.
//!
//! Bytes of the file outside of packets, such as a packet with a damaged sync byte, are in the
//! segment of the packet before: players skip them.
//!
//! A segment begins with the packet of its key frame, or with the tables directly before; if they
//! are further away, or the key frame lacks parameter sets, these are sent before it. So are the
//! tables of a segment that begins with another picture.
//!
//! Costs a look at each access unit; 64 bytes a segment, and 32 a part of the last
//! [`PARTED_SEGMENTS`].
//!
//! Sources: RFC 8216 §3.2 (tables), §4.3.3.1 (the target duration never changes), §6.2.1, §6.2.2;
//! draft-pantos-hls-rfc8216bis §4.4.4.9 (parts).
//! Does not read media.

use std::collections::VecDeque;
use std::ops::Range;

use crate::growing_times::{
    CutClock, PART_TICKS, SEEN_TICKS, apart, growing_target_s, part_ticks, settled,
};
use crate::plan::PacketPlan;
use crate::segments::BreakBudget;
use crate::ts::{EntryContext, PlayedStreams, RecordedStarts, StreamUnits, TIME_MODULUS};
use crate::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP};

/// Ticks by which a key frame may be early: encoders' clocks differ.
const EARLY_TICKS: u64 = TICKS_PER_SECOND / 10;

/// Shortest segment that ends early because the next key frame may be too late.
const LEAST_TICKS: u64 = TICKS_PER_SECOND;

/// Time by which rounding may exceed a target duration, also if start and end of a segment were
/// rounded before.
const ROUNDING_TICKS: u64 = TICKS_PER_SECOND / 2 - TICKS_PER_SECOND / 1000;

/// Time without access units after which a segment is cut by the clock.
const SILENCE_TICKS: u64 = 2 * TICKS_PER_SECOND;

/// Longest distance of two access units that is derived from their own times only, and longest
/// difference of that from the clock.
const STEP_TICKS_MAX: u64 = TICKS_PER_SECOND;

/// Hundredths of the longest part that all last but independent ones and the last of a segment.
pub(crate) const PART_LEAST: u64 = 85;

/// Segments whose parts are stored, including the unfinished one.
const PARTED_SEGMENTS: usize = 16;

const PACKET_BYTES: u64 = crate::TS_PACKET_BYTES as u64;

/// A segment of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowingSegment {
    /// Packets sent before its bytes of the file: the tables, if it does not begin with them.
    pub tables: Box<[u8]>,
    /// Its bytes of the file.
    pub file: Range<u64>,
    /// Start, in ticks from the start of the first segment.
    pub start: u64,
    /// Duration in ticks. After a gap the next one begins later.
    pub ticks: u64,
    /// True if timestamps are reset at its start, or its streams are other ones.
    pub is_break: bool,
}

/// A part of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowingPart {
    /// Its bytes of the file. The tables of its segment precede the first part.
    pub file: Range<u64>,
    /// Duration in ticks, no longer than [`GrowingSegments::part_ticks`].
    pub ticks: u64,
    /// True if it begins with a key frame.
    pub is_independent: bool,
}

/// The segments of a recording so far.
#[derive(Debug)]
pub struct GrowingSegments {
    target_s: u64,
    /// Longest distance of the first key frames.
    apart: u64,
    /// Time at which the first segment begins.
    first: u64,
    /// Presentation delay: that of the first picture.
    delay: u64,
    segments: Vec<GrowingSegment>,
    /// Segments that were forgotten, and the breaks among them.
    forgotten: usize,
    forgotten_breaks: usize,
    /// Parts of the last segments, then those of the unfinished segment.
    parts: VecDeque<Vec<GrowingPart>>,
    /// Starts of that segment and of its next part; its tables.
    segment: CutPlace,
    part: CutPlace,
    tables: Box<[u8]>,
    /// Longest part.
    part_ticks: u64,
    /// False if its access units cannot form parts of that duration.
    has_parts: bool,
    /// The last place at which that part can end.
    last: Option<CutPlace>,
    /// The last access unit processed.
    seen: Option<SeenUnit>,
    played: PlayedStreams,
    breaks: BreakBudget,
    is_complete: bool,
}

/// A place where media can be cut.
#[derive(Debug, Clone, Copy)]
struct CutPlace {
    /// The first packet after it, and the offset of that packet.
    packet: u64,
    byte: u64,
    /// Time of presentation.
    ticks: u64,
    is_key: bool,
    is_break: bool,
    /// Tables to send before it.
    tables: Option<EntryContext>,
}

impl CutPlace {
    fn new(packet: u64, ticks: u64, clock: &impl CutClock) -> CutPlace {
        let byte = clock.byte_of(packet);
        CutPlace { packet, byte, ticks, is_key: false, is_break: false, tables: None }
    }
}

#[derive(Debug, Clone, Copy)]
struct SeenUnit {
    access_unit: u64,
    decoded: Option<u64>,
    ticks: u64,
    /// Usual time to the next; zero if it is longer than a part.
    step: u64,
    /// The tables in force.
    context: EntryContext,
}

impl GrowingSegments {
    /// `None` until enough is recorded to choose a target duration, for a plan whose packets do not
    /// start at the file's first byte, and for one without places to start.
    pub fn of(plan: &PacketPlan, is_complete: bool) -> Option<GrowingSegments> {
        let is_plain = plan.stride() == PACKET_BYTES
            && plan.extents().first().is_some_and(|extent| extent.file_offset == 0);
        let first = plan.entries().first().filter(|_| is_plain)?;
        let seen = plan.ticks_of(settled(plan, is_complete));
        if !is_complete && seen < SEEN_TICKS {
            return None;
        }
        let times = plan.entries().iter().map(|entry| entry.presented_ticks);
        let apart = apart(times, first.presented_ticks, seen);
        let delay = first.presented_ticks.saturating_sub(plan.ticks_of(first.access_unit));
        Some(GrowingSegments::begin(CutPlace::new(0, first.presented_ticks, plan), apart, delay))
    }

    /// Creates the segments of a channel, whose key frames may later be up to `apart_ticks` apart.
    /// `None` until enough media is sent to choose a target duration.
    pub fn of_channel(units: &StreamUnits, apart_ticks: u64) -> Option<GrowingSegments> {
        let starts = units.starts();
        let (first, context) = starts.entries.entries.first()?;
        let clock = units.clock();
        let seen = clock.ticks_of(units.settled());
        let delay = first.presented_ticks.saturating_sub(clock.ticks_of(first.access_unit));
        if seen < clock.ticks_of(first.access_unit) + SEEN_TICKS {
            return None;
        }
        let times = starts.entries.entries.iter().map(|(entry, _)| entry.presented_ticks);
        let apart = apart(times, first.presented_ticks, SEEN_TICKS).max(apart_ticks);
        let tables = match context.is_led() {
            true => Vec::new(),
            false => starts.entries.tables(context),
        };
        let place = CutPlace::new(context.first_packet(first), first.presented_ticks, clock);
        let place = CutPlace { is_key: true, ..place };
        let segments = GrowingSegments::begin(place, apart, delay);
        Some(GrowingSegments { tables: tables.into(), ..segments })
    }

    fn begin(start: CutPlace, apart: u64, delay: u64) -> GrowingSegments {
        GrowingSegments {
            target_s: growing_target_s(apart, TICKS_PER_SECOND / 2),
            apart,
            first: start.ticks,
            delay,
            segments: Vec::new(),
            forgotten: 0,
            forgotten_breaks: 0,
            parts: VecDeque::from([Vec::new()]),
            segment: start,
            part: start,
            tables: Box::default(),
            part_ticks: PART_TICKS,
            has_parts: true,
            last: None,
            seen: None,
            played: PlayedStreams::default(),
            breaks: BreakBudget::default(),
            is_complete: false,
        }
    }

    /// Cuts the new media in a longer plan of the recording; its rest, too, if it `is_complete`.
    pub fn extend(&mut self, plan: &PacketPlan, starts: &RecordedStarts, is_complete: bool) {
        if self.is_complete {
            return;
        }
        self.extend_to(settled(plan, is_complete), plan, starts, is_complete);
    }

    /// Cuts the new media of a channel.
    pub fn extend_channel(&mut self, units: &StreamUnits) {
        self.extend_to(units.settled(), units.clock(), &units.starts(), false);
    }

    /// Cuts the packets before `settled`.
    fn extend_to(
        &mut self,
        settled: u64,
        clock: &impl CutClock,
        starts: &RecordedStarts,
        is_complete: bool,
    ) {
        if self.seen.is_none() {
            self.part_ticks = part_ticks(starts.units.iter().filter_map(|unit| unit.decoded));
        }
        while let Some(place) = self.next_place(clock, starts, settled) {
            self.take(place, clock, starts);
        }
        let (mut end, mut silence) = (clock.ticks_of(settled) + self.delay, SILENCE_TICKS);
        if is_complete {
            let last = self.last.map_or(self.part.ticks, |last| last.ticks);
            (end, silence) = (end.max(last + 1), 0);
        }
        // Pictures may follow after a gap.
        let next = is_complete.then_some(end);
        while end > self.limit() + silence && self.cut_late(clock, starts, (settled, next)) {}
        if is_complete {
            self.is_complete = true;
            if settled > self.segment.packet {
                let end = end.max(self.segment.ticks + self.step().unwrap_or(1));
                self.end_segment(CutPlace::new(settled, end, clock), end, starts);
            }
        }
    }

    /// Drops the segments that begin before a byte. Their numbers are not reused.
    pub fn forget_before(&mut self, byte: u64) {
        let gone = self.segments.partition_point(|segment| segment.file.start < byte);
        self.forgotten += gone;
        self.forgotten_breaks += self.segments[..gone].iter().filter(|one| one.is_break).count();
        self.segments.drain(..gone);
    }

    /// Returns the next place to cut, of those before the packet `settled`.
    fn next_place(
        &mut self,
        clock: &impl CutClock,
        starts: &RecordedStarts,
        settled: u64,
    ) -> Option<CutPlace> {
        let from = self.seen.map_or(0, |seen| seen.access_unit + 1);
        let entries = &starts.entries.entries;
        let entry = entries.partition_point(|(entry, _)| entry.access_unit < from);
        let entry = entries.get(entry);
        let unit = starts.units.partition_point(|unit| unit.ts_packet < from);
        let unit = starts.units.get(unit);
        let at = |packet: Option<u64>| packet.unwrap_or(u64::MAX);
        let entry_at = at(entry.map(|(entry, _)| entry.access_unit));
        let unit_at = at(unit.map(|unit| unit.ts_packet));
        let access_unit = entry_at.min(unit_at);
        if access_unit >= settled {
            return None;
        }
        let unit = unit.filter(|_| unit_at == access_unit);
        let decoded = unit.and_then(|unit| unit.decoded);
        let ticks = self.unit_ticks(clock, access_unit, decoded);
        let before = self.seen.map(|seen| seen.context);
        let mut in_force = unit.map(|unit| unit.context).or(before);
        let mut place = CutPlace::new(access_unit, ticks, clock);
        place.tables = in_force;
        place.is_break = starts.breaks.binary_search(&access_unit).is_ok();
        if let Some((entry, context)) = entry.filter(|_| entry_at == access_unit) {
            (place.ticks, place.is_key) = (entry.presented_ticks, true);
            in_force = Some(*context);
            place.is_break |= self.are_other(&place, starts.entries.played(context));
            let first = context.first_packet(entry);
            place.packet = if place.is_break { context.first_of_stream(entry) } else { first };
            place.byte = clock.byte_of(place.packet);
            place.tables = (!context.is_led() || place.packet < first).then_some(*context);
        } else if let Some(context) = in_force {
            // Decoders of the pictures before have no use for these, key frame or not.
            let played = starts.entries.played(&context);
            place.is_break |=
                self.played.has_other_pictures(played) && self.are_other(&place, played);
            if place.is_break {
                place.packet = access_unit - context.row();
                place.byte = clock.byte_of(place.packet);
            }
        }
        if place.is_break
            && let Some(context) = in_force
        {
            self.played.set(starts.entries.played(&context));
        }
        let ticks = place.ticks.max(self.seen.map_or(0, |seen| seen.ticks));
        let context = in_force.unwrap_or_default();
        let usual = |seen: SeenUnit| {
            Some(ticks - seen.ticks).filter(|step| (1..=PART_TICKS).contains(step))
        };
        let step = self.seen.and_then(|seen| usual(seen).or(Some(seen.step))).unwrap_or_default();
        self.seen = Some(SeenUnit { access_unit, decoded, ticks, step, context });
        Some(CutPlace { ticks, ..place })
    }

    /// True if tables name other streams than before. Changes more frequent than stations make are
    /// not counted as breaks.
    fn are_other(&mut self, place: &CutPlace, named: &[(u16, u8)]) -> bool {
        let are_other = self.played.are_other(named);
        if !are_other {
            self.played.set(named);
        }
        are_other && self.breaks.allow(place.ticks)
    }

    /// Time of an access unit: that of the one before plus the step of their own times; by the
    /// clock if they have none, if their times stand still, or if they are far behind it.
    fn unit_ticks(&self, clock: &impl CutClock, access_unit: u64, decoded: Option<u64>) -> u64 {
        let due = clock.due_ticks(access_unit) + self.delay;
        let Some(seen) = self.seen else { return due };
        let step = decoded
            .zip(seen.decoded)
            .map(|(time, before)| time.wrapping_sub(before) % TIME_MODULUS * TICKS_PER_TIMESTAMP);
        let by_clock =
            clock.due_ticks(access_unit).saturating_sub(clock.due_ticks(seen.access_unit));
        let is_good = |&step: &u64| {
            step > 0 && (step <= STEP_TICKS_MAX || step.abs_diff(by_clock) <= STEP_TICKS_MAX)
        };
        let ticks = seen.ticks + step.filter(is_good).unwrap_or(by_clock);
        if ticks + SILENCE_TICKS < due { due } else { ticks }
    }

    /// Cuts before a place, and at it if a segment ends there.
    fn take(&mut self, place: CutPlace, clock: &impl CutClock, starts: &RecordedStarts) {
        let before = self.last.unwrap_or(self.part);
        if place.packet <= before.packet {
            // It belongs to the segment's own first packet.
            return;
        }
        let place = CutPlace { ticks: place.ticks.max(before.ticks + 1), ..place };
        if self.is_behind_hole(place.ticks, before.ticks, clock) {
            let ends = self.step().map_or(place.ticks, |step| before.ticks + step);
            self.end_segment(place, ends, starts);
            return;
        }
        let until = (place.packet, Some(place.ticks));
        while place.ticks > self.limit() && self.cut_late(clock, starts, until) {}
        let is_late = place.ticks > self.limit();
        if place.is_break || is_late || place.is_key && self.is_end(place.ticks) {
            self.end_segment(place, place.ticks, starts);
        } else {
            self.cut_part(place);
            self.last = Some(place);
        }
    }

    /// Usual time from an access unit to the next, unless it is longer than a part.
    fn step(&self) -> Option<u64> {
        self.seen.map(|seen| seen.step).filter(|&step| step > 0)
    }

    /// True if nothing was sent for a while before an access unit, so that no segment can be cut
    /// there: packets are missing, or the source had stopped.
    fn is_behind_hole(&self, ticks: u64, before: u64, clock: &impl CutClock) -> bool {
        if ticks <= before + STEP_TICKS_MAX {
            return false;
        }
        // Where something was sent there are references around the middle.
        let (lasts, due) = (ticks - before, |time: u64| time.saturating_sub(self.delay));
        let found = clock.reference_from(due(before + lasts / 2));
        found.is_none_or(|(_, at)| at >= due(ticks - lasts / 4))
    }

    /// Longest time of the segment, as a time of presentation.
    fn limit(&self) -> u64 {
        self.segment.ticks + self.target_s * TICKS_PER_SECOND + ROUNDING_TICKS
    }

    /// True if the segment ends at a key frame of this time.
    fn is_end(&self, ticks: u64) -> bool {
        let lasts = ticks - self.segment.ticks;
        let is_next_late = lasts >= LEAST_TICKS && ticks + self.apart > self.limit();
        lasts + EARLY_TICKS >= self.target_s * TICKS_PER_SECOND || is_next_late
    }

    /// Ends a segment without a key frame in time: at an access unit, or by the clock if none
    /// follows soon. `until` is a packet at which the next access unit begins, at time `next` if
    /// that is known. False if it cannot end before.
    fn cut_late(
        &mut self,
        clock: &impl CutClock,
        starts: &RecordedStarts,
        (until, next): (u64, Option<u64>),
    ) -> bool {
        let known = self.last.unwrap_or(self.part);
        let is_usable = known.ticks <= self.limit() && known.packet > self.segment.packet;
        let unit = next.map(|_| known).filter(|_| is_usable);
        let is_followed = next.is_some_and(|next| next <= known.ticks + STEP_TICKS_MAX);
        let by_clock = || self.place_by_clock(clock, known.ticks);
        let place = match is_followed {
            true => unit.or_else(by_clock),
            false => by_clock().or(unit),
        };
        let is_place = |place: &CutPlace| {
            (self.part.packet..=until).contains(&place.packet) && place.packet > self.segment.packet
        };
        let Some(place) = place.filter(is_place) else { return false };
        self.end_segment(place, place.ticks, starts);
        true
    }

    /// Returns the place of a clock reference at which the segment may end; the last access unit
    /// begins at `known`.
    fn place_by_clock(&self, clock: &impl CutClock, known: u64) -> Option<CutPlace> {
        let wanted = self.segment.ticks + self.target_s * TICKS_PER_SECOND;
        let since = wanted.max(known + self.step().unwrap_or(0)).saturating_sub(self.delay);
        let (packet, at) = clock.reference_from(since)?;
        let tables = self.seen.map(|seen| seen.context);
        let place = CutPlace { tables, ..CutPlace::new(packet, at + self.delay, clock) };
        (place.ticks <= self.limit()).then_some(place)
    }

    /// Cuts a part if the access unit after `place` does not belong to it.
    fn cut_part(&mut self, place: CutPlace) {
        if place.ticks > self.part.ticks + self.part_ticks
            && let Some(last) = self.last
        {
            // If pictures are missing the part has the longest duration allowed.
            match self.step().filter(|_| place.ticks > last.ticks + self.part_ticks) {
                Some(_) => {
                    let ticks = self.part.ticks + self.part_ticks;
                    self.end_part(CutPlace { ticks, ..place }, 0);
                    self.part.ticks = place.ticks;
                }
                None => self.end_part(last, self.part_ticks * PART_LEAST / 100),
            }
        }
    }

    /// Ends a part, which must last at least `least` ticks.
    fn end_part(&mut self, place: CutPlace, least: u64) {
        let parts = self.parts.back_mut().expect("the segment has a list");
        let ticks = place.ticks - self.part.ticks;
        self.has_parts &= (least..=self.part_ticks).contains(&ticks) || !parts.is_empty();
        if self.has_parts {
            let file = self.part.byte..place.byte;
            let is_independent = self.part.is_key;
            parts.push(GrowingPart { file, ticks: ticks.min(self.part_ticks), is_independent });
        }
        (self.part, self.last) = (place, None);
    }

    /// Ends a segment before `place`, at the time `ends`.
    fn end_segment(&mut self, place: CutPlace, ends: u64, starts: &RecordedStarts) {
        let ends = ends.min(self.limit());
        let end = CutPlace { ticks: ends, ..place };
        self.cut_part(end);
        if place.packet > self.part.packet {
            self.end_part(end, 0);
        }
        let ticks = ends - self.segment.ticks;
        let start = self.next_start();
        let tables = place.tables.map(|context| starts.entries.tables(&context));
        let tables = std::mem::replace(&mut self.tables, tables.unwrap_or_default().into());
        self.segments.push(GrowingSegment {
            tables,
            file: self.segment.byte..place.byte,
            start,
            ticks,
            is_break: self.segment.is_break,
        });
        (self.segment, self.part, self.last, self.has_parts) = (place, place, None, true);
        self.parts.push_back(Vec::new());
        if self.parts.len() > PARTED_SEGMENTS {
            self.parts.pop_front();
        }
    }

    /// Value of EXT-X-TARGETDURATION.
    pub fn target_s(&self) -> u64 {
        self.target_s
    }

    /// Longest duration of a part, in ticks.
    pub fn part_ticks(&self) -> u64 {
        self.part_ticks
    }

    /// The segments that are not forgotten.
    pub fn list(&self) -> &[GrowingSegment] {
        &self.segments
    }

    /// Number of the first of them.
    pub fn first_number(&self) -> usize {
        self.forgotten
    }

    /// Number of the segment that is not whole.
    pub fn next_number(&self) -> usize {
        self.forgotten + self.segments.len()
    }

    /// Returns the segment of this number; `None` if it was dropped or is unfinished.
    pub fn segment(&self, number: usize) -> Option<&GrowingSegment> {
        self.segments.get(number.checked_sub(self.forgotten)?)
    }

    /// Breaks before the segment of this number, which is not forgotten.
    pub fn breaks_before(&self, number: usize) -> usize {
        let kept = &self.segments[..number.saturating_sub(self.forgotten)];
        self.forgotten_breaks + kept.iter().filter(|segment| segment.is_break).count()
    }

    /// Returns the parts of a segment; of the unfinished one, which has the next number, those so
    /// far. Parts of older segments are not stored.
    pub fn parts(&self, segment: usize) -> &[GrowingPart] {
        let left = self.next_number() + 1 - self.parts.len();
        let parts = segment.checked_sub(left).and_then(|at| self.parts.get(at));
        parts.map_or(&[], Vec::as_slice)
    }

    /// Returns the packets to send before a segment, including the unfinished one.
    pub fn tables(&self, segment: usize) -> &[u8] {
        self.segment(segment).map_or(&self.tables, |segment| &segment.tables)
    }

    /// First byte of the segment that is not whole.
    pub fn next_byte(&self) -> u64 {
        self.segment.byte
    }

    /// Time of a plan or channel from which the times of segments count.
    pub fn first_ticks(&self) -> u64 {
        self.first.saturating_sub(self.delay)
    }

    /// True if the segment that is not whole begins with a break.
    pub fn is_next_break(&self) -> bool {
        self.segment.is_break
    }

    /// Start of the unfinished segment, in ticks from the start of the first.
    pub fn next_start(&self) -> u64 {
        self.segment.ticks - self.first
    }

    /// The packet before which nothing changes in a longer plan of the recording.
    pub fn settled_packets(plan: &PacketPlan, is_complete: bool) -> u64 {
        settled(plan, is_complete)
    }

    /// True if no segment will be added.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}
