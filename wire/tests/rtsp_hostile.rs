// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests RTSP with input that no client should send: nothing panics, memory stays within the
//! limits, the division of the bytes does not matter, and an independent parser can read every
//! answer.

use proptest::prelude::*;
use wire::rtsp::{Limits, Malformed, Request, RequestReader, client};

const GOOD: &str = "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nUser-Agent: x\r\n\r\n\
    DESCRIBE rtsp://h:8554/its/path.ts RTSP/1.0\r\nCSeq: 2\r\nAccept: application/sdp\r\n\r\n\
    $\x01\x00\x04abcd\
    SETUP rtsp://h:8554/its/path.ts/stream RTSP/1.0\r\nCSeq: 3\r\n\
    Transport: RTP/AVP;unicast;client_port=5000-5001,RTP/AVP/TCP;interleaved=0-1\r\n\r\n\
    PLAY rtsp://h:8554/its/path.ts/ RTSP/1.0\r\nCSeq: 4\r\nSession: 12345678;timeout=60\r\n\
    Range: npt=1:02:03.5-2:00:00\r\nScale: 1.0\r\nSpeed: 2.5\r\n\r\n\
    GET_PARAMETER rtsp://h:8554/its/path.ts RTSP/1.0\r\nCSeq: 5\r\nContent-Length: 8\r\n\r\n\
    position\
    PAUSE rtsp://h:8554/its/path.ts RTSP/1.0\r\nCSeq: 6\r\nSession: 12345678\r\n\r\n\
    TEARDOWN rtsp://h:8554/its/path.ts RTSP/1.0\r\nCSeq: 7\r\nSession: 12345678\r\n\r\n";

/// Returns everything that a reader parses from the bytes when they arrive in parts of these sizes.
fn read(bytes: &[u8], parts: &[usize]) -> (Vec<Request>, Option<Malformed>) {
    let limits = Limits::default();
    let mut reader = RequestReader::new(limits);
    let (mut requests, mut rest) = (Vec::new(), bytes);
    for size in parts.iter().copied().cycle() {
        let (part, after) = rest.split_at(size.clamp(1, rest.len().max(1)).min(rest.len()));
        reader.feed(part);
        rest = after;
        loop {
            match reader.next_request() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(malformed) => return (requests, Some(malformed)),
            }
        }
        // A head half in the buffer and half in its clean form, each in a vector that doubles.
        assert!(reader.held_bytes() <= 4 * limits.head_bytes_max + 2 * part.len());
        if rest.is_empty() {
            break;
        }
    }
    (requests, None)
}

/// Answers must be messages to `rtsp-types`, with the CSeq of the request.
fn check_answer(request: &Request) {
    let Err(refusal) = &request.command else { return };
    let bytes = refusal.encode();
    let (message, consumed) = rtsp_types::Message::<Vec<u8>>::parse(&bytes).unwrap();
    assert_eq!(consumed, bytes.len());
    let rtsp_types::Message::Response(response) = message else { panic!("{message:?}") };
    assert_eq!(u16::from(response.status()), refusal.status().code());
    let cseq = response.header(&rtsp_types::headers::CSEQ).map(|cseq| cseq.as_str().to_owned());
    assert!(cseq.is_none_or(|cseq| cseq == request.cseq.to_string()));
}

#[test]
fn the_good_transcript_is_all_read() {
    let (requests, malformed) = read(GOOD.as_bytes(), &[GOOD.len()]);
    assert_eq!(malformed, None);
    let methods: Vec<_> = requests.iter().map(|r| (r.cseq, r.command.is_ok())).collect();
    let expected = [(1, true), (2, true), (3, true), (4, true), (5, false), (6, true), (7, true)];
    assert_eq!(methods, expected);
}

#[test]
fn a_thousand_empty_connections_hold_no_memory() {
    let readers: Vec<RequestReader> =
        (0..1000).map(|_| RequestReader::new(Limits::default())).collect();
    assert_eq!(readers.iter().map(RequestReader::held_bytes).sum::<usize>(), 0);
}

