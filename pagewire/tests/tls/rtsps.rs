// SPDX-License-Identifier: MIT OR Apache-2.0
//! ffmpeg and GStreamer over RTSPS, and ffmpeg over HTTPS: the film is what they receive.
//!
//! Frames are compared as in `tests/interop/ffmpeg.rs`: by stream, times, size and MD5. Over RTSP
//! ffmpeg drops the last frame of the picture, as nothing ends it there.

use std::ffi::OsStr;
use std::process::Command;

use crate::harness::film::{FRAMES_PER_SECOND, GROUP_SECONDS, film};
use crate::{TlsServer, assert_bytes, excerpt, run};

/// Lines of ffmpeg's framemd5 of the streams that it copies, by stream: picture, sound.
fn frames(test: &str, before: &[&str], input: &OsStr, after: &[&str]) -> Option<[Vec<String>; 2]> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "warning"]).args(before).arg("-i").arg(input);
    command.args(["-map", "0", "-c", "copy"]).args(after).args(["-f", "framemd5", "-"]);
    let text = String::from_utf8(run(test, &mut command)?.succeeded()).expect("text");
    // Side data of the container may follow the first six fields.
    let fields = |line: &str| line.split(',').take(6).collect::<Vec<_>>().join(",");
    let of = |stream: &str| text.lines().filter(|l| l.starts_with(stream)).map(fields).collect();
    Some([of("0,"), of("1,")])
}

/// Sizes and hashes of frames without their times, which start anew after a seek.
fn without_times(frames: &[String]) -> Vec<String> {
    let last = |line: &String| line.rsplitn(3, ',').take(2).collect::<Vec<_>>().join(",");
    frames.iter().map(last).collect()
}

pub(crate) fn ffmpeg_plays_every_frame() {
    let test = "rtsps::ffmpeg_plays_every_frame";
    let Some(bytes) = excerpt(test) else { return };
    let TlsServer { server, .. } = TlsServer::start(&[("film.ts", bytes)]);
    server.await_stream("film.ts");
    let file = server.folder().join("film.ts");
    let Some([picture, sound]) = frames(test, &["-copyts"], file.as_os_str(), &[]) else { return };
    assert!(picture.len() > 100, "{} frames of picture in the film", picture.len());
    let url = server.rtsps_url("film.ts");
    let options = ["-copyts", "-rtsp_transport", "tcp"];
    let received = frames(test, &options, OsStr::new(&url), &[]).expect("ffmpeg was there");
    assert_eq!(received[0], picture[..picture.len() - 1]);
    assert_eq!(received[1], sound);
    server.stop();
}

#[test]
fn ffmpeg_seeks_to_the_key_frame_before() {
    let test = "rtsps::ffmpeg_seeks_to_the_key_frame_before";
    let Some(film) = film(test) else { return };
    let TlsServer { server, .. } = TlsServer::start(&[("film.ts", &film.bytes)]);
    server.await_stream("film.ts");
    let Some([sent, _]) = frames(test, &[], film.path.as_os_str(), &[]) else { return };
    let url = server.rtsps_url("film.ts");
    let options = ["-rtsp_transport", "tcp", "-ss", "30"];
    let received = frames(test, &options, OsStr::new(&url), &["-t", "2"]);
    let [picture, _] = received.expect("ffmpeg was there");
    assert_starts_near(&without_times(&picture), &without_times(&sent), 30);
    server.stop();
}

#[test]
fn ffmpeg_plays_and_seeks_over_https() {
    let test = "rtsps::ffmpeg_plays_and_seeks_over_https";
    let Some(film) = film(test) else { return };
    let TlsServer { server, authority } = TlsServer::start(&[("film.ts", &film.bytes)]);
    let Some(sent) = frames(test, &["-copyts"], film.path.as_os_str(), &[]) else { return };
    let url = server.https_url("film.ts");
    let root = authority.root().display().to_string();
    let verified = ["-tls_verify", "1", "-ca_file", &root];
    let play = |options: &[&str], after: &[&str]| {
        let options = [&verified, options].concat();
        frames(test, &options, OsStr::new(&url), after).expect("ffmpeg was there")
    };
    assert_eq!(play(&["-copyts"], &[]), sent);
    let [picture, _] = play(&["-ss", "30"], &["-t", "2"]);
    assert_starts_near(&without_times(&picture), &without_times(&sent[0]), 30);
    server.stop();
}

/// Asserts that these frames are a part of the film that starts at a key frame, at most a group
/// before this second.
#[track_caller]
fn assert_starts_near(part: &[String], whole: &[String], second: u64) {
    assert!(part.len() > 20, "{} frames of picture", part.len());
    let start = whole.windows(part.len()).position(|window| window == part);
    let start = start.expect("frames of the film in order") as u64;
    let (rate, group) = (FRAMES_PER_SECOND, GROUP_SECONDS * FRAMES_PER_SECOND);
    assert_eq!(start % group, 0, "frame {start} is no key frame");
    let wanted = second * rate;
    assert!((wanted - group..=wanted).contains(&start), "frame {start}, not {wanted}");
}

pub(crate) fn gstreamer_receives_every_byte() {
    let test = "rtsps::gstreamer_receives_every_byte";
    let Some(bytes) = excerpt(test) else { return };
    for element in ["rtspsrc", "rtpmp2tdepay", "fdsink"] {
        let mut command = Command::new("gst-inspect-1.0");
        let Some(outcome) = run(test, command.args(["--exists", element])) else { return };
        if !outcome.status.success() {
            eprintln!("skip: {test}: GStreamer element {element}: not installed");
            return;
        }
    }
    let TlsServer { server, .. } = TlsServer::start(&[("film.ts", bytes)]);
    server.await_stream("film.ts");
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "rtspsrc", "protocols=tcp", "tls-validation-flags=0"]);
    command.arg(format!("location={}", server.rtsps_url("film.ts")));
    command.args(["!", "rtpmp2tdepay", "!", "fdsink", "fd=1", "sync=false"]);
    let Some(outcome) = run(test, &mut command) else { return };
    // Its words where GIO has no module for TLS.
    if outcome.stderr.contains("TLS/SSL support not available") {
        eprintln!("skip: {test}: glib-networking: not installed");
        return;
    }
    assert_bytes(&outcome.succeeded(), bytes);
    server.stop();
}
