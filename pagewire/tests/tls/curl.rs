// SPDX-License-Identifier: MIT OR Apache-2.0
//! curl over HTTPS: HTTP/1.1 and HTTP/2 give the bytes, ranges and conditions that plain HTTP
//! gives, with a certificate of files and with a self-signed one.
//!
//! Sources: RFC 9110 §13 (conditions), §14 (ranges), RFC 9113 §5.1.2 (concurrency).

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use crate::{TlsServer, assert_bytes, noise, run, self_signed};

/// A parsed answer.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// curl with one version of HTTP, which checks the certificate against `trusted`.
struct Curl<'a> {
    test: &'static str,
    version: &'static str,
    trusted: &'a Path,
}

impl Curl<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "60", self.version, "--cacert"]).arg(self.trusted);
        command
    }

    /// Sends one request; returns `None`, with the reason printed, where there is no curl.
    fn ask(&self, url: &str, options: &[&str]) -> Option<Answer> {
        let mut command = self.command();
        let answer = run(self.test, command.arg("-i").args(options).arg(url))?.succeeded();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8(answer[..end].to_vec()).expect("a head in ASCII");
        let name = if self.version == "--http2" { "HTTP/2 " } else { "HTTP/1.1 " };
        let status = head.strip_prefix(name).unwrap_or_else(|| panic!("{name}expected: {head}"));
        let status = status.split(' ').next().and_then(|word| word.parse().ok());
        Some(Answer { status: status.expect("a status"), head, body: answer[end..].to_vec() })
    }
}

#[test]
fn whole_files_arrive_with_either_certificate() {
    let test = "curl::whole_files_arrive_with_either_certificate";
    let bytes = noise(20_000_000);
    let sizes = [("kilobyte.bin", 1000), ("more.bin", 100_000), ("film.bin", 20_000_000)];
    let files = sizes.map(|(name, length)| (name, &bytes[..length]));
    let TlsServer { server, authority } = TlsServer::start(&files);
    let own = self_signed(&files);
    let kept = own.cache().join("tls/self-signed.pem");
    for (server, trusted) in [(&server, &authority.root()), (&own, &kept)] {
        for version in VERSIONS {
            for (name, bytes) in files {
                let curl = Curl { test, version, trusted };
                let Some(answer) = curl.ask(&server.https_url(name), &[]) else { return };
                assert_eq!(answer.status, 200, "{}", answer.head);
                assert_eq!(answer.header("Content-Length"), Some(&*bytes.len().to_string()));
                assert_bytes(&answer.body, bytes);
            }
        }
    }
    // A client that does not trust it fails.
    let mut stranger = Command::new("curl");
    stranger.args(["-sS", "--max-time", "20"]).arg(own.https_url("kilobyte.bin"));
    let refused = run(test, &mut stranger).expect("curl was there");
    assert_eq!(refused.status.code(), Some(60), "{}", refused.stderr);
    own.stop();
    server.stop();
}

#[test]
fn ranges_and_conditions_are_those_of_plain_http() {
    let test = "curl::ranges_and_conditions_are_those_of_plain_http";
    let bytes = noise(BYTES);
    let TlsServer { server, authority } = TlsServer::start(&[("a.bin", &bytes)]);
    let url = server.https_url("a.bin");
    for version in VERSIONS {
        let curl = Curl { test, version, trusted: &authority.root() };
        let Some(head) = curl.ask(&url, &["-I"]) else { return };
        assert_eq!((head.status, head.body.len()), (200, 0), "{}", head.head);
        assert_eq!(head.header("Content-Length"), Some("3000017"));
        let ask = |options: &[&str]| curl.ask(&url, options).expect("curl was there");
        for (range, expected) in [
            ("0-0", 0..1),
            ("1000-1999999", 1000..2_000_000),
            ("3000016-", BYTES - 1..BYTES),
            ("-500", BYTES - 500..BYTES),
        ] {
            let answer = ask(&["-r", range]);
            assert_eq!(answer.status, 206, "{range}: {}", answer.head);
            let content_range = format!("bytes {}-{}/{BYTES}", expected.start, expected.end - 1);
            assert_eq!(answer.header("Content-Range"), Some(&*content_range), "{range}");
            assert_bytes(&answer.body, &bytes[expected]);
        }
        let several = ask(&["-r", "0-99,1000000-1999999,-7"]);
        assert_eq!(several.status, 206, "{}", several.head);
        assert_parts(&several, &bytes, &[0..100, 1_000_000..2_000_000, BYTES - 7..BYTES]);
        let beyond = ask(&["-r", "3000017-"]);
        assert_eq!(beyond.status, 416, "{}", beyond.head);
        assert_eq!(beyond.header("Content-Range"), Some("bytes */3000017"));

        let etag = head.header("ETag").expect("an entity tag");
        let same = ask(&["-H", &format!("If-None-Match: {etag}")]);
        assert_eq!((same.status, same.body.len()), (304, 0), "{}", same.head);
        let part = ask(&["-r", "5-14", "-H", &format!("If-Range: {etag}")]);
        assert_eq!(part.status, 206, "{}", part.head);
        assert_bytes(&part.body, &bytes[5..15]);
        assert_eq!(ask(&["-H", "If-Match: \"another\""]).status, 412);
        let none = curl.ask(&server.https_url("none.bin"), &[]).expect("curl was there");
        assert_eq!(none.status, 404, "{}", none.head);
        assert_eq!(ask(&["-X", "DELETE"]).status, 405);
    }
    server.stop();
}

