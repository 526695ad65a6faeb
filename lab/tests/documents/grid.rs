// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of measurements: one line for each member, one column for each value of a parameter.
//!
//! `measure::report::markdown` prints each figure in its own row. For a member measured at a dozen
//! sizes, one row with a dozen columns is easier to read. The tables have no spreads: a figure with
//! a warning has the warning's number beside it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::{Discriminant, discriminant};

use measure::report::number;
use measure::{Results, Row, Warning};

/// Warnings by the numbers that `measure::report::markdown` assigns to their kinds.
pub(crate) struct Marks<'a> {
    warnings: &'a [Warning],
    kinds: Vec<Discriminant<Warning>>,
}

impl<'a> Marks<'a> {
    pub(crate) fn of(warnings: &'a [Warning]) -> Marks<'a> {
        let mut kinds = Vec::new();
        for kind in warnings.iter().map(discriminant) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        Marks { warnings, kinds }
    }

    /// Returns the marks of another file's warnings, with the same numbers.
    pub(crate) fn of_file<'b>(&self, results: &'b Results) -> Marks<'b> {
        Marks { warnings: &results.warnings, kinds: self.kinds.clone() }
    }

    /// Returns ` !2` where the second kind concerns this row.
    pub(crate) fn beside(&self, row: &Row) -> String {
        let mut marks = String::new();
        for (index, kind) in self.kinds.iter().enumerate() {
            let mut of_kind =
                self.warnings.iter().filter(|warning| discriminant(*warning) == *kind);
            if of_kind.any(|warning| concerns(warning, row)) {
                let _ = write!(marks, " !{}", index + 1);
            }
        }
        marks
    }

    /// Returns the figure and its marks.
    pub(crate) fn cell(&self, row: &Row) -> String {
        format!("{}{}", number(row.figure.median), self.beside(row))
    }

    /// Returns the marks of all source figures of a computed one, each once.
    pub(crate) fn beside_all(&self, rows: &[&Row]) -> String {
        let all: Vec<String> = rows.iter().map(|row| self.beside(row)).collect();
        let mut words: Vec<&str> = all.iter().flat_map(|marks| marks.split_whitespace()).collect();
        words.sort_unstable();
        words.dedup();
        words.iter().fold(String::new(), |text, word| format!("{text} {word}"))
    }

    /// Returns a line for each of these marks in `text`, which names the kind of warning.
    pub(crate) fn legend(&self, text: &str) -> String {
        let mut lines = String::new();
        for (index, kind) in self.kinds.iter().enumerate() {
            let mark = format!("!{}", index + 1);
            let Some(first) = self.warnings.iter().find(|other| discriminant(*other) == *kind)
            else {
                continue;
            };
            if text.split_whitespace().any(|word| word == mark) {
                let _ = writeln!(lines, "{mark}: {}.", doubt(first));
            }
        }
        lines
    }
}

/// Replaces numbered marks by daggers, for documents whose readers look at one table: the first
/// kind by one, the next by two.
pub(crate) fn daggers(text: &str) -> String {
    (1..=KINDS_MAX).rev().fold(text.to_owned(), |text, number| {
        text.replace(&format!("!{number}"), &"†".repeat(number))
    })
}

/// Largest number of kinds of warnings that the marks of one table distinguish.
const KINDS_MAX: usize = 4;

/// Returns a kind of warning in few words.
fn doubt(warning: &Warning) -> String {
    match warning {
        Warning::NoisySpread { .. } => {
            format!("the samples' spread is over {:.0} %", measure::SPREAD_MAX * 100.0)
        }
        Warning::SpreadStays { .. } => "rounds were added and its spread stayed".to_owned(),
        Warning::ZerocopyCopied { .. } => "sends that asked for no copy were copied".to_owned(),
        Warning::InstrumentLarge { .. } => "measuring itself cost over 1 % of it".to_owned(),
        Warning::MemberFailed { .. } => "the member could not go on".to_owned(),
        Warning::ClientLimits { .. } => "the client used most of its core".to_owned(),
        other => other.cure().to_owned(),
    }
}

