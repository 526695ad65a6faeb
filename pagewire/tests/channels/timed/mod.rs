// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels for longer than in the gate, and on time: no stream is silent for a second, whatever
//! happens to files, clocks and servers; a viewer's present is some seconds behind.

mod standby;

use std::thread;
use std::time::Duration;

use crate::capture::{Datagram, longest_gap, stream};
use crate::continuity::{self, Files};
use crate::times_of_day::{Viewer, clock, near};
use crate::{clock_steps, files, wall_now};

/// Files of 2.6 to 3.4 s, 40 s in all.
const FILES: Files = Files { frames: [65, 77, 70, 85], played: 14 };

#[track_caller]
fn assert_arrived_in_time(name: &str, datagrams: &[Datagram]) {
    let gap = longest_gap(datagrams);
    assert!(gap < Duration::from_secs(1), "{name}: nothing came for {gap:?}");
}

#[test]
fn a_dozen_joined_files_have_no_seam_and_arrive_in_time() {
    let test = "timed::a_dozen_joined_files_have_no_seam_and_arrive_in_time";
    let Some(played) = continuity::play(test, FILES) else { return };
    played.assert_seamless();
    played.assert_arrived_in_time();
    played.assert_frames();
}

#[test]
fn a_channel_is_never_silent_whatever_its_files_do() {
    let test = "timed::a_channel_is_never_silent_whatever_its_files_do";
    for (name, datagrams) in files::play(test, 50).into_iter().flatten() {
        assert_arrived_in_time(name, &datagrams);
        stream(&datagrams, 0).walk().assert_goes_on(name);
    }
}

#[test]
fn a_channel_is_never_silent_when_the_clock_is_set() {
    let test = "timed::a_channel_is_never_silent_when_the_clock_is_set";
    if let Some(datagrams) = clock_steps::play(test, 50) {
        assert_arrived_in_time("a", &datagrams);
        stream(&datagrams, 0).walk().assert_goes_on("a");
    }
}

#[test]
fn the_present_of_a_viewer_is_some_seconds_behind() {
    let test = "timed::the_present_of_a_viewer_is_some_seconds_behind";
    let Some(mut viewer) = Viewer::of_channel(test) else { return };
    thread::sleep(Duration::from_secs(8));
    let now = wall_now().as_secs();
    let found = viewer.play(now - 5);
    assert!(near(&found, now - 5), "{found} at {}", clock(now));
    // A viewer's present is three seconds and up to two groups of pictures behind.
    let found = viewer.play(now + 3600);
    assert!(found >= clock(now - 6) && found <= clock(now + 2), "{found} at {}", clock(now));
    let found = viewer.play(now - 3600);
    assert!(found >= clock(now - 30) && found <= clock(now - 6), "{found} at {}", clock(now));
    viewer.stop();
}
