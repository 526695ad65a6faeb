// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the remedies in reasons and warnings: ffmpeg runs the command exactly as written, and its
//! output no longer has the fault.
//!
//! Skipped, with the reason printed, where ffmpeg or an encoder is missing.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use media::{Demuxer, Presentation, RtpIdentity};

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

const VIDEO: [&str; 4] = ["-f", "lavfi", "-i", "testsrc2=size=160x96:rate=25:duration=2"];
const SOUND: [&str; 4] = ["-f", "lavfi", "-i", "sine=sample_rate=48000:duration=2"];
const H264: [&str; 4] = ["-c:v", "libx264", "-preset", "ultrafast"];
const VP9: [&str; 6] = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"];

/// Runs ffmpeg; false, with the reason printed, where it or an encoder is not installed.
fn ffmpeg(arguments: &[&str]) -> bool {
    let quiet = ["-nostdin", "-hide_banner", "-loglevel", "error", "-y"];
    let output = match Command::new("ffmpeg").args(quiet).args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skip: ffmpeg: not installed: {error}; apt install ffmpeg");
            return false;
        }
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("Unknown encoder") || complaint.contains("No such filter") {
        eprintln!("skip: {}", complaint.trim());
        return false;
    }
    assert!(output.status.success(), "ffmpeg {arguments:?}: {complaint}");
    true
}

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cures-{name}"))
}

/// A file of pictures, sound and a subtitle.
fn film(name: &str, options: &[&[&str]]) -> Option<PathBuf> {
    let subtitles = place(&format!("{name}.srt"));
    std::fs::write(&subtitles, "1\n00:00:00,500 --> 00:00:01,000\nHallo\n").expect("it is ours");
    let path = place(name);
    let subtitles = ["-i", subtitles.to_str().expect("a path in UTF-8")];
    let target = [path.to_str().expect("a path in UTF-8")];
    let all = [&[&VIDEO[..], &SOUND, &subtitles], options, &[&target]].concat().concat();
    ffmpeg(&all).then_some(path)
}

fn demux(path: &Path) -> Presentation {
    let file = File::open(path).expect("ffmpeg wrote it");
    let bytes = file.metadata().expect("it is open").len();
    let mut demuxer = Demuxer::of(&file, bytes).expect("a file with tracks");
    while !demuxer.advance(&file, 1000).expect("ffmpeg writes good files") {}
    demuxer.finish(|| IDENTITY).expect("a track can be streamed")
}

/// Runs the command in a text on the file; `None` if ffmpeg cannot.
fn cured(path: &Path, text: &str) -> Option<Presentation> {
    let (_, command) = text.rsplit_once("(ffmpeg ").expect("there is a command in it");
    let (command, _) = command.split_once(')').expect("it has an end");
    let (input, mut output) = (path.to_str().expect("a path in UTF-8"), PathBuf::new());
    let words: Vec<_> = command
        .split_whitespace()
        .map(|word| match word.strip_prefix("OUT.") {
            Some(kind) => {
                // Tests run side by side.
                output = PathBuf::from(format!("{input}.cured.{kind}"));
                output.display().to_string()
            }
            None => word.replace("IN", input),
        })
        .collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let found = ffmpeg(&words).then(|| demux(&output));
    let _ = std::fs::remove_file(&output);
    found
}

/// Each omitted track of the film is sent after its remedy; subtitles are dropped.
fn check(name: &str, left_out: usize, options: &[&[&str]]) {
    let Some(path) = film(name, options) else { return };
    let whole = demux(&path);
    assert_eq!(whole.left_out().len(), left_out, "{:?}", whole.left_out());
    for track in whole.left_out() {
        if !track.reason.contains("ffmpeg") {
            continue;
        }
        let Some(found) = cured(&path, &track.reason) else { continue };
        if track.reason.contains("subtitles or") {
            let is_text = |reason: &str| reason.contains("subtitles or");
            assert!(!found.left_out().iter().any(|track| is_text(&track.reason)), "{found:?}");
            continue;
        }
        let expected = whole.tracks().len() + 1;
        assert_eq!(found.tracks().len(), expected, "{name}: {}", track.reason);
    }
}

