// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeks to times at which there is a key frame: the first frame received is that frame.
//!
//! ffprobe lists the frames of a file with their presentation times, both of the title and of the
//! received stream. Titles have several rates, B-frames, and open groups of pictures.
//!
//! Sources: RFC 2326 §10.5, §12.29.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::Server;
use crate::harness::film;
use crate::harness::rtsp::Player;
use crate::{client, harness::answer::Answer};

/// Name, rate and encoder options of a title; all have key frames at the first frame of every
/// second second.
const TITLES: &[(&str, &str, &[&str])] = &[
    ("25.ts", "25", &["-c:v", "libx264", "-bf", "3"]),
    ("23976.ts", "24000/1001", &["-c:v", "libx264", "-bf", "3"]),
    ("2997.ts", "30000/1001", &["-c:v", "libx264", "-x264-params", "open-gop=1"]),
    ("mpeg2.ts", "25", &["-c:v", "mpeg2video", "-bf", "2"]),
];

const SECONDS: [u64; 4] = [2, 4, 12, 16];

fn make(test: &str, folder: &Path, title: &(&str, &str, &[&str])) -> Option<PathBuf> {
    let (name, rate, options) = title;
    let path = folder.join(name);
    let picture = format!("testsrc2=size=320x180:rate={rate}:duration=20");
    let mut command = Command::new("ffmpeg");
    command
        .args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", &picture])
        .args(["-f", "lavfi", "-i", "sine=sample_rate=48000:duration=20"])
        .args(*options)
        .args(["-force_key_frames", "expr:gte(t,n_forced*2)", "-c:a", "aac", "-f", "mpegts"]);
    film::put(test, &mut command, &path)?;
    Some(path)
}

/// Returns presentation times at 90 kHz of the frames of a file's picture that a decoder shows,
/// each with true for a key frame.
fn frames(test: &str, path: &Path) -> Option<Vec<(u64, bool)>> {
    let mut command = Command::new("ffprobe");
    command
        .args(["-hide_banner", "-loglevel", "error", "-select_streams", "v:0", "-of", "csv=p=0"])
        .args(["-show_entries", "frame=key_frame,pts"])
        .arg(path);
    let text = String::from_utf8(client(test, &mut command)?.succeeded()).expect("text");
    let frame = |line: &str| {
        let mut fields = line.split(',');
        let is_key = fields.next()? == "1";
        Some((fields.next()?.parse().ok()?, is_key))
    };
    Some(text.lines().filter_map(frame).collect())
}

/// Returns the start of the range in an answer to PLAY, as written.
fn start(answer: &Answer) -> String {
    let range = answer.header("Range").unwrap_or_else(|| panic!("no Range in {answer:?}"));
    let start = range.strip_prefix("npt=").and_then(|range| range.split('-').next());
    start.unwrap_or_else(|| panic!("Range: {range}")).to_owned()
}

/// Plays a title from a time on; returns the bytes received within a second, and the start in the
/// answer.
fn received(server: &Server, name: &str, from: &str) -> (Vec<u8>, String) {
    let mut player = Player::set_up(server.rtsp, name);
    let answer = player.command("PLAY", &[&format!("Range: npt={from}-")]);
    assert_eq!(answer.status, 200, "{name} from {from}: {answer:?}");
    thread::sleep(Duration::from_secs(1));
    player.hear("a second of film", |heard| heard.packets.len() > 20);
    let bytes = player.heard().packets.iter().flat_map(|packet| packet[12..].to_vec()).collect();
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    (bytes, start(&answer))
}

#[test]
fn first_frame_of_a_seek_is_the_key_frame_at_that_time_or_before() {
    let test = "seeks::first_frame_of_a_seek_is_the_key_frame_at_that_time_or_before";
    let place = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    for title in TITLES {
        let name = title.0;
        let Some(path) = make(test, place.path(), title) else { return };
        let Some(sent) = frames(test, &path) else { return };
        let begin = sent[0].0;
        let keys: Vec<u64> =
            sent.iter().filter(|(_, is_key)| *is_key).map(|(time, _)| time - begin).collect();
        assert!(keys.len() >= 10, "{name}: {keys:?}");
        let server = Server::start(&[(name, &path)]);
        server.await_stream(name);
        // Whole seconds, and the expected answer to PLAY for the key frame after each.
        let mut asked: Vec<(String, u64)> =
            SECONDS.iter().map(|second| (second.to_string(), second * 90_000)).collect();
        for second in SECONDS {
            let key = *keys.iter().find(|key| **key >= second * 90_000).expect("to the end");
            asked.push((format!("{:.6}", key as f64 / 90_000.0), key));
        }
        for (from, stamps) in asked {
            let key = *keys.iter().rfind(|key| **key <= stamps).expect("the first is at zero");
            let (bytes, start) = received(&server, name, &from);
            let part = place.path().join("part.ts");
            fs::write(&part, bytes).expect("room for a second");
            let Some(found) = frames(test, &part) else { return };
            let first = found.first().map(|(time, _)| time - begin);
            assert_eq!(first, Some(key), "{name} from {from}: in stamps of 90 kHz; of {keys:?}");
            let expected = key as f64 / 90_000.0;
            let start: f64 = start.parse().expect("seconds");
            assert!((start - expected).abs() < 2e-6, "{name} from {from}: Range from {start}");
        }
        server.stop();
    }
}
