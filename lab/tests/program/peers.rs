// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `lab peers` through the real program: pagewire, and all other servers on this machine, are
//! verified and measured; a missing server is a note with the command that installs it.

use serde_json::Value;

use crate::{folder, has_network, lab, read, stderr};

#[test]
fn every_peer_is_verified_and_measured_or_skipped_with_its_cure() {
    if !has_network() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("peers.json");
    let output = lab(&["peers", "--quick", "--json", file.to_str().unwrap()]);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}{table}", stderr(&output));
    let results = read(&file);
    let rows = results["rows"].as_array().unwrap();
    let figure = |member: &str, metric: &str| -> Option<f64> {
        let is = |row: &&Value| row["member"] == member && row["metric"] == metric;
        rows.iter().find(is)?["median"].as_f64()
    };
    let notes: Vec<&str> =
        results["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for (name, streams, downloads) in PEERS {
        let skip = notes.iter().find(|note| note.starts_with(&format!("skip: {name}: ")));
        if let Some(skip) = skip {
            assert!(skip.contains("; to install: "), "{skip}");
            eprintln!("{skip}");
            continue;
        }
        let checks = f64::from(u8::from(*streams)) + if *downloads { 3.0 } else { 0.0 };
        assert_eq!(figure(name, "verified"), Some(checks), "{name}: {}", results["warnings"]);
        assert!(notes.iter().any(|note| note.starts_with(&format!("{name} ("))), "{notes:?}");
        assert!(figure(name, "CPU cost").is_some(), "{name}: {results}");
        if *streams {
            let rate = figure(name, "rate of a session").unwrap();
            assert!((4.0..6.0).contains(&rate), "{name}: {rate} Mb/s");
            assert!(figure(name, "memory a session").unwrap() >= 0.0, "{name}");
        }
        if *downloads {
            assert!(figure(name, "requests").unwrap() > 0.0, "{name}");
        }
    }
    assert!(figure("pagewire", "verified").is_some(), "pagewire itself is never skipped");
}

#[test]
fn a_peer_that_is_not_known_is_told_which_are() {
    if !has_network() {
        return;
    }
    let output = lab(&["peers", "--quick", "--member", "telepathy"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = stderr(&output);
    assert!(stderr.contains("member telepathy: no such peer"), "{stderr}");
    assert!(stderr.contains("pagewire, gstreamer_own"), "{stderr}");
}

/// Name of each member; true if it streams; true if it serves downloads.
const PEERS: &[(&str, bool, bool)] = &[
    ("pagewire", true, true),
    ("gstreamer_own", true, false),
    ("gstreamer_shared", true, false),
    ("live555", true, false),
    ("mediamtx", true, false),
    ("multicat", true, false),
    ("ffmpeg", true, false),
    ("nginx", false, true),
];
