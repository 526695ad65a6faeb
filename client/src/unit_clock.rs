// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places the times of a track's units on one timeline, even where the sender's clock jumps.
//!
//! A unit's time follows the previous ones if it lies within the elapsed time, multiplied by the
//! fastest play, plus [`STEP_MAX`]. A unit with another time is not accepted at once: it waits.
//! When [`AGREED_UNITS`] in a row have times that follow each other, the sender's clock was set,
//! and the timeline continues from the position that the track would have by their arrival. When a
//! unit on time arrives earlier, the times of the waiting units are wrong, and the units are placed
//! between their neighbours. Where pictures are reordered, they are placed at the missing times,
//! for which [`AHEAD_UNITS`] more units are awaited. Costs nothing while times follow each other;
//! holds [`WAITING_MAX`] units at most.
//!
//! Sources: RFC 3550 §5.1 (timestamps).
//! Does not compare the clocks of tracks ([`super::track_muxer`] does).

use std::collections::VecDeque;
use std::time::Duration;

use media::AccessUnit;

/// Timeline of one track.
#[derive(Debug)]
pub(super) struct UnitClock {
    rate_hz: u32,
    first: i64,
    /// Offset added to the times of units.
    shift: i64,
    /// Amount added to `shift` at the next unit where decoding begins.
    move_by: i64,
    /// The last unit on time, and the latest time.
    last: Option<Passed>,
    /// Times of the last units that were passed on.
    recent: VecDeque<i64>,
    /// Pictures were presented in another order than they arrived.
    is_reordered: bool,
    /// Units whose times do not follow the previous ones, and the units after them.
    waiting: VecDeque<WaitingUnit>,
    /// Number of units at the end of `waiting` whose times follow each other.
    agreed: usize,
}

/// A waiting unit.
#[derive(Debug)]
struct WaitingUnit {
    unit: AccessUnit,
    arrival: Duration,
    /// Its time does not follow the previous ones.
    is_off: bool,
}

/// A passed-on unit, by its shifted time.
#[derive(Debug, Clone, Copy)]
struct Passed {
    time: i64,
    latest: i64,
    arrival: Duration,
}

/// Units to be written, and the findings.
#[derive(Debug, Default)]
pub(super) struct UnitClockStep {
    pub(super) units: Vec<AccessUnit>,
    /// Units with a wrong time, which was replaced.
    pub(super) placed: u64,
    /// Seconds by which the clock jumped, if a jump was detected.
    pub(super) jump_s: Option<f64>,
}

impl UnitClock {
    /// The clock of a track with `rate_hz` ticks a second, whose first unit has the time `first`
    /// and is placed at the time `start`.
    pub(super) fn new(rate_hz: u32, first: i64, start: i64) -> UnitClock {
        UnitClock {
            rate_hz: rate_hz.max(1),
            first,
            shift: start.saturating_sub(first),
            move_by: 0,
            last: None,
            recent: VecDeque::new(),
            is_reordered: false,
            waiting: VecDeque::new(),
            agreed: 0,
        }
    }

    /// Adds a unit that arrived at `arrival`.
    pub(super) fn push(&mut self, unit: AccessUnit, arrival: Duration) -> UnitClockStep {
        let mut step = UnitClockStep::default();
        if unit.is_start && self.waiting.is_empty() {
            self.shift += std::mem::take(&mut self.move_by);
        }
        let time = unit.time.saturating_add(self.shift);
        if self.last.is_none_or(|last| self.follows(time, arrival, &last)) {
            self.agreed = 0;
            if self.waiting.is_empty() {
                self.pass(unit, time, arrival, &mut step);
            } else {
                self.waiting.push_back(WaitingUnit { unit, arrival, is_off: false });
                self.settle(&mut step);
            }
            return step;
        }
        let agrees = self.waiting.back().filter(|before| before.is_off).is_some_and(|before| {
            let (time, arrival) = (before.unit.time, before.arrival);
            self.follows(unit.time, arrival, &Passed { time, latest: time, arrival })
        });
        self.agreed = if agrees { self.agreed + 1 } else { 1 };
        self.waiting.push_back(WaitingUnit { unit, arrival, is_off: true });
        if self.agreed == AGREED_UNITS {
            self.set(&mut step);
        } else if self.waiting.len() > WAITING_MAX {
            let passed = self.waiting.len() - self.agreed;
            self.place_by_arrival(passed, &mut step);
        }
        step
    }

