// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths by device: whole frames through a veth pair to a socket, whose kernel checks them.
//!
//! Packets leave by one device and arrive at the other ([`PAIR`]). IP drops a frame with a wrong
//! checksum or length, UDP counts one (`InCsumErrors`), and the bytes are compared here.
//!
//! Source: `packet(7)`.
//!
//! Does not test other devices. The laboratory measures a card's driver, with `--interface`.

use std::net::UdpSocket;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use paths::{
    Destination, Feed, Host, SendError, SendStats, Spec, StreamPath, SystemCalls, Unframed, Via,
};

use crate::asset::{Asset, HEAD_BYTES, SEGMENT_BYTES, Shape};
use crate::harness::network::{self, Owner, PAIR, sh};
use crate::harness::tracer::{self, trace_of};
use crate::peer::{Peer, assert_received};
use crate::{send_from, stream_paths_via};

const NEAR: &str = "10.99.0.1";
const FAR: &str = "10.99.0.2";

/// Runs one network at a time: locked memory is counted per user, and many hosts grant only 8 MiB.
pub(crate) fn run_alone(setup: &str, name: &str) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock();
    network::run(Owner::User, setup, name);
    drop(alone);
}

pub(crate) fn device_paths() -> Vec<(&'static Spec, Feed, Box<dyn StreamPath>)> {
    stream_paths_via(Via::Device)
}

pub(crate) fn far() -> Peer {
    Peer::at(&format!("{FAR}:0")).unwrap()
}

fn destination(target: &str) -> Destination {
    let socket = UdpSocket::bind((NEAR, 0)).unwrap();
    socket.connect(target).unwrap();
    Destination::new(socket, target).unwrap()
}

pub(crate) fn leading_to(peer: &Peer) -> Destination {
    destination(&peer.address().to_string())
}

/// Returns the number of datagrams that the kernel has dropped for their UDP checksum.
pub(crate) fn wrong_checksums() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// Sends all of the asset, waiting where the ring is full.
pub(crate) fn send_all(
    asset: &Asset,
    path: &mut (dyn StreamPath + 'static),
    to: &mut Destination,
    peer: &mut Peer,
    stats: &mut SendStats,
) -> u64 {
    let start = Instant::now();
    let mut refusals = 0;
    loop {
        let next = stats.packets as u32;
        match send_from(next, asset, (Feed::Gathered, path), to, peer, stats) {
            Ok(()) => return refusals,
            Err(SendError::Blocked) if start.elapsed() < Duration::from_secs(20) => {
                refusals += 1;
                std::thread::yield_now();
            }
            Err(error) => panic!("{error} after {next} packets"),
        }
    }
}

#[test]
fn frames_of_every_shape_arrive() {
    run_alone(PAIR, "frames::inside_a_pair");
}

#[test]
#[ignore = "run by frames_of_every_shape_arrive"]
fn inside_a_pair() {
    let sized = |packets, bytes, last_bytes| Shape {
        segment_bytes: bytes,
        last_bytes,
        ..Shape::full(packets)
    };
    let mut shapes = vec![Shape { last_bytes: 0, ..Shape::full(0) }];
    shapes.extend((HEAD_BYTES + 1..HEAD_BYTES + 70).map(|bytes| sized(3, bytes, HEAD_BYTES + 1)));
    for bytes in [200, 1327, 1328, 1329, 1471, 1472] {
        shapes.extend([1, 2, 49].map(|packets| sized(packets, bytes, bytes)));
        shapes.push(sized(5, bytes, HEAD_BYTES + 5));
    }
    // Sizes lie around the ring's 512 slots, and wrap around it more than once.
    shapes.extend([511, 512, 513, 1200].map(Shape::full));
    for offset in [1, 4, 2049, 4095, 4097] {
        shapes.push(Shape { offset, ..Shape::full(60) });
    }
    for gap_bytes in [4, 4096, 20_000] {
        for packets in [1, 7, 100] {
            shapes.push(Shape { gap_bytes, last_bytes: 200, offset: 4, ..Shape::full(packets) });
        }
    }
    for (spec, _, mut path) in device_paths() {
        for shape in &shapes {
            let what = format!("{spec} {shape:?}");
            let asset = Asset::new(*shape);
            let mut peer = far();
            let mut to = leading_to(&peer);
            let mut stats = SendStats::default();
            send_all(&asset, &mut *path, &mut to, &mut peer, &mut stats);
            assert_received(&peer.all(shape.packets), &asset.datagrams, &what);
            let bytes: usize = asset.datagrams.iter().map(Vec::len).sum();
            assert_eq!(
                (stats.packets, stats.bytes),
                (shape.packets as u64, bytes as u64),
                "{what}"
            );
        }
    }
    assert_eq!(wrong_checksums(), 0);
}

/// Headers of other sizes than RTP's, including none, are sent as part of the datagram.
#[test]
fn headers_of_any_size_are_sent() {
    run_alone(PAIR, "frames::inside_a_pair_with_other_headers");
}

#[test]
#[ignore = "run by headers_of_any_size_are_sent"]
fn inside_a_pair_with_other_headers() {
    let asset = Asset::new(Shape::full(40));
    let heads: Vec<u8> = (0..40 * 40).map(|n| (n * 7) as u8).collect();
    for (spec, _, mut path) in device_paths() {
        for head_bytes in [0, 1, 8, 11, 13, 16, 40] {
            let mut peer = far();
            let mut to = leading_to(&peer);
            let heads = &heads[..40 * head_bytes];
            let bytes = 500;
            let pieces = [paths::Piece { offset: 3, bytes: 40 * bytes as u64 }];
            let segment_bytes = (head_bytes + bytes) as u32;
            let batch = paths::Batch::gathered(&asset.source, 40, segment_bytes, heads, &pieces);
            let mut stats = SendStats::default();
            assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(40), "{spec} {head_bytes}");
            let mut content = vec![0; 40 * bytes];
            let file = asset.source.file();
            std::os::unix::fs::FileExt::read_exact_at(file, &mut content, 3).unwrap();
            let expected: Vec<Vec<u8>> = (0..40)
                .map(|n| [&heads[n * head_bytes..][..head_bytes], &content[n * bytes..][..bytes]])
                .map(|parts| parts.concat())
                .collect();
            assert_received(&peer.all(40), &expected, &format!("{spec} {head_bytes}"));
        }
    }
    assert_eq!(wrong_checksums(), 0);
}

