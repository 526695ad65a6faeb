// SPDX-License-Identifier: MIT OR Apache-2.0
//! A schedule by wall clock: an item cuts what plays at its second, plays once, and the playlist is
//! afterwards where it would be without it.

use crate::capture::{Capture, stream};
use crate::clips::{FRAMES_PER_SECOND, Streams, clip};
use crate::harness::Place;
use crate::walk::PCR_MODULUS;
use crate::{await_state, second_ahead, serve, time_of_day};
use std::time::Duration;

const TEST: &str = "an_item_starts_at_its_second_and_gives_the_playlist_back";
const ITEM_FRAMES: u32 = 75;
/// First sound of a channel: only the item has one.
const SOUND_PID: u16 = 0x110;

pub(crate) fn an_item_starts_at_its_second_and_gives_the_playlist_back() {
    let Some(listed) = clip(TEST, 30, 50, Streams::Picture) else { return };
    let Some(item) = clip(TEST, 31, ITEM_FRAMES, Streams::Both) else { return };
    let place = Place::new();
    place.put("listed.ts", &listed);
    place.put("item.ts", &item);
    let receiver = Capture::unicast();
    let second = second_ahead(Duration::from_secs(7));
    let (target, time) = (receiver.local, time_of_day(second));
    let server = serve(
        &place,
        &format!(
            "[channel.a]\nplaylist = [\"listed.ts\"]\nconstant_rate_kbps = 2000\n\
             send = [\"udp://{target}\"]\n\
             [[channel.a.at]]\ntime = \"{time}\"\nplay = [\"item.ts\"]\n"
        ),
    );
    await_state(&server, 0, "the playlist plays", |state| state["reason"] == "listed");
    await_state(&server, 0, "the item plays", |state| state["reason"] == "scheduled");
    await_state(&server, 0, "the playlist plays again", |state| state["reason"] == "listed");
    std::thread::sleep(Duration::from_secs(1));
    let log = server.stop();
    assert!(!log.contains("WARN"), "{log}");

    let walk = stream(&receiver.stop(), 0).walk();
    walk.assert_seamless(0);
    let starts = walk.starts.get(&SOUND_PID).expect("the item has a sound");
    // Channel time is wall time: the clock of the stream says when something was sent.
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
