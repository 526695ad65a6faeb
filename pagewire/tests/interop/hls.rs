// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sealed films: `pagewire seal hls` makes one, `pagewire serve` delivers it with its keys, and
//! ffmpeg, VLC and a browser play it; only clients with a token get keys.
//!
//! The browser is Chromium, headless, with its built-in HLS player (version 142 and later). The
//! page reports the play position to a socket of the test.
//!
//! Sources: RFC 8216; RFC 6750 (tokens); the Fetch standard §3.2 (CORS).

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::curl::ask;
use crate::ffmpeg::{Frame, PICTURE, SOUND, frames, of_stream};
use crate::harness::browser::Browser;
use crate::harness::film::film;
use crate::harness::page_report;
use crate::harness::{PROGRAM, Place, Server, watchdog};
use crate::{assert_bytes, client, vlc};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server of a sealed film, with the files that its players need.
pub(crate) struct Sealed {
    pub(crate) server: Server,
    /// Kept alive for its files.
    pub(crate) secrets: TempDir,
}

/// Seals the film into the folder of a new server; returns `None`, with the reason printed, where
/// there is none.
fn sealed(test: &str, seal: &[&str], serve: &[&str]) -> Option<Sealed> {
    Some(sealed_film(&film(test)?.path, seal, serve))
}

/// Seals a film, as `film` if that is its name, into the folder of a new server. `SECRETS` in
/// options is the folder of keys and tokens.
pub(crate) fn sealed_film(film: &Path, seal: &[&str], serve: &[&str]) -> Sealed {
    let secrets = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let secret = secrets.path().join("secret");
    fs::write(&secret, "5a".repeat(32)).expect("written");
    fs::write(secrets.path().join("tokens"), TOKEN).expect("written");
    let path = |name: &str| secrets.path().join(name).display().to_string();
    let place = Place::new();
    let seal: Vec<String> = seal.iter().map(|word| word.replace("SECRETS", &path(""))).collect();
    let mut command = Command::new(PROGRAM);
    command.args(["seal", "hls"]).arg(film).arg(place.folder()).args(&seal);
    watchdog::run(&mut command, LIMIT).expect("the program is there").succeeded();
    let serve: Vec<String> = serve.iter().map(|word| word.replace("SECRETS", &path(""))).collect();
    let serve: Vec<&str> = serve.iter().map(String::as_str).collect();
    let server = Server::at(&place, Command::new(PROGRAM), &serve);
    Sealed { server, secrets }
}

pub(crate) const KEY: [&str; 2] = ["--key-file", "SECRETS/secret"];
pub(crate) const SERVED_KEY: [&str; 2] = ["--hls-key-file", "SECRETS/secret"];
const SERVED_TOKEN: [&str; 2] = ["--key-token-file", "SECRETS/tokens"];

fn assert_same_frames(played: &[Frame], test: &str) {
    let film = film(test).expect("it was sealed");
    let Some(sent) = frames(test, &["-copyts"], film.path.as_os_str(), &[]) else { return };
    for stream in [PICTURE, SOUND] {
        let (played, sent) = (of_stream(played, stream), of_stream(&sent, stream));
        assert!(sent.len() > 500, "{} frames of stream {stream}", sent.len());
        let same = played.iter().zip(&sent).take_while(|(a, b)| a == b).count();
        assert!(played == sent, "{} frames, not {}, same: {same}", played.len(), sent.len());
    }
}

#[test]
fn ffmpeg_plays_every_frame_however_it_was_sealed() {
    let test = "hls::ffmpeg_plays_every_frame_however_it_was_sealed";
    let rotating = [&KEY[..], &["--rotate", "3", "--iv", "random"]].concat();
    let with_token = [SERVED_KEY, SERVED_TOKEN].concat();
    let folder = ["--keys", "SECRETS/keys"];
    let kept = [&KEY[..], &folder].concat();
    let header = format!("Authorization: Bearer {TOKEN}\r\n");
    for (seal, serve, header) in [
        (&["--no-key"][..], &[][..], None),
        (&KEY, &SERVED_KEY, None),
        (&rotating, &with_token, Some(&header)),
        (&kept, &folder, None),
    ] {
        let Some(Sealed { server, secrets: _kept }) = sealed(test, seal, serve) else { return };
        let url = server.http_url("film/master.m3u8");
        let mut options = vec!["-copyts"];
        options.extend(header.iter().flat_map(|header| ["-headers", header.as_str()]));
        let Some(played) = frames(test, &options, OsStr::new(&url), &[]) else { return };
        assert_same_frames(&played, test);
        server.stop();
    }
}

