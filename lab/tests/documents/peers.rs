// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/peers.md and README's headline: pagewire beside other servers, from peers.json.
//!
//! Contains no figure of another run or machine: all lines of a table are from one run.

use std::fmt::Write;

use measure::{Results, Row};

use crate::grid::{Marks, daggers};
use crate::measurements::{parameter, with_tables};

/// Returns the tables of docs/peers.md.
pub(crate) fn tables(results: &Results) -> String {
    let marks = Marks::of(&results.warnings);
    let mut text = format!("\n### Streams: {} sessions each\n\n", number_of_sessions(results));
    let columns = [
        (SAME, CPU_COST),
        (SAME, "memory a session"),
        (SAME, "late, median"),
        (SAME, "late, 99 %"),
        (SAME, "late, most"),
        (SAME, "rate of a session"),
        ("", MOST_TIMELY),
        (MOST, CPU_COST),
        (MOST, "memory a session"),
    ];
    let titles = [
        "CPU s/GB",
        "KiB a session",
        "late, median, ms",
        "late, 99 %, ms",
        "late, most, ms",
        "Mb/s a session",
        "timely sessions a core",
        "CPU s/GB with as many",
        "KiB a session with as many",
    ];
    let is_tcp = |row: &Row| parameter(row, "transport") == "tcp";
    for (title, wanted) in
        [("", false), ("\n### The same over TCP, on the RTSP connection\n\n", true)]
    {
        let rows = results.rows.iter().filter(|row| is_tcp(row) == wanted).cloned();
        let of_transport = Results { rows: rows.collect(), ..results.clone() };
        if of_transport.rows.is_empty() {
            continue;
        }
        let cells = |member: &str| {
            let of =
                |(which, metric)| cell(&of_transport, &marks, member, metric, ("number", which));
            columns.map(of)
        };
        text.push_str(title);
        table(&mut text, &titles, &of_transport, cells);
    }
    for bytes in sizes(results) {
        let _ = write!(text, "\n### Downloads of {bytes} bytes\n\n");
        let columns = ["requests", "CPU time of a request", CPU_COST, "client's core"];
        let titles = ["requests a second", "CPU µs a request", "CPU s/GB", "client's core, of 1"];
        let cells = |member: &str| {
            columns.map(|metric| cell(results, &marks, member, metric, ("bytes", &bytes)))
        };
        table(&mut text, &titles, results, cells);
    }
    with_tables(&Results { rows: Vec::new(), ..results.clone() }, &text)
}

/// Returns README's headline: the number of timely sessions on a core, and the server's CPU cost.
/// Servers have the names of their projects, and a figure with a warning has a dagger.
pub(crate) fn headline(results: &Results) -> String {
    let marks = Marks::of(&results.warnings);
    let mut text = "\n".to_owned();
    let titles = ["sessions of 5 Mb/s on one core without late packets", "CPU s/GB"];
    let cells = |member: &str| {
        [
            cell(results, &marks, member, MOST_TIMELY, ("number", "")),
            cell(results, &marks, member, CPU_COST, ("number", SAME)),
        ]
    };
    table(&mut text, &titles, results, cells);
    let legend = marks.legend(&text);
    for (member, project) in PROJECTS {
        text = text.replace(&format!("| {member} |"), &format!("| {project} |"));
    }
    let Results { command, commit, taken, host, .. } = results;
    let _ = write!(
        text,
        "\nRTP over loopback, where the sender is charged for receiving too; CPU s/GB with {} \
         sessions each. The servers do different work: a shared pipeline and ffmpeg read the file \
         once for all clients, multicat and ffmpeg push to fixed ports without RTSP. All figures: \
         [docs/peers.md](docs/peers.md).\n\n`{command}`: {}; commit {commit}, {taken}.\n",
        number_of_sessions(results),
        host.line(),
    );
    if !legend.is_empty() {
        let _ = write!(text, "\n{legend}");
    }
    text.push('\n');
    daggers(&text)
}

