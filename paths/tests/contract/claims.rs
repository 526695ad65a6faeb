// SPDX-License-Identifier: MIT OR Apache-2.0
//! The claims of each path agree with its counts.

use paths::{Feed, SEGMENTS_MAX, SendStats, SystemCalls};

use crate::asset::{Asset, HEAD_BYTES, SEGMENT_BYTES, Shape};
use crate::peer::Peer;
use crate::{send_from, stream_paths};

const PACKETS: u64 = 460;

/// Returns the smallest and the largest number of packets of a run: 64 KiB less a page's remainder,
/// 64 KiB less headers, and no more than the destination's segments.
fn run_packets(segments_max: u32) -> (u64, u64) {
    let at_least = (65_536 - 4_095) / SEGMENT_BYTES as u64;
    let at_most = 65_507 / SEGMENT_BYTES as u64;
    (at_least.min(segments_max.into()), at_most.min(segments_max.into()))
}

#[test]
fn streams_cost_the_calls_and_copies_they_claim() {
    // Offsets are even, as in transport stream: a lone packet across an odd page border is copied.
    let asset = Asset::new(Shape { offset: 78, ..Shape::full(PACKETS as usize) });
    let pieces = asset.pieces(0..PACKETS as u32);
    let bytes: u64 = asset.datagrams.iter().map(|datagram| datagram.len() as u64).sum();
    let head_bytes = PACKETS * HEAD_BYTES as u64;
    for segments_max in [SEGMENTS_MAX, 48, 7, 1] {
        for (spec, feed, mut path) in stream_paths() {
            let what = format!("{spec} segments {segments_max}");
            let peer = Peer::on_loopback();
            let mut to = peer.destination();
            let batch = asset.batch(feed, 0..PACKETS as u32, &pieces);
            to.limit_segments(segments_max);
            // The first batch sets the segment size, and the socket up for zero copies; the claim
            // is the cost of each batch after it.
            let mut first = SendStats::default();
            let mut stats = SendStats::default();
            for stats in [&mut first, &mut stats] {
                assert_eq!(path.send(&batch, &mut to, stats), Ok(PACKETS as u32), "{what}");
            }
            assert_eq!((stats.packets, stats.bytes, stats.refused), (PACKETS, bytes, 0), "{what}");
            assert!(first.calls - stats.calls <= 2, "{what}: {} calls first", first.calls);

            let (fewest, most) = match spec.system_calls {
                SystemCalls::PerPacket(calls) => {
                    (u64::from(calls) * PACKETS, u64::from(calls) * PACKETS)
                }
                SystemCalls::PerRun(calls) => {
                    let (at_least, at_most) = run_packets(segments_max);
                    let runs = |packets| u64::from(calls) * PACKETS.div_ceil(packets);
                    (runs(at_most), runs(at_least))
                }
                SystemCalls::PerBatch(calls) => (u64::from(calls), u64::from(calls)),
                SystemCalls::PerStep(_) => panic!("{what}: a stream has no steps"),
            };
            let calls = stats.calls;
            assert!((fewest..=most).contains(&calls), "{what}: {calls}, claimed {fewest}..={most}");

            let headers = if feed == Feed::Gathered { head_bytes } else { 0 };
            let claimed = u64::from(spec.copies_per_byte) * (bytes - headers)
                + u64::from(spec.header_copies) * headers;
            assert_eq!(stats.copied_bytes, claimed, "{what}: copied bytes");
        }
    }
}

/// A track has single packets of all lengths between its runs. The socket's segment size is set
/// once: neither a shorter packet nor the run behind it costs a call more than it claims.
#[test]
fn a_shorter_packet_between_runs_costs_no_call_of_its_own() {
    let shape = Shape { last_bytes: 700, ..Shape::full(41) };
    let asset = Asset::new(shape);
    let (run, single) = (0..40, 40..41);
    let pieces = [asset.pieces(run.clone()), asset.pieces(single.clone())];
    for (spec, feed, mut path) in stream_paths() {
        let SystemCalls::PerRun(claimed) = spec.system_calls else { continue };
        let peer = Peer::on_loopback();
        let mut to = peer.destination();
        let mut first = SendStats::default();
        let batch = asset.batch(feed, run.clone(), &pieces[0]);
        path.send(&batch, &mut to, &mut first).unwrap();
        for (packets, pieces) in [(&single, &pieces[1]), (&run, &pieces[0])] {
            let mut stats = SendStats::default();
            let batch = asset.batch(feed, packets.clone(), pieces);
            assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(packets.len() as u32), "{spec}");
            assert_eq!(stats.calls, u64::from(claimed), "{spec}: {packets:?}");
        }
    }
}

/// At full length the claim has no slack: both bounds above are the same number.
#[test]
fn the_claimed_number_of_calls_is_one_number() {
    let (at_least, at_most) = run_packets(SEGMENTS_MAX);
    assert_eq!(PACKETS.div_ceil(at_least), PACKETS.div_ceil(at_most));
}

#[test]
fn an_empty_batch_costs_nothing() {
    let asset = Asset::new(Shape { last_bytes: 0, ..Shape::full(0) });
    for (spec, feed, mut path) in stream_paths() {
        let mut peer = Peer::on_loopback();
        let mut stats = SendStats::default();
        let mut to = peer.destination();
        send_from(0, &asset, (feed, &mut *path), &mut to, &mut peer, &mut stats).unwrap();
        assert_eq!(stats, SendStats::default(), "{spec}");
        assert_eq!(peer.all(0).len(), 0, "{spec}");
    }
}
