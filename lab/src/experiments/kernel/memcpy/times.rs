// SPDX-License-Identifier: MIT OR Apache-2.0
//! Costs of workloads with each variant, round by round, and their rows.
//!
//! A workload that moves bytes has a CPU cost, any other has a time a call. The large buffers of
//! tmpfs are also combined, their times over their bytes, as one figure of a variant's effect where
//! copies are most of the work. Ratios are computed within a round.
//!
//! Does not run workloads.

use std::collections::BTreeMap;

use super::STOCK;
use super::rounds::samples;
use crate::experiments::kernel::boot::{Guest, Ran};
use crate::experiments::kernel::profile::{Profile, is_memcpy};
use measure::results::{Results, Row};
use measure::statistics::Figure;
use measure::warning::{Percent, Warning};

/// All rounds of all variants.
#[derive(Default)]
pub(super) struct Times {
    rounds: BTreeMap<&'static str, Vec<Round>>,
    lost: u64,
    /// Seconds of all cores, and the part of them used by other programs and by the hypervisor.
    cores: f64,
    others: f64,
    stolen: f64,
}

/// One boot, or several summed.
#[derive(Clone, Default)]
struct Round {
    /// Cost of each workload, in their order.
    ran: Vec<(String, Cost)>,
    /// Seconds in each function, for each workload.
    profile: Vec<(String, BTreeMap<String, f64>)>,
}

#[derive(Clone, Copy)]
struct Cost {
    seconds: f64,
    bytes: u64,
    calls: u64,
}

impl Times {
    /// Adds a round of a variant.
    pub(super) fn add(&mut self, variant: &'static str, guest: &Guest, profile: Option<Profile>) {
        for ran in &guest.ran {
            let all = ran.cost.wall.as_secs_f64() * ran.cost.processors as f64;
            self.cores += all;
            self.others += ran.cost.others_share() * all;
            self.stolen += ran.cost.stolen.as_secs_f64();
        }
        let cost = |ran: &Ran| Cost {
            seconds: ran.processor.as_secs_f64(),
            bytes: ran.done.number("bytes"),
            calls: ran.done.number("calls"),
        };
        let ran = guest.ran.iter().map(|ran| (ran.done.name.clone(), cost(ran)));
        let ran = ran.collect();
        self.lost += profile.as_ref().map_or(0, |profile| profile.lost);
        let profile = profile.map(|profile| profile.seconds).unwrap_or_default();
        self.rounds.entry(variant).or_default().push(Round { ran, profile });
    }

    /// Counts the rounds of a variant.
    pub(super) fn rounds(&self, variant: &str) -> usize {
        self.rounds.get(variant).map_or(0, Vec::len)
    }

    /// Returns the largest number of rounds of a variant.
    pub(super) fn most_rounds(&self) -> usize {
        self.rounds.values().map(Vec::len).max().unwrap_or(0)
    }

    /// Returns all rows, each sample the sum of `rounds` rounds.
    pub(super) fn rows(&self, rounds: usize) -> Vec<Row> {
        let mut results = Results::new("kernel", []);
        let summed = self.summed(rounds);
        summed.cpu_costs(&mut results);
        for (name, is_in) in PROFILES {
            summed.profiles(name, is_in, &mut results);
        }
        results.rows
    }

    /// Sums groups of `rounds` successive rounds; an incomplete group is left out.
    fn summed(&self, rounds: usize) -> Times {
        let sum = |of: &[Round]| {
            let mut sum = Round::default();
            for round in of {
                sum.ran.extend_from_slice(&round.ran);
                sum.profile.extend_from_slice(&round.profile);
            }
            sum
        };
        let all = self
            .rounds
            .iter()
            .map(|(variant, all)| (*variant, all.chunks_exact(rounds).map(sum).collect()));
        Times { rounds: all.collect(), ..Times::default() }
    }

    /// Describes the load of the cores besides the guests.
    pub(super) fn machine(&self) -> String {
        let share = |seconds: f64| Percent(seconds / self.cores.max(f64::MIN_POSITIVE));
        format!(
            "other programs had {} of the cores' time and the hypervisor {}",
            share(self.others),
            share(self.stolen)
        )
    }