#[test]
fn frames_cost_the_calls_and_copies_they_claim() {
    run_alone(PAIR, "frames::inside_a_pair_counted");
}

#[test]
#[ignore = "run by frames_cost_the_calls_and_copies_they_claim"]
fn inside_a_pair_counted() {
    const PACKETS: u64 = 460;
    let asset = Asset::new(Shape::full(PACKETS as usize));
    let pieces = asset.pieces(0..PACKETS as u32);
    let bytes: u64 = asset.datagrams.iter().map(|datagram| datagram.len() as u64).sum();
    let headers = PACKETS * HEAD_BYTES as u64;
    for (spec, feed, mut path) in device_paths() {
        let peer = far();
        let mut to = leading_to(&peer);
        let batch = asset.batch(feed, 0..PACKETS as u32, &pieces);
        let mut first = SendStats::default();
        assert_eq!(path.send(&batch, &mut to, &mut first), Ok(PACKETS as u32), "{spec}");
        // The second begins at the end of the ring and ends at its start.
        for round in 0..3 {
            let mut stats = SendStats::default();
            assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(PACKETS as u32), "{spec}");
            assert_eq!((stats.packets, stats.bytes, stats.refused), (PACKETS, bytes, 0), "{spec}");
            let claimed = u64::from(spec.copies_per_byte) * (bytes - headers)
                + u64::from(spec.header_copies) * headers;
            assert_eq!(stats.copied_bytes, claimed, "{spec}: copied bytes, round {round}");
            let SystemCalls::PerBatch(calls) = spec.system_calls else {
                panic!("{spec} is per batch")
            };
            let mut calls = u64::from(calls);
            if spec.name == "xdp" && Host::here().kernel() < (6, 17) {
                // Older kernels send 32 frames a call.
                calls += PACKETS.div_ceil(32) - 1;
            }
            assert_eq!(stats.calls, calls, "{spec}: calls, round {round}");
        }
    }
}

#[test]
fn a_tracer_counts_the_calls_that_frames_take() {
    run_alone(PAIR, "frames::inside_a_pair_with_a_tracer");
}

