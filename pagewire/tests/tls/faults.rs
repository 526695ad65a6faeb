// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of certificates, clients and files: each is answered, and no other client is disturbed.
//!
//! Sources: RFC 6066 §3 (server names), RFC 5246 §7.2.2 (no_renegotiation), RFC 9113 §6.4
//! (RST_STREAM).

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};

use crate::client::{Client, connect, runtime};
use crate::harness::answer::Line;
use crate::harness::await_ok;
use crate::resource_snapshot::ResourceSnapshot;
use crate::{TlsServer, assert_restored, noise};

#[test]
fn renewed_certificate_is_shown_to_new_clients_and_open_connections_go_on() {
    let TlsServer { server, authority } = TlsServer::start(&[("a.bin", b"some bytes")]);
    let https = server.https.expect("it listens");
    let expired = authority.issue_expired("old.test");
    authority.put(&expired);
    let shown = |pair: &crate::authority::Pair| {
        await_ok(|| {
            let client = Client::connect(https, "localhost");
            let is_it = client.certificate() == pair.der;
            if is_it { Ok(client) } else { Err(format!("not shown; log: {}", server.log())) }
        })
    };
    let mut open = shown(&expired);
    server.await_log("expired on 2001-02-01 00:00 UTC");
    assert_eq!(open.get("/a.bin"), (200, b"some bytes".to_vec()));

    let fresh = authority.issue("new.test");
    authority.put(&fresh);
    let mut renewed = shown(&fresh);
    assert_eq!(renewed.get("/a.bin"), (200, b"some bytes".to_vec()));
    assert_eq!(open.certificate(), expired.der);
    assert_eq!(open.get("/a.bin"), (200, b"some bytes".to_vec()), "the open one goes on");
    let rtsps = Client::connect_to_rtsps(server.rtsps.expect("it listens"), None);
    assert_eq!(rtsps.certificate(), fresh.der, "one certificate for both");
    assert!(server.index()["server"]["tls_reloads"].as_u64() >= Some(2));

    // A key without its certificate changes nothing.
    std::fs::write(authority.cert(), "no certificate").expect("the test owns it");
    server.await_log("the certificate before it stays in use");
    assert_eq!(Client::connect(https, "localhost").certificate(), fresh.der);
    server.stop();
}

#[test]
fn every_server_name_is_shown_the_certificate() {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", b"some bytes")]);
    let https = server.https.expect("it listens");
    let own = Client::connect(https, "localhost").certificate();
    // For an address the client sends no name at all (RFC 6066 §3).
    for name in ["another.test", "127.0.0.1", "xn--bcher-kva.test"] {
        let mut client = Client::connect(https, name);
        assert_eq!(client.certificate(), own, "{name}");
        assert_eq!(client.get("/a.bin").0, 200, "{name}");
    }
    server.stop();
}

#[test]
fn request_without_tls_is_answered_400_with_the_address() {
    let TlsServer { server, .. } = TlsServer::start(&[]);
    let (https, rtsps) = (server.https.expect("it listens"), server.rtsps.expect("it listens"));
    let snapshot = ResourceSnapshot::of(&server);
    let mut line = Line::to(https);
    line.send("GET /a.bin HTTP/1.1\r\nHost: films.test:8443\r\n\r\n");
    let answer = line.answer().expect("an answer");
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(answer.text(), "this port speaks TLS: https://films.test:8443/\n");
    assert!(line.rest(CLOSE_WAIT).0.is_empty());
    let mut line = Line::to(rtsps);
    line.send(format!("OPTIONS rtsp://{rtsps}/a.ts RTSP/1.0\r\nCSeq: 7\r\n\r\n"));
    let answer = line.answer().expect("an answer");
    assert!(answer.head.starts_with("RTSP/1.0 400 "), "{answer:?}");
    assert_eq!(answer.header("CSeq"), Some("7"));
    assert_eq!(answer.text(), format!("this port speaks TLS: rtsps://{rtsps}/\n"));
    // Neither TLS nor a request: closed without an answer.
    let mut line = Line::to(https);
    line.send([0x80, 0x2e, 1, 3, 1]);
    assert!(line.rest(CLOSE_WAIT).0.is_empty());
    drop(line);
    assert_restored(&snapshot, &server);
    server.stop();
}

/// Without the alert a client cannot distinguish the end from a truncation (RFC 8446 §6.1).
#[test]
fn connection_that_the_server_ends_is_ended_by_an_alert() {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", b"some bytes")]);
    let https = server.https.expect("it listens");
    for request in [
        "GET /none HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "GET /none HTTP/1.0\r\n\r\n",
        "no request\r\n\r\n",
    ] {
        let mut client = Client::connect(https, "localhost");
        client.send_text(request);
        let (status, length, body) = client.head();
        assert!([400, 404].contains(&status), "{request:?}: {status}");
        client.read(length - body.len());
        assert!(client.ends_well(), "{request:?}");
    }
    server.stop();
}

