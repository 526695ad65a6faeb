// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server that cannot start says why and what to do: exit status 2 for a wrong option, 1 for what
//! the host refuses. Nothing is printed as ready.

use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::harness::watchdog::{self, Outcome};
use crate::harness::{PROGRAM, Place};

#[track_caller]
fn refused(options: &[&str]) -> Outcome {
    let place = Place::new();
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--rtsp=127.0.0.1:0", "--http=127.0.0.1:0", "--cache"]);
    command.arg(place.cache()).args(options);
    if !options.iter().any(|option| option.starts_with('/') || option.starts_with('.')) {
        command.arg(place.folder());
    }
    let outcome = watchdog::run(&mut command, LIMIT).expect("the program is there");
    assert!(!String::from_utf8_lossy(&outcome.stdout).contains("ready"), "{outcome:?}");
    outcome
}

#[test]
fn wrong_options_are_named_with_the_cure_and_exit_status_2() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let cases: &[(&[&str], &[&str])] = &[
        (&["--no-such-option"], &["--no-such-option"]),
        (&["/no/such/folder"], &["/no/such/folder", "name a folder"]),
        (&[file], &["Cargo.toml", "name a folder"]),
        (&["--path", "pigeon"], &["pigeon", "wire_sendfile", "read_write"]),
        (&["--path", "mmap_gso", "--path", "read_writev"], &["--path", "one path for streams"]),
        (&["--path", "wire_sendfile", "--cache-size", "0"], &["--cache-size 0"]),
        (&["--rtp-port", "5005"], &["--rtp-port", "5005", "even", "5004"]),
        (&["--rtp-port", "0x1394"], &["--rtp-port"]),
        (&["--rtp-port", "5004-5004"], &["--rtp-port", "20000-29999"]),
        (&["--rtp-port", "5010-5004"], &["--rtp-port", "20000-29999"]),
        (&["--rtp-port", "65535-65535"], &["--rtp-port", "20000-29999"]),
        (&["--burst", "0"], &["--burst", "write 1 to"]),
        (&["--burst", "99999999999"], &["--burst", "write 1 to"]),
        (&["--burst", "soon"], &["--burst"]),
        (&["--pacers", "0"], &["--pacers"]),
        (&["--session-timeout", "0"], &["--session-timeout"]),
        (&["--cache-size", "much"], &["--cache-size", "write K"]),
        (&["--rtsp", "here"], &["--rtsp"]),
    ];
    for (options, words) in cases {
        let outcome = refused(options);
        assert_eq!(outcome.status.code(), Some(2), "{options:?}: {outcome:?}");
        for word in *words {
            assert!(outcome.stderr.contains(word), "{options:?}, {word}: {}", outcome.stderr);
        }
    }
}

#[test]
fn ports_already_taken_are_named_and_exit_status_1() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = tcp.local_addr().expect("it is bound").to_string();
    for option in ["--rtsp", "--http"] {
        let given = format!("{option}={taken}");
        // Given twice, the last counts: clap is told so for no option, hence a command of its own.
        let other = if option == "--rtsp" { "--http=127.0.0.1:0" } else { "--rtsp=127.0.0.1:0" };
        let place = Place::new();
        let mut command = Command::new(PROGRAM);
        command.args(["serve", &given, other, "--cache"]).arg(place.cache()).arg(place.folder());
        let outcome = watchdog::run(&mut command, LIMIT).expect("the program is there");
        assert_says(&outcome, &[option, &taken, "in use", "another address"]);
    }

    // Of the media ports either may be taken: RTP's, or RTCP's on the next.
    for offset in [0, 1] {
        let (_held, even) = even_port_held(offset);
        let outcome = refused(&["--rtp-port", &even.to_string()]);
        assert_says(&outcome, &["media ports", &even.to_string(), "in use", "--rtp-port"]);
    }
}

#[track_caller]
fn assert_says(outcome: &Outcome, words: &[&str]) {
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    for word in words {
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    }
    assert_eq!(outcome.stderr.lines().count(), 1, "one line, no backtrace: {}", outcome.stderr);
}

/// An even port of which it, or the one after it, is held; the other is most likely free.
fn even_port_held(offset: u16) -> (UdpSocket, u16) {
    loop {
        let held = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let port = held.local_addr().expect("it is bound").port();
        if port % 2 == offset {
            return (held, port - offset);
        }
    }
}

const LIMIT: Duration = Duration::from_secs(20);
