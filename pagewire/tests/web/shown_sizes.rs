// SPDX-License-Identifier: MIT OR Apache-2.0
//! Films whose container rotates their pictures or declares the shape of their pixels: playlists
//! give the displayed size, and initialization sections describe the pictures as the film does.
//!
//! Sources: RFC 8216 §4.3.4.2 (RESOLUTION); ISO/IEC 23009-1 §5.3.7.2 (width, height, sar). Does not
//! decode; ffprobe reads the films and the served segments.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Server, film};
use crate::listed::{dash, encode, hls, remux, whole};
use crate::site::manifest_of;

/// Returns rotation and pixel shape as ffprobe reads them.
fn shown(path: &Path) -> (Value, Value) {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-select_streams", "v", "-of", "json", "-show_entries"]);
    command.arg("stream=sample_aspect_ratio:stream_side_data=rotation").arg(path);
    let outcome = command.output().expect("ffprobe runs");
    let read: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    let stream = &read["streams"][0];
    let aspect = match &stream["sample_aspect_ratio"] {
        Value::Null => "1:1".into(),
        aspect => aspect.clone(),
    };
    (stream["side_data_list"][0]["rotation"].clone(), aspect)
}

/// Checks a film by the picture properties in playlists, and by its init section and a segment.
#[track_caller]
fn assert_shown(server: &Server, (name, path): (&str, &Path), resolution: &str, grid: &str) {
    let (master, _) = hls(server, name);
    let wanted = format!("RESOLUTION={resolution}");
    let sizes = master.text.matches("RESOLUTION=").count();
    assert!(sizes > 0 && sizes == master.text.matches(&wanted).count(), "{}", master.text);
    let (text, _) = manifest_of(server, name);
    assert!(text.contains(grid) && text.matches(" sar=").count() <= 1, "{name}: {text}");
    assert_eq!(text.contains(" sar="), grid.contains(" sar="), "{name}: {text}");
    let pictures = dash(server, name).1.into_iter().find(|track| track.is_video);
    let pictures = pictures.expect("pictures");
    let parts = [&pictures.init, &pictures.segments[0].0].map(|path| whole(server, path));
    let folder = tempfile::tempdir().expect("a folder");
    let fetched = folder.path().join("fetched.mp4");
    std::fs::write(&fetched, parts.concat()).expect("room for a segment");
    assert_eq!(shown(&fetched), shown(path), "{name}");
}

/// Regression: films of telephones that were held upright were shown rotated.
#[test]
fn turns_and_forms_of_pixels_reach_players() {
    let test = "shown_sizes::turns_and_forms_of_pixels_reach_players";
    let make =
        |mut command: Command, name: &str| film::or_skip(test, film::made(&mut command, name));
    let Some(film) = make(encode(8, 2, 0), "film.mp4") else { return };
    let copied = |name: &str, options: &[&str]| make(remux(&film, options), name);
    let of_codec = |name: &str| {
        let mut command = encode(8, 2, 0);
        command.args(["-vf", "setsar=16/11"]);
        make(command, name)
    };
    let quarter = ["-metadata:s:v:0", "rotate=90"];
    let both = [&quarter[..], &["-aspect", "32:9"]].concat();
    let cases = [
        ("plain.mp4", copied("plain.mp4", &[]), "128x72", "width=\"128\" height=\"72\""),
        ("upright.mp4", copied("upright.mp4", &quarter), "72x128", "width=\"72\" height=\"128\""),
        (
            "wide.mp4",
            copied("wide.mp4", &["-aspect", "32:9"]),
            "256x72",
            "width=\"128\" height=\"72\" sar=\"2:1\"",
        ),
        (
            "wide.mkv",
            copied("wide.mkv", &["-aspect", "32:9"]),
            "256x72",
            "width=\"128\" height=\"72\" sar=\"2:1\"",
        ),
        (
            "both.mp4",
            copied("both.mp4", &both),
            "36x128",
            "width=\"72\" height=\"128\" sar=\"1:2\"",
        ),
        ("coded.mp4", of_codec("coded.mp4"), "186x72", "height=\"72\" sar=\"16:11\""),
        ("coded.ts", of_codec("coded.ts"), "186x72", "height=\"72\" sar=\"16:11\""),
    ];
    let mut films = Vec::new();
    for (name, path, resolution, grid) in cases {
        let Some(path) = path else { return };
        films.push((name, path, resolution, grid));
    }
    let upright = &films[1].1;
    assert!(!shown(upright).0.is_null(), "ffmpeg wrote the turn");
    let files: Vec<(&str, &Path)> = films.iter().map(|(name, path, ..)| (*name, &**path)).collect();
    let server = Server::start(&files);
    for (name, path, resolution, grid) in &films {
        assert_shown(&server, (name, path), resolution, grid);
    }
    server.stop();
}
