// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks on the built program: each file holds the scripts of one kind of attacker, bounded in
//! time and count, and asserts the promise of SECURITY.md that it tests.
//!
//! Attacks on a running server run beside a [`canary`]: a paced session that must lose nothing. Its
//! lateness is printed; `make test-attacks` runs the attacks sequentially on a release build and
//! judges the lateness, too. Tests in modules `timed` measure time themselves. All packets stay on
//! loopback or in network namespaces that the test created.
//!
//! Sources: SECURITY.md for the promises and their limits.
//! Bad input by accident is in `tests/faults`, real clients are in `tests/interop`.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../../paths/tests/harness/network.rs"]
#[allow(dead_code, reason = "these tests have networks of their own")]
mod network;

mod access;
mod books;
mod cameras;
mod canary;
mod films;
mod floods;
mod held;
mod icmp;
mod images;
mod index;
mod kills;
mod leftovers;
mod library;
mod mapping;
mod mutations;
mod plans;
mod plants;
mod poured;
mod promises;
mod publisher;
mod random;
mod recording;
mod thumbnails;
mod tokens;
mod tracks;

use std::process::Command;

use canary::Canary;
use harness::{PROGRAM, Place, Server};

/// Returns the number of attempts of a randomised attack: `all` in the suite of attacks, otherwise
/// a part.
fn tries(all: usize) -> usize {
    if canary::is_judged() { all } else { all / 2 }
}

/// Starts a server of `files` and of the canary's clip, and waits until the clip can be streamed.
fn serve(files: &[(&str, &[u8])], options: &[&str]) -> Server {
    let place = Place::new();
    for (name, bytes) in files {
        place.put(name, bytes);
    }
    serve_place(&place, options)
}

/// As [`serve`], for an existing folder.
fn serve_place(place: &Place, options: &[&str]) -> Server {
    serve_place_by(Command::new(PROGRAM), place, options)
}

/// As [`serve_place`], with a command that runs the program, possibly under limits.
fn serve_place_by(command: Command, place: &Place, options: &[&str]) -> Server {
    place.put(canary::NAME, &canary::clip());
    let server = Server::at(place, command, options);
    server.await_stream(canary::NAME);
    server
}

/// Runs `attack` beside a canary, which must lose nothing.
fn beside_canary<T>(server: &Server, attack: impl FnOnce() -> T) -> T {
    let canary = Canary::play(server);
    let result = attack();
    canary.assert_unharmed();
    result
}
