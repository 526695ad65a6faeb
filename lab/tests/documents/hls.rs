// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/peers.md: segments and playlists beside plain ranges and nginx, from hls.json.
//!
//! A table for each quantity, with a line for each part and member and a column for each number of
//! connections.
//! Contains no figure of another run or machine.

use std::fmt::Write;

use measure::{Results, Row};

use crate::grid::{Marks, grid};
use crate::measurements::{parameter, with_tables};

/// Titles and metrics of the tables.
const TABLES: &[(&str, &[&str])] = &[
    ("Processor time of the server for an answer, µs", &["CPU time of a request"]),
    (
        "The same of a plain range request of as many bytes",
        &["CPU time of a request, of plain ranges"],
    ),
    (
        "The same of nginx",
        &["CPU time of a request, of nginx", "CPU time of a request, of nginx_open_file_cache"],
    ),
    (
        "The same with the client's time, a byte, of plain ranges and of nginx",
        &["CPU cost, both ends, of plain ranges", "CPU cost, both ends, of nginx"],
    ),
    (
        "Viewers of 5 Mb/s that a core of the server would serve, and how many that is of nginx",
        &["viewers a core", "viewers a core, of nginx"],
    ),
    ("Viewers that stalled", &["viewers that stalled"]),
    ("Bytes copied by pagewire for each byte of media", &["copies"]),
];

/// Returns the part of docs/peers.md.
pub(crate) fn tables(results: &Results) -> String {
    let marks = Marks::of(&results.warnings);
    let mut text = String::new();
    for (title, metrics) in TABLES {
        let has = |row: &&Row| metrics.contains(&row.metric.as_str());
        let rows: Vec<&Row> = results.rows.iter().filter(has).collect();
        if rows.is_empty() {
            continue;
        }
        let line = |row: &Row| {
            let reference = row.metric.rsplit_once(", of ").map_or("", |(_, name)| name);
            match reference {
                "" => format!("{}, `{}`", parameter(row, "part"), row.member),
                name => format!("{}, of {name}", parameter(row, "part")),
            }
        };
        let made = grid(&rows, "connections", line, &marks);
        let _ = write!(text, "\n{title}:\n\n{made}");
    }
    with_tables(&Results { rows: Vec::new(), ..results.clone() }, &text)
}

#[test]
fn every_part_has_a_line_for_each_reference() {
    let mut results = Results::new("hls", ["pagewire".to_owned()]);
    for (metric, value) in [
        ("CPU time of a request", 800.0),
        ("CPU time of a request, of plain ranges", 1.5),
        ("CPU time of a request, of nginx", 0.5),
    ] {
        let figure = measure::Figure::of(vec![value; 5]);
        let row = Row::new("hls", "pagewire", metric, "", figure);
        results.rows.push(row.with("part", "together").with("connections", 64));
    }
    let text = tables(&results);
    assert!(
        text.contains("| connections | 64 |\n|---|--:|\n| together, `pagewire` | 800 |"),
        "{text}"
    );
    assert!(text.contains("| together, of plain ranges | 1.50 |"), "{text}");
    assert!(text.contains("| together, of nginx | 0.500 |"), "{text}");
}
