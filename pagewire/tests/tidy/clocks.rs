// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules that read no clock but the one that they are given.
//!
//! Their tests set the time, so an hour of media takes as long as the code runs, and every host
//! gives the same verdict (`clock/src/lib.rs`). One call of `Instant::now` among them would make
//! that false without a test that fails on an idle machine.
//!
//! Does not look at tests, nor at who waits: a loop around a turn sleeps.

use crate::imports::without_tests;
use crate::layers::is_product;
use crate::text::code_of;
use crate::{Findings, files, read, root};

/// Files and folders in which time is an argument, or read from a `Clock`.
const GIVEN: &[&str] = &[
    "client/src/camera_thread.rs",
    "client/src/described_tracks.rs",
    "client/src/packet_intake",
    "client/src/rtp_receiver",
    "client/src/track_muxer",
    "client/src/track_packetizer.rs",
    "client/src/track_receiver.rs",
    "client/src/track_stream.rs",
    "receive/src/described_source.rs",
    "receive/src/file_cutter.rs",
    "receive/src/fragment_output.rs",
    "receive/src/frame_input.rs",
    "receive/src/receiving_thread.rs",
    "receive/src/recorded_stream.rs",
    "receive/src/relay.rs",
    "receive/src/write_queue.rs",
    "receive/src/writer.rs",
    "serve/src/channel",
    "serve/src/http/download_pace.rs",
    "serve/src/http/pace_buckets.rs",
    "serve/src/meter.rs",
    "serve/src/pacer",
    "serve/src/play",
];

/// Calls that read a clock of the host.
const READINGS: &[&str] = &["Instant::now", "SystemTime::now", ".elapsed()", "Timestamp::now"];

#[test]
fn modules_read_the_clock_that_they_are_given() {
    let Some(files) = files() else { return };
    let root = root();
    let mut findings = Findings::default();
    for given in GIVEN {
        let sources = files.iter().filter(|file| file.starts_with(given) && is_product(file));
        let mut count = 0;
        for file in sources {
            count += 1;
            let code = without_tests(&code_of(&read(&root, file)));
            for (line, reading) in readings(&code) {
                let what = format!("{reading}; read a Clock, or take the time as an argument");
                findings.add(file, line, &what);
            }
        }
        assert!(count > 0, "{given}: no such file; remove it from the list");
    }
    findings.assert_none();
}

/// Line number and call of each reading.
fn readings(code: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (at, line) in code.lines().enumerate() {
        // Tasks of tokio sleep by its clock, which tests pause.
        let line = line.replace("tokio::time::Instant::now", "");
        let calls = READINGS.iter().filter(|call| line.contains(**call));
        found.extend(calls.map(|call| (at + 1, *call)));
    }
    found
}

#[test]
fn readings_are_found_outside_of_comments_and_tests() {
    let text = "// Instant::now is slow\nlet now = Instant::now();\n\
                let long = began\n    .elapsed();\nlet name = \"SystemTime::now\";\n\
                #[cfg(test)]\nmod tests {\n    Instant::now();\n}\n";
    let found = readings(&without_tests(&code_of(text)));
    assert_eq!(found, [(2, "Instant::now"), (4, ".elapsed()")]);
    assert!(is_product("serve/src/pacer/mod.rs".as_ref()));
    assert!(!is_product("serve/src/pacer/clock_tests.rs".as_ref()));
}
