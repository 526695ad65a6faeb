// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses times and positions of one session's actions, by the seed and the number of the session.
//!
//! Each session has its own random sequence, so that its choices do not depend on the timing of
//! others: the same scenario gives the same choices in every run.
//!
//! Sources: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), the
//! generator SplitMix64.
//! Does not read a clock.

use std::time::Duration;

use super::{PLACE_MARGIN, TimeRange};

/// Choices of one session, in order.
#[derive(Debug, Clone)]
pub(in crate::load) struct Timetable {
    state: u64,
}

impl Timetable {
    pub(in crate::load) fn new(seed: u64, session: u32) -> Timetable {
        // The first draws of neighbouring seeds and sessions must not correlate.
        let mut of_seed = Timetable { state: seed };
        Timetable { state: of_seed.draw() ^ u64::from(session).wrapping_mul(GOLDEN) }
    }

    /// Draws a time in the range.
    pub(in crate::load) fn time(&mut self, range: TimeRange) -> Duration {
        let width = range.most.saturating_sub(range.least);
        range.least + width.mul_f64(self.fraction())
    }

    /// Draws a position in an asset from which a session can play for this duration.
    pub(in crate::load) fn place(&mut self, duration: Duration, plays: Duration) -> Duration {
        let last = duration.saturating_sub(plays + PLACE_MARGIN);
        last.mul_f64(self.fraction())
    }

    /// Draws uniformly from 0 to 1, excluding 1.
    fn fraction(&mut self) -> f64 {
        // The 53 bits of a double's significand.
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}

/// 2^64 over the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: TimeRange =
        TimeRange { least: Duration::from_secs(2), most: Duration::from_secs(8) };

    fn times(seed: u64, session: u32) -> Vec<Duration> {
        let mut timetable = Timetable::new(seed, session);
        (0..1000).map(|_| timetable.time(RANGE)).collect()
    }

    #[test]
    fn draws_are_those_of_the_published_generator() {
        let mut timetable = Timetable { state: 1_234_567 };
        let drawn: Vec<u64> = (0..3).map(|_| timetable.draw()).collect();
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_session_repeats_its_choices_and_no_other_has_the_same() {
        assert_eq!(times(7, 3), times(7, 3));
        for other in [times(7, 4), times(8, 3), times(3, 7)] {
            assert_ne!(times(7, 3), other);
        }
        let mut firsts: Vec<Duration> = (0..1000).map(|session| times(7, session)[0]).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 1000);
    }

    #[test]
    fn times_fill_their_range_and_stay_in_it() {
        let times = times(7, 0);
        assert!(times.iter().all(|time| (RANGE.least..=RANGE.most).contains(time)));
        let mean = times.iter().sum::<Duration>() / 1000;
        assert!((4.8..5.2).contains(&mean.as_secs_f64()), "{mean:?}");
        let exact = TimeRange { least: RANGE.least, most: RANGE.least };
        assert_eq!(Timetable::new(7, 0).time(exact), RANGE.least);
    }

    #[test]
    fn places_leave_room_to_play() {
        let mut timetable = Timetable::new(7, 0);
        let (duration, plays) = (Duration::from_secs(60), Duration::from_secs(8));
        let places: Vec<_> = (0..1000).map(|_| timetable.place(duration, plays)).collect();
        let last = duration - plays - PLACE_MARGIN;
        assert!(places.iter().all(|place| *place < last));
        assert!(places.iter().any(|place| *place > last.mul_f64(0.95)));
        assert_eq!(timetable.place(plays, plays), Duration::ZERO);
    }
}