    /// Position in seconds of a unit's time on the timeline, after the pending move.
    pub(super) fn seconds(&self, unit_time: i64) -> f64 {
        (unit_time + self.shift + self.move_by) as f64 / f64::from(self.rate_hz)
    }

    /// Time of the last unit on time, or of the expected first one, on the sender's clock.
    pub(super) fn last_time(&self) -> i64 {
        self.last.map_or(self.first, |last| last.time - self.shift)
    }

    /// Ticks a second.
    pub(super) fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    /// Moves the track forward, from the next unit at which decoding begins.
    pub(super) fn move_on(&mut self, by_s: f64) {
        self.move_by += (by_s * f64::from(self.rate_hz)).ceil() as i64;
    }

    /// Number of waiting units, which are not written yet.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// True where a time is close to that of the previous unit plus the time elapsed until
    /// `arrival`.
    fn follows(&self, time: i64, arrival: Duration, before: &Passed) -> bool {
        let passed = arrival.saturating_sub(before.arrival);
        let ahead = self.units(passed.saturating_mul(SPEED_MAX) + STEP_MAX);
        let step = i128::from(time) - i128::from(before.time);
        (-i128::from(self.units(STEP_MAX))..=i128::from(ahead)).contains(&step)
    }

    /// Continues the timeline with the waiting units that agree, at the position that the track
    /// would have by now.
    fn set(&mut self, step: &mut UnitClockStep) {
        self.place_by_arrival(self.waiting.len() - self.agreed, step);
        let last = self.last.expect("the first unit follows");
        let waiting = std::mem::take(&mut self.waiting);
        let first = waiting.iter().map(|it| it.unit.time).min().expect("units wait");
        let goal = self.by_arrival(waiting[0].arrival, &last);
        let before = self.shift;
        self.shift = goal.saturating_sub(first);
        let by = i128::from(before) - i128::from(self.shift);
        step.jump_s = Some(by as f64 / f64::from(self.rate_hz));
        for (index, WaitingUnit { mut unit, arrival, .. }) in waiting.into_iter().enumerate() {
            unit.is_after_loss |= index == 0;
            let time = unit.time.saturating_add(self.shift);
            self.pass(unit, time, arrival, step);
        }
        self.agreed = 0;
    }

    /// Position of the track at `arrival`, after `last`.
    fn by_arrival(&self, arrival: Duration, last: &Passed) -> i64 {
        let passed = self.units(arrival.saturating_sub(last.arrival));
        last.time.saturating_add(passed).max(last.latest.saturating_add(1))
    }

    /// Passes the first `count` waiting units on, which can only be placed by their arrival.
    fn place_by_arrival(&mut self, count: usize, step: &mut UnitClockStep) {
        for _ in 0..count {
            let Some(WaitingUnit { unit, arrival, is_off }) = self.waiting.pop_front() else {
                return;
            };
            let last = self.last.expect("the first unit follows");
            let own = unit.time.saturating_add(self.shift);
            let time = if is_off { self.by_arrival(arrival, &last) } else { own };
            step.placed += u64::from(is_off);
            self.pass(unit, time, arrival, step);
        }
    }

