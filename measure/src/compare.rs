// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes between two measurements of one experiment that exceed the noise.
//!
//! The rule: a figure changed when its medians differ by more than twice the sum of both standard
//! deviations, and by at least 2 %. The standard deviation is estimated as 1.4826 times the median
//! absolute deviation, so that a disturbed sample does not hide a change. Independent figures would
//! allow the root of the sum of squares; the rule adds the deviations and doubles them because
//! disturbances hit all figures of a run together. The 2 % are there because two runs of one
//! program differ by that much without a sample that shows it: pages and buffers lie elsewhere.
//! Fewer than three samples have no usable spread; counts are exact and need none.
//!
//! Sources: Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously Wrong!", 2009
//! (memory layout as a hidden variable).
//! Does not decide which of two programs is better; a change has more than one possible cause
//! unless only one variable differs, and [`Warning::ManyVariables`] reports that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use crate::error::Error;
use crate::memory::TIMES;
use crate::report::{number, parameters, plain, wrapped};
use crate::results::{Results, Row};
use crate::statistics::Figure;
use crate::warning::{Percent, Warning};

/// Verdict on a figure that both measurements have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeVerdict {
    /// Better, beyond the spread of both: a lower cost or a higher rate.
    Faster,
    /// Worse, beyond the spread of both.
    Slower,
    /// Within the noise.
    Unchanged,
    /// Too few samples for a verdict.
    Unknown,
}

/// A figure in both measurements.
#[derive(Debug, Clone)]
pub struct Change {
    /// Row of the first measurement.
    pub before: Row,
    /// Figure of the second measurement.
    pub after: Figure,
    /// Second over first; `None` when the first is 0.
    pub ratio: Option<f64>,
    /// Direction of the change, or its absence.
    pub verdict: ChangeVerdict,
}

/// Two measurements side by side; `Display` writes the table, [`Comparison::summary`] the verdict.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Name of the experiment.
    pub experiment: String,
    /// Reasons to doubt the comparison.
    pub warnings: Vec<Warning>,
    /// Figures that both have, the largest change first.
    pub changes: Vec<Change>,
    /// Rows that only the first has.
    pub only_before: Vec<Row>,
    /// Rows that only the second has.
    pub only_after: Vec<Row>,
    /// For each measurement, true when it ran to the end.
    pub complete: [bool; 2],
    /// Number of rows with published values, which are not compared.
    pub published: usize,
}

type Key<'a> = (&'a str, &'a str, &'a BTreeMap<String, String>, &'a str, &'a str);

/// Compares `after` with `before`.
///
/// # Errors
/// [`Error::Caller`] when the two are of different experiments.
pub fn compare(before: &Results, after: &Results) -> Result<Comparison, Error> {
    if before.experiment != after.experiment {
        return Err(Error::Caller {
            what: "lab compare".to_owned(),
            found: format!(
                "a measurement of {} and one of {}; give two of the same experiment",
                plain(&before.experiment),
                plain(&after.experiment)
            ),
        });
    }
    let rows = before.rows.iter().chain(&after.rows);
    let published = rows.filter(|row| row.published.is_some()).count();
    // Rows with equal keys are matched in order.
    let mut others: BTreeMap<Key<'_>, VecDeque<&Row>> = BTreeMap::new();
    for row in after.rows.iter().filter(|row| row.published.is_none()) {
        others.entry(key(row)).or_default().push_back(row);
    }
    let (mut changes, mut only_before) = (Vec::new(), Vec::new());
    for row in before.rows.iter().filter(|row| row.published.is_none()) {
        match others.get_mut(&key(row)).and_then(VecDeque::pop_front) {
            Some(other) => changes.push(change(row, &other.figure)),
            None => only_before.push(row.clone()),
        }
    }
    // Unmatched rows stay in the order of the file.
    let left = after.rows.iter().rev().filter(|row| row.published.is_none());
    let mut only_after: Vec<Row> = left
        .filter(|row| others.get_mut(&key(row)).and_then(VecDeque::pop_back).is_some())
        .cloned()
        .collect();
    only_after.reverse();
    changes.sort_by(|a, b| rank(a).cmp(&rank(b)).then(size(b).total_cmp(&size(a))));
    Ok(Comparison {
        experiment: before.experiment.clone(),
        warnings: variables(before, after),
        changes,
        only_before,
        only_after,
        complete: [before.complete, after.complete],
        published,
    })
}

fn key(row: &Row) -> Key<'_> {
    (&row.experiment, &row.member, &row.parameters, &row.metric, &row.unit)
}

fn change(before: &Row, after: &Figure) -> Change {
    let (a, b) = (before.figure.median, after.median);
    let ratio = (b / a).is_finite().then_some(b / a);
    Change { before: before.clone(), after: after.clone(), ratio, verdict: verdict(before, after) }
}

