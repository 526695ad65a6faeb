// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floods of HTTP/2: the server's memory stays bounded and others are served, whatever a client
//! sends without end.
//!
//! Frames are written as bytes, so that they can be invalid; answers are read where they are
//! counted.
//!
//! Sources: RFC 9113 §4.1 (frames), §10.5 (floods); CVE-2023-44487 (resets), CVE-2024-27316
//! (CONTINUATION), CVE-2019-9512 (PING), CVE-2019-9515 (SETTINGS), CVE-2019-9518 (empty frames).

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::time::timeout;

use crate::client::{Client, connect, runtime};
use crate::resource_snapshot::ResourceSnapshot;
use crate::{TlsServer, assert_restored, noise};

/// A flood: its initial frames, and the frames of its step with this number.
struct Flood {
    begin: fn() -> Vec<u8>,
    step: fn(u32) -> Vec<u8>,
}

const RESETS: Flood = Flood {
    begin: Vec::new,
    step: |step| {
        let stream = 2 * step + 1;
        [
            request(stream, END_STREAM | END_HEADERS),
            frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
        ]
        .concat()
    },
};
const REQUESTS: Flood =
    Flood { begin: Vec::new, step: |step| request(2 * step + 1, END_STREAM | END_HEADERS) };
const CONTINUATIONS: Flood = Flood {
    begin: || request(1, END_STREAM),
    step: |_| {
        // A field without index: a name of one byte, a value of 120.
        let field = [&[0, 1, b'x', 120][..], &[b'y'; 120]].concat();
        frame(CONTINUATION, 0, 1, &field.repeat(100))
    },
};
const EMPTY_DATA: Flood =
    Flood { begin: || request(1, END_HEADERS), step: |_| frame(DATA, 0, 1, &[]) };
const PINGS: Flood = Flood { begin: Vec::new, step: |_| frame(PING, 0, 0, &[7; 8]) };
const SETTINGS_FRAMES: Flood = Flood { begin: Vec::new, step: |_| frame(SETTINGS, 0, 0, &[]) };
const PRIORITIES: Flood =
    Flood { begin: Vec::new, step: |step| frame(PRIORITY, 0, 2 * step + 1, &[0, 0, 0, 0, 9]) };

#[test]
fn flood_of_resets_is_bounded() {
    assert_bounded(&RESETS, BRIEF);
}

#[test]
fn flood_of_requests_is_bounded() {
    assert_bounded(&REQUESTS, BRIEF);
}

#[test]
fn flood_of_continuations_is_bounded() {
    assert_bounded(&CONTINUATIONS, BRIEF);
}

#[test]
fn flood_of_empty_data_is_bounded() {
    assert_bounded(&EMPTY_DATA, BRIEF);
}

#[test]
fn flood_of_pings_is_bounded() {
    assert_bounded(&PINGS, BRIEF);
}

#[test]
fn flood_of_settings_is_bounded() {
    assert_bounded(&SETTINGS_FRAMES, BRIEF);
}

#[test]
fn flood_of_priorities_is_bounded() {
    assert_bounded(&PRIORITIES, BRIEF);
}

/// 100 streams of a file, and settings that alternately close and open the windows of all of them.
/// Regression: 30 bytes a pair delayed other clients for seconds.
#[test]
fn settings_touch_no_more_streams_than_are_warranted() {
    assert_calmed(TOUCHES_MAX, |step| {
        let window = if step % 2 == 0 { 0 } else { i32::MAX as u32 };
        frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat())
    });
}

/// Processing each one visits every stream (RFC 9113 §6.8).
#[test]
fn goaway_touches_no_more_streams_than_are_warranted() {
    assert_calmed(TOUCHES_MAX, |_| frame(GOAWAY, 0, 0, &[0; 8]));
}

