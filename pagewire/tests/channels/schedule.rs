// SPDX-License-Identifier: MIT OR Apache-2.0
//! A schedule by wall clock: an item interrupts the playlist at its second and plays once; the
//! playlist is afterwards where it would be without the item.

use std::time::Duration;

use crate::capture::{Capture, stream};
use crate::clips::{FRAMES_PER_SECOND, Streams, clip};
use crate::harness::Place;
use crate::walk::{PCR_MODULUS, Walk};
use crate::{await_state, has_left_out, second_ahead, serve, time_of_day, wall_now};

const ITEM_FRAMES: u32 = 50;
/// First sound of a channel: only the item has one.
const SOUND_PID: u16 = 0x110;

#[test]
fn an_item_starts_at_its_second_and_gives_the_playlist_back() {
    let test = "an_item_starts_at_its_second_and_gives_the_playlist_back";
    let Some(listed) = clip(test, 30, 50, Streams::Picture) else { return };
    let Some(item) = clip(test, 31, ITEM_FRAMES, Streams::Both) else { return };
    let place = Place::new();
    place.put("listed.ts", &listed);
    place.put("item.ts", &item);
    let played =
        PREPARATIONS_S.into_iter().find_map(|seconds| play(&place, Duration::from_secs(seconds)));
    let (second, is_seen, log, receiver) = played.expect("the server is never ready in time");
    if has_left_out(test, &log) {
        return;
    }
    assert!(!log.contains("WARN"), "{log}");
    let Some(datagrams) = receiver.stop_whole(test) else { return };
    assert_item(&stream(&datagrams, 0).walk(), second);
    if !is_seen {
        eprintln!("skip: busy machine: {test}: it did not look at the state for two seconds");
    }
}

/// Plays the item at a second that far ahead; returns `None` where the server was not ready by
/// then. Returns the second, true where the item was seen in the state, the log, and the receiver.
fn play(place: &Place, preparation: Duration) -> Option<(u64, bool, String, Capture)> {
    let receiver = Capture::unicast();
    let second = second_ahead(preparation);
    let (target, time) = (receiver.local, time_of_day(second));
    let server = serve(
        place,
        &format!(
            "[channel.a]\nplaylist = [\"listed.ts\"]\nconstant_rate_kbps = 2000\n\
             send = [\"udp://{target}\"]\n\
             [[channel.a.at]]\ntime = \"{time}\"\nplay = [\"item.ts\"]\n"
        ),
    );
    await_state(&server, 0, "the playlist plays", |state| state["reason"] == "listed");
    if wall_now().as_secs() >= second {
        return None;
    }
    let over = second + u64::from(ITEM_FRAMES / FRAMES_PER_SECOND);
    let mut is_seen = false;
    await_state(&server, 0, "the item plays", |state| {
        is_seen = state["reason"] == "scheduled";
        is_seen || wall_now().as_secs() > over
    });
    await_state(&server, 0, "the playlist plays again", |state| state["reason"] == "listed");
    receiver.await_clock(0, over as f64 + 1.0);
    Some((second, is_seen, server.stop(), receiver))
}

/// Asserts a stream without a seam in which the item begins and ends at the right times.
#[track_caller]
fn assert_item(walk: &Walk, second: u64) {
    walk.assert_seamless(0);
    let starts = walk.starts.get(&SOUND_PID).expect("the item has a sound");
    // Channel time is wall time: the clock of the stream gives the send time of a packet.
    let ahead_ms = |packet: u64, second: f64| {
        let at = walk.clocks.partition_point(|(at, _)| *at <= packet);
        let clock = walk.clocks[at - 1].1;
        let wanted = (second * 27e6) as i128;
        let apart = (clock - wanted).rem_euclid(PCR_MODULUS);
        let apart = if apart > PCR_MODULUS / 2 { apart - PCR_MODULUS } else { apart };
        apart / 27_000
    };
    let begins = ahead_ms(starts[0], second as f64);
    let ended = second as f64 + f64::from(ITEM_FRAMES) / f64::from(FRAMES_PER_SECOND);
    let ends = ahead_ms(*starts.last().expect("there is one"), ended);
    eprintln!("the item begins {begins} ms after its second and ends {ends} ms after its end");
    assert!((-100..1000).contains(&begins), "the first sound {begins} ms after its second");
    assert!((-1000..500).contains(&ends), "the last sound {ends} ms after the end");
}

/// Time for the server to start, in each attempt.
const PREPARATIONS_S: [u64; 5] = [1, 3, 9, 20, 60];
