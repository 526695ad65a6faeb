// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire receive`, as built: sent data is in its files, byte for byte, with every receive path;
//! faults of senders, disks and the network result in a count or a clear message.
//!
//! One file per kind: [`cameras`] (many, in files that are kept by rules), [`choice`] (selection of
//! the receive path), [`recording`] (files equal the sent data), [`senders`] (bad packets, floods,
//! restarts), [`servers`] and [`titles`] (RTSP, with the server in [`fake`]), [`logins`] (servers
//! that ask for a password), [`relays`] (forwarding),
//! [`disks`] (full, slow, and the recorder killed), [`fragments`] (cameras in MP4), [`networks`]
//! (multicast groups and interfaces, in a network of their own), [`following`] and
//! [`growing_films`] (a file played while it is written). Only [`timed`] asserts punctuality.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../../paths/tests/harness/network.rs"]
#[allow(dead_code, reason = "these tests have networks of their own")]
mod network;

mod cameras;
mod choice;
mod disks;
mod fake;
mod following;
mod fragments;
mod growing_films;
mod logins;
mod networks;
mod recording;
mod recordings;
mod relays;
mod senders;
mod servers;
mod timed;
mod titles;

use std::path::Path;

/// Asserts that a file has these bytes, and reports the first difference.
#[track_caller]
fn assert_file(path: &Path, sent: &[u8]) {
    let written = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let same = written.iter().zip(sent).take_while(|(a, b)| a == b).count();
    assert!(
        written == sent,
        "{}: {} bytes, not {}; the same up to byte {same}",
        path.display(),
        written.len(),
        sent.len()
    );
}