    /// Passes the waiting units on, once their neighbours determine the missing times.
    fn settle(&mut self, step: &mut UnitClockStep) {
        let known = || self.waiting.iter().filter(|it| !it.is_off);
        let known: Vec<i64> = known().map(|it| it.unit.time.saturating_add(self.shift)).collect();
        let off = self.waiting.len() - known.len();
        let (Some(last), Some(&next)) = (self.last, known.first()) else { return };
        let mut times = match self.is_reordered || next <= last.time {
            true => self.missing(&known),
            false => {
                let between = |at: usize| {
                    let part = i128::from(next - last.time) * (at as i128 + 1) / (off as i128 + 1);
                    last.time + part as i64
                };
                (0..off).map(between).collect()
            }
        };
        if times.len() < off && known.len() < AHEAD_UNITS {
            return;
        }
        times.truncate(off);
        let mut times = times.into_iter();
        for WaitingUnit { unit, arrival, is_off } in std::mem::take(&mut self.waiting) {
            let own = unit.time.saturating_add(self.shift);
            let before = self.last.map_or(own, |last| last.time);
            let time = if is_off { times.next().unwrap_or(before) } else { own };
            step.placed += u64::from(is_off);
            self.pass(unit, time, arrival, step);
        }
    }

    /// Times missing among the last ones and the following ones (`behind`), if all are as far apart
    /// as the nearest two.
    fn missing(&self, behind: &[i64]) -> Vec<i64> {
        let mut known: Vec<_> = self.recent.iter().chain(behind).copied().collect();
        known.sort_unstable();
        known.dedup();
        let since = self.recent.iter().rev().take(GROUP_UNITS).min().copied().unwrap_or(i64::MIN);
        let steps = || known.windows(2).map(|pair| pair[1] - pair[0]);
        let Some(step) = steps().min() else { return Vec::new() };
        let between = |pair: &[i64]| {
            let (first, count) = (pair[0], (pair[1] - pair[0] + step / 2) / step);
            (1..count.min(AGREED_UNITS as i64)).map(move |at| first + at * step)
        };
        known.windows(2).filter(|pair| pair[0] >= since).flat_map(between).collect()
    }

    fn pass(
        &mut self,
        mut unit: AccessUnit,
        time: i64,
        arrival: Duration,
        step: &mut UnitClockStep,
    ) {
        unit.time = time;
        self.is_reordered |= self.last.is_some_and(|last| time < last.latest);
        let latest = self.last.map_or(time, |last| last.latest.max(time));
        self.last = Some(Passed { time, latest, arrival });
        if self.recent.len() == RECENT_UNITS {
            self.recent.pop_front();
        }
        self.recent.push_back(time);
        step.units.push(unit);
    }

    /// A time in units of the track's clock.
    fn units(&self, time: Duration) -> i64 {
        let units = time.as_nanos() * u128::from(self.rate_hz) / 1_000_000_000;
        i64::try_from(units).unwrap_or(i64::MAX)
    }
}

