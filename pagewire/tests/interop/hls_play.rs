// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire play` and `load` with HLS presentations by other programs and by `pagewire seal hls`.
//!
//! ffmpeg packages a film of six seconds in the common forms: byte ranges of one transport stream
//! and of one fMP4 file, and fMP4 segments with the sound in a playlist of its own. Every segment
//! is checked; one wrong byte is located.
//!
//! Sources: RFC 8216. Does not play live presentations: `client` does, against a scripted server.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::client;
use crate::harness::film::short_film;
use crate::harness::watchdog::{self, Outcome};
use crate::harness::{PROGRAM, Place, Server};

/// Plays without waiting; returns the verdict.
fn played(url: &str, options: &[&str]) -> (Outcome, Value) {
    let mut command = Command::new(PROGRAM);
    command.args(["play", url, "--fast", "--json"]).args(options);
    let outcome = watchdog::run(&mut command, LIMIT).expect("the program is there");
    let verdict = serde_json::from_slice(&outcome.stdout);
    let verdict = verdict.unwrap_or_else(|_| panic!("a verdict: {}", outcome.stderr));
    (outcome, verdict)
}

/// Packages the film into the folder; returns `None`, with the reason printed, where ffmpeg is
/// missing.
fn package(test: &str, film: &Path, playlist: &Path, options: &[&str]) -> Option<()> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-i"]).arg(film);
    command.args(["-map", "0:v:0", "-map", "0:a:0", "-c", "copy", "-f", "hls", "-hls_time", "2"]);
    command.args(["-hls_list_size", "0"]).args(options).arg(playlist);
    client(test, &mut command)?.succeeded();
    Some(())
}

const ONE_TS: &[&str] = &["-hls_flags", "single_file"];
const ONE_FMP4: &[&str] =
    &["-bsf:a", "aac_adtstoasc", "-hls_segment_type", "fmp4", "-hls_flags", "single_file"];
const SOUND_BESIDE: &[&str] = &[
    "-bsf:a",
    "aac_adtstoasc",
    "-hls_segment_type",
    "fmp4",
    "-hls_fmp4_init_filename",
    "init_%v.mp4",
    "-var_stream_map",
    "v:0,agroup:a a:0,agroup:a",
    "-master_pl_name",
    "master.m3u8",
];

#[test]
fn what_ffmpeg_packages_is_whole_and_one_wrong_byte_is_found() {
    let test = "hls_play::what_ffmpeg_packages_is_whole_and_one_wrong_byte_is_found";
    let Some(source) = short_film(test, 1, SECONDS) else { return };
    let place = Place::new();
    for (folder, playlist, master, options, container, renditions) in [
        ("ts", "m.m3u8", "m.m3u8", ONE_TS, "transport_stream", 1),
        ("one", "m.m3u8", "m.m3u8", ONE_FMP4, "fmp4", 1),
        ("two", "v%v.m3u8", "master.m3u8", SOUND_BESIDE, "fmp4", 2),
    ] {
        let folder_path = place.folder().join(folder);
        fs::create_dir(&folder_path).expect("a new folder");
        if package(test, &source, &folder_path.join(playlist), options).is_none() {
            return;
        }
        let server = Server::at(&place, Command::new(PROGRAM), &["--http-pace", "off"]);
        let url = server.http_url(&format!("{folder}/{master}"));
        let (outcome, verdict) = played(&url, &[]);
        assert!(outcome.status.success(), "{verdict:#}");
        let seen = verdict["renditions"].as_array().expect("renditions");
        assert_eq!(seen.len(), renditions, "{verdict:#}");
        for rendition in seen {
            assert_eq!(rendition["container"], container, "{verdict:#}");
            let media = rendition["media_s"].as_f64().expect("a number");
            assert!((5.5..6.5).contains(&media), "{verdict:#}");
        }
        let segments = seen[0]["segments"].as_u64().expect("a number");
        assert!(segments >= 3, "{verdict:#}");
        // The first byte of a fragment or of a packet: each check detects a change in it.
        if folder == "ts" {
            let file = folder_path.join("m.ts");
            let mut bytes = fs::read(&file).expect("made by ffmpeg");
            let at = bytes.len() / 2 / 188 * 188;
            bytes[at] = 0;
            fs::write(&file, bytes).expect("written");
            let (outcome, verdict) = played(&url, &[]);
            assert_eq!(outcome.status.code(), Some(1), "{verdict:#}");
            assert_eq!(verdict["faults"][0]["offset"], at, "{verdict:#}");
            assert_eq!(verdict["faults"][0]["found"], "sync byte 0x00, not 0x47");
            let address = verdict["faults"][0]["address"].as_str().expect("an address");
            assert!(address.ends_with("/ts/m.ts"), "{address}");
        }
        server.stop();
    }
}

