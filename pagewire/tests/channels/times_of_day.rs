// SPDX-License-Identifier: MIT OR Apache-2.0
//! A viewer over RTSP names the place in a channel's time shift by the time of day.
//!
//! Sources: RFC 2326 §3.7, §12.29.

use std::thread;
use std::time::Duration;

use crate::clips::{Streams, clip};
use crate::harness::Place;
use crate::harness::rtsp::Player;
use crate::{await_state, date, serve, wall_now};

/// A second as RTSP writes it.
fn clock(second: u64) -> String {
    date(second).replace(['-', ':'], "")
}

pub(crate) fn a_viewer_goes_back_to_a_time_of_day() {
    let Some(bytes) = clip("times_of_day", 1, 50, Streams::Both) else { return };
    let place = Place::new();
    place.put("a.ts", &bytes);
    let server = serve(&place, "[channel.a]\nplaylist = [\"a.ts\"]\ntime_shift_s = 60\n");
    await_state(&server, 0, "it plays", |state| state["on_air"].is_string());
    thread::sleep(Duration::from_secs(8));
    let mut player = Player::set_up(server.rtsp, "channel/a");
    let mut play = |start: u64| {
        let answer = player.command("PLAY", &[&format!("Range: clock={}-", clock(start))]);
        assert_eq!(answer.status, 200, "{answer:?}");
        let range = answer.header("Range").expect("PLAY is answered with one");
        let start = range.strip_prefix("clock=").and_then(|range| range.strip_suffix('-'));
        start.unwrap_or_else(|| panic!("Range: {range}")).to_owned()
    };
    // Key frames are less than a second apart, and the answer names the one at or before.
    let now = wall_now().as_secs();
    let asked = now - 5;
    let found = play(asked);
    let near = [clock(asked - 2), clock(asked - 1), clock(asked)];
    assert!(near.iter().any(|near| found.starts_with(near.trim_end_matches('Z'))), "{found}");
    // What has not come yet is the present, and what is forgotten the beginning.
    // Viewers' present is three seconds and up to two groups of pictures behind.
    let found = play(now + 3600);
    assert!(found >= clock(now - 6) && found <= clock(now + 2), "{found} at {}", clock(now));
    let found = play(now - 3600);
    assert!(found >= clock(now - 30) && found <= clock(now - 6), "{found} at {}", clock(now));
    for (wrong, status) in [("clock=2026-11-23T12:00:00Z-", 400), ("clock=19691231T000000Z-", 457)]
    {
        let answer = player.command("PLAY", &[&format!("Range: {wrong}")]);
        assert_eq!(answer.status, status, "{wrong}: {answer:?}");
    }
    server.stop();
}
