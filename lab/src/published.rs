// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published figures of the studies: tables of `studies/`, as references beside the measured ones.
//!
//! A table is a file of comma-separated values: a line with the names of its columns, then a line a
//! row; fields have no quotes, and an empty field is a value that the paper does not contain.
//!
//! The data-paths paper draws its figures and has no tables; its rows are the numbers in its text,
//! and ratios of two of them. Its processor is of 2005 and its kernel 2.6: ratios can be compared,
//! seconds cannot.
//!
//! Sources: the data-paths paper (Halvorsen, Dalseng, Griwodz: Assessment of Data Path
//! Implementations for Download and Streaming), sections 3.5, 4 and 5.
//! Does not read values off plots.

use std::collections::BTreeMap;

use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Tables 2 to 4 of the simd-copy paper.
pub(crate) const UNIXBENCH: &str = include_str!("../../studies/simd-copy/unixbench.csv");
const DATA_PATHS: &str = include_str!("../../studies/data-paths/published.csv");

/// A row of a published table.
pub(crate) struct PublishedRow(BTreeMap<&'static str, &'static str>);

impl PublishedRow {
    /// Returns the field of a column.
    ///
    /// # Panics
    /// The table has no such column.
    pub(crate) fn field(&self, column: &str) -> &'static str {
        self.0.get(column).unwrap_or_else(|| panic!("no column {column}"))
    }

    /// Returns the number in a column that has one in every row.
    ///
    /// # Panics
    /// As [`PublishedRow::number`], or the field is empty.
    pub(crate) fn value(&self, column: &str) -> f64 {
        self.number(column).unwrap_or_else(|| panic!("{column}: a row has none"))
    }

    /// Returns the number in a column; `None` where the field is empty.
    ///
    /// # Panics
    /// As [`PublishedRow::field`], or the field is no number.
    pub(crate) fn number(&self, column: &str) -> Option<f64> {
        let field = self.field(column);
        let parse = || field.parse().unwrap_or_else(|_| panic!("{column}: {field}: no number"));
        (!field.is_empty()).then(parse)
    }
}

/// Returns the rows of a table.
pub(crate) fn rows(table: &'static str) -> impl Iterator<Item = PublishedRow> {
    let mut lines = table.lines();
    let columns: Vec<_> = lines.next().unwrap_or_default().split(',').collect();
    lines.map(move |line| {
        let fields: Vec<_> = line.split(',').collect();
        assert_eq!(fields.len(), columns.len(), "fields of: {line}");
        PublishedRow(columns.iter().copied().zip(fields).collect())
    })
}

/// Returns the data-paths paper's ratios to a path: member, transport, value, source.
pub(crate) fn ratios(
    reference: &str,
) -> impl Iterator<Item = (&'static str, &'static str, f64, String)> {
    let metric = format!("relative to {reference}");
    rows(DATA_PATHS)
        .filter(move |row| row.field("metric") == metric)
        .map(|row| (row.field("member"), row.field("transport"), row.value("value"), source(&row)))
}

/// Adds the rows of the data-paths paper.
pub(crate) fn add(results: &mut Results) {
    results.rows.extend(rows(DATA_PATHS).map(|row| {
        let transport = row.field("transport");
        let parameters = [("transport", transport), ("bytes", "MTU"), ("sink", "a card")];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Row {
            experiment: "paths".to_owned(),
            member: row.field("member").to_owned(),
            parameters: BTreeMap::from(parameters),
            metric: row.field("metric").to_owned(),
            unit: row.field("unit").to_owned(),
            figure: Figure::published(row.value("value")),
            published: Some(source(&row)),
            detail: false,
        }
    }));
}

/// Returns the seconds of memcpy itself in the simd-copy paper's table 4, with a routine.
///
/// # Panics
/// The table does not have the routine.
pub(crate) fn memcpy_seconds(variant: &str) -> f64 {
    let is_it =
        |row: &PublishedRow| row.field("variant") == variant && row.field("metric") == "own";
    let row = rows(UNIXBENCH).find(is_it);
    row.unwrap_or_else(|| panic!("no time of {variant}")).value("value")
}

fn source(row: &PublishedRow) -> String {
    format!("the data-paths paper, {}", row.field("source"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_by_the_first_line_and_may_be_empty() {
        let rows: Vec<_> = rows("a,b\n1.5,\n,x y\n").collect();
        assert_eq!((rows[0].number("a"), rows[0].number("b")), (Some(1.5), None));
        assert_eq!((rows[1].field("a"), rows[1].field("b")), ("", "x y"));
    }

    #[test]
    fn ratios_are_those_to_one_path() {
        let found: Vec<_> =
            ratios("read_send_rtp").map(|(member, _, value, _)| (member, value)).collect();
        assert_eq!(found, [("krtpmsend", 0.64), ("mmap_rtpmsend", 0.76)]);
        assert!(ratios("rtp_sendfile").all(|(.., source)| source.contains("section")));
    }
}
