// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number of rounds: a base, then whole blocks of that size until every figure is calm.
//!
//! The median absolute deviation of single rounds does not shrink with their number, so rounds are
//! summed: after `b` blocks each sample of a figure is the sum of `b` rounds, and a profile's
//! counting error falls with the square root of `b`. Rounds end when the widest spread is at most
//! [`SPREAD_WANTED`], at the maximum number of rounds, or when another block would exceed the time
//! limit. The time limit is not used with `--rounds-max`. A figure that is wider then has a warning
//! with its cause: too few samples of its profile, or boots that differ.
//!
//! Sources: a Poisson count of `n` has the standard deviation √n; the median absolute deviation of
//! a normal distribution is 0.6745 standard deviations.
//! Does not drop a round.

use std::time::Duration;

use super::times::{FUNCTIONS, OWN, OWN_RATIO, SHARE, WHOLE};
use crate::experiments::kernel::profile::PERIOD_SECONDS;
use measure::Options;
use measure::results::Row;
use measure::statistics::Figure;
use measure::warning::{Percent, SPREAD_WANTED, Warning};

/// Conditions for the end of the rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopping {
    /// Rounds of a block, and samples of a figure.
    base: usize,
    /// Maximum number of rounds.
    most: usize,
    /// Time limit of all rounds, where their maximum was not selected.
    limit: Option<Duration>,
}

/// Decision after some rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Measure this many more rounds.
    Rounds(usize),
    /// Every figure is calm.
    Calm,
    /// The maximum number of rounds is reached.
    MostRounds,
    /// Another block would exceed the time limit.
    TimeLimit,
}

impl Stopping {
    /// Returns the conditions: `--rounds` alone is a fixed number; a quick run has one block.
    pub(super) fn of(options: &Options) -> Stopping {
        let own = if options.quick { QUICK_ROUNDS } else { ROUNDS };
        let base = options.rounds.unwrap_or(own).max(1);
        let fixed = options.quick || options.rounds.is_some();
        let most = options.rounds_max.unwrap_or(if fixed { base } else { ROUNDS_MAX });
        let limit = options.rounds_max.is_none().then_some(TIME_LIMIT);
        Stopping { base, most: most.max(base), limit }
    }

    /// Decides after `done` rounds; calls `widest` only when a block is complete.
    pub(super) fn next(
        &self,
        done: usize,
        elapsed: Duration,
        widest: impl FnOnce() -> f64,
    ) -> Next {
        if !done.is_multiple_of(self.base) || done == 0 {
            return Next::Rounds(self.base - done % self.base);
        }
        if widest() <= SPREAD_WANTED {
            return Next::Calm;
        }
        if done + self.base > self.most {
            return Next::MostRounds;
        }
        let block = elapsed.mul_f64(self.base as f64 / done as f64);
        match self.limit {
            Some(limit) if elapsed + block > limit => Next::TimeLimit,
            _ => Next::Rounds(self.base),
        }
    }

    /// Returns the number of rounds in a sample of a figure.
    pub(super) fn rounds_a_sample(&self, done: usize) -> usize {
        (done / self.base).max(1)
    }

    /// True when more than one block may be measured.
    pub(super) fn is_adaptive(&self) -> bool {
        self.most >= 2 * self.base
    }

    /// Describes the conditions for the notes.
    pub(super) fn words(&self) -> String {
        match self.is_adaptive() {
            false => format!("{} rounds", self.base),
            true => {
                let or_minutes = |limit: Duration| format!(" or {} minutes", limit.as_secs() / 60);
                format!(
                    "blocks of {} rounds, {} rounds{} at most, until every spread is at most {}",
                    self.base,
                    self.most,
                    self.limit.map(or_minutes).unwrap_or_default(),
                    Percent(SPREAD_WANTED)
                )
            }
        }
    }
}

/// Returns the largest spread of measured figures; 0 without one.
pub(super) fn widest(rows: &[Row]) -> f64 {
    rows.iter().filter(|row| has_spread(row)).map(|row| row.figure.spread).fold(0.0, f64::max)
}

