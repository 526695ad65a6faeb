// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps the range of a PLAY to packets, or to samples of tracks.
//!
//! Clock times (§3.7) apply to channels only, whose last packet is on the air now. Tracks begin
//! with the last random-access point of the pictures at or before the requested time.
//!
//! Costs two binary searches in the plan.
//!
//! Sources: RFC 2326 §3.6, §3.7, §10.5, §12.34.
//! Does not parse ranges ([`wire::rtsp`] does).

use std::time::Duration;

use clock::Moment;
use media::tracks::Entry;
use media::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP};
use wire::rtsp::{NptRange, NptStart, RangeUnit};

use crate::library::asset::Source;
use crate::library::channel_parts::ChannelParts;
use crate::library::track_asset::TrackSource;
use media::{duration_of, ticks_of};

/// Range in packets. `from` is `None` if play continues from the current position; `end` is `None`
/// if the client left it open.
#[derive(Default)]
pub(super) struct PacketRange {
    pub(super) from: Option<u64>,
    pub(super) end: Option<u64>,
}

/// Range in samples.
pub(super) struct SampleRange {
    /// Start of the range; `None` if play continues from the current position.
    pub(super) entry: Option<Entry>,
    /// Due time before which packets are sent; `u64::MAX` for the end of the file.
    pub(super) end_ticks: u64,
}

/// Finds a range in the plan. It begins at the entry at or before its start (RFC 2326 §10.5 lets
/// the server choose the nearest playable position and name it in its Range header). Returns `None`
/// for a range beyond the end or one that ends before it begins.
pub(super) fn packet_range(
    source: &Source,
    range: NptRange,
    unit: RangeUnit,
    now: Moment,
) -> Option<PacketRange> {
    match (source.asset.channel_parts(), unit) {
        (Some(parts), RangeUnit::Clock) => {
            return resolve_in(parts, by_channel(parts, range, now)?);
        }
        (Some(parts), _) => return resolve_in(parts, range),
        (None, RangeUnit::Clock) => return None,
        (None, _) => {}
    }
    let plan = &source.asset.plan;
    let end = range.end.map(presented_ticks);
    let from = match range.start {
        // `now` of a growing recording is its current end (§3.6).
        NptStart::Now if source.asset.is_growing() => Some(plan.entry(u64::MAX)),
        NptStart::Now => None,
        NptStart::At(start) => {
            let start = presented_ticks(start);
            let empty = end.is_some_and(|end| end <= start);
            if empty || start >= plan.duration_ticks().max(1) {
                return None;
            }
            Some(plan.entry(start))
        }
    };
    let end =
        end.map(|end| plan.packets_presented_before(end).max(from.map_or(1, |from| from + 1)));
    Some(PacketRange { from, end: end.filter(|&end| end < source.end()) })
}

