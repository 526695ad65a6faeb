// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the claims of the HTTP answers: a client reassembles the file from them, Content-Length is
//! exact, conditions follow RFC 9110 §13.2.2, no input causes a panic or exceeds the file.
//!
//! Sources: RFC 9110 §8.8, §9.3, §13, §14, §15; RFC 2046 §5.1.1.
//! It has over 600 lines because all tests read answers by one parser of their own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use wire::http::{
    Entity, Limits, Listing, Part, Request, RequestReader, Response, answer_method, error,
    file_etag, listing, page, refusal, respond, respond_whole,
};

const ETAG: &str = "\"tag\"";
const BOUNDARY: &str = "0123456789abcdef";

/// Sun, 06 Nov 1994 08:49:37.5 GMT, the example of RFC 9110 §5.6.7 and a half second.
fn modified() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(784_111_777_500)
}

/// An hour later.
fn now() -> SystemTime {
    modified() + Duration::from_secs(3600)
}

fn entity(bytes: u64) -> Entity<'static> {
    Entity { bytes, modified: modified(), etag: ETAG, content_type: "video/mp2t" }
}

fn request(method: &str, fields: &str) -> Request {
    let mut reader = RequestReader::new(Limits::default());
    reader.feed(format!("{method} /f HTTP/1.1\r\nHost: h\r\n{fields}\r\n").as_bytes());
    reader.next().expect("well formed").expect("complete")
}

fn answer(method: &str, fields: &str, bytes: u64) -> Response {
    respond(&request(method, fields), &entity(bytes), now(), || BOUNDARY.to_owned())
}

/// The value of a field that is there once at most.
fn field<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    let head = str::from_utf8(&response.head).unwrap();
    let (lines, rest) = head.split_once("\r\n\r\n").expect("an empty line at the end");
    assert_eq!(rest, "");
    let values: Vec<&str> = lines
        .split("\r\n")
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .filter(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .collect();
    assert!(values.len() <= 1, "{name} twice in {head}");
    values.first().copied()
}

/// A file in which every neighbourhood is different.
fn file(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at * at / 7 + at / 256) as u8).collect()
}

/// The content as sent on the wire.
fn content(response: &Response, file: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    for part in &response.parts {
        match part {
            Part::Bytes(bytes) => content.extend_from_slice(bytes),
            Part::Held { .. } => panic!("files have no such part"),
            Part::File { offset, bytes } => {
                assert!(*bytes > 0, "an empty file part");
                let range = *offset as usize..(*offset + *bytes) as usize;
                content.extend_from_slice(&file[range]);
            }
        }
    }
    content
}

/// `bytes 5-9/10` as 5, 9 and 10.
fn content_range(value: &str) -> (u64, u64, u64) {
    let (range, total) = value.strip_prefix("bytes ").unwrap().split_once('/').unwrap();
    let (first, last) = range.split_once('-').unwrap();
    (first.parse().unwrap(), last.parse().unwrap(), total.parse().unwrap())
}

/// First, last and total of a Content-Range, and the bytes of the range.
type Ranged<'a> = ((u64, u64, u64), &'a [u8]);

/// The parts of a multipart body, by the grammar of RFC 2046 alone.
fn parts<'a>(mut body: &'a [u8], boundary: &str) -> Vec<Ranged<'a>> {
    let delimiter = format!("\r\n--{boundary}");
    let find = |haystack: &[u8], needle: &[u8]| {
        haystack.windows(needle.len()).position(|window| window == needle)
    };
    body = body.strip_prefix(&delimiter.as_bytes()[2..]).expect("the first delimiter");
    let mut parts = Vec::new();
    loop {
        if let Some(end) = body.strip_prefix(b"--") {
            assert_eq!(end, b"\r\n");
            return parts;
        }
        body = body.strip_prefix(b"\r\n").expect("a delimiter line");
        let head_bytes = find(body, b"\r\n\r\n").expect("a part's head");
        let head = str::from_utf8(&body[..head_bytes]).unwrap();
        let (kind, range) = head.split_once("\r\n").unwrap();
        assert_eq!(kind, "Content-Type: video/mp2t");
        let range = content_range(range.strip_prefix("Content-Range: ").unwrap());
        body = &body[head_bytes + 4..];
        let bytes = find(body, delimiter.as_bytes()).expect("the next delimiter");
        parts.push((range, &body[..bytes]));
        body = &body[bytes + delimiter.len()..];
    }
}

