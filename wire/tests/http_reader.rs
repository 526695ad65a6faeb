// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the claims of the HTTP reader: the same requests and faults for every division of the
//! bytes, keep-alive by version, every doubtful framing refused, every limit enforced, memory
//! bounded, no panic.
//!
//! Sources: RFC 9112 §2.2, §3, §5, §6, §7.1, §9; RFC 9110 §7.2, §10.1.1.

use std::time::UNIX_EPOCH;

use proptest::prelude::*;
use wire::http::{Limits, Malformed, Method, Request, RequestReader, Version};

/// Requests and fault that a reader returns for a whole connection.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    requests: Vec<Request>,
    fault: Option<Malformed>,
    is_empty: bool,
    byte_offset: u64,
}

fn read_in(pieces: &[&[u8]], limits: Limits) -> Outcome {
    let mut reader = RequestReader::new(limits);
    let mut requests = Vec::new();
    let mut fault = None;
    for piece in pieces {
        reader.feed(piece);
        loop {
            match reader.next() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(malformed) => {
                    fault = Some(malformed);
                    break;
                }
            }
        }
    }
    let (is_empty, byte_offset) = (reader.is_empty(), reader.byte_offset());
    Outcome { requests, fault, is_empty, byte_offset }
}

/// The outcome for `input`, after checking that no way of cutting it changes it.
fn read(input: &[u8]) -> Outcome {
    let outcome = read_in(&[input], Limits::default());
    for step in [1, 2, 3, 7] {
        let pieces: Vec<&[u8]> = input.chunks(step).collect();
        assert_eq!(read_in(&pieces, Limits::default()), outcome, "in pieces of {step}");
    }
    outcome
}

fn only(input: &str) -> Request {
    let mut outcome = read(input.as_bytes());
    assert_eq!(outcome.fault, None, "{input}");
    assert_eq!(outcome.requests.len(), 1, "{input}");
    outcome.requests.remove(0)
}

fn refused(input: &str) -> Malformed {
    let outcome = read(input.as_bytes());
    assert_eq!(outcome.requests, [], "{input}");
    outcome.fault.expect(input)
}

#[test]
fn a_request_is_taken_apart() {
    let request = only("GET /a%20b/c.ts?x=1 HTTP/1.1\r\nhOST:  box.local:8080 \r\n\r\n");
    assert_eq!(request.method, Method::Get);
    assert_eq!(request.path, "/a b/c.ts");
    assert_eq!(request.query.as_deref(), Some("x=1"));
    assert_eq!(request.host.as_deref(), Some("box.local:8080"));
    assert_eq!(request.version, Version::Http11);
    assert!(request.keep_alive);
}

#[test]
fn methods_are_case_sensitive_tokens() {
    for (name, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("OPTIONS", Method::Options),
        ("get", Method::Other("get".to_owned())),
        ("M-SEARCH", Method::Other("M-SEARCH".to_owned())),
    ] {
        assert_eq!(only(&format!("{name} / HTTP/1.1\r\nHost: h\r\n\r\n")).method, method);
    }
}