fn verdict(before: &Row, after: &Figure) -> ChangeVerdict {
    let figure = &before.figure;
    let fewest = figure.samples.len().min(after.samples.len());
    if fewest < JUDGED_SAMPLES_MIN && !before.is_count() {
        return ChangeVerdict::Unknown;
    }
    let difference = after.median - figure.median;
    let noise = SIGMAS * SIGMA_PER_DEVIATION * (figure.deviation() + after.deviation());
    if difference.abs() <= noise || difference.abs() < CHANGE_MIN * figure.median.abs() {
        return ChangeVerdict::Unchanged;
    }
    if (difference > 0.0) == more_is_better(&before.unit) {
        ChangeVerdict::Faster
    } else {
        ChangeVerdict::Slower
    }
}

/// True for a rate (`Gb/s`), a multiple of a rate, and a number of sessions; for every other unit
/// (CPU cost, lateness, loss, system calls, memory) less is better.
pub(crate) fn more_is_better(unit: &str) -> bool {
    unit.ends_with("/s") || unit == TIMES || unit == "sessions"
}

fn rank(change: &Change) -> u8 {
    match change.verdict {
        ChangeVerdict::Faster | ChangeVerdict::Slower => 0,
        ChangeVerdict::Unchanged => 1,
        ChangeVerdict::Unknown => 2,
    }
}

/// Returns the size of a change, equal in both directions; infinite from or to 0.
fn size(change: &Change) -> f64 {
    match change.ratio {
        Some(ratio) if ratio > 0.0 => ratio.ln().abs(),
        _ if change.after.median == change.before.figure.median => 0.0,
        _ => f64::INFINITY,
    }
}

/// Warns when more than one variable differs.
fn variables(before: &Results, after: &Results) -> Vec<Warning> {
    let (a, b) = (&before.host, &after.host);
    let differ = [
        ("kernel", a.kernel != b.kernel),
        ("processor", a.processor != b.processor),
        ("cores", a.cores != b.cores),
        ("governor", a.governor != b.governor),
        ("commit", before.commit != after.commit),
        ("command", before.command != after.command),
    ];
    let which: Vec<String> =
        differ.iter().filter(|(_, differs)| *differs).map(|(name, _)| (*name).to_owned()).collect();
    if which.len() > 1 { vec![Warning::ManyVariables { which }] } else { Vec::new() }
}

impl Comparison {
    fn count(&self, verdict: ChangeVerdict) -> usize {
        self.changes.iter().filter(|change| change.verdict == verdict).count()
    }

    /// Returns the verdict in [`LINES_MAX`] lines at most: the number of changed figures, and for
    /// each member with its parameters the largest change for the worse and for the better, in
    /// words. Changes for the worse come first and get at least half of the lines.
    pub fn summary(&self) -> String {
        let experiment = plain(&self.experiment);
        let mut lines = vec![format!("lab {experiment}: the second measurement against the first")];
        lines.extend(self.doubts());
        lines.push(self.counts());
        lines.extend(self.alone());
        let (worse, better) =
            (self.largest(ChangeVerdict::Slower), self.largest(ChangeVerdict::Faster));
        let changed = worse.len() + better.len();
        if changed > 0 {
            lines.push(String::new());
        }
        // One line gives the number of changes that are not listed.
        let room = LINES_MAX - lines.len() - 1;
        let worse_listed = worse.len().min(room.saturating_sub(better.len()).max(room / 2));
        let better_listed = better.len().min(room - worse_listed);
        for change in worse[..worse_listed].iter().chain(&better[..better_listed]) {
            let (a, b) = (number(change.before.figure.median), number(change.after.median));
            let (unit, label) = (plain(&change.before.unit), label(&change.before));
            lines.push(
                format!("{:<20}  {label}: {a} → {b} {unit}", change.words()).trim_end().to_owned(),
            );
        }
        if let more @ 1.. = changed - worse_listed - better_listed {
            lines.push(format!("and {more} more, a member and its parameters once"));
        }
        lines.join("\n") + "\n"
    }

    /// Returns the largest change with this verdict for each member with its parameters: a CPU
    /// cost, its ratios and its sessions per core are one change.
    fn largest(&self, verdict: ChangeVerdict) -> Vec<&Change> {
        let mut seen: BTreeSet<(&str, &BTreeMap<String, String>)> = BTreeSet::new();
        let judged = self.changes.iter().filter(|change| change.verdict == verdict);
        judged
            .filter(|change| seen.insert((&change.before.member, &change.before.parameters)))
            .collect()
    }

    /// Returns the reasons to doubt the comparison, a line each.
    fn doubts(&self) -> Vec<String> {
        let places = ["first", "second"].iter().zip(self.complete);
        let halves = places.filter(|(_, complete)| !complete);
        let halves = halves.map(|(place, _)| format!("the {place} is incomplete"));
        halves.chain(self.warnings.iter().map(|warning| format!("warning: {warning}"))).collect()
    }

    fn counts(&self) -> String {
        let count = |verdict| self.count(verdict);
        let (faster, slower) = (count(ChangeVerdict::Faster), count(ChangeVerdict::Slower));
        let unchanged = count(ChangeVerdict::Unchanged);
        let unknown = match count(ChangeVerdict::Unknown) {
            0 => String::new(),
            unknown => format!(", {unknown} with too few samples to tell"),
        };
        let plural = if faster == 1 { "" } else { "s" };
        format!("{faster} figure{plural} better, {slower} worse, {unchanged} unchanged{unknown}")
    }

