// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS: HTTPS, HTTP/2 and RTSPS of the real program, against other people's clients and scanners,
//! and against peers that break off, wait or cheat.
//!
//! One file a subject: [`curl`] (curl and wget), [`h2spec`] (conformance of HTTP/2), [`scan`]
//! (sslyze: versions, ciphers, known attacks), [`chromium`], [`rtsps`] (ffmpeg, GStreamer),
//! [`faults`] (renewed certificates, requests without TLS, renegotiation, files cut short),
//! [`kernel_tls`] (connections that the kernel encrypts, where it can), [`pace`] (rates),
//! [`floods`] (of HTTP/2), [`slow`] (handshakes and downloads that end by a time-out of the
//! server). [`authority`] makes certificates, [`client`] is a client whose every step a test
//! decides.
//!
//! A test that needs a program that is missing prints `skip: TEST: REASON` and passes. Takes a bit
//! more than a minute: the time-outs of the server are 10 and 30 s, and are awaited side by side.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../faults/resource_snapshot.rs"]
#[allow(dead_code, reason = "every test program uses its part of it")]
mod resource_snapshot;

mod authority;
mod chromium;
mod client;
mod curl;
mod faults;
mod floods;
mod h2spec;
mod kernel_tls;
mod pace;
mod rtsps;
mod scan;
mod slow;

use std::process::Command;
use std::thread;
use std::time::Duration;

use authority::Authority;
use harness::film::film;
use harness::watchdog::{self, Outcome};
use harness::{PROGRAM, Place, Server};

/// Tests that wait for the clock most of the time. As tests of their own they would run in turn
/// where cores are few.
const SIDE_BY_SIDE: &[(&str, fn())] = &[
    ("rtsps::ffmpeg_plays_every_frame", rtsps::ffmpeg_plays_every_frame),
    ("rtsps::gstreamer_receives_every_byte", rtsps::gstreamer_receives_every_byte),
    ("floods::floods_of_http2_are_bounded", floods::floods_of_http2_are_bounded),
    ("rtsps::player_that_never_reads", rtsps::player_that_never_reads_disturbs_nobody),
    ("slow::half_open_handshakes_end", slow::half_open_handshakes_end),
    ("slow::download_that_nobody_reads_ends", slow::download_that_nobody_reads_ends),
    ("slow::stream_that_takes_nothing_is_reset", slow::stream_that_takes_nothing_is_reset),
    ("slow::connection_of_http2_that_nobody_reads_ends", slow::connection_that_nobody_reads_ends),
];

#[test]
fn a_list_of_long_tests_passes_side_by_side() {
    let run = |&(name, test): &(&'static str, fn())| (name, thread::spawn(test));
    let running: Vec<_> = SIDE_BY_SIDE.iter().map(run).collect();
    let ended = running.into_iter().map(|(name, thread)| (name, thread.join()));
    let failed: Vec<_> = ended.filter(|(_, end)| end.is_err()).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "failed, as said above: {}", failed.join(", "));
}

/// A server of HTTPS and RTSPS with a certificate of an authority that tests trust.
struct TlsServer {
    server: Server,
    authority: Authority,
}

impl TlsServer {
    fn start(files: &[(&str, &[u8])]) -> TlsServer {
        TlsServer::with_options(files, &[])
    }

    fn with_options(files: &[(&str, &[u8])], options: &[&str]) -> TlsServer {
        let place = place(files);
        let authority = Authority::new(place.top());
        authority.put(&authority.issue("localhost"));
        let [cert, key] =
            [authority.cert(), authority.key()].map(|path| path.display().to_string());
        let options = [&BOTH, &["--tls-cert", &cert, "--tls-key", &key][..], options].concat();
        let server = Server::at(&place, Command::new(PROGRAM), &options);
        await_listed(&server, files.len());
        TlsServer { server, authority }
    }
}

/// A server with a certificate of its own making.
fn self_signed(files: &[(&str, &[u8])]) -> Server {
    let place = place(files);
    let options = [&BOTH[..], &["--tls-self-signed"]].concat();
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    await_listed(&server, files.len());
    server
}

fn place(files: &[(&str, &[u8])]) -> Place {
    let place = Place::new();
    for (name, bytes) in files {
        place.put(name, bytes);
    }
    place
}

fn await_listed(server: &Server, files: usize) {
    server.await_index("the files are listed", |index| {
        index["files"].as_array().is_some_and(|rows| rows.len() == files)
    });
}

/// Bytes without a period.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Result of a program; `None`, with the reason printed, where it is not installed.
fn run(test: &str, command: &mut Command) -> Option<Outcome> {
    match watchdog::run(command, PROGRAM_LIMIT) {
        Ok(outcome) => Some(outcome),
        Err(reason) => {
            eprintln!("skip: {test}: {reason}");
            None
        }
    }
}

/// The first six seconds of the film; `None`, with the reason printed, where there is none.
fn excerpt(test: &str) -> Option<&'static [u8]> {
    let bytes = &film(test)?.bytes;
    Some(&bytes[..bytes.len() / 188 / 10 * 188])
}

/// Asserts that a client received these bytes, and says where they differ if they do.
#[track_caller]
fn assert_bytes(received: &[u8], sent: &[u8]) {
    let same = received.iter().zip(sent).take_while(|(a, b)| a == b).count();
    let lengths = (received.len(), sent.len());
    assert!(received == sent, "{lengths:?} bytes received and sent; the same up to byte {same}");
}

/// Path of a program that scripts/setup.sh installs for tests.
fn test_tool(name: &str) -> String {
    format!("{}/../out/test-tools/{name}", env!("CARGO_MANIFEST_DIR"))
}

const BOTH: [&str; 4] = ["--https", "127.0.0.1:0", "--rtsps", "127.0.0.1:0"];
const PROGRAM_LIMIT: Duration = Duration::from_secs(90);
