// SPDX-License-Identifier: MIT OR Apache-2.0
//! README's picture: CPU cost of RTP by a few paths, as bars and as a table.
//!
//! All paths, sizes and sinks are in docs/measurements.md.

use std::fmt::Write;

use measure::report::number;
use measure::{Results, Row, SPREAD_MAX, Warning};
use paths::{PATHS, Spec, Transport};

use crate::grid::{Marks, concerns};
use crate::measurements::{USUAL_BYTES, parameter};

/// What the bars show, and why it is worth a line.
const BARS: &[(&str, &str, &str)] = &[
    ("read_writev", "", "read + writev, one datagram a call"),
    ("rtp_sendfile", "", "the choice of the data-paths paper on a stock kernel"),
    ("mmap_writev", "", ""),
    ("mmap_gso", SHORT_RUN, ""),
    ("mmap_gso", LONG_RUN, "until the wire image is made"),
    ("wire_sendfile", SHORT_RUN, ""),
    ("wire_sendfile", LONG_RUN, "no copy, one call a run"),
];

/// Of a measurement of `paths`; what it has no figure of is left out.
pub(crate) fn of(results: &Results) -> String {
    let mut text = NULL_DEVICE.to_owned();
    let doubts = doubts(results);
    let marks = Marks::of(&doubts);
    let cpu_s_per_gb = |name, segments| Figures::of(results, name, segments, SOFTWARE);
    let bars = BARS.iter().filter_map(|(name, segments, why)| {
        Some((name, segments, why, cpu_s_per_gb(name, segments)?.cpu_s_per_gb))
    });
    let bars: Vec<_> = bars.collect();
    let medians = bars.iter().map(|(.., cpu_s_per_gb)| cpu_s_per_gb.figure.median);
    let most = medians.fold(f64::MIN_POSITIVE, f64::max);
    for (name, segments, why, cpu_s_per_gb) in bars {
        let length = ((cpu_s_per_gb.figure.median / most * BAR_CHARS).round() as usize).max(1);
        let segments = if segments.is_empty() { "1" } else { segments };
        let (value, bar) = (number(cpu_s_per_gb.figure.median), "█".repeat(length));
        let unit = format!("s/GB{}", marks.beside(cpu_s_per_gb));
        let line = format!("    {name:13} {segments:>2} a call  {value:>5} {unit:UNIT$}  {bar}");
        let line = if why.is_empty() { line } else { format!("{line:CHARS$}  {why}") };
        let _ = writeln!(text, "{line}");
    }
    let mut spread_most = 0.0_f64;
    text.push_str(HEAD);
    let is_drawn = |spec: &&&Spec| BARS.iter().any(|(name, ..)| *name == spec.name);
    let rtp = PATHS.iter().filter(|spec| spec.transport == Transport::Rtp);
    for spec in rtp.filter(is_drawn) {
        line(&mut text, results, spec, &marks, &mut spread_most);
    }
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
    text
}

/// The warnings of figures that may stand here, so that marks are numbered from 1.
fn doubts(results: &Results) -> Vec<Warning> {
    let may_stand = |row: &&Row| {
        let of = |name, value| parameter(row, name) == value;
        of("transport", "rtp") && of("bytes", USUAL_BYTES) && of_a_sink(row)
    };
    let rows: Vec<&Row> = results.rows.iter().filter(may_stand).collect();
    let of_rows = |warning: &&Warning| rows.iter().any(|row| concerns(warning, row));
    results.warnings.iter().filter(of_rows).cloned().collect()
}

fn of_a_sink(row: &Row) -> bool {
    [SOFTWARE, DEVICE].contains(&parameter(row, "sink"))
}

