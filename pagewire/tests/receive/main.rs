// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire receive`, as built: what is sent to it is in its files, byte for byte, whatever the
//! way of receiving; and whatever senders, disks and the network do, there is a count or a clear
//! word for it.
//!
//! One file a kind: [`choice`] (which way of receiving), [`recording`] (files equal what was sent),
//! [`senders`] (bad packets, floods, restarts), [`servers`] and [`titles`] (RTSP, by [`fake`]),
//! [`relays`] (sent on), [`disks`] (full, slow, and the recorder killed), [`networks`] (groups and
//! interfaces, in a network of their own), [`following`] (played while it is written). Only
//! [`timed`] asserts that something comes in time.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../../paths/tests/harness/network.rs"]
#[allow(dead_code, reason = "these tests have networks of their own")]
mod network;

mod choice;
mod disks;
mod fake;
mod following;
mod networks;
mod recording;
mod relays;
mod senders;
mod servers;
mod timed;
mod titles;

use std::path::Path;

/// Asserts that a file has these bytes, and says where they differ if they do.
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