    /// Adds all rows, each sample the sum of `rounds` rounds, and warnings.
    pub(super) fn report(&self, rounds: usize, results: &mut Results) {
        results.rows.extend(self.rows(rounds));
        if self.lost > 0 {
            results.notes.push(format!("memcpy: {} samples of profiles were lost", self.lost));
        }
        if self.others > OTHERS_MAX * self.cores {
            results.warn(Warning::OtherLoad { busy_share: self.others / self.cores });
        }
        if self.stolen > STOLEN_MAX * self.cores {
            results.warn(Warning::StolenTime { share: self.stolen / self.cores });
        }
    }

    /// Returns the variants in the order of display.
    fn shown(&self) -> impl Iterator<Item = (&'static str, &Vec<Round>)> {
        super::VARIANTS
            .iter()
            .filter_map(|name| self.rounds.get(name).map(|rounds| (*name, rounds)))
    }

    fn cpu_costs(&self, results: &mut Results) {
        let stock = self.rounds.get(STOCK);
        let first = stock.or_else(|| self.rounds.values().next()).and_then(|rounds| rounds.first());
        let mut names: Vec<&String> = Vec::new();
        for (name, _) in first.iter().flat_map(|round| &round.ran) {
            // Some run more than once a round.
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for name in names {
            let of = |round: &Round| round.of(|other| other == name);
            let (workload, bytes) = sized(name);
            self.costs(&of, results, |row| match bytes {
                Some(bytes) => row.with("workload", &workload).with("bytes", bytes),
                None => row.with("workload", &workload),
            });
        }
        let large = |round: &Round| round.of(is_large);
        self.costs(&large, results, |row| row.with("workload", LARGE));
    }

    /// Adds the rows of a cost that each round has, for all variants.
    fn costs(
        &self,
        of: &dyn Fn(&Round) -> Option<Cost>,
        results: &mut Results,
        place: impl Fn(Row) -> Row,
    ) {
        let mut reference = None;
        let mut ratios = Vec::new();
        for (variant, rounds) in self.shown() {
            let costs: Vec<Cost> = rounds.iter().filter_map(of).collect();
            if costs.is_empty() || costs.len() != rounds.len() {
                continue;
            }
            let of_bytes = costs.iter().all(|cost| cost.bytes > 0);
            let (metric, unit) =
                if of_bytes { ("CPU cost", "s/GB") } else { ("time a call", "µs") };
            let each = costs.iter().map(|cost| match of_bytes {
                true => cost.seconds * 1e9 / cost.bytes as f64,
                false => cost.seconds * 1e6 / cost.calls.max(1) as f64,
            });
            let figure = Figure::of(each.collect());
            if variant == STOCK {
                reference = Some(figure.clone());
            }
            let ratio = reference.as_ref().and_then(|reference| figure.relative_to(reference));
            results.rows.push(place(Row::new("kernel", variant, metric, unit, figure)));
            let metric = format!("relative to {STOCK}");
            ratios
                .extend(ratio.map(|ratio| place(Row::new("kernel", variant, &metric, "", ratio))));
        }
        results.rows.extend(ratios);
    }

    /// Adds memcpy's own time, the total, and the functions with most of the time.
    fn profiles(&self, workloads: &str, is_in: IsIn, results: &mut Results) {
        let push = |variant: &str, metric: &str, unit: &str, figure: Figure| {
            Row::new("kernel", variant, metric, unit, figure).with("workloads", workloads)
        };
        let mut reference = None;
        let mut tops = Vec::new();
        let mut rows = [const { Vec::new() }; 5];
        for (variant, rounds) in self.shown() {
            let seconds: Vec<BTreeMap<&str, f64>> =
                rounds.iter().map(|round| round.functions(is_in)).collect();
            let whole: Vec<f64> = seconds.iter().map(|of| of.values().sum()).collect();
            if whole.contains(&0.0) {
                continue;
            }
            let copies: Vec<f64> = seconds.iter().map(|of| of.memcpy()).collect();
            let shares = copies.iter().zip(&whole).map(|(own, whole)| own * 100.0 / whole);
            let own = Figure::of(copies.clone());
            rows[0].push(push(variant, WHOLE, "s", Figure::of(whole.clone())));
            rows[1].push(push(variant, OWN, "s", own.clone()));
            rows[2].push(push(variant, SHARE, "%", Figure::of(shares.collect())));
            let reference = reference.get_or_insert((variant, own.clone()));
            if reference.0 == STOCK {
                let ratio = own.relative_to(&reference.1);
                rows[3].extend(ratio.map(|ratio| push(variant, OWN_RATIO, "", ratio)));
            }
            let samples = samples(&copies);
            rows[4].push(push(variant, SAMPLES, "samples", samples).as_detail());
            tops.extend(top(variant, workloads, &seconds, &whole));
        }
        results.rows.extend(rows.into_iter().flatten());
        results.rows.extend(tops);
    }
}

/// Sum over memcpy's functions of seconds by function.
trait OfMemcpy {
    fn memcpy(&self) -> f64;
}

impl OfMemcpy for BTreeMap<&str, f64> {
    fn memcpy(&self) -> f64 {
        self.iter().filter(|(name, _)| is_memcpy(name)).map(|(_, seconds)| seconds).sum()
    }
}

impl Round {
    /// Sums the costs of the workloads of these names; `None` when there is none.
    fn of(&self, is_in: impl Fn(&str) -> bool) -> Option<Cost> {
        let mut found = self.ran.iter().filter(|(name, _)| is_in(name)).map(|(_, cost)| *cost);
        let first = found.next()?;
        Some(found.fold(first, |sum, cost| Cost {
            seconds: sum.seconds + cost.seconds,
            bytes: sum.bytes + cost.bytes,
            calls: sum.calls + cost.calls,
        }))
    }

