// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input without requests: frames of no channel, long and without data, and blank lines, sent on
//! several connections as fast as the server reads them. The server reads them at a limited rate,
//! and other requests are answered meanwhile.
//!
//! Sources: SECURITY.md (limits); RFC 2326 §10.12. Does not count the input read in one turn
//! (`serve/src/server.rs` does).

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::Server;
use crate::harness::answer::{Line, http};
use crate::harness::rtsp::Control;
use crate::{beside_canary, canary, serve};

#[test]
fn input_without_requests_waits_and_requests_do_not() {
    let server = serve(&[("a.bin", b"a")], &[]);
    beside_canary(&server, || {
        let lines = pour(server.rtsp);
        // More than the bursts of the four connections with frames: from now on all of them wait.
        await_frames(&server, 4 * BURST + 1);
        ask_for_all(&server, |_| {});
        drop(lines);
    });
    server.stop();
}

/// Connections that threads flood with input; dropping it ends them.
struct Poured(Vec<(Line, thread::JoinHandle<()>)>);

impl Drop for Poured {
    fn drop(&mut self) {
        for (mut line, pouring) in self.0.drain(..) {
            line.shut();
            pouring.join().expect("it writes until it cannot");
        }
    }
}

/// Floods two connections with each kind of input.
fn pour(rtsp: SocketAddr) -> Poured {
    let long = [&b"$\x09\x07\xd0"[..], &[0; 2000]].concat();
    let kinds = [&b"$\x09\0\0"[..], &long, b"\r\n"];
    let line = |piece: &[u8]| {
        let (line, chunk) = (Line::to(rtsp), piece.repeat(CHUNK_BYTES / piece.len()));
        let mut sender = line.sender();
        (line, thread::spawn(move || while sender.send(&chunk) {}))
    };
    Poured(kinds.iter().chain(&kinds).map(|piece| line(piece)).collect())
}

fn await_frames(server: &Server, count: u64) {
    server.await_index("frames are counted", |index| {
        index["server"]["frames_unexpected"].as_u64() >= Some(count)
    });
}

/// Sends requests over RTSP and HTTP, each on a new connection; passes the time to each answer to
/// `took`.
fn ask_for_all(server: &Server, took: impl Fn(Duration)) {
    for _ in 0..ASKED {
        let began = Instant::now();
        let mut control = Control::to(server.rtsp);
        assert_eq!(control.ask("DESCRIBE", canary::NAME, &[]).status, 200);
        took(began.elapsed());
        let began = Instant::now();
        assert_eq!(http(server.http, "GET", "/a.bin").text(), "a");
        took(began.elapsed());
    }
}

/// Frames and reads beside requests that one connection may send at once: two seconds' worth.
const BURST: u64 = 800;
const CHUNK_BYTES: usize = 64 << 10;
const ASKED: usize = 50;

mod timed {
    use super::*;

    /// No request waits for a tenth of a second, and a connection that has sent such input for half
    /// a minute gets an error.
    #[test]
    fn input_without_requests_delays_nobody_and_ends_its_connection() {
        let server = serve(&[("a.bin", b"a")], &[]);
        beside_canary(&server, || {
            let mut poured = pour(server.rtsp);
            let began = Instant::now();
            await_frames(&server, 4 * BURST + 1);
            ask_for_all(&server, |took| assert!(took < ANSWERED_WITHIN, "{took:?}"));
            server.await_index("all are ended", |index| {
                index["server"]["refusals"]["input"].as_u64() == Some(6)
            });
            let took = began.elapsed();
            let frames = server.index()["server"]["frames_unexpected"].as_u64().expect("a count");
            println!("ended after {took:?} and {frames} frames");
            assert!(frames <= 4 * (BURST + 1 + 400 * (took.as_secs() + 1)), "{frames} in {took:?}");
            for (line, _) in &mut poured.0 {
                let (answer, _) = line.rest(LONG);
                let answer = String::from_utf8_lossy(&answer).into_owned();
                assert!(
                    answer.starts_with("RTSP/1.0 503 ") && answer.contains("beside"),
                    "{answer}"
                );
            }
        });
        server.stop();
    }

    const LONG: Duration = Duration::from_secs(60);
    const ANSWERED_WITHIN: Duration = Duration::from_millis(100);
}
