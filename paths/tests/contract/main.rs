// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contract of the list of paths: every member, every shape, every fault.
//!
//! Each test iterates over `paths::PATHS` or `paths::INTERLEAVED_PATHS`, so a new member of the
//! list is tested without further code. Datagrams are compared one by one with the expected ones,
//! and counts with claims.
//!
//! In a guest, where a call costs a hundred times as much, `ONLY=krtpsendfile,kmsend` tests these
//! stream paths by socket and leaves the others out.
//!
//! Does not measure time. The laboratory measures CPU cost.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;

mod asset;
mod claims;
mod counted;
mod departures;
mod devices;
mod downloads;
mod faults;
mod frames;
mod interleaved;
mod many;
mod peer;
mod shapes;
mod together;
mod zerocopy;

use paths::{
    Destination, Error, Feed, Host, Open, PATHS, SendError, SendStats, Spec, StreamPath, Via,
};

use asset::Asset;
use harness::skip;
use peer::Peer;

/// Every stream path by socket that this host can use, opened; prints the others as skipped.
fn stream_paths() -> Vec<(&'static Spec, Feed, Box<dyn StreamPath>)> {
    stream_paths_via(Via::Socket)
}

fn stream_paths_via(wanted: Via) -> Vec<(&'static Spec, Feed, Box<dyn StreamPath>)> {
    let mut usable = Vec::new();
    for spec in PATHS {
        let Open::Stream { feed, via, open } = spec.open else { continue };
        if via != wanted || !is_asked_for(spec) {
            continue;
        }
        match (spec.probe)(&Host::here()) {
            Ok(()) => usable.extend(opened(spec, open()).map(|path| (*spec, feed, path))),
            Err(reason) => skip(format!("{spec}: {reason}")),
        }
    }
    usable
}

/// True when `ONLY` names the path, or is not set.
fn is_asked_for(spec: &Spec) -> bool {
    std::env::var("ONLY").map_or(true, |names| names.split(',').any(|name| name == spec.name))
}

/// Returns a path object, where the process may lock the memory it needs: many tests at once may
/// need more than `RLIMIT_MEMLOCK`.
fn opened<P>(spec: &Spec, path: Result<P, Error>) -> Option<P> {
    match path {
        Err(Error::Host { call, errno, object }) if errno.code() == NO_MEMORY => {
            skip(format!("{spec}: {call} on {object}: {errno}"));
            None
        }
        path => Some(path.unwrap()),
    }
}

const NO_MEMORY: i32 = rustix::io::Errno::NOMEM.raw_os_error();

/// Sends all packets of `asset` from number `first` on, in as many batches as needed (one, where
/// the host grants the peer a large receive buffer), receiving after each.
fn send_from(
    first: u32,
    asset: &Asset,
    (feed, path): (Feed, &mut dyn StreamPath),
    to: &mut Destination,
    peer: &mut Peer,
    stats: &mut SendStats,
) -> Result<(), SendError> {
    let mut next = first;
    loop {
        let end = asset.packets().min(next + peer.room_packets(asset.shape.segment_bytes));
        let pieces = asset.pieces(next..end);
        let batch = asset.batch(feed, next..end, &pieces);
        let accepted = path.send(&batch, to, stats);
        peer.take_in();
        next += accepted?;
        if next == asset.packets() {
            return Ok(());
        }
    }
}
