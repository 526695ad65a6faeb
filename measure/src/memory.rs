// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times members that work on bytes in memory, alternately on one core, without files or sockets.
//!
//! A member is a closure that does its work once on prepared data and returns the number of bytes
//! processed. A round times every member of a group once, every other round in reverse order, so
//! that drift affects all alike, and ratios are computed within the round. The first round warms
//! caches and finds the number of calls that last long enough; its times are discarded.
//!
//! Time is that of the thread ([`thread_time`]): it excludes other programs on the core, but not
//! their effect on its caches. A sample costs two clock calls, a microsecond in some milliseconds.
//!
//! Sources: hyperfine (warm-up, warnings).
//! Does not check answers. An experiment does so before it hands a member over for timing.

use std::hint::black_box;
use std::time::Duration;

use crate::meter::{Cores, Meter, pace, pin, thread_time};
use crate::options::Options;
use crate::results::{Results, Row};
use crate::statistics::Figure;
use crate::warning::Warning;

/// One implementation to time.
pub struct Member<'a> {
    name: String,
    operations: u64,
    call: Box<dyn FnMut() -> u64 + 'a>,
}

impl<'a> Member<'a> {
    /// Returns a member of this name; `call` does the work once and returns the bytes processed.
    pub fn new(name: impl Into<String>, call: impl FnMut() -> u64 + 'a) -> Member<'a> {
        Member { name: name.into(), operations: 1, call: Box::new(call) }
    }

    /// Sets the number of operations in a call: short ones are repeated within it, so that the
    /// call through a pointer, a nanosecond or two, does not count in their time.
    #[must_use]
    pub fn of_operations(mut self, operations: u64) -> Member<'a> {
        self.operations = operations.max(1);
        self
    }
}

/// Members that are timed alternately: the same work on the same bytes.
pub struct Group<'a> {
    /// Parameters that all members share, such as the size.
    pub parameters: Vec<(&'static str, String)>,
    /// The member that others are compared with.
    pub reference: &'a str,
    /// Members that are timed alternately.
    pub members: Vec<Member<'a>>,
}

/// A measurement in memory; pins the calling thread to one core from its start.
pub struct Turns<'a> {
    options: &'a Options,
    rounds: usize,
    sample: Duration,
    meter: Meter,
    groups_done: usize,
    groups: usize,
    /// Nanoseconds of a fixed piece of work, repeated over the run.
    paces: Vec<f64>,
    /// Largest share of all processors that other programs used during a group.
    others: f64,
    /// Largest share of a group's time that the hypervisor used.
    stolen: f64,
}

/// Timed rounds of a member.
struct Timed<'a> {
    member: Member<'a>,
    /// Calls in a sample.
    calls: u64,
    /// Throughput of each round, 10⁹ bytes a second.
    throughputs: Vec<f64>,
    /// Nanoseconds an operation, for each round.
    times: Vec<f64>,
}