/// Asserts that a multipart answer (RFC 2046 §5.1.1) has these ranges, each under its own head.
#[track_caller]
fn assert_parts(answer: &Answer, bytes: &[u8], ranges: &[Range<usize>]) {
    let content_type = answer.header("Content-Type").expect("a type");
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").expect("parts");
    let mut expected = Vec::new();
    for Range { start, end } in ranges.iter().cloned() {
        let (last, length) = (end - 1, bytes.len());
        let head = format!(
            "--{boundary}\r\nContent-Type: application/octet-stream\r\n\
             Content-Range: bytes {start}-{last}/{length}\r\n\r\n"
        );
        expected.extend_from_slice(head.as_bytes());
        expected.extend_from_slice(&bytes[start..end]);
        expected.extend_from_slice(b"\r\n");
    }
    expected.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    assert_bytes(&answer.body, &expected);
}

#[test]
fn index_is_compressed_and_names_addresses_of_https() {
    let test = "curl::index_is_compressed_and_names_addresses_of_https";
    let names: Vec<String> = (0..100).map(|number| format!("number-{number}.bin")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &b"bytes"[..])).collect();
    let TlsServer { server, authority } = TlsServer::start(&files);
    let url = server.https_url("index.json");
    for version in VERSIONS {
        let curl = Curl { test, version, trusted: &authority.root() };
        let Some(plain) = curl.ask(&url, &[]) else { return };
        let index: serde_json::Value = serde_json::from_slice(&plain.body).expect("JSON");
        let rows = index["files"].as_array().expect("a list of files");
        assert_eq!(rows.len(), names.len());
        for row in rows {
            let name = row["name"].as_str().expect("a name");
            assert_eq!(row["download"], server.https_url(name));
        }
        let coded = curl.ask(&url, &["-H", "Accept-Encoding: gzip"]).expect("curl was there");
        assert_eq!(coded.header("Content-Encoding"), Some("gzip"), "{}", coded.head);
        assert!(coded.body.len() < plain.body.len() / 2, "{} bytes", coded.body.len());
        let opened = curl.ask(&url, &["--compressed"]).expect("curl was there");
        let opened: serde_json::Value = serde_json::from_slice(&opened.body).expect("JSON");
        assert_eq!(opened["files"], index["files"]);
        let page = curl.ask(&server.https_url(""), &[]).expect("curl was there");
        assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
    }
    server.stop();
}

#[test]
fn twenty_downloads_share_a_connection_of_http2() {
    let test = "curl::twenty_downloads_share_a_connection_of_http2";
    let bytes = noise(2_000_003);
    let names: Vec<String> = (0..20).map(|number| format!("{number}.bin")).collect();
    // No two are equal.
    let part = |number: usize| &bytes[number * 1000..];
    let files: Vec<(&str, &[u8])> =
        names.iter().enumerate().map(|(number, name)| (&**name, part(number))).collect();
    let TlsServer { server, authority } = TlsServer::start(&files);
    let folder = server.place.top().join("copies");
    fs::create_dir(&folder).expect("room for a folder");
    let mut command = Curl { test, version: "--http2", trusted: &authority.root() }.command();
    command.args(["--parallel", "-w", "%{num_connects} %{http_version} %{http_code}\n"]);
    for name in &names {
        command.arg("-o").arg(folder.join(name)).arg(server.https_url(name));
    }
    let Some(outcome) = run(test, &mut command) else { return };
    let output = String::from_utf8(outcome.succeeded()).expect("curl writes text");
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    let expected = [vec!["0 2 200"; 19], vec!["1 2 200"]].concat();
    assert_eq!(lines, expected, "one connection for all");
    for (name, bytes) in files {
        assert_bytes(&fs::read(folder.join(name)).expect("curl wrote it"), bytes);
    }
    assert_eq!(server.index()["server"]["tls_handshakes"], 1);
    server.stop();
}

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
/// A size that is no multiple of any buffer.
const BYTES: usize = 3_000_017;
