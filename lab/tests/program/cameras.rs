// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `lab cameras` through the real programs: every recorder has its figures, and pagewire loses
//! nothing.
//!
//! Does not judge the cost: a machine that is busy has no bound.

use crate::hls::has_ffmpeg;
use crate::pacing::has_server;
use crate::{folder, has_network, lab, read, stderr};

#[test]
fn every_recorder_has_its_figures_and_pagewire_loses_nothing() {
    if !has_network() || !has_server() || !has_ffmpeg() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("cameras.json");
    let words = ["cameras", "--quick", "--sessions", "3", "--json", file.to_str().unwrap()];
    let output = lab(&words);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}{table}", stderr(&output));
    let results = read(&file);
    assert_eq!(results["complete"], true, "{}{table}", results["notes"]);
    let rows = results["rows"].as_array().unwrap();
    let figure = |member: &str, metric: &str| -> f64 {
        let is_it = |row: &&serde_json::Value| {
            row["member"] == member
                && row["metric"] == metric
                && row["parameters"]["cameras"] == "3"
        };
        let row = rows.iter().find(is_it).and_then(|row| row["median"].as_f64());
        row.unwrap_or_else(|| panic!("no {metric} of {member}: {table}"))
    };
    for member in ["pagewire", "ffmpeg"] {
        for some in ["recorder's cores", "memory a camera", "rate of the files", "server's cores"] {
            assert!(figure(member, some) > 0.0, "{member}, {some}: {table}");
        }
    }
    assert!(figure("pagewire", "recorder's cores, of ffmpeg") > 0.0, "{table}");
    for none in ["lost", "dropped"] {
        assert_eq!(figure("pagewire", none), 0.0, "{none}: {table}");
    }
}

#[test]
fn a_recorder_that_is_not_known_is_told_which_are() {
    let output = lab(&["cameras", "--quick", "--member", "telepathy"]);
    let stderr = stderr(&output);
    assert!(!output.status.success());
    assert!(
        stderr.contains("member telepathy: no such recorder; write a name of pagewire, ffmpeg"),
        "{stderr}"
    );
}