impl<'a> Turns<'a> {
    /// Starts a measurement of `groups` groups.
    pub fn new(options: &'a Options, groups: usize, results: &mut Results) -> Turns<'a> {
        pin(&Cores::allowed(), false);
        let (rounds, sample) = if options.quick { (3, SAMPLE_QUICK) } else { (7, SAMPLE) };
        let rounds = options.rounds.unwrap_or(rounds).max(1);
        results.notes.push(format!(
            "in memory, on one core: {rounds} rounds of {} ms a member, interleaved; throughput: \
             10⁹ bytes a second of the thread's processor time; relative: throughput over that \
             of the reference, round by round",
            sample.as_millis()
        ));
        Turns {
            options,
            rounds,
            sample,
            meter: Meter::of_this_process(),
            groups_done: 0,
            groups,
            paces: Vec::new(),
            others: 0.0,
            stolen: 0.0,
        }
    }

    /// Times a group and adds its rows; `what` is for the progress bar. An interrupted group keeps
    /// its complete rounds.
    pub fn measure(&mut self, what: &str, group: Group<'_>, results: &mut Results) {
        self.options.progress(self.groups_done, self.groups, what);
        self.groups_done += 1;
        let begun = self.meter.begin();
        let mut timed: Vec<Timed<'_>> = group.members.into_iter().map(Timed::new).collect();
        for round in 0..=self.rounds {
            self.paces.push(pace().as_nanos() as f64);
            let count = timed.len();
            for turn in 0..count {
                if self.options.stopped() {
                    break;
                }
                let member = &mut timed[crate::schedule::in_turn(round, turn, count)];
                match round {
                    0 => member.warm(self.sample),
                    _ => member.time(),
                }
            }
        }
        let cost = begun.end(Duration::ZERO);
        self.others = self.others.max(cost.others_share());
        let wall = cost.wall.as_secs_f64() * cost.processors as f64;
        self.stolen = self.stolen.max(cost.stolen.as_secs_f64() / wall.max(1e-9));
        let rounds = timed.iter().map(|member| member.times.len()).min().unwrap_or(0);
        for member in &mut timed {
            member.throughputs.truncate(rounds);
            member.times.truncate(rounds);
        }
        if rounds == 0 {
            return;
        }
        let reference = timed.iter().find(|member| member.member.name == group.reference);
        let reference = reference.map(|member| Figure::of(member.throughputs.clone()));
        for member in timed {
            member.add(&group.parameters, (group.reference, reference.as_ref()), results);
        }
    }

    /// Ends the measurement: marks an interrupted one as incomplete and adds warnings.
    pub fn finish(self, results: &mut Results) {
        if self.options.stopped() {
            results.complete = false;
            results.notes.push("interrupted: what was measured until then is here".to_owned());
        }
        results.warn_of_paces(&self.paces);
        if self.others > OTHERS_MAX {
            results.warn(Warning::OtherLoad { busy_share: self.others });
        }
        if self.stolen > STOLEN_MAX {
            results.warn(Warning::StolenTime { share: self.stolen });
        }
    }
}

impl<'a> Timed<'a> {
    fn new(member: Member<'a>) -> Timed<'a> {
        Timed { member, calls: 1, throughputs: Vec::new(), times: Vec::new() }
    }

    /// Returns nanoseconds and bytes of `calls` calls.
    fn run(&mut self, calls: u64) -> (f64, u64) {
        let mut bytes = 0;
        let began = thread_time();
        for _ in 0..calls {
            bytes += black_box((self.member.call)());
        }
        ((thread_time() - began).as_nanos() as f64, bytes)
    }

    /// Finds the number of calls that last as long as a sample.
    fn warm(&mut self, sample: Duration) {
        let wanted = sample.as_nanos() as f64;
        loop {
            let (nanoseconds, _) = self.run(self.calls);
            if nanoseconds >= wanted / 4.0 || self.calls >= CALLS_MAX {
                let calls = self.calls as f64 * wanted / nanoseconds.max(1.0);
                self.calls = (calls.round() as u64).clamp(1, CALLS_MAX);
                return;
            }
            self.calls *= 2;
        }
    }

    fn time(&mut self) {
        let (nanoseconds, bytes) = self.run(self.calls);
        let nanoseconds = nanoseconds.max(1.0);
        self.throughputs.push(bytes as f64 / nanoseconds);
        self.times.push(nanoseconds / (self.calls * self.member.operations) as f64);
    }

    fn add(
        self,
        shared: &[(&'static str, String)],
        (name, reference): (&str, Option<&Figure>),
        results: &mut Results,
    ) {
        let experiment = results.experiment.clone();
        let row = |metric: &str, unit: &str, figure: Figure| {
            let row = Row::new(&experiment, &self.member.name, metric, unit, figure);
            shared.iter().fold(row, |row, (name, value)| row.with(name, value))
        };
        let throughput = Figure::of(self.throughputs);
        let ratio = reference.and_then(|reference| throughput.relative_to(reference));
        results.rows.push(row("throughput", "GB/s", throughput));
        if let Some(ratio) = ratio {
            results.rows.push(row(&format!("relative to {name}"), TIMES, ratio));
        }
        results.rows.push(row("time", "ns", Figure::of(self.times)));
    }
}

/// The unit of a ratio of which more is better.
pub const TIMES: &str = "times";
const SAMPLE: Duration = Duration::from_millis(10);
const SAMPLE_QUICK: Duration = Duration::from_millis(3);
const CALLS_MAX: u64 = 1 << 40;
const OTHERS_MAX: f64 = 0.05;
const STOLEN_MAX: f64 = 0.01;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Does work that lasts long enough to time.
    fn work(rounds: u64) -> u64 {
        let mut state = 1_u64;
        for _ in 0..rounds {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005));
        }
        rounds
    }

    fn measured(options: &Options, members: Vec<Member<'_>>) -> Results {
        let mut results = Results::new("copy", ["pagewire".to_owned()]);
        results.complete = true;
        let mut turns = Turns::new(options, 1, &mut results);
        let parameters = vec![("bytes", "1000".to_owned())];
        turns.measure("some", Group { parameters, reference: "a", members }, &mut results);
        turns.finish(&mut results);
        results
    }

    #[test]
    fn every_member_has_its_throughput_its_ratio_and_its_time() {
        let options = Options { quick: true, rounds: Some(2), ..Options::default() };
        let members = vec![
            Member::new("a", || work(1000)),
            Member::new("b", || work(1000)).of_operations(10),
        ];
        let results = measured(&options, members);
        let found: Vec<_> = results
            .rows
            .iter()
            .map(|row| (row.member.as_str(), row.metric.as_str(), row.unit.as_str()))
            .collect();
        let expected = ["a", "b"].map(|member| {
            [
                (member, "throughput", "GB/s"),
                (member, "relative to a", "times"),
                (member, "time", "ns"),
            ]
        });
        assert_eq!(found, expected.concat());
        assert!(results.rows.iter().all(|row| row.figure.samples.len() == 2));
        assert_eq!(results.figure("a", "relative to a", &[]).unwrap().samples, [1.0, 1.0]);
        let of = |member: &str, metric: &str| {
            results.figure(member, metric, &[("bytes", "1000")]).unwrap().samples.clone()
        };
        // A call processes 1000 bytes, in ten operations for `b`.
        for (throughput, time) in of("a", "throughput").iter().zip(of("a", "time")) {
            assert!((throughput * time - 1000.0).abs() < 1e-6);
        }
        for (throughput, time) in of("b", "throughput").iter().zip(of("b", "time")) {
            assert!((throughput * time - 100.0).abs() < 1e-6);
        }
        assert!(results.complete);
    }

    #[test]
    fn what_is_interrupted_keeps_whole_rounds_alone() {
        let stop = Arc::new(AtomicBool::new(false));
        let options =
            Options { quick: true, rounds: Some(3), stop: stop.clone(), ..Options::default() };
        let mut left = None;
        let members = vec![
            Member::new("a", || work(1000)),
            Member::new("b", || {
                // The stop arrives a few calls into the warm-up, long before the first round ends.
                *left.get_or_insert(3) -= 1;
                stop.store(left == Some(0) || stop.load(Ordering::Relaxed), Ordering::Relaxed);
                work(1000)
            }),
        ];
        let results = measured(&options, members);
        assert!(!results.complete && results.rows.is_empty(), "{:?}", results.rows);
        assert!(results.notes.iter().any(|note| note.starts_with("interrupted")));
    }
}
