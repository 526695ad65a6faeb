// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of a film that are queued in one session arrive one after the other, packet by packet as
//! each does when it is played alone.
//!
//! Sources: RFC 2326 §10.5, §10.6, §12.33, Appendix B.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::harness::answer::Answer;
use crate::harness::clip::Clip;
use crate::harness::rtsp::{Heard, Player};
use crate::harness::{PROGRAM, Place, Server};
use crate::trick::{self, coordinates, film, range};

const SECONDS: u32 = 12;
pub(crate) const STREAM: &str = "clip.ts";
/// The pictures of a file with tracks.
const TRACK: &str = "film.mp4/track0";

/// Serves a transport stream, and a file with tracks where ffmpeg is available to make it.
pub(crate) fn serve(test: &str) -> (Server, Vec<&'static str>) {
    let place = Place::new();
    place.put(STREAM, &Clip::of_seconds(7, SECONDS.into()).bytes());
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("film.mp4");
    let mut names = vec![STREAM];
    if film(test, &path, SECONDS, 25).is_some() {
        place.put("film.mp4", &std::fs::read(&path).expect("just made"));
        names.push(TRACK);
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    for name in &names {
        server.await_stream(name.split('/').next().expect("there is a first part"));
    }
    (server, names)
}

fn play(player: &mut Player, headers: &[&str]) -> Answer {
    let answer = player.command("PLAY", headers);
    assert_eq!(answer.status, 200, "{headers:?}: {answer:?}");
    answer
}

fn payloads(heard: &Heard) -> Vec<Vec<u8>> {
    heard.packets.iter().map(|packet| packet[12..].to_vec()).collect()
}

/// Returns the payload of the packets of a range that is played alone, to its end.
fn alone(server: &Server, name: &str, range: &str) -> Vec<Vec<u8>> {
    let mut player = Player::set_up(server.rtsp, name);
    play(&mut player, &[&format!("Range: npt={range}")]);
    player.hear("the end of the range", |heard| !heard.byes.is_empty());
    let payloads = payloads(&player.heard());
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    payloads
}

/// Returns a value of RTP-Info.
fn info(answer: &Answer, name: &str) -> Option<u32> {
    let info = answer.header("RTP-Info").unwrap_or_else(|| panic!("no RTP-Info: {answer:?}"));
    info.split(';').find_map(|part| part.strip_prefix(name)?.parse().ok())
}

/// Asserts that sequence numbers are consecutive and timestamps never jump by more than a second.
#[track_caller]
fn assert_joined(name: &str, heard: &Heard) {
    let all: Vec<_> = heard.packets.iter().map(|packet| coordinates(packet)).collect();
    for pair in all.windows(2) {
        assert_eq!(pair[1].0, pair[0].0.wrapping_add(1), "{name}: sequence numbers run on");
        let passed = pair[1].1.wrapping_sub(pair[0].1) as i32;
        // Pictures are sent in the order of decoding.
        assert!((-18_000..90_000).contains(&passed), "{name}: {passed} between packets");
    }
}

/// The example of RFC 2326 §10.5.
#[test]
fn queued_plays_are_sent_one_after_the_other() {
    let (server, names) = serve("queue::queued_plays_are_sent_one_after_the_other");
    for name in names {
        let ranges = ["2-4", "7-8.5", "10-"];
        let pieces = thread::scope(|scope| {
            let started = ranges.map(|range| scope.spawn(|| alone(&server, name, range)));
            started.map(|thread| thread.join().expect("it is played"))
        });
        let mut player = Player::set_up(server.rtsp, name);
        let began = Instant::now();
        let answers = ranges.map(|range| play(&mut player, &[&format!("Range: npt={range}")]));
        for (answer, start) in answers.iter().zip([2.0, 7.0, 10.0]) {
            // At the previous random-access point.
            assert!((-1.1..0.1).contains(&(range(answer).0 - start)), "{name}: {answer:?}");
        }
        player.hear("the end of the last range", |heard| !heard.byes.is_empty());
        let took = began.elapsed().as_secs_f64();
        let heard = player.heard();
        assert!(payloads(&heard) == pieces.concat(), "{name}: not the three pieces");
        assert_joined(name, &heard);
        assert_eq!(heard.byes, ["end of stream"], "{name}");
        // BYE follows 0.3 s after the last packet; the machine may be late.
        let ends = [0, heard.packets.len() - 1].map(|packet| coordinates(&heard.packets[packet]).1);
        let lasts = f64::from(ends[1].wrapping_sub(ends[0])) / 90_000.0;
        assert!((-0.3..2.5).contains(&(took - lasts)), "{name}: {took} s for {lasts} s");
        let mut first = 0;
        for (answer, piece) in answers.iter().zip(&pieces) {
            let found = coordinates(&heard.packets[first]);
            let is_known = first == 0 || name == STREAM;
            let sequence = is_known.then_some(u32::from(found.0));
            assert_eq!(info(answer, "seq="), sequence, "{name}: {answer:?}");
            assert_eq!(info(answer, "rtptime="), Some(found.1), "{name}: {answer:?}");
            first += piece.len();
        }
        drop(heard);
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    }
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}

/// Appendix B applies to a change of rate, too.
#[test]
fn queued_plays_at_other_rates_continue_the_numbers() {
    let test = "queue::queued_plays_at_other_rates_continue_the_numbers";
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(paths) = trick::make(test, folder.path()) else { return };
    let server = trick::serve(&paths);
    for name in [TRACK, "film.ts", "film.ts/track0"] {
        let mut player = Player::set_up(server.rtsp, name);
        play(&mut player, &["Range: npt=2-3"]);
        let faster = play(&mut player, &["Range: npt=4-8", "Scale: 4"]);
        assert_eq!(faster.header("Scale"), Some("4.0"), "{faster:?}");
        let backwards = play(&mut player, &["Range: npt=9-7", "Scale: -2"]);
        assert_eq!(backwards.header("Scale"), Some("-2.0"), "{backwards:?}");
        let quick = play(&mut player, &["Range: npt=5-7", "Scale: 1", "Speed: 2"]);
        assert_eq!(quick.header("Speed"), Some("2.0"), "{quick:?}");
        // The packets of pictures at another rate have not been counted yet.
        assert_eq!(info(&quick, "seq="), None, "{quick:?}");
        player.hear("the end of the last range", |heard| !heard.byes.is_empty());
        let heard = player.heard();
        assert_joined(name, &heard);
        assert_eq!(heard.byes, ["end of stream"], "{name}");
    }
    server.stop();
}

#[test]
fn pause_discards_queued_plays_and_keeps_its_place() {
    let (server, names) = serve("queue::pause_discards_queued_plays_and_keeps_its_place");
    for name in names {
        let piece = alone(&server, name, "2-4");
        let mut player = Player::set_up(server.rtsp, name);
        play(&mut player, &["Range: npt=2-4"]);
        play(&mut player, &["Range: npt=7-8"]);
        thread::sleep(Duration::from_millis(500));
        assert_eq!(player.command("PAUSE", &[]).status, 200);
        // Longer than the rest of the range.
        thread::sleep(Duration::from_secs(2));
        let sent = player.heard().packets.len();
        assert!((1..piece.len()).contains(&sent), "{name}: {sent} of {}", piece.len());
        let (start, end) = range(&play(&mut player, &[]));
        assert!(start < 4.0 && (3.9..4.3).contains(&end), "{name}: goes on at {start} to {end}");
        player.hear("the end of the range", |heard| !heard.byes.is_empty());
        assert!(payloads(&player.heard()) == piece, "{name}: not the first piece alone");
    }
    server.stop();
}

#[test]
fn a_play_that_is_not_queued_is_refused_at_once() {
    let (server, names) = serve("queue::a_play_that_is_not_queued_is_refused_at_once");
    for name in names {
        let mut player = Player::set_up(server.rtsp, name);
        play(&mut player, &["Range: npt=1-6"]);
        for second in 0..8 {
            play(&mut player, &[&format!("Range: npt={second}-{}", second + 1)]);
        }
        // Serves as a keep-alive.
        let repeated = play(&mut player, &["Range: npt=7-8"]);
        assert!((range(&repeated).0 - 7.0).abs() < 0.1, "{name}: {repeated:?}");
        assert_eq!(player.command("PLAY", &["Range: npt=60-61"]).status, 457, "{name}");
        let refused = player.command("PLAY", &["Range: npt=8-9"]);
        assert_eq!(refused.status, 455, "{name}: {refused:?}");
        let line = refused.head.lines().next().expect("a status line");
        assert!(line.ends_with("8 plays are queued already; PAUSE discards them"), "{line}");
        assert!(refused.header("Allow").is_some_and(|allow| allow.contains("PAUSE")), "{name}");
        player.hear("the first range", |heard| heard.packets.len() > 20);
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
        let sent = player.heard().packets.len();
        thread::sleep(Duration::from_millis(500));
        assert!(player.heard().packets.len() <= sent + 5, "{name}: sent after TEARDOWN");
    }
    assert_eq!(server.index()["server"]["sessions"], 0);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}

/// Set-top boxes and players without PAUSE seek in this way. GStreamer names the end of the film.
#[test]
fn a_play_without_an_end_is_replaced_at_once() {
    let (server, names) = serve("queue::a_play_without_an_end_is_replaced_at_once");
    for name in names {
        let mut player = Player::set_up(server.rtsp, name);
        let (_, end) = range(&play(&mut player, &["Range: npt=0-"]));
        let whole = format!("Range: npt=0-{end}");
        play(&mut player, &[&whole]);
        play(&mut player, &["Range: npt=5-", "Scale: 1"]);
        let asked = Instant::now();
        play(&mut player, &["Range: npt=6-7"]);
        player.hear("the end of the last range", |heard| !heard.byes.is_empty());
        let took = asked.elapsed().as_secs_f64();
        assert!((0.8..4.0).contains(&took), "{name}: {took} s");
        assert_joined(name, &player.heard());
        // After a queued play that has no end: at once, too.
        play(&mut player, &["Range: npt=1-9"]);
        play(&mut player, &["Range: npt=2-"]);
        let byes = player.heard().byes.len();
        let asked = Instant::now();
        play(&mut player, &["Range: npt=6-7"]);
        player.hear("the end of the last range", |heard| heard.byes.len() > byes);
        let took = asked.elapsed().as_secs_f64();
        assert!((0.8..4.0).contains(&took), "{name}: {took} s behind a queue");
    }
    server.stop();
}