/// Finds a range in the presentation. Returns `None` for a range that ends before it begins, or
/// begins beyond both the end and the announced end. A start between the two maps to the end of the
/// media, since a player seeks to any position that its seek bar shows.
pub(super) fn sample_range(
    source: &TrackSource,
    range: NptRange,
    announced_ticks: u64,
) -> Option<SampleRange> {
    let presentation = &source.asset.presentation;
    let timeline = source.asset.timeline();
    let file_end = timeline.file_end_ticks();
    let end = range.end.map(presented_ticks);
    let (start, end) = match (range.start, end) {
        // `now` of a growing recording is its current end (§3.6).
        (NptStart::Now, end) if source.asset.is_growing() => {
            let now = presentation.presented_of_due(source.asset.settled_ticks());
            (Some(u64::try_from(now).unwrap_or(0)), end)
        }
        (NptStart::Now, end) => (None, end),
        (NptStart::At(start), end) => {
            let start = presented_ticks(start);
            // Backward play runs from the later time to the earlier, in whichever order they are
            // named.
            match end.filter(|_| timeline.scale().is_backwards()) {
                Some(end) => (Some(start.max(end).min(file_end)), Some(start.min(end))),
                None => (Some(start), end),
            }
        }
    };
    let entry = match start {
        None => None,
        Some(start) if timeline.scale().is_backwards() => {
            // Backward play from time zero would be empty: players that name zero in their first
            // PLAY (ffmpeg) mean the whole file.
            let start = if start == 0 { file_end } else { start.min(file_end) };
            if end.is_some_and(|end| end >= start) {
                return None;
            }
            Some(presentation.entry(timeline.ticks(start)))
        }
        Some(start) => {
            if end.is_some_and(|end| end <= start) || start >= file_end.max(announced_ticks) {
                return None;
            }
            let start = start.min(file_end);
            // Clients that count from the first sample received (ffmpeg) request times that are
            // earlier by the priming, truncated to milliseconds.
            let counted_from_first = match presentation.priming_ticks() {
                0 => 0,
                priming => priming.min(PRIMING_TICKS_MAX) + TICKS_PER_SECOND / 1000,
            };
            let wanted = if start == 0 { 0 } else { start + counted_from_first };
            Some(presentation.entry(timeline.ticks(wanted)))
        }
    };
    let is_growing = source.asset.is_growing();
    let is_end = |&end: &u64| end < timeline.end_ticks() || is_growing;
    let limit = end.map(|end| timeline.ticks(end)).filter(is_end);
    let end_ticks = limit.map_or(u64::MAX, |end| presentation.due_of_presented(end as i64).max(1));
    Some(SampleRange { entry, end_ticks })
}

/// Finds a range in a channel's parts. Time zero maps to the present: players request it when they
/// mean the beginning of their own playback. A time before the window maps to its beginning. A
/// future time maps to the present, since a player that seeks forward intends to catch up. A
/// channel has no end, so a range has none either.
fn resolve_in(parts: &ChannelParts, range: NptRange) -> Option<PacketRange> {
    let live = parts.live_packet()?;
    let from = match range.start {
        NptStart::Now => live,
        NptStart::At(start) if start.is_zero() => live,
        NptStart::At(start) => {
            let empty = range.end.is_some_and(|end| end <= start);
            (!empty).then_some(())?;
            parts.packet_at(presented_ticks(start))?.min(live)
        }
    };
    Some(PacketRange { from: Some(from), end: None })
}

/// Converts clock times to times of the channel. A future time becomes the present, and a time
/// before the channel becomes its beginning.
fn by_channel(parts: &ChannelParts, range: NptRange, now: Moment) -> Option<NptRange> {
    let began = began(parts, now)?;
    let converted = |since_1970: Duration| since_1970.saturating_sub(began);
    let start = match range.start {
        NptStart::Now => NptStart::Now,
        // Time zero would mean the present.
        NptStart::At(at) => NptStart::At(converted(at).max(Duration::from_millis(1))),
    };
    Some(NptRange { start, end: range.end.map(converted) })
}

/// Returns the time of day, since 1970, at which the channel's time began: its last packet is on
/// the air now. The present of viewers is some seconds earlier.
pub(super) fn began(parts: &ChannelParts, now: Moment) -> Option<Duration> {
    let source = parts.newest()?;
    let asset = &source.asset;
    let last = source.end().clamp(1, asset.plan.packets()) - 1;
    let present = duration_of(asset.first_ticks() + asset.plan.presented_ticks(last));
    Some(now.since_epoch().unwrap_or_default().saturating_sub(present))
}

/// Converts a client's time to presentation ticks, rounded to the nearest unit of 90 kHz, because
/// clients write times in whole milliseconds or microseconds.
pub(super) fn presented_ticks(time: Duration) -> u64 {
    let stamps = ticks_of(time).saturating_add(TICKS_PER_TIMESTAMP / 2) / TICKS_PER_TIMESTAMP;
    stamps.saturating_mul(TICKS_PER_TIMESTAMP)
}

/// Upper bound of audio priming: two and a half frames of AAC at 44.1 kHz last 58 ms.
const PRIMING_TICKS_MAX: u64 = TICKS_PER_SECOND / 10;
