// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interoperation: `pagewire serve` and `receive`, as built, with third-party programs.
//!
//! One file per client; `socket` is not a client, but tests details that no client shows: sequence
//! numbers, times, RTCP. Received media is compared with the file, byte by byte or frame by frame.
//! A film of a minute takes a minute. [`brief`] is a short run of ffmpeg and curl that judges no
//! times: it belongs to the gate, all else to `make test-clients`. Where a client is missing, its
//! tests print `skip: TEST: REASON` and pass.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../../paths/tests/harness/network.rs"]
#[allow(dead_code, reason = "these tests have a network of their own")]
mod network;

mod brief;
mod camera;
mod channels;
mod curl;
mod elementary;
mod ffmpeg;
mod gstreamer;
mod hls;
mod hls_js;
mod hls_play;
mod index;
mod matrix;
mod passwords;
mod pcm;
mod queue;
mod queue_tcp;
mod receive;
mod seeks;
mod side_by_side;
mod socket;
mod subtitles;
mod track_seeks;
mod tracks;
mod trick;
mod vlc;

use std::fs;
use std::process::Command;
use std::time::Duration;

use harness::Server;
use harness::film::{Film, film};
use harness::watchdog::{self, Outcome};

/// Serves the film, ready to be streamed; returns `None`, with the reason printed, where there is
/// none.
fn serve_film(test: &str) -> Option<(Server, &'static Film)> {
    let film = film(test)?;
    let server = Server::start(&[("film.ts", &film.path)]);
    server.await_stream("film.ts");
    Some((server, film))
}

/// As [`serve_film`], with only the first tenth of the film; returns its bytes.
fn serve_excerpt(test: &str) -> Option<(Server, &'static [u8])> {
    let film = film(test)?;
    let packets = film.bytes.len() / TS_PACKET_BYTES;
    let excerpt = &film.bytes[..packets / 10 * TS_PACKET_BYTES];
    let server = Server::start(&[]);
    // A file that a server notices at once must be complete at once. Hidden files are not served.
    let unfinished = server.folder().join(".film.ts");
    fs::write(&unfinished, excerpt).expect("the folder can be written");
    fs::rename(&unfinished, server.folder().join("film.ts")).expect("within one folder");
    server.await_stream("film.ts");
    Some((server, excerpt))
}

/// Returns the result of a client; `None`, with the reason printed, where it is not installed.
fn client(test: &str, command: &mut Command) -> Option<Outcome> {
    match watchdog::run(command, CLIENT_LIMIT) {
        Ok(outcome) => Some(outcome),
        Err(reason) => {
            eprintln!("skip: {test}: {reason}");
            None
        }
    }
}

/// Asserts that a client received these bytes, and reports the first difference.
#[track_caller]
fn assert_bytes(received: &[u8], sent: &[u8]) {
    let same = received.iter().zip(sent).take_while(|(a, b)| a == b).count();
    assert!(
        received == sent,
        "{} bytes, not {}; the same up to byte {same}",
        received.len(),
        sent.len()
    );
}

const TS_PACKET_BYTES: usize = 188;
/// A minute of film, a pause, and a busy machine.
const CLIENT_LIMIT: Duration = Duration::from_secs(90);
