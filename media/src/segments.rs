// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a transport stream into segments for HTTP Live Streaming.
//!
//! A cut is made where play can start, at the last such place that keeps the segment within the
//! target duration as rounded in a playlist, else at the first one after it. The cut is before the
//! PAT and PMT if they directly precede the picture. Otherwise it is before the picture, and the
//! tables then in force have to be sent before the segment ([`SegmentPlan::tables`]), followed by
//! parameter sets if the picture lacks them. The rest of the file stays unchanged and in order, so
//! the segments without these packets, concatenated, are the file. Where a joined stream restarts
//! its times, the cut is before all tables that directly precede the picture, including those of
//! services.
//!
//! A segment ends where timestamps were reset, or tables name other pictures or sound, but not more
//! often than recordings are joined: 16 at once and one a second. Beyond that the stream is
//! damaged, and a segment for each picture would help no player; breaks inside segments are counted
//! ([`SegmentPlan::breaks_inside`]). So a film has at most two segments per target duration, one
//! per second more, and those 16.
//!
//! Durations are differences of presentation times if the file has them (players add these up),
//! else of the clock. One pass over the places to start, no I/O.
//!
//! Sources: RFC 8216 §3.2 (segments of transport streams), §4.3.2.1 (EXTINF), §4.3.2.3
//! (discontinuity), §4.3.3.1 (target duration); ISO/IEC 13818-1 §2.4.3.
//! Does not move packets: sound that is multiplexed late is in the next segment, as with every
//! segmenter that copies packets.

use std::ops::Range;

use crate::plan::PacketPlan;
use crate::ts::{EntryContext, EntryPoints, PlayedStreams, TABLE_SETS_MAX};
use crate::{Damage, Refusal, TICKS_PER_SECOND, TICKS_PER_TIMESTAMP, TS_PACKET_BYTES};

/// Bits of a timestamp.
const TIMESTAMP_MASK: u64 = (1 << 33) - 1;

const PACKET_BYTES: u64 = TS_PACKET_BYTES as u64;

/// A segment longer than this many target durations is refused: players buffer whole segments, and
/// rely on the target duration.
const TARGETS_MAX: u64 = 4;

/// Where clock and presentation times differ by more than this, the clock is used.
const TIMES_APART_TICKS_MAX: i64 = TICKS_PER_SECOND as i64;

/// Presentation times that jump forward by more than this against the clock were reset. For
/// backward jumps the limit is [`TIMES_APART_TICKS_MAX`].
const JUMP_TICKS_MAX: i64 = 10 * TICKS_PER_SECOND as i64;

/// Breaks that may each end a segment within the first second; one more per second.
const BREAKS_AT_ONCE: u64 = 16;

/// Packets of other tables that may precede the first ones of a file: a service description, as
/// ffmpeg writes it, and others.
const BEFORE_TABLES_MAX: u64 = 4;

/// A first picture later than this leaves media before it that a player counts.
const LEAD_TICKS_MAX: u64 = TICKS_PER_SECOND / 10;

/// A segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its range of the file, in bytes: whole packets.
    pub file: Range<u64>,
    /// Duration.
    pub ticks: u64,
    /// Timestamps do not continue those of the segment before (EXT-X-DISCONTINUITY).
    pub is_break: bool,
    /// Timestamp of its start (33 bits of 90 kHz), from its first picture at which play can start;
    /// `None` if no such picture has one.
    pub timestamp: Option<u64>,
    /// Tables in force at its start, if it does not begin with its own.
    tables: Option<EntryContext>,
}

/// The segments of a file, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentPlan {
    segments: Vec<Segment>,
    tables: EntryPoints,
    tail_bytes: u64,
    breaks_inside: u64,
}

/// A place to cut.
pub(crate) struct CutPoint {
    pub(crate) packet: u64,
    /// Packets of other tables before its own.
    before: u64,
    pub(crate) ticks: u64,
    start: EntryContext,
    is_break: bool,
}

impl SegmentPlan {
    /// Cuts the file of `plan` into segments of `target_s` seconds, at least one.
    ///
    /// # Errors
    /// The file has bytes that are in no packet, packets with arrival times, no tables, no place
    /// to start, or none for much longer than the target.
    pub fn cut(plan: &PacketPlan, starts: EntryPoints, target_s: u64) -> Result<Self, Refusal> {
        Self::cut_within(plan, starts, target_s, TARGETS_MAX, 0)
    }

    /// Like [`SegmentPlan::cut`], with segments of any length that the places to start give, and
    /// without further tables before a file that begins with its own and few others.
    ///
    /// # Errors
    /// Those of [`SegmentPlan::cut`], except for places far apart.
    pub fn cut_however_long(
        plan: &PacketPlan,
        starts: EntryPoints,
        target_s: u64,
    ) -> Result<Self, Refusal> {
        Self::cut_within(plan, starts, target_s, u64::MAX, BEFORE_TABLES_MAX)
    }

