// SPDX-License-Identifier: MIT OR Apache-2.0
//! Playing a recording while it is written: play follows it to its end, whether the recorder ends
//! or is killed. The upper limit on its rate is judged by [`crate::timed`].
//!
//! Sources: RFC 2326 §3.6, §10.5, §12.29; RFC 3550 §6.6; fcntl_locking(2).

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::harness::answer::Answer;
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::ports::free_port;
use crate::harness::recorder::{Recorder, Sender, url};
use crate::harness::rtsp::{Control, Player};
use crate::harness::{PROGRAM, Place, Server};

/// A recorder, a source that sends to it at its own pace, and a server of the recording.
pub(crate) struct Scene {
    place: Place,
    pub(crate) clip: Arc<Vec<u8>>,
    pub(crate) recorder: Recorder,
    pub(crate) source: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    pub(crate) server: Server,
}

impl Scene {
    /// Starts a source of so many seconds, which sends the first [`AHEAD_S`] at once.
    pub(crate) fn begin(seed: u64, seconds: u64) -> Scene {
        let place = Place::new();
        let clip = Arc::new(Clip::of_seconds(seed, seconds).bytes());
        let port = free_port();
        let recorder = Recorder::start(&place, &[url(port)], &[]);
        let stop = Arc::<AtomicBool>::default();
        let (sent, ended) = (clip.clone(), stop.clone());
        let source = thread::spawn(move || {
            let (mut sender, began) = (Sender::rtp(port, 1, 0), Instant::now());
            let ahead = AHEAD_S as usize * BYTES_PER_S as usize / PAYLOAD_BYTES * PAYLOAD_BYTES;
            let (first, rest) = sent.split_at(ahead);
            sender.send_all(first);
            for (index, payload) in rest.chunks(PAYLOAD_BYTES).enumerate() {
                let due = began + Duration::from_secs_f64(index as f64 / PACKETS_PER_S);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                sender.await_room();
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                sender.send(payload);
            }
        });
        // A test may start it again at its address.
        let rtsp = format!("127.0.0.1:{}", free_port());
        let server = Server::listening(&rtsp, &place, Command::new(PROGRAM), &[]);
        server.await_index("0.ts is live", |index| {
            let files = index["files"].as_array().expect("a list");
            files.iter().any(|file| file["live"] == true && file["stream"]["address"].is_string())
        });
        recorder.await_bytes("0.ts", (AHEAD_S - 1) * BYTES_PER_S);
        Scene { place, clip, recorder, source, stop, server }
    }

    /// Starts a player from this position; returns it with the answer to PLAY, and the start time.
    pub(crate) fn play(&self, from: &str) -> (Player, Answer, Instant) {
        let mut player = Player::set_up(self.server.rtsp, "0.ts");
        let began = Instant::now();
        let answer = player.command("PLAY", &[&format!("Range: npt={from}-")]);
        assert_eq!(answer.status, 200, "{answer:?}");
        (player, answer, began)
    }
}

fn recorded(place: &Place) -> Vec<u8> {
    fs::read(place.folder().join("0.ts")).expect("it was recorded")
}

fn range(answer: &Answer) -> &str {
    answer.header("Range").unwrap_or_else(|| panic!("no Range: {answer:?}"))
}

fn sequence(answer: &Answer) -> u16 {
    let info = answer.header("RTP-Info").unwrap_or_else(|| panic!("no RTP-Info: {answer:?}"));
    let sequence = info.split(';').find_map(|part| part.strip_prefix("seq=")?.parse().ok());
    sequence.unwrap_or_else(|| panic!("seq in {info}"))
}

/// Waits for BYE.
#[track_caller]
fn hear_out(player: &Player) {
    player.hear("BYE", |heard| !heard.byes.is_empty());
}