/// True when a warning is about this figure, and not about the run.
pub(crate) fn concerns(warning: &Warning, row: &Row) -> bool {
    if row.published.is_some() {
        return false;
    }
    match warning {
        Warning::NoisySpread { member, parameters, metric, .. }
        | Warning::SpreadStays { member, parameters, metric, .. } => {
            (member, parameters, metric) == (&row.member, &row.parameters, &row.metric)
        }
        Warning::ZerocopyCopied { member, parameters, .. } => {
            (member, parameters) == (&row.member, &row.parameters) && row.metric == "CPU cost"
        }
        Warning::InstrumentLarge { member, metric, .. } => {
            (member, metric) == (&row.member, &row.metric)
        }
        Warning::MemberFailed { member, .. } => *member == row.member,
        _ => false,
    }
}

/// Returns the value of a row's parameter, empty where it has none of that name; for `metric`, the
/// metric with its unit.
pub(crate) fn value(row: &Row, name: &str) -> String {
    match (name, row.unit.as_str()) {
        ("metric", "") => row.metric.clone(),
        ("metric", unit) => format!("{}, {unit}", row.metric),
        (name, _) => row.parameters.get(name).cloned().unwrap_or_default(),
    }
}

/// Returns a table of `rows`: lines named by `label` in the order of the rows, columns by [`value`]
/// of `axis`; numbers in ascending order, words in the order of the rows. Empty where there are no
/// rows.
pub(crate) fn grid(
    rows: &[&Row],
    axis: &str,
    label: impl Fn(&Row) -> String,
    marks: &Marks<'_>,
) -> String {
    let mut lines: Vec<(String, BTreeMap<String, &Row>)> = Vec::new();
    let mut columns: Vec<String> = Vec::new();
    for row in rows {
        let (name, column) = (label(row), value(row, axis));
        let index = lines.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            lines.push((name, BTreeMap::new()));
            lines.len() - 1
        });
        if !columns.contains(&column) {
            columns.push(column.clone());
        }
        // Of two figures for one cell, the first was measured together with its line.
        lines[index].1.entry(column).or_insert(row);
    }
    if columns.is_empty() {
        return String::new();
    }
    if columns.iter().all(|column| column.parse::<u64>().is_ok()) {
        columns.sort_by_key(|column| column.parse::<u64>().expect("as just seen"));
    }
    let mut text = format!("| {axis} | {} |\n|---|", columns.join(" | "));
    text.push_str(&"--:|".repeat(columns.len()));
    text.push('\n');
    for (name, points) in lines {
        let _ = write!(text, "| {name} |");
        for column in &columns {
            let figure = points.get(column).map(|row| marks.cell(row));
            let _ = write!(text, " {} |", figure.unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

#[test]
fn values_stand_across_in_order_and_doubts_beside_them() {
    let row = |member: &str, bytes: u32, samples: [f64; 3]| {
        let figure = measure::Figure::of(samples.to_vec());
        Row::new("paths", member, "CPU cost", "s/GB", figure).with("bytes", bytes)
    };
    let rows = [
        row("a", 1328, [2.0, 2.0, 2.0]),
        row("a", 64, [40.0, 30.0, 50.0]),
        row("a", 64, [7.0, 7.0, 7.0]),
        row("b", 64, [1.0, 1.0, 1.0]),
    ];
    let warnings = Warning::of_rows(&rows);
    let marks = Marks::of(&warnings);
    let all: Vec<&Row> = rows.iter().collect();
    let shown = |rows: &[&Row]| grid(rows, "bytes", |row| row.member.clone(), &marks);
    assert_eq!(
        shown(&all),
        "| bytes | 64 | 1328 |\n|---|--:|--:|\n| a | 40.0 !1 | 2.00 |\n| b | 1.00 |  |\n"
    );
    assert_eq!(shown(&[]), "");
}
