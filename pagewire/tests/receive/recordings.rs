// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings of a camera are found again by the command line, and cut into one file, while the
//! recorder runs and after it: no picture is lost, doubled or moved.
//!
//! The cameras are those of [`fragments`](crate::fragments).
//!
//! Does not judge places of cuts, the order of files, whose names tell the clock of this machine,
//! or their lengths: the tests of the crate `recordings` do.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::fragments::{Camera, PICTURES, pictures};
use crate::harness::recorder::Recorder;
use crate::harness::{PROGRAM, Place, await_true};

/// Runs `pagewire recordings`.
fn run(place: &Place, verb: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.current_dir(place.top()).args(["recordings", verb, "--config", "cameras.toml"]);
    command.args(arguments).output().expect("the program runs")
}

/// Standard output of a run that succeeded, as JSON.
fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Seconds and growth of the camera's recordings.
fn listed(place: &Place) -> Vec<(u64, bool)> {
    let found = json(&run(place, "list", &["--camera", "door", "--json"]));
    let recordings = found["cameras"][0]["recordings"].as_array().expect("recordings").clone();
    let about = |one: &Value| {
        let seconds = one["seconds"].as_f64().expect("a number");
        (seconds.round() as u64, one["growing"] == true)
    };
    recordings.iter().map(about).collect()
}

/// The numbers of the pictures in a file, in order.
fn sorted(file: &[u8]) -> Vec<u32> {
    let mut numbers = pictures(file);
    numbers.sort_unstable();
    numbers
}

#[test]
fn recordings_are_listed_and_cut_while_they_grow_and_afterwards() {
    let place = Place::new();
    let camera = Camera::named(&place, "door");
    let text = "folder = \"media\"\nrotate_seconds = 5\n[camera.door]\nsdp = \"door.sdp\"\n\
                [camera.yard]\nsdp = \"yard.sdp\"\n";
    fs::write(place.top().join("cameras.toml"), text).expect("room for a file");
    fs::copy(&camera.description, place.top().join("yard.sdp")).expect("room for a file");
    let text = text.replace("[camera.yard]\nsdp = \"yard.sdp\"\n", "");
    fs::write(place.top().join("recorded.toml"), text).expect("room for a file");
    let config = place.top().join("recorded.toml");
    let config = config.to_str().expect("UTF-8");
    let recorder = Recorder::by(Command::new(PROGRAM), &place, &[], &["--config", config]);
    let all = 18 * PICTURES;
    camera.send(0..all, 500);
    camera.await_read();
    await_true("three files are complete, the fourth grows", || {
        let found = listed(&place);
        found.len() == 4 && found.iter().filter(|(_, is_growing)| *is_growing).count() == 1
    });
    let index = place.folder().join("door/.door-recordings.sqlite3");
    assert!(index.exists(), "the recorder and the list keep lengths");
    let during = place.top().join("during.mp4");
    let arguments = |name| {
        vec!["--camera", "door", "--from", "1h", "--to", "2099-01-01", "--output", name, "--json"]
    };
    let exported = json(&run(&place, "export", &arguments("during.mp4")));
    assert_eq!(exported["files"], 4);
    let whole = sorted(&fs::read(&during).expect("it is there"));
    assert!(whole.len() >= 15 * PICTURES as usize, "{}", whole.len());
    assert_eq!(whole, (0..whole.len() as u32).collect::<Vec<_>>());

    let _ = recorder.stop().well();
    let found = listed(&place);
    // Sound that arrives later than its pictures makes files longer.
    let is_whole = |(seconds, is_growing): &(u64, bool)| *seconds >= 3 && !is_growing;
    assert!(found.len() == 4 && found.iter().all(is_whole), "{found:?}");
    let exported = json(&run(&place, "export", &arguments("after.mp4")));
    let after = fs::read(place.top().join("after.mp4")).expect("it is there");
    assert_eq!(exported["bytes"], after.len());
    assert_eq!(sorted(&after), (0..all).collect::<Vec<_>>());

    // Refusals leave nothing, and nothing is replaced.
    let again = run(&place, "export", &arguments("after.mp4"));
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(fs::read(place.top().join("after.mp4")).expect("it is there"), after);
    let none = ["--camera", "yard", "--from", "1h", "--output", "none.mp4"];
    let none = run(&place, "export", &none);
    assert_eq!(none.status.code(), Some(2), "{}", String::from_utf8_lossy(&none.stderr));
    assert!(!place.top().join("none.mp4").exists());
    let table = run(&place, "list", &[]);
    let table = String::from_utf8(table.stdout).expect("text");
    assert!(table.lines().any(|line| line.starts_with("door ")), "{table}");
}
