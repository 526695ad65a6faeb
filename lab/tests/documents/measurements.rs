// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/measurements.md: a section for each measurement file, in the order of the experiments.
//!
//! Host facts, command, commit, notes and warnings with cures are `measure::report::markdown`'s, as
//! are the tables at the usual size; what was measured over a parameter is a table with that
//! across.

use std::collections::BTreeMap;
use std::fmt::Write;

use lab::{EXPERIMENTS, Experiment};
use measure::report::markdown;
use measure::{Results, Row, Warning};

use crate::grid::{Marks, concerns, grid};
use crate::{claims, document, study};

/// All sections.
pub(crate) fn all() -> String {
    // Their tables stand in docs/kernel.md and docs/peers.md.
    let own = |experiment: &&Experiment| !["kernel", "peers"].contains(&experiment.name);
    let experiments = EXPERIMENTS.iter().filter(own);
    let measured = experiments.filter_map(|experiment| document::measured(experiment.name));
    measured.fold(String::new(), |text, results| format!("{text}\n{}", section(&results)))
}

/// That of an experiment.
pub(crate) fn section(results: &Results) -> String {
    match results.experiment.as_str() {
        "paths" => paths(results),
        "batch" => over(results, "segments", "packets a call"),
        "sessions" => sessions(results),
        "cold" => over(results, "read ahead", "who reads ahead"),
        "cipher" => ciphers(results),
        "copy" => copies(results),
        "receive" => received(results),
        "recording" => over(results, "streams", "streams"),
        "descriptors" => with_tables(results, BLOCKED),
        _ => markdown(results),
    }
}

fn paths(results: &Results) -> String {
    let is_shown = |row: &&Row| {
        let bytes = parameter(row, "bytes");
        let tcp = parameter(row, "transport") == "tcp";
        let quantity = row.metric == "CPU cost" || row.metric.starts_with("relative to ");
        let size = bytes == USUAL_BYTES || tcp && STEPS_SHOWN.contains(&bytes);
        row.published.is_none() && quantity && size
    };
    let over_sizes: Vec<&Row> = results.rows.iter().filter(|row| is_over_sizes(row)).collect();
    let mut shown = results.clone();
    shown.rows = results.rows.iter().filter(is_shown).cloned().collect();
    // Of figures that stand in no table the file has the warnings.
    shown.warnings.retain(|warning| match warning {
        Warning::NoisySpread { .. } => {
            let rows = shown.rows.iter().chain(over_sizes.iter().copied());
            let claimed = results.rows.iter().filter(|row| claims::is_shown(row));
            rows.chain(claimed).any(|row| concerns(warning, row))
        }
        _ => true,
    });
    let marks = Marks::of(&shown.warnings);
    let mut tables = String::new();
    for rows in grouped(&over_sizes, &["metric", "sink", "transport"]) {
        let first = rows[0];
        let (sink, transport) = (parameter(first, "sink"), parameter(first, "transport"));
        let what = if transport == "tcp" { "step" } else { "datagram" };
        let label = |row: &Row| named(&row.member, parameter(row, "segments"));
        let table = grid(&rows, ("bytes", LINE_POINTS_MIN), label, &marks);
        if !table.is_empty() {
            let metric = quantity(first);
            let _ = write!(tables, "\n### {metric}, by bytes of a {what} ({transport}, {sink})\n");
            let _ = write!(tables, "\n{table}");
        }
    }
    let _ = write!(tables, "\n### Claims and counts at {USUAL_BYTES} bytes\n");
    let _ = write!(tables, "\n{}", claims::table(results, &marks));
    let study = study::table(results, &marks);
    if !study.is_empty() {
        let _ = write!(tables, "\n### Beside the study\n\n{STUDY}\n\n{study}");
    }
    with_tables(&shown, &tables)
}

fn is_over_sizes(row: &Row) -> bool {
    let reference = if parameter(row, "transport") == "rtp" { "read_writev" } else { "read_write" };
    let ratio = row.metric.strip_prefix("relative to ").is_some_and(|name| name == reference);
    row.published.is_none() && (row.metric == "CPU cost" || ratio)
}

