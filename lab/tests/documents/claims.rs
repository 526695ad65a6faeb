// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the claims of every path with the counts of a measurement file, at 1328 bytes.
//!
//! The claims are those of the list of paths in the code, so a claim changed after the measurement
//! is a mismatch.

use std::fmt::Write;

use measure::report::number;
use measure::{Claims, Results, Row};
use paths::{PATHS, Spec};

use crate::grid::Marks;
use crate::measurements::{USUAL_BYTES, parameter};

/// Returns a sentence with the number of compared counts, and a list of those off their claims.
pub(crate) fn sentence(results: &Results, marks: &Marks<'_>) -> String {
    let (mut compared, mut mismatches, mut missing) = (0, Vec::new(), Vec::new());
    for spec in PATHS {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| is_of(row, spec)).collect();
        if rows.is_empty() {
            missing.push(format!("`{spec}`"));
        }
        for row in rows {
            let bytes = USUAL_BYTES.parse().expect("a number");
            let claims = Claims::of(spec, bytes, segments(row));
            let claimed = if row.metric == "copies" { claims.copies } else { claims.calls };
            compared += 1;
            if !Claims::met(claimed, row.figure.median) {
                let (metric, length, sink) = (&row.metric, segments(row), parameter(row, "sink"));
                mismatches.push(format!(
                    "- `{spec}`, {length} a call, {sink}: claims {} {metric}, counted {}\n",
                    number(claimed),
                    marks.cell(row)
                ));
            }
        }
    }
    let mut text =
        format!("Copies and system calls claimed by the paths, compared with {compared} counts: ");
    match mismatches.len() {
        0 => text.push_str("no mismatch."),
        found => {
            let _ = write!(text, "{found} not met:\n\n{}\n", mismatches.concat());
        }
    }
    if !missing.is_empty() {
        let _ = write!(text, " Not measured: {}.", missing.join(", "));
    }
    text.push('\n');
    text
}

fn is_of(row: &Row, spec: &Spec) -> bool {
    row.member == spec.name
        && row.published.is_none()
        && ["calls", "copies"].contains(&row.metric.as_str())
        && parameter(row, "transport") == spec.transport.name()
        && parameter(row, "bytes") == USUAL_BYTES
}

/// Returns the packets of a call; 1 for a path without this parameter.
fn segments(row: &Row) -> u32 {
    parameter(row, "segments").parse().unwrap_or(1)
}

#[test]
fn a_count_off_its_claim_is_named() {
    let results = |calls: f64| {
        let row = |metric: &str, value: f64| {
            let figure = measure::Figure::of(vec![value; 3]);
            let row = Row::new("paths", "wire_sendfile", metric, "", figure);
            let row = row.with("transport", "rtp").with("bytes", USUAL_BYTES);
            row.with("segments", 10).with("sink", "ifb-software")
        };
        let mut results = Results::new("paths", []);
        results.rows = vec![row("calls", calls), row("copies", 0.0)];
        results
    };
    let met = sentence(&results(0.1), &Marks::of(&[]));
    assert!(met.contains("compared with 2 counts: no mismatch."), "{met}");
    assert!(met.contains("Not measured: `rtp/read_writev`, "), "{met}");
    let off = sentence(&results(0.2), &Marks::of(&[]));
    let line = "- `rtp/wire_sendfile`, 10 a call, ifb-software: claims 0.100 calls, counted 0.200";
    assert!(off.contains("1 not met") && off.contains(line), "{off}");
}
