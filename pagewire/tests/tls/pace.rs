// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates of downloads over TLS, HTTP/1 and HTTP/2: the pace of a film behind its burst, and a limit
//! that the streams of a connection share.
//!
//! A busy machine may make a download slower, never faster: only the least time is asserted. All
//! run side by side, for some four seconds.

use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Client, connect, runtime};
use crate::faults::{ask, drain};
use crate::harness::clip::Clip;
use crate::{TlsServer, assert_bytes, noise};

/// A quarter of a megabyte a second: a megabyte at 4x, behind 2.5 MB at once.
const CLIP: Clip =
    Clip { seed: 3, milliseconds: 22_000, bits_per_second: 2_000_000, with_clock: true };
/// For 5.5 MB less 2.5 at once, and a turn.
const PACED: Duration = Duration::from_millis(2400);
/// Two megabytes a second and connection.
const LIMIT: [&str; 2] = ["--http-rate-per-connection", "16M"];
const LARGE: usize = 6_000_000;
/// For six megabytes less a turn and a quarter, and a turn.
const LIMITED: Duration = Duration::from_millis(2400);

#[test]
fn film_and_limit_keep_their_rates() {
    thread::scope(|scope| {
        for paced in [film_over_http1, film_over_http2, limit_over_http1, limit_over_http2] {
            scope.spawn(paced);
        }
    });
}

fn film_over_http1() {
    let film = CLIP.bytes();
    let TlsServer { server, .. } = TlsServer::start(&[("film.ts", &film)]);
    server.await_stream("film.ts");
    let began = Instant::now();
    let (status, body) = Client::connect(server.https.expect("it listens"), "a").get("/film.ts");
    assert_eq!(status, 200);
    assert_bytes(&body, &film);
    assert!(began.elapsed() > PACED, "{:?}", began.elapsed());
    assert_eq!(server.index()["server"]["downloads_paced"], 1);
    server.stop();
}

fn film_over_http2() {
    let film = CLIP.bytes();
    let TlsServer { server, .. } = TlsServer::start(&[("film.ts", &film)]);
    server.await_stream("film.ts");
    let took = over_http2(&server, &["film.ts"], film.len());
    assert!(took > PACED, "{took:?}");
    assert_eq!(server.index()["server"]["downloads_paced"], 1);
    server.stop();
}

fn limit_over_http1() {
    let large = noise(LARGE);
    let TlsServer { server, .. } = TlsServer::with_options(&[("large.bin", &large)], &LIMIT);
    let began = Instant::now();
    let mut client = Client::connect(server.https.expect("it listens"), "a");
    assert_bytes(&client.get("/large.bin").1, &large);
    assert!(began.elapsed() > LIMITED, "{:?}", began.elapsed());
    assert_eq!(server.index()["server"]["downloads_limited_connection"], 1);
    server.stop();
}

/// Three streams of a third each have the rate together that one would have.
fn limit_over_http2() {
    let part = noise(LARGE / 3);
    let names = ["a.bin", "b.bin", "c.bin"];
    let files = names.map(|name| (name, &part[..]));
    let TlsServer { server, .. } = TlsServer::with_options(&files, &LIMIT);
    let took = over_http2(&server, &names, part.len());
    assert!(took > LIMITED, "{took:?}");
    assert_eq!(server.index()["server"]["downloads_limited_connection"], 3);
    server.stop();
}

/// Downloads files side by side on one connection; returns the time to the last byte.
fn over_http2(server: &crate::harness::Server, names: &[&'static str], bytes: usize) -> Duration {
    let https = server.https.expect("it listens");
    let began = Instant::now();
    runtime().block_on(async {
        let stream = connect(https, "localhost", b"h2", None).await;
        let (requests, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        let driven = tokio::spawn(connection);
        let downloads = names.iter().map(|&name| {
            let mut requests = requests.clone();
            tokio::spawn(async move {
                let mut content = ask(&mut requests, name).await;
                drain(&mut content).await
            })
        });
        for download in downloads.collect::<Vec<_>>() {
            let (read, end) = download.await.expect("no panic");
            assert_eq!(read, bytes);
            end.expect("a good end");
        }
        drop(requests);
        driven.abort();
    });
    began.elapsed()
}
