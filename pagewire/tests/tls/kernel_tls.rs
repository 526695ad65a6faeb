// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of HTTP/1 over TLS from their first byte to their last, with every version and
//! cipher: the kernel encrypts them where it has the module `tls`, and the server does otherwise.
//! The only difference for a client is at a change of keys.
//!
//! `kernel/qemu/tls.sh` runs these tests with kernels that have the module.
//!
//! Sources: RFC 8446 §4.6.3 (KeyUpdate), §6.1 (close_notify); Linux `net/tls/tls_proc.c`.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, default_provider};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, SupportedCipherSuite};

use crate::client::{Client, config};
use crate::harness::Server;
use crate::harness::answer::Line;
use crate::resource_snapshot::ResourceSnapshot;
use crate::{TlsServer, assert_bytes, assert_restored, noise};

#[test]
fn answers_are_whole_with_every_version_and_cipher() {
    let large = noise(LARGE);
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", SMALL), ("large.bin", &large)]);
    let https = server.https.expect("it listens");
    let suites: Vec<_> = ALL_CIPHER_SUITES.iter().filter(|suite| fits(suite)).collect();
    assert_eq!(suites.len(), 6, "{suites:?}");
    for suite in &suites {
        let mut client = Client::connect_by(https, **suite);
        for _ in 0..2 {
            assert_eq!(client.get("/a.bin"), (200, SMALL.to_vec()), "{suite:?}");
            let (status, body) = client.get("/large.bin");
            assert_eq!(status, 200);
            assert_bytes(&body, &large);
            client.send_text(
                "GET /large.bin HTTP/1.1\r\nHost: a\r\nRange: bytes=70000-1070000\r\n\r\n",
            );
            let (status, length, mut body) = client.head();
            assert_eq!((status, length), (206, 1_000_001));
            body.extend(client.read(length - body.len()));
            assert_bytes(&body, &large[70_000..=1_070_000]);
        }
        // Requests in one record, and one in many records.
        let one = "GET /a.bin HTTP/1.1\r\nHost: a\r\n\r\n";
        client.send_text(&one.repeat(3));
        one.bytes().for_each(|byte| client.send_text(&char::from(byte).to_string()));
        client.send_text("GET /a.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(count_small(&client.rest()), 5, "{suite:?}");
    }
    assert_in_kernel(&server, suites.len());
    server.stop();
}

/// The request is in the same segment as the end of the handshake, or arrives byte by byte.
#[test]
fn request_right_behind_the_handshake_is_answered() {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", SMALL)]);
    let https = server.https.expect("it listens");
    let suites = ALL_CIPHER_SUITES.iter().filter(|suite| fits(suite));
    let mut count = 0;
    for suite in suites {
        for step in [usize::MAX, 1, 7] {
            let answer = request_with_finished(https, *suite, step, |_| {});
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{suite:?} {step}");
            assert!(answer.ends_with(SMALL), "{suite:?} {step}");
            count += 1;
        }
    }
    assert_in_kernel(&server, count);
    server.stop();
}

/// The kernel accepts no connection whose peer has closed its side; the server then encrypts it.
#[test]
fn client_that_closes_its_side_at_once_is_answered() {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", SMALL)]);
    let https = server.https.expect("it listens");
    for suite in ALL_CIPHER_SUITES.iter().filter(|suite| fits(suite)) {
        let close = |socket: &TcpStream| {
            socket.shutdown(Shutdown::Write).expect("it is connected");
        };
        let answer = request_with_finished(https, *suite, usize::MAX, close);
        assert!(answer.ends_with(SMALL), "{suite:?}: {}", String::from_utf8_lossy(&answer));
    }
    server.stop();
}

#[test]
fn reader_of_little_receives_all() {
    let large = noise(LARGE);
    let TlsServer { server, .. } = TlsServer::start(&[("large.bin", &large)]);
    let https = server.https.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    thread::scope(|scope| {
        for last in ["", "Connection: close\r\n"].repeat(2) {
            let large = &large;
            scope.spawn(move || {
                let mut client = Client::connect_narrow(https);
                client.send_text(&format!("GET /large.bin HTTP/1.1\r\nHost: a\r\n{last}\r\n"));
                let (_, length, mut body) = client.head();
                while body.len() < length {
                    thread::sleep(Duration::from_millis(1));
                    body.extend(client.read((length - body.len()).min(30_011)));
                }
                assert_bytes(&body, large);
                assert!(last.is_empty() || client.ends_well(), "the last record came whole");
            });
        }
        // Other clients disconnect within an answer.
        for _ in 0..8 {
            let mut client = Client::connect(https, "localhost");
            client.send("/large.bin");
            client.read(100_000);
        }
    });
    assert_in_kernel(&server, 12);
    assert_restored(&snapshot, &server);
    server.stop();
}

/// The kernel cannot change keys: the connection ends as an idle one does. Without the kernel the
/// keys change.
#[test]
fn client_that_changes_its_keys_has_the_answers_before() {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", SMALL)]);
    let https = server.https.expect("it listens");
    let mut client = Client::connect(https, "localhost");
    for _ in 0..2 {
        assert_eq!(client.get("/a.bin"), (200, SMALL.to_vec()));
    }
    client.send("/a.bin");
    client.change_keys();
    client.send_text("GET /a.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answers = count_small(&client.rest());
    assert_eq!(answers, if has_kernel_tls() { 1 } else { 2 });
    assert_eq!(Client::connect(https, "localhost").get("/a.bin").0, 200);
    assert_in_kernel(&server, 2);
    server.stop();
}

#[test]
fn each_end_of_a_connection_is_told() {
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", SMALL)]);
    let https = server.https.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    for suite in ALL_CIPHER_SUITES.iter().filter(|suite| fits(suite)) {
        // By the server, after an answer.
        let mut client = Client::connect_by(https, *suite);
        client.send_text("GET /a.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (_, length, body) = client.head();
        client.read(length - body.len());
        assert!(client.ends_well(), "{suite:?}");
        // By the client, after its request and before the answer.
        let mut client = Client::connect_by(https, *suite);
        assert_eq!(client.get("/a.bin").0, 200);
        client.send("/a.bin");
        client.end();
        let (_, length, body) = client.head();
        client.read(length - body.len());
        assert!(client.ends_well(), "{suite:?}");
        // By bytes that are not a record of the connection, after an answer.
        let mut client = Client::connect_by(https, *suite);
        assert_eq!(client.get("/a.bin").0, 200);
        client.send_below(&[&[23, 3, 3, 0, 40][..], &[7; 40]].concat());
        assert!(!client.ends_well(), "{suite:?}: an alert is no good end");
        assert_eq!(client.count_rest(), 0);
    }
    assert_in_kernel(&server, 18);
    assert_restored(&snapshot, &server);
    server.stop();
}

/// Peers that leave answers unread, send invalid records and close their side: a server that
/// mistook the socket's error for room to write would loop, and serve no other client.
#[test]
fn peers_that_read_nothing_and_send_no_record_disturb_nobody() {
    let body = noise(100_000);
    let TlsServer { server, .. } = TlsServer::start(&[("a.bin", &body)]);
    let https = server.https.expect("it listens");
    let snapshot = ResourceSnapshot::of(&server);
    let peer = |index: usize| {
        let mut peer = Client::connect_narrow(https);
        (0..=index).for_each(|_| peer.send("/a.bin"));
        peer
    };
    let mut peers: Vec<_> = (0..32).map(peer).collect();
    for peer in &mut peers {
        peer.await_answer();
    }
    for peer in &mut peers {
        peer.send_below(&[0; 5]);
        peer.end_below();
    }
    for _ in 0..8 {
        // Spread over the time in which the server may encounter the faults.
        thread::sleep(Duration::from_millis(50));
        let mut line = Line::to(server.http);
        line.send("GET /a.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_bytes(&line.answer().expect("an answer").body, &body);
    }
    drop(peers);
    assert_restored(&snapshot, &server);
    server.stop();
}

#[test]
fn kernel_tls_can_be_switched_off() {
    let off = ["--kernel-tls", "off"];
    let TlsServer { server, .. } = TlsServer::with_options(&[("a.bin", SMALL)], &off);
    let mut client = Client::connect(server.https.expect("it listens"), "localhost");
    assert_eq!(client.get("/a.bin"), (200, SMALL.to_vec()));
    assert_eq!(server.index()["server"]["tls_in_kernel"], 0);
    server.stop();
}

/// Counts the answers with the small file.
fn count_small(answers: &[u8]) -> usize {
    answers.windows(SMALL.len()).filter(|window| *window == SMALL).count()
}

/// Selects suites for the certificate of the tests, which has an elliptic-curve key.
fn fits(suite: &SupportedCipherSuite) -> bool {
    !format!("{:?}", suite.suite()).contains("RSA")
}

/// True where the kernel has loaded the module; checked once the server has tried it.
fn has_kernel_tls() -> bool {
    Path::new("/proc/net/tls_stat").exists()
}

/// Asserts that the kernel had this many connections, or none where it has no module.
#[track_caller]
fn assert_in_kernel(server: &Server, connections: usize) {
    let connections = match has_kernel_tls() {
        true => connections,
        false => {
            eprintln!("skip: kernel TLS: this kernel has no module tls; kernel/qemu/tls.sh has");
            0
        }
    };
    assert_eq!(server.index()["server"]["tls_in_kernel"], connections);
}

/// Sends the last message of the handshake together with a request, `step` bytes a segment, and
/// calls `then`; returns the answer.
fn request_with_finished(
    server: SocketAddr,
    suite: SupportedCipherSuite,
    step: usize,
    then: impl FnOnce(&TcpStream),
) -> Vec<u8> {
    let mut provider = default_provider();
    provider.cipher_suites = vec![suite];
    let name = ServerName::try_from("localhost").expect("a name of DNS");
    let config = Arc::new(config(provider, b"http/1.1"));
    let mut session = ClientConnection::new(config, name).expect("a session");
    let mut socket = TcpStream::connect(server).expect("the server listens");
    socket.set_nodelay(true).expect("a TCP socket has the option");
    let request = b"GET /a.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    session.writer().write_all(request).expect("it is kept until the handshake is over");
    while session.is_handshaking() {
        let mut flight = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut flight).expect("memory takes all");
        }
        send_in_steps(&mut socket, &flight, step);
        session.read_tls(&mut socket).expect("the server's part");
        session.process_new_packets().expect("a handshake");
    }
    let mut flight = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut flight).expect("memory takes all");
    }
    send_in_steps(&mut socket, &flight, step);
    then(&socket);
    let mut answer = Vec::new();
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    stream.read_to_end(&mut answer).expect("an answer, and an end by TLS");
    answer
}

fn send_in_steps(socket: &mut TcpStream, bytes: &[u8], step: usize) {
    bytes.chunks(step).for_each(|piece| socket.write_all(piece).expect("the bytes go out"));
}

const SMALL: &[u8] = b"some bytes";
const LARGE: usize = 3_000_000;
