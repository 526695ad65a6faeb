// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks that pagewire withstood when it was first attacked, kept as regression tests: traversal
//! paths, pipelining, slow-loris, thousands of sessions and of downloads, junk at the RTCP port.
//!
//! Sources: RFC 2326, RFC 9110 and RFC 9112 for well-formed requests; RFC 3986 §5.2.4 and §2.1 for
//! the spellings of paths.

use std::thread;
use std::time::Instant;

use crate::harness::answer::{Line, http};
use crate::harness::rtsp::{Control, LOCALHOST, Player, PortPair, session_of};
use crate::random::Random;
use crate::{beside_canary, canary, serve};

/// Escapes, dot segments, separators and encodings that lead out of the folder.
#[test]
fn traversal_paths_reach_nothing_outside_the_folder() {
    let server = serve(&[("inside.bin", b"inside")], &[]);
    std::fs::write(server.place.top().join("secret"), "outside").expect("room for a file");
    beside_canary(&server, || {
        let ups = ["..", "%2e%2e", ".%2e", "%2E.", "..%00", "%252e%252e", "..;", "%c0%ae%c0%ae"];
        let slashes = ["/", "%2f", "%5c", "\\", "//", "/./", "%252f", "%c0%af"];
        let mut line = Line::to(server.http);
        for up in ups {
            for slash in slashes {
                for depth in 1..=4 {
                    for target in ["secret", "log", "etc/passwd"] {
                        let climbs = format!("{up}{slash}").repeat(depth);
                        line.send(format!("GET /{climbs}{target} HTTP/1.1\r\nHost: h\r\n\r\n"));
                        let Some(answer) = line.answer() else {
                            line = Line::to(server.http);
                            continue;
                        };
                        assert!(
                            (400..500).contains(&answer.status),
                            "{climbs}{target}: {answer:?}"
                        );
                        assert!(!answer.text().contains("outside"), "{climbs}{target}");
                        if answer.header("Connection") == Some("close") {
                            line = Line::to(server.http);
                        }
                    }
                }
            }
        }
    });
    assert_eq!(http(server.http, "GET", "/inside.bin").text(), "inside");
}

/// All at once on one connection: they are answered in order, each with its number.
#[test]
fn thousands_of_pipelined_requests_are_answered_in_order() {
    let server = serve(&[], &[]);
    beside_canary(&server, || {
        let mut line = Line::to(server.rtsp);
        let mut sender = line.sender();
        let request = |number| {
            format!("DESCRIBE rtsp://h/{} RTSP/1.0\r\nCSeq: {number}\r\n\r\n", canary::NAME)
        };
        let all: String = (1..=PIPELINED).map(request).collect();
        thread::scope(|scope| {
            scope.spawn(move || sender.send(all));
            for number in 1..=PIPELINED {
                let answer = line.answer().unwrap_or_else(|| panic!("no answer to {number}"));
                let cseq = answer.header("CSeq").map(str::to_owned);
                assert_eq!((answer.status, cseq), (200, Some(number.to_string())));
            }
        });
    });
}

/// Connections whose requests arrive byte by byte, and others that are answered at the same time.
/// The time limit of the slow ones is tested with other faults (`tests/faults/limits.rs`).
#[test]
fn requests_that_drip_in_hold_nobody_up() {
    let server = serve(&[("a.bin", b"a")], &[]);
    beside_canary(&server, || {
        let mut lines: Vec<_> = (0..200)
            .map(|turn| Line::to(if turn % 2 == 0 { server.rtsp } else { server.http }))
            .collect();
        for byte in b"GET /a" {
            for line in &mut lines {
                assert!(line.send([*byte]), "it is waited for");
            }
            assert_eq!(http(server.http, "GET", "/a.bin").text(), "a");
            assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", canary::NAME, &[]).status, 200);
        }
    });
}

/// Set up and torn down as fast as they are answered: no resource accumulates.
#[test]
fn thousands_of_sessions_come_and_go() {
    let server = serve(&[], &[]);
    beside_canary(&server, || {
        let began = Instant::now();
        let mut control = Control::to(server.rtsp);
        let ports = "Transport: RTP/AVP;unicast;client_port=5000-5001";
        for _ in 0..SESSIONS {
            let answer = control.ask("SETUP", canary::NAME, &[ports]);
            assert_eq!(answer.status, 200, "{answer:?}");
            let session = format!("Session: {}", session_of(&answer));
            assert_eq!(control.ask("TEARDOWN", canary::NAME, &[&session]).status, 200);
        }
        println!("{SESSIONS} sessions in {:?}", began.elapsed());
    });
    let counts = &server.index()["server"];
    assert_eq!((&counts["sessions"], &counts["sessions_refused"]), (&0.into(), &0.into()));
    assert!(server.log().len() < 10_000, "a flood of sessions is none of lines");
}

#[test]
fn thousands_of_downloads_at_once_are_all_whole() {
    let server = serve(&[("a.bin", &[7; 1000])], &[]);
    beside_canary(&server, || {
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..GET_CONNECTIONS {
                scope.spawn(|| {
                    let mut line = Line::to(server.http);
                    for _ in 0..GETS / GET_CONNECTIONS / GET_BATCH {
                        line.send("GET /a.bin HTTP/1.1\r\nHost: h\r\n\r\n".repeat(GET_BATCH));
                        for _ in 0..GET_BATCH {
                            let answer = line.answer().expect("an answer to each");
                            assert_eq!((answer.status, &answer.body[..]), (200, &[7; 1000][..]));
                        }
                    }
                });
            }
        });
        println!("{GETS} downloads in {:?}", began.elapsed());
    });
}

/// Noise, and reports that are valid except for their source, at the port that receives all
/// reports.
#[test]
fn junk_at_the_rtcp_port_disturbs_no_stream() {
    let server = serve(&[], &[]);
    let mut player = beside_canary(&server, || {
        let mut player = Player::set_up(server.rtsp, canary::NAME);
        player.play();
        let to = player.server_rtcp;
        let (strangers, mut random) = (PortPair::on(LOCALHOST), Random::seeded(13));
        let mut datagram = [0_u8; 64];
        for turn in 0..JUNK {
            datagram[..8].copy_from_slice(&random.next().to_be_bytes());
            if turn % 2 == 0 {
                datagram[..4].copy_from_slice(&[0x80, 203, 0, 1]);
            }
            let socket = if turn % 8 == 0 { player.rtcp() } else { &strangers.rtp };
            // A datagram that a full queue drops is as good as lost junk.
            let _ = socket.send_to(&datagram[..8 + turn % 56], to);
        }
        player
    });
    assert!(player.heard().byes.is_empty(), "it plays on");
    assert_eq!(player.command("PAUSE", &[]).status, 200);
    let log = server.log();
    assert!(log.len() < 10_000, "{} bytes of log", log.len());
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    server.await_index("no session is left", |index| index["server"]["sessions"] == 0);
}

const PIPELINED: u32 = 5001;
const SESSIONS: u32 = 2000;
const GETS: usize = 10_000;
const GET_CONNECTIONS: usize = 4;
const GET_BATCH: usize = 100;
const JUNK: usize = 200_000;
