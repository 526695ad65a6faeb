// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floods of HTTP/2: whatever a client sends without end, the server's memory stays bounded and
//! others are served.
//!
//! Frames are written as bytes, so that they can be wrong; nothing is read.
//!
//! Sources: RFC 9113 §4.1 (frames), §10.5 (floods); CVE-2023-44487 (resets), CVE-2024-27316
//! (CONTINUATION), CVE-2019-9512 (PING), CVE-2019-9515 (SETTINGS), CVE-2019-9518 (empty frames).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::client::{Client, connect, runtime};
use crate::resource_snapshot::ResourceSnapshot;
use crate::{TlsServer, noise};

/// A flood: its name, the frames that begin it, and the frames of its step with this number.
type Flood = (&'static str, fn() -> Vec<u8>, fn(u32) -> Vec<u8>);

const FLOODS: &[Flood] = &[
    ("resets", Vec::new, |step| {
        let stream = 2 * step + 1;
        [
            request(stream, END_STREAM | END_HEADERS),
            frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
        ]
        .concat()
    }),
    ("requests", Vec::new, |step| request(2 * step + 1, END_STREAM | END_HEADERS)),
    (
        "continuations",
        || request(1, END_STREAM),
        |_| {
            // A field without index: a name of one byte, a value of 120.
            let field = [&[0, 1, b'x', 120][..], &[b'y'; 120]].concat();
            frame(CONTINUATION, 0, 1, &field.repeat(100))
        },
    ),
    ("empty data", || request(1, END_HEADERS), |_| frame(DATA, 0, 1, &[])),
    ("pings", Vec::new, |_| frame(PING, 0, 0, &[7; 8])),
    ("settings", Vec::new, |_| frame(SETTINGS, 0, 0, &[])),
    ("priorities", Vec::new, |step| frame(PRIORITY, 0, 2 * step + 1, &[0, 0, 0, 0, 9])),
];

pub(crate) fn floods_of_http2_are_bounded() {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", &noise(100_000))]);
    let https = server.https.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    let memory = || server.index()["server"]["memory_bytes"].as_u64().expect("a number");
    let before = memory();
    for (name, begin, step) in FLOODS {
        let flooded = std::thread::spawn(move || flood(https, &begin(), *step));
        while !flooded.is_finished() {
            let asked = Instant::now();
            assert_eq!(Client::connect(https, "localhost").get("/a.bin").0, 200);
            let took = asked.elapsed();
            assert!(took < NEW_CLIENT_WAIT, "{name}: {took:?} for a new client");
            let grown = memory().saturating_sub(before);
            assert!(grown < MEMORY_BYTES_MAX, "{name}: {grown} bytes more");
        }
        let sent = flooded.join().expect("no panic");
        eprintln!("{name}: {sent} frames sent, {} bytes more", memory().saturating_sub(before));
    }
    snapshot.assert_restored(&server);
    server.stop();
}

/// Writes steps until the server ends the connection, takes nothing for a second, or
/// [`FLOOD_WAIT`] has passed; the number of steps.
fn flood(server: SocketAddr, begin: &[u8], step: fn(u32) -> Vec<u8>) -> u32 {
    runtime().block_on(async {
        let mut stream = connect(server, "localhost", b"h2", None).await;
        let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &*frame(SETTINGS, 0, 0, &[]), begin];
        stream.write_all(&preface.concat()).await.expect("the connection is new");
        let until = Instant::now() + FLOOD_WAIT;
        let mut steps = 0;
        while Instant::now() < until {
            let piece: Vec<u8> = (steps..steps + PIECE_STEPS).flat_map(step).collect();
            match timeout(Duration::from_secs(1), stream.write_all(&piece)).await {
                Ok(Ok(())) => steps += PIECE_STEPS,
                _ => break,
            }
        }
        steps
    })
}

/// A request for the index; `flags` say what it ends.
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
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Steps that are written at once.
const PIECE_STEPS: u32 = 64;
const FLOOD_WAIT: Duration = Duration::from_secs(3);
const NEW_CLIENT_WAIT: Duration = Duration::from_secs(5);
/// Buffers of connections and streams, many times over.
const MEMORY_BYTES_MAX: u64 = 32 << 20;