/// Seals the film, enciphered or not, and serves it.
fn sealed(test: &str, seal: &[&str]) -> Option<Server> {
    let source = short_film(test, 1, SECONDS)?;
    let (place, secrets) = (Place::new(), tempfile::tempdir().expect("a folder"));
    let film = secrets.path().join("film.ts");
    fs::copy(source, &film).expect("room for a film");
    let key = secrets.path().join("secret");
    fs::write(&key, "5a".repeat(32)).expect("written");
    let mut command = Command::new(PROGRAM);
    command.args(["seal", "hls", "--target-duration", "2"]).arg(&film).arg(place.folder());
    command.args(seal);
    if seal.is_empty() {
        command.arg("--key-file").arg(&key);
    }
    watchdog::run(&mut command, LIMIT).expect("the program is there").succeeded();
    Some(Server::at(&place, Command::new(PROGRAM), &["--http-pace", "off"]))
}

#[test]
fn sealed_films_are_whole_enciphered_or_not() {
    let test = "hls_play::sealed_films_are_whole_enciphered_or_not";
    for (seal, container) in [(&["--no-key"][..], "transport_stream"), (&[], "enciphered")] {
        let Some(server) = sealed(test, seal) else { return };
        let url = server.http_url("film/master.m3u8");
        let (outcome, verdict) = played(&url, &[]);
        assert!(outcome.status.success(), "{verdict:#}");
        assert_eq!(verdict["renditions"][0]["container"], container, "{verdict:#}");
        assert_eq!(verdict["connections"], 1, "{verdict:#}");
        let (_, part) = played(&url, &["--start", "2", "--length", "1"]);
        let of = |verdict: &Value| verdict["renditions"][0]["segments"].as_u64();
        assert!(of(&part) < of(&verdict) && of(&part) >= Some(1), "{part:#}");
        server.stop();
    }
}

#[test]
fn viewers_of_a_sealed_film_would_not_have_stalled() {
    let test = "hls_play::viewers_of_a_sealed_film_would_not_have_stalled";
    let Some(server) = sealed(test, &["--no-key"]) else { return };
    let url = server.http_url("film/master.m3u8");
    let mut command = Command::new(PROGRAM);
    command.args(["load", &url, "--sessions", "30", "--seconds", "3", "--json", "-"]);
    // Leaves some of the film for the measured time.
    command.args(["--ahead", "1"]);
    let outcome = watchdog::run(&mut command, LIMIT).expect("the program is there");
    let text = String::from_utf8(outcome.stdout).expect("JSON is UTF-8");
    let result = text.lines().last().expect("a result");
    let result: Value = serde_json::from_str(result).expect("JSON");
    assert!(outcome.status.success(), "{result:#}");
    assert_eq!((&result["event"], &result["without_stall"]), (&"result".into(), &30.into()));
    assert!(result["segments"].as_u64() >= Some(60), "{result:#}");
    assert!(result["server_cpu_s_per_gb"].is_number(), "{result:#}");
    server.stop();
}

#[test]
fn options_of_another_protocol_are_refused() {
    for (arguments, found) in [
        (&["play", "http://127.0.0.1:9/a.m3u8", "--pause", "1,1"][..], "--pause: "),
        (&["play", "http://127.0.0.1:9/a.m3u8", "--transport", "tcp"], "--transport: "),
        (&["play", "http://127.0.0.1:9/a.ts", "--fast"], "--fast: "),
        (&["play", "rtsp://127.0.0.1:9/a.ts", "--ahead", "5"], "--ahead: "),
        (&["play", "http://127.0.0.1:9/a.m3u8", "--variant", "best"], "write auto, highest"),
        (&["load", "http://127.0.0.1:9/a.m3u8", "--sessions", "1", "--within", "5"], "--within: "),
        (&["load", "rtsp://127.0.0.1:9/a", "--sessions", "1", "--prebuffer", "5"], "--prebuffer"),
    ] {
        let mut command = Command::new(PROGRAM);
        let outcome = watchdog::run(command.args(arguments), LIMIT).expect("the program is there");
        assert_eq!(outcome.status.code(), Some(2), "{arguments:?}");
        assert!(outcome.stderr.contains(found), "{arguments:?}: {}", outcome.stderr);
    }
}

const SECONDS: u64 = 6;
const LIMIT: Duration = Duration::from_secs(60);