#[test]
fn vlc_plays_it() {
    let test = "hls::vlc_plays_it";
    let Some(Sealed { server, secrets: _kept }) = sealed(test, &KEY, &SERVED_KEY) else { return };
    let options = ["--sout=#std{access=file,mux=ts,dst=-}"];
    let url = server.http_url("film/master.m3u8");
    let Some(received) = vlc::output(test, &url, &options) else { return };
    let copy = server.cache().join("copy.ts");
    fs::write(&copy, received).expect("the cache folder can be written");
    let film = film(test).expect("it was sealed");
    let all = |path: &Path| frames(test, &[], path.as_os_str(), &[]);
    let (Some(sent), Some(played)) = (all(&film.path), all(&copy)) else { return };
    // VLC may reorder the streams, and discards its buffers at the end.
    let hashes = |frames: &[Frame]| -> std::collections::HashSet<String> {
        frames.iter().map(|frame| frame.hash.clone()).collect()
    };
    let (sent, played) = (hashes(&sent), hashes(&played));
    let both = sent.intersection(&played).count();
    assert!(both * 10 > sent.len() * 9, "{both} of {} frames", sent.len());
    server.stop();
}

#[test]
fn a_browser_plays_it() {
    let test = "hls::a_browser_plays_it";
    let Some(Sealed { server, secrets: _kept }) = sealed(test, &KEY, &SERVED_KEY) else { return };
    match browsed(test, &server, page).as_deref() {
        None => {}
        Some("unable") => eprintln!("skip: {test}: chromium without a player of HLS"),
        Some(report) => assert_eq!(report, "played 480x270"),
    }
    server.stop();
}

/// Returns the first report of a page in Chromium; the page is served beside the films and contains
/// the address for its report. Returns `None`, with the reason printed, where there is no Chromium.
pub(crate) fn browsed(
    test: &str,
    server: &Server,
    page: impl Fn(&str) -> String,
) -> Option<String> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let report = listener.local_addr().expect("it is bound");
    fs::write(server.folder().join("page.html"), page(&report.to_string())).expect("written");
    let browser = Browser::open(test, &server.http_url("page.html"), &[])?;
    let result = page_report::report(&listener, LIMIT);
    drop(browser);
    if result.is_none() {
        eprintln!("skip: {test}: chromium opened no page within {LIMIT:?}");
    }
    result
}

/// Returns a page that plays the film for two seconds and sends its report to `report`.
fn page(report: &str) -> String {
    format!(
        "<!doctype html><video id=v muted></video><script>
        const tell = (what) => fetch('http://{report}/' + encodeURIComponent(what),
            {{mode: 'no-cors'}});
        const v = document.getElementById('v');
        v.ontimeupdate = () => {{
            if (v.currentTime > 2) tell('played ' + v.videoWidth + 'x' + v.videoHeight);
        }};
        v.onerror = () => tell('error ' + v.error.code + ' ' + v.error.message);
        if (v.canPlayType('application/vnd.apple.mpegurl')) {{
            v.src = 'film/master.m3u8';
            v.play();
        }} else tell('unable');
        </script>"
    )
}

#[test]
fn keys_are_for_those_who_show_a_token() {
    let test = "hls::keys_are_for_those_who_show_a_token";
    let options = [&SERVED_KEY[..], &SERVED_TOKEN, &["--allow-origin", "https://p.example"]];
    let Some(Sealed { server, secrets: _kept }) = sealed(test, &KEY, &options.concat()) else {
        return;
    };
    let key = server.http_url("keys/film/0.key");
    let Some(none) = ask(test, &key, &[]) else { return };
    assert_eq!(none.status, 401, "{}", none.head);
    assert_eq!(none.header("WWW-Authenticate"), Some("Bearer realm=\"keys\""));
    let wrong = ask(test, &key, &["-H", "Authorization: Bearer 0123456789abcdef"]).expect("curl");
    assert_eq!(wrong.status, 401);
    assert!(wrong.header("WWW-Authenticate").is_some_and(|f| f.contains("invalid_token")));
    let two = format!("Authorization: Bearer {TOKEN}");
    let both = ask(test, &key, &["-H", &two, "-H", &two]).expect("curl");
    assert_eq!(both.status, 401, "two of them are not one");

    let right = ask(test, &key, &["-H", &two]).expect("curl");
    assert_eq!((right.status, right.body.len()), (200, 16), "{}", right.head);
    assert_eq!(right.header("Content-Type"), Some("application/octet-stream"));
    assert_eq!(right.header("Cache-Control"), Some("no-store"));
    assert_eq!(right.header("Access-Control-Allow-Origin"), Some("https://p.example"));
    let in_query = ask(test, &format!("{key}?access_token={TOKEN}"), &[]).expect("curl");
    assert_bytes(&in_query.body, &right.body);
    let asked = ask(test, &key, &["-X", "OPTIONS"]).expect("curl");
    assert_eq!(asked.status, 204, "a browser asks first, without a token");
    assert!(asked.header("Access-Control-Allow-Headers").is_some_and(|f| f.contains("Auth")));
    for other in ["keys/film/0", "keys/film/00.key", "keys/", "keys/film/../film/0.key"] {
        let answer = ask(test, &server.http_url(other), &["-H", &two, "--path-as-is"]);
        assert_eq!(answer.expect("curl").status, 404, "{other}");
    }
    server.stop();
}

