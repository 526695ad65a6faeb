// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole downloads, resumed ones, ranges and conditions return the correct bytes and status.
//!
//! Sources: RFC 9110 §13 (conditions), §14 (ranges).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::Server;
use crate::{assert_bytes, client};

/// A name with special characters, and a size that is no multiple of any buffer.
const NAME: &str = "folder/a film é 100%.bin";
const BYTES: usize = 3_000_017;

/// Returns a server with one file that cannot be streamed, the file's bytes, and its address by the
/// index.
pub(crate) fn serve_file(options: &[&str]) -> (Server, Vec<u8>, String) {
    // Xorshift: no run of it occurs twice.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(BYTES)
    .collect();
    let server = Server::with_options(&[], options);
    let path = server.folder().join(NAME);
    fs::create_dir(path.parent().expect("a folder")).expect("the folder can be written");
    fs::write(&path, &bytes).expect("the folder can be written");
    let row = |index: &serde_json::Value| {
        let files = index["files"].as_array().expect("a list of files");
        files.iter().find(|file| file["name"] == NAME && file["bytes"] == BYTES).cloned()
    };
    let index = server.await_index("the file is listed", |index| row(index).is_some());
    let download = row(&index).expect("it was there")["download"].clone();
    let url = download.as_str().expect("an address").to_owned();
    assert_eq!(url, server.http_url("folder/a%20film%20%C3%A9%20100%25.bin"));
    (server, bytes, url)
}

/// Parts of an answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// Sends one request with curl; returns the parsed head and body of the answer.
pub(crate) fn ask(test: &str, url: &str, options: &[&str]) -> Option<Answer> {
    let mut command = Command::new("curl");
    command.args(["-sS", "-i", "--max-time", "60"]).args(options).arg(url);
    let answer = client(test, &mut command)?.succeeded();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8(answer[..end].to_vec()).expect("a head in ASCII");
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    Some(Answer { status, head, body: answer[end..].to_vec() })
}

#[test]
fn downloads_by_every_path() {
    let test = "curl::downloads_by_every_path";
    for path in ["sendfile", "read_write"] {
        let (server, bytes, url) = serve_file(&["--path", path]);
        let Some(answer) = ask(test, &url, &[]) else { return };
        assert_eq!(answer.status, 200, "{}", answer.head);
        assert_eq!(answer.header("Content-Length"), Some("3000017"));
        assert_eq!(answer.header("Accept-Ranges"), Some("bytes"));
        assert_bytes(&answer.body, &bytes);
        server.stop();
    }
}

#[test]
fn resumes_a_download() {
    let test = "curl::resumes_a_download";
    let (server, bytes, url) = serve_file(&[]);
    let partial = server.cache().join("partial");
    fs::write(&partial, &bytes[..1_000_001]).expect("the cache folder can be written");
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60", "-C", "-", "-w", "%{http_code} %{size_download}"]);
    command.arg("-o").arg(&partial).arg(&url);
    let Some(outcome) = client(test, &mut command) else { return };
    assert_eq!(String::from_utf8_lossy(&outcome.succeeded()), "206 2000016");
    assert_bytes(&fs::read(&partial).expect("curl wrote it"), &bytes);
    server.stop();
}

#[test]
fn asks_for_one_range() {
    let test = "curl::asks_for_one_range";
    let (server, bytes, url) = serve_file(&[]);
    let cases = [
        ("0-0", 0..1),
        ("1000-1999999", 1000..2_000_000),
        ("2999999-", 2_999_999..BYTES),
        ("-500", BYTES - 500..BYTES),
        ("2999000-9999999", 2_999_000..BYTES),
    ];
    for (range, expected) in cases {
        let Some(answer) = ask(test, &url, &["-r", range]) else { return };
        assert_eq!(answer.status, 206, "{range}: {}", answer.head);
        let content_range = format!("bytes {}-{}/{BYTES}", expected.start, expected.end - 1);
        assert_eq!(answer.header("Content-Range"), Some(&*content_range), "{range}");
        assert_bytes(&answer.body, &bytes[expected]);
    }
    let Some(answer) = ask(test, &url, &["-r", "3000017-"]) else { return };
    assert_eq!(answer.status, 416, "{}", answer.head);
    assert_eq!(answer.header("Content-Range"), Some("bytes */3000017"));
    server.stop();
}

