// SPDX-License-Identifier: MIT OR Apache-2.0
//! Framing of [`super`]: line ends, limits, interleaved frames, faults.

use super::*;

fn framer() -> Framer {
    Framer::new(Limits::default(), MessageKind::Requests)
}

fn heads(framer: &mut Framer) -> Result<Vec<String>, Fault> {
    let mut heads = Vec::new();
    loop {
        match framer.next() {
            Ok(Some(Received::Message(frame))) => {
                heads.push(String::from_utf8(frame.head).unwrap());
            }
            Ok(Some(Received::Interleaved(_))) => {}
            Ok(None) => return Ok(heads),
            Err(malformed) => return Err(malformed.fault),
        }
    }
}

fn fault(bytes: &[u8]) -> Option<Fault> {
    let mut framer = framer();
    framer.feed(bytes);
    heads(&mut framer).err()
}

const CLEAN: &str = "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nX: a b\r\n\r\n";

#[test]
fn all_line_ends_and_folded_lines_give_the_same_head() {
    for raw in [
        "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nX: a b\r\n\r\n",
        "OPTIONS * RTSP/1.0\nCSeq: 1\nX: a b\n\n",
        "OPTIONS * RTSP/1.0\rCSeq: 1\rX: a b\r\r",
        "\r\n\r\n\nOPTIONS  *  RTSP/1.0 \r\nCSeq:1\r\nX :a\r\n\t b \r\n\r\n",
        "OPTIONS * RTSP/1.0\r\nContent-Length: 2\r\nCSeq: 1\r\nX: a\r\n b\r\n\r\n\r\n",
    ] {
        let mut framer = framer();
        framer.feed(raw.as_bytes());
        assert_eq!(heads(&mut framer), Ok(vec![CLEAN.to_owned()]), "{raw:?}");
        assert!(framer.is_empty());
        assert_eq!(framer.byte_offset(), raw.len() as u64);
    }
}

#[test]
fn bodies_and_interleaved_frames_are_stepped_over() {
    let one = "GET_PARAMETER * RTSP/1.0\r\nContent-Length: 12\r\ncontent-length: 12\r\n\r\n";
    let mut bytes = one.as_bytes().to_vec();
    bytes
        .extend_from_slice(b"\npackets\r\n$ $\x00\x00\x06jitter$\x01\x00\x04OPTI$\x00\x00\x00\r\n");
    bytes.extend_from_slice(CLEAN.as_bytes());
    let expected = ["GET_PARAMETER * RTSP/1.0\r\n\r\n".to_owned(), CLEAN.to_owned()];
    for step in 1..bytes.len() {
        let (mut framer, mut found) = (framer(), Vec::new());
        for part in bytes.chunks(step) {
            framer.feed(part);
            found.extend(heads(&mut framer).unwrap());
        }
        assert_eq!(found, expected, "in parts of {step}");
    }
}

#[test]
fn interleaved_frames_come_out_between_messages_and_long_ones_are_skipped() {
    let limits = Limits { interleaved_bytes_max: 6, ..Limits::default() };
    let mut bytes = b"$\x00\x00\x06jitter\r\n$\x07\x00\x00".to_vec();
    bytes.extend_from_slice(CLEAN.as_bytes());
    bytes.extend_from_slice(b"$\x01\x00\x07OPTIONS$\x01\x00\x04OPTI");
    bytes.extend_from_slice(CLEAN.as_bytes());
    let expected = [(0, b"jitter".to_vec()), (7, Vec::new()), (1, b"OPTI".to_vec())];
    for step in 1..bytes.len() {
        let mut framer = Framer::new(limits, MessageKind::Requests);
        let (mut frames, mut messages) = (Vec::new(), 0);
        for part in bytes.chunks(step) {
            framer.feed(part);
            while let Some(received) = framer.next().unwrap() {
                match received {
                    Received::Message(_) => messages += 1,
                    Received::Interleaved(f) => frames.push((f.channel, f.data)),
                }
            }
        }
        assert_eq!((&frames[..], messages), (&expected[..], 2), "in parts of {step}");
        assert!(framer.is_empty());
    }
}

