// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits: sizes of a request, connections of an address, requests a second.
//!
//! Sources: nginx-tests http_max_headers.t, http_header_buffers.t, body.t, body_chunked.t,
//! limit_conn.t, limit_req.t; RFC 9110 §15.5.14, §15.5.15, RFC 6585 §4, §5.
//!
//! Omits the cases of limit_rate.t: pagewire limits the rate of no download by default.

use std::time::{Duration, Instant};

use crate::harness::answer::{Line, http};
use crate::harness::await_true;
use crate::row::{Row, check};
use crate::{get, serve};

/// Fields that [`get`] adds itself: Host and Connection.
const FIELDS_OF_GET: usize = 2;
/// `Limits::headers_max`, `request_line_bytes_max`, `head_bytes_max` and `body_bytes_max` of the
/// reader.
const FIELDS_MAX: usize = 64;
const LINE_BYTES_MAX: usize = 8 << 10;
const HEAD_BYTES_MAX: usize = 16 << 10;
const BODY_BYTES_MAX: usize = 64 << 10;

/// Returns a GET whose request line has so many bytes, including its CRLF.
fn line_of(bytes: usize) -> String {
    let query = "x".repeat(bytes - "GET /a.bin? HTTP/1.1\r\n".len());
    get(&format!("/a.bin?{query}"), "")
}

/// Returns a GET whose head has so many bytes, including its empty line.
fn head_of(bytes: usize) -> String {
    let field = |value: &str| get("/a.bin", &format!("X: {value}\r\n"));
    field(&"x".repeat(bytes - field("").len()))
}

#[test]
fn sizes_of_a_request_are_limited() {
    let server = serve(&[]);
    let fields = |count: usize| get("/a.bin", &"X-Blah: 1\r\n".repeat(count - FIELDS_OF_GET));
    let content = |bytes: usize| {
        let head = format!("GET /a.bin HTTP/1.1\r\nHost: h\r\nContent-Length: {bytes}\r\n\r\n");
        head + &"x".repeat(bytes)
    };
    // Chunked framing of a body of one chunk adds 13 bytes to the data when the size has 4 digits.
    let chunks = |bytes: usize| {
        let head = "GET /a.bin HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let data = "x".repeat(bytes - 13);
        format!("{head}{:04x}\r\n{data}\r\n0\r\n\r\n", data.len())
    };
    let own = "too many or too large fields are 431 (RFC 6585 §5)";
    let rows = [
        Row::new("http_max_headers.t: max headers", fields(FIELDS_MAX), 200),
        Row::new("http_max_headers.t: max headers reached", fields(FIELDS_MAX + 1), 431)
            .differs("400", own),
        Row::new("longest request line", line_of(LINE_BYTES_MAX), 200),
        Row::new("RFC 9110 §15.5.15: longer request line", line_of(LINE_BYTES_MAX + 1), 414),
        Row::new("longest head", head_of(HEAD_BYTES_MAX), 200),
        Row::new("RFC 6585 §5: longer head", head_of(HEAD_BYTES_MAX + 1), 431).differs("400", own),
        Row::new("body.t: body", content(BODY_BYTES_MAX), 200).kept(),
        Row::new("body.t: body too large", content(BODY_BYTES_MAX + 1), 413),
        Row::new("body_chunked.t: body", chunks(BODY_BYTES_MAX), 200).kept(),
        Row::new("body_chunked.t: body too large", chunks(BODY_BYTES_MAX + 1), 413),
    ];
    check(&server, &rows);
    server.stop();
}

/// After limit_conn.t: rejected, rejected in a different location, accepted when the first has
/// ended.
#[test]
fn connections_of_an_address_are_limited() {
    let options = ["--exempt-from-limits", "none", "--connections-per-address", "1"];
    let server = serve(&options);
    let mut first = Line::to(server.http);
    first.send("GET /a.bin HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(first.answer().map(|answer| answer.status), Some(200));
    // Nginx answers 503; for a limit of one client, the status is 429 (RFC 6585 §4).
    for target in ["/a.bin", "/folder/b.bin"] {
        let refused = http(server.http, "GET", target);
        assert_eq!((refused.status, refused.header("Retry-After")), (429, Some("10")), "{target}");
        assert_eq!(refused.header("Connection"), Some("close"), "{target}");
    }
    first.send("GET /a.bin HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_eq!(first.answer().map(|answer| answer.status), Some(200), "the first is served on");
    drop(first);
    // The server counts the first connection until it has detected its end.
    await_true("no other connection is open", || http(server.http, "GET", "/a.bin").status == 200);
    server.stop();
}

/// After limit_req.t: nginx rejects requests over the rate and its burst with 503, or delays them.
/// Pagewire delays all of them, each answer whole (RFC 9110 §15.6.4 obliges no server to refuse).
#[test]
fn requests_over_the_rate_are_not_refused() {
    answer_over_the_rate(24);
}

/// Sends so many requests at once, where a burst of 20 and then 10 a second are allowed; returns
/// the time to the last answer.
#[track_caller]
fn answer_over_the_rate(requests: usize) -> Duration {
    let options = ["--exempt-from-limits", "none", "--requests-per-second", "10"];
    let server = serve(&options);
    let mut line = Line::to(server.http);
    let began = Instant::now();
    line.send("GET /a.bin HTTP/1.1\r\nHost: h\r\n\r\n".repeat(requests));
    for number in 0..requests {
        let answer = line.answer().unwrap_or_else(|| panic!("closed before answer {number}"));
        assert_eq!((answer.status, answer.body.len()), (200, 1000), "answer {number}");
    }
    let took = began.elapsed();
    assert_eq!(http(server.http, "GET", "/a.bin").status, 200, "another connection has its own");
    server.stop();
    took
}

mod timed {
    use super::*;

    #[test]
    fn requests_over_the_rate_are_delayed() {
        let took = answer_over_the_rate(30);
        // A burst of two seconds' worth is free: 21 requests at once, then one each 100 ms.
        assert!(took > Duration::from_millis(800), "30 requests at 10 a second took {took:?}");
    }
}
