// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `lab hls` through the real programs: every part has its figures and copies no media.

use std::process::Command;

use serde_json::Value;

use crate::pacing::has_server;
use crate::{folder, has_network, lab, read, stderr};

/// True where ffmpeg makes the films; otherwise prints the skip.
pub(crate) fn has_ffmpeg() -> bool {
    let is_there = Command::new("ffmpeg").arg("-version").output().is_ok();
    if !is_there {
        eprintln!("skip: no ffmpeg, which makes the films; apt install ffmpeg");
    }
    is_there
}

#[test]
fn every_part_is_measured_beside_plain_ranges_and_copies_no_media() {
    if !has_network() || !has_server() || !has_ffmpeg() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("hls.json");
    let output = lab(&["hls", "--quick", "--json", file.to_str().unwrap()]);
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
    let skip = notes.iter().find(|note| note.starts_with("skip: nginx: "));
    if let Some(skip) = skip {
        eprintln!("{skip}");
    }
    for part in ["together", "pictures", "sound", "stream", "playlist"] {
        let time = figure("pagewire", part, "CPU time of a request");
        assert!(time.is_some_and(|time| time > 0.0), "{part}: {results}");
        let ratio = figure("pagewire", part, "CPU time of a request, of nginx");
        assert_eq!(ratio.is_some(), skip.is_none(), "{part}: {results}");
        if part != "playlist" {
            let ratio = figure("pagewire", part, "CPU time of a request, of plain ranges");
            assert!(ratio.is_some(), "{part}: {results}");
            assert_eq!(figure("pagewire", part, "copies"), Some(0.0), "{part}");
        }
    }
    let viewers = figure("pagewire", "viewers", "viewers a core");
    assert!(viewers.is_some_and(|viewers| viewers > 1.0), "{results}");
    let ratio = figure("pagewire", "viewers", "viewers a core, of nginx");
    assert_eq!(ratio.is_some(), skip.is_none(), "{results}");
}

#[test]
fn a_part_of_hls_that_is_not_known_is_told_which_are() {
    if !has_network() {
        return;
    }
    let output = lab(&["hls", "--quick", "--part", "smell"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = stderr(&output);
    assert!(stderr.contains("part smell: no such part of hls; write one of together"), "{stderr}");
}