#[test]
fn absolute_form_outranks_host() {
    let request = only("GET http://one:1/x HTTP/1.1\r\nHost: two:2\r\n\r\n");
    assert_eq!((request.host.as_deref(), request.path.as_str()), (Some("one:1"), "/x"));
    let request = only("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(request.path, "/");
}

#[test]
fn keep_alive_follows_version_and_connection() {
    for (version, connection, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Upgrade , CLOSE\r\n", false),
        ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let request = only(&format!("GET / HTTP/{version}\r\nHost: h\r\n{connection}\r\n"));
        assert_eq!(request.keep_alive, keep_alive, "{version} {connection}");
    }
}

#[test]
fn pipelined_requests_come_in_order_and_end_with_close() {
    let outcome = read(
        b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n\
          POST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nGET /\
          \r\nPUT /3 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
          GET /4 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n\
          GET /5 HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    let paths: Vec<&str> = outcome.requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/1", "/2", "/3", "/4"]);
    assert_eq!((outcome.fault, outcome.is_empty), (None, true));
}

#[test]
fn host_is_required_once_and_valid() {
    for (input, offset) in [
        ("GET / HTTP/1.1\r\n\r\n", 0),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 31),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 31),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 22),
        ("GET / HTTP/1.1\r\nHost: \"><script>\r\n\r\n", 22),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 22),
        ("GET http://h/ HTTP/1.1\r\n\r\n", 0),
    ] {
        let fault = refused(input);
        assert_eq!((fault.status, fault.offset), (400, offset), "{input}");
    }
    assert_eq!(only("GET / HTTP/1.0\r\n\r\n").host, None);
    assert_eq!(only("GET / HTTP/1.1\r\nHost:\r\n\r\n").host, None);
}