#[test]
fn a_huge_body_in_bounds_is_not_stored() {
    let limits = Limits { body_bytes_max: usize::MAX, ..Limits::default() };
    let mut reader = RequestReader::new(limits);
    reader.feed(b"SET_PARAMETER * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 10000000\r\n\r\n");
    for _ in 0..10_000 {
        assert_eq!(reader.next_request(), Ok(None));
        reader.feed(&[b'x'; 1000]);
        assert!(reader.held_bytes() < 16_384, "{}", reader.held_bytes());
    }
    assert_eq!(reader.next_request().unwrap().map(|request| request.cseq), Some(1));
}

#[test]
fn blank_lines_without_end_are_no_request() {
    let mut reader = RequestReader::new(Limits::default());
    for _ in 0..10_000 {
        reader.feed(&[b'\r', b'\n'].repeat(50));
        assert_eq!(reader.next_request(), Ok(None));
        assert!(reader.is_empty() && reader.held_bytes() < 16_384);
    }
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        parts in prop::collection::vec(1_usize..100, 1..8),
    ) {
        let (requests, malformed) = read(&bytes, &parts);
        requests.iter().for_each(check_answer);
        prop_assert!(malformed.is_none_or(|m| m.offset <= bytes.len() as u64));
    }

    #[test]
    fn damaged_requests_do_no_harm_and_their_cut_does_not_matter(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        doubled in any::<prop::sample::Index>(),
        parts in prop::collection::vec(1_usize..300, 1..8),
    ) {
        let mut bytes = GOOD.as_bytes().to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let again = bytes[doubled.index(bytes.len())..].to_vec();
        bytes.truncate(cut.index(bytes.len()) + 1);
        bytes.extend(again);
        let whole = read(&bytes, &[bytes.len()]);
        prop_assert_eq!(&whole, &read(&bytes, &parts));
        prop_assert_eq!(&whole, &read(&bytes, &[1]));
        whole.0.iter().for_each(check_answer);
    }

    #[test]
    fn header_values_of_any_text_do_no_harm(
        name in "(Transport|Range|Scale|Speed|CSeq|Session|Accept|Require|Connection)",
        value in "[ -~\u{80}-\u{2ff}]{0,60}",
        method in "(SETUP|PLAY|PAUSE|DESCRIBE|OPTIONS|TEARDOWN|GET_PARAMETER|RECORD|X)",
    ) {
        let text = format!("{method} rtsp://h/a.ts RTSP/1.0\r\nCSeq: 1\r\n{name}: {value}\r\n\r\n");
        let (requests, _) = read(text.as_bytes(), &[text.len()]);
        prop_assert_eq!(requests.len(), 1);
        requests.iter().for_each(check_answer);
    }

    #[test]
    fn urls_of_any_text_do_no_harm(url in "\\PC{0,80}") {
        let text = format!("DESCRIBE rtsp://h/{url} RTSP/1.0\r\nCSeq: 1\r\n\r\n");
        let (requests, malformed) = read(text.as_bytes(), &[7]);
        prop_assert!(requests.len() == 1 || malformed.is_some());
        for request in requests {
            prop_assert!(request.path.starts_with('/') && !request.path.contains('\0'));
        }
    }

    #[test]
    fn replies_and_descriptions_of_any_bytes_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        text in "(v=0\r\n)?(o=- 1 1 IN IP4 h\r\n)?(s=x\r\n)?(t=0 0\r\n)?([a-z]=[ -~]*\r\n){0,6}",
        header in "(RTP-Info|Range|Transport|Session|Content-Base)",
        value in "[ -~]{0,60}",
    ) {
        let mut reader = client::ReplyReader::new(Limits::default());
        reader.feed(format!("RTSP/1.0 200 OK\r\n{header}: {value}\r\n").as_bytes());
        reader.feed(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
        reader.feed(&bytes);
        let mut client = client::Client::new("rtsp://h/a.ts").unwrap();
        while let Ok(Some(reply)) = reader.next_reply() {
            let (described, set_up) = (client.described(&reply), client.set_up(&reply));
            let started = client.started(&reply);
            let requests = [client.describe(), client.play(None), client.teardown()].concat();
            prop_assert!(requests.ends_with(b"\r\n\r\n"), "{described:?} {set_up:?} {started:?}");
        }
        let _ = wire::sdp::parse(&bytes);
    }
}
