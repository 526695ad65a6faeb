// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every path claims to cost beside what was counted, packets of the usual size.
//!
//! Claims are those of the list in the code, counts those of the measurement file: a path that
//! changed its claim after it was measured is a mismatch here.

use std::fmt::Write;

use measure::report::number;
use measure::{Claims, Results, Row};
use paths::{PATHS, Spec};

use crate::grid::Marks;
use crate::measurements::{USUAL_BYTES, parameter};

/// The table, and a sentence that says whether all is as claimed.
pub(crate) fn table(results: &Results, marks: &Marks<'_>) -> String {
    let mut text = "| path | for | packets a call | copies a byte: claimed | counted | calls a \
                    packet (tcp: a step): claimed | counted |\n|---|---|--:|--:|--:|--:|--:|\n"
        .to_owned();
    let (mut compared, mut mismatches, mut missing) = (0, Vec::new(), Vec::new());
    for spec in PATHS {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| is_of(row, spec)).collect();
        let mut lengths: Vec<u32> = rows.iter().map(|row| segments(row)).collect();
        lengths.sort_unstable();
        lengths.dedup();
        if lengths.is_empty() {
            missing.push(format!("`{spec}`"));
        }
        for length in lengths {
            let bytes = USUAL_BYTES.parse().expect("a number");
            let claims = Claims::of(spec, bytes, length);
            let Spec { name, transport, .. } = spec;
            let _ = write!(text, "| `{name}` | {transport} | {length} |");
            for (metric, claimed) in [("copies", claims.copies), ("calls", claims.calls)] {
                let of = |row: &&&Row| row.metric == metric && segments(row) == length;
                let counted: Vec<&Row> = rows.iter().filter(of).copied().collect();
                compared += counted.len();
                let off = |row: &&&Row| !Claims::met(claimed, row.figure.median);
                mismatches.extend(counted.iter().filter(off).map(|row| {
                    let sink = parameter(row, "sink");
                    let (claimed, counted) = (number(claimed), marks.cell(row));
                    format!(
                        "`{spec}`, {length} a call, {sink}: claims {claimed} {metric}, counted \
                         {counted}"
                    )
                }));
                // Of several sinks, the count that is furthest from the claim.
                let far = |row: &&&Row| (row.figure.median - claimed).abs();
                let furthest = counted.iter().max_by(|a, b| far(a).total_cmp(&far(b)));
                let counted = furthest.map(|row| marks.cell(row)).unwrap_or_default();
                let _ = write!(text, " {} | {counted} |", number(claimed));
            }
            text.push('\n');
        }
    }
    let _ = write!(text, "\n{compared} claims compared with counts: ");
    match &mismatches[..] {
        [] => text.push_str("no mismatch.\n"),
        found => {
            let _ = write!(text, "{} not met:\n\n", found.len());
            found.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
        }
    }
    if !missing.is_empty() {
        let _ = writeln!(text, "\nNot measured: {}.", missing.join(", "));
    }
    text
}

/// Whether the table has this figure.
pub(crate) fn is_shown(row: &Row) -> bool {
    PATHS.iter().any(|spec| is_of(row, spec))
}

fn is_of(row: &Row, spec: &Spec) -> bool {
    row.member == spec.name
        && row.published.is_none()
        && ["calls", "copies"].contains(&row.metric.as_str())
        && parameter(row, "transport") == spec.transport.name()
        && parameter(row, "bytes") == USUAL_BYTES
}

/// Packets of a call; a path that sends one says nothing of it.
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
    let met = table(&results(0.1), &Marks::of(&[]));
    assert!(met.contains("2 claims compared with counts: no mismatch."), "{met}");
    assert!(met.contains("| `wire_sendfile` | rtp | 10 | 0 | 0 | 0.100 | 0.100 |"), "{met}");
    assert!(met.contains("Not measured: `rtp/read_writev`, "), "{met}");
    let off = table(&results(0.2), &Marks::of(&[]));
    let line = "- `rtp/wire_sendfile`, 10 a call, ifb-software: claims 0.100 calls, counted 0.200";
    assert!(off.contains("1 not met") && off.contains(line), "{off}");
}
