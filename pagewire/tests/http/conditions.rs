// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditions: entity tags, dates, their precedence, and If-Range.
//!
//! Sources: nginx-tests not_modified.t, range_if_range.t, http_headers_multi.t; RFC 9110 §13.

use crate::row::{Row, check};
use crate::{CHANGED, CHANGED_OLD, FILE_BYTES, etag, get, serve};

/// Returns the row of a request for `a.bin` with these fields.
fn row(name: &str, fields: &[(&str, &str)], status: u16) -> Row {
    of("/a.bin", name, fields, status)
}

fn of(target: &str, name: &str, fields: &[(&str, &str)], status: u16) -> Row {
    let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let row = Row::new(name, get(target, &lines), status);
    match status {
        200 => row.bytes(0..FILE_BYTES),
        304 => row.no_field("Content-Length").no_field("Content-Type"),
        _ => row,
    }
}

#[test]
fn entity_tags_are_compared() {
    let server = serve(&[]);
    let tag = etag(&server);
    let tag = tag.as_str();
    let weak = format!("W/{tag}");
    let list = format!("\"foo\", \"bar\", {tag} , \"baz\"");
    let with_tab = format!("\"foo\", \"bar\", \t{tag} , \"baz\"");
    let not_quoted = tag.trim_matches('"');
    let rows = [
        row("not_modified.t: if-none-match", &[("If-None-Match", tag)], 304).field("ETag", tag),
        row("not_modified.t: if-none-match fail", &[("If-None-Match", "\"foo\"")], 200),
        row("not_modified.t: if-none-match list", &[("If-None-Match", &list)], 304),
        row("not_modified.t: if-none-match all", &[("If-None-Match", "*")], 304),
        row("not_modified.t: if-none-match weak", &[("If-None-Match", &weak)], 304),
        row("not_modified.t: if-match", &[("If-Match", tag)], 200),
        row("not_modified.t: if-match fail", &[("If-Match", "\"foo\"")], 412),
        row("not_modified.t: if-match list", &[("If-Match", &with_tab)], 200),
        row("not_modified.t: if-match all", &[("If-Match", "*")], 200),
        row("not_modified.t: if-match weak fail", &[("If-Match", &weak)], 412),
        of("/nx", "not_modified.t: if-match with 404", &[("If-Match", "\"foo\"")], 404),
        of("/nx", "RFC 9110 §13.2.1: if-none-match with 404", &[("If-None-Match", "*")], 404),
        row("RFC 9110 §8.8.3: tag without quotes", &[("If-None-Match", not_quoted)], 200),
        row("RFC 9110 §8.8.3: weak in lower case", &[("If-None-Match", "w/\"foo\"")], 200),
        row("RFC 9110 §13.1.1: empty if-match", &[("If-Match", "")], 412),
        row("RFC 9110 §13.1.2: empty if-none-match", &[("If-None-Match", "")], 200),
        Row::new(
            "RFC 9110 §13.1.2: if-none-match of a HEAD",
            get("/a.bin", &format!("If-None-Match: {tag}\r\n")).replace("GET", "HEAD"),
            304,
        )
        .head_only(),
        Row::new(
            "RFC 9110 §13.2.1: conditions of a method that is not allowed",
            get("/a.bin", "If-Match: \"foo\"\r\n").replace("GET", "DELETE"),
            405,
        ),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn dates_are_compared() {
    let server = serve(&[]);
    let since = |name: &str, date: &str, status| row(name, &[("If-Modified-Since", date)], status);
    let unless =
        |name: &str, date: &str, status| row(name, &[("If-Unmodified-Since", date)], status);
    let rows = [
        since("not_modified.t: 0x7F000000", "Wed, 08 Jul 2037 22:53:52 GMT", 304),
        since("not_modified.t: 0x7FFFFFFF", "Tue, 19 Jan 2038 03:14:07 GMT", 304),
        since("not_modified.t: 0x7FFFFFFF + 1", "Tue, 19 Jan 2038 03:14:08 GMT", 304),
        since("not_modified.t: 0x17FFFFFFF", "Fri, 25 Feb 2174 09:42:23 GMT", 304),
        since("the last year that a date can say", "Fri, 31 Dec 9999 23:59:59 GMT", 304),
        since("the file's own date", CHANGED, 304).field("Last-Modified", CHANGED),
        since("a second earlier", "Sun, 13 Sep 2020 12:26:39 GMT", 200),
        since("RFC 9110 §5.6.7: date of RFC 850", "Sunday, 13-Sep-20 12:26:40 GMT", 304),
        since("RFC 9110 §5.6.7: date of asctime", "Sun Sep 13 12:26:40 2020", 304),
        since("RFC 9110 §13.1.3: no date", "yesterday", 200),
        since("RFC 9110 §13.1.3: numeric time zone", "Sun, 13 Sep 2020 12:26:40 +0000", 200)
            .differs("304", "an HTTP-date is in GMT (RFC 9110 §5.6.7)"),
        since("RFC 9110 §13.1.3: day that there is not", "Sun, 31 Feb 2021 12:26:40 GMT", 200),
        since("RFC 9110 §13.1.3: empty", "", 200),
        unless("RFC 9110 §13.1.4: the file's own date", CHANGED, 200),
        unless("RFC 9110 §13.1.4: a second earlier", "Sun, 13 Sep 2020 12:26:39 GMT", 412),
        unless("RFC 9110 §13.1.4: no date", "yesterday", 200)
            .differs("412", "a field that is no date is ignored (RFC 9110 §13.1.4)"),
        of("/old.bin", "a file of 1970", &[("If-Modified-Since", CHANGED_OLD)], 304),
        of("/ancient.bin", "a file without a date", &[("If-Modified-Since", CHANGED)], 200)
            .no_field("Last-Modified"),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn conditions_are_evaluated_in_their_order() {
    let server = serve(&[]);
    let tag = etag(&server);
    let tag = tag.as_str();
    let (later, earlier) = ("Wed, 08 Jul 2037 22:53:52 GMT", "Sun, 13 Sep 2020 12:26:39 GMT");
    let other = "\"foo\"";
    let rows = [
        row(
            "RFC 9110 §13.1.3: if-none-match before if-modified-since",
            &[("If-None-Match", other), ("If-Modified-Since", later)],
            200,
        ),
        row(
            "RFC 9110 §13.1.4: if-match before if-unmodified-since",
            &[("If-Match", tag), ("If-Unmodified-Since", earlier)],
            200,
        )
        .differs("412", "If-Unmodified-Since is not read beside If-Match (RFC 9110 §13.1.4)"),
        row(
            "RFC 9110 §13.2.2: if-match passes, if-none-match does not",
            &[("If-Match", "*"), ("If-None-Match", tag)],
            304,
        ),
        row(
            "RFC 9110 §13.2.2: if-match fails before if-none-match",
            &[("If-Match", other), ("If-None-Match", tag)],
            412,
        ),
        row(
            "RFC 9110 §13.2.2: if-unmodified-since fails before if-none-match",
            &[("If-Unmodified-Since", earlier), ("If-None-Match", tag)],
            412,
        ),
        row(
            "RFC 9110 §13.2.2: if-none-match before a range",
            &[("If-None-Match", tag), ("Range", "bytes=0-8")],
            304,
        ),
        row(
            "RFC 9110 §13.2.2: if-match before a range that is not in the file",
            &[("If-Match", other), ("Range", "bytes=1000-")],
            412,
        ),
        row(
            "RFC 9110 §13.2.2: range behind a condition that passes",
            &[("If-Match", tag), ("Range", "bytes=5-8")],
            206,
        )
        .bytes(5..9),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn if_range_sends_a_range_of_the_same_file_alone() {
    let server = serve(&[]);
    let tag = etag(&server);
    let weak = format!("W/{tag}");
    let two = format!("{tag}, {tag}");
    let ask = |target: &str, name: &str, if_range: &str, status| {
        let row = of(target, name, &[("Range", "bytes=0-9"), ("If-Range", if_range)], status);
        if status == 206 { row.bytes(0..10) } else { row }
    };
    let rows = [
        ask("/a.bin", "range_if_range.t: wrong", "wrong", 200).field("Last-Modified", CHANGED),
        ask("/a.bin", "range_if_range.t: if-range", CHANGED, 206),
        ask("/ancient.bin", "range_if_range.t: notime", "wrong", 200).no_field("Last-Modified"),
        ask("/old.bin", "range_if_range.t: time wrong", "wrong", 200)
            .field("Last-Modified", CHANGED_OLD),
        ask("/old.bin", "range_if_range.t: time", CHANGED_OLD, 206),
        ask("/a.bin", "RFC 9110 §13.1.5: entity tag", &tag, 206),
        ask("/a.bin", "RFC 9110 §13.1.5: another entity tag", "\"foo\"", 200),
        ask("/a.bin", "RFC 9110 §13.1.5: weak entity tag", &weak, 200),
        ask("/a.bin", "RFC 9110 §13.1.5: list", &two, 200),
        ask("/a.bin", "RFC 9110 §13.1.5: star", "*", 200),
        ask("/a.bin", "RFC 9110 §13.1.5: later date", "Wed, 08 Jul 2037 22:53:52 GMT", 200),
        ask("/a.bin", "RFC 9110 §13.1.5: earlier date", "Sun, 13 Sep 2020 12:26:39 GMT", 200),
        row("RFC 9110 §13.1.5: without a range", &[("If-Range", "\"foo\"")], 200),
        row(
            "RFC 9110 §13.1.5: range that is not in another file",
            &[("Range", "bytes=1000-"), ("If-Range", "\"foo\"")],
            200,
        ),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn conditions_that_come_twice_are_read_by_their_grammar() {
    let server = serve(&[]);
    let tag = etag(&server);
    let tag = tag.as_str();
    let list = "a list that came in two lines is one list (RFC 9110 §5.3)";
    let not_one = "a field with more than one member is ignored (RFC 9110 §13.1.3)";
    let twice = |name: &str, field: &str, values: [&str; 2], status| {
        let row = row(name, &[(field, values[0]), (field, values[1])], status);
        row.differs("400", if field.ends_with("Match") { list } else { not_one })
    };
    let dates = [CHANGED, CHANGED];
    let rows = [
        twice("http_headers_multi.t: If-Modified-Since", "If-Modified-Since", dates, 200),
        twice("http_headers_multi.t: If-Unmodified-Since", "If-Unmodified-Since", dates, 200),
        twice("http_headers_multi.t: If-Match", "If-Match", ["\"foo\"", "\"bar\""], 412),
        twice("http_headers_multi.t: If-None-Match", "If-None-Match", ["\"foo\"", tag], 304),
        twice("second If-Match names it", "If-Match", ["\"foo\"", tag], 200),
        row(
            "http_headers_multi.t: If-Range",
            &[("Range", "bytes=0-9"), ("If-Range", tag), ("If-Range", tag)],
            200,
        )
        .differs("400", "If-Range is one validator; two match nothing (RFC 9110 §13.1.5)"),
    ];
    check(&server, &rows);
    server.stop();
}
