// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings with time limits: viewers of one that is being written get data at most at the rate
//! of play, refusals are immediate, and a title has an end even where its server continues.

use std::thread;
use std::time::{Duration, Instant};

use crate::fake::Script;
use crate::following::{PACKETS_PER_S, Scene};
use crate::harness::rtsp::Player;
use crate::senders;
use crate::servers;
use crate::titles::{record, stopped_title, title};

/// Waits for BYE; asserts that at no time more data had arrived than plays in that time.
#[track_caller]
fn hear_out(what: &str, player: &Player, began: Instant) {
    loop {
        let heard = player.heard();
        let (packets, is_over) = (heard.packets.len() as f64, !heard.byes.is_empty());
        drop(heard);
        // A burst ahead, and the lateness of the test itself.
        let most = PACKETS_PER_S * (began.elapsed().as_secs_f64() + 0.5);
        assert!(packets <= most, "{what}: {packets} packets after {:?}", began.elapsed());
        if is_over {
            return;
        }
        assert!(began.elapsed() < END_WAIT, "{what}: no BYE, {packets} packets");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_recording_that_is_written_never_comes_faster_than_it_plays() {
    let scene = Scene::begin(45, 16);
    let (first, _, first_began) = scene.play("0");
    let (live, _, live_began) = scene.play("now");
    scene.source.join().expect("it sends all");
    // A viewer at the end waits, because the recorder still runs.
    thread::sleep(Duration::from_secs(4));
    assert!(live.heard().byes.is_empty() && first.heard().byes.is_empty());
    let all = scene.clip.len() as f64 / (PACKETS_PER_S * 1316.0);
    let so_far = first.heard().packets.len() as f64 / PACKETS_PER_S;
    assert!(so_far > all - 5.0, "{so_far} of {all} s: all but the last seconds have come");
    scene.recorder.stop().well();
    hear_out("from the beginning", &first, first_began);
    hear_out("live", &live, live_began);
    scene.server.stop();
}

#[test]
fn refusals_end_a_recorder_within_ten_seconds() {
    for (reason, took) in servers::refuse_all() {
        assert!(took < Duration::from_secs(10), "{reason}: {took:?}");
    }
}

#[test]
fn a_source_that_comes_back_had_one_outage() {
    assert_eq!(senders::outages_of_a_source_that_comes_back(), 1);
}

#[test]
fn a_title_that_is_stopped_after_three_seconds_has_come_so_far() {
    let recorded = stopped_title();
    let reached = recorded.stream(0)["reached_s"].as_f64().expect("a number");
    assert!((1.0..4.0).contains(&reached), "{reached}");
}

#[test]
fn a_title_ends_some_seconds_after_its_announced_end() {
    let script = Script { length: Duration::from_secs(40), clock_rate: 1.0, ..title(30) };
    let script = Script { range: "a=range:npt=0-2.0\r\n", ..script };
    let (_place, fake, recorded) = record(script);
    let recorded = recorded.well();
    assert_eq!((recorded.stream(0)["ended"].as_str(), fake.asked("PLAY")), (Some("complete"), 1));
    let seconds = recorded.summary["seconds"].as_f64().expect("a number");
    assert!((10.0..30.0).contains(&seconds), "{seconds}");
}

const END_WAIT: Duration = Duration::from_secs(60);
