// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads over TLS, HTTP/1 and HTTP/2, with a rate limit: the pace of a film after its burst,
//! and a limit that the streams of a connection share. All bytes arrive.
//!
//! `timed` asserts the rates and the counters of delayed downloads. A busy machine may make a
//! download slower, never faster: only the least time is asserted.
//!
//! `kernel/qemu/tls.sh` runs the tests outside of `timed` with kernels that encrypt by themselves.

use std::time::{Duration, Instant};

use crate::client::{Client, connect, runtime};
use crate::faults::{ask, drain};
use crate::harness::Server;
use crate::harness::clip::Clip;
use crate::{TlsServer, assert_bytes, noise};

/// A quarter of a megabyte a second: a megabyte at 4x, after 2.5 MB at once.
fn film(milliseconds: u64) -> Vec<u8> {
    Clip { seed: 3, milliseconds, bits_per_second: 2_000_000, with_clock: true }.bytes()
}

/// Two megabytes a second for each connection.
const LIMIT: [&str; 2] = ["--http-rate-per-connection", "16M"];
/// Long enough for a short delay by the limit.
const SHORT_MS: u64 = 12_000;
const SMALL: usize = 1_500_000;

#[test]
fn paced_film_is_whole_over_http1() {
    film_over_http1(SHORT_MS).stop();
}

#[test]
fn paced_film_is_whole_over_http2() {
    film_over_http2(SHORT_MS).stop();
}

#[test]
fn limited_download_is_whole_over_http1() {
    limit_over_http1(SMALL).stop();
}

#[test]
fn limited_downloads_are_whole_over_http2() {
    limit_over_http2(SMALL).stop();
}

/// A server that has served one client, and the time to the last byte.
struct Served {
    server: Server,
    took: Duration,
}

impl Served {
    fn stop(self) -> Duration {
        self.server.stop();
        self.took
    }
}

fn film_over_http1(milliseconds: u64) -> Served {
    let film = film(milliseconds);
    let TlsServer { server, .. } = TlsServer::start(&[("film.ts", &film)]);
    server.await_stream("film.ts");
    let took = over_http1(&server, "/film.ts", &film);
    Served { server, took }
}

fn film_over_http2(milliseconds: u64) -> Served {
    let film = film(milliseconds);
    let TlsServer { server, .. } = TlsServer::start(&[("film.ts", &film)]);
    server.await_stream("film.ts");
    let took = over_http2(&server, &["film.ts"], film.len());
    Served { server, took }
}

fn limit_over_http1(bytes: usize) -> Served {
    let large = noise(bytes);
    let TlsServer { server, .. } = TlsServer::with_options(&[("large.bin", &large)], &LIMIT);
    let took = over_http1(&server, "/large.bin", &large);
    Served { server, took }
}

/// Three streams of a third each together have the rate of a single one.
fn limit_over_http2(bytes: usize) -> Served {
    let part = noise(bytes / 3);
    let names = ["a.bin", "b.bin", "c.bin"];
    let files = names.map(|name| (name, &part[..]));
    let TlsServer { server, .. } = TlsServer::with_options(&files, &LIMIT);
    let took = over_http2(&server, &names, part.len());
    Served { server, took }
}

/// Downloads a file, and asserts its bytes; returns the time to the last one.
fn over_http1(server: &Server, target: &str, bytes: &[u8]) -> Duration {
    let began = Instant::now();
    let (status, body) = Client::connect(server.https.expect("it listens"), "a").get(target);
    let took = began.elapsed();
    assert_eq!(status, 200);
    assert_bytes(&body, bytes);
    took
}

/// Downloads files side by side on one connection; returns the time to the last byte.
fn over_http2(server: &Server, names: &[&'static str], bytes: usize) -> Duration {
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

/// Rates, and the counters of delayed downloads: on a host that is slower than the rate none is
/// delayed.
mod timed {
    use super::*;

    const LONG_MS: u64 = 22_000;
    /// For 5.5 MB less 2.5 at once, and one turn.
    const PACED: Duration = Duration::from_millis(2400);
    const LARGE: usize = 6_000_000;
    /// For six megabytes less one and a quarter turns, and one turn.
    const LIMITED: Duration = Duration::from_millis(2400);

    #[track_caller]
    fn assert_held(served: Served, counter: &str, downloads: u64, least: Duration) {
        assert!(served.took > least, "{:?}", served.took);
        assert_eq!(served.server.index()["server"][counter], downloads);
        served.stop();
    }

    #[test]
    fn film_keeps_its_pace_over_http1() {
        assert_held(film_over_http1(LONG_MS), "downloads_paced", 1, PACED);
    }

    #[test]
    fn film_keeps_its_pace_over_http2() {
        assert_held(film_over_http2(LONG_MS), "downloads_paced", 1, PACED);
    }

    #[test]
    fn download_keeps_to_the_limit_over_http1() {
        assert_held(limit_over_http1(LARGE), "downloads_limited_connection", 1, LIMITED);
    }

    #[test]
    fn downloads_share_the_limit_over_http2() {
        assert_held(limit_over_http2(LARGE), "downloads_limited_connection", 3, LIMITED);
    }
}