/// Returns a warning for each figure that is wider than wanted, with its cause. `machine` describes
/// the other load.
pub(super) fn stays(rows: &[Row], rounds: usize, machine: &str) -> Vec<Warning> {
    let wide = rows.iter().filter(|row| has_spread(row) && row.figure.spread > SPREAD_WANTED);
    let warning = |row: &Row| {
        let spread = row.figure.spread;
        let why = match counted(row, rows) {
            Some(Counted { samples, error }) if spread <= error * DEVIATION * EXPLAINED => {
                let error = Percent(error);
                format!("{samples:.0} samples of the profile a sum: counting alone is ± {error}")
            }
            Some(Counted { samples, error }) => format!(
                "boots differ by more than counting ({samples:.0} samples, ± {}) explains; \
                 {machine}",
                Percent(error)
            ),
            None => format!("boots differ; {machine}"),
        };
        Warning::SpreadStays {
            member: row.member.clone(),
            parameters: row.parameters.clone(),
            metric: row.metric.clone(),
            spread,
            rounds,
            why,
        }
    };
    wide.map(warning).collect()
}

fn has_spread(row: &Row) -> bool {
    row.published.is_none() && row.figure.samples.len() > 1
}

/// Samples of a profile behind a figure.
struct Counted {
    /// Samples of the median; for a ratio, those of its smaller side.
    samples: f64,
    /// Relative standard deviation of the count: √n / n.
    error: f64,
}

/// Returns the samples behind a figure; `None` when it does not belong to a profile.
fn counted(row: &Row, rows: &[Row]) -> Option<Counted> {
    let of = |seconds: f64| {
        let samples = (seconds / PERIOD_SECONDS).max(1.0);
        Counted { samples, error: samples.sqrt().recip() }
    };
    let workloads = row.parameters.get(WORKLOADS)?;
    let seconds = |member: &str, metric: &str| {
        let is = |other: &&Row| {
            other.member == member
                && other.metric == metric
                && other.published.is_none()
                && other.parameters.get(WORKLOADS) == Some(workloads)
        };
        rows.iter().find(is).map(|row| row.figure.median)
    };
    match row.metric.as_str() {
        WHOLE | OWN => Some(of(row.figure.median)),
        SHARE => Some(of(seconds(&row.member, OWN)?)),
        OWN_RATIO => {
            let [own, stock] = [of(seconds(&row.member, OWN)?), of(seconds(super::STOCK, OWN)?)];
            let error = own.error.hypot(stock.error);
            Some(Counted { samples: own.samples.min(stock.samples), error })
        }
        FUNCTIONS => {
            let whole = seconds(row.parameters.get("variant")?, WHOLE)?;
            Some(of(whole * row.figure.median / 100.0))
        }
        _ => None,
    }
}

/// Returns the number of samples in memcpy's own time, all rounds together: the uncertainty of the
/// count is their square root.
pub(super) fn samples(own_seconds: &[f64]) -> Figure {
    Figure::derived((own_seconds.iter().sum::<f64>() / PERIOD_SECONDS).round())
}