#[test]
fn viewers_follow_a_recording_until_its_recorder_ends() {
    let scene = Scene::begin(41, 7);
    let description = Control::to(scene.server.rtsp).ask("DESCRIBE", "0.ts", &[]);
    let text = String::from_utf8_lossy(&description.body).into_owned();
    assert!(text.contains("a=range:npt=0-\r\n"), "{text}");
    let (first, answer, _) = scene.play("0");
    assert_eq!(range(&answer), "npt=0.000-");
    let first_sequence = sequence(&answer);
    // From the current end: this viewer waits for bytes that do not exist yet.
    let (live, live_answer, _) = scene.play("now");
    assert!(range(&live_answer).ends_with('-'), "{live_answer:?}");
    let live_sequence = sequence(&live_answer);
    assert!(live_sequence.wrapping_sub(first_sequence) >= PACKETS_PER_S as u16);
    // A late viewer can seek back.
    scene.recorder.await_bytes("0.ts", 5 * BYTES_PER_S);
    let (mut late, back, _) = scene.play("3");
    let start = range(&back).trim_start_matches("npt=").trim_end_matches('-').to_owned();
    assert!((2.0..=3.0).contains(&start.parse::<f64>().expect("seconds")), "{back:?}");
    late.hear("what was recorded before", |heard| heard.packets.len() > 20);
    assert_eq!(late.command("TEARDOWN", &[]).status, 200);

    scene.source.join().expect("it sends all");
    // The bytes written after it began arrive too, except those of the last seconds.
    let all = scene.clip.len().div_ceil(PAYLOAD_BYTES) as f64;
    first.hear("what was written", |heard| heard.packets.len() as f64 > all - 3.0 * PACKETS_PER_S);
    // The source is silent, and a viewer at the end waits, because the recorder still runs: a play
    // of a second that begins now ends before.
    let mut brief = Player::set_up(scene.server.rtsp, "0.ts");
    assert_eq!(brief.command("PLAY", &["Range: npt=2-3"]).status, 200);
    hear_out(&brief);
    assert!(live.heard().byes.is_empty() && first.heard().byes.is_empty());
    scene.recorder.stop().well();
    assert_eq!(recorded(&scene.place).len(), scene.clip.len());
    hear_out(&first);
    hear_out(&live);
    let whole = first.heard().assert_gapless(&scene.clip, first_sequence);
    assert_eq!(whole.len(), scene.clip.len(), "all that was recorded");
    let skipped = usize::from(live_sequence.wrapping_sub(first_sequence)) * PAYLOAD_BYTES;
    let tail = live.heard().assert_gapless(&scene.clip[skipped..], live_sequence);
    assert_eq!(tail.len(), scene.clip.len() - skipped, "all from where it was");

    let row = scene.server.await_stream("0.ts");
    let index = scene.server.await_index("it is complete", |index| {
        index["files"][0]["live"].is_null() && index["files"][0]["stream"]["packets"].is_u64()
    });
    assert_eq!(index["files"][0]["stream"]["packets"], scene.clip.len().div_ceil(PAYLOAD_BYTES));
    assert!(row["name"] == "0.ts");
    let described = Control::to(scene.server.rtsp).ask("DESCRIBE", "0.ts", &[]);
    let text = String::from_utf8_lossy(&described.body).into_owned();
    let end = text.split("a=range:npt=0-").nth(1).and_then(|rest| rest.chars().next());
    assert!(end.is_some_and(|first| first.is_ascii_digit()), "it has an end now: {text}");
    scene.server.stop();
}

/// A recording has no end while it is written and has one afterwards: the second recorder is then
/// complete, and does not request it from its start.
#[test]
fn a_recording_of_a_recording_has_everything_once() {
    let scene = Scene::begin(43, 5);
    let second = Place::new();
    let source = scene.server.rtsp_url("0.ts");
    let mut recorder = Recorder::start(&second, &[source], &["--path", "recvmmsg"]);
    scene.source.join().expect("it sends all");
    recorder.await_bytes("0.ts", scene.clip.len() as u64 - BYTES_PER_S / 2);
    scene.recorder.stop().well();
    recorder.await_log("asking again");
    let again = recorder.ended().well();
    assert_eq!(again.stream(0)["ended"], "complete", "{:#}\n{}", again.summary, again.log);
    assert_eq!(recorded(&second), *scene.clip);
    scene.server.stop();
}

/// A source without an end is not played from its start again after an outage of its server.
#[test]
fn a_recording_of_a_recording_goes_on_where_its_server_went_away() {
    let scene = Scene::begin(44, 6);
    let Scene { place, clip, recorder, source, server, .. } = scene;
    let second = Place::new();
    let options = ["--path", "recvmmsg"];
    let mut again = Recorder::start(&second, &[server.rtsp_url("0.ts")], &options);
    again.await_bytes("0.ts", 2 * BYTES_PER_S);
    let rtsp = server.rtsp;
    server.stop();
    again.await_log("asking again");
    let server = Server::listening(&rtsp.to_string(), &place, Command::new(PROGRAM), &[]);
    source.join().expect("it sends all");
    again.await_bytes("0.ts", clip.len() as u64 - BYTES_PER_S / 2);
    recorder.stop().well();
    let again = again.ended().well();
    assert_eq!(again.stream(0)["ended"], "complete", "{:#}\n{}", again.summary, again.log);
    // It continues at an entry point: a second or two are duplicated, nothing is missing.
    let written = recorded(&second);
    let before = written.iter().zip(&*clip).take_while(|(a, b)| a == b).count() / 188 * 188;
    let twice = written.len() as u64 - clip.len() as u64;
    assert!(clip.ends_with(&written[before..]) && before > 0, "{before} of {} bytes", clip.len());
    assert!(twice < 3 * BYTES_PER_S, "{twice} bytes are there twice");
    server.stop();
}

#[test]
fn viewers_of_a_recorder_that_is_killed_see_what_it_wrote_to_its_end() {
    let scene = Scene::begin(42, 60);
    let (first, answer, _) = scene.play("0");
    let first_sequence = sequence(&answer);
    let (live, ..) = scene.play("now");
    scene.recorder.await_bytes("0.ts", 5 * BYTES_PER_S);
    scene.recorder.kill();
    scene.stop.store(true, Ordering::Relaxed);
    let recorded = recorded(&scene.place);
    hear_out(&first);
    hear_out(&live);
    let whole = first.heard().assert_gapless(&scene.clip, first_sequence);
    // A truncated packet at the end does not count.
    let packets = recorded.len() / 188 * 188;
    assert_eq!(whole.len(), packets, "of {} bytes recorded", recorded.len());
    scene.source.join().expect("it was stopped");
    scene.server.stop();
}

/// Rate of [`Clip::of_seconds`].
const BYTES_PER_S: u64 = 500_000 / 8;
pub(crate) const PACKETS_PER_S: f64 = 500_000.0 / 8.0 / PAYLOAD_BYTES as f64;
/// Seconds of the source that are recorded before the first play.
const AHEAD_S: u64 = 4;