    fn functions(&self, is_in: IsIn) -> BTreeMap<&str, f64> {
        let mut sum = BTreeMap::new();
        let those = self.profile.iter().filter(|(workload, _)| is_in(workload));
        for (name, seconds) in those.flat_map(|(_, functions)| functions) {
            *sum.entry(name.as_str()).or_default() += seconds;
        }
        sum
    }
}

/// Returns the functions with the largest median shares, memcpy's variants as one.
fn top(variant: &str, workloads: &str, seconds: &[BTreeMap<&str, f64>], whole: &[f64]) -> Vec<Row> {
    let mut shares: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (round, (functions, whole)) in seconds.iter().zip(whole).enumerate() {
        for (function, own) in functions {
            let name = if is_memcpy(function) { MEMCPY } else { function };
            let samples = shares.entry(name).or_insert_with(|| vec![0.0; seconds.len()]);
            samples[round] += own * 100.0 / whole;
        }
    }
    let mut figures: Vec<(&str, Figure)> =
        shares.into_iter().map(|(name, samples)| (name, Figure::of(samples))).collect();
    figures.sort_by(|(_, a), (_, b)| b.median.total_cmp(&a.median));
    let rows = figures.into_iter().take(TOP).map(|(name, figure)| {
        let row = Row::new("kernel", name, FUNCTIONS, "%", figure);
        row.with("variant", variant).with("workloads", workloads)
    });
    rows.collect()
}

/// Splits a name into the workload and, where it ends with one, a size in bytes.
fn sized(name: &str) -> (String, Option<u64>) {
    let parts = name.rsplit_once('_').and_then(|(workload, size)| {
        let (digits, factor) = match size.as_bytes().last()? {
            b'k' => (&size[..size.len() - 1], 1 << 10),
            b'm' => (&size[..size.len() - 1], 1 << 20),
            _ => (size, 1),
        };
        Some((workload.to_owned(), digits.parse::<u64>().ok()?.checked_mul(factor)?))
    });
    match parts {
        Some((workload, bytes)) => (workload, Some(bytes)),
        None => (name.to_owned(), None),
    }
}

fn is_large(name: &str) -> bool {
    let (workload, bytes) = sized(name);
    workload.starts_with("tmpfs_") && bytes.is_some_and(|bytes| bytes >= LARGE_BYTES_MIN)
}

/// True for workloads of that group in guest/src/workloads.
fn is_of_large_buffers(name: &str) -> bool {
    is_large(name) || name == "pipe_64k"
}

fn is_mix(name: &str) -> bool {
    MIX.iter().any(|start| name.starts_with(start))
}

/// Groups of workloads that are profiled.
const PROFILES: [(&str, IsIn); 2] = [("large buffers", is_of_large_buffers), ("mix", is_mix)];
/// True when the name belongs to the group.
type IsIn = fn(&str) -> bool;
/// All workloads of tmpfs from [`LARGE_BYTES_MIN`].
const LARGE: &str = "tmpfs, 256 KiB to 1 MiB, reads and writes";
const LARGE_BYTES_MIN: u64 = 256 << 10;
/// Workloads modelled on UnixBench: guest/src/workloads.
const MIX: [&str; 8] = [
    "execl",
    "file_copy_",
    "pipe_throughput",
    "context_switch",
    "process_creation",
    "processes",
    "system_call",
    "shell_scripts",
];
/// Functions in a table.
const TOP: usize = 8;
/// All variants of memcpy.
const MEMCPY: &str = "memcpy";
/// Metrics with published values beside them.
pub(in super::super) const WHOLE: &str = "profile: whole run";
pub(in super::super) const OWN: &str = "profile: memcpy's own time";
pub(in super::super) const SHARE: &str = "profile: memcpy's share";
pub(in super::super) const OWN_RATIO: &str = "memcpy's own time, relative to stock";
pub(super) const SAMPLES: &str = "profile: samples of memcpy";
pub(in super::super) const FUNCTIONS: &str = "profile: functions with most time";
const OTHERS_MAX: f64 = 0.05;
const STOLEN_MAX: f64 = 0.01;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiments::kernel::console;

