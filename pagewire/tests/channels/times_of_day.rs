// SPDX-License-Identifier: MIT OR Apache-2.0
//! A viewer over RTSP names a position in a channel's time shift by the time of day.
//!
//! Sources: RFC 2326 §3.7, §12.29.

use std::process::Command;

use crate::clips::{Streams, clip};
use crate::harness::rtsp::{Control, Player};
use crate::harness::{Place, Server, await_ok, await_true};
use crate::{await_state, date, serve, wall_now};

/// Formats a second as RTSP writes it.
pub(crate) fn clock(second: u64) -> String {
    date(second).replace(['-', ':'], "")
}

/// A viewer of a channel `a` that plays and can be viewed.
pub(crate) struct Viewer {
    player: Player,
    server: Server,
    _place: Place,
}

impl Viewer {
    /// Returns `None`, with the reason printed, where there is no file to play.
    pub(crate) fn of_channel(test: &str) -> Option<Viewer> {
        let bytes = clip(test, 1, 50, Streams::Both)?;
        let place = Place::new();
        place.put("a.ts", &bytes);
        let server = serve(&place, "[channel.a]\nplaylist = [\"a.ts\"]\ntime_shift_s = 60\n");
        await_state(&server, 0, "it plays", |state| state["on_air"].is_string());
        // DESCRIBE succeeds as soon as there is a place to begin at.
        await_true("it can be viewed", || {
            Control::to(server.rtsp).ask("DESCRIBE", "channel/a", &[]).status == 200
        });
        let player = Player::set_up(server.rtsp, "channel/a");
        Some(Viewer { player, server, _place: place })
    }

    /// Plays from a time of day; returns the start time in the answer.
    pub(crate) fn play(&mut self, start: u64) -> String {
        let answer = self.player.command("PLAY", &[&format!("Range: clock={}-", clock(start))]);
        assert_eq!(answer.status, 200, "{answer:?}");
        let range = answer.header("Range").expect("PLAY is answered with one");
        let start = range.strip_prefix("clock=").and_then(|range| range.strip_suffix('-'));
        start.unwrap_or_else(|| panic!("Range: {range}")).to_owned()
    }

    pub(crate) fn stop(self) {
        self.server.stop();
    }
}

/// The test relies on the order of the answers, because a busy machine answers late.
#[test]
fn a_viewer_goes_back_to_a_time_of_day() {
    let Some(mut viewer) = Viewer::of_channel("a_viewer_goes_back_to_a_time_of_day") else {
        return;
    };
    // A future time is the present, and a time before the window is its beginning.
    let beginning = viewer.play(wall_now().as_secs() - 3600);
    let far = await_ok(|| {
        let present = viewer.play(wall_now().as_secs() + 3600);
        let behind = seconds_between(&beginning, &present);
        let found = || format!("{present} is {behind} s after {beginning}");
        if behind >= 2 { Ok(behind) } else { Err(found()) }
    });
    let again = viewer.play(wall_now().as_secs() - 3600);
    assert!(seconds_between(&beginning, &again) <= 1, "{again}, {beginning}: {far} s are kept");
    // Key frames are less than a second apart, and the answer names the one at or before the
    // requested time.
    let asked = second_of(&beginning) + 2;
    let found = viewer.play(asked);
    assert!(near(&found, asked), "{found}, not {}", clock(asked));
    for (wrong, status) in [("clock=2026-11-23T12:00:00Z-", 400), ("clock=19691231T000000Z-", 457)]
    {
        let answer = viewer.player.command("PLAY", &[&format!("Range: {wrong}")]);
        assert_eq!(answer.status, status, "{wrong}: {answer:?}");
    }
    viewer.stop();
}

/// True where an answer begins at a second or at most two before it.
pub(crate) fn near(found: &str, asked: u64) -> bool {
    let near = [clock(asked - 2), clock(asked - 1), clock(asked)];
    near.iter().any(|near| found.starts_with(near.trim_end_matches('Z')))
}

/// Returns the full second of a time in RTSP notation, by date(1).
fn second_of(time: &str) -> u64 {
    let digits = |range: std::ops::Range<usize>| &time[range];
    let written = format!(
        "{}-{}-{}T{}:{}:{}Z",
        digits(0..4),
        digits(4..6),
        digits(6..8),
        digits(9..11),
        digits(11..13),
        digits(13..15)
    );
    let mut command = Command::new("date");
    let output = command.args(["-u", "+%s", "-d", &written]).output();
    let output = output.expect("date is part of every system");
    let second = String::from_utf8(output.stdout).expect("ASCII");
    second.trim().parse().unwrap_or_else(|_| panic!("{time}: no time"))
}

fn seconds_between(first: &str, last: &str) -> u64 {
    second_of(last).saturating_sub(second_of(first))
}
