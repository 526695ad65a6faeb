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
    let mut rows = Vec::new();
    for (variant, whole, own, share) in [(STOCK, 155.11, 12.96, 8.72), (SSE, 148.55, 8.75, 5.68)] {
        rows.push(add(variant, WHOLE, "s", whole, "table 4"));
        rows.push(add(variant, OWN, "s", own, "table 4"));
        rows.push(add(variant, SHARE, "%", share, "table 4"));
    }
    rows.push(add(SSE, OWN_RATIO, "", 8.75 / 12.96, "table 4: about 33 % faster"));
    for (variant, table, functions) in [(STOCK, "table 2", BEFORE), (SSE, "table 3", AFTER)] {
        for (function, share) in functions {
            rows.push(add(function, FUNCTIONS, "%", *share, table).with("variant", variant));
        }
    }
    results.rows.extend(rows);
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
        results.rows.push(Row { published: Some(source.to_owned()), ..row });
    }
}

const STOCK: &str = "stock";
const SSE: &str = "sse_published";
/// Shares in percent.
const BEFORE: &[(&str, f64)] = &[
    ("memcpy", 8.72),
    ("os_arch_prctl", 6.23),
    ("hard_handler", 6.19),
    ("userspace", 3.57),
    ("strncpy", 2.97),
];
const AFTER: &[(&str, f64)] = &[
    ("os_arch_prctl", 5.68),
    ("memcpy", 5.64),
    ("hard_handler", 5.62),
    ("userspace", 3.40),
    ("strncpy", 3.33),
];