#[test]
fn a_sealed_folder_is_served_with_its_types_and_listed_without_complaint() {
    let test = "hls::a_sealed_folder_is_served_with_its_types_and_listed_without_complaint";
    let Some(Sealed { server, secrets: _kept }) = sealed(test, &KEY, &[]) else { return };
    fs::write(server.folder().join("book.epub"), [7; 5000]).expect("written");
    fs::write(server.folder().join("book.lcpl"), "{}").expect("written");
    let playlist = server.http_url("film/media.m3u8");
    let Some(answer) = ask(test, &playlist, &[]) else { return };
    assert_eq!(answer.header("Content-Type"), Some("application/vnd.apple.mpegurl"));
    assert_eq!(answer.header("Cache-Control"), Some("no-cache"));
    let tag = answer.header("ETag").expect("a tag").to_owned();
    let again = ask(test, &playlist, &["-H", &format!("If-None-Match: {tag}")]).expect("curl");
    assert_eq!((again.status, again.header("Cache-Control")), (304, Some("no-cache")));
    let segments = String::from_utf8_lossy(&answer.body).matches("#EXTINF").count();
    let segment = ask(test, &server.http_url("film/00000.ts"), &["-r", "0-15"]).expect("curl");
    assert_eq!((segment.status, segment.body.len()), (206, 16));
    assert_eq!(segment.header("Content-Type"), Some("video/mp2t"));
    for (name, kind) in [
        ("book.epub", "application/epub+zip"),
        ("book.lcpl", "application/vnd.readium.lcp.license.v1.0+json"),
    ] {
        let answer = ask(test, &server.http_url(name), &["-r", "0-1"]).expect("curl");
        assert_eq!((answer.status, answer.header("Content-Type")), (206, Some(kind)));
    }
    // Neither keys, nor the journal of the sealing run, nor other hidden files are served.
    for gone in ["keys/film/0.key", "film/.pagewire-film"] {
        assert_eq!(ask(test, &server.http_url(gone), &[]).expect("curl").status, 404, "{gone}");
    }
    // Two books and the playlists; the segments and all playlists but one are parts.
    server.await_index("all is listed", |index| {
        let total = &index["total"];
        let rows = index["files"].as_array().map(Vec::len);
        (&total["files"], &total["parts"], rows)
            == (&(segments + 4).into(), &(segments + 1).into(), Some(3))
    });
    let index = server.index();
    let counted = ["films", "sealed", "others"].map(|kind| &index["total"][kind]);
    assert_eq!(counted, [1, 1, 2], "a sealed film and two books: {}", index["total"]);
    let film = index["files"]
        .as_array()
        .and_then(|rows| rows.iter().find(|row| row["playlist"].is_object()));
    assert_eq!(film.expect("a film")["playlist"]["sealed"], true);
    let all = ask(test, &server.http_url("index.json?all=1"), &[]).expect("curl");
    let all: serde_json::Value = serde_json::from_slice(&all.body).expect("JSON");
    let files = all["files"].as_array().expect("a list");
    assert_eq!(files.len(), segments + 4);
    for file in files {
        assert!(file["not_streamed"].is_null() && file["stream"].is_null(), "{file}");
    }
    server.stop();
}

