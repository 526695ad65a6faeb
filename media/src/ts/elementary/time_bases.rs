// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps the 33-bit times of all elementary streams of a programme to one timeline, across wraps and
//! discontinuities.
//!
//! A time base is an offset added to the times of PES packets. Where the times of a stream jump, a
//! new base begins, in which the stream continues at the current position of the programme; the
//! other streams follow when they reach the jump. Meanwhile two bases are in use, and each packet
//! uses the one that makes it continuous with its own stream.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.7 (33 bits of 90 kHz), §2.4.3.5 (discontinuities).
//! Does not read clock references: the times alone synchronise video and audio.

use crate::ts::pes_times::TIME_MODULUS;

/// Time base discontinuities allowed in a file.
pub(super) const BREAKS_MAX: u32 = 1 << 16;

/// Time of the first PES packet of a file: others may be slightly earlier.
pub(super) const ORIGIN: i64 = 60 * SECOND;

/// A step forward of more than this is a discontinuity, as for the clock.
const FORWARD: i64 = 10 * SECOND;

/// A step backward of more than this is a discontinuity. Careless multiplexers write smaller ones.
const BACKWARD: i64 = SECOND;

pub(super) const SECOND: i64 = 90_000;

/// The time bases in use.
#[derive(Debug, Default)]
pub(super) struct TimeBases {
    /// Offsets added to times, the one used last first; at most two.
    bases: Vec<i64>,
    /// The latest presentation time so far.
    end: i64,
    /// Bases begun, except the first.
    breaks: u32,
    /// The first time, which is placed at [`ORIGIN`].
    first: Option<u64>,
}

impl TimeBases {
    /// Returns the time on the timeline, in units of 90 kHz, of a unit with this `time`, which is
    /// presented `ahead` later; `expected` is the end of the previous unit in its stream. Never
    /// negative.
    pub(super) fn place(&mut self, time: u64, ahead: i64, expected: Option<i64>) -> i64 {
        let time = time as i64;
        let Some(&newest) = self.bases.first() else {
            self.bases.push(ORIGIN - time);
            self.end = ORIGIN + ahead;
            self.first = Some(time as u64);
            return ORIGIN;
        };
        let near = expected.unwrap_or(self.end);
        self.end = self.end.max(expected.map_or(0, |expected| expected + ahead));
        let earliest = expected.map_or(self.end - FORWARD, |expected| expected - BACKWARD);
        let latest = near.max(self.end) + FORWARD;
        let unrolled = |base: i64| {
            let half = TIME_MODULUS as i64 / 2;
            let apart = (time + base - near).rem_euclid(TIME_MODULUS as i64);
            near + if apart < half { apart } else { apart - TIME_MODULUS as i64 }
        };
        let fits = |&(_, placed): &(usize, i64)| (earliest..=latest).contains(&placed);
        let placed = self.bases.iter().map(|&base| unrolled(base)).enumerate();
        let best = placed.filter(fits).min_by_key(|&(_, placed)| (placed - near).abs());
        let placed = match best {
            Some((index, placed)) => {
                self.bases[..=index].rotate_right(1);
                placed
            }
            None => {
                // The presentation of this unit follows all previous presentations.
                let placed = near.max(self.end - ahead);
                self.breaks = self.breaks.saturating_add(1);
                self.bases = vec![placed - time, newest];
                placed
            }
        };
        self.end = self.end.max(placed + ahead);
        placed.max(0)
    }

    /// Returns the first time of all streams, which is placed at [`ORIGIN`].
    pub(super) fn first(&self) -> Option<u64> {
        self.first
    }

    /// True if the file exceeds the allowed number of discontinuities.
    pub(super) fn is_broken(&self) -> bool {
        self.breaks > BREAKS_MAX
    }
}

/// Returns `time - origin` for two 33-bit times that are less than 13 hours apart.
pub(crate) fn apart(time: u64, origin: u64) -> i64 {
    let (modulus, half) = (TIME_MODULUS as i64, TIME_MODULUS as i64 / 2);
    (time as i64 - origin as i64 + half).rem_euclid(modulus) - half
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 3600;

    #[test]
    fn times_go_on_over_the_wrap_of_33_bits() {
        let mut bases = TimeBases::default();
        let mut expected = None;
        for number in 0..20 {
            let time = (TIME_MODULUS - 10 * STEP + number * STEP) % TIME_MODULUS;
            let placed = bases.place(time, 0, expected);
            assert_eq!(placed, ORIGIN + (number * STEP) as i64);
            expected = Some(placed + STEP as i64);
        }
        assert_eq!(bases.breaks, 0);
        assert_eq!((apart(5, TIME_MODULUS - 5), apart(TIME_MODULUS - 5, 5)), (10, -10));
    }

    #[test]
    fn streams_reach_a_break_one_after_the_other() {
        let mut bases = TimeBases::default();
        let mut place = |time: u64, ahead: i64, step: i64, expected: &mut Option<i64>| {
            let placed = bases.place(time, ahead, *expected);
            *expected = Some(placed + step);
            placed - ORIGIN
        };
        let (mut pictures, mut sound) = (None, None);
        assert_eq!(place(1_000_000, 7200, 3600, &mut pictures), 0);
        assert_eq!(place(1_007_000, 0, 1920, &mut sound), 7000);
        assert_eq!(place(1_003_600, 7200, 3600, &mut pictures), 3600);
        // The pictures of the next title begin before the audio of this one ends.
        assert_eq!(place(50_000, 7200, 3600, &mut pictures), 7200);
        assert_eq!(place(1_008_920, 0, 1920, &mut sound), 8920);
        assert_eq!(place(53_600, 7200, 3600, &mut pictures), 10_800);
        assert_eq!(place(1_010_840, 0, 1920, &mut sound), 10_840);
        assert_eq!(place(57_100, 0, 1920, &mut sound), 14_300);
        assert_eq!(place(57_200, 7200, 3600, &mut pictures), 14_400);
        assert_eq!(bases.breaks, 1);
    }

    #[test]
    fn a_single_wild_time_does_not_move_the_others() {
        let mut bases = TimeBases::default();
        let mut expected = None;
        for number in 0..200_u64 {
            let time = if number % 7 == 3 { 1 << 32 | number << 20 } else { number * STEP };
            let placed = bases.place(time, 0, expected);
            assert_eq!(placed, ORIGIN + (number * STEP) as i64, "{number}");
            expected = Some(placed + STEP as i64);
        }
        assert!(bases.breaks > 20 && !bases.is_broken());
    }

    #[test]
    fn gaps_and_small_steps_back_are_no_breaks() {
        let mut bases = TimeBases::default();
        let start = bases.place(0, 0, None);
        let gap = bases.place(9 * 90_000, 0, Some(start));
        assert_eq!(gap - start, 9 * SECOND);
        assert_eq!(bases.place(9 * 90_000 - 40_000, 0, Some(gap)), gap - 40_000);
        assert_eq!(bases.breaks, 0);
        // A stream that was silent for long rejoins the others.
        let mut last = gap;
        for second in 10..200 {
            last = bases.place(second * 90_000, 0, Some(last));
        }
        assert_eq!(bases.place(200 * 90_000, 0, Some(start)), last + SECOND);
        assert_eq!(bases.breaks, 0);
    }
}
