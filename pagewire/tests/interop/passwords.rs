// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users of real clients: ffprobe over RTSP with Basic and Digest, curl with Basic and Digest, and
//! ffprobe on a signed playlist. And the other way round: the RTSP server of GStreamer, on which
//! cameras are built, asks `pagewire receive` for a password, also over TLS.
//!
//! Sources: RFC 7616, RFC 7617; httpauth.c of ffmpeg (Digest with MD5 alone).

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::harness::recorder::Recorder;
use crate::harness::{PROGRAM, Place, Server};
use crate::{assert_bytes, client};

const CLIP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/clip.ts");

/// Adds the user anna with the password `a:b c` to a file.
fn add_user(file: &Path, options: &[&str]) {
    let mut command = Command::new(PROGRAM);
    command.arg("passwd").args(options).arg(file).arg("anna").stdin(Stdio::piped());
    let mut child = command.spawn().expect("the program under test starts");
    child.stdin.take().expect("piped").write_all(b"a:b c\n").expect("it reads");
    assert!(child.wait().expect("it ends").success());
}

fn serve(options: &[&str]) -> Server {
    Server::with_options(&[("clip.ts", Path::new(CLIP))], options)
}

/// Runs ffprobe on an address; returns true where it succeeds, and the codec types that it prints;
/// `None`, with the reason printed, where it is not installed.
fn codecs(test: &str, url: &str) -> Option<(bool, String)> {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-show_entries", "stream=codec_type", "-of", "csv=p=0"]);
    if url.starts_with("rtsp") {
        command.args(["-rtsp_transport", "tcp"]);
    }
    let outcome = client(test, command.arg(url))?;
    Some((outcome.status.success(), String::from_utf8_lossy(&outcome.stdout).into_owned()))
}

#[test]
fn ffprobe_logs_in_over_rtsp() {
    let test = "passwords::ffprobe_logs_in_over_rtsp";
    let files = tempfile::tempdir().expect("a folder");
    let (users, digest) = (files.path().join("users"), files.path().join("digest"));
    add_user(&users, &[]);
    add_user(&digest, &["--digest", "--md5"]);
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    for options in
        [&["--users", &text(&users)][..], &["--digest-users", &text(&digest), "--digest-md5"]]
    {
        let server = serve(options);
        let url = |user: &str| format!("rtsp://{user}@{}/clip.ts", server.rtsp);
        let Some((is_well, found)) = codecs(test, &url("anna:a%3Ab%20c")) else { return };
        assert!(is_well && found.contains("video"), "{options:?}: {found}");
        let Some((is_well, _)) = codecs(test, &url("anna:wrong")) else { return };
        assert!(!is_well, "{options:?}: a wrong password");
        server.stop();
    }
}

#[test]
fn ffprobe_plays_a_signed_playlist() {
    let test = "passwords::ffprobe_plays_a_signed_playlist";
    let files = tempfile::tempdir().expect("a folder");
    let keys = files.path().join("keys");
    fs::write(&keys, "one 0123456789abcdef0123456789abcdef\n").expect("room");
    let keys = keys.to_str().expect("UTF-8");
    let server = serve(&["--url-key-file", keys]);
    for address in [server.http_url("clip.ts/master.m3u8"), server.rtsp_url("clip.ts")] {
        let mut command = Command::new(PROGRAM);
        let signed = command.args(["sign", &address, "--key-file", keys]).output();
        let signed = String::from_utf8(signed.expect("it runs").stdout).expect("UTF-8");
        let Some((is_well, found)) = codecs(test, signed.trim()) else { return };
        assert!(is_well && found.contains("video"), "{signed}: {found}");
        let Some((is_well, _)) = codecs(test, &address) else { return };
        assert!(!is_well, "without the signature");
    }
    server.stop();
}

