// SPDX-License-Identifier: MIT OR Apache-2.0
//! Key frames of transport streams with ffmpeg: each entry of their playlists decodes to one
//! picture, which equals ffmpeg's picture of the whole file at that time.
//!
//! Sources: RFC 8216 §4.3.3.6; ffmpeg-formats(1) (framemd5). Does not check times.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::clips::{Clip, H264, LIMIT, clip, ffmpeg};
use crate::enciphered::secret;
use crate::harness::clip::with_sets_once;
use crate::harness::{PROGRAM, Place, Server, film, watchdog};
use crate::site::{fetch, resolved};

/// Returns the MD5 of each picture that ffmpeg shows.
fn shown(source: &str) -> Vec<String> {
    let mut command = ffmpeg();
    command.args(["-i", source, "-map", "0:v:0", "-fps_mode", "passthrough"]);
    command.args(["-f", "framemd5", "-"]);
    let output = watchdog::run(&mut command, LIMIT).expect("ffmpeg made the clip").succeeded();
    let text = String::from_utf8(output).expect("text");
    let frames = text.lines().filter(|line| !line.starts_with('#'));
    frames.map(|line| line.rsplit(',').next().expect("a sum").trim().to_owned()).collect()
}

/// Makes a film with open groups of pictures, or one of fields.
fn made(name: &str, options: &[&str]) -> Result<PathBuf, String> {
    let mut command = ffmpeg();
    command.args(["-f", "lavfi", "-t", "8", "-i", "testsrc2=size=320x192:rate=25"]);
    command.args(H264).args(options);
    film::made(&mut command, name)
}

/// Returns the playlist of key frames of a file, and its entries as a player fetches them: map and
/// range, or a segment.
fn entries(server: &Server, name: &str, query: &str) -> (String, Vec<Vec<u8>>) {
    let path = format!("/{name}/master.m3u8");
    let master = fetch(server, &format!("{path}{query}"), None).text();
    let line = master.lines().find(|line| line.starts_with("#EXT-X-I-FRAME-STREAM-INF:"));
    let line = line.unwrap_or_else(|| panic!("{name}{query}: {master}"));
    let uri = line.split_once("URI=\"").expect("an address").1.trim_end_matches('"');
    let path = resolved(&path, uri);
    let text = fetch(server, &path, None).text();
    let range = |value: &str| {
        let (bytes, offset) = value.split_once('@').expect("an offset");
        Some((offset.parse().unwrap(), bytes.parse().unwrap()))
    };
    let (mut map, mut asked, mut all) = (Vec::new(), None, Vec::new());
    for line in text.lines() {
        if let Some((_, value)) = line.split_once("BYTERANGE=\"") {
            let media = resolved(&path, "media.ts");
            map = fetch(server, &media, range(value.trim_end_matches('"'))).body;
        } else if let Some(value) = line.strip_prefix("#EXT-X-BYTERANGE:") {
            asked = range(value);
        } else if !line.starts_with('#') {
            let answer = fetch(server, &resolved(&path, line), asked.take());
            assert!(matches!(answer.status, 200 | 206), "{line}: {}", answer.head);
            all.push([&map[..], &answer.body].concat());
        }
    }
    (path, all)
}

#[test]
fn each_entry_of_a_playlist_of_key_frames_decodes_to_one_key_frame() {
    let test =
        "clients::key_frames::each_entry_of_a_playlist_of_key_frames_decodes_to_one_key_frame";
    let Some(ordinary) = clip(test, Clip::Ts) else { return };
    let open = made("open.ts", &["-x264-params", "open-gop=1:keyint=50:min-keyint=50"]);
    let Some(open) = film::or_skip(test, open) else { return };
    let fields = made("fields.ts", &["-flags", "+ilme+ildct"]);
    let Some(fields) = film::or_skip(test, fields) else { return };
    let read = |path: &Path| std::fs::read(path).expect("it was made");
    let place = Place::new();
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("film.ts", read(&ordinary)),
        ("open.ts", read(&open)),
        ("fields.ts", read(&fields)),
        ("once.ts", with_sets_once()),
        ("joined.ts", [read(&ordinary), read(&open)].concat()),
    ];
    let paths: Vec<PathBuf> = files.iter().map(|(name, bytes)| place.put(name, bytes)).collect();
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut key_frames: Vec<Vec<String>> = Vec::new();
    for ((name, _), path) in files.iter().zip(&paths) {
        server.await_stream(name);
        let whole = path.to_str().expect("a path in UTF-8");
        let expected: Vec<String> = match *name {
            "joined.ts" => [&*key_frames[0], &key_frames[1]].concat(),
            // The built-in clip has one a second.
            "once.ts" => shown(whole).into_iter().step_by(25).collect(),
            _ => shown(whole).into_iter().step_by(50).collect(),
        };
        key_frames.push(expected.clone());
        for query in ["", "?ranges=no"] {
            let (playlist, entries) = entries(&server, name, query);
            let one = |entry: &Vec<u8>| {
                let path = folder.path().join("entry.ts");
                std::fs::write(&path, entry).expect("written");
                shown(path.to_str().expect("a path in UTF-8"))
            };
            let found: Vec<Vec<String>> = entries.iter().map(one).collect();
            let is_one = |shown: &Vec<String>| shown.len() == 1;
            assert!(found.iter().all(is_one), "{name}{query}: {found:?}");
            let found = found.concat();
            assert_eq!(found, expected, "{name}{query}: the key frames of the file");
            // Display orders of open groups are not consecutive by themselves.
            if matches!(*name, "film.ts" | "once.ts") {
                let played = shown(&server.http_url(&playlist[1..]));
                assert_eq!(played, expected, "{name}{query}: the playlist, played by ffmpeg");
            }
        }
    }
    server.stop();
}

#[test]
fn enciphered_key_frames_of_a_transport_stream_are_played() {
    let test = "clients::key_frames::enciphered_key_frames_of_a_transport_stream_are_played";
    let Some(ordinary) = clip(test, Clip::Ts) else { return };
    let (_folder, secret) = secret();
    let secret = secret.to_str().expect("a path in UTF-8");
    let options = ["--hls-cipher", "aes-128", "--hls-key-file", secret];
    let server = Server::with_options(&[("film.ts", &ordinary)], &options);
    server.await_stream("film.ts");
    let (playlist, entries) = entries(&server, "film.ts", "");
    assert!(entries.iter().all(|entry| entry[0] != 0x47 || entry[188] != 0x47), "enciphered");
    let all = shown(ordinary.to_str().expect("UTF-8"));
    let expected: Vec<String> = all.into_iter().step_by(50).collect();
    assert_eq!(shown(&server.http_url(&playlist[1..])), expected);
    server.stop();
}
