// SPDX-License-Identifier: MIT OR Apache-2.0
//! README's picture: CPU cost of RTP by a few paths, as bars. docs/measurements.md has more paths.

use std::fmt::Write;

use measure::report::number;
use measure::{Results, Row, SPREAD_MAX, Warning};

use crate::grid::{Marks, concerns, daggers};
use crate::measurements::{USUAL_BYTES, parameter};

/// Name, packets a call and a remark of each bar.
const BARS: &[(&str, &str, &str)] = &[
    ("read_writev", "", "read + writev, one datagram a call"),
    (
        "rtp_sendfile",
        "",
        "the data-paths paper's choice on a stock kernel (Halvorsen et al., 2007)",
    ),
    ("mmap_writev", "", ""),
    ("mmap_gso", SHORT_RUN, ""),
    ("mmap_gso", LONG_RUN, "until the wire image is made"),
    ("wire_sendfile", SHORT_RUN, ""),
    ("wire_sendfile", LONG_RUN, "no copy, one call for packets due together"),
];

/// Returns the picture of a measurement of `paths`; leaves out paths without a figure.
pub(crate) fn of(results: &Results) -> String {
    let mut text = NULL_DEVICE.to_owned();
    let bars = BARS.iter().filter_map(|&(name, segments, why)| {
        Some((name, segments, why, cpu_cost(results, name, segments)?))
    });
    let bars: Vec<_> = bars.collect();
    let doubts = results.warnings.iter().filter(|warning| {
        // Numbers only the warnings of these figures.
        bars.iter().any(|(.., row)| concerns(warning, row))
    });
    let doubts: Vec<Warning> = doubts.cloned().collect();
    let marks = Marks::of(&doubts);
    let medians = bars.iter().map(|(.., cpu_s_per_gb)| cpu_s_per_gb.figure.median);
    let most = medians.fold(f64::MIN_POSITIVE, f64::max);
    for &(name, segments, why, cpu_s_per_gb) in &bars {
        let length = ((cpu_s_per_gb.figure.median / most * BAR_CHARS).round() as usize).max(1);
        let segments = if segments.is_empty() { "1" } else { segments };
        let (value, bar) = (number(cpu_s_per_gb.figure.median), "█".repeat(length));
        let unit = format!("s/GB{}", marks.beside(cpu_s_per_gb));
        let line = format!("    {name:13} {segments:>2} per call  {value:>5} {unit:UNIT$}  {bar}");
        let line = if why.is_empty() { line } else { format!("{line:CHARS$}  {why}") };
        let _ = writeln!(text, "{line}");
    }
    let spread_most = bars.iter().map(|(.., row)| row.figure.spread).fold(0.0_f64, f64::max);
    let legend = marks.legend(&text);
    let Results { command, commit, taken, host, .. } = results;
    let doubt = if spread_most > SPREAD_MAX { ", with the warnings there" } else { "" };
    let _ = writeln!(
        text,
        "\n`{command}`: {}; commit {commit}, {taken}. Medians; spread at most {:.1} %{doubt}.",
        host.line(),
        spread_most * 100.0
    );
    if !legend.is_empty() {
        let _ = write!(text, "\n{legend}");
    }
    text.push('\n');
    daggers(&text)
}

/// Returns the CPU cost of a path into the sink for which the kernel segments; `segments` is empty
/// for a path that sends one packet a call.
fn cpu_cost<'a>(results: &'a Results, name: &str, segments: &str) -> Option<&'a Row> {
    results.rows.iter().find(|row| {
        row.member == name
            && row.metric == "CPU cost"
            && row.published.is_none()
            && parameter(row, "transport") == "rtp"
            && parameter(row, "bytes") == USUAL_BYTES
            && parameter(row, "sink") == SINK
            && parameter(row, "segments") == segments
    })
}

const SINK: &str = "ifb-software";
const SHORT_RUN: &str = "10";
const LONG_RUN: &str = "44";
const BAR_CHARS: f64 = 36.0;
/// Width of a line before the remark.
const CHARS: usize = 82;
/// Width of a unit with a mark.
const UNIT: usize = 7;
/// Text above the bars.
const NULL_DEVICE: &str = "
Measured into a null device: `ifb` drops each packet at its driver's entry. No card, no driver of a
card and no wire is in these figures.

";

#[test]
fn bars_are_as_long_as_the_cost() {
    let mut results = Results::new("paths", ["pagewire".to_owned()]);
    for (name, segments, cpu_s_per_gb) in
        [("read_writev", "", 2.0), ("wire_sendfile", LONG_RUN, 0.5)]
    {
        let figure = measure::Figure::of(vec![cpu_s_per_gb; 3]);
        let row = Row::new("paths", name, "CPU cost", "s/GB", figure);
        let row = row.with("transport", "rtp").with("bytes", USUAL_BYTES).with("sink", SINK);
        let row = if segments.is_empty() { row } else { row.with("segments", segments) };
        results.rows.push(row);
    }
    let text = of(&results);
    let bars: Vec<usize> = text.lines().map(|line| line.matches('█').count()).collect();
    assert_eq!(bars[4..6], [36, 9]);
    assert!(text.starts_with("\nMeasured into a null device"), "{text}");
    assert!(text.contains("wire_sendfile 44 per call  0.500 s/GB"), "{text}");
    assert!(
        !text.contains("mmap_gso") && text.contains("Medians; spread at most 0.0 %."),
        "{text}"
    );
}
