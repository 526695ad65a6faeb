// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outliers: runs that lasted much longer than others of their cell, and their causes.
//!
//! Two measures are used. The paper's is over a second above the average of all runs of the cell.
//! It was made for runs of up to half a minute and finds nothing where a run lasts a few
//! milliseconds. The second is five median absolute deviations above the average, and at least a
//! tenth of the average, as a very calm cell has deviations of nearly zero.
//!
//! Sources: the file-encryption paper, section 4.4.
//! Does not drop outliers from a figure unless its name contains that.

use std::fmt;

use super::cause::Cause;
use super::counters::Counters;
use super::grid::{Cell, folder};
use measure::report::number;
use measure::statistics::Figure;

/// Measure of an outlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Over a second above the average, as in the paper.
    OverASecond,
    /// Beyond the cell's own spread.
    OverDeviations,
}

impl Kind {
    pub(super) const ALL: [Kind; 2] = [Kind::OverASecond, Kind::OverDeviations];

    /// Returns its name as a metric.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::OverASecond => OVER_A_SECOND,
            Kind::OverDeviations => "outliers, over 5 deviations above the average",
        }
    }
}

/// A run that lasted much longer than others of its cell.
pub(super) struct Outlier {
    pub(super) member: &'static str,
    pub(super) kind: Kind,
    pub(super) cause: Cause,
    files: usize,
    bytes: u64,
    threads: usize,
    repetition: usize,
    time_ms: f64,
    average_ms: f64,
    telling: String,
}

impl Outlier {
    pub(super) fn beyond_ms(&self) -> f64 {
        self.time_ms - self.average_ms
    }
}

/// Finds the outliers of a cell, each once: by the paper's measure, or otherwise by the spread.
pub(super) fn of(cell: &Cell) -> Vec<Outlier> {
    let times = cell.times_ms();
    let usual = Counters::usual(&cell.runs);
    let seconds = over_a_second(&times);
    let kind = |run: &usize| match seconds.contains(run) {
        true => Kind::OverASecond,
        false => Kind::OverDeviations,
    };
    let mut found = over_deviations(&times);
    found.extend(seconds.iter().filter(|run| !found.contains(run)).copied().collect::<Vec<_>>());
    let outlier = |run: usize| {
        let cause = Cause::of(&cell.runs[run], &usual);
        Outlier {
            member: cell.member.name,
            kind: kind(&run),
            cause,
            files: cell.files,
            bytes: cell.bytes,
            threads: cell.threads,
            repetition: run + 1,
            time_ms: times[run],
            average_ms: average(&times),
            telling: cause.telling(&cell.runs[run], &usual),
        }
    };
    found.into_iter().map(outlier).collect()
}

/// Finds the runs over a second above the average, times in milliseconds.
pub(super) fn over_a_second(times_ms: &[f64]) -> Vec<usize> {
    over(times_ms, A_SECOND_MS)
}

fn over_deviations(times_ms: &[f64]) -> Vec<usize> {
    // Fewer runs have no usable spread.
    if times_ms.len() < RUNS_MIN {
        return Vec::new();
    }
    let deviation = Figure::of(times_ms.to_vec()).deviation();
    over(times_ms, (DEVIATIONS * deviation).max(SHARE_MIN * average(times_ms)))
}

fn over(times_ms: &[f64], by_ms: f64) -> Vec<usize> {
    let limit = average(times_ms) + by_ms;
    (0..times_ms.len()).filter(|run| times_ms[*run] > limit).collect()
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Describes all outliers in a sentence.
pub(super) fn sentence(outliers: &[Outlier], runs: usize) -> String {
    let seconds = outliers.iter().filter(|outlier| outlier.kind == Kind::OverASecond).count();
    let mut text = format!(
        "outliers in {runs} runs: {seconds} over 1 s above the average of their cell, {} more \
         over 5 median absolute deviations and a tenth",
        outliers.len() - seconds
    );
    let mut causes: Vec<(usize, Cause)> = Cause::ALL
        .into_iter()
        .map(|cause| (outliers.iter().filter(|outlier| outlier.cause == cause).count(), cause))
        .filter(|(count, _)| *count > 0)
        .collect();
    causes.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    for (index, (count, cause)) in causes.iter().enumerate() {
        text += &format!("{} {cause} {count}", if index == 0 { "; by cause:" } else { "," });
    }
    text
}

impl fmt::Display for Outlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (member, folder, bytes) = (self.member, folder(self.files), self.bytes);
        let plural = if self.threads == 1 { "" } else { "s" };
        write!(f, "outlier: {member}, {folder} of {bytes} bytes, {} thread{plural}", self.threads)?;
        let (time, average) = (number(self.time_ms), number(self.average_ms));
        write!(f, ", run {}: {time} ms, on average {average}", self.repetition)?;
        write!(f, "; {}: {}", self.cause, self.telling)
    }
}

pub(super) const OVER_A_SECOND: &str = "outliers, over 1 s above the average";
const A_SECOND_MS: f64 = 1000.0;
const DEVIATIONS: f64 = 5.0;
const SHARE_MIN: f64 = 0.1;
const RUNS_MIN: usize = 5;

#[cfg(test)]
mod tests {
    use super::super::member::MEMBERS;
    use super::*;

    #[test]
    fn the_papers_measure_is_a_second_above_the_average_of_all() {
        // The average is 1.4 s: a run of 2.3 s is within a second of it, one of 3.6 s is not.
        let times = [200.0, 200.0, 700.0, 3600.0, 2300.0];
        assert_eq!(over_a_second(&times), [3]);
        assert_eq!(over_a_second(&[5000.0; 3]), Vec::<usize>::new());
    }

    #[test]
    fn a_calm_cell_has_outliers_beyond_its_spread_and_a_tenth() {
        assert_eq!(over_deviations(&[10.0, 10.1, 9.9, 10.0, 10.1, 14.0]), [5]);
        // Ten deviations, yet only a twentieth of the average.
        assert_eq!(over_deviations(&[10.0, 10.0, 10.0, 10.0, 10.05, 10.5]), Vec::<usize>::new());
        // A cell with a wide spread has no outlier; few runs have no spread.
        assert_eq!(over_deviations(&[1.0, 9.0, 2.0, 8.0, 5.0]), Vec::<usize>::new());
        assert_eq!(over_deviations(&[1.0, 1.0, 9.0]), Vec::<usize>::new());
    }

    #[test]
    fn an_outlier_says_where_it_was_and_why() {
        let run = |wall, stolen| Counters { wall, stolen, own: 0.02, ..Counters::default() };
        let mut runs = vec![run(0.01, 0.0); 7];
        runs.push(run(2.01, 1.9));
        runs.push(run(0.5, 0.0));
        let cell = Cell { member: MEMBERS[0], files: 10, bytes: 128, threads: 1, runs };
        let found = of(&cell);
        let kinds: Vec<_> = found.iter().map(|outlier| (outlier.kind, outlier.cause)).collect();
        let expected = [(Kind::OverASecond, Cause::Stolen), (Kind::OverDeviations, Cause::Unknown)];
        assert_eq!(kinds, expected);
        let line = found[0].to_string();
        let begin = "outlier: published, 10 files of 128 bytes, 1 thread, run 8: 2010 ms, on \
            average 287; stolen by the host: 1900.0 ms stolen";
        assert_eq!(line, begin);
        let all = sentence(&found, 9);
        assert!(all.contains("1 over 1 s") && all.contains("1 more over 5"), "{all}");
        assert!(all.ends_with("by cause: stolen by the host 1, unknown 1"), "{all}");
    }
}
