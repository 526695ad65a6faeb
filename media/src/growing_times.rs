// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times by which media are cut while they grow: those of the clock of a transport stream, and
//! durations chosen from the first key frames and access units.
//!
//! Costs a search in the clock references for each look-up.
//!
//! Sources: draft-pantos-hls-rfc8216bis §4.4.4.9 (durations of parts).
//! Does not cut ([`crate::GrowingSegments`] does).

use crate::plan::PacketPlan;
use crate::ts::TIME_MODULUS;
use crate::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP};

/// Least target duration: players stay three of them behind.
const TARGET_S_MIN: u64 = 2;

/// Longest target duration.
const TARGET_S_MAX: u64 = 10;

/// Media time after which the target duration is chosen.
pub(crate) const SEEN_TICKS: u64 = 5 * TICKS_PER_SECOND;

/// Longest part: of 25, 50 and 30 pictures a second it has whole ones.
pub(crate) const PART_TICKS: u64 = 2 * TICKS_PER_SECOND / 5;

/// Number of access units whose distances determine the longest part.
const PART_UNITS: usize = 64;

/// Times and places of the packets that are cut.
pub(crate) trait CutClock {
    /// Byte at which a packet begins, or at which the last one ends.
    fn byte_of(&self, packet: u64) -> u64;
    /// Time at which a packet is due.
    fn ticks_of(&self, packet: u64) -> u64;
    /// Packet and time of the first clock reference that is not before a time.
    fn reference_from(&self, ticks: u64) -> Option<(u64, u64)>;
    /// Time of the last clock reference at or before a packet; zero without one.
    fn reference_before(&self, packet: u64) -> u64;

    /// Time at which a packet is due, at most a second after the last clock reference before it:
    /// references may be missing there, like the packets of a gap.
    fn due_ticks(&self, packet: u64) -> u64 {
        self.ticks_of(packet).min(self.reference_before(packet) + TICKS_PER_SECOND)
    }
}

impl CutClock for PacketPlan {
    fn byte_of(&self, packet: u64) -> u64 {
        PacketPlan::byte_of(self, packet)
    }

    fn ticks_of(&self, packet: u64) -> u64 {
        PacketPlan::ticks_of(self, packet)
    }

    fn reference_from(&self, ticks: u64) -> Option<(u64, u64)> {
        let points = self.clock();
        let found = points.get(points.partition_point(|point| point.ticks < ticks))?;
        Some((found.ts_packet, found.ticks))
    }

    fn reference_before(&self, packet: u64) -> u64 {
        let points = self.clock();
        let after = points.partition_point(|point| point.ts_packet <= packet);
        after.checked_sub(1).map_or(0, |at| points[at].ticks)
    }
}

/// Returns the longest distance of the key frames of these times within the first seconds, of which
/// `seen` are present.
pub(crate) fn apart(times: impl Iterator<Item = u64>, first: u64, seen: u64) -> u64 {
    let early: Vec<u64> = times
        .take_while(|&ticks| ticks <= first + SEEN_TICKS)
        .chain([first + SEEN_TICKS.min(seen)])
        .collect();
    early.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(0)
}

/// Returns the target duration of segments of media whose key frames are so far apart, in seconds:
/// the shortest that they allow where a segment may exceed it by less than `excess`.
pub(crate) fn growing_target_s(apart: u64, excess: u64) -> u64 {
    let target_s = (apart + TICKS_PER_SECOND - excess) / TICKS_PER_SECOND;
    target_s.clamp(TARGET_S_MIN, TARGET_S_MAX)
}

/// Transport stream packets that a longer plan does not change.
pub(crate) fn settled(plan: &PacketPlan, is_complete: bool) -> u64 {
    match (is_complete, plan.clock()) {
        (false, [.., last_reference, _]) => last_reference.ts_packet,
        _ => plan.ts_packets(),
    }
}

/// Longest part of access units with these decoding times: as many as last [`PART_TICKS`] at most,
/// by their median distance, which may be rounded.
pub(crate) fn part_ticks(times: impl Iterator<Item = u64>) -> u64 {
    let times: Vec<u64> = times.take(PART_UNITS).collect();
    let steps = times.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) % TIME_MODULUS);
    let mut steps: Vec<u64> = steps.map(|step| step * TICKS_PER_TIMESTAMP).collect();
    steps.sort_unstable();
    let step = steps.get(steps.len() / 2).copied().filter(|step| (1..=PART_TICKS).contains(step));
    step.map_or(PART_TICKS, |step| PART_TICKS.min(PART_TICKS / step * (step + TICKS_PER_TIMESTAMP)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growing_segments::PART_LEAST;

    #[test]
    fn parts_of_whole_pictures_last_little_less_than_the_longest() {
        for millihertz in [3000, 4000, 6000, 9000, 12_000, 12_500, 14_985, 15_000, 23_976, 24_000]
            .into_iter()
            .chain([25_000, 29_970, 30_000, 50_000, 59_940, 60_000, 120_000])
        {
            // As encoders round them.
            let time = |picture: u64| picture * 90_000_000 / millihertz;
            let longest = part_ticks((0..100).map(|picture| (time(picture) + 7) % TIME_MODULUS));
            assert!(longest <= PART_TICKS, "{millihertz}: {longest}");
            for first in 0..50 {
                let lasts = |to: u64| (time(to) - time(first)) * TICKS_PER_TIMESTAMP;
                let part = (first + 1..).map(lasts).take_while(|&ticks| ticks <= longest).last();
                let part = part.expect("a picture fits");
                assert!(part * 100 >= longest * PART_LEAST, "{millihertz}: {part} of {longest}");
            }
        }
        assert_eq!(part_ticks([0, 3600, 7200].into_iter()), PART_TICKS);
        assert_eq!(part_ticks([0, 90_000].into_iter()), PART_TICKS);
        assert_eq!(part_ticks([].into_iter()), PART_TICKS);
    }
}
