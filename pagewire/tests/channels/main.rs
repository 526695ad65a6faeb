// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels of `pagewire serve --config FILE`, as built: the stream that a receiver gets has no
//! seam, whatever files, networks and servers do.
//!
//! One file a claim: [`continuity`] (joined files have no seam), [`standby`] (a second server takes
//! over), [`files`] (missing, broken and changing files), [`interfaces`] (a network that goes and
//! comes back), [`schedule`] (starts by the clock), [`clock_steps`] (a clock that is set),
//! [`times_of_day`] (places in a time shift), [`exports`] (lists, guides, announcements),
//! [`refusals`] (settings that cannot be used), [`long`] (minutes of real time, on request). Tools:
//! [`capture`] receives, [`walk`] reads transport streams, [`clips`] makes files.
//!
//! A channel plays in real time, so what takes long runs beside each other, by one test: about 50 s
//! in all. Nothing here asserts that something is fast.

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
mod times_of_day;
mod walk;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use harness::answer::http;
use harness::{PROGRAM, Place, Server};

/// Cases that wait for the clock.
const BESIDE_EACH_OTHER: &[(&str, fn())] = &[
    ("clock_steps", clock_steps::a_channel_has_no_seam_when_the_clock_is_set),
    ("continuity", continuity::joined_files_have_no_seam),
    ("files", files::a_channel_goes_on_whatever_its_files_do),
    ("interfaces", interfaces::in_a_network),
    ("schedule", schedule::an_item_starts_at_its_second_and_gives_the_playlist_back),
    ("standby", standby::in_a_network),
    ("times_of_day", times_of_day::a_viewer_goes_back_to_a_time_of_day),
];

#[test]
fn channels_in_real_time() {
    let run = |&(name, case): &(&'static str, fn())| (name, thread::spawn(case));
    let running: Vec<_> = BESIDE_EACH_OTHER.iter().map(run).collect();
    let ended = running.into_iter().map(|(name, thread)| (name, thread.join()));
    let failed: Vec<_> = ended.filter(|(_, end)| end.is_err()).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "failed, as said above: {}", failed.join(", "));
}

/// A server of the folder of a place, with this configuration.
fn serve(place: &Place, config: &str) -> Server {
    Server::at(place, Command::new(PROGRAM), &["--config", &write_config(place, config)])
}

/// Writes a configuration; returns its path.
fn write_config(place: &Place, config: &str) -> String {
    let path = place.top().join("channels.toml");
    fs::write(&path, config).expect("room for a configuration");
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// State of a channel in `/channels.json`.
#[track_caller]
fn state(server: &Server, channel: usize) -> Value {
    let answer = http(server.http, "GET", "/channels.json");
    assert_eq!(answer.status, 200, "{}", answer.head);
    let state: Value = serde_json::from_slice(&answer.body).expect("the state is JSON");
    state["channels"][channel].clone()
}

/// Waits until the state of a channel is as wanted.
#[track_caller]
fn await_state(server: &Server, channel: usize, what: &str, holds: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + STATE_WAIT;
    loop {
        let state = state(server, channel);
        if holds(&state) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: not so in {state:#}");
        thread::sleep(LOOK_EVERY);
    }
}

/// The next full second that is at least `ahead` away: seconds since the Unix epoch.
fn second_ahead(ahead: Duration) -> u64 {
    wall_now().saturating_add(ahead).as_secs() + 1
}

fn wall_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970")
}

/// Hour, minute and second of a time, UTC.
fn time_of_day(second: u64) -> String {
    let (hour, minute) = (second / 3600 % 24, second / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}", second % 60)
}

/// Day and time of a second (RFC 3339), as date(1) knows it.
fn date(second: u64) -> String {
    let mut command = Command::new("date");
    command.args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d", &format!("@{second}")]);
    let output = command.output().expect("date is part of every system");
    String::from_utf8(output.stdout).expect("ASCII").trim().to_owned()
}

const STATE_WAIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);