#[test]
fn get_sends_the_file_with_its_validators() {
    let response = answer("GET", "", 1000);
    assert_eq!((response.status, response.keep_alive), (200, true));
    assert_eq!(response.parts, [Part::File { offset: 0, bytes: 1000 }]);
    assert_eq!(response.bytes_total(), response.head.len() as u64 + 1000);
    assert_eq!(
        str::from_utf8(&response.head).unwrap(),
        "HTTP/1.1 200 OK\r\n\
         Server: pagewire\r\n\
         Date: Sun, 06 Nov 1994 09:49:37 GMT\r\n\
         Accept-Ranges: bytes\r\n\
         ETag: \"tag\"\r\n\
         Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Type: video/mp2t\r\n\
         Content-Length: 1000\r\n\
         \r\n"
    );
}

#[test]
fn head_says_what_get_would_and_sends_nothing() {
    for fields in ["", "If-None-Match: \"tag\"\r\n", "If-Match: \"x\"\r\n"] {
        let get = answer("GET", fields, 1000);
        let head = answer("HEAD", fields, 1000);
        assert_eq!((head.status, &head.head), (get.status, &get.head), "{fields}");
        assert_eq!(head.parts, []);
    }
    // Range has no effect on HEAD.
    assert_eq!(answer("HEAD", "Range: bytes=0-1\r\n", 1000).status, 200);
    assert_eq!(answer("HEAD", "Range: bytes=2000-\r\n", 1000).status, 200);
}

#[test]
fn an_empty_file_is_an_empty_answer() {
    for range in ["", "Range: bytes=-5\r\n"] {
        let response = answer("GET", range, 0);
        assert_eq!((response.status, field(&response, "Content-Length")), (200, Some("0")));
        assert_eq!(response.parts, []);
    }
    let response = answer("GET", "Range: bytes=0-\r\n", 0);
    assert_eq!((response.status, field(&response, "Content-Range")), (416, Some("bytes */0")));
}

#[test]
fn connection_field_follows_the_version() {
    for (version, connection, expected) in [
        ("1.1", "", None),
        ("1.1", "Connection: close\r\n", Some("close")),
        ("1.0", "", Some("close")),
        ("1.0", "Connection: keep-alive\r\n", Some("keep-alive")),
    ] {
        let mut reader = RequestReader::new(Limits::default());
        reader.feed(format!("GET / HTTP/{version}\r\nHost: h\r\n{connection}\r\n").as_bytes());
        let request = reader.next().unwrap().unwrap();
        let response = respond(&request, &entity(1), now(), || BOUNDARY.to_owned());
        assert_eq!(field(&response, "Connection"), expected);
        assert_eq!(response.keep_alive, expected != Some("close"));
    }
}

#[test]
fn one_range_is_sent_as_it_is() {
    let response = answer("GET", "Range: bytes=10-19\r\n", 1000);
    assert_eq!((response.status, response.parts.len()), (206, 1));
    assert_eq!(response.parts, [Part::File { offset: 10, bytes: 10 }]);
    assert_eq!(field(&response, "Content-Range"), Some("bytes 10-19/1000"));
    assert_eq!(field(&response, "Content-Length"), Some("10"));
    assert_eq!(field(&response, "Content-Type"), Some("video/mp2t"));
    assert_eq!(field(&response, "ETag"), Some(ETAG));
    // So is what remains of a set (RFC 9110 §15.3.7.2).
    for set in ["990-,2000-", "0-99,50-199", "-1,-5"] {
        let response = answer("GET", &format!("Range: bytes={set}\r\n"), 1000);
        assert!(field(&response, "Content-Range").is_some(), "{set}");
        assert_eq!(response.parts.len(), 1, "{set}");
    }
}

#[test]
fn several_ranges_are_sent_in_their_order() {
    let file = file(1000);
    let response = answer("GET", "Range: bytes=500-599, 0-9, 2000-, -1\r\n", 1000);
    assert_eq!(response.status, 206);
    assert_eq!(field(&response, "Content-Range"), None);
    assert_eq!(
        field(&response, "Content-Type"),
        Some("multipart/byteranges; boundary=0123456789abcdef")
    );
    let body = content(&response, &file);
    assert_eq!(field(&response, "Content-Length"), Some(body.len().to_string().as_str()));
    assert_eq!(
        parts(&body, BOUNDARY),
        [
            ((500, 599, 1000), &file[500..600]),
            ((0, 9, 1000), &file[..10]),
            ((999, 999, 1000), &file[999..]),
        ]
    );
}

