// SPDX-License-Identifier: MIT OR Apache-2.0
//! Renders a measurement: a table for the terminal, CSV, Markdown, and an HTML page with plots.
//!
//! Each is a function of [`Results`] alone and independent of the experiment: tables and plots
//! follow from the rows (`sections`). So they can be made from a committed file at any time, and a
//! new experiment has all four without a new line here. Texts of a file are escaped for their
//! output: a measurement file may come from a stranger.
//!
//! Sources: hyperfine's `src/export/` (a file a format).
//! Does not write files; [`crate::save`] does.

mod csv;
mod html;
mod markdown;
mod plot;
mod scale;
mod sections;
mod terminal;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::{Discriminant, discriminant};

pub use csv::csv;
pub use html::html;
pub use markdown::markdown;
pub use terminal::terminal;
pub use terminal::{plain, wrapped};

use crate::results::{Results, Row};
use crate::warning::{About, Percent, Warning};

/// Formats three significant digits, without an exponent where that is readable.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return "0".to_owned();
    }
    if !(1e-5..1e9).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    // 9.995 has as many digits as 10.
    let exponent = (magnitude * (1.0 + 5e-4)).log10().floor() as i32;
    let digits = (2 - exponent).clamp(0, 7) as usize;
    format!("{value:.digits$}")
}

/// Formats the spread: `± 3 %`, `published`, or nothing for fewer than two samples.
pub fn spread(row: &Row) -> String {
    match row.figure.samples.len() {
        _ if row.published.is_some() => "published".to_owned(),
        0 | 1 => String::new(),
        _ => format!("± {}", Percent(row.figure.spread)),
    }
}

/// Formats names with their values in a line.
pub fn pairs<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut line = String::new();
    for (name, value) in parameters {
        let comma = if line.is_empty() { "" } else { ", " };
        let _ = write!(line, "{comma}{name}={value}");
    }
    line
}

/// Formats all parameters of a row.
pub fn parameters(row: &Row) -> String {
    pairs(row.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

/// Returns the set-up as names and values, equal in every format.
fn facts(results: &Results) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("command", results.command.clone()),
        ("taken", results.taken.clone()),
        ("commit", results.commit.clone()),
        ("host", results.host.line()),
    ];
    if !results.complete {
        facts.push(("incomplete", INCOMPLETE.to_owned()));
    }
    facts
}

/// Returns the number of figures that a table leaves out because each is one cell of many.
fn details(rows: &[Row]) -> Option<String> {
    let details = rows.iter().filter(|row| row.detail).count();
    let plural = if details == 1 { "" } else { "s" };
    (details > 0).then(|| {
        format!("{details} figure{plural} more, cell by cell, in the JSON, CSV and HTML forms")
    })
}

/// Returns the sources of published values, each once.
fn published_sources(rows: &[Row]) -> Vec<&str> {
    let mut sources: Vec<&str> = rows.iter().filter_map(|row| row.published.as_deref()).collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

/// Warnings of one kind, which share a cure and a number.
struct Kind<'a> {
    warnings: Vec<&'a Warning>,
}

impl Kind<'_> {
    fn cure(&self) -> &'static str {
        self.warnings[0].cure()
    }
}

/// All warnings by kind.
struct Doubts<'a> {
    kinds: Vec<Kind<'a>>,
    numbers: BTreeMap<About<'a>, Vec<usize>>,
}

impl<'a> Doubts<'a> {
    fn of(results: &'a Results) -> Doubts<'a> {
        let mut kinds: Vec<(Discriminant<Warning>, Kind<'a>)> = Vec::new();
        let mut numbers: BTreeMap<About<'a>, Vec<usize>> = BTreeMap::new();
        for warning in &results.warnings {
            let kind = discriminant(warning);
            let index = kinds.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
                kinds.push((kind, Kind { warnings: Vec::new() }));
                kinds.len() - 1
            });
            kinds[index].1.warnings.push(warning);
            let known = numbers.entry(warning.about()).or_default();
            if !known.contains(&(index + 1)) {
                known.push(index + 1);
            }
        }
        Doubts { kinds: kinds.into_iter().map(|(_, kind)| kind).collect(), numbers }
    }

