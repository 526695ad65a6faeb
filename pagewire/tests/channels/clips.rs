// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of channels: some seconds of a picture and a sound, made by ffmpeg, no two alike.
//!
//! Made once a process and file. They differ as files of a playlist do: length, tone, distance of
//! key frames and pictures that refer forward.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use crate::harness::watchdog;

/// Streams of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Streams {
    Both,
    Picture,
    Sound,
}

/// The transport stream of a clip; `None`, with the reason printed for `test`, where ffmpeg or an
/// encoder is missing.
pub(crate) fn clip(test: &str, number: u32, frames: u32, streams: Streams) -> Option<Vec<u8>> {
    type Made = HashMap<(u32, u32, Streams), Result<Vec<u8>, String>>;
    static MADE: Mutex<Option<Made>> = Mutex::new(None);
    let mut made = MADE.lock().expect("making a clip does not panic");
    let made = made.get_or_insert_default();
    let key = (number, frames, streams);
    match made.entry(key).or_insert_with(|| make(number, frames, streams)) {
        Ok(bytes) => Some(bytes.clone()),
        Err(reason) => {
            eprintln!("skip: {test}: no clip: {reason}");
            None
        }
    }
}

fn make(number: u32, frames: u32, streams: Streams) -> Result<Vec<u8>, String> {
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
    command.args(["-f", "mpegts", "-"]);
    let outcome = watchdog::run(&mut command, LIMIT)?;
    match outcome.status.success() {
        true => Ok(outcome.stdout),
        false if outcome.stderr.contains("Unknown encoder") => {
            Err("encoders libx264 and aac of ffmpeg: not installed".to_owned())
        }
        false => panic!("{command:?}: {}", outcome.stderr),
    }
}

/// A line for each frame of a stream: the digest of what is decoded, or of what is in the file.
#[track_caller]
pub(crate) fn frames(path: &Path, stream: &str, is_decoded: bool) -> Vec<String> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-i"]).arg(path);
    command.args(["-map", stream, "-fps_mode", "passthrough"]);
    if !is_decoded {
        command.args(["-c", "copy"]);
    }
    command.args(["-f", "framemd5", "-"]);
    let outcome = watchdog::run(&mut command, LIMIT).expect("it made the clips");
    assert_eq!(outcome.stderr, "", "{command:?}");
    let text = String::from_utf8(outcome.succeeded()).expect("ffmpeg prints ASCII");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digest = |line: &str| line.split(',').nth(5).map(|digest| digest.trim().to_owned());
    lines.map(|line| digest(line).expect("a digest is the sixth")).collect()
}

/// Asserts that ffmpeg decodes all of a file without a complaint.
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
