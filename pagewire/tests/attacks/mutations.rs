// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests changed at random places: the server answers or closes each, stays up, and serves all
//! other clients.
//!
//! Sources: RFC 2326 §10, RFC 9112 for the unchanged requests.

use std::net::SocketAddr;
use std::time::Duration;

use crate::harness::answer::{Line, http};
use crate::harness::rtsp::Control;
use crate::random::Random;
use crate::{beside_canary, serve, tries};

#[test]
fn mutated_requests_are_answered_or_closed_and_disturb_nobody() {
    let server = serve(&[("a.bin", &[7; 100_000])], &[]);
    let rtsp: [&[u8]; 6] = [
        b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n",
        b"DESCRIBE rtsp://h/canary.ts RTSP/1.0\r\nCSeq: 2\r\nAccept: application/sdp\r\n\r\n",
        b"SETUP rtsp://h/canary.ts/stream RTSP/1.0\r\nCSeq: 3\r\n\
          Transport: RTP/AVP;unicast;client_port=50000-50001\r\n\r\n",
        b"PLAY rtsp://h/canary.ts RTSP/1.0\r\nCSeq: 4\r\nSession: 0123456789abcdef\r\n\
          Range: npt=1.5-20\r\n\r\n",
        b"SET_PARAMETER rtsp://h/canary.ts RTSP/1.0\r\nCSeq: 5\r\nContent-Length: 7\r\n\r\n\
          a: b\r\n\r",
        b"$\0\0\x10interleaved data.TEARDOWN * RTSP/1.0\r\nCSeq: 6\r\n\r\n",
    ];
    let web: [&[u8]; 5] = [
        b"GET /a.bin HTTP/1.1\r\nHost: h\r\nRange: bytes=0-99,200-299\r\n\r\n",
        b"HEAD /index.json?after=a HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip, br;q=0.5\r\n\r\n",
        b"GET /a.bin HTTP/1.1\r\nHost: h\r\nIf-Range: \"x\"\r\nRange: bytes=-5\r\n\r\n",
        b"GET http://h/a.bin HTTP/1.0\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ];
    beside_canary(&server, || {
        std::thread::scope(|scope| {
            scope.spawn(|| send_mutations(server.rtsp, &rtsp, 11));
            scope.spawn(|| send_mutations(server.http, &web, 12));
        });
    });
    assert_eq!(http(server.http, "GET", "/a.bin").body.len(), 100_000);
    assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", "canary.ts", &[]).status, 200);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}

/// Sends each mutation on a connection of its own, ends sending, and reads to the end.
fn send_mutations(server: SocketAddr, requests: &[&[u8]], seed: u64) {
    let mut random = Random::seeded(seed);
    for _ in 0..tries(MUTATIONS) {
        let mut bytes = requests[random.below(requests.len())].to_vec();
        random.mutate(&mut bytes);
        let mut line = Line::to(server);
        if line.send(&bytes) {
            line.end_sending();
            let (answer, _) = line.rest(ANSWER_WAIT);
            let shown = String::from_utf8_lossy(&bytes);
            let is_answer = answer.starts_with(b"RTSP/1.0 ") || answer.starts_with(b"HTTP/1.1 ");
            assert!(answer.is_empty() || is_answer, "{shown:?}: {answer:?}");
        }
    }
}

/// Number for each port, in the suite of attacks.
const MUTATIONS: usize = 3000;
const ANSWER_WAIT: Duration = Duration::from_secs(60);