#[test]
#[ignore = "run by a_tracer_counts_the_calls_that_frames_take"]
fn inside_a_pair_with_a_tracer() {
    let Some(trace) = trace_of("frames::inside_a_traced_pair") else { return };
    let counts = tracer::counts(&trace);
    assert_eq!(counts.len(), 2 * device_paths().len(), "{counts:?}");
    for of_path in counts.chunks(2) {
        let [first, second] = of_path else { panic!("{of_path:?}") };
        // The first batch opens the ring and queries the route; the trace also has calls of the
        // allocator and the close of the query's socket.
        assert!(first.seen >= first.counted && first.counted > second.counted, "{of_path:?}");
        assert_eq!(second.seen, second.counted, "{second:?}: calls traced, calls in the stats");
    }
}

#[test]
#[ignore = "run by inside_a_pair_with_a_tracer"]
fn inside_a_traced_pair() {
    let asset = Asset::new(Shape::full(100));
    let pieces = asset.pieces(0..100);
    for (spec, feed, mut path) in device_paths() {
        let peer = far();
        let mut to = leading_to(&peer);
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
}

#[test]
fn a_file_cut_while_frames_are_sent_is_sent_up_to_the_cut() {
    run_alone(PAIR, "frames::inside_a_pair_with_a_cut_file");
}

#[test]
#[ignore = "run by a_file_cut_while_frames_are_sent_is_sent_up_to_the_cut"]
fn inside_a_pair_with_a_cut_file() {
    let payload_bytes = (SEGMENT_BYTES - HEAD_BYTES) as u64;
    for (spec, _, mut path) in device_paths() {
        for gap_bytes in [0, 4, 5000] {
            for cut_after in [0, 60 * payload_bytes, 60 * payload_bytes + 700, 15 * 4096] {
                let shape = Shape { offset: 100, gap_bytes, ..Shape::full(200) };
                let asset = Asset::new(shape);
                let what = format!("{spec} gap {gap_bytes} cut after {cut_after}");
                asset.source.file().set_len(cut_after).unwrap();
                let end_of = |packet: u32| {
                    asset.pieces(packet..packet + 1).last().map(|piece| piece.offset + piece.bytes)
                };
                let whole = (0..200).take_while(|n| end_of(*n) <= Some(cut_after)).count();
                let mut peer = far();
                let mut to = leading_to(&peer);
                let mut stats = SendStats::default();
                let mut send = |first, stats: &mut SendStats, peer: &mut Peer| {
                    send_from(first, &asset, (Feed::Gathered, &mut *path), &mut to, peer, stats)
                };
                let shrunk = Err(SendError::Shrunk { at: cut_after });
                assert_eq!(send(0, &mut stats, &mut peer), shrunk, "{what}");
                assert_eq!(stats.packets, whole as u64, "{what}");
                assert_received(&peer.all(whole), &asset.datagrams[..whole], &what);
                let mut stats = SendStats::default();
                assert_eq!(send(whole as u32, &mut stats, &mut peer), shrunk, "{what}: again");
                assert_eq!((stats.packets, peer.all(0).len()), (0, 0), "{what}: again");
            }
        }
    }
    assert_eq!(wrong_checksums(), 0);
}

#[test]
fn unframed_destinations_are_refused_by_name() {
    run_alone(PAIR, "frames::inside_a_pair_with_refusals");
}

#[test]
#[ignore = "run by unframed_destinations_are_refused_by_name"]
fn inside_a_pair_with_refusals() {
    sh("ip route add 10.98.0.0/24 dev lo");
    let sized = |bytes| Shape { segment_bytes: bytes, last_bytes: bytes, ..Shape::full(3) };
    let say = |path: &mut dyn StreamPath, target: &str, bytes: usize| {
        let asset = Asset::new(sized(bytes));
        let pieces = asset.pieces(0..3);
        let batch = asset.batch(Feed::Gathered, 0..3, &pieces);
        let mut stats = SendStats::default();
        let refusal = path.send(&batch, &mut destination(target), &mut stats).unwrap_err();
        assert_eq!(stats.packets, 0, "{refusal}");
        refusal
    };
    for (spec, _, mut path) in device_paths() {
        let path = &mut *path;
        let too_large = say(path, "10.99.0.2:9", 1473).to_string();
        let expected = "a datagram of 1473 bytes; left carries 1472 in a frame";
        assert_eq!(too_large, format!("frames to 10.99.0.2:9: {expected}"), "{spec}");
        let unknown = say(path, "10.99.0.77:9", 1328).to_string();
        let expected = "no neighbour entry for 10.99.0.77 on left; \
                    send to it by a socket first, or make the entry permanent";
        assert_eq!(unknown, format!("frames to 10.99.0.77:9: {expected}"), "{spec}");
        let loopback = say(path, "10.98.0.5:9", 1328).to_string();
        let expected = "lo is not an Ethernet device (type 772 of netdevice(7))";
        assert_eq!(loopback, format!("frames to 10.98.0.5:9: {expected}"), "{spec}");
    }
    // A neighbour that is being resolved blocks the path, which then sends to it.
    for (number, (spec, _, mut path)) in device_paths().into_iter().enumerate() {
        let address = format!("10.99.0.{}", 100 + number);
        let to = destination(&format!("{address}:9"));
        to.socket().send(b"who are you").unwrap();
        let blocked = say(&mut *path, &format!("{address}:9"), 1328);
        assert_eq!(blocked, SendError::Blocked, "{spec}");
        sh(&format!("ip neigh replace {address} lladdr 02:00:00:00:00:02 dev left nud permanent"));
        let asset = Asset::new(Shape::full(3));
        let pieces = asset.pieces(0..3);
        let batch = asset.batch(Feed::Gathered, 0..3, &pieces);
        let mut to = destination(&format!("{address}:9"));
        assert_eq!(path.send(&batch, &mut to, &mut SendStats::default()), Ok(3), "{spec}");
    }
}

/// Slots of a packet ring grow with the MTU; a frame of an XDP socket has at most a page.
#[test]
fn jumbo_frames_go_where_they_fit() {
    let setup = format!("{PAIR}\nip link set left mtu 9000\nip link set right mtu 9000");
    run_alone(&setup, "frames::inside_a_jumbo_pair");
}

#[test]
#[ignore = "run by jumbo_frames_go_where_they_fit"]
fn inside_a_jumbo_pair() {
    for (spec, _, mut path) in device_paths() {
        for bytes in [1328, 4054, 4055, 8972] {
            let shape = Shape { segment_bytes: bytes, last_bytes: bytes, ..Shape::full(200) };
            let asset = Asset::new(shape);
            let mut peer = far();
            let mut to = leading_to(&peer);
            let mut stats = SendStats::default();
            if spec.name == "xdp" && bytes > 4054 {
                let pieces = asset.pieces(0..200);
                let batch = asset.batch(Feed::Gathered, 0..200, &pieces);
                let refusal = path.send(&batch, &mut to, &mut stats).unwrap_err();
                let SendError::Unframed { reason, .. } = refusal else { panic!("{refusal}") };
                let (bytes, most, device) = (bytes as u32, 4054, "left".into());
                assert_eq!(reason, Unframed::TooLarge { bytes, most, device });
                continue;
            }
            send_all(&asset, &mut *path, &mut to, &mut peer, &mut stats);
            assert_received(&peer.all(200), &asset.datagrams, &format!("{spec} {bytes}"));
        }
    }
    assert_eq!(wrong_checksums(), 0);
}

#[test]
fn destinations_take_turns_on_one_path() {
    run_alone(PAIR, "frames::inside_a_pair_with_many_destinations");
}

#[test]
#[ignore = "run by destinations_take_turns_on_one_path"]
fn inside_a_pair_with_many_destinations() {
    let asset = Asset::new(Shape::full(70));
    for (spec, feed, mut path) in device_paths() {
        let mut ends: Vec<_> =
            (0..5).map(|_| far()).map(|peer| (leading_to(&peer), peer)).collect();
        let mut stats = SendStats::default();
        for first in (0..70).step_by(7) {
            for (to, _) in &mut ends {
                let pieces = asset.pieces(first..first + 7);
                let batch = asset.batch(feed, first..first + 7, &pieces);
                assert_eq!(path.send(&batch, to, &mut stats), Ok(7), "{spec}");
            }
        }
        for (_, peer) in &mut ends {
            assert_received(&peer.all(70), &asset.datagrams, &spec.to_string());
        }
    }
    assert_eq!(wrong_checksums(), 0);
}
