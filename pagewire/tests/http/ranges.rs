// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges: one, several, unsatisfiable ones, and fields that are not ranges.
//!
//! Sources: nginx-tests range.t, range_charset.t, range_clearing.t, range_flv.t; RFC 9110 §14.

use crate::row::{Row, check};
use crate::{FILE_BYTES, get, serve};

fn row(name: &str, target: &str, range: &str, status: u16) -> Row {
    Row::new(name, get(target, &format!("Range: {range}\r\n")), status)
}

/// Returns the row of a single satisfiable range.
fn one(name: &str, target: &str, range: &str, bytes: std::ops::Range<usize>) -> Row {
    let content_range = format!("bytes {}-{}/{FILE_BYTES}", bytes.start, bytes.end - 1);
    row(name, target, range, 206)
        .field("Content-Range", content_range)
        .field("Content-Length", bytes.len().to_string())
        .bytes(bytes)
}

/// Returns the row of a field that is ignored.
fn ignored(name: &str, range: &str) -> Row {
    row(name, "/a.bin", range, 200).no_field("Content-Range").bytes(0..FILE_BYTES)
}

/// Returns the row of a range past the end.
fn unsatisfiable(name: &str, range: &str) -> Row {
    row(name, "/a.bin", range, 416).field("Content-Range", format!("bytes */{FILE_BYTES}"))
}