#[test]
fn ranges_past_the_end_are_416() {
    let response = answer("GET", "Range: bytes=1000-\r\n", 1000);
    assert_eq!((response.status, response.keep_alive), (416, true));
    assert_eq!(field(&response, "Content-Range"), Some("bytes */1000"));
    let body = content(&response, &[]);
    assert_eq!(field(&response, "Content-Length"), Some(body.len().to_string().as_str()));
}

#[test]
fn broken_and_doubled_ranges_send_the_file() {
    for fields in [
        "Range: bytes=5-4\r\n",
        "Range: lines=1-2\r\n",
        "Range: bytes=0-1\r\nRange: bytes=4-5\r\n",
        "Range:\r\n",
    ] {
        assert_eq!(answer("GET", fields, 1000).status, 200, "{fields}");
    }
}

/// Each row: fields, status of GET.
#[test]
fn what_changes_is_sent_whole() {
    for (fields, status) in [
        ("Range: bytes=1-2\r\n", 200),
        ("Range: bytes=90-\r\n", 200),
        ("Range: bytes=1-2\r\nIf-None-Match: \"tag\"\r\n", 304),
        ("If-Match: \"other\"\r\n", 412),
        ("If-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT\r\n", 200),
    ] {
        let response = respond_whole(&request("GET", fields), &entity(10), now());
        assert_eq!(response.status, status, "{fields}");
        if status == 200 {
            assert_eq!(response.parts, [Part::File { offset: 0, bytes: 10 }]);
            assert_eq!(field(&response, "Accept-Ranges"), Some("none"));
            assert_eq!(field(&response, "Content-Range"), None);
            assert_eq!(field(&response, "Last-Modified"), None);
        }
    }
    assert_eq!(respond_whole(&request("POST", ""), &entity(10), now()).status, 405);
}