/// Accepted step between units, in addition to the elapsed time: reordering of any encoder, and
/// delay on the way.
const STEP_MAX: Duration = Duration::from_secs(10);
/// The fastest play of a server (RFC 2326 §12.35); the limit of pagewire's own.
const SPEED_MAX: u32 = 4;
/// Units in a row that confirm a new clock: 0.4 s of pictures.
const AGREED_UNITS: usize = 10;
/// Units needed to find a place among reordered ones: pictures between two reference pictures.
const AHEAD_UNITS: usize = 6;
/// Units of one such group, and of the units that it is compared with.
const GROUP_UNITS: usize = 4;
const RECENT_UNITS: usize = 4 * GROUP_UNITS;
const WAITING_MAX: usize = 2 * AGREED_UNITS;

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: i64 = 90_000;
    const FRAME: i64 = RATE / 25;

    fn unit(time: i64) -> AccessUnit {
        AccessUnit { time, bytes: vec![1], is_start: true, is_after_loss: false }
    }

    /// Runs 150 pictures whose clock is `jump` seconds off; returns the resulting times, the number
    /// of placed units, and the jumps.
    fn run(jump: impl Fn(i64) -> i64) -> (Vec<i64>, u64, Vec<f64>) {
        let in_order = (0..150).map(|number| number * FRAME);
        run_times(in_order.enumerate().map(|(at, time)| time + jump(at as i64) * RATE))
    }

    fn run_times(all: impl Iterator<Item = i64>) -> (Vec<i64>, u64, Vec<f64>) {
        let mut clock = UnitClock::new(RATE as u32, 0, 0);
        let (mut times, mut placed, mut jumps) = (Vec::new(), 0, Vec::new());
        for (number, time) in all.enumerate() {
            let arrival = Duration::from_millis(number as u64 * 40);
            let step = clock.push(unit(time), arrival);
            times.extend(step.units.iter().map(|unit| unit.time));
            placed += step.placed;
            jumps.extend(step.jump_s);
        }
        assert_eq!(clock.waiting(), 0);
        (times, placed, jumps)
    }

    fn assert_even(times: &[i64]) {
        for pair in times.windows(2) {
            assert!((pair[1] - pair[0] - FRAME).abs() <= 1, "{pair:?}");
        }
    }

    #[test]
    fn a_clock_that_jumps_loses_no_unit_and_goes_on_by_arrival() {
        for jump in [-2 * 3600, -60, 60, 7 * 3600, 40 * 24 * 3600] {
            let (times, placed, jumps) = run(|number| if number < 50 { 0 } else { jump });
            assert_eq!((times.len(), placed), (150, 0), "{jump} s");
            assert_even(&times);
            assert_eq!(jumps.len(), 1);
            assert!((jumps[0] - jump as f64).abs() < 0.1, "{jumps:?}, not {jump}");
        }
    }

    #[test]
    fn units_with_times_of_their_own_keep_their_place_by_their_neighbours() {
        for jump in [-3600, 30, 7 * 3600, 37_600] {
            for many in [1, 2, 9] {
                let off = 50..50 + many;
                let jump = |number| if off.contains(&number) { jump * (number - 40) } else { 0 };
                let (times, placed, jumps) = run(jump);
                assert_eq!((times.len(), placed, jumps.len()), (150, many as u64, 0));
                assert_even(&times);
            }
        }
    }

    #[test]
    fn reordered_pictures_keep_their_places_in_the_times_that_are_missing() {
        // I P B B: each picture in turn has a timestamp hours off.
        let order: Vec<i64> =
            (0..37).flat_map(|at| [0, 3, 1, 2].map(|p| (4 * at + p) * FRAME)).collect();
        for wrong in 60..64 {
            let stamped = order.iter().enumerate();
            let stamped =
                stamped.map(|(at, &time)| time - if at == wrong { 9800 * RATE } else { 0 });
            let (times, placed, jumps) = run_times(stamped);
            assert_eq!((placed, jumps.len()), (1, 0));
            assert_eq!(times, order, "picture {wrong}");
        }
    }

    #[test]
    fn times_at_random_cost_no_unit_and_those_behind_go_on() {
        let wild = |number: i64| number.wrapping_mul(7919) % 1000 * 3600;
        let (times, placed, jumps) = run(|n| if (50..90).contains(&n) { wild(n) } else { 0 });
        assert_eq!((times.len(), placed, jumps.len()), (150, 40, 0));
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_pause_of_the_sender_is_no_jump() {
        let mut clock = UnitClock::new(RATE as u32, 0, 5);
        assert_eq!(clock.push(unit(0), Duration::ZERO).units[0].time, 5);
        // The stream returns after five minutes, with a clock that continued, and at four times the
        // speed.
        let step = clock.push(unit(300 * RATE), Duration::from_secs(300));
        assert_eq!((step.units.len(), step.jump_s), (1, None));
        let step = clock.push(unit(500 * RATE), Duration::from_secs(350));
        assert_eq!((step.units.len(), step.jump_s), (1, None));
        // Pictures out of order.
        assert_eq!(clock.push(unit(499 * RATE), Duration::from_secs(350)).units.len(), 1);
    }
}
