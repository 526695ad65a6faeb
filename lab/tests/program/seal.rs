// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encrypts folders in the laboratory: every member and the file-encryption paper's figures beside
//! it, with no file left behind.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{PROGRAM, await_processor_time, folder, lab, read, stderr};

#[test]
fn a_grid_has_its_cells_its_best_the_paper_and_libraries_and_leaves_nothing() {
    let (folder, place) = (folder(), folder());
    let file = folder.path().join("seal.json");
    let output = lab(&[
        "seal",
        "--quick",
        "--size",
        "4096",
        "--threads",
        "2",
        "--threads",
        "4",
        "--folder",
        place.path().to_str().unwrap(),
        "--json",
        file.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let results = read(&file);
    assert_eq!(results["complete"], true, "{results}");
    assert!(!results["command"].as_str().unwrap().contains("--inside"));
    let rows = results["rows"].as_array().unwrap();
    let find = |member: &str, metric: &str, parameters: &[(&str, &str)]| {
        let row = rows.iter().find(|row| {
            let has = |(name, value): &(&str, &str)| row["parameters"][name] == *value;
            row["member"] == member && row["metric"] == metric && parameters.iter().all(has)
        });
        row.unwrap_or_else(|| panic!("no {metric} of {member} {parameters:?}")).clone()
    };
    for member in ["published", "file_per_thread", "lanes"] {
        for files in ["10 files", "100 files"] {
            let cell = [("folder", files), ("bytes", "4096"), ("threads", "4")];
            let value = |metric| find(member, metric, &cell)["median"].as_f64().unwrap();
            assert!(value("minimum") > 0.0 && value("minimum") <= value("average"));
            assert!(value("average") <= value("maximum"));
            assert_eq!(find(member, "time", &cell)["samples"].as_array().unwrap().len(), 3);
            let best = find(member, "threads of the lowest average", &cell[..2]);
            assert!([2.0, 4.0].contains(&best["median"].as_f64().unwrap()), "{best}");
        }
        for library in ["8 × 4 MiB", "200 × 4 KiB", "200 mixed"] {
            let of = [("folder", library), ("threads", "2")];
            for metric in ["throughput", "CPU cost", "relative to published"] {
                assert_eq!(find(member, metric, &of)["samples"].as_array().unwrap().len(), 3);
            }
        }
    }
    find("copy_only", "CPU cost", &[("folder", "8 × 4 MiB")]);
    // The cost of crash safety is a stage of its own.
    let commit = [("stage", "commit"), ("folder", "200 × 4 KiB")];
    assert!(find("lanes", "workers' time", &commit)["median"].as_f64().unwrap() > 0.0);
    for books in ["8 books of pictures", "8 books of text"] {
        let of = [("folder", books), ("threads", "2")];
        let a_core = find("seal epub", "books a core seals", &of);
        assert_eq!(a_core["samples"].as_array().unwrap().len(), 2);
        let read = find("seal epub", "workers' time", &[("folder", books), ("stage", "read")]);
        assert!(read["median"].as_f64().unwrap() > 0.0);
    }
    // Table 4 of the file-encryption paper: 4 KiB, 100 files on the Xeon.
    let of = [("folder", "100 files"), ("bytes", "4096")];
    let study = find("paper: 2 Xeon E5-2640", "lowest average", &of);
    assert_eq!(
        (&study["median"], &study["published"]),
        (&10.22.into(), &"the file-encryption paper, table 4".into())
    );
    let notes = results["notes"].to_string();
    assert!(notes.contains("outliers in 36 runs"), "{notes}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "all is removed");
}

#[test]
fn a_seal_measurement_that_is_interrupted_leaves_nothing_and_keeps_what_it_has() {
    let (folder, place) = (folder(), folder());
    let file = folder.path().join("cut.json");
    let mut child = Command::new(PROGRAM)
        .args(["seal", "--quick", "--rounds", "900", "--folder"])
        .arg(place.path())
        .arg("--json")
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let id = Pid::from_raw(child.id() as i32).unwrap();
    await_processor_time(id, Duration::from_secs(2));
    kill_process(id, Signal::INT).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{stderr}");
    assert!(stderr.contains("what was measured is kept"), "{stderr}");
    assert_eq!(read(&file)["complete"], Value::Bool(false));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "all is removed");
}

#[test]
fn what_seal_cannot_measure_is_said() {
    for (arguments, code, wanted) in [
        (&["seal", "--member", "rot13"][..], 2, "published, file_per_thread, lanes"),
        (&["seal", "--quick", "--folder", "/nowhere/at/all"][..], 1, "/nowhere/at/all"),
        (&["seal", "--threads", "0"][..], 2, "--threads"),
    ] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(wanted), "{arguments:?}: {}", stderr(&output));
    }
}