#[test]
fn asks_for_several_ranges() {
    let test = "curl::asks_for_several_ranges";
    let (server, bytes, url) = serve_file(&[]);
    let Some(answer) = ask(test, &url, &["-r", "0-99,1000-1099,-7"]) else { return };
    assert_eq!(answer.status, 206, "{}", answer.head);
    assert_eq!(answer.header("Content-Range"), None);
    assert_eq!(answer.header("Content-Length"), Some(&*answer.body.len().to_string()));
    let parts = parts(&answer);
    let expected = [0..100, 1000..1100, BYTES - 7..BYTES];
    assert_eq!(parts.len(), expected.len());
    for ((head, body), expected) in parts.iter().zip(expected) {
        let content_range =
            format!("Content-Range: bytes {}-{}/{BYTES}", expected.start, expected.end - 1);
        assert!(head.lines().any(|line| line.eq_ignore_ascii_case(&content_range)), "{head}");
        assert_bytes(body, &bytes[expected]);
    }
    server.stop();
}

/// Returns heads and bodies of a multipart answer, by RFC 2046 §5.1.1.
fn parts(answer: &Answer) -> Vec<(String, Vec<u8>)> {
    let content_type = answer.header("Content-Type").expect("a type");
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").expect("parts");
    let delimiter = format!("\r\n--{}", boundary.trim_matches('"'));
    // The first delimiter needs no line before it.
    let body = [b"\r\n", answer.body.as_slice()].concat();
    let find = |from: usize, what: &[u8]| {
        body[from..].windows(what.len()).position(|found| found == what).map(|at| from + at)
    };
    let mut parts = Vec::new();
    let mut at = find(0, delimiter.as_bytes()).expect("a first delimiter") + delimiter.len();
    while !body[at..].starts_with(b"--") {
        let end = find(at, delimiter.as_bytes()).expect("a closing delimiter");
        let blank = find(at, b"\r\n\r\n").expect("a head of the part");
        let head = String::from_utf8(body[at..blank].to_vec()).expect("a head in ASCII");
        parts.push((head, body[blank + 4..end].to_vec()));
        at = end + delimiter.len();
    }
    parts
}

#[test]
fn asks_on_conditions() {
    let test = "curl::asks_on_conditions";
    let (server, bytes, url) = serve_file(&[]);
    let Some(head) = ask(test, &url, &["-I"]) else { return };
    assert_eq!((head.status, head.body.len()), (200, 0), "{}", head.head);
    assert_eq!(head.header("Content-Length"), Some("3000017"));
    let etag = head.header("ETag").expect("an entity tag");
    let modified = head.header("Last-Modified").expect("a date");

    let with = |headers: &[String]| {
        let options: Vec<_> = headers.iter().flat_map(|header| ["-H", header]).collect();
        ask(test, &url, &options).expect("curl was there")
    };
    let range = "Range: bytes=5-14".to_owned();
    let same = with(&[format!("If-None-Match: {etag}")]);
    assert_eq!((same.status, same.body.len()), (304, 0), "{}", same.head);
    let same = with(&[format!("If-Modified-Since: {modified}")]);
    assert_eq!((same.status, same.body.len()), (304, 0), "{}", same.head);
    let changed = with(&["If-None-Match: \"another\"".to_owned()]);
    assert_eq!(changed.status, 200, "{}", changed.head);
    assert_bytes(&changed.body, &bytes);
    let refused = with(&["If-Match: \"another\"".to_owned()]);
    assert_eq!(refused.status, 412, "{}", refused.head);
    let part = with(&[range.clone(), format!("If-Range: {etag}")]);
    assert_eq!(part.status, 206, "{}", part.head);
    assert_bytes(&part.body, &bytes[5..15]);
    let whole = with(&[range, "If-Range: \"another\"".to_owned()]);
    assert_eq!(whole.status, 200, "{}", whole.head);
    assert_bytes(&whole.body, &bytes);
    server.stop();
}

#[test]
fn keeps_its_connection() {
    let test = "curl::keeps_its_connection";
    let (server, bytes, url) = serve_file(&[]);
    let target = |name| server.cache().join(name);
    let (first, second): (PathBuf, PathBuf) = (target("first"), target("second"));
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60", "-w", "%{num_connects} %{http_code}\n"]);
    command.arg("-o").arg(&first).arg(&url).arg("-o").arg(&second).arg(&url);
    let Some(outcome) = client(test, &mut command) else { return };
    assert_eq!(String::from_utf8_lossy(&outcome.succeeded()), "1 200\n0 200\n");
    for copy in [first, second] {
        assert_bytes(&fs::read(copy).expect("curl wrote it"), &bytes);
    }
    server.stop();
}