/// A table for each quantity and sink, the values of `axis` across.
fn over(results: &Results, axis: &str, words: &str) -> String {
    let marks = Marks::of(&results.warnings);
    let rows: Vec<&Row> = results.rows.iter().collect();
    let mut tables = String::new();
    for rows in grouped(&rows, &["metric", "sink"]) {
        let (metric, sink) = (quantity(rows[0]), parameter(rows[0], "sink"));
        let table = grid(&rows, (axis, 1), |row| named(&row.member, ""), &marks);
        let sink = if sink.is_empty() { String::new() } else { format!(" ({sink})") };
        let _ = write!(tables, "\n### {metric}, by {words}{sink}\n\n{table}");
    }
    with_tables(&Results { rows: Vec::new(), ..results.clone() }, &tables)
}

/// Throughputs and ratios by bytes of a message, a table for each direction, key size and number of
/// keys. A time is a size over a throughput.
fn ciphers(results: &Results) -> String {
    let marks = Marks::of(&results.warnings);
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.metric != "time").collect();
    let mut tables = String::new();
    for rows in grouped(&rows, &["direction", "cipher", "keys", "metric"]) {
        let (metric, cipher) = (quantity(rows[0]), parameter(rows[0], "cipher"));
        let (direction, keys) = (parameter(rows[0], "direction"), parameter(rows[0], "keys"));
        let keys = if keys == "own" { ", a key for each message" } else { "" };
        let label = |row: &Row| match parameter(row, "messages") {
            "1" => format!("`{}`, 1 message", row.member),
            messages => format!("`{}`, {messages} messages", row.member),
        };
        let table = grid(&rows, ("bytes", 1), label, &marks);
        let _ = write!(
            tables,
            "\n### {metric}, by bytes of a message ({direction} {cipher}{keys})\n\n{table}"
        );
    }
    with_tables(&Results { rows: Vec::new(), ..results.clone() }, &tables)
}

/// Throughputs and ratios by bytes, a table for each memory and placement; what has no size, or one
/// of its own, stands above them. A time is a size over a throughput.
fn copies(results: &Results) -> String {
    let marks = Marks::of(&results.warnings);
    let of_one_run = |row: &Row| row.parameters.contains_key("placement");
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.metric != "time").collect();
    let (sized, others): (Vec<&Row>, Vec<&Row>) =
        rows.into_iter().partition(|row| of_one_run(row) && row.parameters.contains_key("bytes"));
    let mut tables = String::new();
    for rows in grouped(&sized, &["metric", "memory", "placement"]) {
        let (metric, memory) = (quantity(rows[0]), parameter(rows[0], "memory"));
        let placement = parameter(rows[0], "placement");
        let table = grid(&rows, ("bytes", 1), |row| named(&row.member, ""), &marks);
        let _ =
            write!(tables, "\n### {metric}, by bytes of a copy ({memory}, {placement})\n\n{table}");
    }
    let others = others.into_iter().cloned().collect();
    with_tables(&Results { rows: others, ..results.clone() }, &tables)
}

/// By bytes of a datagram for one stream, by streams at the usual size, and by what was offered.
fn received(results: &Results) -> String {
    let marks = Marks::of(&results.warnings);
    let offered = |row: &&Row| row.parameters.contains_key("offered");
    let one = |row: &&Row| parameter(row, "streams") == "1";
    let (rated, others): (Vec<&Row>, Vec<&Row>) = results.rows.iter().partition(offered);
    let (sized, _): (Vec<&Row>, Vec<&Row>) = others.iter().copied().partition(one);
    let usual: Vec<&Row> =
        others.iter().filter(|row| parameter(row, "bytes") == USUAL_BYTES).copied().collect();
    let mut tables = String::new();
    for (rows, axis, words) in [
        (sized, "bytes", "bytes of a datagram, one stream"),
        (usual, "streams", "streams, 1328 bytes"),
        (rated, "offered", "packets offered a millisecond, 16 streams of 1328 bytes"),
    ] {
        for rows in grouped(&rows, &["metric", "sender"]) {
            let (metric, sender) = (quantity(rows[0]), parameter(rows[0], "sender"));
            let table = grid(&rows, (axis, 1), |row| named(&row.member, ""), &marks);
            let _ = write!(tables, "\n### {metric}, by {words} (sender: {sender})\n\n{table}");
        }
    }
    with_tables(&Results { rows: Vec::new(), ..results.clone() }, &tables)
}

