// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts clock references and timestamps of a file to the channel's clock.
//!
//! The offset between the clocks is defined once for each time base of the file, at its first clock
//! reference: the due time of that packet minus its value. It stays exact to the tick until the
//! next discontinuity, so differences between references are those of the file. Timestamps are
//! moved by the same offset, rounded to their unit of 300 ticks, an error of at most 5.6 µs.
//!
//! Timestamps are moved further by a delay. The delay makes room if the end of one file overlaps
//! the start of the next, because the second has less time between its clock and its pictures.
//!
//! Sources: ISO/IEC 13818-1 §2.4.2 (clock), §2.4.3.5 (discontinuity of the time base).
//! Does not check the rate of a clock.

use crate::ts::pes_times::TIME_MODULUS;
use crate::ts::{PCR_MODULUS, clock};

/// Offset of a file's clock.
#[derive(Debug, Clone, Default)]
pub(super) struct TimeBase {
    /// Last reference of the file.
    last: Option<u64>,
    /// Channel time minus file time, modulo [`PCR_MODULUS`].
    offset: u64,
    /// Ticks by which timestamps are moved further.
    delay: u64,
    /// Offset of timestamps, modulo [`TIME_MODULUS`].
    time_offset: u64,
}

impl TimeBase {
    /// Creates a time base whose reference `pcr` is due at `due`, with timestamps later by `delay`
    /// ticks.
    pub(super) fn new(pcr: u64, due: u64, delay: u64) -> Self {
        let mut base = Self { delay, ..Self::default() };
        base.anchor(pcr, due);
        base
    }

    fn anchor(&mut self, pcr: u64, due: u64) {
        self.offset = (due % PCR_MODULUS + PCR_MODULUS - pcr) % PCR_MODULUS;
        self.time_offset = (self.offset + self.delay + 150) / 300 % TIME_MODULUS;
    }

    /// Consumes the next reference of the file. Returns true if it begins a new time base.
    pub(super) fn follow(&mut self, pcr: u64, due: u64, is_announced: bool) -> bool {
        let step = self.last.replace(pcr).map(|last| (pcr + PCR_MODULUS - last) % PCR_MODULUS);
        // The first reference of a file was already read in the look-ahead.
        let is_new = match step {
            None => self.apart(pcr, due) > clock::STEP_TICKS_MAX,
            Some(step) => is_announced || step > clock::STEP_TICKS_MAX,
        };
        if is_new {
            self.anchor(pcr, due);
        }
        is_new
    }

    /// Converts a reference to the channel's clock.
    pub(super) fn pcr(&self, pcr: u64) -> u64 {
        (pcr + self.offset) % PCR_MODULUS
    }

    /// Returns the distance between a converted reference and channel time `due`, in ticks.
    fn apart(&self, pcr: u64, due: u64) -> u64 {
        difference(self.pcr(pcr), due % PCR_MODULUS, PCR_MODULUS).unsigned_abs()
    }

    /// Returns the ticks by which timestamps are moved further than the clock, including rounding.
    pub(super) fn moved_beyond(&self) -> i64 {
        difference(self.time_offset * 300, self.offset, PCR_MODULUS)
    }

    /// Returns the offset of timestamps.
    pub(super) fn time_offset(&self) -> u64 {
        self.time_offset
    }
}

/// Returns the shorter signed distance from `from` to `to` on a counter of `modulus` values.
pub(super) fn difference(to: u64, from: u64, modulus: u64) -> i64 {
    let forward = (to % modulus + modulus - from % modulus) % modulus;
    if forward > modulus / 2 { -(modulus - forward).cast_signed() } else { forward.cast_signed() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TICKS_PER_SECOND;

    #[test]
    fn differences_of_references_are_kept_to_the_tick_whatever_the_due_times() {
        let start = PCR_MODULUS - 3;
        let mut base = TimeBase::new(start, 1_000_000_007, 0);
        assert!(!base.follow(start, 1_000_000_007, false));
        assert_eq!(base.pcr(start), 1_000_000_007);
        assert!(!base.follow(10, 1_000_000_500, false));
        assert_eq!(base.pcr(10), 1_000_000_020);
    }

    #[test]
    fn clock_is_anchored_anew_after_an_announcement_or_a_jump() {
        let mut base = TimeBase::new(5_000, 0, 0);
        assert!(!base.follow(5_000, 0, false));
        assert!(base.follow(6_000, 700, true));
        assert_eq!(base.pcr(6_000), 700);
        assert!(base.follow(5_999, 800, false), "backwards");
        assert!(base.follow(5_999 + 11 * TICKS_PER_SECOND, 900, false), "far forward");
        assert_eq!(base.pcr(5_999 + 11 * TICKS_PER_SECOND), 900);
        assert!(!base.follow(5_999 + 12 * TICKS_PER_SECOND, 901, false));
    }

    #[test]
    fn timestamps_move_with_the_clock_within_half_their_unit() {
        for pcr in [0, 299, 300, 12_345, PCR_MODULUS - 1] {
            let base = TimeBase::new(pcr, 27_000_000, 600);
            let moved = (pcr / 300 + base.time_offset()) % TIME_MODULUS * 300;
            let wanted = 27_000_000 + 600 - pcr % 300;
            assert!(moved.abs_diff(wanted) <= 150, "{pcr}: {moved} {wanted}");
            let beyond = 600_i64.checked_add_unsigned(moved).unwrap() - wanted.cast_signed();
            assert_eq!(base.moved_beyond(), beyond, "{pcr}");
        }
    }

    #[test]
    fn difference_takes_the_shorter_way() {
        assert_eq!(difference(3, 98, 100), 5);
        assert_eq!(difference(98, 3, 100), -5);
        assert_eq!(difference(50, 0, 100), 50);
    }
}
