// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wall clock that is set while a channel plays, at a change of programme and within one: the
//! programme follows it, the stream has no seam and its clock does not jump.
//!
//! The server reads the wall clock through libfaketime, whose offset this test sets; the monotonic
//! clock is not changed.
//!
//! All is judged by the stream's own clock except for the pause that `timed` measures.
//!
//! Sources: `serve/src/channel/playout/channel_clock.rs`; faketime(1).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::capture::{Capture, Datagram, stream};
use crate::clips::{Streams, clip};
use crate::harness::{PROGRAM, Place, Server};
use crate::{await_state, has_left_out, second_ahead, state, time_of_day, wall_now, write_config};

const HOUR_S: u64 = 3600;
const SET: &str = "the wall clock was set; its programme of now begins";

#[test]
fn a_channel_has_no_seam_when_the_clock_is_set() {
    let test = "a_channel_has_no_seam_when_the_clock_is_set";
    if let Some(datagrams) = play(test, 20) {
        stream(&datagrams, 0).walk().assert_goes_on("a");
    }
}

/// Plays files of so many frames while the clock is set, and records them. Returns `None`, with the
/// reason printed, where a component is missing or the machine was too busy.
pub(crate) fn play(test: &str, frames: u32) -> Option<Vec<Datagram>> {
    let Some(library) = faketime() else {
        eprintln!("skip: {test}: libfaketime is not installed; apt-get install libfaketime");
        return None;
    };
    let first = clip(test, 50, frames, Streams::Both)?;
    let second = clip(test, 51, frames, Streams::Both)?;
    // Long enough to be observed, however late this test is.
    let item = clip(test, 52, 500, Streams::Both)?;
    let played = PREPARATIONS_S.into_iter().find_map(|seconds| {
        record([&first, &second, &item], &library, Duration::from_secs(seconds))
    });
    let (log, receiver) = played.expect("the server is never ready in time");
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    if has_left_out(test, &log) {
        return None;
    }
    receiver.stop_whole(test)
}

/// As [`play`], with a time for the server to start; returns `None` where it was not ready by then.
/// Returns the log and the receiver.
fn record(
    [first, second, item]: [&[u8]; 3],
    library: &Path,
    preparation: Duration,
) -> Option<(String, Capture)> {
    let place = Place::new();
    place.put("first.ts", first);
    place.put("second.ts", second);
    place.put("item.ts", item);
    let offset = place.top().join("clock-offset");
    let set = |by: &str| replace(&offset, by);
    set("+0");

    let receiver = Capture::unicast();
    let target = receiver.local;
    // The item starts an hour later: the clock is set forward by the hour before.
    let start = second_ahead(preparation);
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
    if wall_now().as_secs() + 1 >= start {
        return None;
    }

    set(&format!("+{HOUR_S}s"));
    await_state(&server, 0, "the item of an hour later plays", |state| {
        state["reason"] == "scheduled"
    });
    await_times_set(&server, 1);
    // Within the item; then at a change of programme, and within one.
    let steps = ["-7200s", "+0", "+700d", "+699d"];
    for (done, by) in steps.iter().enumerate() {
        if done > 0 {
            await_change(&server);
        }
        if done % 2 == 1 {
            receiver.await_more("a part of a programme", 50);
        }
        set(by);
        await_times_set(&server, done + 2);
    }
    await_change(&server);
    receiver.await_more("packets of another programme", 100);
    Some((server.stop(), receiver))
}

/// Waits until the log has a line for each of `times` changes of the clock.
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

/// Replaces a file atomically: no reader sees half of it.
fn replace(path: &Path, content: &str) {
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, format!("{content}\n")).expect("room for a line");
    fs::rename(&unfinished, path).expect("both names are in one folder");
}

/// Time in each attempt for the server to start and for the clock to be set.
const PREPARATIONS_S: [u64; 4] = [2, 5, 15, 40];

/// Returns the library for programs with threads, from its path on Debian or Fedora.
fn faketime() -> Option<PathBuf> {
    let name = "faketime/libfaketimeMT.so.1";
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}
