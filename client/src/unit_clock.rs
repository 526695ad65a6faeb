// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of a track's units on one timeline, also where the sender's clock jumps.
//!
//! A unit's time follows those before it within what has passed since, times the fastest play, and
//! [`STEP_MAX`]. A unit off that time is not believed at once: it waits. When [`AGREED_UNITS`] in a
//! row have times that follow each other, the sender's clock was set, and they go on from where the
//! track would be by their arrival. When a unit on time comes before, they were faults of the
//! sender and are dropped. Costs nothing while times follow each other; holds ten units at most.
//!
//! Sources: RFC 3550 §5.1 (timestamps).
//! Does not compare the clocks of tracks: sender reports are not read for it.

use std::time::Duration;

use media::AccessUnit;

/// Times of one track.
#[derive(Debug)]
pub(super) struct UnitClock {
    rate_hz: u32,
    /// Added to the times of units.
    shift: i64,
    /// The last unit on time, and the latest.
    last: Option<Passed>,
    /// Units whose times do not follow those before, with their arrivals.
    waiting: Vec<(AccessUnit, Duration)>,
}

/// A unit that was passed on, by its shifted time.
#[derive(Debug, Clone, Copy)]
struct Passed {
    time: i64,
    latest: i64,
    arrival: Duration,
}

/// Units to be written, and what was found.
#[derive(Debug, Default)]
pub(super) struct UnitClockStep {
    pub(super) units: Vec<AccessUnit>,
    /// Units with times of their own that were dropped.
    pub(super) dropped: u64,
    /// Set where the clock was found to have jumped by so many seconds.
    pub(super) jump_s: Option<f64>,
}

impl UnitClock {
    /// The clock of a track whose units count `rate_hz` a second; `shift` is added to their times.
    pub(super) fn new(rate_hz: u32, shift: i64) -> UnitClock {
        UnitClock { rate_hz: rate_hz.max(1), shift, last: None, waiting: Vec::new() }
    }

    /// Takes a unit that arrived at `arrival`.
    pub(super) fn push(&mut self, mut unit: AccessUnit, arrival: Duration) -> UnitClockStep {
        let mut step = UnitClockStep::default();
        let time = unit.time.saturating_add(self.shift);
        let follows = self.last.is_none_or(|last| self.follows(time, arrival, &last));
        if follows {
            step.dropped = self.waiting.len() as u64;
            unit.is_after_loss |= step.dropped > 0;
            self.waiting.clear();
            self.pass(unit, arrival, &mut step);
            return step;
        }
        if let Some((before, at)) = self.waiting.last() {
            let before = Passed { time: before.time, latest: before.time, arrival: *at };
            if !self.follows(unit.time, arrival, &before) {
                step.dropped = self.waiting.len() as u64;
                self.waiting.clear();
            }
        }
        self.waiting.push((unit, arrival));
        if self.waiting.len() >= AGREED_UNITS {
            self.set(&mut step);
        }
        step
    }

    /// Number of units that still wait: they are not written.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// True where a time is about where the time before has got to by `arrival`.
    fn follows(&self, time: i64, arrival: Duration, before: &Passed) -> bool {
        let passed = arrival.saturating_sub(before.arrival);
        let ahead = self.units(passed.saturating_mul(SPEED_MAX) + STEP_MAX);
        let step = i128::from(time) - i128::from(before.time);
        (-i128::from(self.units(STEP_MAX))..=i128::from(ahead)).contains(&step)
    }

    /// Goes on with the waiting units, from where the track would be by now.
    fn set(&mut self, step: &mut UnitClockStep) {
        let last = self.last.expect("the first unit follows");
        let waiting = std::mem::take(&mut self.waiting);
        let first = waiting.iter().map(|(unit, _)| unit.time).min().expect("units wait");
        let passed = waiting[0].1.saturating_sub(last.arrival);
        let goal = last.time.saturating_add(self.units(passed)).max(last.latest.saturating_add(1));
        let before = self.shift;
        self.shift = goal.saturating_sub(first);
        let by = i128::from(before) - i128::from(self.shift);
        step.jump_s = Some(by as f64 / f64::from(self.rate_hz));
        for (index, (mut unit, arrival)) in waiting.into_iter().enumerate() {
            unit.is_after_loss |= index == 0;
            self.pass(unit, arrival, step);
        }
    }