    fn cut_within(
        plan: &PacketPlan,
        mut starts: EntryPoints,
        target_s: u64,
        targets_max: u64,
        before_tables_max: u64,
    ) -> Result<Self, Refusal> {
        let target_s = target_s.max(1);
        check(plan, &starts)?;
        let places = places(plan, &starts);
        starts.entries = Vec::new();
        let Some(last) = places.last() else {
            return Err(Refusal::NoStart);
        };
        let rest = plan.duration_ticks() - plan.ticks_of(last.packet);
        let end = EntryContext::default().presented_at(starts.end);
        let end_ticks = last.ticks.saturating_add(step(rest, &last.start, &end).0);
        let longest = target_s.saturating_mul(TICKS_PER_SECOND) + TICKS_PER_SECOND / 2;
        let mut segments = Vec::new();
        let mut breaks = BreakBudget::default();
        let mut breaks_inside = 0;
        let mut at = 0;
        while at < places.len() {
            let place = &places[at];
            let begin = if at == 0 { begin(place) } else { place.ticks };
            let limit = begin.saturating_add(longest);
            let next = next(&places, at, limit, end_ticks, &mut breaks);
            let inside = places[at + 1..next].iter().filter(|place| place.is_break);
            breaks_inside += inside.count() as u64;
            let (end_packet, end) = places
                .get(next)
                .map_or((plan.ts_packets(), end_ticks), |next| (next.packet, next.ticks));
            let (start_packet, start) = match at {
                0 => (0, place.start.of_beginning()),
                _ => (place.packet, place.start),
            };
            let ticks = end.saturating_sub(begin);
            // Sound that continues after the last picture cannot be cut; the places are not at
            // fault.
            let shown = match starts.clock_end.filter(|_| next == places.len()) {
                Some(until) => ticks.min(until.saturating_sub(begin)),
                None => ticks,
            };
            if rounded(shown) > target_s.saturating_mul(targets_max) {
                let (from_s, seconds) = (begin / TICKS_PER_SECOND, rounded(shown));
                return Err(Refusal::FarStart { from_s, seconds, target_s });
            }
            segments.push(Segment {
                file: start_packet * PACKET_BYTES..end_packet * PACKET_BYTES,
                ticks,
                is_break: place.is_break,
                timestamp: timestamp(&places[at..next], begin),
                tables: (!start.is_led()
                    || place.packet + place.before - start_packet > before_tables_max)
                    .then_some(start),
            });
            at = next;
        }
        Ok(Self { segments, tables: starts, tail_bytes: plan.tail_bytes(), breaks_inside })
    }

    /// The segments; at least one.
    pub fn list(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the packets to send before `segment`: PAT and PMT, and the parameter sets that its
    /// first picture lacks; empty if it begins with all of them.
    pub fn tables(&self, segment: &Segment) -> Vec<u8> {
        segment.tables.as_ref().map_or_else(Vec::new, |start| self.tables.tables(start))
    }

    /// Value of EXT-X-TARGETDURATION: no segment, rounded, is longer.
    pub fn target_s(&self) -> u64 {
        self.segments.iter().map(|segment| rounded(segment.ticks)).max().unwrap_or(0).max(1)
    }

    /// Number of places inside of segments at which timestamps are reset; no playlist can mark
    /// them.
    pub fn breaks_inside(&self) -> u64 {
        self.breaks_inside
    }

    /// Bytes at the file's end that are less than a packet and in no segment.
    pub fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }
}

/// Seconds, to the nearest (RFC 8216 §4.3.3.1).
fn rounded(ticks: u64) -> u64 {
    ticks.saturating_add(TICKS_PER_SECOND / 2) / TICKS_PER_SECOND
}

/// Checks that the file is packets and nothing else: otherwise the segments would not be the file.
fn check(plan: &PacketPlan, starts: &EntryPoints) -> Result<(), Refusal> {
    if plan.stride() != PACKET_BYTES {
        return Err(Refusal::ArrivalTimes { stride: plan.stride() });
    }
    if plan.losses_seen() > 0 || plan.extents()[0].file_offset != 0 {
        let offset = plan.losses().first().map_or(0, |loss| loss.offset);
        let bytes = plan.lost_bytes().max(plan.extents()[0].file_offset);
        return Err(Refusal::Gaps { bytes, offset });
    }
    if plan.streams().is_empty() {
        return Err(Refusal::NoTables);
    }
    if starts.is_exhausted() {
        let limit = TABLE_SETS_MAX as u64;
        return Err(Refusal::TooDamaged { damage: Damage::TableSets, limit });
    }
    Ok(())
}