#[test]
fn openssl_opens_a_segment_with_the_key_that_was_written() {
    let test = "hls::openssl_opens_a_segment_with_the_key_that_was_written";
    let seal = [&KEY[..], &["--keys", "SECRETS/keys", "--rotate", "2"]].concat();
    let Some(Sealed { server, secrets }) = sealed(test, &seal, &[]) else { return };
    // openssl(1) and cat suffice to decrypt where no tables were put in front.
    let key = fs::read(secrets.path().join("keys/film/0.key")).expect("a key");
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let segment: PathBuf = server.folder().join("film/00001.ts");
    let mut openssl = Command::new("openssl");
    openssl.args(["enc", "-d", "-aes-128-cbc", "-K", &hex, "-iv", &format!("{:032x}", 1), "-in"]);
    let Some(opened) = client(test, openssl.arg(segment)) else { return };
    let opened = opened.succeeded();
    let film = film(test).expect("it was sealed");
    assert!(film.bytes.windows(opened.len()).any(|part| part == opened), "a part of the film");
    server.stop();
}

#[test]
fn it_is_unsealed_and_verified_by_its_key_alone() {
    let test = "hls::it_is_unsealed_and_verified_by_its_key_alone";
    let Some(Sealed { server, secrets }) = sealed(test, &KEY, &[]) else { return };
    let film = film(test).expect("it was sealed");
    let (right, wrong) = (secrets.path().join("secret"), secrets.path().join("wrong"));
    fs::write(&wrong, "a5".repeat(32)).expect("written");
    let back = secrets.path().join("back.ts");
    let run = |verb: &[&str], key: &Path, places: &[&Path]| {
        let mut command = Command::new(PROGRAM);
        command.args(verb).arg("--key-file").arg(key).args(places);
        watchdog::run(&mut command, LIMIT).expect("the program is there")
    };
    let sealed = server.folder().join("film");
    let refused = run(&["unseal", "hls"], &wrong, &[&sealed, &back]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("wrong: does not open ") && !back.exists());
    assert_eq!(run(&["seal", "verify", "hls"], &wrong, &[&sealed]).status.code(), Some(1));

    run(&["unseal", "hls"], &right, &[&sealed, &back]).succeeded();
    assert_bytes(&fs::read(&back).expect("made"), &film.bytes);
    let against =
        ["seal", "verify", "hls", "--source", film.path.to_str().expect("a path in UTF-8")];
    run(&against, &right, &[&sealed]).succeeded();
    run(&["seal", "verify", "hls"], &right, &[&sealed]).succeeded();
    server.stop();
}

#[test]
fn killed_at_any_moment_and_run_again_it_is_the_same_bytes() {
    let test = "hls::killed_at_any_moment_and_run_again_it_is_the_same_bytes";
    let Some(film) = film(test) else { return };
    let top = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let secret = top.path().join("secret");
    fs::write(&secret, "5a".repeat(32)).expect("written");
    let seal = |target: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["seal", "hls", "--iv", "random", "--rotate", "2", "--target-duration", "2"]);
        command.arg("--key-file").arg(&secret).arg(&film.path).arg(top.path().join(target));
        command
    };
    let undisturbed = watchdog::run(&mut seal("whole"), LIMIT).expect("the program is there");
    let took = undisturbed.took;
    undisturbed.succeeded();
    let whole = contents(&top.path().join("whole/film"));
    assert!(whole.len() > 20, "{} files", whole.len());
    let mut partly = 0;
    for kill in 1..=20_u32 {
        let target = format!("killed-{kill}");
        let mut child = seal(&target).stderr(Stdio::null()).spawn().expect("the program is there");
        thread::sleep(took * kill / 20);
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().expect("it is our child");
        let folder = top.path().join(&target);
        partly += u32::from(!folder.join("film").exists());
        watchdog::run(&mut seal(&target), LIMIT).expect("the program is there").succeeded();
        assert!(contents(&folder.join("film")) == whole, "killed after {kill}/20 of {took:?}");
        let left = fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(left, 1, "nothing but the film is left");
    }
    assert!(partly > 0, "killed {partly} times before its end");
}

/// Returns the files of a film, except the journal, which names the boot.
fn contents(folder: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a film's folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let visible = paths.filter(|path| {
        path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."))
    });
    visible
        .map(|path| {
            let name = path.strip_prefix(folder).expect("below").to_owned();
            (name, fs::read(&path).expect("a file"))
        })
        .collect()
}

const LIMIT: Duration = Duration::from_secs(60);