    fn guest(workloads: &[(&str, u64, u64, u64)]) -> Guest {
        let ran = workloads.iter().map(|(name, bytes, calls, ms)| {
            let line = format!("guest: end-of {name} bytes={bytes} calls={calls}");
            let Ok(console::Line::Done(done)) = console::read(&line) else { panic!("{line}") };
            Ran { done, processor: Duration::from_millis(*ms), cost: Default::default() }
        });
        Guest { ran: ran.collect(), ..Guest::default() }
    }

    fn profile(of: &[(&str, &[(&str, f64)])]) -> Option<Profile> {
        let functions =
            |of: &[(&str, f64)]| of.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect();
        let seconds = of.iter().map(|(name, of)| ((*name).to_owned(), functions(of))).collect();
        Some(Profile { seconds, lost: 0 })
    }

    fn times() -> Times {
        let mut times = Times::default();
        for (stock_ms, fast_ms) in [(400, 300), (800, 400), (400, 300)] {
            let of = |ms| {
                guest(&[
                    ("tmpfs_read_256k", 1_000_000_000, 10, ms),
                    ("tmpfs_write_1m", 1_000_000_000, 10, ms * 3),
                    ("system_call", 0, 1_000, ms),
                ])
            };
            let stock: &[(&str, f64)] = &[("__memcpy", 0.2), ("memcpy_orig", 0.3), ("copy", 0.5)];
            let fast: &[(&str, f64)] = &[("pagewire_memcpy_avx2", 0.3), ("copy", 0.4)];
            let idle: &[(&str, f64)] = &[("userspace", 1.0)];
            let of_stock = profile(&[("tmpfs_read_256k", stock), ("system_call", idle)]);
            let of_fast = profile(&[("tmpfs_read_256k", fast), ("system_call", idle)]);
            // Order of a round that runs backwards.
            times.add("avx2", &of(fast_ms), of_fast);
            times.add(STOCK, &of(stock_ms), of_stock);
        }
        times
    }

    #[test]
    fn costs_are_of_bytes_and_times_of_calls_with_ratios_by_round() {
        let mut results = Results::new("kernel", []);
        times().report(1, &mut results);
        let median = |member: &str, metric: &str, parameters: &[(&str, &str)]| {
            let found = results.figure(member, metric, parameters);
            found.map(|figure| (figure.median * 1e9).round() / 1e9)
        };
        let read = [("workload", "tmpfs_read"), ("bytes", "262144")];
        assert_eq!(median(STOCK, "CPU cost", &read), Some(0.4));
        assert_eq!(median("avx2", "CPU cost", &read), Some(0.3));
        assert_eq!(median("avx2", "relative to stock", &read), Some(0.75));
        assert_eq!(median(STOCK, "relative to stock", &read), Some(1.0));
        let large = [("workload", LARGE)];
        assert_eq!(median(STOCK, "CPU cost", &large), Some(0.8), "1.6 s for 2 GB");
        assert_eq!(median("avx2", "relative to stock", &large), Some(0.75));
        let call = [("workload", "system_call")];
        assert_eq!(median("avx2", "time a call", &call), Some(300.0));
        let sampled = |row: &&Row| row.metric != SAMPLES;
        assert!(results.rows.iter().filter(sampled).all(|row| row.figure.samples.len() == 3));
        assert_eq!(results.rows[0].member, STOCK, "in the order of the list");
        assert_eq!(times().rounds("avx2"), 3);
    }

