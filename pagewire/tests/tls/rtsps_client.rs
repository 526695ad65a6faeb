// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program as a client of RTSPS: `receive`, `play` and `load` at a server of HTTPS and RTSPS,
//! which they trust by a certificate or its fingerprint.
//!
//! Sources: RFC 7826 §19.2; RFC 7617 (Basic, which TLS protects).

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::authority::Authority;
use crate::harness::clip::Clip;
use crate::harness::recorder::{Recorded, Recorder, files};
use crate::harness::watchdog::{self, Outcome};
use crate::harness::{PROGRAM, Place};
use crate::{TlsServer, assert_bytes};

/// A server of a clip, and the clip.
fn server(seconds: u64, options: &[&str]) -> (TlsServer, Vec<u8>) {
    let clip = Clip::of_seconds(21, seconds).bytes();
    (TlsServer::unlisted(&[("a.ts", &clip)], options), clip)
}

/// Records the clip into a folder of its own.
fn record(url: &str, options: &[&str]) -> (Recorded, Place) {
    let place = Place::new();
    (Recorder::start(&place, &[url.to_owned()], options).ended(), place)
}

#[track_caller]
fn assert_recorded((recorded, place): (Recorded, Place), clip: &[u8]) {
    let recorded = recorded.well();
    assert_eq!(recorded.stream(0)["ended"], "complete", "{}", recorded.log);
    let files = files(&place);
    assert_bytes(&fs::read(&files[0]).expect("a file"), clip);
}

/// The reason for which nothing was recorded.
#[track_caller]
fn refusal((recorded, place): (Recorded, Place)) -> String {
    assert_eq!(recorded.status.code(), Some(1), "{}", recorded.log);
    assert!(files(&place).is_empty());
    recorded.stream(0)["ended"].as_str().expect("a reason").to_owned()
}

fn run(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(PROGRAM);
    watchdog::run(command.args(arguments), Duration::from_secs(90)).expect("it ends")
}

#[test]
fn a_stream_is_recorded_from_a_server_that_is_trusted() {
    let (tls, clip) = server(1, &[]);
    let root = tls.authority.root().display().to_string();
    let url = tls.server.rtsps_url("a.ts");
    assert_recorded(record(&url, &["--ca", &root]), &clip);
    // Where the server is not trusted, the fingerprint is told.
    let folder = tempfile::tempdir().expect("a folder");
    let stranger = Authority::new(folder.path()).root().display().to_string();
    let refused = refusal(record(&url, &["--ca", &stranger]));
    assert!(refused.contains("its certificate is not trusted: the authority that"), "{refused}");
    let (before, _) = refused.split_once(" is the SHA-256 fingerprint").expect("it is told");
    let fingerprint = before.rsplit(' ').next().expect("a word");
    assert_recorded(record(&url, &["--fingerprint", fingerprint]), &clip);
    let named = format!("{}={fingerprint}", tls.server.rtsps.expect("it listens"));
    assert_recorded(record(&url, &["--fingerprint", &named]), &clip);
    let first = if fingerprint.starts_with("00") { "FF" } else { "00" };
    let other = format!("{first}{}", &fingerprint[2..]);
    let refused = refusal(record(&url, &["--fingerprint", &other]));
    assert!(refused.contains("another one than that of --fingerprint"), "{refused}");
    assert!(refused.contains(fingerprint), "{refused}");
    tls.server.stop();
}

#[test]
fn a_stream_is_played_and_loaded_over_tls() {
    let (tls, clip) = server(4, &[]);
    let root = tls.authority.root().display().to_string();
    let url = tls.server.rtsps_url("a.ts");
    let place = Place::new();
    let file = place.folder().join("a.ts");
    let file = file.to_str().expect("UTF-8");
    let played = run(&["play", &url, "--ca", &root, "--json", "-o", file]);
    let verdict: Value = serde_json::from_slice(&played.stdout).expect("JSON");
    assert!(played.status.success() && verdict["transport"] == "tcp", "{verdict:#}");
    assert_bytes(&fs::read(file).expect("a file"), &clip);
    let sessions = ["--sessions", "3", "--seconds", "0.1", "--ramp", "0.1", "--within", "10000"];
    let arguments = [&["load", &url, "--ca", &root, "--json", "-"], &sessions[..]].concat();
    let loaded = run(&arguments);
    let text = String::from_utf8(loaded.stdout).expect("UTF-8");
    let result: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    assert_eq!(result["played"], 3, "{text}\n{}", loaded.stderr);
    tls.server.stop();
}

#[test]
fn a_password_goes_in_clear_text_through_tls_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let users = folder.path().join("users");
    let mut command = Command::new(PROGRAM);
    let mut child =
        command.arg("passwd").arg(&users).arg("anna").stdin(Stdio::piped()).spawn().expect("runs");
    writeln!(child.stdin.take().expect("piped"), "secret").expect("it reads");
    assert!(child.wait().expect("it ends").success());
    let (tls, clip) = server(1, &["--users", users.to_str().expect("UTF-8")]);
    let root = tls.authority.root().display().to_string();
    let (scheme, rest) = ("rtsps://", tls.server.rtsps_url("a.ts").replace("rtsps://", ""));
    assert_recorded(record(&format!("{scheme}anna:secret@{rest}"), &["--ca", &root]), &clip);
    let wrong = refusal(record(&format!("{scheme}anna:wrong@{rest}"), &["--ca", &root]));
    assert!(wrong.contains("wrong user or password") && !wrong.contains("anna"), "{wrong}");
    tls.server.stop();
}

#[test]
fn options_that_would_leave_tls_are_refused() {
    let digest = "ab".repeat(32);
    let two = ["rtsps://a/x", "rtsps://b/x", "--fingerprint", &digest];
    for (arguments, found) in [
        (&["rtsps://h/a", "--transport", "udp"][..], "--transport: udp; with rtsps:// media is on"),
        (&["rtsp://h/a", "--fingerprint", &digest], "--fingerprint: no server with TLS; leave it"),
        (&["udp://127.0.0.1:0", "--ca", "x"], "--ca: udp://127.0.0.1:0; it is for RTSP"),
        (&["rtsps://h/a", "--ca", "/nowhere"], "--ca /nowhere: No such file or directory"),
        (&two, "there are 2 servers with TLS; write HOST[:PORT]=SHA256 for each"),
        (
            &["rtsps://h/a", "--fingerprint", &digest, "--ca", "/nowhere"],
            "--ca: each server with TLS has a --fingerprint; leave one of the two out",
        ),
        (&["rtsps://h/a", "--fingerprint", "12"], "12: write the SHA-256 fingerprint of the cert"),
    ] {
        let refused = run(&[&["receive"], arguments].concat());
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(found), "{arguments:?}: {}", refused.stderr);
    }
    let refused = run(&["load", "rtsps://h/a", "--sessions", "1", "--transport", "http"]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
}
