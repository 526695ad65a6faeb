// SPDX-License-Identifier: MIT OR Apache-2.0
//! A batch of any shape arrives packet by packet, as intended.

use paths::{Feed, SEGMENTS_MAX, SendStats};

use crate::asset::{Asset, EngineHeaders, HEAD_BYTES, SEGMENT_BYTES, Shape};
use crate::peer::{Peer, assert_received};
use crate::{send_from, stream_paths};

const PAGE_BYTES: usize = 4096;

/// Shapes at offset 0, without gaps.
fn shapes() -> Vec<Shape> {
    let last = |packets, last_bytes| Shape { last_bytes, ..Shape::full(packets) };
    let sized = |packets, segment_bytes, last_bytes| Shape {
        segment_bytes,
        last_bytes,
        ..Shape::full(packets)
    };
    let mut shapes = vec![
        last(0, 0),
        last(1, HEAD_BYTES + 1),
        last(1, SEGMENT_BYTES - 1),
        last(1, SEGMENT_BYTES),
        // One byte past a packet: a second one of a single byte of payload.
        last(2, HEAD_BYTES + 1),
        last(2, SEGMENT_BYTES - 1),
        // More small segments than one call may carry.
        sized(SEGMENTS_MAX as usize * 2 + 2, 200, 200),
        sized(3, 20_000, 19_999),
        // Two of these exceed one call.
        sized(2, 60_000, 60_000),
        sized(2, 65_507, 13),
    ];
    // A page less a byte, a page, a page and a byte: of payloads, of datagrams, and as packet size.
    for bytes in PAGE_BYTES - 1..=PAGE_BYTES + 1 {
        shapes.push(last(4, bytes - 3 * (SEGMENT_BYTES - HEAD_BYTES) + HEAD_BYTES));
        shapes.push(last(4, bytes - 3 * SEGMENT_BYTES));
        shapes.push(sized(20, bytes, bytes));
    }
    // Numbers of packets around the longest run, and hundreds.
    shapes.extend([45, 46, 47, 48, 49, 50, 64, 65, 98, 300].map(Shape::full));
    shapes.push(last(300, 500));
    shapes
}

fn arrives(shape: Shape, segments_max: u32, address: &str) {
    let asset = Asset::new(shape);
    for (spec, feed, mut path) in stream_paths() {
        if feed == Feed::Image && shape.gap_bytes > 0 {
            continue;
        }
        let what = format!("{spec} {shape:?} segments {segments_max} to {address}");
        let mut peer = Peer::at(address).unwrap();
        let mut to = peer.destination();
        to.limit_segments(segments_max);
        let mut stats = SendStats::default();
        let sent = send_from(0, &asset, (feed, &mut *path), &mut to, &mut peer, &mut stats);
        assert_eq!(sent, Ok(()), "{what}");
        assert_received(&peer.all(shape.packets), &asset.datagrams, &what);
        let bytes: usize = asset.datagrams.iter().map(Vec::len).sum();
        assert_eq!((stats.packets, stats.bytes), (shape.packets as u64, bytes as u64), "{what}");
        assert_eq!(to.take_segment_limit_lowered(), None, "{what}");
    }
}

#[test]
fn every_shape_arrives_at_every_number_of_segments() {
    for shape in shapes() {
        for segments_max in [SEGMENTS_MAX, 48, 7, 1] {
            arrives(shape, segments_max, "127.0.0.1:0");
        }
    }
}

#[test]
fn every_shape_arrives_from_offsets_off_the_page() {
    for shape in shapes() {
        for offset in [1, 4, 2049, PAGE_BYTES - 1, PAGE_BYTES + 1] {
            arrives(Shape { offset, ..shape }, SEGMENTS_MAX, "127.0.0.1:0");
        }
    }
}

