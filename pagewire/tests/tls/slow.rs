// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stalled peers: others are served meanwhile, and the resources of a peer are released when it
//! disconnects. `timed` awaits the time-outs of the server that end the remaining ones.
//!
//! Sources: RFC 9113 §6.9 (flow control).

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::client::{Client, NARROW, connect, runtime};
use crate::faults::{ask, drain};
use crate::harness::Server;
use crate::harness::answer::Line;
use crate::resource_snapshot::ResourceSnapshot;
use crate::{TlsServer, assert_restored, noise};

/// Peers that begin a handshake on either port and stop: few enough to be open together before the
/// first is ended, however slow the machine is.
#[test]
fn half_open_handshakes_hold_nobody_up() {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", &noise(100_000))]);
    let snapshot = ResourceSnapshot::of(&server);
    let lines = half_open(&server, 20);
    for _ in 0..20 {
        assert_served(&server, "/a.bin", 100_000);
    }
    drop(lines);
    assert_restored(&snapshot, &server);
    assert!(server.index()["server"]["tls_failed"].as_u64() >= Some(40));
    server.stop();
}

/// A client of HTTP/1.1 that requests a large file and reads nothing.
#[test]
fn download_that_nobody_reads_ends_with_its_client() {
    let large = noise(LARGE);
    let TlsServer { server, .. } = TlsServer::start(&[("large.bin", &large)]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut stalled = Client::connect_narrow(server.https.expect("it listens"));
    stalled.send("/large.bin");
    assert_served(&server, "/large.bin", LARGE);
    drop(stalled);
    assert_restored(&snapshot, &server);
    server.stop();
}

/// A stream whose window the client never opens.
#[test]
fn stream_that_takes_nothing_leaves_its_neighbours_alone() {
    let (large, other) = (noise(1 << 20), noise(OTHER));
    let files = [("large.bin", &large[..]), ("other.bin", &other)];
    let TlsServer { server, .. } = TlsServer::start(&files);
    let https = server.https.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    runtime().block_on(async {
        let stream = connect(https, "localhost", b"h2", None).await;
        let (mut requests, connection) = handshake(stream).await;
        let driven = tokio::spawn(connection);
        let mut stalled = ask(&mut requests, "large.bin").await;
        let first = stalled.data().await.expect("content").expect("no error yet");
        assert!(first.len() <= WINDOW as usize, "{} bytes in a window of 1024", first.len());
        for _ in 0..20 {
            assert_neighbour(&mut requests).await;
        }
        drop((stalled, requests));
        driven.await.expect("no panic").expect("the connection ends well");
    });
    assert_restored(&snapshot, &server);
    server.stop();
}

/// A client of HTTP/2 that requests a large file and stops reading its socket.
#[test]
fn connection_that_nobody_reads_ends_with_its_client() {
    let large = noise(LARGE);
    let TlsServer { server, .. } = TlsServer::start(&[("large.bin", &large)]);
    let snapshot = ResourceSnapshot::of(&server);
    let runtime = runtime();
    let held = runtime.block_on(unread(&server));
    assert_served(&server, "/large.bin", LARGE);
    drop(held);
    assert_restored(&snapshot, &server);
    server.stop();
}

/// Opens so many connections to either port with only the head of a record, and half as many idle
/// ones.
fn half_open(server: &Server, each: u64) -> Vec<Line> {
    let (https, rtsps) = (server.https.expect("it listens"), server.rtsps.expect("it listens"));
    let begin = |address: SocketAddr, start: &[u8]| {
        let mut line = Line::to(address);
        line.send(start);
        line
    };
    let lines = (0..each)
        .flat_map(|_| [begin(https, &[0x16, 3, 1]), begin(rtsps, &[0x16, 3, 1])])
        .chain((0..each / 2).map(|_| begin(https, &[])))
        .collect();
    let all = Some(2 * each + each / 2);
    server.await_index("all are connected", |i| i["server"]["connections"].as_u64() > all);
    lines
}

/// Asserts that a new client gets a file of this length.
#[track_caller]
fn assert_served(server: &Server, target: &str, bytes: usize) {
    let mut client = Client::connect(server.https.expect("it listens"), "localhost");
    let (status, body) = client.get(target);
    assert_eq!((status, body.len()), (200, bytes));
}

/// Performs a handshake of HTTP/2 with small windows.
async fn handshake<T: AsyncRead + AsyncWrite + Unpin>(
    stream: T,
) -> (SendRequest<Bytes>, Connection<T, Bytes>) {
    let settings = h2::client::Builder::new().initial_window_size(WINDOW).handshake(stream);
    settings.await.expect("HTTP/2")
}

/// Asserts that another stream of the connection gets its file.
async fn assert_neighbour(requests: &mut SendRequest<Bytes>) {
    let (read, end) = drain(&mut ask(requests, "other.bin").await).await;
    end.expect("a neighbour is served");
    assert_eq!(read, OTHER);
}

/// Opens a connection of HTTP/2 that has requested the large file and is no longer read.
async fn unread(server: &Server) -> impl Sized {
    let https = server.https.expect("it listens");
    let stream = connect(https, "localhost", b"h2", Some(NARROW)).await;
    let (mut requests, mut connection) = handshake(stream).await;
    let request = http::Request::get("https://localhost/large.bin").body(());
    let sent = requests.send_request(request.expect("a request"), true);
    let (answer, _) = sent.expect("it can be sent");
    // The connection is driven until the head of the answer has been received.
    let answer = tokio::select! {
        answer = answer => answer.expect("an answer"),
        ended = &mut connection => panic!("ended at once: {ended:?}"),
    };
    (requests, answer, connection)
}

const LARGE: usize = 32 << 20;
const OTHER: usize = 1000;
const WINDOW: u32 = 1024;

/// Each peer is ended by a time-out of the server, and not before it.
mod timed {
    use std::thread;
    use std::time::{Duration, Instant};

    use h2::Reason;
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn half_open_handshakes_end() {
        let TlsServer { server, .. } = TlsServer::start(&[("a.bin", &noise(100_000))]);
        let snapshot = ResourceSnapshot::of(&server);
        let began = Instant::now();
        let lines = half_open(&server, 100);
        for _ in 0..20 {
            let asked = Instant::now();
            assert_served(&server, "/a.bin", 100_000);
            assert!(asked.elapsed() < HANDSHAKE / 2, "{:?} for a new client", asked.elapsed());
        }
        for mut line in lines {
            let (received, _) = line.rest((HANDSHAKE + SLACK).saturating_sub(began.elapsed()));
            assert!(received.is_empty(), "{received:?}");
        }
        assert!(began.elapsed() + SLACK > HANDSHAKE, "{:?}", began.elapsed());
        snapshot.assert_restored(&server);
        assert!(server.index()["server"]["tls_failed"].as_u64() >= Some(200));
        server.stop();
    }

    #[test]
    fn download_that_nobody_reads_ends() {
        let large = noise(LARGE);
        let TlsServer { server, .. } = TlsServer::start(&[("large.bin", &large)]);
        let snapshot = ResourceSnapshot::of(&server);
        let mut stalled = Client::connect_narrow(server.https.expect("it listens"));
        stalled.send("/large.bin");
        let took = await_connections(&server, 1, WRITE * 2 + SLACK);
        assert!(took + SLACK > WRITE, "{took:?}");
        snapshot.assert_restored(&server);
        assert_served(&server, "/large.bin", LARGE);
        assert!(stalled.count_rest() < LARGE);
        server.stop();
    }

    /// The stream is reset; its neighbours are served before and after that.
    #[test]
    fn stream_that_takes_nothing_is_reset() {
        let (large, other) = (noise(1 << 20), noise(OTHER));
        let files = [("large.bin", &large[..]), ("other.bin", &other)];
        let TlsServer { server, .. } = TlsServer::start(&files);
        let https = server.https.expect("it listens");
        let snapshot = ResourceSnapshot::of(&server);
        let began = Instant::now();
        runtime().block_on(async {
            let stream = connect(https, "localhost", b"h2", None).await;
            let (mut requests, connection) = handshake(stream).await;
            let driven = tokio::spawn(connection);
            let mut stalled = ask(&mut requests, "large.bin").await;
            // The received data is not released, so its window stays shut.
            let first = stalled.data().await.expect("content").expect("no error yet");
            assert!(first.len() <= WINDOW as usize, "{} bytes in a window", first.len());
            let ended = loop {
                assert_neighbour(&mut requests).await;
                match timeout(Duration::from_secs(1), stalled.data()).await {
                    Ok(Some(Ok(_))) => {}
                    Ok(ended) => break ended.expect("no whole answer"),
                    Err(_) => assert!(began.elapsed() < WRITE + 2 * SLACK, "never reset"),
                }
            };
            let error = ended.expect_err("reset");
            assert_eq!(error.reason(), Some(Reason::CANCEL), "{error}");
            assert_neighbour(&mut requests).await;
            drop((stalled, requests));
            driven.await.expect("no panic").expect("the connection ends well");
        });
        assert!(began.elapsed() + SLACK > WRITE, "{:?}", began.elapsed());
        snapshot.assert_restored(&server);
        server.stop();
    }

    /// The stream is reset in time, and then the connection is idle.
    #[test]
    fn connection_that_nobody_reads_ends() {
        let large = noise(LARGE);
        let TlsServer { server, .. } = TlsServer::start(&[("large.bin", &large)]);
        let snapshot = ResourceSnapshot::of(&server);
        let runtime = runtime();
        let held = runtime.block_on(unread(&server));
        let took = await_connections(&server, 1, WRITE + IDLE + SLACK);
        assert!(took + SLACK > WRITE, "{took:?}");
        snapshot.assert_restored(&server);
        drop(held);
        server.stop();
    }

    /// Waits until so many connections are left, including the one that queries; returns the
    /// elapsed time.
    #[track_caller]
    fn await_connections(server: &Server, count: u64, limit: Duration) -> Duration {
        let began = Instant::now();
        // The awaited connection has to be counted first.
        server
            .await_index("it is connected", |i| i["server"]["connections"].as_u64() > Some(count));
        loop {
            thread::sleep(Duration::from_millis(500));
            let left = server.index()["server"]["connections"].as_u64();
            if left <= Some(count) {
                return began.elapsed();
            }
            assert!(began.elapsed() < limit, "{left:?} connections after {limit:?}");
        }
    }

    /// `Timeouts::first_request`, `write` and `idle_http` of the server.
    const HANDSHAKE: Duration = Duration::from_secs(10);
    const WRITE: Duration = Duration::from_secs(30);
    const IDLE: Duration = Duration::from_secs(30);
    /// Lateness that a busy machine may add.
    const SLACK: Duration = Duration::from_secs(10);
}