    #[test]
    fn profiles_are_of_their_workloads_with_memcpy_as_one_function() {
        let mut results = Results::new("kernel", []);
        times().report(1, &mut results);
        let figure = |member: &str, metric: &str, workloads: &str| {
            let found = results.figure(member, metric, &[("workloads", workloads)]);
            found.map(|figure| (figure.median * 1e6).round() / 1e6)
        };
        assert_eq!(figure(STOCK, WHOLE, "large buffers"), Some(1.0));
        assert_eq!(figure(STOCK, OWN, "large buffers"), Some(0.5));
        assert_eq!(figure("avx2", SHARE, "large buffers"), Some(42.857143));
        assert_eq!(figure("avx2", OWN_RATIO, "large buffers"), Some(0.6));
        assert_eq!(figure("avx2", OWN, "mix"), Some(0.0));
        assert_eq!(figure("avx2", OWN_RATIO, "mix"), None, "nothing has no ratio");
        let of_stock = [("variant", STOCK), ("workloads", "large buffers")];
        let share = results.figure(MEMCPY, FUNCTIONS, &of_stock).unwrap();
        assert_eq!(share.samples, [50.0; 3]);
        let first = results.rows.iter().find(|row| row.metric == FUNCTIONS).unwrap();
        assert!(first.member == MEMCPY || first.member == "copy", "the largest first");
    }

    #[test]
    fn a_sample_is_the_sum_of_some_rounds_and_a_workload_may_run_twice_in_one() {
        let mut times = Times::default();
        for ms in [400, 600, 200, 400, 900] {
            let twice = [("system_call", 0, 1_000, ms), ("system_call", 0, 1_000, ms)];
            let of: &[(&str, f64)] = &[("memcpy", ms as f64 / 1e4), ("copy", 0.5)];
            let of = profile(&[("system_call", of), ("system_call", of)]);
            times.add(STOCK, &guest(&twice), of);
        }
        let median = |rounds: usize, metric: &str| {
            let rows = times.rows(rounds);
            let mut found = rows.iter().filter(|row| row.metric == metric);
            let figure = found.next().map(|row| row.figure.clone()).unwrap();
            assert!(found.next().is_none(), "one row a workload");
            figure.samples.iter().map(|sample| (sample * 1e3).round() / 1e3).collect::<Vec<_>>()
        };
        assert_eq!(median(1, "time a call"), [400.0, 600.0, 200.0, 400.0, 900.0]);
        assert_eq!(median(2, "time a call"), [500.0, 300.0]);
        assert_eq!(median(1, OWN), [0.08, 0.12, 0.04, 0.08, 0.18]);
        assert_eq!(median(2, OWN), [0.2, 0.12]);
        assert_eq!(median(2, SHARE), [9.091, 5.66]);
    }

    #[test]
    fn names_of_workloads_end_with_their_size() {
        let of = |name: &str| {
            let (workload, bytes) = sized(name);
            (workload, bytes.unwrap_or(0))
        };
        assert_eq!(of("tmpfs_read_256k"), ("tmpfs_read".to_owned(), 262_144));
        assert_eq!(of("tmpfs_write_1m"), ("tmpfs_write".to_owned(), 1 << 20));
        assert_eq!(of("udp_1400"), ("udp".to_owned(), 1400));
        assert_eq!(of("system_call"), ("system_call".to_owned(), 0));
        assert_eq!(of("x_99999999999999999999k"), ("x_99999999999999999999k".to_owned(), 0));
        assert!(is_large("tmpfs_read_1m") && !is_large("tmpfs_read_64k") && !is_large("pipe_1m"));
        assert!(is_mix("file_copy_1024") && !is_mix("tcp_64k"));
    }
}
