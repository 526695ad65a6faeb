// SPDX-License-Identifier: MIT OR Apache-2.0
//! Enciphered segments, in web players and with ffmpeg: whole segments with AES-128, and samples
//! with cbcs, whose keys the players fetch as clear-key licences.
//!
//! Chromium's own player opens neither fragments of MP4 with AES-128 (it deciphers the clear
//! initialization section as well) nor cbcs: libraries play those. Does not test protection systems
//! that a browser does not include.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::clients::browsers::{END_S, LATE_S, PICTURES, WALK, assert_walk};
use crate::clips::{Clip, FRAMES_PER_SECOND, LIMIT, SECONDS, clip, ffmpeg, serve_with};
use crate::harness::Server;
use crate::harness::answer::http;
use crate::harness::watchdog;
use crate::playing::{Play, Player, Step, played};
use crate::site::fetch;

/// Starts a server of all clips whose segments are enciphered.
fn serve(test: &str, cipher: &str) -> Option<Server> {
    let (_folder, secret) = secret();
    let secret = secret.to_str().expect("a path in UTF-8");
    serve_with(test, &["--hls-cipher", cipher, "--hls-key-file", secret])
}

/// Creates a file with a secret, in its folder.
pub(crate) fn secret() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    fs::write(&path, [7; 32]).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("our own file");
    (folder, path)
}

/// Returns the text of an existing address.
#[track_caller]
fn text(server: &Server, path: &str) -> String {
    let answer = fetch(server, path, None);
    assert_eq!(answer.status, 200, "{path}: {}", answer.head);
    String::from_utf8(answer.body).expect("UTF-8")
}

const CLEAR_KEY: &str = "keyformat=org.w3.clearkey";

/// Returns the address of a licence for a clip: of its file, or of its folder.
fn licence(server: &Server, clip: Clip) -> String {
    if clip == Clip::Renditions {
        return server.http_url(&format!("keys/{}/0.jwk", clip.name()));
    }
    let master = format!("/{}/master.m3u8?{CLEAR_KEY}", clip.name());
    let master = text(server, &master);
    let media = master.lines().find(|line| !line.starts_with('#')).expect("a variant");
    assert!(media.ends_with(CLEAR_KEY), "{master}");
    let media = text(server, &format!("/{}/{media}", clip.name()));
    let key = media.lines().find(|line| line.starts_with("#EXT-X-KEY:")).expect("a key");
    assert!(key.contains("METHOD=SAMPLE-AES,") && key.contains("KEYFORMAT=\"org.w3.clearkey\""));
    let (_, uri) = key.split_once("URI=\"/").expect("an address");
    server.http_url(uri.split('"').next().expect("its end"))
}

#[track_caller]
fn plays(test: &str, cipher: &str, clip: Clip, players: &[Player], steps: &[Step]) {
    let Some(server) = serve(test, cipher) else { return };
    for &player in players {
        let (name, licence) = match player {
            Player::DashJs | Player::Shaka => ("manifest.mpd".to_owned(), None),
            Player::HlsJs if cipher == "cbcs" => {
                (format!("master.m3u8?{CLEAR_KEY}"), Some(licence(&server, clip)))
            }
            _ => ("master.m3u8".to_owned(), None),
        };
        let url = server.http_url(&format!("{}/{name}", clip.name()));
        let play = Play { url: &url, steps, licence, ..Play::default() };
        let Some(report) = played(test, player, &play) else { return };
        let is_late = player == Player::Native && clip == Clip::Ts;
        assert_walk(&report, steps, if is_late { LATE_S } else { END_S });
    }
    server.stop();
}

const CLEAR_KEY_PLAYERS: &[Player] = &[Player::HlsJs, Player::DashJs, Player::Shaka];

/// Pictures and frames of sound of each segment, deciphered by ffmpeg, are those of the file;
/// without the key they are not.
#[test]
fn samples_are_those_of_the_file_to_another_decoder() {
    let test = "enciphered::samples_are_those_of_the_file_to_another_decoder";
    let Some(server) = serve(test, "cbcs") else { return };
    let film = clip(test, Clip::Mp4).expect("it was served");
    let folder = tempfile::tempdir().expect("a folder");
    let licence: serde_json::Value =
        serde_json::from_str(&text(&server, &licence_path(&server))).expect("JSON");
    let key = licence["keys"][0]["k"].as_str().expect("a key");
    let octets = fetch(&server, &licence_path(&server).replace(".jwk", ".key"), None).body;
    assert_eq!(base64url(&octets), key);
    let hex: String = octets.iter().map(|byte| format!("{byte:02x}")).collect();
    let base = licence_path(&server).replace("/keys", "").replace("/0.jwk", "");
    for (list, stream) in [("1", "0:v"), ("2", "0:a"), ("1-2", "0:v"), ("1-2", "0:a")] {
        let init = fetch(&server, &format!("{base}/{list}/init.mp4"), None).body;
        let (mut opened, mut closed) = (Vec::new(), Vec::new());
        for number in 0..3 {
            let segment = fetch(&server, &format!("{base}/{list}/{number}.m4s"), None);
            assert_eq!(segment.status, 200, "{list}/{number}");
            let path = folder.path().join("segment.mp4");
            fs::write(&path, [&init[..], &segment.body].concat()).expect("written");
            opened.extend(frames(&path, stream, &["-decryption_key", &hex]));
            closed.extend(frames(&path, stream, &[]));
        }
        let whole = frames(&film, stream, &[]);
        assert!(whole.len() >= (SECONDS * FRAMES_PER_SECOND) as usize);
        // The first frame of sound is cut away by the edit list of the file.
        let end = &opened[opened.len() - whole.len()..];
        assert!(end == whole, "{list} {stream}: {} frames of {}", opened.len(), whole.len());
        let same = closed.iter().filter(|frame| whole.contains(frame)).count();
        assert!(same <= whole.len() / 20, "{list}: {same} frames without a key");
    }
    server.stop();
}

