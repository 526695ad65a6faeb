// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `lab planning` through the real programs: every plan is compared with its file, no byte of
//! a sample is read of an MP4, and a folder is planned while sessions play.

use std::path::Path;

use serde_json::Value;

use crate::{PROGRAM, folder, has_network, lab, read, stderr};

/// Measures parts of the experiment in a few seconds.
fn measured(members: &[&str]) -> Value {
    let folder = folder();
    let file = folder.path().join("planning.json");
    let mut words = vec!["planning", "--quick", "--json", file.to_str().unwrap()];
    words.extend(members.iter().flat_map(|name| ["--member", name]));
    let output = lab(&words);
    assert!(output.status.success(), "{}", stderr(&output));
    let results = read(&file);
    assert_eq!(results["complete"], true, "{results}");
    results
}

fn figure(results: &Value, member: &str, metric: &str, parameter: (&str, &str)) -> f64 {
    let (name, value) = parameter;
    let is = |row: &&Value| {
        let found = row["parameters"][name].as_str().unwrap_or_default();
        row["member"] == member && row["metric"] == metric && found == value
    };
    let row = results["rows"].as_array().unwrap().iter().find(is);
    let row = row.unwrap_or_else(|| panic!("no {metric} of {member} {value}: {results}"));
    row["median"].as_f64().unwrap()
}

#[test]
fn streams_and_tables_have_their_figures_and_no_sample_is_read() {
    if !has_network() {
        return;
    }
    let results = measured(&["scan", "tables"]);
    for stream in ["filler and clock", "pictures and sound"] {
        for member in ["pread", "scan"] {
            for metric in ["throughput", "CPU cost", "relative to pread", "time a packet"] {
                assert!(figure(&results, member, metric, ("stream", stream)) > 0.0);
            }
        }
    }
    let of = |member: &str, metric: &str| figure(&results, member, metric, ("", ""));
    for member in ["MP4", "fragmented MP4", "Matroska"] {
        for metric in ["samples planned", "time a sample", "plan in memory", "plan stored"] {
            assert!(of(member, metric) > 0.0, "{member}: {metric}");
        }
    }
    for member in ["MP4", "fragmented MP4"] {
        assert_eq!(of(member, "read of the samples"), 0.0, "{member}");
        let share = of(member, "read of the file");
        assert!(0.0 < share && share < 1.0, "{member}: {share} %");
    }
    let notes = results["notes"].to_string();
    assert!(!notes.contains("server: "), "other parts are left out: {notes}");
}

#[test]
fn a_folder_is_planned_while_sessions_play() {
    if !has_network() {
        return;
    }
    if !Path::new(PROGRAM).with_file_name("pagewire").exists() {
        return eprintln!("skip: no pagewire beside {PROGRAM}; cargo build --package pagewire");
    }
    let results = measured(&["server"]);
    for period in ["quiet", "planning"] {
        let of = |metric: &str| figure(&results, "server", metric, ("period", period));
        assert_eq!(of("lost"), 0.0, "{period}");
        // On a busy machine not every session is timely.
        assert!(of("late, median") > 0.0 && of("timely sessions") <= 10.0, "{period}");
        assert!(of("fewest timely of a round") <= of("timely sessions"), "{period}");
    }
    let of = |metric: &str| figure(&results, "server", metric, ("period", "planning"));
    let product = of("until all files are planned") * of("files planned");
    assert!((product - 600.0).abs() < 1.0, "{product} files");
}

#[test]
fn a_part_that_is_not_known_is_told_which_are() {
    if !has_network() {
        return;
    }
    let output = lab(&["planning", "--quick", "--member", "telepathy"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = stderr(&output);
    assert!(
        stderr.contains("member telepathy: no such part of planning; write one of scan, tables, "),
        "{stderr}"
    );
}
