// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps the range of a PLAY to packets.
//!
//! Clock times (§3.7) apply to channels only, whose last packet is on the air now.
//!
//! Costs two binary searches in the plan.
//!
//! Sources: RFC 2326 §3.6, §3.7, §10.5.
//! Does not parse ranges ([`wire::rtsp`] does).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use media::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP};
use wire::rtsp::{NptRange, NptStart, RangeUnit};

use crate::channel::window::ChannelWindow;
use crate::library::asset::Source;
use crate::play::ticks;

/// Range in packets; `None` for an end that the client left open.
pub(super) struct Wanted {
    pub(super) from: Option<u64>,
    pub(super) end: Option<u64>,
}

/// Finds a range in the plan. It begins at the entry at or before its start (RFC 2326 §10.5 lets
/// the server choose the nearest playable position and name it in its Range header). Returns `None`
/// for a range beyond the end or one that ends before it begins.
pub(super) fn resolve(source: &Source, range: NptRange, unit: RangeUnit) -> Option<Wanted> {
    match (source.asset.window(), unit) {
        (Some(window), RangeUnit::Clock) => return resolve_in(window, by_channel(window, range)?),
        (Some(window), _) => return resolve_in(window, range),
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
    Some(Wanted { from, end: end.filter(|&end| end < source.end()) })
}

/// Finds a range in a channel's window. Time zero maps to the present: players request it when they
/// mean the beginning of their own playback. A time before the window maps to its beginning. A
/// future time maps to the present, since a player that seeks forward intends to catch up. A
/// channel has no end, so a range has none either.
fn resolve_in(window: &ChannelWindow, range: NptRange) -> Option<Wanted> {
    let live = window.live_packet()?;
    let from = match range.start {
        NptStart::Now => live,
        NptStart::At(start) if start.is_zero() => live,
        NptStart::At(start) => {
            let empty = range.end.is_some_and(|end| end <= start);
            (!empty).then_some(())?;
            window.packet_at(presented_ticks(start))?.min(live)
        }
    };
    Some(Wanted { from: Some(from), end: None })
}

/// Converts clock times to times of the channel. A future time becomes the present, and a time
/// before the channel becomes its beginning.
fn by_channel(window: &ChannelWindow, range: NptRange) -> Option<NptRange> {
    let began = began(window)?;
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
pub(super) fn began(window: &ChannelWindow) -> Option<Duration> {
    let source = window.newest()?;
    let asset = &source.asset;
    let last = source.end().clamp(1, asset.plan.packets()) - 1;
    let present = duration(asset.first_ticks() + asset.plan.presented_ticks(last));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(now.saturating_sub(present))
}

/// Converts a client's time to presentation ticks, rounded to the nearest unit of 90 kHz, because
/// clients write times in whole milliseconds or microseconds.
pub(super) fn presented_ticks(time: Duration) -> u64 {
    let stamps = ticks(time).saturating_add(TICKS_PER_TIMESTAMP / 2) / TICKS_PER_TIMESTAMP;
    stamps.saturating_mul(TICKS_PER_TIMESTAMP)
}

pub(super) fn duration(ticks: u64) -> Duration {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(TICKS_PER_SECOND);
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}
