// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader of standard output may stop reading: the laboratory then ends quietly, and has written
//! its files.
//!
//! The pipe's reading end is closed before the program starts, so that its first write returns
//! EPIPE. `println!` would panic with status 101 and a message.

#![forbid(unsafe_code)]

use std::fs;
use std::io::pipe;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Runs a command whose standard output has no reader.
fn run(arguments: &[&str]) -> Output {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewire-lab"));
    command.args(arguments).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
    command.output().expect("the program runs")
}

/// Asserts the status that a shell shows for a program killed by SIGPIPE, and no message.
fn ends_quietly(arguments: &[&str]) {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.as_ref()), (Some(141), ""), "{arguments:?}");
}

fn measurement(name: &str) -> String {
    format!("{}/../docs/measurements/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn commands_that_print_end_quietly() {
    let file = measurement("recording");
    ends_quietly(&[]);
    ends_quietly(&["stalls", "--list"]);
    ends_quietly(&["report", &file]);
    ends_quietly(&["report", &file, "--json", "-"]);
    ends_quietly(&["compare", &file, &file]);
}

#[test]
fn files_are_written_though_nobody_reads_the_table() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let csv = folder.path().join("m.csv");
    let csv = csv.to_str().expect("a plain name");
    let quick = ["copy", "--quick", "--size", "64", "--rounds", "1", "--csv", csv];
    let output = run(&quick);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), stderr), (Some(141), format!("wrote {csv}\n")));
    assert!(fs::read_to_string(csv).expect("the file").lines().count() > 3);
}
