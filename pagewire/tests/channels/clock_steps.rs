// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wall clock that is set while a channel plays, at a change of programme and within one: the
//! programme follows it, the stream has no seam and its clock does not jump.
//!
//! The server reads the wall clock through libfaketime, whose offset this test sets; the monotonic
//! clock stays true.
//!
//! Sources: `serve/src/channel/playout/channel_clock.rs`; faketime(1).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::capture::{Capture, longest_gap, stream};
use crate::clips::{Streams, clip};
use crate::harness::{PROGRAM, Place, Server};
use crate::{await_state, second_ahead, state, time_of_day, wall_now, write_config};

const TEST: &str = "a_channel_has_no_seam_when_the_clock_is_set";
const HOUR_S: u64 = 3600;
const SET: &str = "the wall clock was set; its programme of now begins";

pub(crate) fn a_channel_has_no_seam_when_the_clock_is_set() {
    let Some(library) = faketime() else {
        eprintln!("skip: {TEST}: libfaketime is not installed; apt-get install libfaketime");
        return;
    };
    let clips = [50, 51, 52].map(|number| clip(TEST, number, 50, Streams::Both));
    let [Some(first), Some(second), Some(item)] = clips else { return };
    let place = Place::new();
    place.put("first.ts", &first);
    place.put("second.ts", &second);
    place.put("item.ts", &item);
    let offset = place.top().join("clock-offset");
    let set = |by: &str| replace(&offset, by);
    set("+0");

    let receiver = Capture::unicast();
    let target = receiver.local;
    // An hour later than it is: the clock is set forward a second before.
    let start = second_ahead(Duration::from_secs(9));
    let time = time_of_day(start + HOUR_S);
    let config = write_config(
        &place,
        &format!(
            "[channel.a]\nplaylist = [\"first.ts\", \"second.ts\"]\nconstant_rate_kbps = 2000\n\
             send = [\"udp://{target}\"]\n\
             [[channel.a.at]]\ntime = \"{time}\"\nplay = [\"item.ts\"]\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &offset);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let server = Server::at(&place, command, &["--config", &config]);
    await_state(&server, 0, "the playlist plays", |state| state["reason"] == "listed");

    while wall_now().as_secs() + 1 < start {
        sleep(Duration::from_millis(20));
    }
    set(&format!("+{HOUR_S}s"));
    await_state(&server, 0, "the item of an hour later plays", |state| {
        state["reason"] == "scheduled"
    });
    await_times_set(&server, 1);
    // At a change of programme, and within one.
    let steps = ["-7200s", "+0", "+700d", "+699d"];
    for (done, by) in steps.iter().enumerate() {
        await_change(&server);
        sleep(Duration::from_millis(700) * (done as u32 % 2));
        set(by);
        await_times_set(&server, done + 2);
    }
    await_change(&server);
    let log = server.stop();
    let datagrams = receiver.stop();
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    let gap = longest_gap(&datagrams);
    assert!(gap < Duration::from_secs(1), "nothing came for {gap:?}");
    stream(&datagrams, 0).walk().assert_goes_on("a");
}

/// Waits for the log's line of each time that the clock was set.
#[track_caller]
fn await_times_set(server: &Server, times: usize) {
    await_state(server, 0, "the log tells that the clock was set", |_| {
        server.log().matches(SET).count() == times
    });
}

/// Waits until another programme begins.
#[track_caller]
fn await_change(server: &Server) {
    let programmes = |state: &serde_json::Value| state["programmes"].as_u64().expect("a count");
    let before = programmes(&state(server, 0));
    await_state(server, 0, "another programme begins", |state| programmes(state) > before);
}

/// Replaces a file at once: no reader sees half of it.
fn replace(path: &Path, content: &str) {
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, format!("{content}\n")).expect("room for a line");
    fs::rename(&unfinished, path).expect("both names are in one folder");
}

/// The library for programs with threads, where Debian or Fedora put it.
fn faketime() -> Option<PathBuf> {
    let name = "faketime/libfaketimeMT.so.1";
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}
