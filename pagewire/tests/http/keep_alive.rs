// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections: kept open after an answer or closed, several requests in a row, discarded content.
//!
//! Sources: nginx-tests http_keepalive.t, body.t, body_chunked.t, http_header_buffers.t; RFC 9112
//! §9.3, §9.6.
//!
//! Waits for no time-out: `tests/faults/limits.rs` does. Omits the cases of `keepalive_requests`
//! and `keepalive_time`, which pagewire does not limit.

use crate::row::{Row, check};
use crate::{FILE_BYTES, etag, serve};

/// Returns a request of HTTP/1.1 that keeps its connection. `fields` are lines, each with its CRLF.
fn ask(method: &str, fields: &str) -> String {
    format!("{method} /a.bin HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// As [`ask`], with the version 1.0.
fn ask_1_0(fields: &str) -> String {
    format!("GET /a.bin HTTP/1.0\r\n{fields}\r\n")
}

fn with_length(content: &str) -> String {
    ask("GET", &format!("Content-Length: {}\r\n", content.len())) + content
}

fn in_chunks(content: &str) -> String {
    let chunk = format!("{:x}\r\n{content}\r\n0\r\n\r\n", content.len());
    ask("GET", "Transfer-Encoding: chunked\r\n") + &chunk
}

#[test]
fn connection_stays_open_by_version_and_field() {
    let server = serve(&[]);
    let default = "HTTP/1.1 persists without saying so (RFC 9112 §9.3)";
    let sniffed = "persistence depends on no User-Agent (RFC 9112 §9.3)";
    let stays = |name: &str, sent: String| Row::new(name, sent, 200).kept();
    let ends = |name: &str, sent: String| Row::new(name, sent, 200).field("Connection", "close");
    let rows = [
        stays("http_keepalive.t: keepalive request", ask("GET", ""))
            .no_field("Connection")
            .differs("Connection: keep-alive", default),
        stays("http_keepalive.t: keepalive timeout header", ask("GET", ""))
            .no_field("Keep-Alive")
            .differs("Keep-Alive: timeout=9", "no standard defines it (RFC 9112 Appendix C.2.2)"),
        Row::new(
            "http_keepalive.t: disable msie6",
            ask("POST", "User-Agent: MSIE 5.0\r\nContent-Length: 0\r\n"),
            405,
        )
        .kept()
        .differs("Connection: close", sniffed),
        stays("http_keepalive.t: disable msie6 GET", ask("GET", "User-Agent: MSIE 5.0\r\n")),
        stays(
            "http_keepalive.t: disable safari",
            ask("GET", "User-Agent: Mac OS X Safari/7534.48.3\r\n"),
        )
        .differs("Connection: close", sniffed),
        ends("RFC 9112 §9.6: close", ask("GET", "Connection: close\r\n")),
        ends("RFC 9110 §7.6.1: close in capitals", ask("GET", "Connection: CLOSE\r\n")),
        ends("RFC 9110 §7.6.1: close in a list", ask("GET", "Connection: x, close , y\r\n")),
        ends(
            "RFC 9112 §9.3: close beside keep-alive",
            ask("GET", "Connection: keep-alive, close\r\n"),
        ),
        ends(
            "RFC 9110 §5.3: close in a second line",
            ask("GET", "Connection: keep-alive\r\nConnection: close\r\n"),
        ),
        stays("RFC 9110 §7.6.1: close within a word", ask("GET", "Connection: closed\r\n")),
        ends("RFC 9112 §9.3: HTTP/1.0", ask_1_0("")),
        stays("RFC 9112 §9.3: keep-alive in HTTP/1.0", ask_1_0("Connection: Keep-Alive\r\n"))
            .field("Connection", "keep-alive"),
        ends("RFC 9112 §9.3: both in HTTP/1.0", ask_1_0("Connection: keep-alive, close\r\n")),
        Row::new("error keeps the connection", ask("GET", "").replace("a.bin", "none"), 404).kept(),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = serve(&[]);
    let tag = etag(&server);
    let last = ask("GET", "Connection: close\r\n");
    let range = |range: &str| ask("GET", &format!("Range: bytes={range}\r\n"));
    let long = |name: &str| format!("X-Long: {name}{}\r\n", "1234567890".repeat(20));
    let mixed = [
        ask("HEAD", ""),
        range("0-4"),
        ask("GET", "").replace("a.bin", "none"),
        ask("GET", &format!("If-None-Match: {tag}\r\n")),
        range("1000-"),
        ask("OPTIONS", ""),
        ask("DELETE", ""),
        last.clone(),
    ];
    let pipelined = long("a").repeat(3);
    let mut fifty = Row::silent("http_keepalive.t: keepalive merge", range("5-8").repeat(50));
    for _ in 0..50 {
        fifty = fifty.then(206).bytes(5..9);
    }
    let rows = [
        fifty.kept(),
        Row::new("answers of every kind", mixed.concat(), 200)
            .head_only()
            .then(206)
            .bytes(0..5)
            .then(404)
            .then(304)
            .then(416)
            .then(204)
            .then(405)
            .then(200)
            .bytes(0..FILE_BYTES),
        Row::new(
            "http_header_buffers.t: long header after pipelining",
            ask("GET", &pipelined) + &ask("GET", &(long("b") + "Connection: close\r\n")),
            200,
        )
        .then(200),
        Row::new(
            "http_header_buffers.t: long request line after pipelining",
            ask("GET", &pipelined)
                + &last.replace("a.bin", &format!("a.bin?{}", "1234567890".repeat(20))),
            200,
        )
        .then(200),
        Row::new(
            "RFC 9112 §2.2: empty line before a request",
            format!("{}\r\n{last}", ask("GET", "")),
            200,
        )
        .then(200),
        Row::new("RFC 9112 §9.6: nothing behind close", last.repeat(2), 200),
        Row::new("RFC 9112 §9.3: nothing behind HTTP/1.0", ask_1_0("").repeat(2), 200),
        Row::new("RFC 9112 §9.6: end of the client's side", ask("GET", ""), 200).half_closed(),
        Row::new("end of the client's side behind two", ask("GET", "").repeat(2), 200)
            .then(200)
            .half_closed(),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn content_is_dropped_and_the_next_request_is_read() {
    let server = serve(&[]);
    let (ten, buffer, large) = ("0123456789", "0123456789".repeat(128), "0123456789".repeat(512));
    let orders = [[ten, &buffer, &large, "foobar"], [&buffer, &large, ten, "foobar"]];
    let four = |name: &str, sent: String| {
        (0..3).fold(Row::new(name, sent, 200), |row, _| row.then(200).bytes(0..FILE_BYTES)).kept()
    };
    let content = "GET /a.bin HTTP/1.0\r\n\r\n";
    let hidden =
        format!("POST /a.bin HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", content.len());
    let unfinished = "a request that is not whole needs no answer (RFC 9112 §8)";
    let rows = [
        four("body.t: body discard", orders[0].map(with_length).concat()),
        four("body.t: body discard 2", orders[1].map(with_length).concat()),
        four("body_chunked.t: chunked body discard", orders[0].map(in_chunks).concat()),
        four("body_chunked.t: chunked body discard 2", orders[1].map(in_chunks).concat()),
        Row::new(
            "body.t: redirect - discard request body",
            hidden.clone() + "0123456789ABC\r\nDEFGHIJK",
            405,
        )
        .kept(),
        Row::new("content that looks like a request", hidden + content, 405).kept(),
        Row::silent(
            "http_keepalive.t: EOF in discard body",
            "POST /a.bin HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n",
        )
        .half_closed()
        .differs("answered before the content", unfinished),
        Row::silent("end within a head", "GET /a.bin HTTP/1.1\r\nHost: h\r\n").half_closed(),
        Row::silent("end before a request", "").half_closed(),
    ];
    check(&server, &rows);
    server.stop();
}