#[test]
fn curl_logs_in_by_digest_and_basic() {
    let test = "passwords::curl_logs_in_by_digest_and_basic";
    let files = tempfile::tempdir().expect("a folder");
    let digest = files.path().join("digest");
    add_user(&digest, &["--digest"]);
    add_user(&digest, &["--digest", "--md5"]);
    let users = files.path().join("users");
    add_user(&users, &[]);
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (digest, users) = (text(&digest), text(&users));
    let server = serve(&["--digest-users", &digest, "--digest-md5", "--users", &users]);
    let url = server.http_url("clip.ts");
    let clip = fs::read(CLIP).expect("it is part of the program");
    for method in ["--digest", "--basic", "--anyauth"] {
        for (password, is_right) in [("a:b c", true), ("a:b", false)] {
            let mut command = Command::new("curl");
            command.args(["--silent", "--fail", method, "--user", &format!("anna:{password}")]);
            // Two on one connection: the second response increments the nonce count.
            let Some(outcome) = client(test, command.args([&url, &url])) else { return };
            assert_eq!(outcome.status.success(), is_right, "{method} {password}");
            let expected = if is_right { clip.len() * 2 } else { 0 };
            assert_eq!(outcome.stdout.len(), expected, "{method} {password}");
        }
    }
    server.stop();
}

/// A server of the clip for the user anna; killed when dropped.
struct LockedServer {
    child: Child,
    port: u16,
}

impl LockedServer {
    /// Starts a server that accepts one method, over TLS with a file of certificate and key.
    /// `None`, with the reason printed, where GStreamer's server is not installed.
    fn start(test: &str, method: &str, pem: Option<&Path>) -> Option<LockedServer> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/locked_server.py");
        // Debian's bindings belong to Debian's Python.
        let mut command = Command::new("/usr/bin/python3");
        command.args([script, CLIP, "anna", "a:b c", method]).args(pem).stdout(Stdio::piped());
        let child = command.spawn().inspect_err(|error| eprintln!("skip: {test}: {error}")).ok()?;
        let mut server = LockedServer { child, port: 0 };
        let mut line = String::new();
        let mut printed = BufReader::new(server.child.stdout.take().expect("piped"));
        printed.read_line(&mut line).expect("it prints");
        let port = line.trim().parse();
        server.port =
            port.inspect_err(|_| eprintln!("skip: {test}: no server of GStreamer")).ok()?;
        Some(server)
    }
}

impl Drop for LockedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn gstreamers_server_is_recorded_by_digest_and_basic() {
    let test = "passwords::gstreamers_server_is_recorded_by_digest_and_basic";
    let sent = fs::read(CLIP).expect("a clip");
    let folder = tempfile::tempdir().expect("a folder");
    let pem = folder.path().join("camera.pem");
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a name");
    let text = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
    fs::write(&pem, text).expect("room for a file");
    let trust = ["--ca", pem.to_str().expect("UTF-8")];
    for (method, is_tls, options) in [
        ("digest", false, &["--transport", "udp"][..]),
        ("digest", false, &["--transport", "tcp"]),
        ("basic", false, &["--transport", "tcp", "--allow-basic"]),
        ("digest", true, &trust),
        ("basic", true, &trust),
    ] {
        let server = LockedServer::start(test, method, is_tls.then_some(pem.as_path()));
        let Some(server) = server else { return };
        let (place, url) = (Place::new(), format!("@127.0.0.1:{}/clip.ts", server.port));
        let scheme = if is_tls { "rtsps" } else { "rtsp" };
        let right = format!("{scheme}://anna:a%3Ab%20c{url}");
        let recorder = Recorder::start(&place, &[right], options);
        // GStreamer keeps the last bytes, which fill no packet.
        recorder.await_bytes("0.ts", sent.len() as u64 - 7 * 188);
        let recorded = recorder.stop().well();
        assert_eq!(recorded.figure("lost"), 0, "{method}: {:#}", recorded.summary);
        let written = fs::read(place.folder().join("0.ts")).expect("a file");
        let bytes = written.len().min(sent.len());
        assert_bytes(&written[..bytes], &sent[..bytes]);
        let wrong = format!("{scheme}://anna:wrong{url}");
        let refused = Recorder::start(&Place::new(), &[wrong], options).ended();
        let ended = refused.stream(0)["ended"].as_str().expect("a reason");
        assert!(ended.contains("wrong user or password"), "{method}: {ended}");
    }
}
