// SPDX-License-Identifier: MIT OR Apache-2.0
//! `scripts/skips.sh`: which skips of a run are a fault on CI.

#![forbid(unsafe_code)]

use std::process::{Command, Output};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/skips.sh");

/// Result of the script for a log, on CI or not.
fn skips(log: &str, is_ci: bool) -> (Option<i32>, String, String) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), log).expect("room for a log");
    let mut command = Command::new(SCRIPT);
    command.arg(file.path()).env_remove("CI");
    if is_ci {
        command.env("CI", "true");
    }
    let Output { status, stdout, stderr } = command.output().expect("bash is there");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_missing_program_is_a_fault_on_ci_alone() {
    for line in [
        "skip: hls: chromium: not installed: No such file or directory (os error 2)",
        "skip: strace: No such file or directory (os error 2)",
        "skip: no network namespace: sh: 1: ethtool: not found",
        "skip: kernel: module: make: not installed; apt-get install make",
    ] {
        let log = format!("== tests\n{line}\ntest x ... ok\n");
        assert_eq!(skips(&log, false), (Some(0), format!("{line}\n"), String::new()));
        let (status, printed, complaint) = skips(&log, true);
        assert_eq!((status, printed), (Some(1), format!("{line}\n")));
        assert!(complaint.contains("scripts/setup.sh") && complaint.contains(line), "{complaint}");
    }
}

#[test]
fn what_a_host_lacks_is_a_skip_everywhere() {
    let log = "---- sys::uring::test stdout ----\nskip: io_uring: ENOSYS\nskip: io_uring: ENOSYS\n\
               successes:\nskip: counters: no hardware counter here\n";
    let expected = "skip: io_uring: ENOSYS (sys::uring::test)\n\
                    skip: counters: no hardware counter here\n";
    assert_eq!(skips(log, true), (Some(0), expected.to_owned(), String::new()));
    assert_eq!(skips("test x ... ok\n", true), (Some(0), String::new(), String::new()));
}