/// The headers include those that the kernel would make differently.
#[test]
fn headers_of_every_kind_arrive_as_they_are() {
    for heads in
        [EngineHeaders::Even, EngineHeaders::Uneven, EngineHeaders::Jumping, EngineHeaders::Noise]
    {
        for packets in [1, 2, 8, 300] {
            let shape = Shape { heads, last_bytes: 500, offset: 78, ..Shape::full(packets) };
            for segments_max in [SEGMENTS_MAX, 7, 1] {
                arrives(shape, segments_max, "127.0.0.1:0");
            }
            // The file also has a gap between packets.
            arrives(Shape { gap_bytes: 4, ..shape }, SEGMENTS_MAX, "127.0.0.1:0");
        }
    }
}

#[test]
fn payloads_with_gaps_arrive_without_them() {
    for packets in [1, 7, 49, 300] {
        for last_ts_packets in [1, 3, 7] {
            let last_bytes = HEAD_BYTES + last_ts_packets * 188;
            // Transport stream with 4 bytes of time before each packet; and pieces further apart
            // than any buffer.
            for gap_bytes in [4, 20_000] {
                if gap_bytes > 4 && packets > 7 {
                    continue;
                }
                let shape = Shape { last_bytes, offset: 4, gap_bytes, ..Shape::full(packets) };
                for segments_max in [SEGMENTS_MAX, 7, 1] {
                    arrives(shape, segments_max, "127.0.0.1:0");
                }
            }
        }
    }
}

/// Packets with more pieces than a datagram may have fragments arrive.
#[test]
fn a_payload_spread_over_many_pages_arrives() {
    let (segment_bytes, last_bytes) = (HEAD_BYTES + 40 * 188, HEAD_BYTES + 30 * 188);
    for gap_bytes in [4, 20_000] {
        let shape = Shape { segment_bytes, last_bytes, gap_bytes, ..Shape::full(4) };
        for segments_max in [SEGMENTS_MAX, 1] {
            arrives(shape, segments_max, "127.0.0.1:0");
        }
    }
}

#[test]
fn every_shape_arrives_over_ipv6() {
    if let Err(error) = Peer::at("[::1]:0") {
        eprintln!("skip: no IPv6 loopback: {error}");
        return;
    }
    for shape in shapes() {
        arrives(Shape { offset: 5, ..shape }, SEGMENTS_MAX, "[::1]:0");
    }
}

/// A session may change its path in mid-stream; the path sets the socket's segmentation.
#[test]
fn paths_and_packet_sizes_may_change_from_batch_to_batch() {
    let large = Asset::new(Shape::full(60));
    let small = Asset::new(Shape { segment_bytes: 200, last_bytes: 150, ..Shape::full(60) });
    let mut peer = Peer::on_loopback();
    let mut to = peer.destination();
    let mut stats = SendStats::default();
    let mut expected = Vec::new();
    for _ in 0..2 {
        for (_, feed, mut path) in stream_paths() {
            for asset in [&large, &small] {
                let sent = send_from(0, asset, (feed, &mut *path), &mut to, &mut peer, &mut stats);
                assert_eq!(sent, Ok(()));
                expected.extend_from_slice(&asset.datagrams);
            }
        }
    }
    assert_received(&peer.all(expected.len()), &expected, "changing paths");
}

/// A path belongs to one thread at a time, not to the one that opened it.
#[test]
fn a_path_serves_whichever_thread_holds_it() {
    let asset = Asset::new(Shape::full(60));
    for (spec, feed, mut path) in stream_paths() {
        let mut peer = Peer::on_loopback();
        let mut to = peer.destination();
        for _ in 0..3 {
            path = std::thread::scope(|scope| {
                let (asset, to, peer) = (&asset, &mut to, &mut peer);
                let sending = scope.spawn(move || {
                    let mut stats = SendStats::default();
                    send_from(0, asset, (feed, &mut *path), to, peer, &mut stats).unwrap();
                    path
                });
                sending.join().unwrap()
            });
        }
        assert_received(&peer.all(180), &vec![asset.datagrams.clone(); 3].concat(), spec.name);
    }
}
