// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `lab pacing` through the real programs: smoothness and CPU cost of each pacer that this
//! kernel allows, in every form of output.

use std::path::Path;

use serde_json::Value;

use crate::{PROGRAM, folder, has_network, lab, read, stderr};

/// True where the server's program is built too; otherwise prints the skip.
pub(crate) fn has_server() -> bool {
    let built = Path::new(PROGRAM).with_file_name("pagewire").exists();
    if !built {
        eprintln!("skip: no pagewire beside {PROGRAM}; cargo build --package pagewire");
    }
    built
}

#[test]
fn streams_are_smoother_by_short_bursts_and_every_figure_is_there() {
    if !has_network() || !has_server() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("pacing.json");
    let json = file.to_str().unwrap();
    let output = lab(&["pacing", "--quick", "--sessions", "6", "--rounds", "1", "--json", json]);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}{table}", stderr(&output));
    let results = read(&file);
    assert_eq!(results["complete"], true, "{results}");
    let rows = results["rows"].as_array().unwrap();
    let figure = |member: &str, burst_ms: &str, metric: &str| -> f64 {
        let is = |row: &&Value| {
            row["member"] == member
                && row["metric"] == metric
                && row["parameters"]["burst_ms"] == burst_ms
        };
        let row = rows.iter().find(is);
        row.unwrap_or_else(|| panic!("no {metric} of {member} {burst_ms}: {results}"))["median"]
            .as_f64()
            .unwrap()
    };
    let notes = results["notes"].as_array().unwrap();
    let skip = notes.iter().filter_map(Value::as_str).find(|note| note.starts_with("skip: txtime"));
    let mut cases = vec![("user", "1"), ("user", "20")];
    match skip {
        Some(skip) => {
            assert!(skip.contains("tc qdisc replace dev near root fq"), "{skip}");
            eprintln!("{skip}");
        }
        None => cases.push(("txtime", "20")),
    }
    for (member, burst_ms) in cases {
        for metric in
            ["gap, median", "gap, 99 %", "burst, 99 %", "CPU cost", "calls", "delay factor, median"]
        {
            assert!(figure(member, burst_ms, metric) > 0.0, "{metric} of {member} {burst_ms}");
        }
        assert_eq!(figure(member, burst_ms, "media loss"), 0.0);
        assert!(figure(member, burst_ms, "relative to user, 20 ms") > 0.0);
        let most = figure(member, burst_ms, "delay factor, most");
        assert!(most >= figure(member, burst_ms, "delay factor, median"));
    }
    // Nine or ten packets of 2.1 ms are a burst of 20 ms, at any load of the machine.
    let long = figure("user", "20", "longest burst");
    assert!((9.0..=40.0).contains(&long), "{long} packets");
    assert!(figure("user", "20", "longest burst, bytes") == 1316.0 * long);
    assert!(figure("user", "20", "delay factor, median") > 15.0);
    assert!(figure("user", "1", "gap, median") > figure("user", "20", "gap, median"));
    let shown = lab(&["report", json]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("longest burst") && shown.contains("burst_ms"), "{shown}");
    let compared = lab(&["compare", json, json]);
    let compared = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(compared.contains(" unchanged"), "{compared}");
}

#[test]
fn a_pacer_that_is_not_known_is_told_which_are() {
    if !has_network() {
        return;
    }
    let output = lab(&["pacing", "--quick", "--member", "telepathy"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = stderr(&output);
    assert!(stderr.contains("member telepathy: no such pacer; write user or txtime"), "{stderr}");
}
