// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `lab tracks` through the real programs: MP4 beside a transport stream.

use serde_json::Value;

use crate::pacing::has_server;
use crate::{folder, has_network, lab, read, stderr};

#[test]
fn mp4_is_sent_by_long_runs_and_whole() {
    if !has_network() || !has_server() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("tracks.json");
    let json = file.to_str().unwrap();
    let output = lab(&["tracks", "--quick", "--sessions", "8", "--rounds", "1", "--json", json]);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}{table}", stderr(&output));
    let results = read(&file);
    assert_eq!(results["complete"], true, "{results}");
    let rows = results["rows"].as_array().unwrap();
    let figure = |member: &str, metric: &str| -> f64 {
        let is = |row: &&Value| row["member"] == member && row["metric"] == metric;
        let row = rows.iter().find(is);
        row.unwrap_or_else(|| panic!("no {metric} of {member}: {results}"))["median"]
            .as_f64()
            .unwrap()
    };
    for member in ["ts", "mp4", "mp4_sound", "mp4_one_by_one"] {
        assert!(figure(member, "CPU cost") > 0.0, "{member}");
        assert_eq!(figure(member, "verified sessions"), 2.0, "{member}");
        assert_eq!(figure(member, "broken units"), 0.0, "{member}");
        assert_eq!(figure(member, "lost"), 0.0, "{member}");
    }
    assert!(figure("mp4", "CPU cost, of ts") > 0.0);
    assert!(figure("mp4", "CPU cost, of mp4_one_by_one") > 0.0);
    assert_eq!(figure("mp4_one_by_one", "packets a call"), 1.0);
    // A picture of 23 kB in the mean has 17 packets, and leaves by one call.
    let together = figure("mp4", "packets a call");
    assert!((12.0..25.0).contains(&together), "{together} packets a call");
}

#[test]
fn an_unknown_case_is_refused_with_the_names() {
    let output = lab(&["tracks", "--member", "avi"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("ts, mp4, mp4_sound, mp4_one_by_one"), "{}", stderr(&output));
}
