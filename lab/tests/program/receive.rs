// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `lab receive` through the real program: figures of every way that this host has, each
//! verified byte by byte before its time counts.

use serde_json::Value;

use crate::{folder, has_network, lab, read, stderr};

#[test]
fn every_way_to_receive_has_its_figures() {
    if !has_network() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("receive.json");
    let json = file.to_str().unwrap();
    let words = ["receive", "--quick", "--rounds", "1", "--size", "1328", "--json", json];
    let output = lab(&words);
    // The table names each failed way and its reason.
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}{table}", stderr(&output));
    let results = read(&file);
    let rows = results["rows"].as_array().unwrap();
    let figure = |member: &str, metric: &str, sender: &str| -> Option<f64> {
        let is = |row: &&Value| {
            row["member"] == member
                && row["metric"] == metric
                && row["parameters"]["sender"] == sender
                && row["parameters"]["offered"].is_null()
        };
        rows.iter().find(is)?["median"].as_f64()
    };
    for sender in ["gso", "single"] {
        assert!(figure("recvfrom", "CPU cost", sender).unwrap() > 0.0);
        assert!(figure("recvfrom", "calls", sender).unwrap() >= 1.0);
        assert!(figure("recvmmsg", "calls", sender).unwrap() < 0.2);
        assert_eq!(figure("recvmmsg", "copies", sender), Some(1.0));
    }
    let lost = rows.iter().filter(|row| row["metric"] == "lost");
    assert!(lost.count() >= 2, "{results}");
}

#[test]
fn a_way_that_is_not_there_is_told_which_are() {
    if !has_network() {
        return;
    }
    let output = lab(&["receive", "--quick", "--member", "telepathy"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = stderr(&output);
    assert!(stderr.contains("member telepathy: no such way to receive"), "{stderr}");
    assert!(stderr.contains("recvfrom, recvmmsg"), "{stderr}");
}
