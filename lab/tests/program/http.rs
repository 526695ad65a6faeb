// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `lab http` through the real programs: every server is measured in every part, or skipped
//! with the reason.

use serde_json::Value;

use crate::pacing::has_server;
use crate::{folder, has_network, lab, read, stderr};

#[test]
fn every_server_is_measured_in_every_part_or_skipped_with_the_reason() {
    if !has_network() || !has_server() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("http.json");
    let output = lab(&["http", "--quick", "--json", file.to_str().unwrap()]);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}{table}", stderr(&output));
    let results = read(&file);
    assert_eq!(results["complete"], true, "{}", results["warnings"]);
    let rows = results["rows"].as_array().unwrap();
    let figure = |member: &str, part: &str, metric: &str| -> Option<f64> {
        let is = |row: &&Value| {
            row["member"] == member && row["metric"] == metric && row["parameters"]["part"] == part
        };
        rows.iter().find(is)?["median"].as_f64()
    };
    let notes: Vec<&str> =
        results["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for member in ["pagewire", "nginx", "nginx_open_file_cache"] {
        let missing = notes.iter().find(|note| note.starts_with(&format!("skip: {member}: ")));
        if let Some(skip) = missing {
            assert!(skip.contains("; to install: ") && member != "pagewire", "{skip}");
            eprintln!("{skip}");
            continue;
        }
        for (part, metric) in PARTS {
            let skip =
                notes.iter().find(|note| note.starts_with(&format!("skip: {member}, {part}: ")));
            match skip {
                Some(skip) if member.starts_with("nginx_") => assert!(skip.contains("differs")),
                Some(skip) => eprintln!("{skip}"),
                None => {
                    let found = figure(member, part, metric).unwrap_or(0.0);
                    assert!(found > 0.0, "{member}, {part}, {metric}: {found}; {results}");
                    let cost = figure(member, part, "CPU cost");
                    assert!(cost.is_some(), "{member}, {part}: {results}");
                }
            }
        }
    }
    assert!(figure("pagewire", "small", "latency, 99 %").unwrap() > 0.0);
    assert!(figure("pagewire", "small", "requests of a core").is_some());
    if figure("nginx", "small", "requests").is_some() {
        assert!(figure("pagewire", "small", "requests of a core, of nginx").is_some(), "{results}");
    }
}

#[test]
fn a_part_that_is_not_known_is_told_which_are() {
    if !has_network() {
        return;
    }
    let output = lab(&["http", "--quick", "--part", "telepathy"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = stderr(&output);
    assert!(
        stderr.contains("part telepathy: no such part of http; write one of small"),
        "{stderr}"
    );
}

/// Parts, and a figure that each has.
const PARTS: &[(&str, &str)] = &[
    ("small", "requests"),
    ("large", "latency, median"),
    ("https", "throughput"),
    ("paced", "rate, median"),
];
