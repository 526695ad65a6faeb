// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that wait: each is ended by a time-out of the server, its descriptors come back, and
//! others are served meanwhile. All run side by side.
//!
//! Sources: RFC 9113 §6.9 (flow control).

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use tokio::time::timeout;

use crate::client::{Client, NARROW, connect, runtime};
use crate::faults::{ask, drain};
use crate::harness::Server;
use crate::harness::answer::Line;
use crate::resource_snapshot::ResourceSnapshot;
use crate::{TlsServer, noise};

/// A hundred peers that begin a handshake on either port and stop.
pub(crate) fn half_open_handshakes_end() {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", &noise(100_000))]);
    let (https, rtsps) = (server.https.expect("it listens"), server.rtsps.expect("it listens"));
    let snapshot = ResourceSnapshot::of(&server);
    let began = Instant::now();
    let begin = |address: SocketAddr, start: &[u8]| {
        let mut line = Line::to(address);
        line.send(start);
        line
    };
    // The head of a record, of which nothing follows; half of them say nothing at all.
    let lines: Vec<Line> = (0..100)
        .flat_map(|_| [begin(https, &[0x16, 3, 1]), begin(rtsps, &[0x16, 3, 1])])
        .chain((0..50).map(|_| begin(https, &[])))
        .collect();
    server.await_index("all are connected", |i| i["server"]["connections"].as_u64() > Some(250));
    for _ in 0..20 {
        let asked = Instant::now();
        assert_eq!(Client::connect(https, "localhost").get("/a.bin").1.len(), 100_000);
        assert!(asked.elapsed() < HANDSHAKE / 2, "{:?} for a new client", asked.elapsed());
    }
    for mut line in lines {
        let (said, _) = line.rest((HANDSHAKE + SLACK).saturating_sub(began.elapsed()));
        assert!(said.is_empty(), "{said:?}");
    }
    assert!(began.elapsed() + SLACK > HANDSHAKE, "{:?}", began.elapsed());
    snapshot.assert_restored(&server);
    assert!(server.index()["server"]["tls_failed"].as_u64() >= Some(200));
    server.stop();
}

/// A client of HTTP/1.1 that asks for a large file and reads nothing.
pub(crate) fn download_that_nobody_reads_ends() {
    let large = noise(32 << 20);
    let TlsServer { server, .. } = TlsServer::start(&[("large.bin", &large)]);
    let https = server.https.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    let mut stalled = Client::connect_narrow(https);
    stalled.send("/large.bin");
    let took = await_connections(&server, 1, WRITE * 2 + SLACK);
    assert!(took + SLACK > WRITE, "{took:?}");
    snapshot.assert_restored(&server);
    assert_eq!(Client::connect(https, "localhost").get("/large.bin").1.len(), large.len());
    assert!(stalled.count_rest() < large.len());
    server.stop();
}

/// A stream whose window the client never opens is reset; its neighbours are served.
pub(crate) fn stream_that_takes_nothing_is_reset() {
    let (large, other) = (noise(1 << 20), noise(1000));
    let files = [("large.bin", &large[..]), ("other.bin", &other)];
    let TlsServer { server, .. } = TlsServer::start(&files);
    let https = server.https.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    let began = Instant::now();
    runtime().block_on(async {
        let stream = connect(https, "localhost", b"h2", None).await;
        let settings =
            h2::client::Builder::new().initial_window_size(1024).handshake::<_, Bytes>(stream);
        let (mut requests, connection) = settings.await.expect("HTTP/2");
        let driven = tokio::spawn(connection);
        let mut stalled = ask(&mut requests, "large.bin").await;
        // What it gets is kept, so its window stays shut.
        let first = stalled.data().await.expect("content").expect("no error yet");
        assert!(first.len() <= 1024, "{} bytes in a window of 1024", first.len());
        let ended = loop {
            let (read, end) = drain(&mut ask(&mut requests, "other.bin").await).await;
            end.expect("a neighbour is served");
            assert_eq!(read, other.len());
            match timeout(Duration::from_secs(1), stalled.data()).await {
                Ok(Some(Ok(_))) => {}
                Ok(ended) => break ended.expect("no whole answer"),
                Err(_) => assert!(began.elapsed() < WRITE + 2 * SLACK, "never reset"),
            }
        };
        let error = ended.expect_err("reset");
        assert_eq!(error.reason(), Some(Reason::CANCEL), "{error}");
        let (_, end) = drain(&mut ask(&mut requests, "other.bin").await).await;
        end.expect("the connection goes on");
        drop((stalled, requests));
        driven.await.expect("no panic").expect("the connection ends well");
    });
    assert!(began.elapsed() + SLACK > WRITE, "{:?}", began.elapsed());
    snapshot.assert_restored(&server);
    server.stop();
}

/// A client of HTTP/2 that asks for a large file and stops reading its socket: the stream is reset
/// in time, and then the connection is idle.
pub(crate) fn connection_that_nobody_reads_ends() {
    let large = noise(32 << 20);
    let TlsServer { server, .. } = TlsServer::start(&[("large.bin", &large)]);
    let https = server.https.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    let runtime = runtime();
    let held = runtime.block_on(async {
        let stream = connect(https, "localhost", b"h2", Some(NARROW)).await;
        let settings =
            h2::client::Builder::new().initial_window_size(1024).handshake::<_, Bytes>(stream);
        let (mut requests, mut connection) = settings.await.expect("HTTP/2");
        let request = http::Request::get("https://localhost/large.bin").body(());
        let sent = requests.send_request(request.expect("a request"), true);
        let answer = sent.expect("it can be sent");
        // Long enough for the request to leave.
        let early = timeout(Duration::from_millis(300), &mut connection).await;
        assert!(early.is_err(), "ended at once: {early:?}");
        (requests, answer, connection)
    });
    let took = await_connections(&server, 1, WRITE + IDLE + SLACK);
    assert!(took + SLACK > WRITE, "{took:?}");
    snapshot.assert_restored(&server);
    drop(held);
    server.stop();
}

/// Waits until so many connections are left, that of the question included; how long it took.
#[track_caller]
fn await_connections(server: &Server, count: u64, limit: Duration) -> Duration {
    let began = Instant::now();
    // The one that is awaited has to be counted first.
    server.await_index("it is connected", |i| i["server"]["connections"].as_u64() > Some(count));
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
