// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that request the index of a large folder and do not read it, each under another host
//! name of the server; and pages, compression and tags of the index.
//!
//! Sources: RFC 9110 §12.5.3, §13.1.2; RFC 1952. Does not wait for the end of a client that reads
//! nothing (30 s; a test of `serve` computes it).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::answer::{Answer, Line, http};
use crate::harness::{Place, Server};
use crate::{beside_canary, serve_place};

/// Names as long as film names usually are.
fn name(number: usize) -> String {
    format!("series {:02}/a film with a name of usual length, part {number:06}.bin", number % 40)
}

fn large_folder() -> Server {
    let place = Place::new();
    for number in 0..FILES {
        let path = place.folder().join(name(number));
        fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
        fs::write(path, "x").expect("room for a file");
    }
    let server = serve_place(&place, &[]);
    server.await_index("all are listed", |index| index["total"]["files"] == FILES + 1);
    server
}

fn memory(server: &Server) -> u64 {
    server.index()["server"]["memory_bytes"].as_u64().expect("a count")
}

/// Regression: each client held all rows: 1.4 MB of 5,000 files, 30.7 MiB of 100,000.
#[test]
fn client_that_does_not_read_the_index_costs_a_share_of_it() {
    let server = large_folder();
    // Both forms are generated once before, compressed and not.
    for target in ["/", "/index.json"] {
        assert_eq!(http(server.http, "GET", target).status, 200);
    }
    let before = memory(&server);
    let (lines, during) = beside_canary(&server, || {
        let lines: Vec<TcpStream> = (0..CLIENTS)
            .map(|client| {
                let mut line = TcpStream::connect(server.http).expect("HTTP listens");
                let target = ["/", "/index.json"][client % 2];
                let after = name(client * 7).replace(' ', "%20").replace('/', "%2f");
                // More than any socket buffer holds.
                let request = format!(
                    "GET {target}?after={after} HTTP/1.1\r\nHost: client-{client}.example:1\r\n\r\n"
                );
                line.write_all(request.repeat(PIPELINED).as_bytes()).expect("the requests go out");
                line
            })
            .collect();
        // All requests are being answered.
        for line in &lines {
            line.set_read_timeout(Some(ANSWER_WAIT)).expect("a time limit");
            assert!(line.peek(&mut [0]).expect("an answer in time") > 0, "closed");
        }
        (lines, memory(&server))
    });
    let per_client = during.saturating_sub(before) / CLIENTS as u64;
    println!("index: {per_client} bytes a client that does not read, {before} before");
    assert!(per_client <= CLIENT_BYTES_MAX, "{per_client} bytes a client, {before} before");
    drop(lines);
    server.await_index("their connections have ended", |index| {
        index["server"]["connections"].as_u64() < Some(10)
    });
    server.stop();
}

#[test]
fn pages_of_the_index_are_all_of_it_once_and_the_same_compressed() {
    let server = large_folder();
    let mut target = "/index.json".to_owned();
    let mut seen = BTreeSet::new();
    let mut pages = 0;
    loop {
        let page: Value = serde_json::from_slice(&http(server.http, "GET", &target).body)
            .unwrap_or_else(|error| panic!("{target}: {error}"));
        assert!(page["server"]["memory_bytes"].as_u64() > Some(0), "{target}");
        let rows = page["files"].as_array().expect("rows");
        assert!((1..=1000).contains(&rows.len()), "{target}: {} rows", rows.len());
        for row in rows {
            let name = row["name"].as_str().expect("a name");
            assert!(seen.last().is_none_or(|last: &String| last.as_str() < name), "{name}: order");
            seen.insert(name.to_owned());
        }
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        target = next.to_owned();
    }
    assert_eq!((seen.len(), pages), (FILES + 1, FILES.div_ceil(1000) + 1));
    let rest = |query: &str| -> Value {
        let answer = http(server.http, "GET", &format!("/index.json?{query}"));
        serde_json::from_slice(&answer.body).expect("JSON")
    };
    let three = rest("limit=3");
    assert_eq!(three["files"].as_array().map(Vec::len), Some(3));
    assert!(three["next"].as_str().is_some_and(|next| next.ends_with("&limit=3")), "{three:#}");
    let wrong = http(server.http, "GET", "/index.json?limit=abc");
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("such as limit=100"), "{}", wrong.text());
    // A missing name beyond all others, and a row in the middle of a page.
    assert_eq!(rest("after=zzz")["files"], Value::Array(Vec::new()));
    let after = rest("after=series%2007%2f&limit=1");
    assert!(after["files"][0]["name"].as_str() > Some("series 07/"), "{after:#}");

    for target in ["/", "/index.json", "/index.json?after=series%2007%2f"] {
        let plain = ask(&server, target, "");
        let packed = ask(&server, target, "Accept-Encoding: gzip\r\n");
        assert_eq!(packed.header("Content-Encoding"), Some("gzip"), "{target}");
        assert!(packed.body.len() * 4 < plain.body.len(), "{target}: {}", packed.body.len());
        let inflated = inflate(&packed.body);
        // The counters above the rows differ between requests.
        let rows = |text: &str| text[text.find("series").expect("rows")..].to_owned();
        assert_eq!(rows(&inflated), rows(&plain.text()), "{target}");
        let tag = plain.header("ETag").expect("a tag").to_owned();
        let again = ask(&server, target, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((again.status, again.body.len()), (304, 0), "{target}: nothing was streamed");
    }
    let tag = ask(&server, "/index.json", "").header("ETag").expect("a tag").to_owned();
    server.place.put("new.bin", b"new");
    server.await_index("it is listed", |index| index["total"]["files"] == FILES + 2);
    let changed = ask(&server, "/index.json", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!(changed.status, 200, "the library has changed");
    server.stop();
}

#[track_caller]
fn ask(server: &Server, target: &str, fields: &str) -> Answer {
    let mut line = Line::to(server.http);
    line.send(format!("GET {target} HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n{fields}\r\n"));
    line.answer().unwrap_or_else(|| panic!("{target}: closed without an answer"))
}

/// Decompresses with gzip(1): another implementation than the server's.
fn inflate(bytes: &[u8]) -> String {
    let mut child = Command::new("gzip")
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip is on every machine");
    let mut input = child.stdin.take().expect("it is piped");
    let bytes = bytes.to_vec();
    let writing = thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().expect("it ends with its input");
    writing.join().expect("no panic").expect("gzip reads all of it");
    assert!(output.status.success(), "gzip: {}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

const FILES: usize = 2_000;
const CLIENTS: usize = 100;
/// 60 pages of 1,000 rows are some 20 MB.
const PIPELINED: usize = 60;
/// A connection's own 30 kB, a buffer of 16 KiB, and the overhead of the allocator.
const CLIENT_BYTES_MAX: u64 = 256 << 10;
const ANSWER_WAIT: Duration = Duration::from_secs(60);