#[test]
fn single_range_is_answered_with_its_bytes() {
    let server = serve(&[]);
    let flv = "the query is the resource's to interpret (RFC 3986 §3.4); files here ignore it";
    let cut = "an FLV header, then the bytes from the position in the query on";
    let rows = [
        one("range.t: range request", "/a.bin", "bytes=0-8", 0..9),
        one("range.t: final bytes", "/a.bin", "bytes=-10", 990..1000),
        one("range.t: final bytes explicit", "/a.bin", "bytes=990-", 990..1000),
        one("range.t: more than length", "/a.bin", "bytes=990-1990", 990..1000),
        one("range.t: recoded", "/page.html", "bytes=990-1990", 990..1000)
            .field("Content-Type", "text/html"),
        one("range.t: last byte pos adjusted", "/a.bin", "bytes=0-10001", 0..1000),
        one("range_flv.t: first bytes", "/a.flv?start=100", "bytes=0-9", 0..10).differs(cut, flv),
        one("range_flv.t: final bytes", "/a.flv?start=100", "bytes=-10", 990..1000)
            .differs(cut, flv),
        one("range_flv.t: multi buffers", "/a.flv?start=100", "bytes=0-99", 0..100)
            .differs(cut, flv),
        one("RFC 9110 §14.1.2: first byte", "/a.bin", "bytes=0-0", 0..1),
        one("RFC 9110 §14.1.2: last byte", "/a.bin", "bytes=-1", 999..1000),
        one("RFC 9110 §14.1.2: last byte by position", "/a.bin", "bytes=999-999", 999..1000),
        one("RFC 9110 §14.1.2: suffix longer than the file", "/a.bin", "bytes=-1001", 0..1000),
        one("RFC 9110 §14.1: unit in capitals", "/a.bin", "BYTES=5-8", 5..9),
        one("RFC 9110 §5.6.1: empty elements", "/a.bin", "bytes=,, 5-8 ,", 5..9)
            .differs("416", "empty list elements are skipped (RFC 9110 §5.6.1.2)"),
        one("position of more than 64 bits", "/a.bin", "bytes=5-99999999999999999999", 5..1000)
            .differs("416", "a last position past the end is cut to it (RFC 9110 §14.1.2)"),
        Row::new(
            "RFC 9110 §14.2: range in HTTP/1.0",
            "GET /a.bin HTTP/1.0\r\nRange: bytes=5-8\r\n\r\n",
            206,
        )
        .bytes(5..9),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn several_ranges_are_answered_in_parts() {
    let server = serve(&[]);
    let merged = "overlapping ranges are merged (RFC 9110 §15.3.7.2)";
    let kind = "application/octet-stream";
    let many: Vec<String> = (0..100).map(|n| format!("{0}-{0}", n * 2)).collect();
    let many = format!("bytes={}", many.join(","));
    let rows = [
        row("range.t: multipart", "/a.bin", "bytes=0-9, -10, 10-19", 206)
            .no_field("Content-Range")
            .parts(kind, [0..10, 990..1000, 10..20]),
        row("range.t: multipart big", "/a.bin", "bytes=0-9, -10, 100000-, 10-19", 206)
            .parts(kind, [0..10, 990..1000, 10..20]),
        row("range.t: max_ranges not reached", "/a.bin", "bytes=0-9, -10", 206)
            .parts(kind, [0..10, 990..1000]),
        row("range.t: max_ranges not reached bad range", "/a.bin", "bytes=0-9, -10, 10000-", 206)
            .parts(kind, [0..10, 990..1000]),
        row("range_charset.t: charset attribute", "/page.html", "bytes=0-9, 10-19", 206)
            .parts("text/html", [0..10, 10..20]),
        one("range.t: malicious byte ranges", "/a.bin", "bytes=0-10001, 0-0", 0..1000)
            .differs("200", merged),
        one("overlap becomes one range", "/a.bin", "bytes=0-9,5-19", 0..20)
            .differs("206 with two parts", merged),
        one(
            "same range a hundred times",
            "/a.bin",
            &format!("bytes=0-9{}", ",0-9".repeat(99)),
            0..10,
        )
        .differs("206 with 100 parts", merged),
        one("hundred single bytes with gaps of one", "/a.bin", &many, 0..199)
            .differs("206 with 100 parts", "small gaps are merged (RFC 9110 §15.3.7.2)"),
        row("overlap stands where its first member stood", "/a.bin", "bytes=30-39,0-9,35-50", 206)
            .parts(kind, [30..51, 0..10])
            .differs("206 with three parts", merged),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn range_outside_the_file_is_refused() {
    let server = serve(&[]);
    let rows = [
        unsatisfiable("range.t: too big first byte pos", "bytes=100000-"),
        unsatisfiable("range_clearing.t: not satisfiable", "bytes=1000-")
            .field("Content-Type", "text/plain; charset=utf-8"),
        unsatisfiable("RFC 9110 §14.1.2: suffix of no bytes", "bytes=-0"),
        unsatisfiable("several, none in the file", "bytes=1000-1001,2000-"),
        unsatisfiable("first position of more than 64 bits", "bytes=99999999999999999999-"),
        row("RFC 9110 §14.4: range of an empty file", "/empty.bin", "bytes=0-", 416)
            .field("Content-Range", "bytes */0")
            .differs("200", "an empty file has no first position (RFC 9110 §14.1.2)"),
        row("RFC 9110 §14.1.2: suffix of an empty file", "/empty.bin", "bytes=-5", 200)
            .field("Content-Length", "0"),
        row("range_clearing.t: no file, no range", "/none", "bytes=0-4", 404)
            .no_field("Content-Range"),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn field_that_is_no_range_is_ignored() {
    let server = serve(&[]);
    let invalid = "an invalid ranges-specifier is ignored, not rejected (RFC 9110 §14.2)";
    let get_alone = "Range is ignored for methods other than GET (RFC 9110 §14.2)";
    let too_many = format!("bytes=0-1{}", ",0-1".repeat(100));
    let rows = [
        ignored("range.t: alpha in first byte pos", "bytes=alpha").differs("416", invalid),
        ignored("range.t: alpha in last byte pos", "bytes=10-alpha").differs("416", invalid),
        ignored("range.t: no hyphen", "bytes=10").differs("416", invalid),
        ignored("range.t: no comma", "bytes=10-11 12-").differs("416", invalid),
        ignored("range.t: max_ranges reached", &too_many),
        row("RFC 9110 §14.2: range of a listing", "/", "bytes=0-4", 200).no_field("Content-Range"),
        row("RFC 9110 §14.2: two ranges of a listing", "/", "bytes=0-2,4-", 200)
            .no_field("Content-Range"),
        ignored("last before first", "bytes=9-5").differs("416", invalid),
        ignored("one of several is invalid", "bytes=0-1,9-5").differs("206", invalid),
        ignored("space before the dash", "bytes=5 -8").differs("206", invalid),
        ignored("signed position", "bytes=+5-8").differs("416", invalid),
        ignored("hexadecimal position", "bytes=0x5-8").differs("416", invalid),
        ignored("no range at all", "bytes="),
        ignored("RFC 9110 §14.1: other unit", "items=0-1"),
        ignored("RFC 9110 §14.2: field that came twice", "bytes=0-1\r\nRange: bytes=2-3")
            .differs("206", invalid),
        Row::new(
            "RFC 9110 §14.2: range of a HEAD",
            "HEAD /a.bin HTTP/1.1\r\nHost: h\r\nConnection: close\r\nRange: bytes=0-8\r\n\r\n",
            200,
        )
        .no_field("Content-Range")
        .field("Content-Length", "1000")
        .head_only()
        .differs("206", get_alone),
        Row::new(
            "RFC 9110 §14.2: range of a method that is not allowed",
            "POST /a.bin HTTP/1.1\r\nHost: h\r\nConnection: close\r\nRange: bytes=0-8\r\n\r\n",
            405,
        )
        .no_field("Content-Range"),
    ];
    check(&server, &rows);
    server.stop();
}