/// Parameter of a profile's rows.
const WORKLOADS: &str = "workloads";
/// Rounds of a block of a full run: the fewest samples that a published figure may have.
const ROUNDS: usize = measure::warning::SAMPLES_MIN;
/// Maximum number of rounds of a full run.
const ROUNDS_MAX: usize = 4 * ROUNDS;
const QUICK_ROUNDS: usize = 3;
/// Time limit of a full run's rounds; the other parts take some three minutes on two cores.
const TIME_LIMIT: Duration = Duration::from_secs(21 * 60);
/// The median absolute deviation of a normal distribution, in standard deviations.
const DEVIATION: f64 = 0.6745;
/// Up to this multiple of the average counting error, a spread is explained by few samples.
const EXPLAINED: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    const STOPPING: Stopping =
        Stopping { base: 5, most: 20, limit: Some(Duration::from_secs(1000)) };

    fn next(done: usize, seconds: u64, widest: f64) -> Next {
        STOPPING.next(done, Duration::from_secs(seconds), || widest)
    }

    #[test]
    fn rounds_go_on_by_blocks_until_all_is_calm_or_a_bound_is_met() {
        assert_eq!(STOPPING.next(0, Duration::ZERO, || panic!("nothing yet")), Next::Rounds(5));
        assert_eq!(STOPPING.next(3, Duration::ZERO, || panic!("half a block")), Next::Rounds(2));
        assert_eq!(next(5, 100, 0.10), Next::Calm);
        assert_eq!(next(5, 100, 0.11), Next::Rounds(5));
        assert_eq!(next(15, 300, 0.11), Next::Rounds(5));
        assert_eq!(next(20, 400, 0.11), Next::MostRounds);
        assert_eq!(next(5, 501, 0.11), Next::TimeLimit, "ten rounds would take 1,002 s");
        assert_eq!(next(5, 500, 0.11), Next::Rounds(5));
        let asked_for = Stopping { limit: None, ..STOPPING };
        assert_eq!(asked_for.next(5, Duration::from_secs(9999), || 0.11), Next::Rounds(5));
        assert_eq!([5, 9, 10, 20].map(|done| STOPPING.rounds_a_sample(done)), [1, 1, 2, 4]);
    }

    #[test]
    fn rounds_that_are_asked_for_are_fixed_and_a_quick_run_has_one_block() {
        let of = |quick, rounds, rounds_max| {
            let Stopping { base, most, .. } =
                Stopping::of(&Options { quick, rounds, rounds_max, ..Options::default() });
            (base, most)
        };
        assert_eq!(of(false, None, None), (ROUNDS, ROUNDS_MAX));
        assert_eq!(of(true, None, None), (QUICK_ROUNDS, QUICK_ROUNDS));
        assert_eq!(of(false, Some(9), None), (9, 9));
        assert_eq!(of(false, Some(9), Some(40)), (9, 40));
        assert_eq!(of(false, None, Some(1)), (ROUNDS, ROUNDS), "a block at least");
    }

    fn profile(member: &str, metric: &str, samples: &[f64]) -> Row {
        let row = Row::new("kernel", member, metric, "", Figure::of(samples.to_vec()));
        row.with(WORKLOADS, "mix")
    }

    #[test]
    fn a_figure_that_stays_wide_says_why() {
        let period = PERIOD_SECONDS;
        let few = [8.0, 9.0, 12.0, 16.0, 20.0].map(|count| count * period);
        let many = [800.0, 1200.0, 2000.0, 1300.0, 1000.0].map(|count| count * period);
        let cpu_s_per_gb =
            Row::new("kernel", "sized", "CPU cost", "s/GB", Figure::of(vec![1.0, 1.3, 1.6]));
        let rows = [
            profile("sized", OWN, &few),
            profile("stock", OWN, &many),
            profile("sized", SHARE, &[4.0, 5.0, 6.0]),
            cpu_s_per_gb.with("workload", "pipe"),
            profile("calm", OWN, &[1.0, 1.01, 0.99]),
        ];
        assert!(widest(&rows) > 0.3 && widest(&rows[4..]) < 0.02);
        let lines: Vec<String> =
            stays(&rows, 10, "nothing else ran").iter().map(Warning::to_string).collect();
        let expected = [
            "sized, workloads=mix: profile: memcpy's own time: spread 33 % after 10 rounds, over \
             10 %: 12 samples of the profile a sum: counting alone is ± 29 %",
            "stock, workloads=mix: profile: memcpy's own time: spread 17 % after 10 rounds, over \
             10 %: boots differ by more than counting (1200 samples, ± 2.9 %) explains; nothing \
             else ran",
            "sized, workloads=mix: profile: memcpy's share: spread 20 % after 10 rounds, over \
             10 %: 12 samples of the profile a sum: counting alone is ± 29 %",
            "sized, workload=pipe: CPU cost: spread 23 % after 10 rounds, over 10 %: boots differ; \
             nothing else ran",
        ];
        assert_eq!(lines, expected);
    }

    /// Draws counts about a mean with the spread of a profile's counts.
    #[test]
    fn sums_of_rounds_are_calmer_than_rounds() {
        let mut state = 7_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 / f64::from(1_u32 << 31)
        };
        // 4,000 samples, half a percent of them in the function.
        let mut round = || (0..4000).filter(|_| uniform() < 0.005).count() as f64;
        let rounds: Vec<f64> = (0..4000).map(|_| round()).collect();
        let spread = |sum: usize| {
            let sums = rounds.chunks_exact(sum).map(|chunk| chunk.iter().sum::<f64>());
            Figure::of(sums.collect()).spread
        };
        let [one, four, sixteen] = [1, 4, 16].map(spread);
        assert!(one > SPREAD_WANTED && four < SPREAD_WANTED, "{one} and {four}");
        assert!((one / sixteen - 4.0).abs() < 1.0, "by the square root: {one} and {sixteen}");
        assert_eq!(samples(&[250.0 * PERIOD_SECONDS, 150.0 * PERIOD_SECONDS]).median, 400.0);
    }
}
