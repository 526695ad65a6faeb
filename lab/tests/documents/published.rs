// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of the data-paths paper's figures, beside those measured here of the same path or of the
//! nearest path of a stock kernel.
//!
//! Sources: Halvorsen, Dalseng and Griwodz, 2007, table 1 (each path); `lab/src/published.rs`
//! (the published numbers).

use std::fmt::Write;

use measure::report::number;
use measure::{Figure, Results, Row, Warning};

use crate::grid::Marks;
use crate::measurements::{USUAL_BYTES, named, parameter};

/// The paper's paths that need a changed kernel, each with the nearest paths of a stock kernel: as
/// many copies, and as few system calls as a stock kernel allows for them.
const NEAREST: &[(&str, &[&str])] = &[
    ("krtpsendfile", &["wire_sendfile"]),
    ("krtpmsend", &["mmap_gso", "uring_zc"]),
    ("rtpsendfile", &["more_sendfile"]),
    ("mmap_rtpmsend", &["mmap_writev"]),
    ("ksendfile", &["sendfile_gso"]),
];

/// Returns the table; empty where the file has no published values.
pub(crate) fn table(results: &Results, marks: &Marks<'_>) -> String {
    let published: Vec<&Row> = results.rows.iter().filter(|row| row.published.is_some()).collect();
    let sinks = sinks(results);
    if published.is_empty() || sinks.is_empty() {
        return String::new();
    }
    let mut text = "| paper | | published | here |".to_owned();
    sinks.iter().for_each(|sink| text.push_str(&format!(" {sink} |")));
    text.push_str(" where published |\n|---|---|--:|---|");
    text.push_str(&"--:|".repeat(sinks.len()));
    text.push_str("---|\n");
    for row in published {
        let nearest = NEAREST.iter().find(|(member, _)| *member == row.member);
        let changed = if nearest.is_some() { "†" } else { "" };
        let own = [row.member.as_str()];
        let nearest = nearest.map_or(&[][..], |(_, nearest)| nearest);
        let names = own.iter().chain(nearest);
        for (name, segments) in names.filter_map(|name| longest(results, row, name)) {
            let here = named(name, segments);
            let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", row.unit) };
            let value = number(row.figure.median);
            let _ = write!(
                text,
                "| {}{changed} | {}{unit} | {value} | {here} |",
                row.member, row.metric
            );
            for sink in &sinks {
                let figure = measured(results, row, (name, segments), sink);
                let value = figure.map(|(figure, of)| {
                    format!("{}{}", number(figure.median), marks.beside_all(&of))
                });
                let value = value.unwrap_or_default();
                let _ = write!(text, " {value} |");
            }
            let _ = writeln!(text, " {} |", row.published.as_deref().unwrap_or_default());
        }
    }
    text
}

/// Returns the sinks that received datagrams of the usual size.
fn sinks(results: &Results) -> Vec<&str> {
    let mut sinks = Vec::new();
    for row in cpu_costs(results).filter(|row| parameter(row, "transport") == "rtp") {
        let sink = parameter(row, "sink");
        if !sinks.contains(&sink) {
            sinks.push(sink);
        }
    }
    sinks
}

/// Returns the path with its largest measured number of packets a call; none where it was not
/// measured.
fn longest<'a>(results: &'a Results, like: &Row, name: &'a str) -> Option<(&'a str, &'a str)> {
    let rows = cpu_costs(results).filter(|row| is_like(row, like, name));
    let segments = rows.map(|row| parameter(row, "segments"));
    let most = segments.max_by_key(|segments| segments.parse::<u32>().unwrap_or(1))?;
    Some((name, most))
}

