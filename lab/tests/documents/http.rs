// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/peers.md: files over HTTP beside nginx, from http.json.
//!
//! A table for each quantity and size, with a line for each server and a column for each number of
//! connections: the parameters of an experiment that has three.
//! Contains no figure of another run or machine.

use std::fmt::Write;

use measure::{Results, Row};

use crate::grid::{Marks, grid, value};
use crate::measurements::{parameter, with_tables};

/// A table of one part.
struct Table {
    title: &'static str,
    part: &'static str,
    metrics: &'static [&'static str],
    columns: &'static str,
}

const TABLES: &[Table] = &[
    Table {
        title: "Small files: requests a second of the server's processor time",
        part: "small",
        metrics: &["requests of a core"],
        columns: "connections",
    },
    Table {
        title: "Small files: time to a whole response, 99 %, ms",
        part: "small",
        metrics: &["latency, 99 %"],
        columns: "connections",
    },
    Table {
        title: "1 GB, whole on one connection and in parts of 2 MB on more: CPU cost, s/GB",
        part: "large",
        metrics: &["CPU cost"],
        columns: "connections",
    },
    Table {
        title: "The same with the client's time, on which the kernel sends, too: s/GB",
        part: "large",
        metrics: &["CPU cost, both ends"],
        columns: "connections",
    },
    Table {
        title: "1 GB over TLS 1.3, AES-128-GCM",
        part: "https",
        metrics: &["CPU cost", "CPU cost, both ends", "throughput", "CPU cost, of nginx"],
        columns: "metric",
    },
    Table {
        title: "Downloads of 5 Mb/s, all at once",
        part: "paced",
        metrics: &[
            "CPU cost",
            "CPU cost, both ends",
            "CPU cost with interrupts",
            "within 5 % of the rate",
            "rate, median",
        ],
        columns: "metric",
    },
];

/// Returns the part of docs/peers.md.
pub(crate) fn tables(results: &Results) -> String {
    let marks = Marks::of(&results.warnings);
    let mut text = String::new();
    for table in TABLES {
        let has = |row: &&Row| {
            parameter(row, "part") == table.part && table.metrics.contains(&row.metric.as_str())
        };
        let rows: Vec<&Row> = results.rows.iter().filter(has).collect();
        if rows.is_empty() {
            continue;
        }
        let line = |row: &Row| match table.part {
            "small" => format!("{} bytes, `{}`", value(row, "bytes"), row.member),
            _ => format!("`{}`", row.member),
        };
        let made = grid(&rows, table.columns, line, &marks);
        let _ = write!(text, "\n{}:\n\n{made}", table.title);
    }
    with_tables(&Results { rows: Vec::new(), ..results.clone() }, &text)
}

#[test]
fn every_part_has_a_table_with_its_figures() {
    let mut results = Results::new("http", ["pagewire".to_owned()]);
    let mut push = |member: &str, part: &str, connections: u32, metric: &str, figure: f64| {
        let figure = measure::Figure::of(vec![figure; 5]);
        let row = Row::new("http", member, metric, "", figure);
        let row = row.with("part", part).with("bytes", 1000).with("connections", connections);
        results.rows.push(row);
    };
    for (member, factor) in [("pagewire", 2.0), ("nginx", 1.0)] {
        push(member, "small", 1, "requests of a core", 30_000.0 * factor);
        push(member, "small", 64, "requests of a core", 40_000.0 * factor);
        push(member, "large", 1000, "CPU cost", 0.25 / factor);
        push(member, "paced", 1000, "within 5 % of the rate", 99.0);
    }
    let text = tables(&results);
    assert!(text.contains("| connections | 1 | 64 |"), "{text}");
    assert!(text.contains("| 1000 bytes, `pagewire` | 60000 | 80000 |"), "{text}");
    assert!(text.contains("in parts of 2 MB on more: CPU cost, s/GB:\n\n"), "{text}");
    assert!(text.contains("Downloads of 5 Mb/s") && !text.contains("TLS 1.3"), "{text}");
}