/// Appends a line for each member that has one of these figures.
fn table<const COLUMNS: usize>(
    text: &mut String,
    titles: &[&str; COLUMNS],
    results: &Results,
    cells: impl Fn(&str) -> [String; COLUMNS],
) {
    let _ = writeln!(text, "| | {} |", titles.join(" | "));
    let _ = writeln!(text, "|---|{}", "--:|".repeat(COLUMNS));
    for member in members(results) {
        let cells = cells(member);
        if cells.iter().any(|cell| !cell.is_empty()) {
            let _ = writeln!(text, "| {member} | {} |", cells.join(" | "));
        }
    }
}

/// Returns the figure of a member whose parameter has that value; empty where there is none.
fn cell(
    results: &Results,
    marks: &Marks<'_>,
    member: &str,
    metric: &str,
    (name, value): (&str, &str),
) -> String {
    let is =
        |row: &&Row| row.member == member && row.metric == metric && parameter(row, name) == value;
    results.rows.iter().find(is).map(|row| marks.cell(row)).unwrap_or_default()
}

/// Returns the members in the order of their first rows.
fn members(results: &Results) -> Vec<&str> {
    let mut members: Vec<&str> = Vec::new();
    for row in &results.rows {
        if !members.contains(&row.member.as_str()) {
            members.push(&row.member);
        }
    }
    members
}

fn sizes(results: &Results) -> Vec<String> {
    let mut sizes: Vec<u64> =
        results.rows.iter().filter_map(|row| parameter(row, "bytes").parse().ok()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.iter().map(u64::to_string).collect()
}

fn number_of_sessions(results: &Results) -> &str {
    let row = results.rows.iter().find(|row| parameter(row, "number") == SAME);
    row.map_or("no", |row| parameter(row, "sessions"))
}

/// Members of the experiment, by the names under which their projects are known.
const PROJECTS: &[(&str, &str)] = &[
    ("gstreamer_own", "GStreamer, a pipeline for each client"),
    ("gstreamer_shared", "GStreamer, one pipeline for all"),
    ("live555", "live555"),
    ("mediamtx", "MediaMTX"),
    ("multicat", "multicat"),
    ("ffmpeg", "ffmpeg"),
];
const CPU_COST: &str = "CPU cost";
const MOST_TIMELY: &str = "timely sessions a core";
/// Values of the parameter `number`.
const SAME: &str = "the same for all";
const MOST: &str = "most timely";

#[test]
fn figures_of_all_peers_stand_in_both_documents() {
    let mut results = Results::new("peers", ["pagewire".to_owned()]);
    let mut push = |member: &str, metric: &str, value: f64, parameters: &[(&str, &str)]| {
        let figure = measure::Figure::of(vec![value; 5]);
        let row = Row::new("peers", member, metric, "", figure);
        let row = parameters.iter().fold(row, |row, (name, value)| row.with(name, value));
        results.rows.push(row);
    };
    for (member, most, cost) in [("pagewire", 3072.0, 0.61), ("gstreamer_own", 68.0, 23.0)] {
        push(member, MOST_TIMELY, most, &[]);
        push(member, CPU_COST, cost, &[("number", SAME), ("sessions", "40")]);
        push(member, CPU_COST, cost * 0.9, &[("number", MOST), ("sessions", "64")]);
    }
    push("nginx", "requests", 31_000.0, &[("bytes", "1000")]);
    push("nginx", CPU_COST, 29.0, &[("bytes", "1000")]);
    let headline = headline(&results);
    assert!(headline.contains(
        "| pagewire | 3072 | 0.610 |\n| GStreamer, a pipeline for each client | 68.0 | 23.0 |\n"
    ));
    assert!(headline.contains("CPU s/GB with 40 sessions each"), "{headline}");
    assert!(!headline.contains("nginx"), "{headline}");
    let tables = tables(&results);
    assert!(tables.contains("| pagewire | 0.610 |  |  |  |  |  | 3072 | 0.549 |  |"), "{tables}");
    assert!(tables.contains("### Downloads of 1000 bytes"), "{tables}");
    assert!(tables.contains("| nginx | 31000 |  | 29.0 |  |"), "{tables}");
}