/// Returns the same quantity of a path measured here: the rate that a core carries, or the ratio to
/// another path's CPU cost, round by round; and the CPU costs that it is computed from.
fn measured<'a>(
    results: &'a Results,
    like: &Row,
    (name, segments): (&str, &str),
    sink: &str,
) -> Option<(Figure, Vec<&'a Row>)> {
    let at = |row: &&Row| parameter(row, "sink") == sink && parameter(row, "segments") == segments;
    let mut of_path = cpu_costs(results).filter(|row| is_like(row, like, name)).filter(at);
    let path = of_path.next()?;
    let cpu_s_per_gb = &path.figure;
    let Some(other) = like.metric.strip_prefix("relative to ") else {
        let carries =
            cpu_s_per_gb.samples.iter().map(|cpu_s_per_gb| GIGABITS / cpu_s_per_gb).collect();
        return Some((Figure::of(carries), vec![path]));
    };
    let is_other = |row: &&Row| {
        row.member == other
            && parameter(row, "transport") == "rtp"
            && parameter(row, "sink") == sink
    };
    let other = cpu_costs(results).find(is_other)?;
    Some((cpu_s_per_gb.relative_to(&other.figure)?, vec![path, other]))
}

fn is_like(row: &Row, like: &Row, name: &str) -> bool {
    row.member == name && parameter(row, "transport") == parameter(like, "transport")
}

fn cpu_costs(results: &Results) -> impl Iterator<Item = &Row> {
    let usual = |row: &&Row| parameter(row, "bytes") == USUAL_BYTES;
    let cpu_costs =
        results.rows.iter().filter(|row| row.metric == "CPU cost" && row.published.is_none());
    cpu_costs.filter(usual)
}

/// Title of the table.
pub(crate) const TITLE: &str = "The data-paths paper's figures and those of here. The paper's were \
taken on a Pentium 4 with Linux 2.6 and a real card, so compare ratios rather than Gb/s. A path \
with † needs a changed kernel; beside it stands the nearest path of a stock kernel";
const GIGABITS: f64 = 8.0;

#[test]
fn a_published_value_stands_beside_the_nearest_path() {
    let cpu_s_per_gb = |member: &str, samples: [f64; 3], segments: Option<u32>| {
        let figure = Figure::of(samples.to_vec());
        let row = Row::new("paths", member, "CPU cost", "s/GB", figure).with("transport", "rtp");
        let row = row.with("bytes", USUAL_BYTES).with("sink", "ifb-software");
        match segments {
            Some(segments) => row.with("segments", segments),
            None => row,
        }
    };
    let published = |metric: &str, unit: &str| {
        let row = Row::new("paths", "krtpsendfile", metric, unit, Figure::published(0.73));
        let row = row.with("transport", "rtp");
        Row { published: Some("section 4".to_owned()), ..row }
    };
    let mut results = Results::new("paths", []);
    results.rows = vec![
        cpu_s_per_gb("rtp_sendfile", [4.0, 8.0, 2.0], None),
        cpu_s_per_gb("wire_sendfile", [1.0, 2.0, 0.5], Some(10)),
        published("relative to rtp_sendfile", ""),
        published("a core carries", "Gb/s"),
    ];
    let text = table(&results, &Marks::of(&[]));
    let ratio = "| krtpsendfile† | relative to rtp_sendfile | 0.730 | `wire_sendfile`, 10 a call | \
                 0.250 | section 4 |\n";
    assert!(text.contains(ratio), "{text}");
    assert!(text.contains("| a core carries, Gb/s | 0.730 | `wire_sendfile`, 10 a call | 8.00 |"));
    assert!(!text.contains("`krtpsendfile`"), "not measured: {text}");
    results.rows.push(cpu_s_per_gb("krtpsendfile", [2.0, 4.0, 1.0], Some(10)));
    let text = table(&results, &Marks::of(&[]));
    let itself = ratio.replace("`wire_sendfile`", "`krtpsendfile`").replace("0.250", "0.500");
    assert!(text.contains(&format!("{itself}{ratio}")), "{text}");
    let warnings = Warning::of_rows(&results.rows);
    assert_eq!(warnings.len(), 3 + 1, "each CPU cost's spread, and that the samples are few");
    results.warnings = warnings;
    results.warnings.retain(|warning| match warning {
        Warning::NoisySpread { member, .. } => member == "rtp_sendfile",
        _ => false,
    });
    let marked = table(&results, &Marks::of(&results.warnings));
    assert!(marked.contains("`wire_sendfile`, 10 a call | 0.250 !1 |"), "{marked}");
    assert!(marked.contains("`wire_sendfile`, 10 a call | 8.00 |"), "{marked}");
}
