// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases of nginx's HTTP test suite as rows of requests and expected answers, sent byte by byte to
//! the real program over loopback.
//!
//! One file per subject: [`ranges`], [`conditions`], [`keep_alive`], [`requests`] (methods,
//! targets, hosts, fields, expectations), [`smuggling`] (ambiguous framing: refused, and no later
//! request is answered), [`limits`]. A row is named for the file and the case that it follows; a
//! row that pagewire adds is named for the section that it checks. Where pagewire's answer differs
//! from nginx's, the row has nginx's answer and the reason.
//!
//! Sources: the cases of github.com/nginx/nginx-tests (behaviour read there, rows written here);
//! RFC 9110, RFC 9112, RFC 3986 §3.2.
//!
//! Omits cases about proxies, scripts, rewriting or other settings that pagewire lacks.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;

mod conditions;
mod keep_alive;
mod limits;
mod ranges;
mod requests;
mod row;
mod smuggling;

use std::fs::File;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness::answer::http;
use harness::{PROGRAM, Place, Server};

/// Two hundred words of four digits and a space, so that a wrong range begins with a wrong number.
fn numbered() -> Vec<u8> {
    (0..FILE_BYTES / 5).flat_map(|number| format!("{number:04} ").into_bytes()).collect()
}

/// Starts a server with these files:
///
/// | name | bytes | last change |
/// |---|---|---|
/// | `a.bin`, `page.html`, `a.flv`, `folder/b.bin` | [`numbered`] | [`CHANGED`] |
/// | `old.bin` | [`numbered`] | [`CHANGED_OLD`] |
/// | `ancient.bin` | [`numbered`] | before 1970: an HTTP-date cannot express it |
/// | `empty.bin` | none | [`CHANGED`] |
fn serve(options: &[&str]) -> Server {
    let place = Place::new();
    let bytes = numbered();
    let changed = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let old = UNIX_EPOCH + Duration::from_secs(23_349_600);
    let ancient = UNIX_EPOCH - Duration::from_secs(86_400);
    put(&place, "a.bin", &bytes, changed);
    put(&place, "page.html", &bytes, changed);
    put(&place, "a.flv", &bytes, changed);
    put(&place, "folder/b.bin", &bytes, changed);
    put(&place, "old.bin", &bytes, old);
    put(&place, "ancient.bin", &bytes, ancient);
    put(&place, "empty.bin", b"", changed);
    Server::at(&place, Command::new(PROGRAM), options)
}

fn put(place: &Place, name: &str, bytes: &[u8], changed: SystemTime) {
    let target = place.put(name, bytes);
    let file = File::options().write(true).open(target).expect("it was just written");
    file.set_modified(changed).expect("the file system keeps the date");
}

/// Returns the entity tag of `a.bin`.
fn etag(server: &Server) -> String {
    let answer = http(server.http, "GET", "/a.bin");
    answer.header("ETag").expect("an entity tag").to_owned()
}

/// Returns a request of HTTP/1.1 that ends its connection. `fields` are lines, each with its CRLF.
fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n")
}

const FILE_BYTES: usize = 1000;
const CHANGED: &str = "Sun, 13 Sep 2020 12:26:40 GMT";
const CHANGED_OLD: &str = "Mon, 28 Sep 1970 06:00:00 GMT";