fn licence_path(server: &Server) -> String {
    let licence = licence(server, Clip::Mp4);
    licence.replace(&server.http_url(""), "/")
}

fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns checksums of a file's frames; pictures that cannot be decoded are left out.
fn frames(path: &Path, stream: &str, options: &[&str]) -> Vec<String> {
    let mut command = ffmpeg();
    command.args(options).arg("-i").arg(path).args(["-map", stream, "-fps_mode", "passthrough"]);
    // A decoder of sound starts anew with each segment.
    command.args(if stream == "0:a" { &["-c", "copy"][..] } else { &[] });
    let outcome = watchdog::run(command.args(["-f", "framemd5", "-"]), LIMIT).expect("ffmpeg");
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    // The checksum may be followed by those of side data.
    lines.filter_map(|line| Some(line.split(',').nth(5)?.trim().to_owned())).collect()
}

#[test]
fn licences_are_given_for_what_is_there() {
    let test = "enciphered::licences_are_given_for_what_is_there";
    let Some(server) = serve(test, "cbcs") else { return };
    let path = licence_path(&server);
    let status = |path: &str| fetch(&server, path, None).status;
    assert_eq!(status(&path), 200);
    for other in [
        path.replace("0.jwk", "1.jwk"),
        path.replace("film.mp4", "none.mp4"),
        "/keys/nothing/0.jwk".to_owned(),
        "/keys/0.jwk".to_owned(),
    ] {
        assert_eq!(status(&other), 404, "{other}");
    }
    let title: serde_json::Value =
        serde_json::from_str(&text(&server, "/keys/title/0.jwk")).expect("JSON");
    let keys = title["keys"].as_array().expect("keys");
    assert_eq!((keys.len(), &title["type"]), (2, &"temporary".into()));
    assert_ne!(keys[0], keys[1]);
    // Players send POST.
    let allowed = http(server.http, "OPTIONS", &path);
    assert!(allowed.head.contains("\r\nAllow: POST\r\n"), "{}", allowed.head);
    assert_eq!(listed(&server), (true, true));
    server.stop();
    // With whole segments there are keys, and no licences.
    let Some(server) = serve(test, "aes-128") else { return };
    assert_eq!(fetch(&server, &path, None).status, 404);
    assert_eq!(fetch(&server, "/film.mp4/manifest.mpd", None).status, 404);
    assert_eq!(listed(&server), (true, false), "what is not there is not listed");
    server.stop();
}

/// True where the index lists HLS of a film, and DASH.
fn listed(server: &Server) -> (bool, bool) {
    server.await_stream("film.mp4");
    let index: serde_json::Value =
        serde_json::from_str(&text(server, "/index.json")).expect("JSON");
    let mut files = index["files"].as_array().expect("files").iter();
    let film = files.find(|file| file["name"] == "film.mp4").expect("the film");
    (film["hls"].is_string(), film["dash"].is_string())
}

mod clients {
    use super::*;

    #[test]
    fn whole_segments_of_mp4_are_deciphered() {
        let test = "enciphered::clients::whole_segments_of_mp4_are_deciphered";
        plays(test, "aes-128", Clip::Mp4, &[Player::HlsJs], WALK);
    }

    #[test]
    fn whole_segments_of_ts_are_deciphered() {
        let test = "enciphered::clients::whole_segments_of_ts_are_deciphered";
        plays(test, "aes-128", Clip::Ts, &[Player::HlsJs, Player::Native], WALK);
    }

    #[test]
    fn samples_of_mp4_are_deciphered() {
        let test = "enciphered::clients::samples_of_mp4_are_deciphered";
        plays(test, "cbcs", Clip::Mp4, CLEAR_KEY_PLAYERS, WALK);
    }

    #[test]
    fn samples_of_ts_are_deciphered() {
        let test = "enciphered::clients::samples_of_ts_are_deciphered";
        plays(test, "cbcs", Clip::Ts, CLEAR_KEY_PLAYERS, WALK);
    }

    #[test]
    fn pictures_change_with_their_keys() {
        let test = "enciphered::clients::pictures_change_with_their_keys";
        plays(test, "aes-128", Clip::Renditions, &[Player::HlsJs], PICTURES);
        plays(test, "cbcs", Clip::Renditions, CLEAR_KEY_PLAYERS, PICTURES);
    }
}