#[test]
fn doubtful_framing_is_refused() {
    for (fields, status) in [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", 400),
        ("Content-Length: 3\r\nContent-Length: 3\r\n", 400),
        ("Content-Length: 3, 3\r\n", 400),
        ("Content-Length: +3\r\n", 400),
        ("Content-Length: -3\r\n", 400),
        ("Content-Length: 0x3\r\n", 400),
        ("Content-Length: 3 3\r\n", 400),
        ("Content-Length:\r\n", 400),
        ("Content-Length: 99999999999999999999999\r\n", 413),
        ("Content-Length: 65537\r\n", 413),
        ("Content-Length : 3\r\n", 400),
        ("Transfer-Encoding: identity\r\n", 400),
        ("Transfer-Encoding:\r\n", 400),
        ("Transfer-Encoding: chunked, gzip\r\n", 400),
        ("Transfer-Encoding: chunked, chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 400),
        ("Transfer-Encoding: xchunked\r\n", 400),
        ("Transfer-Encoding: \"chunked\"\r\n", 400),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", 501),
    ] {
        let fault = refused(&format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\nabc"));
        assert_eq!(fault.status, status, "{fields}: {fault}");
    }
    let old = "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(refused(old).status, 400);
}

#[test]
fn content_up_to_the_limit_is_drained() {
    for bytes in [0, 1, 1000, 65_536] {
        let mut input =
            format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
        input.resize(input.len() + bytes, b'\n');
        input.extend_from_slice(b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
        let outcome = read_in(&[&input], Limits::default());
        assert_eq!((outcome.requests.len(), outcome.fault), (2, None), "{bytes}");
        assert_eq!(outcome.byte_offset, input.len() as u64);
    }
    let mut chunked = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..20_000 {
        chunked.extend_from_slice(b"1\r\nx\r\n");
    }
    let outcome = read_in(&[&chunked], Limits::default());
    assert_eq!((outcome.requests.len(), outcome.fault.unwrap().status), (0, 413));
}

#[test]
fn expectation_is_answered_at_once_and_ends_the_connection() {
    let waiting = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n";
    assert!(!only(waiting).keep_alive);
    let outcome = read(format!("{waiting}abcGET / HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    assert_eq!((outcome.requests.len(), outcome.fault), (1, None));
    // An expectation without content, or from HTTP/1.0, has no effect.
    assert!(only("GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n").keep_alive);
    let old = "POST / HTTP/1.0\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\
               Expect: 100-continue\r\n\r\n";
    let outcome = read(old.as_bytes());
    assert_eq!((outcome.requests.len(), outcome.is_empty), (0, false));
    // Over the limit it is refused like any other.
    let large =
        "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(refused(large).status, 413);
    assert_eq!(refused("GET / HTTP/1.1\r\nHost: h\r\nExpect: magic\r\n\r\n").status, 417);
}

#[test]
fn heads_that_break_the_grammar_are_refused_at_the_line() {
    for (input, status, offset) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n", 400, 25),
        ("GET / HTTP/1.1\r\nHost: h\r\n\tfolded\r\n\r\n", 400, 25),
        ("GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400, 16),
        ("GET / HTTP/1.1\nHost: h\n\n", 400, 14),
        ("GET / HTTP/1.1\r\nHost: h\n\r\n", 400, 23),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n", 400, 25),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", 400, 25),
        ("GET / HTTP/1.1\r\nHost: h\r\nX y: a\r\n\r\n", 400, 25),
        ("GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n", 400, 25),
        ("GET / HTTP/1.1\r\nHost: h\r\n: empty\r\n\r\n", 400, 25),
        ("GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400, 16),
        ("GET /\r\n\r\n", 400, 0),
        ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400, 0),
        ("GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400, 0),
        ("GET / HTTP/1.1 x\r\nHost: h\r\n\r\n", 400, 0),
        ("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400, 0),
        ("GET / http/1.1\r\nHost: h\r\n\r\n", 400, 0),
        ("GE(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400, 0),
        ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505, 6),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, 6),
        ("GET /a%00b HTTP/1.1\r\nHost: h\r\n\r\n", 400, 6),
        ("GET /a%zz HTTP/1.1\r\nHost: h\r\n\r\n", 400, 6),
        ("GET x HTTP/1.1\r\nHost: h\r\n\r\n", 400, 4),
        ("CONNECT / HTTP/1.1\r\nHost: h\r\n\r\n", 400, 8),
        ("\u{16}\u{3}\u{1}", 400, 0),
        (" GET / HTTP/1.1\r\n", 400, 0),
        ("\r\n\r\n\r\n\r\n\r\n", 400, 8),
        ("\rGET / HTTP/1.1\r\n", 400, 0),
    ] {
        let fault = refused(input);
        assert_eq!((fault.status, fault.offset), (status, offset), "{input:?}: {fault}");
    }
}

#[test]
fn offsets_count_from_the_start_of_the_connection() {
    let first = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let outcome = read(format!("{first}\r\n{first}\r\n\r\nGET /%0 HTTP/1.1\r\n\r\n").as_bytes());
    assert_eq!(outcome.requests.len(), 2);
    let fault = outcome.fault.unwrap();
    assert_eq!(fault.offset, 2 * first.len() as u64 + 6 + 5);
    assert_eq!(fault.to_string(), "byte 65: % without two hexadecimal digits (RFC 3986 §2.1)");
}

#[test]
fn endless_input_is_refused_at_the_limit() {
    for (start, filler, status, offset) in [
        ("GET /", "a", 414, 8192),
        ("", "A", 501, 0),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: ", "a", 431, 16_384),
        ("GET / HTTP/1.1\r\nHost: h\r\n", "X: y\r\n", 431, 25 + 63 * 6),
        (
            "GET / HTTP/1.1\r\nHost: h\r\n",
            "X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n",
            431,
            25 + 63 * 37,
        ),
        ("", "\r\n", 400, 8),
    ] {
        let limits = Limits::default();
        let mut reader = RequestReader::new(limits);
        reader.feed(start.as_bytes());
        let mut fed = start.len();
        let fault = loop {
            match reader.next() {
                Ok(request) => assert_eq!(request, None),
                Err(fault) => break fault,
            }
            reader.feed(filler.as_bytes());
            fed += filler.len();
            assert!(fed <= limits.head_bytes_max + filler.len(), "{start}{filler}");
        };
        assert_eq!((fault.status, fault.offset), (status, offset), "{start}{filler}: {fault}");
        // A fault is permanent: later bytes do not clear it.
        reader.feed(b"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(reader.next(), Err(fault));
        assert!(reader.is_empty());
    }
}

#[test]
fn limits_are_exact() {
    let request_line = "GET / HTTP/1.1\r\n".len();
    let head = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for (limits, status) in [
        (Limits { request_line_bytes_max: request_line, ..Limits::default() }, None),
        (Limits { request_line_bytes_max: request_line - 1, ..Limits::default() }, Some(414)),
        (Limits { head_bytes_max: head.len(), ..Limits::default() }, None),
        (Limits { head_bytes_max: head.len() - 1, ..Limits::default() }, Some(431)),
        (Limits { headers_max: 1, ..Limits::default() }, None),
        (Limits { headers_max: 0, ..Limits::default() }, Some(431)),
    ] {
        for step in 1..=head.len() {
            let pieces: Vec<&[u8]> = head.as_bytes().chunks(step).collect();
            let outcome = read_in(&pieces, limits);
            assert_eq!(outcome.fault.map(|fault| fault.status), status, "{limits:?} {step}");
        }
    }
}

#[test]
fn emptiness_tells_an_idle_connection_from_a_slow_one() {
    let mut reader = RequestReader::new(Limits::default());
    assert!(reader.is_empty());
    reader.feed(b"\r\n");
    assert_eq!(reader.next(), Ok(None));
    assert!(reader.is_empty());
    reader.feed(b"G");
    assert_eq!(reader.next(), Ok(None));
    assert!(!reader.is_empty());
    reader.feed(b"ET / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n");
    assert_eq!(reader.next(), Ok(None));
    assert!(!reader.is_empty());
    reader.feed(b"ab");
    assert!(reader.next().unwrap().is_some());
    assert!(reader.is_empty());
}

#[test]
fn the_answer_to_a_fault_closes_and_repeats_nothing() {
    let fault = refused("GET /<script>%00 HTTP/1.1\r\nHost: h\r\n\r\n");
    let response = fault.response(UNIX_EPOCH);
    assert_eq!((response.status, response.keep_alive), (400, false));
    let head = String::from_utf8(response.head.clone()).unwrap();
    assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    assert!(!format!("{response:?}").contains("script"));
}

/// Pieces that are combined to connections that pass the first byte.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "GET ",
        "POST ",
        "/",
        "/%41",
        "%",
        "*",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        "\r\n",
        "\r",
        "\n",
        "Host: h\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Expect: 100-continue\r\n",
        "X: ",
        ":",
        " ",
        "\t",
        "3\r\n",
        "abc",
        "0\r\n\r\n",
        ";",
        "http://h",
        "\0",
        "\u{ff}",
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n",
    ]);
    prop_oneof![
        8 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ]
}

fn connection() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(fragment(), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_give_one_outcome(
        input in prop_oneof![connection(), prop::collection::vec(any::<u8>(), 0..300)],
        steps in prop::collection::vec(1..20_usize, 1..8),
        small in any::<bool>(),
    ) {
        let limits = if small {
            Limits {
                request_line_bytes_max: 40,
                head_bytes_max: 60,
                headers_max: 2,
                body_bytes_max: 8,
            }
        } else {
            Limits::default()
        };
        let whole = read_in(&[&input], limits);
        let mut pieces = Vec::new();
        let mut rest = &input[..];
        let mut steps = steps.iter().cycle();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*steps.next().unwrap()));
            pieces.push(piece);
            rest = after;
        }
        let cut = read_in(&pieces, limits);
        prop_assert_eq!(&cut.requests, &whole.requests);
        prop_assert_eq!(&cut.fault, &whole.fault);
        prop_assert_eq!(cut.is_empty, whole.is_empty);
        for request in &whole.requests {
            prop_assert!(request.path.starts_with('/') && !request.path.contains('\0'));
        }
        if let Some(fault) = whole.fault {
            prop_assert!(fault.offset <= input.len() as u64);
            prop_assert!((400..600).contains(&fault.status));
        }
    }

    #[test]
    fn any_name_survives_the_way_through_a_target(name in "[^\0]{0,40}") {
        let path = format!("/{name}");
        let target = wire::http::escape_path(&path);
        let request = only(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        prop_assert_eq!(request.path, path);
    }
}
