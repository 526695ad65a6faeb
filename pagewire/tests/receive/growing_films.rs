// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording in MP4 that is played by RTSP while it is written: everything arrives once, to the
//! end of the recorder.
//!
//! Sources: RFC 2326 §3.6, §12.29; RFC 3550 §6.6.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::growing_film::{GrowingFilm, film};
use crate::harness::recorder::Recorder;
use crate::harness::rtsp::Control;
use crate::harness::{PROGRAM, Place, Server, await_true, watchdog};

/// Returns digests of the pictures of a file, or of its packets of sound.
fn units(path: &Path, stream: &str) -> Vec<String> {
    let mut command = crate::harness::film::ffmpeg();
    // A recorder may leave parameter sets and delimiters out.
    let form: &[&str] =
        if stream == "0:v" { &["-fps_mode", "passthrough"] } else { &["-c", "copy"] };
    command.arg("-i").arg(path).args(["-map", stream]).args(form).args(["-f", "framemd5", "-"]);
    let outcome = watchdog::run(&mut command, LIMIT).expect("ffmpeg made the film");
    let text = String::from_utf8(outcome.succeeded()).expect("UTF-8");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit(',').next()).map(|one| one.trim().to_owned()).collect()
}

#[test]
fn viewers_follow_a_film_until_its_recorder_ends() {
    let test = "growing_films::viewers_follow_a_film_until_its_recorder_ends";
    let Some(path) = film(test, 10, 0) else { return };
    let (place, copies) = (Place::new(), Place::new());
    let mut growing = GrowingFilm::begin(&place, "a.mp4", &path);
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    let early = Control::to(server.rtsp).ask("DESCRIBE", "a.mp4", &[]);
    assert_eq!(early.status, 503, "{early:?}");
    growing.write(2);
    await_true("there is enough", || {
        Control::to(server.rtsp).ask("DESCRIBE", "a.mp4", &[]).status == 200
    });
    let described = Control::to(server.rtsp).ask("DESCRIBE", "a.mp4", &[]);
    let text = String::from_utf8_lossy(&described.body).into_owned();
    assert!(text.contains("a=range:npt=0-\r\n"), "{text}");

    let copy = copies.folder().join("copy.mp4");
    let output = ["--output", copy.to_str().expect("a name in UTF-8")];
    let url = server.rtsp_url("a.mp4");
    let recorder =
        Recorder::by(Command::new(PROGRAM), &copies, std::slice::from_ref(&url), &output);
    let mut player = Command::new(PROGRAM);
    player.args(["play", "--json", "--transport", "tcp", &url]);
    let player = player.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    // Both have what was written, all but the last second or two.
    recorder.await_bytes("copy.mp4", 10_000);
    growing.write_rest();
    await_true("all is read", || {
        let rows = server.index()["files"].as_array().expect("a list").clone();
        rows.iter().any(|row| row["name"] == "a.mp4" && row["live"] == true)
    });
    growing.end();
    let recorded = recorder.ended().well();
    assert_eq!(recorded.stream(0)["ended"], "complete", "{:#}\n{}", recorded.summary, recorded.log);
    assert_eq!(recorded.figure("lost"), 0, "{:#}", recorded.summary);
    let played = player.wait_with_output().expect("it is our child");
    let figures: Value = serde_json::from_slice(&played.stdout).expect("figures");
    for (index, stream) in ["0:v", "0:a"].into_iter().enumerate() {
        let (expected, found) = (units(&path, stream), units(&copy, stream));
        assert!(found == expected, "{stream}: {} of {}", found.len(), expected.len());
        let of_player = &figures["tracks"][index];
        assert_eq!(of_player["units"], expected.len(), "{stream}: {figures:#}");
        assert_eq!(of_player["lost"], 0, "{stream}: {figures:#}");
    }
    let described = Control::to(server.rtsp).ask("DESCRIBE", "a.mp4", &[]);
    let text = String::from_utf8_lossy(&described.body).into_owned();
    assert!(text.contains("a=range:npt=0-10."), "it has an end now: {text}");
    server.stop();
}

const LIMIT: Duration = Duration::from_secs(60);