    /// Returns the number of figures that only one measurement has.
    fn alone(&self) -> Option<String> {
        let (first, second) = (self.only_before.len(), self.only_after.len());
        (first + second > 0)
            .then(|| format!("only in the first: {first}, only in the second: {second}"))
    }

    /// Writes every figure, changed ones first.
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changes.is_empty() {
            return Ok(());
        }
        let (ratio, first, second, unit) = ("ratio", "first", "second", "unit");
        let width = self.changes.iter().map(|c| c.before.unit.chars().count()).max().unwrap_or(0);
        let width = width.clamp(unit.len(), UNIT_CHARS_MAX);
        let verdict = ChangeVerdict::WIDTH;
        writeln!(f, "\n{ratio:>7}  {:verdict$}  {first:>8}  {second:>8}  {unit}", "")?;
        for change in &self.changes {
            let (a, b) = (number(change.before.figure.median), number(change.after.median));
            let ratio = change.ratio.map_or_else(|| "-".to_owned(), number);
            let (unit, label) = (plain(&change.before.unit), label(&change.before));
            let word = change.verdict;
            writeln!(f, "{ratio:>7}  {word:verdict$}  {a:>8}  {b:>8}  {unit:width$}  {label}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lab {}: the second measurement against the first", plain(&self.experiment))?;
        writeln!(f, "{RULE}")?;
        for (place, complete) in ["first", "second"].iter().zip(self.complete) {
            if !complete {
                writeln!(f, "the {place} is incomplete: it was interrupted or a member failed")?;
            }
        }
        for warning in &self.warnings {
            let mut text = String::new();
            wrapped(&mut text, "warning:", &warning.to_string());
            wrapped(&mut text, "  cure:", warning.cure());
            f.write_str(&text)?;
        }
        self.table(f)?;
        for (place, rows) in [("first", &self.only_before), ("second", &self.only_after)] {
            if !rows.is_empty() {
                writeln!(f, "\nonly in the {place}:")?;
            }
            for row in rows {
                let (label, unit) = (label(row), plain(&row.unit));
                writeln!(f, "  {label}  {} {unit}", number(row.figure.median))?;
            }
        }
        if self.published > 0 {
            writeln!(f, "\npublished values, left out: {}", self.published)?;
        }
        Ok(())
    }
}

impl Change {
    /// The ratio with its direction: `1.24 times cheaper`, `7 % dearer`.
    pub fn words(&self) -> String {
        let (a, b) = (self.before.figure.median, self.after.median);
        let word = direction(&self.before, b > a);
        match self.ratio {
            Some(ratio) if ratio > 0.0 => {
                let times = ratio.max(ratio.recip());
                if times >= TIMES_MIN {
                    format!("{} times {word}", number(times))
                } else {
                    format!("{} {word}", Percent((ratio - 1.0).abs()))
                }
            }
            Some(_) => format!("{word}, to nothing"),
            None => format!("{word}, from nothing"),
        }
    }
}

/// Returns the word for more or less of a quantity.
fn direction(row: &Row, more: bool) -> &'static str {
    let is_cost =
        row.unit == "s/GB" || row.unit.is_empty() && row.metric.starts_with("relative to ");
    let is_time = ["ns", "µs", "ms", "s"].contains(&row.unit.as_str());
    let [less, greater] = match () {
        () if is_cost => ["cheaper", "dearer"],
        () if row.unit.ends_with("/s") || row.unit == TIMES => ["slower", "faster"],
        () if is_time => ["shorter", "longer"],
        () => ["less", "more"],
    };
    if more { greater } else { less }
}

impl ChangeVerdict {
    /// Characters of the longest word.
    const WIDTH: usize = 15;
}

impl fmt::Display for ChangeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ChangeVerdict::Faster => "faster",
            ChangeVerdict::Slower => "slower",
            ChangeVerdict::Unchanged => "unchanged",
            ChangeVerdict::Unknown => "too few samples",
        })
    }
}

fn label(row: &Row) -> String {
    let (member, metric) = (plain(&row.member), plain(&row.metric));
    match plain(&parameters(row)) {
        parameters if parameters.is_empty() => format!("{member}, {metric}"),
        parameters => format!("{member}, {metric}, {parameters}"),
    }
}

const SIGMA_PER_DEVIATION: f64 = 1.4826;
const SIGMAS: f64 = 2.0;
const CHANGE_MIN: f64 = 0.02;
const UNIT_CHARS_MAX: usize = 12;
/// Lines of the summary; a screen has 24.
const LINES_MAX: usize = 19;
/// Smaller ratios are written in percent.
const TIMES_MIN: f64 = 1.2;
const JUDGED_SAMPLES_MIN: usize = 3;
const RULE: &str = "\
a change: the medians differ by more than 2 × 1.4826 × (both median absolute deviations), as noise
does not, and by at least 2 %, which the place of pages in memory can make up by itself";