/// Returns the places to cut, on a timeline that never decreases.
pub(crate) fn places(plan: &PacketPlan, starts: &EntryPoints) -> Vec<CutPoint> {
    let mut places: Vec<CutPoint> = Vec::with_capacity(starts.entries.len());
    let mut clock_before = 0;
    let mut played = PlayedStreams::default();
    for &(entry, start) in &starts.entries {
        let packet = start.first_packet(&entry);
        let clock = plan.ticks_of(entry.access_unit);
        let named = starts.played(&start);
        let are_other = played.are_other(named);
        played.set(named);
        let place = match places.last() {
            None => CutPoint { packet, before: 0, ticks: clock, start, is_break: false },
            Some(before) => {
                let (step, is_set) = step(clock - clock_before, &before.start, &start);
                let is_break = is_set || are_other;
                let first = if is_break { start.first_of_stream(&entry) } else { packet };
                let (ticks, before) = (before.ticks + step, packet - first);
                CutPoint { packet: first, before, ticks, start, is_break }
            }
        };
        clock_before = clock;
        places.push(place);
    }
    places
}

/// Returns the time from one place to the next, `clock` ticks later, and whether the presentation
/// times were reset between them.
fn step(clock: u64, before: &EntryContext, after: &EntryContext) -> (u64, bool) {
    let (Some(from), Some(to)) = (before.presented(), after.presented()) else {
        return (clock, false);
    };
    let ticks = i64::from(to.wrapping_sub(from) as i32) * TICKS_PER_TIMESTAMP as i64;
    let clock_ticks = i64::try_from(clock).unwrap_or(i64::MAX);
    let apart = ticks.saturating_sub(clock_ticks).saturating_abs();
    match u64::try_from(ticks) {
        // Times that stand still while the clock advances are wrong.
        Ok(ticks) if apart <= TIMES_APART_TICKS_MAX && ticks >= clock / 2 => (ticks, false),
        Ok(_) => (clock, apart > JUMP_TICKS_MAX),
        // A key picture is never presented before an earlier one.
        Err(_) => (clock, apart > TIMES_APART_TICKS_MAX),
    }
}

/// Returns the timestamp of a segment with these places, which begins at `begin`. The start of a
/// file is a place without a picture.
fn timestamp(places: &[CutPoint], begin: u64) -> Option<u64> {
    let is_after_break = |&(number, place): &(usize, &CutPoint)| number > 0 && place.is_break;
    let places = places.iter().enumerate().take_while(|place| !is_after_break(place));
    let mut timed = places.filter_map(|(_, place)| Some((place, place.start.timestamp()?)));
    let (place, time) = timed.next()?;
    let lead = place.ticks.saturating_sub(begin) / TICKS_PER_TIMESTAMP;
    Some(time.wrapping_sub(lead) & TIMESTAMP_MASK)
}

/// Time at which the file's first segment begins.
pub(crate) fn begin(first: &CutPoint) -> u64 {
    if first.ticks < LEAD_TICKS_MAX { first.ticks } else { 0 }
}

/// Breaks that may still end a segment, as time: each costs a second.
#[derive(Debug)]
pub(crate) struct BreakBudget {
    left_ticks: u64,
    /// Time at which they were counted last.
    at: u64,
}

impl Default for BreakBudget {
    fn default() -> Self {
        Self { left_ticks: Self::TICKS_MAX, at: 0 }
    }
}

impl BreakBudget {
    const TICKS_MAX: u64 = BREAKS_AT_ONCE * TICKS_PER_SECOND;

    /// True if the next break, at `ticks`, may end a segment.
    pub(crate) fn allow(&mut self, ticks: u64) -> bool {
        let gained = ticks.saturating_sub(self.at);
        self.at = ticks;
        self.left_ticks = self.left_ticks.saturating_add(gained).min(Self::TICKS_MAX);
        let left = self.left_ticks.checked_sub(TICKS_PER_SECOND);
        self.left_ticks = left.unwrap_or(self.left_ticks);
        left.is_some()
    }
}

/// Returns the place at which a segment ends that begins at `at`: the last place before `limit`, at
/// least one further, without a reset of timestamps in between as long as `breaks` allow that;
/// after the last place, the segment extends to the end.
fn next(
    places: &[CutPoint],
    at: usize,
    limit: u64,
    end_ticks: u64,
    breaks: &mut BreakBudget,
) -> usize {
    let rest = &places[at + 1..];
    let mut within = 0;
    for place in rest.iter().take_while(|place| place.ticks < limit) {
        if place.is_break && breaks.allow(place.ticks) {
            return at + 1 + within;
        }
        within += 1;
    }
    if within == rest.len() && end_ticks < limit {
        return places.len();
    }
    at + within.max(1)
}