#[test]
fn a_header_of_a_frame_is_read_back() {
    let mut framer = framer();
    framer.feed(&interleaved_header(9, 3));
    assert_eq!(framer.next(), Ok(None));
    assert!(!framer.is_empty(), "the frame has begun");
    framer.feed(b"abc");
    let frame = InterleavedFrame { channel: 9, data: b"abc".to_vec() };
    assert_eq!(framer.next(), Ok(Some(Received::Interleaved(frame))));
}

#[test]
fn urls_are_escaped_not_refused() {
    let mut framer = framer();
    framer.feed("DESCRIBE rtsp://h/Füße 1.ts RTSP/1.0\r\n\r\n".as_bytes());
    let expected = "DESCRIBE rtsp://h/F%C3%BC%C3%9Fe%201.ts RTSP/1.0\r\n\r\n".to_owned();
    assert_eq!(heads(&mut framer), Ok(vec![expected]));
}

#[test]
fn faults_are_named() {
    let line = "OPTIONS * RTSP/1.0\r\n";
    let with = |headers: &str| fault(format!("{line}{headers}\r\n\r\n").as_bytes());
    assert_eq!(fault(b"\x16\x03\x01"), Some(Fault::StartLine));
    assert_eq!(fault(b"GET / HTTP/1.1\r\n"), Some(Fault::StartLine));
    assert_eq!(fault(b"OPTIONS RTSP/1.0\r\n"), Some(Fault::StartLine));
    assert_eq!(fault(b"RTSP/1.0 200 OK\r\n"), Some(Fault::StartLine));
    assert_eq!(fault(b"OPTIONS * RTSP/2.0\r\n"), Some(Fault::Version));
    assert_eq!(with("no colon"), Some(Fault::HeaderLine));
    assert_eq!(with(": no name"), Some(Fault::HeaderLine));
    assert_eq!(with("two words: x"), Some(Fault::HeaderLine));
    assert_eq!(with(" folded under nothing"), Some(Fault::HeaderLine));
    assert_eq!(with("X: a\0b"), Some(Fault::ControlCharacter));
    assert_eq!(with("Content-Length: -1"), Some(Fault::ContentLength));
    assert_eq!(with("Content-Length: 1\r\nContent-Length: 2"), Some(Fault::ContentLength));
    assert_eq!(with("Content-Length: 1\r\n 2"), Some(Fault::ContentLength));
    assert_eq!(with("Content-Length: 65537"), Some(Fault::BodyTooLong { limit: 65536 }));
    let huge = "Content-Length: 99999999999999999999999";
    assert_eq!(with(huge), Some(Fault::BodyTooLong { limit: 65536 }));
    assert_eq!(with("Transfer-Encoding: chunked"), Some(Fault::TransferEncoding));
}

#[test]
fn an_endless_line_and_a_flood_of_headers_end_at_their_limit() {
    let limit = Limits::default().head_bytes_max;
    let mut framer = framer();
    let mut fed = 0;
    let malformed = loop {
        framer.feed(b"aaaaaaaaaaaaaaaa");
        fed += 16;
        if let Err(malformed) = framer.next() {
            break malformed;
        }
        assert!(framer.held_bytes() <= 2 * limit);
    };
    assert_eq!(malformed, Malformed::new(0, Fault::StartLineTooLong { limit }));
    assert!(fed <= limit + 16);
    assert_eq!(framer.held_bytes(), 0);
    framer.feed(b"OPTIONS * RTSP/1.0\r\n\r\n");
    assert_eq!(framer.next(), Err(malformed));

    let mut flood = b"OPTIONS * RTSP/1.0\r\n".to_vec();
    flood.extend_from_slice(&b"X: y\r\n".repeat(65));
    assert_eq!(fault(&flood), Some(Fault::TooManyHeaders { limit: 64 }));
    let mut long = b"OPTIONS * RTSP/1.0\r\nX: ".to_vec();
    long.resize(limit + 1, b'y');
    assert_eq!(fault(&long), Some(Fault::HeadTooLong { limit }));
}

#[test]
fn an_idle_connection_holds_little() {
    let mut framer = framer();
    framer.feed(CLEAN.repeat(100).as_bytes());
    assert_eq!(heads(&mut framer).map(|heads| heads.len()), Ok(100));
    assert!(framer.held_bytes() <= KEPT_BYTES_MAX);
    assert_eq!(framer.byte_offset(), 100 * CLEAN.len() as u64);
}