    /// Returns the numbers (from 1) of the kinds that concern this row but not the whole run.
    fn of_row(&self, row: &'a Row) -> Vec<usize> {
        if row.published.is_some() {
            return Vec::new();
        }
        let abouts = [
            About::Member(&row.member),
            About::Metric(&row.member, &row.metric),
            About::Row(&row.member, &row.parameters, &row.metric),
        ];
        let found = abouts.iter().filter_map(|about| self.numbers.get(about));
        let mut numbers: Vec<usize> = found.flatten().copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// Formats numbers as marks beside a row: `!1 !3`.
fn marks(numbers: &[usize]) -> String {
    let marks: Vec<String> = numbers.iter().map(|number| format!("!{number}")).collect();
    marks.join(" ")
}

/// Ratios of a metric's rows to a reference, shown beside them.
struct Ratios<'a> {
    /// The metric that they belong to: the CPU cost, otherwise the first that is not a ratio.
    of: &'a str,
    /// Metrics of the ratios.
    metrics: Vec<&'a str>,
    rows: BTreeMap<(&'a str, RowKey<'a>), &'a Row>,
}

type RowKey<'a> = (&'a str, &'a BTreeMap<String, String>);

impl<'a> Ratios<'a> {
    fn of(rows: &'a [Row]) -> Ratios<'a> {
        let is_ratio = |row: &&Row| row.metric.starts_with(RATIO);
        let mut bases = rows.iter().filter(|row| !is_ratio(row));
        let cpu_s_per_gb = rows.iter().find(|row| row.metric == CPU_COST);
        let of = cpu_s_per_gb.or_else(|| bases.next()).map_or("", |row| &row.metric);
        let based: BTreeMap<RowKey<'a>, ()> =
            rows.iter().filter(|row| row.metric == of).map(|row| (key(row), ())).collect();
        let mut metrics: Vec<&str> = Vec::new();
        let mut found = BTreeMap::new();
        for row in rows.iter().filter(is_ratio).filter(|row| based.contains_key(&key(row))) {
            if !metrics.contains(&row.metric.as_str()) {
                metrics.push(&row.metric);
            }
            found.entry((row.metric.as_str(), key(row))).or_insert(row);
        }
        Ratios { of, metrics, rows: found }
    }

    /// Returns the columns of a table of these rows: the ratios that any of them has.
    fn columns(&self, metric: &str, rows: &[&'a Row]) -> Vec<&'a str> {
        if metric != self.of {
            return Vec::new();
        }
        let has = |column: &&&'a str| rows.iter().any(|row| self.beside(row, column).is_some());
        self.metrics.iter().filter(has).copied().collect()
    }

    fn beside(&self, row: &'a Row, metric: &'a str) -> Option<&'a Row> {
        self.rows.get(&(metric, key(row))).copied()
    }

    /// True when this row is printed beside another one and needs no table of its own.
    fn is_beside(&self, row: &'a Row) -> bool {
        self.beside(row, &row.metric).is_some_and(|found| std::ptr::eq(found, row))
    }
}

fn key(row: &Row) -> RowKey<'_> {
    (&row.member, &row.parameters)
}

const CPU_COST: &str = "CPU cost";
const RATIO: &str = "relative to ";
const INCOMPLETE: &str = "the run was interrupted or a member failed; the figures it has hold";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Figure;

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown = [
            (0.0, "0"),
            (0.0591, "0.0591"),
            (0.29, "0.290"),
            (2.2, "2.20"),
            (9.9951, "10.0"),
            (23.64, "23.6"),
            (99.96, "100"),
            (65_507.0, "65507"),
            (-2.5, "-2.50"),
            (1.5e-7, "1.50e-7"),
            (2.5e12, "2.50e12"),
        ];
        for (value, expected) in shown {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn ratios_stand_beside_the_rows_they_are_of() {
        let row = |member: &str, metric: &str| {
            Row::new("paths", member, metric, "", Figure::of(vec![1.0])).with("bytes", 64)
        };
        let rows = [
            row("a", "throughput"),
            row("a", "CPU cost"),
            row("a", "relative to b"),
            row("published only", "relative to b"),
        ];
        let ratios = Ratios::of(&rows);
        assert_eq!(ratios.columns("CPU cost", &[&rows[1]]), ["relative to b"]);
        assert!(ratios.columns("CPU cost", &[&rows[3]]).is_empty(), "no row of it has the ratio");
        assert!(ratios.columns("throughput", &[&rows[0]]).is_empty());
        assert_eq!(ratios.beside(&rows[1], "relative to b"), Some(&rows[2]));
        let own_table: Vec<bool> = rows.iter().map(|row| !ratios.is_beside(row)).collect();
        assert_eq!(own_table, [true, true, false, true]);
    }

    #[test]
    fn doubts_find_their_rows() {
        let mut results = Results::new("paths", []);
        let row = |member: &str| {
            Row::new("paths", member, "CPU cost", "s/GB", Figure::of(vec![1.0])).with("bytes", 1328)
        };
        results.rows = vec![row("wire_sendfile"), row("uring_zc"), row("mmap_gso")];
        results.warnings = Warning::examples();
        let doubts = Doubts::of(&results);
        let numbers: Vec<_> = results.rows.iter().map(|row| doubts.of_row(row)).collect();
        assert_eq!(numbers, [vec![3, 13], vec![], vec![]]);
        assert_eq!(marks(&numbers[0]), "!3 !13");
        let published = Row { published: Some("elsewhere".to_owned()), ..row("uring_zc") };
        assert!(doubts.of_row(&published).is_empty());
    }
}
