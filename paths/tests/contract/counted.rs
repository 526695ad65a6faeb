// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls in [`paths::SendStats`] are the ones that were made, as `strace(1)` sees them.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use paths::{MappedFile, Open, PATHS, SendStats};

use crate::asset::{Asset, Shape};
use crate::harness::tracer::{self, trace_of};
use crate::peer::Peer;
use crate::stream_paths;

#[test]
#[ignore = "run by a_tracer_counts_the_calls_that_the_stats_have"]
fn inside_a_tracer() {
    let asset = Asset::new(Shape { offset: 78, ..Shape::full(100) });
    // Mapping costs a call per file, not per send, so it is done before tracing begins.
    asset.source.map().unwrap();
    asset.image.map().unwrap();
    let pieces = asset.pieces(0..100);
    for (spec, feed, mut path) in stream_paths() {
        let peer = Peer::on_loopback();
        let mut to = peer.destination();
        let batch = asset.batch(feed, 0..100, &pieces);
        for _ in 0..2 {
            let mut stats = SendStats::default();
            tracer::begin();
            let accepted = path.send(&batch, &mut to, &mut stats);
            tracer::end();
            tracer::counted(spec, stats.calls);
            assert_eq!(accepted, Ok(100));
        }
    }
    for spec in PATHS {
        let Open::Download(open) = spec.open else { continue };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut path = open().unwrap();
        let mut stats = SendStats::default();
        tracer::begin();
        let sent = path.send(&asset.source, 5, 30_000, server.as_fd(), &mut stats);
        tracer::end();
        tracer::counted(spec, stats.calls);
        assert_eq!(sent, Ok(30_000));
    }
}

#[test]
#[ignore = "run by residence_of_a_mebibyte_is_two_calls"]
fn residence_inside_a_tracer() {
    const BYTES: u64 = 1 << 20;
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vec![1; BYTES as usize], 0).unwrap();
    let source = MappedFile::open(file, "asset.ts").unwrap();
    tracer::begin();
    let resident = source.is_in_cache(0..BYTES);
    tracer::end();
    tracer::counted("resident", resident.into());
}

/// A download makes this query before each step, so it must be cheap.
#[test]
fn residence_of_a_mebibyte_is_two_calls() {
    let Some(trace) = trace_of("counted::residence_inside_a_tracer") else { return };
    let (calls, count) = (&tracer::calls(&trace)[0], &tracer::counts(&trace)[0]);
    if count.counted == 0 || !calls[0].contains("= 0") {
        return eprintln!("skip: pages of this file are not counted here: {calls:?}");
    }
    assert_eq!(calls.len(), 2, "{calls:?}");
}

#[test]
fn a_tracer_counts_the_calls_that_the_stats_have() {
    let Some(trace) = trace_of("counted::inside_a_tracer") else { return };
    let counts = tracer::counts(&trace);
    // The trace has each stream path twice, and each download path once.
    assert!(counts.len() > 2 * stream_paths().len(), "{counts:?}");
    for count in counts {
        assert!(count.counted > 0, "{count:?}");
        assert_eq!(count.seen, count.counted, "{count:?}: calls traced, calls in the stats");
    }
}
