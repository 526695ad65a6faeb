// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS: HTTPS, HTTP/2 and RTSPS of the real program, with third-party clients and scanners, and
//! with peers that disconnect, stall or violate the protocol.
//!
//! One file per subject: [`curl`], [`rtsps`] (ffmpeg, and readers of media), [`rtsps_client`] (the
//! program itself as the client), [`faults`] (renewed certificates, requests without TLS,
//! renegotiation, truncated files), [`kernel_tls`] (connections that the kernel encrypts, where it
//! can), [`pace`] (downloads of films and at limited rates), [`floods`] (of HTTP/2), [`slow`]
//! (handshakes and downloads of stalled peers), [`clients`] (programs that only `make test-clients`
//! needs). [`authority`] makes certificates, [`client`] is a client whose every step a test
//! controls.
//!
//! Tests in modules `timed` measure time or await time-outs of the server, of 10 and 30 s. A test
//! that needs a program that is missing prints `skip: TEST: REASON` and passes.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../faults/resource_snapshot.rs"]
#[allow(dead_code, reason = "every test program uses its part of it")]
mod resource_snapshot;

mod authority;
mod client;
mod clients;
mod curl;
mod faults;
mod floods;
mod kernel_tls;
mod pace;
mod rtsps;
mod rtsps_client;
mod slow;

use std::fs;
use std::process::Command;
use std::time::Duration;

use authority::Authority;
use harness::film::film;
use harness::watchdog::{self, Outcome};
use harness::{PROGRAM, Place, Server};
use resource_snapshot::ResourceSnapshot;

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
        let tls = TlsServer::unlisted(files, options);
        await_listed(&tls.server, files.len());
        tls
    }

    /// Starts a server without a look at its index, which may ask for a password.
    fn unlisted(files: &[(&str, &[u8])], options: &[&str]) -> TlsServer {
        let place = place(files);
        let authority = Authority::new(place.top());
        authority.put(&authority.issue("localhost"));
        let [cert, key] =
            [authority.cert(), authority.key()].map(|path| path.display().to_string());
        let options = [&BOTH, &["--tls-cert", &cert, "--tls-key", &key][..], options].concat();
        let server = Server::at(&place, Command::new(PROGRAM), &options);
        TlsServer { server, authority }
    }
}

/// Starts a server with a self-signed certificate.
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

/// Asserts that a server without its files returns to the previous resources: it keeps a file that
/// was requested twice open for some seconds, but no deleted one.
#[track_caller]
fn assert_restored(snapshot: &ResourceSnapshot, server: &Server) {
    for entry in fs::read_dir(server.folder()).expect("it is served") {
        fs::remove_file(entry.expect("an entry").path()).expect("the test owns it");
    }
    snapshot.assert_restored(server);
}

/// Returns bytes without a period.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns the result of a program; `None`, with the reason printed, where it is not installed.
fn run(test: &str, command: &mut Command) -> Option<Outcome> {
    match watchdog::run(command, PROGRAM_LIMIT) {
        Ok(outcome) => Some(outcome),
        Err(reason) => {
            eprintln!("skip: {test}: {reason}");
            None
        }
    }
}

/// Returns the first three seconds of the film; `None`, with the reason printed, where there is
/// none.
fn excerpt(test: &str) -> Option<&'static [u8]> {
    let bytes = &film(test)?.bytes;
    Some(&bytes[..bytes.len() / 188 / 20 * 188])
}

/// Asserts that a client received these bytes, and reports the first difference.
#[track_caller]
fn assert_bytes(received: &[u8], sent: &[u8]) {
    if received != sent {
        let same = received.iter().zip(sent).take_while(|(a, b)| a == b).count();
        let lengths = (received.len(), sent.len());
        panic!("{lengths:?} bytes received and sent; the same up to byte {same}");
    }
}

/// Returns the path of a program that scripts/setup.sh installs for tests.
fn test_tool(name: &str) -> String {
    format!("{}/../out/test-tools/{name}", env!("CARGO_MANIFEST_DIR"))
}

const BOTH: [&str; 4] = ["--https", "127.0.0.1:0", "--rtsps", "127.0.0.1:0"];
const PROGRAM_LIMIT: Duration = Duration::from_secs(90);