#[test]
fn cures_of_tracks_of_matroska_work() {
    check("vp9.mkv", 2, &[&VP9, &["-c:a", "aac", "-c:s", "srt"]]);
    check("flac.mkv", 2, &[&H264, &["-c:a", "flac", "-c:s", "srt"]]);
    check("pcm.mkv", 2, &[&H264, &["-c:a", "pcm_s16le", "-c:s", "ass"]]);
    check("dts.mkv", 2, &[&H264, &["-c:a", "dca", "-strict", "-2", "-c:s", "srt"]]);
}

#[test]
fn cures_of_tracks_of_mp4_and_quicktime_work() {
    let text = ["-c:s", "mov_text"];
    check("vp9.mp4", 2, &[&VP9, &["-c:a", "aac"], &text]);
    check("flac.mp4", 2, &[&H264, &["-c:a", "flac", "-strict", "-2"], &text]);
    check("alac.mp4", 2, &[&H264, &["-c:a", "alac"], &text]);
    let time_code = ["-timecode", "01:00:00:00"];
    check("alac.mov", 3, &[&H264, &["-c:a", "alac"], &time_code, &text]);
    check("float.mov", 2, &[&H264, &["-c:a", "pcm_f32le"], &text]);
    check("signed.mov", 2, &[&H264, &["-c:a", "pcm_s8"], &text]);
}

/// Returns the only warning of a file, which is gone after its remedy.
fn check_warning(path: &Path, words: &str) {
    let whole = demux(path);
    let [warning] = whole.warnings() else { panic!("{:?}", whole.warnings()) };
    assert!(warning.contains(words), "{warning}");
    let Some(found) = cured(path, warning) else { return };
    assert!(found.warnings().is_empty(), "{:?}", found.warnings());
    assert_eq!(found.tracks().len(), whole.tracks().len());
    // ffmpeg keeps the truncated picture, which no decoder shows whole.
    let pictures = [&found, &whole].map(|found| found.tracks()[0].samples.len());
    assert!((0..=1).contains(&(pictures[0] - pictures[1])), "{pictures:?}");
}

#[test]
fn cures_of_files_that_are_cut_off_work() {
    let subtitles = ["-map", "0", "-map", "1"];
    let fragments = ["-g", "20", "-movflags", "frag_keyframe+empty_moov"];
    for (name, options) in [("cut.mkv", &["-g", "20"][..]), ("cut.mp4", &fragments)] {
        let Some(path) = film(name, &[&subtitles, &H264, options]) else { return };
        let bytes = std::fs::read(&path).expect("ffmpeg wrote it");
        std::fs::write(&path, &bytes[..bytes.len() * 7 / 10]).expect("the folder is ours");
        check_warning(&path, "cut off: ");
    }
}

/// Versions of ffmpeg before 6 write the matrix by `rotate`, and later ones by an option of the
/// input.
#[test]
fn cure_of_pictures_that_are_to_be_turned_works() {
    let Some(plain) = film("upright.mp4", &[&["-map", "0", "-map", "1"], &H264]) else { return };
    assert!(demux(&plain).warnings().is_empty());
    let path = place("turned.mp4");
    let [input, output] = [&plain, &path].map(|path| path.to_str().expect("a path in UTF-8"));
    let old = ["-i", input, "-c", "copy", "-metadata:s:v:0", "rotate=90", output];
    assert!(ffmpeg(&old));
    if demux(&path).warnings().is_empty() {
        assert!(ffmpeg(&["-display_rotation", "90", "-i", input, "-c", "copy", output]));
    }
    check_warning(&path, "turned by 270 degrees clockwise");
}