/// Every quantity of a number of sessions in its column; a table for each set of other parameters,
/// and above it what was found of them all.
fn sessions(results: &Results) -> String {
    let marks = Marks::of(&results.warnings);
    let others = |row: &Row| -> BTreeMap<String, String> {
        let mut others = row.parameters.clone();
        others.remove("sessions");
        others
    };
    let label = |row: &Row| format!("{}: {}", row.member, quantity(row));
    let (points, of_all): (Vec<&Row>, Vec<&Row>) =
        results.rows.iter().partition(|row| row.parameters.contains_key("sessions"));
    let mut kinds: Vec<BTreeMap<String, String>> = Vec::new();
    for kind in points.iter().map(|row| others(row)) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut tables = String::new();
    for kind in kinds {
        let pairs = kind.iter().map(|(name, value)| format!("{name}={value}"));
        let _ = write!(tables, "\n### {}\n\n", pairs.collect::<Vec<_>>().join(", "));
        let is_in =
            |row: &&&Row| row.parameters.iter().all(|(name, value)| kind.get(name) == Some(value));
        for row in of_all.iter().filter(is_in) {
            let _ = write!(tables, "{}: {}\n\n", label(row), marks.cell(row));
        }
        let rows: Vec<&Row> = points.iter().filter(|row| others(row) == kind).copied().collect();
        tables.push_str(&grid(&rows, ("sessions", 1), label, &marks));
    }
    with_tables(&Results { rows: Vec::new(), ..results.clone() }, &tables)
}

/// The report, with more tables behind its own: before the warnings and the facts.
pub(crate) fn with_tables(results: &Results, tables: &str) -> String {
    let report = markdown(results);
    let rest = report.find("\n### Warnings\n").or_else(|| report.find("\n| | |\n|---|---|\n"));
    let (own, rest) = report.split_at(rest.expect("a report has facts"));
    format!("{own}{tables}{rest}")
}

/// Rows that agree in these, in their order; `metric` is the row's, the others parameters.
fn grouped<'a>(rows: &[&'a Row], keys: &[&str]) -> Vec<Vec<&'a Row>> {
    let key = |row: &'a Row| -> Vec<&'a str> {
        let of = |name: &&str| match *name {
            "metric" => row.metric.as_str(),
            name => parameter(row, name),
        };
        keys.iter().map(of).collect()
    };
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| key(group[0]) == key(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// A path, and how many packets its calls carry where that is said.
pub(crate) fn named(member: &str, segments: &str) -> String {
    match segments {
        "" => format!("`{member}`"),
        segments => format!("`{member}`, {segments} a call"),
    }
}

/// A row's parameter; empty where it has none of that name.
pub(crate) fn parameter<'a>(row: &'a Row, name: &str) -> &'a str {
    row.parameters.get(name).map_or("", String::as_str)
}

fn quantity(row: &Row) -> String {
    match row.unit.as_str() {
        "" => row.metric.clone(),
        unit => format!("{}, {unit}", row.metric),
    }
}

/// Below the tables of descriptors; files of before 2026-11-22 have both under one name.
const BLOCKED: &str = "
The *share blocked by store forwarding* of what was measured here is derived from times: of the
fault's time, what the remedy does not take. The published shares are a counter of cycles, read by
VTune; they are another quantity.
";
/// 12 bytes of RTP and 7 packets of transport stream: the size that tables are made for.
pub(crate) const USUAL_BYTES: &str = "1328";
/// Steps of a download that are shown with their ratios: a packet, a socket's buffer, the most.
const STEPS_SHOWN: &[&str] = &[USUAL_BYTES, "131072", "1048576"];
const LINE_POINTS_MIN: usize = 3;
const STUDY: &str = "Its processor was a Pentium 4, its kernel a Linux 2.6, its packets as long \
as an Ethernet frame carries, and it sent by a real card: ratios can be compared, figures in Gb/s \
show the years between. Paths with † took a changed kernel; beside them stands what comes nearest \
in a stock one.";

