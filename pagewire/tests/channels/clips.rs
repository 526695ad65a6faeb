// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of channels: some seconds of a picture and a sound, made by ffmpeg, all different.
//!
//! Made once for all tests, on disk. They differ as files of a playlist do: length, tone, distance
//! of key frames and pictures that refer forward.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{film, watchdog};

/// Streams of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    Both,
    Picture,
    Sound,
}

/// Returns the transport stream of a clip; `None`, with the reason printed for `test`, where ffmpeg
/// or an encoder is missing.
pub(crate) fn clip(test: &str, number: u32, frames: u32, streams: Streams) -> Option<Vec<u8>> {
    let made = film::made(&mut command(number, frames, streams), "clip.ts");
    let made = made.inspect_err(|reason| eprintln!("skip: {test}: no clip: {reason}")).ok()?;
    Some(fs::read(made).expect("it was made"))
}

/// Returns the command that makes a clip.
fn command(number: u32, frames: u32, streams: Streams) -> Command {
    let seconds = f64::from(frames) / f64::from(FRAMES_PER_SECOND);
    let picture = format!("testsrc2=size=320x180:rate={FRAMES_PER_SECOND}:duration={seconds}");
    let sound =
        format!("sine=frequency={}:duration={seconds}:sample_rate=48000", 300 + 60 * number);
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error"]);
    if streams != Streams::Sound {
        command.args(["-f", "lavfi", "-i", &picture]);
    }
    if streams != Streams::Picture {
        command.args(["-f", "lavfi", "-i", &sound]);
    }
    command.args(["-c:a", "aac", "-b:a", "64k"]);
    if streams != Streams::Sound {
        // No two clips have the same pictures in the same places.
        let hue = format!("hue=h={}", 40 * number);
        let (group, between) = ((10 + 5 * number).to_string(), (number % 3).to_string());
        command.args(["-vf", &hue, "-g", &group, "-bf", &between, "-pix_fmt", "yuv420p"]);
        command.args(["-c:v", "libx264", "-preset", "ultrafast", "-b:v", "500k"]);
    }
    command.args(["-f", "mpegts"]);
    command
}

/// Returns digests of the frames of a file: of pictures as decoded and as stored, and of sounds as
/// stored.
#[track_caller]
pub(crate) fn frames(path: &Path) -> [Vec<String>; 3] {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-i"]).arg(path);
    command.args(["-map", "0:v", "-map", "0:v", "-map", "0:a", "-fps_mode", "passthrough"]);
    command.args(["-c:v:0", "rawvideo", "-c:v:1", "copy", "-c:a", "copy", "-f", "framemd5", "-"]);
    let outcome = watchdog::run(&mut command, LIMIT).expect("it made the clips");
    assert_eq!(outcome.stderr, "", "{command:?}");
    let text = String::from_utf8(outcome.succeeded()).expect("ffmpeg prints ASCII");
    let mut digests = [const { Vec::new() }; 3];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let stream: usize = fields[0].parse().expect("the stream is the first");
        digests[stream].push(fields[5].to_owned());
    }
    digests
}

/// Asserts that ffmpeg decodes all of a file without an error message.
#[track_caller]
pub(crate) fn assert_decodes(path: &Path) {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-i"]).arg(path).args(["-f", "null", "-"]);
    let outcome = watchdog::run(&mut command, LIMIT).expect("it made the clips");
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{}", outcome.stderr);
    let mut command = Command::new("ffprobe");
    command.args(["-hide_banner", "-loglevel", "error", "-show_packets"]).arg(path);
    let outcome = watchdog::run(&mut command, LIMIT).expect("it comes with ffmpeg");
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{}", outcome.stderr);
}

pub(crate) const FRAMES_PER_SECOND: u32 = 25;
const LIMIT: Duration = Duration::from_secs(60);