/// A path's line: as many packets a call as it can carry, the kernel segmenting and the device.
fn line(
    text: &mut String,
    results: &Results,
    spec: &Spec,
    marks: &Marks<'_>,
    spread_most: &mut f64,
) {
    let both = [SOFTWARE, DEVICE].map(|sink| {
        let long = Figures::of(results, spec.name, LONG_RUN, sink);
        long.or_else(|| Figures::of(results, spec.name, "", sink))
    });
    let Some(counted) = both.iter().flatten().next() else { return };
    let (copies, calls) = (marks.cell(counted.copies), marks.cell(counted.calls));
    let _ = write!(text, "| `{}` | {copies} | {calls} |", spec.name);
    for figures in &both {
        let values = match figures {
            Some(Figures { cpu_s_per_gb, relative, carries, .. }) => {
                let shown = [*cpu_s_per_gb, *relative, *carries];
                let spreads = shown.iter().map(|row| row.figure.spread);
                *spread_most = spreads.fold(*spread_most, f64::max);
                shown.map(|row| marks.cell(row))
            }
            None => [const { String::new() }; 3],
        };
        values.iter().for_each(|value| text.push_str(&format!(" {value} |")));
    }
    text.push('\n');
}

/// The rows that are shown of a path into one sink.
struct Figures<'a> {
    cpu_s_per_gb: &'a Row,
    /// To the CPU cost of `read_writev`.
    relative: &'a Row,
    /// Gb/s a core.
    carries: &'a Row,
    calls: &'a Row,
    copies: &'a Row,
}

impl<'a> Figures<'a> {
    /// `segments` is empty for a path of a packet a call.
    fn of(results: &'a Results, name: &str, segments: &str, sink: &str) -> Option<Figures<'a>> {
        let mut at = vec![("transport", "rtp"), ("bytes", USUAL_BYTES), ("sink", sink)];
        if !segments.is_empty() {
            at.push(("segments", segments));
        }
        let is = |row: &&Row| {
            row.member == name
                && row.published.is_none()
                && at.iter().all(|(name, value)| parameter(row, name) == *value)
        };
        let find = |metric: &str| results.rows.iter().filter(is).find(|row| row.metric == metric);
        Some(Figures {
            cpu_s_per_gb: find("CPU cost")?,
            relative: find("relative to read_writev")?,
            carries: find("a core carries")?,
            calls: find("calls")?,
            copies: find("copies")?,
        })
    }
}

const SOFTWARE: &str = "ifb-software";
const DEVICE: &str = "ifb-device";
const SHORT_RUN: &str = "10";
const LONG_RUN: &str = "44";
const BAR_CHARS: f64 = 36.0;
/// Before the remark.
const CHARS: usize = 80;
/// Of a unit with a mark.
const UNIT: usize = 7;
/// Above the bars.
const NULL_DEVICE: &str = "
Measured into a null device: `ifb` drops each packet at its driver's entry. No card, no driver of a
card and no wire is in these figures.

";
const HEAD: &str = "
| path | copies a byte | calls a packet | kernel segments: s/GB | to `read_writev` | Gb/s a core | \
device segments: s/GB | to `read_writev` | Gb/s a core |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
";

#[test]
fn bars_are_as_long_as_the_cost() {
    let mut results = Results::new("paths", ["pagewire".to_owned()]);
    for (name, segments, cpu_s_per_gb) in
        [("read_writev", "", 2.0), ("wire_sendfile", LONG_RUN, 0.5)]
    {
        for (metric, value) in [
            ("CPU cost", cpu_s_per_gb),
            ("relative to read_writev", cpu_s_per_gb / 2.0),
            ("a core carries", 8.0 / cpu_s_per_gb),
            ("calls", 1.0),
            ("copies", 0.0),
        ] {
            let row = Row::new("paths", name, metric, "", measure::Figure::of(vec![value; 3]));
            let row = row.with("transport", "rtp").with("bytes", USUAL_BYTES);
            let row = row.with("sink", SOFTWARE);
            results.rows.push(if segments.is_empty() {
                row
            } else {
                row.with("segments", segments)
            });
        }
    }
    let text = of(&results);
    let bars: Vec<usize> = text.lines().map(|line| line.matches('█').count()).collect();
    assert_eq!(bars[4..6], [36, 9]);
    assert!(text.starts_with("\nMeasured into a null device"), "{text}");
    assert!(!text.contains("most servers"), "a claim without a source");
    assert!(
        text.contains("| `wire_sendfile` | 0 | 1.00 | 0.500 | 0.250 | 16.0 |  |  |  |"),
        "{text}"
    );
    assert!(
        !text.contains("mmap_gso") && text.contains("Medians; spread at most 0.0 %."),
        "{text}"
    );
}