    fn pass(&mut self, mut unit: AccessUnit, arrival: Duration, step: &mut UnitClockStep) {
        unit.time = unit.time.saturating_add(self.shift);
        let latest = self.last.map_or(unit.time, |last| last.latest.max(unit.time));
        self.last = Some(Passed { time: unit.time, latest, arrival });
        step.units.push(unit);
    }

    /// A time in units of the track's clock.
    fn units(&self, time: Duration) -> i64 {
        let units = time.as_nanos() * u128::from(self.rate_hz) / 1_000_000_000;
        i64::try_from(units).unwrap_or(i64::MAX)
    }
}

/// Step between units that is believed, beside what has passed: reordering of any encoder, and what
/// waits on the way.
const STEP_MAX: Duration = Duration::from_secs(10);
/// The fastest play of a server (RFC 2326 §12.35); ours has at most this.
const SPEED_MAX: u32 = 4;
/// Units in a row by which a new clock is believed: 0.4 s of pictures.
const AGREED_UNITS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: i64 = 90_000;
    const FRAME: i64 = RATE / 25;

    fn unit(time: i64) -> AccessUnit {
        AccessUnit { time, bytes: vec![1], is_start: true, is_after_loss: false }
    }

    /// Runs 50 pictures, then 100 whose clock is `jump` seconds off; returns the times that came
    /// out, and the sums of what was dropped and of jumps.
    fn run(jump: impl Fn(i64) -> i64) -> (Vec<i64>, u64, Vec<f64>) {
        let mut clock = UnitClock::new(RATE as u32, 0);
        let (mut times, mut dropped, mut jumps) = (Vec::new(), 0, Vec::new());
        for number in 0..150 {
            let arrival = Duration::from_millis(number as u64 * 40);
            let step = clock.push(unit(number * FRAME + jump(number) * RATE), arrival);
            times.extend(step.units.iter().map(|unit| unit.time));
            dropped += step.dropped;
            jumps.extend(step.jump_s);
        }
        (times, dropped + clock.waiting(), jumps)
    }

    fn assert_even(times: &[i64]) {
        for pair in times.windows(2) {
            assert!((pair[1] - pair[0] - FRAME).abs() <= 1, "{pair:?}");
        }
    }

    #[test]
    fn a_clock_that_jumps_loses_no_unit_and_goes_on_by_arrival() {
        for jump in [-2 * 3600, -60, 60, 7 * 3600, 40 * 24 * 3600] {
            let (times, dropped, jumps) = run(|number| if number < 50 { 0 } else { jump });
            assert_eq!((times.len(), dropped), (150, 0), "{jump} s");
            assert_even(&times);
            assert_eq!(jumps.len(), 1);
            assert!((jumps[0] - jump as f64).abs() < 0.1, "{jumps:?}, not {jump}");
        }
    }

    #[test]
    fn an_outlier_is_dropped_alone() {
        for jump in [-3600, 30, 7 * 3600] {
            let (times, dropped, jumps) = run(|number| if number == 50 { jump } else { 0 });
            assert_eq!((times.len(), dropped, jumps.len()), (149, 1, 0), "{jump} s");
            assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn times_at_random_are_dropped_and_those_behind_go_on() {
        let wild = |number: i64| number.wrapping_mul(7919) % 1000 * 3600;
        let (times, dropped, jumps) = run(|n| if (50..90).contains(&n) { wild(n) } else { 0 });
        assert_eq!((times.len() as u64 + dropped, jumps.len()), (150, 0));
        assert!(times.len() >= 110);
    }

    #[test]
    fn a_pause_of_the_sender_is_no_jump() {
        let mut clock = UnitClock::new(RATE as u32, 5);
        assert_eq!(clock.push(unit(0), Duration::ZERO).units[0].time, 5);
        // Back after five minutes, with a clock that went on; and played four times as fast.
        let step = clock.push(unit(300 * RATE), Duration::from_secs(300));
        assert_eq!((step.units.len(), step.jump_s), (1, None));
        let step = clock.push(unit(500 * RATE), Duration::from_secs(350));
        assert_eq!((step.units.len(), step.jump_s), (1, None));
        // Pictures out of order.
        assert_eq!(clock.push(unit(499 * RATE), Duration::from_secs(350)).units.len(), 1);
    }
}