#[test]
fn tables_stand_before_warnings_and_facts() {
    let mut results = Results::new("batch", ["pagewire".to_owned()]);
    let row = |segments: u32, samples: [f64; 3]| {
        let figure = measure::Figure::of(samples.to_vec());
        let row = Row::new("batch", "mmap_gso", "CPU cost", "s/GB", figure);
        row.with("segments", segments).with("sink", "veth")
    };
    results.rows = vec![row(1, [2.0, 2.0, 2.0]), row(10, [1.0, 2.0, 3.0])];
    results.warnings = Warning::of_rows(&results.rows);
    let text = over(&results, "segments", "packets a call");
    let table = "### CPU cost, s/GB, by packets a call (veth)\n\n| segments | 1 | 10 |\n\
                 |---|--:|--:|\n| `mmap_gso` | 2.00 | 2.00 !1 |\n\n### Warnings\n";
    assert!(text.contains(table), "{text}");
    results.warnings.clear();
    let text = over(&results, "segments", "packets a call");
    assert!(text.contains("| 2.00 |\n\n| | |\n|---|---|\n| command | pagewire |\n"), "{text}");
}

#[test]
fn sessions_stand_across_and_other_parameters_apart() {
    let row = |metric: &str, unit: &str, value: f64, cores: u32, sessions: u32| {
        let figure = measure::Figure::of(vec![value; 5]);
        let row = Row::new("sessions", "server", metric, unit, figure);
        row.with("cores", cores).with("sessions", sessions)
    };
    let mut results = Results::new("sessions", []);
    results.rows = vec![
        row("CPU cost", "s/GB", 0.5, 1, 500),
        row("CPU cost", "s/GB", 0.6, 1, 100),
        row("late, most", "ms", 3.0, 1, 100),
        row("CPU cost", "s/GB", 0.7, 2, 500),
    ];
    let figure = measure::Figure::of(vec![500.0]);
    let most = Row::new("sessions", "server", "most timely", "sessions", figure);
    results.rows.push(most.with("cores", 1));
    let text = sessions(&results);
    let table = "\n### cores=1\n\nserver: most timely, sessions: 500\n\n\
                 | sessions | 100 | 500 |\n|---|--:|--:|\n\
                 | server: CPU cost, s/GB | 0.600 | 0.500 |\n| server: late, most, ms | 3.00 |  |\n\
                 \n### cores=2\n";
    assert!(text.contains(table), "{text}");
}

#[test]
fn ciphers_stand_by_direction_and_size_with_their_numbers_of_messages() {
    let row = |member: &str, metric: &str, unit: &str, messages: u32, value: f64| {
        let row = Row::new("cipher", member, metric, unit, measure::Figure::of(vec![value; 5]));
        let row = row.with("direction", "encrypt").with("cipher", "AES-128").with("keys", "own");
        row.with("messages", messages).with("bytes", 16_384)
    };
    let mut results = Results::new("cipher", []);
    results.rows = vec![
        row("openssl", "throughput", "GB/s", 1, 1.4),
        row("vaes512", "throughput", "GB/s", 16, 11.0),
        row("vaes512", "relative to openssl", "times", 16, 7.9),
        row("vaes512", "time", "ns", 16, 1489.0),
    ];
    let text = ciphers(&results);
    let table = "\n### throughput, GB/s, by bytes of a message (encrypt AES-128, a key for each \
                 message)\n\n| bytes | 16384 |\n|---|--:|\n| `openssl`, 1 message | 1.40 |\n\
                 | `vaes512`, 16 messages | 11.0 |\n";
    assert!(text.contains(table), "{text}");
    assert!(text.contains("relative to openssl, times") && !text.contains("1489"), "{text}");
}
