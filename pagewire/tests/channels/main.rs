// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels of `pagewire serve --config FILE`, as built: the received stream has no seam, whatever
//! happens to files, networks and servers.
//!
//! One file per claim: [`continuity`] (joined files have no seam), [`standby`] (a second server
//! takes over), [`files`] (missing, broken and changing files), [`interfaces`] (a network that goes
//! down and comes back), [`schedule`] (starts by the clock), [`clock_steps`] (a clock that is set),
//! [`times_of_day`] (positions in a time shift), [`exports`] (lists, guides, announcements),
//! [`refusals`] (unusable settings), [`timed`] (the same for longer, and on time), [`long`]
//! (minutes of real time, on request). Tools: [`capture`] receives, [`walk`] parses transport
//! streams, [`clips`] makes files.
//!
//! A channel plays in real time, so its tests last as long as it plays: some seconds. They wait for
//! the stream's own clock and for states of the server. Only [`timed`] asserts punctuality.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../../paths/tests/harness/network.rs"]
#[allow(dead_code, reason = "these tests have networks of their own")]
mod network;

mod capture;
mod clips;
mod clock_steps;
mod continuity;
mod exports;
mod files;
mod interfaces;
mod long;
mod refusals;
mod schedule;
mod standby;
mod timed;
mod times_of_day;
mod walk;

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use harness::answer::http;
use harness::{PROGRAM, Place, Server, await_ok};

/// Starts a server of the folder of a place, with this configuration.
fn serve(place: &Place, config: &str) -> Server {
    Server::at(place, Command::new(PROGRAM), &["--config", &write_config(place, config)])
}

/// Writes a configuration; returns its path.
fn write_config(place: &Place, config: &str) -> String {
    let path = place.top().join("channels.toml");
    fs::write(&path, config).expect("room for a configuration");
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// Returns the state of a channel in `/channels.json`.
#[track_caller]
fn state(server: &Server, channel: usize) -> Value {
    let answer = http(server.http, "GET", "/channels.json");
    assert_eq!(answer.status, 200, "{}", answer.head);
    let state: Value = serde_json::from_slice(&answer.body).expect("the state is JSON");
    state["channels"][channel].clone()
}

/// Waits until the state of a channel satisfies `holds`.
#[track_caller]
fn await_state(server: &Server, channel: usize, what: &str, mut holds: impl FnMut(&Value) -> bool) {
    await_ok(|| {
        let state = state(server, channel);
        if holds(&state) { Ok(()) } else { Err(format!("{what}: not so in {state:#}")) }
    });
}

/// True, with a skip printed, where a channel's thread did not get the core for a second: the
/// server then leaves out the packets that were due, and logs it.
fn has_left_out(test: &str, log: &str) -> bool {
    let line = log.lines().find(|line| line.contains("over 1 s behind"));
    line.inspect(|line| eprintln!("skip: busy machine: {test}: {line}")).is_some()
}

/// Returns the next full second that is at least `ahead` away: seconds since the Unix epoch.
fn second_ahead(ahead: Duration) -> u64 {
    wall_now().saturating_add(ahead).as_secs() + 1
}

fn wall_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970")
}

/// Returns hour, minute and second of a time, UTC.
fn time_of_day(second: u64) -> String {
    let (hour, minute) = (second / 3600 % 24, second / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}", second % 60)
}

/// Returns day and time of a second (RFC 3339), formatted by date(1).
fn date(second: u64) -> String {
    let mut command = Command::new("date");
    command.args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d", &format!("@{second}")]);
    let output = command.output().expect("date is part of every system");
    String::from_utf8(output.stdout).expect("ASCII").trim().to_owned()
}
