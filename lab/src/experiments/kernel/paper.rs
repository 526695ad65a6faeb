// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published figures of the simd-copy and data-paths papers, compared with those measured here.
//!
//! Copies: tables 2 to 4 of the simd-copy paper, of UnixBench in User Mode Linux with gprof. Its
//! share before is of another sum than its times (12.96 s of 155.11 s are 8.36 %); both are kept as
//! printed. Its processor was of 2011, its kernel a 2.6.39. Paths: the ratios in the text of the
//! data-paths paper, of processor time with a real card; instructions counted here do not include
//! cache misses.
//!
//! Sources: Saito and Oikawa, tables 2 to 4; Halvorsen, Dalseng and Griwodz, section 4
//! ([`crate::published`]).
//! Does not read values off drawings.

use super::memcpy::{FUNCTIONS, OWN, OWN_RATIO, SHARE, WHOLE};
use crate::published;
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Adds tables 2 to 4.
pub(super) fn memcpy(results: &mut Results) {
    let add = |member: &str, metric: &str, unit: &str, value: f64, table: &str| {
        let row = Row::new("kernel", member, metric, unit, Figure::published(value));
        let source = format!("Saito and Oikawa, {table} (UnixBench, User Mode Linux 2.6.39)");
        let row = Row { published: Some(source), ..row };
        row.with("workloads", "UnixBench")
    };
    for row in published::rows(published::UNIXBENCH) {
        let (table, variant, function) =
            (row.field("table"), row.field("variant"), row.field("function"));
        let (unit, value) = (row.field("unit"), row.value("value"));
        let metric = match row.field("metric") {
            "whole" => WHOLE,
            "own" => OWN,
            _ => SHARE,
        };
        // Table 4 is about memcpy and the whole run, tables 2 and 3 about all functions.
        results.rows.push(match table {
            "table 4" => add(variant, metric, unit, value, table),
            _ => add(function, FUNCTIONS, unit, value, table).with("variant", variant),
        });
    }
    let ratio = published::memcpy_seconds(SSE) / published::memcpy_seconds(STOCK);
    results.rows.push(add(SSE, OWN_RATIO, "", ratio, "table 4: about 33 % faster"));
}

/// Adds the data-paths paper's ratios to `reference`, for one model of processor.
pub(super) fn paths(
    (metric, reference): (&str, &str),
    parameters: &[(&str, &str)],
    results: &mut Results,
) {
    for (member, transport, value, source) in published::ratios(reference) {
        let row = Row::new("kernel", member, metric, "", Figure::published(value));
        let row = row.with("transport", transport);
        let row = parameters.iter().fold(row, |row, (name, value)| row.with(name, value));
        results.rows.push(Row { published: Some(source), ..row });
    }
}

const STOCK: &str = "stock";
const SSE: &str = "sse_published";