/// Each may wake a stream. Regression: 20 connections of 100 streams delayed other clients for
/// seconds, with half a mebibyte each.
#[test]
fn windows_are_credited_no_more_often_than_is_warranted() {
    assert_calmed(FRAMES_MAX, |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
}

#[test]
fn priorities_are_no_more_than_are_warranted() {
    assert_calmed(FRAMES_MAX, |step| frame(PRIORITY, 0, 2 * step + 1, &[0, 0, 0, 0, 9]));
}

/// Sends so many frames after 100 requests; asserts that the connection is ended for this before
/// the last frame, and with the reason.
#[track_caller]
fn assert_calmed(count: u32, step: fn(u32) -> Vec<u8>) {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", &noise(1_000_000))]);
    let https = server.https.expect("it listens");
    let (acknowledged, reason) = runtime().block_on(async {
        let stream = connect(https, "localhost", b"h2", None).await;
        let requests = (0..100).flat_map(|number| {
            // RFC 7541 §6.2.2: the path as a literal.
            let fields = [&[0x82, 0x87, 0x04, 6][..], b"/a.bin", &[0x01, 1, b'h']].concat();
            frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &fields)
        });
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        sent.extend(frame(SETTINGS, 0, 0, &[]));
        sent.extend(requests.chain((0..count).flat_map(step)));
        // Answered at once if the previous frames were processed.
        sent.extend(frame(PING, 0, 0, &[7; 8]));
        let (mut stream, mut sink) = split(stream);
        // Fails where the server has ended the connection.
        tokio::spawn(async move { sink.write_all(&sent).await });
        let (mut acknowledged, mut head) = (0, [0; 9]);
        loop {
            let read = timeout(ANSWER_WAIT, stream.read_exact(&mut head)).await;
            read.expect("an end").expect("GOAWAY before the end");
            let [high, middle, low, kind, flags, ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
            stream.read_exact(&mut payload).await.expect("all of a frame");
            match kind {
                SETTINGS if flags & ACK != 0 => acknowledged += 1,
                PING => panic!("{acknowledged} acknowledged, and the connection goes on"),
                GOAWAY => break (acknowledged, payload[7]),
                _ => {}
            }
        }
    });
    assert_eq!(reason, ENHANCE_YOUR_CALM, "{acknowledged} acknowledged");
    assert!(acknowledged < count, "{acknowledged} acknowledged");
    assert_eq!(Client::connect(https, "localhost").get("/a.bin").0, 200);
    server.stop();
}

/// Floods a server for `length`, and asserts that its memory stays bounded and that new clients are
/// served; returns the longest wait of a new client.
#[track_caller]
fn assert_bounded(flood: &'static Flood, length: Duration) -> Duration {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", &noise(100_000))]);
    let https = server.https.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    let memory = || server.index()["server"]["memory_bytes"].as_u64().expect("a number");
    let before = memory();
    let mut wait_max = Duration::ZERO;
    let flooded = thread::spawn(move || send(https, flood, length));
    loop {
        let is_last = flooded.is_finished();
        let asked = Instant::now();
        assert_eq!(Client::connect(https, "localhost").get("/a.bin").0, 200);
        wait_max = wait_max.max(asked.elapsed());
        let grown = memory().saturating_sub(before);
        assert!(grown < MEMORY_BYTES_MAX, "{grown} bytes more");
        if is_last {
            break;
        }
    }
    let sent = flooded.join().expect("no panic");
    println!("{sent} frames sent, {} bytes more", memory().saturating_sub(before));
    assert_restored(&snapshot, &server);
    server.stop();
    wait_max
}

/// Writes steps until the server ends the connection, reads nothing for a second, or `length` has
/// passed; returns the number of steps.
fn send(server: SocketAddr, flood: &Flood, length: Duration) -> u32 {
    runtime().block_on(async {
        let mut stream = connect(server, "localhost", b"h2", None).await;
        let settings = frame(SETTINGS, 0, 0, &[]);
        let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &*settings, &(flood.begin)()];
        stream.write_all(&preface.concat()).await.expect("the connection is new");
        let until = Instant::now() + length;
        let mut steps = 0;
        loop {
            let piece: Vec<u8> = (steps..steps + PIECE_STEPS).flat_map(flood.step).collect();
            match timeout(Duration::from_secs(1), stream.write_all(&piece)).await {
                Ok(Ok(())) => steps += PIECE_STEPS,
                _ => break,
            }
            if Instant::now() >= until {
                break;
            }
        }
        steps
    })
}

/// Returns a request for the index; `flags` are the flags of its HEADERS frame.
fn request(stream: u32, flags: u8) -> Vec<u8> {
    // RFC 7541 appendix A: GET, https, /; an authority of one byte.
    frame(HEADERS, flags, stream, &[0x82, 0x87, 0x84, 0x01, 1, b'h'])
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let stream = stream.to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

/// Kinds of frames, and flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// RFC 9113 §7.
const ENHANCE_YOUR_CALM: u8 = 0xb;
/// More frames that touch each of 100 streams than a client has reason to send.
const TOUCHES_MAX: u32 = 100;
/// More frames than 100 requests and their answers justify, and fewer than a mebibyte.
const FRAMES_MAX: u32 = 40_000;
/// Guards against hanging.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Steps that are written at once.
const PIECE_STEPS: u32 = 64;
const BRIEF: Duration = Duration::from_millis(700);
/// A multiple of the buffers of connections and streams.
const MEMORY_BYTES_MAX: u64 = 32 << 20;

/// Measures the waiting time of new clients beside a flood of some seconds.
mod timed {
    use super::*;

    const LONG: Duration = Duration::from_secs(3);
    const NEW_CLIENT_WAIT: Duration = Duration::from_secs(5);

    #[track_caller]
    fn assert_served_soon(flood: &'static Flood) {
        let wait_max = assert_bounded(flood, LONG);
        assert!(wait_max < NEW_CLIENT_WAIT, "{wait_max:?} for a new client");
    }

    #[test]
    fn new_clients_are_served_soon_beside_resets() {
        assert_served_soon(&RESETS);
    }

    #[test]
    fn new_clients_are_served_soon_beside_requests() {
        assert_served_soon(&REQUESTS);
    }

    #[test]
    fn new_clients_are_served_soon_beside_continuations() {
        assert_served_soon(&CONTINUATIONS);
    }

    #[test]
    fn new_clients_are_served_soon_beside_empty_data() {
        assert_served_soon(&EMPTY_DATA);
    }

    #[test]
    fn new_clients_are_served_soon_beside_pings() {
        assert_served_soon(&PINGS);
    }

    #[test]
    fn new_clients_are_served_soon_beside_settings() {
        assert_served_soon(&SETTINGS_FRAMES);
    }

    #[test]
    fn new_clients_are_served_soon_beside_priorities() {
        assert_served_soon(&PRIORITIES);
    }
}
