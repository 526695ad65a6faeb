// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bad input and faults: whatever happens to peers, files and the host, there is a clear answer or
//! log line, no other client is disturbed, and nothing leaks.
//!
//! All tests use the real program over loopback. One file per kind of trouble: [`start`] (options,
//! ports in use), [`requests`] (malformed, oversized, endless), [`limits`] (slow and silent peers,
//! exhausted descriptors), [`pace`] (downloads that are paced or limited), [`sessions`] (strangers,
//! disconnects, RTCP, SIGTERM), [`files`] (not a stream, vanishes or shrinks), [`interleaved`]
//! (readers over TCP), [`tunnels`] (RTSP through HTTP), [`channel_viewers`] (pauses, seeks, readers
//! that do not read), [`channel_answers`] (titles, missing channels), [`library`] (new or changed
//! files), [`cache`] (damaged, not writable), [`routes`] (every path gives the same bytes),
//! [`open_files`] (changed while kept), [`seeks`] (into films whose parameter sets occur once),
//! [`surroundings`] (the link goes down, the clock is set, reports are lost).
//!
//! The modules `timed` have the tests whose verdict is on a rate or a lateness, or that wait for
//! the end of a time limit. No other test asserts a speed.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;

mod cache;
mod channel_answers;
mod channel_viewers;
mod files;
mod interleaved;
mod library;
mod limits;
#[path = "../../../paths/tests/harness/network.rs"]
#[allow(dead_code, reason = "one test has a network of its own")]
mod network;
mod open_files;
mod pace;
mod requests;
mod resource_snapshot;
mod routes;
mod seeks;
mod sessions;
mod start;
mod surroundings;
mod tunnels;

use std::process::Command;

use harness::{PROGRAM, Place, Server};

/// Starts a server of these files that has read the ones that can be streamed.
fn serve(files: &[(&str, &[u8])], options: &[&str]) -> Server {
    serve_by(Command::new(PROGRAM), files, options)
}

/// As [`serve`], with a command that runs the program.
fn serve_by(command: Command, files: &[(&str, &[u8])], options: &[&str]) -> Server {
    let place = Place::new();
    for (name, bytes) in files {
        place.put(name, bytes);
    }
    let server = Server::at(&place, command, options);
    await_read(&server, files.len());
    server
}

/// Waits until this many files are listed and all of them have been read.
fn await_read(server: &Server, files: usize) {
    server.await_index(&format!("{files} files are read"), |index| {
        let rows = index["files"].as_array().expect("a list of files");
        let unread = |row: &serde_json::Value| {
            let why = row["not_streamed"].as_str().unwrap_or_default();
            why.starts_with("waiting") || why.starts_with("being read")
        };
        rows.len() == files && !rows.iter().any(unread)
    });
}
