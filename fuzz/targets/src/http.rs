// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes HTTP requests (`wire::http::RequestReader`), and the response for a file.
//!
//! Checked: every division of the bytes into pieces gives the same requests and the same fault; an
//! independent parser reads the head of each response; Content-Length is the sum of the parts; the
//! parts are ranges of the file that neither overlap nor exceed its end.
//!
//! Sources: RFC 9110 §8.6, §14, §15; RFC 9112 §2, §6.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wire::http::{
    Entity, Limits, Malformed, Method, Part, Request, RequestReader, Response, error, escape_path,
    respond,
};

use crate::FuzzTarget;
use crate::pieces::pieces;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "http", run };

const TIGHT: Limits =
    Limits { request_line_bytes_max: 100, head_bytes_max: 300, headers_max: 8, body_bytes_max: 40 };

/// Sizes of the requested files.
const SIZES: [u64; 5] = [0, 1, 10_000, 1 << 40, i64::MAX as u64];

fn run(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let limits = if choice & 1 == 0 { Limits::default() } else { TIGHT };
    let whole = read(limits, &[bytes]);
    assert_eq!(whole, read(limits, &pieces(bytes, choice >> 1)), "the cut matters");

    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let (requests, fault) = whole;
    for request in &requests {
        check_path(request);
        for bytes in SIZES {
            check_file(request, bytes, now);
        }
        check_head(&error(request, 404, "no such file", now), &request.method);
    }
    if let Some(fault) = fault {
        assert!(fault.offset <= bytes.len() as u64, "{fault}: behind what was sent");
        let response = fault.response(now);
        assert_eq!(response.status, fault.status);
        assert!(!response.keep_alive, "{fault}: what follows cannot be read");
        check_head(&response, &Method::Get);
    }
}

/// Reads all requests, and the fault that ended them, if any.
fn read(limits: Limits, pieces: &[&[u8]]) -> (Vec<Request>, Option<Malformed>) {
    let mut reader = RequestReader::new(limits);
    let mut requests = Vec::new();
    let mut fed = 0;
    for piece in pieces {
        reader.feed(piece);
        fed += piece.len();
        loop {
            match reader.next() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(fault) => {
                    assert_eq!(reader.next(), Err(fault.clone()), "a fault repeats");
                    return (requests, Some(fault));
                }
            }
        }
        assert!(reader.byte_offset() <= fed as u64);
    }
    (requests, None)
}

fn check_path(request: &Request) {
    let path = &request.path;
    assert!(path.starts_with('/') && !path.contains('\0'), "{path:?}");
    let escaped = escape_path(path);
    let again = format!("GET {escaped} HTTP/1.1\r\nHost: h\r\n\r\n");
    let limits = Limits { request_line_bytes_max: 1 << 20, head_bytes_max: 1 << 20, ..TIGHT };
    let (again, fault) = read(limits, &[again.as_bytes()]);
    assert_eq!(fault, None, "{path:?} as {escaped:?}");
    assert_eq!(again.first().map(|request| &request.path), Some(path), "as {escaped:?}");
}

/// Checks the response for a file of this size, for any conditions and ranges.
fn check_file(request: &Request, bytes: u64, now: SystemTime) {
    let modified = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let entity = Entity { bytes, modified, etag: "\"abc\"", content_type: "video/mp2t" };
    let response = respond(request, &entity, now, || "boundary".to_owned());
    assert!(request.keep_alive || !response.keep_alive, "the client wanted the connection closed");
    check_head(&response, &request.method);

    let mut ranges: Vec<_> = response
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::File { offset, bytes } => Some((*offset, *bytes)),
            Part::Bytes(_) | Part::Held { .. } => None,
        })
        .collect();
    ranges.sort_unstable();
    let mut end = 0;
    for (offset, length) in ranges {
        assert!(length > 0 && offset >= end, "a range that is empty or twice: {response:?}");
        end = offset.checked_add(length).expect("the end of a range");
        assert!(end <= bytes, "past the end of {bytes} bytes: {response:?}");
    }
}

/// Checks that the head can be read and announces the content that follows it.
fn check_head(response: &Response, method: &Method) {
    let shown = || String::from_utf8_lossy(&response.head);
    let mut slots = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut slots);
    let parsed = head.parse(&response.head);
    assert_eq!(parsed, Ok(httparse::Status::Complete(response.head.len())), "{:?}", shown());
    assert_eq!(head.code, Some(response.status), "{:?}", shown());

    let content = response.parts.iter().fold(0_u64, |sum, part| sum + part.bytes());
    let lengths: Vec<_> =
        head.headers.iter().filter(|field| field.name == "Content-Length").collect();
    match (response.status, lengths.as_slice()) {
        (204 | 304, []) => assert_eq!(content, 0, "{:?}", shown()),
        (_, [length]) => {
            let length = std::str::from_utf8(length.value).ok().and_then(|text| text.parse().ok());
            let expected = if *method == Method::Head { length } else { Some(content) };
            assert_eq!(length, expected, "{:?}", shown());
            assert!(*method != Method::Head || content == 0, "content for HEAD: {:?}", shown());
        }
        _ => panic!("Content-Length: {:?}", shown()),
    }
}