#[test]
fn renegotiation_is_refused_with_an_alert() {
    let test = "faults::renegotiation_is_refused_with_an_alert";
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", b"some bytes")]);
    let https = server.https.expect("it listens");
    let mut command = Command::new("sh");
    command.args(["-c", "exec openssl s_client -tls1_2 -connect \"$0\" 2>&1", &https.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = command.spawn().expect("a shell is on every machine");
    let mut input = client.stdin.take().expect("it is piped");
    let mut output = client.stdout.take().expect("it is piped");
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    let mut has_asked = false;
    // The refusal ends the connection, and so the program.
    while let Ok(count @ 1..) = output.read(&mut piece) {
        text.push_str(&String::from_utf8_lossy(&piece[..count]));
        // The last line about the handshake. A line of `R` requests a renegotiation.
        if !has_asked && text.contains("Extended master secret") {
            input.write_all(b"R\n").expect("it reads its input");
            has_asked = true;
        }
    }
    client.wait().expect("it is our child");
    if text.contains("openssl: not found") {
        eprintln!("skip: {test}: openssl: not found");
        return;
    }
    let (before, after) = text.split_once("RENEGOTIATING").expect("it asks");
    assert!(before.contains("Protocol  : TLSv1.2"), "{text}");
    assert!(after.contains("no renegotiation"), "{text}");
    let counters = server.index()["server"].clone();
    assert_eq!(counters["tls_handshakes"], 1, "{counters:#}");
    assert_eq!(Client::connect(https, "localhost").get("/a.bin").0, 200);
    server.stop();
}

#[test]
fn file_that_shrinks_resets_its_own_stream_only() {
    let (large, other) = (noise(LARGE_BYTES), noise(300_000));
    let files = [("large.bin", &large[..]), ("other.bin", &other)];
    let TlsServer { server, .. } = TlsServer::start(&files);
    let https = server.https.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    let cut = || {
        let file = File::options().write(true).open(server.folder().join("large.bin"));
        file.and_then(|file| file.set_len(1001)).expect("the test may cut it");
    };
    runtime().block_on(async {
        let stream = connect(https, "localhost", b"h2", None).await;
        let (mut requests, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        let driven = tokio::spawn(connection);
        let mut hit = ask(&mut requests, "large.bin").await;
        let first = hit.data().await.expect("content").expect("no error yet");
        cut();
        let window = hit.flow_control().release_capacity(first.len());
        window.expect("it was received");
        let (mut read, ended) = drain(&mut hit).await;
        read += first.len();
        assert!(read < large.len(), "all of it came");
        let error = ended.expect_err("a file that ends early is no whole answer");
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{error}");
        let mut on = ask(&mut requests, "other.bin").await;
        let (read, ended) = drain(&mut on).await;
        ended.expect("others on the connection go on");
        assert_eq!(read, other.len());
        drop((hit, on, requests));
        driven.await.expect("no panic").expect("the connection ends well");
    });
    assert_restored(&snapshot, &server);
    server.stop();
}

#[test]
fn file_that_shrinks_ends_its_connection_of_http1_short() {
    let large = noise(LARGE_BYTES);
    let TlsServer { server, .. } = TlsServer::start(&[("large.bin", &large)]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut client = Client::connect(server.https.expect("it listens"), "localhost");
    client.send("/large.bin");
    let (status, length, read) = client.head();
    assert_eq!((status, length), (200, large.len()));
    let file = File::options().write(true).open(server.folder().join("large.bin"));
    file.and_then(|file| file.set_len(1001)).expect("the test may cut it");
    let read = read.len() + client.count_rest();
    assert!(read < large.len(), "all of it came");
    drop(client);
    assert_restored(&snapshot, &server);
    server.stop();
}

/// Requests a file on a connection of HTTP/2; returns its content, when the head has been received.
pub(crate) async fn ask(requests: &mut SendRequest<Bytes>, name: &str) -> RecvStream {
    let uri = format!("https://localhost/{name}");
    let request = http::Request::get(uri).body(()).expect("a request");
    let (answer, _) = requests.send_request(request, true).expect("it can be sent");
    let answer = answer.await.expect("an answer");
    assert_eq!(answer.status(), 200, "{name}");
    answer.into_body()
}

/// Reads content to its end; returns the number of bytes, and the error that ended it.
pub(crate) async fn drain(content: &mut RecvStream) -> (usize, Result<(), h2::Error>) {
    let mut read = 0;
    while let Some(data) = content.data().await {
        match data {
            Ok(data) => {
                read += data.len();
                let window = content.flow_control().release_capacity(data.len());
                window.expect("it was received");
            }
            Err(error) => return (read, Err(error)),
        }
    }
    (read, Ok(()))
}

/// Larger than all buffers on the way.
const LARGE_BYTES: usize = 64 << 20;
/// The files are checked once a second.
const CLOSE_WAIT: Duration = Duration::from_secs(60);