#[test]
fn preconditions_in_the_order_of_rfc_9110_13_2_2() {
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    for (fields, status) in [
        // Step 1: If-Match, strong comparison.
        (r#"If-Match: "tag""#.to_owned(), 200),
        (r#"If-Match: "x", "tag""#.to_owned(), 200),
        ("If-Match: \"x\"\r\nIf-Match: \"tag\"".to_owned(), 200),
        ("If-Match: *".to_owned(), 200),
        (r#"If-Match: "x""#.to_owned(), 412),
        (r#"If-Match: W/"tag""#.to_owned(), 412),
        ("If-Match: tag".to_owned(), 412),
        ("If-Match:".to_owned(), 412),
        // Step 2: If-Unmodified-Since, without If-Match only.
        (format!("If-Unmodified-Since: {SAME}"), 200),
        (format!("If-Unmodified-Since: {AFTER}"), 200),
        (format!("If-Unmodified-Since: {BEFORE}"), 412),
        ("If-Unmodified-Since: never".to_owned(), 200),
        (format!("If-Match: \"tag\"\r\nIf-Unmodified-Since: {BEFORE}"), 200),
        (format!("If-Match: \"x\"\r\nIf-Unmodified-Since: {SAME}"), 412),
        // Step 3: If-None-Match, weak comparison.
        (r#"If-None-Match: "tag""#.to_owned(), 304),
        (r#"If-None-Match: W/"tag""#.to_owned(), 304),
        (r#"If-None-Match: "x", W/"tag""#.to_owned(), 304),
        ("If-None-Match: *".to_owned(), 304),
        (r#"If-None-Match: "x""#.to_owned(), 200),
        ("If-None-Match: tag".to_owned(), 200),
        // Step 4: If-Modified-Since, without If-None-Match only.
        (format!("If-Modified-Since: {SAME}"), 304),
        (format!("If-Modified-Since: {AFTER}"), 304),
        (format!("If-Modified-Since: {BEFORE}"), 200),
        ("If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT".to_owned(), 304),
        ("If-Modified-Since: Sun Nov  6 08:49:37 1994".to_owned(), 304),
        ("If-Modified-Since: Mon, 06 Nov 1994 08:49:37 GMT".to_owned(), 200),
        (format!("If-Modified-Since: {SAME}\r\nIf-Modified-Since: {SAME}"), 200),
        (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {SAME}"), 200),
        (format!("If-None-Match: \"tag\"\r\nIf-Modified-Since: {BEFORE}"), 304),
        // The earlier step wins.
        (r#"If-Match: "x"|If-None-Match: "tag""#.replace('|', "\r\n"), 412),
        (r#"If-Match: "tag"|If-None-Match: "tag""#.replace('|', "\r\n"), 304),
        (format!("If-Unmodified-Since: {BEFORE}\r\nIf-None-Match: \"tag\""), 412),
        // Step 5: Range applies only if the other conditions are met.
        (r#"If-None-Match: "tag"|Range: bytes=0-1"#.replace('|', "\r\n"), 304),
        (r#"If-Match: "x"|Range: bytes=9999-"#.replace('|', "\r\n"), 412),
        ("If-Match: \"tag\"\r\nRange: bytes=0-1".to_owned(), 206),
        // If-Range: exact and strong.
        ("Range: bytes=0-1\r\nIf-Range: \"tag\"".to_owned(), 206),
        ("Range: bytes=0-1\r\nIf-Range: \"x\"".to_owned(), 200),
        ("Range: bytes=0-1\r\nIf-Range: W/\"tag\"".to_owned(), 200),
        ("Range: bytes=0-1\r\nIf-Range: \"tag\", \"x\"".to_owned(), 200),
        ("Range: bytes=0-1\r\nIf-Range: \"tag\"\r\nIf-Range: \"tag\"".to_owned(), 200),
        ("Range: bytes=0-1\r\nIf-Range: *".to_owned(), 200),
        (format!("Range: bytes=0-1\r\nIf-Range: {SAME}"), 206),
        (format!("Range: bytes=0-1\r\nIf-Range: {AFTER}"), 200),
        (format!("Range: bytes=0-1\r\nIf-Range: {BEFORE}"), 200),
        ("Range: bytes=9999-\r\nIf-Range: \"x\"".to_owned(), 200),
        ("If-Range: \"x\"".to_owned(), 200),
    ] {
        let response = answer("GET", &format!("{fields}\r\n"), 1000);
        assert_eq!(response.status, status, "{fields}");
    }
}

#[test]
fn a_date_is_strong_once_its_second_is_over() {
    let second = UNIX_EPOCH + Duration::from_secs(784_111_777);
    let fields = "Range: bytes=0-1\r\nIf-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (modified_ms, now_ms, status) in
        [(0, 0, 200), (500, 999, 200), (0, 1000, 206), (999, 1000, 206), (2000, 0, 200)]
    {
        let entity = Entity { modified: second + Duration::from_millis(modified_ms), ..entity(10) };
        let now = second + Duration::from_millis(now_ms);
        let response = respond(&request("GET", fields), &entity, now, || BOUNDARY.to_owned());
        assert_eq!(response.status, status, "{modified_ms} {now_ms}");
    }
}

#[test]
fn last_modified_is_never_in_the_future_nor_out_of_range() {
    let far = UNIX_EPOCH + Duration::from_secs(300_000_000_000);
    let early = UNIX_EPOCH - Duration::from_secs(5);
    for (modified, now, expected) in [
        (now() + Duration::from_secs(60), now(), Some("Sun, 06 Nov 1994 09:49:37 GMT")),
        (early, now(), None),
        (far, far, None),
        (early, early, None),
    ] {
        let entity = Entity { modified, ..entity(1) };
        let response = respond(&request("GET", ""), &entity, now, || BOUNDARY.to_owned());
        assert_eq!(field(&response, "Last-Modified"), expected);
        assert!(field(&response, "Date").is_some());
    }
}

#[test]
fn not_modified_has_validators_and_no_content() {
    let response = answer("GET", "If-None-Match: *\r\n", 1000);
    assert_eq!((response.status, &response.parts[..]), (304, &[][..]));
    assert_eq!(field(&response, "ETag"), Some(ETAG));
    assert!(field(&response, "Last-Modified").is_some());
    assert_eq!(field(&response, "Content-Length"), None);
}

#[test]
fn other_methods_are_told_what_is_allowed() {
    for (method, status) in
        [("POST", 405), ("PUT", 405), ("DELETE", 405), ("TRACE", 405), ("get", 501), ("BREW", 501)]
    {
        // Conditions and ranges mean nothing here.
        let fields = "If-Match: \"x\"\r\nRange: bytes=0-1\r\n";
        let response = answer(method, fields, 1000);
        assert_eq!(response.status, status, "{method}");
        let allow = (status == 405).then_some("GET, HEAD, OPTIONS");
        assert_eq!(field(&response, "Allow"), allow, "{method}");
        let body = content(&response, &[]);
        assert!(!body.is_empty());
        assert_eq!(field(&response, "Content-Length"), Some(body.len().to_string().as_str()));
    }
    let options = answer("OPTIONS", "", 1000);
    assert_eq!((options.status, &options.parts[..]), (204, &[][..]));
    assert_eq!(field(&options, "Allow"), Some("GET, HEAD, OPTIONS"));
    assert_eq!(field(&options, "Content-Length"), None);
    assert_eq!(answer_method(&request("GET", ""), now()), None);
}

#[test]
fn listings_count_what_is_held_and_are_not_sent_twice() {
    let rows = |held_bytes| Listing {
        etag: "W/\"7\"",
        content_type: "application/json",
        cache_control: "no-cache",
        coding: Some("gzip"),
        before: b"[".to_vec(),
        held_bytes,
        after: b"]".to_vec(),
    };
    let get = listing(&request("GET", ""), rows(5), now());
    let parts =
        [Part::Bytes(b"["[..].into()), Part::Held { bytes: 5 }, Part::Bytes(b"]"[..].into())];
    assert_eq!((get.status, &get.parts[..]), (200, &parts[..]));
    for (name, value) in [
        ("Content-Length", "7"),
        ("Content-Encoding", "gzip"),
        ("ETag", "W/\"7\""),
        ("Vary", "Accept, Accept-Encoding"),
        ("Cache-Control", "no-cache"),
    ] {
        assert_eq!(field(&get, name), Some(value));
    }
    assert_eq!(listing(&request("GET", ""), rows(0), now()).parts.len(), 2);
    assert_eq!(listing(&request("HEAD", ""), rows(5), now()).parts, []);
    let known = listing(&request("GET", "If-None-Match: \"6\", \"7\"\r\n"), rows(5), now());
    assert_eq!((known.status, &known.parts[..]), (304, &[][..]));
    assert_eq!((field(&known, "ETag"), field(&known, "Content-Encoding")), (Some("W/\"7\""), None));
    let other = listing(&request("GET", "If-None-Match: \"6\"\r\n"), rows(5), now());
    assert_eq!(other.status, 200);
    // A weak tag is never matched strongly.
    let strong = listing(&request("GET", "If-Match: W/\"7\"\r\n"), rows(5), now());
    assert_eq!(strong.status, 412);
}

#[test]
fn gzip_is_for_those_who_name_it() {
    for (fields, accepts) in [
        ("", false),
        ("Accept-Encoding: gzip, deflate, br\r\n", true),
        ("Accept-Encoding: br;q=1.0, GZIP ; q=0.001\r\n", true),
        ("Accept-Encoding: x-gzip\r\n", true),
        ("Accept-Encoding: gzip;q=0\r\n", false),
        ("Accept-Encoding: gzip;q=0.000, *\r\n", false),
        ("Accept-Encoding: *\r\n", true),
        ("Accept-Encoding: *;q=0\r\nAccept-Encoding: gzip\r\n", true),
        ("Accept-Encoding: br, identity\r\n", false),
        ("Accept-Encoding: ;;=,\r\n", false),
    ] {
        assert_eq!(request("GET", fields).accepts_gzip, accepts, "{fields}");
    }
}

#[test]
fn html_is_for_those_who_name_it() {
    for (fields, accepts) in [
        ("", false),
        ("Accept: */*\r\n", false),
        ("Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n", true),
        ("Accept: application/json\r\nAccept: TEXT/HTML ;level=1\r\n", true),
        ("Accept: text/htmlx, text/*\r\n", false),
    ] {
        assert_eq!(request("GET", fields).accepts_html, accepts, "{fields}");
    }
}

#[test]
fn only_media_may_be_sniffed() {
    for (content_type, expected) in [("video/mp2t", None), ("text/html", Some("nosniff"))] {
        let entity = Entity { content_type, ..entity(10) };
        let response = respond(&request("GET", ""), &entity, now(), || BOUNDARY.into());
        assert_eq!(field(&response, "X-Content-Type-Options"), expected, "{content_type}");
    }
}

#[test]
fn pages_are_not_cached_and_know_head() {
    let body = b"<p>index</p>".to_vec();
    let get = page(&request("GET", ""), 200, "text/html; charset=utf-8", body.clone(), now());
    assert_eq!(get.parts, [Part::Bytes(body.clone().into())]);
    assert_eq!(field(&get, "Content-Length"), Some("12"));
    assert_eq!(field(&get, "Cache-Control"), Some("no-cache"));
    assert_eq!(field(&get, "X-Content-Type-Options"), Some("nosniff"));
    let head = page(&request("HEAD", ""), 200, "text/html; charset=utf-8", body, now());
    assert_eq!((head.head, head.parts), (get.head, Vec::new()));
    let empty = page(&request("GET", ""), 200, "text/plain", Vec::new(), now());
    assert_eq!((empty.parts.len(), field(&empty, "Content-Length")), (0, Some("0")));
}

#[test]
fn errors_say_what_in_plain_text() {
    let response = error(&request("GET", ""), 404, "no such file", now());
    assert_eq!(content(&response, &[]), b"404 Not Found: no such file\n");
    assert_eq!(field(&response, "Content-Type"), Some("text/plain; charset=utf-8"));
    let response = refusal(408, "no request in 10 s", now()).with_field("Retry-After", "5");
    assert_eq!((response.status, response.keep_alive), (408, false));
    assert_eq!(field(&response, "Connection"), Some("close"));
    assert_eq!(field(&response, "Retry-After"), Some("5"));
}

#[test]
fn a_field_cannot_end_its_line() {
    let response = refusal(503, "busy", now()).with_field("Retry-After", "5\r\nSet-Cookie: a=b\0");
    assert_eq!(field(&response, "Retry-After"), Some("5  Set-Cookie: a=b "));
    assert_eq!(field(&response, "Set-Cookie"), None);
}

#[test]
fn file_etags_are_strong_and_change_with_the_file() {
    let tag = file_etag(1000, modified(), 42);
    assert_eq!(tag, "\"2a-3e8-ae1b981da166f00\"");
    for other in [
        file_etag(1001, modified(), 42),
        file_etag(1000, modified() + Duration::from_nanos(1), 42),
        file_etag(1000, modified(), 43),
        file_etag(1000, UNIX_EPOCH - Duration::from_nanos(1), 42),
    ] {
        assert_ne!(other, tag);
    }
    let fields = format!("If-None-Match: {tag}\r\n");
    let entity = Entity { etag: &tag, ..entity(1000) };
    assert_eq!(
        respond(&request("GET", &fields), &entity, now(), || BOUNDARY.to_owned()).status,
        304
    );
}

#[test]
#[should_panic(expected = "boundary")]
fn a_boundary_that_could_break_a_header_is_our_own_fault() {
    let _ =
        respond(&request("GET", "Range: bytes=0-0,5-5\r\n"), &entity(9), now(), || "a\r\nb".into());
}

fn range_spec() -> impl Strategy<Value = String> {
    let position = prop_oneof![8 => 0..1300_u64, 1 => any::<u64>()];
    prop_oneof![
        (position.clone(), 0..400_u64)
            .prop_map(|(first, more)| { format!("{first}-{}", first.saturating_add(more)) }),
        position.clone().prop_map(|first| format!("{first}-")),
        position.clone().prop_map(|suffix| format!("-{suffix}")),
    ]
}

proptest! {
    #[test]
    fn every_range_set_is_put_together_to_the_file(
        bytes in 1..1200_u64,
        specs in prop::collection::vec(range_spec(), 1..30),
    ) {
        let file = file(bytes);
        let response = answer("GET", &format!("Range: bytes={}\r\n", specs.join(",")), bytes);
        let body = content(&response, &file);
        prop_assert_eq!(field(&response, "Content-Length").unwrap(), body.len().to_string());
        prop_assert_eq!(response.bytes_total(), (response.head.len() + body.len()) as u64);
        // The ranges that each spec requests, calculated again in wide arithmetic.
        let asked: Vec<(u64, u64)> = specs.iter().filter_map(|spec| {
            let (first, last) = spec.split_once('-').unwrap();
            let (first, last) = match (first.parse::<i128>(), last.parse::<i128>()) {
                (Ok(first), Ok(last)) => (first, last),
                (Ok(first), Err(_)) => (first, i128::MAX),
                (Err(_), Ok(suffix)) => ((i128::from(bytes) - suffix).max(0), i128::MAX),
                (Err(_), Err(_)) => unreachable!("a spec without a number"),
            };
            let last = last.min(i128::from(bytes) - 1);
            (first <= last).then_some((first as u64, last as u64))
        }).collect();
        if asked.is_empty() {
            prop_assert_eq!(response.status, 416);
            return Ok(());
        }
        prop_assert_eq!(response.status, 206);
        let sent: Vec<Ranged<'_>> = match field(&response, "Content-Range") {
            Some(range) => vec![(content_range(range), &body[..])],
            None => parts(&body, BOUNDARY),
        };
        for ((first, last, total), part) in &sent {
            prop_assert_eq!(*total, bytes);
            prop_assert_eq!(*part, &file[*first as usize..=*last as usize]);
        }
        // Every requested byte is present, and none twice.
        for (first, last) in asked {
            prop_assert!(sent.iter().any(|((from, to, _), _)| *from <= first && last <= *to));
        }
        let sent_bytes: usize = sent.iter().map(|(_, part)| part.len()).sum();
        prop_assert!(sent_bytes as u64 <= bytes);
    }

    #[test]
    fn any_field_values_get_an_answer_of_the_said_length(
        values in prop::collection::vec("[ -~]{0,40}", 6),
        bytes in 0..300_u64,
        modified_s in any::<u32>(),
        now_s in any::<u32>(),
        is_head in any::<bool>(),
    ) {
        let names = ["Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since",
            "If-Unmodified-Since"];
        // Odd values leave their field out, or nearly every answer would be 412.
        let fields: String = names.iter().zip(&values)
            .filter(|(_, value)| value.len() % 2 == 0)
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let method = if is_head { "HEAD" } else { "GET" };
        let entity = Entity {
            modified: UNIX_EPOCH + Duration::from_secs(u64::from(modified_s)),
            ..entity(bytes)
        };
        let now = UNIX_EPOCH + Duration::from_secs(u64::from(now_s));
        let response = respond(&request(method, &fields), &entity, now, || BOUNDARY.to_owned());
        prop_assert!([200, 206, 304, 412, 416].contains(&response.status));
        let body = content(&response, &file(bytes));
        match field(&response, "Content-Length") {
            None => prop_assert_eq!(response.status, 304),
            Some(_) if is_head => prop_assert!(body.is_empty()),
            Some(length) => prop_assert_eq!(length, body.len().to_string()),
        }
    }

    #[test]
    fn any_size_is_counted_without_overflow(
        bytes in any::<u64>(),
        specs in prop::collection::vec(range_spec(), 1..20),
    ) {
        let response = answer("GET", &format!("Range: bytes={}\r\n", specs.join(",")), bytes);
        let sent: u128 = response.parts.iter().map(|part| u128::from(part.bytes())).sum();
        prop_assert!(sent <= u128::from(bytes) + 20 * 200);
    }
}

#[test]
fn fields_are_those_of_the_head_without_the_connection() {
    let request = request("GET", "Range: bytes=0-3\r\nConnection: close\r\n");
    let response = respond(&request, &entity(10), now(), || BOUNDARY.to_owned());
    let response = response.with_field("Location", "http://h:1/a\r\nb");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let fields: Vec<String> =
        response.fields().map(|(name, value)| text(name) + "=" + &text(value)).collect();
    let head = text(&response.head);
    assert!(head.contains("Connection: close\r\n"));
    let expected: Vec<String> = head
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty() && !line.starts_with("Connection"))
        .map(|line| line.replacen(": ", "=", 1))
        .collect();
    assert_eq!(fields, expected);
    assert!(fields.contains(&"Content-Range=bytes 0-3/10".to_owned()));
    assert!(fields.contains(&"Location=http://h:1/a  b".to_owned()));
}
