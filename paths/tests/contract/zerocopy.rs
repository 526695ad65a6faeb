// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counted copies of zero-copy sends are exactly those that the kernel made.

use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use paths::{Destination, DownloadPath, Feed, Open, SEGMENTS_MAX, SendStats, Spec, StreamPath};
use paths::{Host, Transport, find};
use rustix::process::Resource;

use crate::asset::{Asset, Shape};
use crate::harness::network::{self, Owner};
use crate::harness::skip;
use crate::peer::{Peer, assert_received};

const TIMEOUT: Duration = Duration::from_secs(60);

fn usable(transport: Transport) -> Option<&'static Spec> {
    let spec = find(transport, "zerocopy").unwrap();
    match (spec.probe)(&Host::here()) {
        Ok(()) => Some(spec),
        Err(reason) => {
            skip(format!("{spec}: {reason}"));
            None
        }
    }
}

fn stream_path() -> Option<Box<dyn StreamPath>> {
    let Open::Stream { open, .. } = usable(Transport::Udp)?.open else { panic!("a stream") };
    Some(open().unwrap())
}

fn download_path() -> Option<Box<dyn DownloadPath>> {
    let Open::Download(open) = usable(Transport::Tcp)?.open else { panic!("a download") };
    Some(open().unwrap())
}

/// Sends `asset`, then its first packet again and again until `done`: each send reads a report.
fn send_until(
    path: &mut dyn StreamPath,
    asset: &Asset,
    to: &mut Destination,
    done: impl Fn(&SendStats) -> bool,
) -> SendStats {
    let mut stats = SendStats::default();
    let all = asset.batch(Feed::Image, 0..asset.packets(), &[]);
    assert_eq!(path.send(&all, to, &mut stats), Ok(asset.packets()));
    let start = Instant::now();
    while !done(&stats) && start.elapsed() < TIMEOUT {
        assert_eq!(path.send(&asset.batch(Feed::Image, 0..1, &[]), to, &mut stats), Ok(1));
    }
    stats
}

#[test]
fn loopback_copies_every_datagram_and_says_so() {
    let Some(mut path) = stream_path() else { return };
    let asset = Asset::new(Shape { offset: 1, ..Shape::full(300) });
    for segments_max in [SEGMENTS_MAX, 7, 1] {
        let peer = Peer::on_loopback();
        let mut to = peer.destination();
        to.limit_segments(segments_max);
        let all_copied = |stats: &SendStats| stats.zerocopy_copied_bytes == stats.bytes;
        let stats = send_until(&mut *path, &asset, &mut to, all_copied);
        assert_eq!(stats.zerocopy_copied_bytes, stats.bytes, "segments {segments_max}");
        assert_eq!(stats.copied_bytes, 0, "segments {segments_max}");
    }
}

/// Refused sends use up numbers of their own; they count nothing and later counts stay right.
#[test]
fn a_fall_does_not_confuse_the_count() {
    network::run(Owner::User, "ip link set lo up mtu 1000", "zerocopy::inside_a_small_mtu");
}

#[test]
#[ignore = "run by a_fall_does_not_confuse_the_count"]
fn inside_a_small_mtu() {
    let Some(mut path) = stream_path() else { return };
    let asset = Asset::new(Shape::full(60));
    let peer = Peer::on_loopback();
    let mut to = peer.destination();
    let all_copied = |stats: &SendStats| stats.zerocopy_copied_bytes == stats.bytes;
    let stats = send_until(&mut *path, &asset, &mut to, all_copied);
    assert!(to.take_segment_limit_lowered().is_some());
    assert_eq!(stats.zerocopy_copied_bytes, stats.bytes);
}

/// A device that sends from the pages (here: discards) causes no copy, whether it or the kernel
/// cuts the run.
#[test]
fn a_device_copies_nothing() {
    let setup = "ip link add sink type ifb && ip addr add 10.98.0.1/24 dev sink \
                 && ip link set sink up \
                 && ip neigh add 10.98.0.2 lladdr 02:00:00:00:00:02 dev sink nud permanent";
    network::run(Owner::User, setup, "zerocopy::inside_a_sink");
    let setup = format!("{setup} && ethtool -K sink tx-udp-segmentation off");
    network::run(Owner::User, &setup, "zerocopy::inside_a_sink");
}

#[test]
#[ignore = "run by a_device_copies_nothing"]
fn inside_a_sink() {
    let Some(mut path) = stream_path() else { return };
    let asset = Asset::new(Shape { offset: 78, ..Shape::full(300) });
    let socket = UdpSocket::bind("10.98.0.1:0").unwrap();
    socket.connect("10.98.0.2:5004").unwrap();
    let mut to = Destination::new(socket, "a sink").unwrap();
    // Loopback needs a few runs until all reports have arrived.
    let stats = send_until(&mut *path, &asset, &mut to, |stats| stats.packets >= 600);
    assert_eq!((stats.zerocopy_copied_bytes, stats.copied_bytes, stats.refused), (0, 0, 0));
    assert!(to.take_segment_limit_lowered().is_none());
}

/// Without lockable memory the kernel refuses zero copies, and bytes are copied instead, and
/// counted.
#[test]
fn without_memory_to_lock_bytes_are_copied_and_counted() {
    network::run(Owner::User, "ip link set lo up", "zerocopy::inside_locked_memory_limit");
}

#[test]
#[ignore = "run by without_memory_to_lock_bytes_are_copied_and_counted"]
fn inside_locked_memory_limit() {
    let mut limit = rustix::process::getrlimit(Resource::Memlock);
    limit.current = Some(0);
    rustix::process::setrlimit(Resource::Memlock, limit).unwrap();
    let asset = Asset::new(Shape::full(100));
    if let Some(mut path) = stream_path() {
        let mut peer = Peer::on_loopback();
        let mut to = peer.destination();
        let mut stats = SendStats::default();
        let all = asset.batch(Feed::Image, 0..100, &[]);
        assert_eq!(path.send(&all, &mut to, &mut stats), Ok(100));
        assert_received(&peer.all(100), &asset.datagrams, "without memory to lock");
        assert_eq!((stats.copied_bytes, stats.zerocopy_copied_bytes), (stats.bytes, 0));
        assert_eq!((stats.refused, to.take_segment_limit_lowered()), (0, None));
    }
    if let Some(mut path) = download_path() {
        let (server, _client) = connection();
        let mut stats = SendStats::default();
        let sent = path.send(&asset.source, 0, 20_000, server.as_fd(), &mut stats);
        assert_eq!((sent, stats.copied_bytes), (Ok(20_000), 20_000));
        assert_eq!(stats.zerocopy_copied_bytes, 0);
    }
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    (server, client)
}

/// True when all steps except the last are reported; its acknowledgement may be on its way.
fn is_settled(stats: &SendStats) -> bool {
    (stats.bytes - 1000..=stats.bytes).contains(&stats.zerocopy_copied_bytes)
}

#[test]
fn loopback_copies_every_download_and_says_so() {
    let Some(mut path) = download_path() else { return };
    let asset = Asset::new(Shape::full(200));
    let mut connections = [connection(), connection()];
    let mut stats_of_each = [SendStats::default(); 2];
    let mut buffer = vec![0; 1000];
    let start = Instant::now();
    // Connections alternate and the peers read: the kernel reports acknowledged bytes.
    while start.elapsed() < TIMEOUT {
        for ((server, client), stats) in connections.iter_mut().zip(&mut stats_of_each) {
            assert_eq!(path.send(&asset.source, 0, 1000, server.as_fd(), stats), Ok(1000));
            client.read_exact(&mut buffer).unwrap();
        }
        if stats_of_each[0].bytes >= 100_000 && stats_of_each.iter().all(is_settled) {
            break;
        }
    }
    for stats in stats_of_each {
        assert!(is_settled(&stats) && stats.copied_bytes == 0, "{stats:?}");
    }
}

/// A path remembers a limited number of sockets. It still serves a forgotten one, by a copy.
#[test]
fn a_forgotten_connection_is_served_by_a_copy() {
    let Some(mut path) = download_path() else { return };
    let asset = Asset::new(Shape::full(20));
    let (server, mut client) = connection();
    let mut send = |server: &TcpStream| {
        let mut stats = SendStats::default();
        let sent = path.send(&asset.source, 0, 1000, server.as_fd(), &mut stats);
        assert_eq!(sent, Ok(1000));
        stats.copied_bytes
    };
    assert_eq!([send(&server), send(&server)], [0, 0]);
    for _ in 0..300 {
        let (other, _client) = connection();
        assert_eq!(send(&other), 0);
    }
    assert_eq!([send(&server), send(&server)], [1000, 1000]);
    let mut got = vec![0; 4000];
    client.read_exact(&mut got).unwrap();
    let (other, _) = connection();
    assert_eq!(send(&other), 0);
}

/// Paths that refer to pages by a ring: each send is notified.
const RINGS: [(Transport, &str); 2] =
    [(Transport::Rtp, "uring_zc"), (Transport::Udp, "uring_send_zc")];

/// Sends 600 packets by each ring that this host has; returns the counters of each.
fn by_rings(to: impl Fn() -> Destination) -> Vec<(&'static Spec, SendStats)> {
    let asset = Asset::new(Shape { offset: 78, ..Shape::full(300) });
    let pieces = asset.pieces(0..300);
    let mut stats_of_each = Vec::new();
    for (spec, feed, mut path) in crate::stream_paths() {
        if RINGS.contains(&(spec.transport, spec.name)) {
            let (mut to, mut stats) = (to(), SendStats::default());
            for _ in 0..2 {
                let batch = asset.batch(feed, 0..300, &pieces);
                assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(300), "{spec}");
            }
            stats_of_each.push((spec, stats));
        }
    }
    stats_of_each
}

#[test]
fn loopback_copies_what_rings_send_and_says_so() {
    let peer = Peer::on_loopback();
    for (spec, stats) in by_rings(|| peer.destination()) {
        assert_eq!(stats.zerocopy_copied_bytes, stats.bytes, "{spec}");
    }
}

#[test]
fn a_device_copies_nothing_that_rings_send() {
    let setup = "ip link add sink type ifb && ip addr add 10.98.0.1/24 dev sink \
                 && ip link set sink up \
                 && ip neigh add 10.98.0.2 lladdr 02:00:00:00:00:02 dev sink nud permanent";
    network::run(Owner::User, setup, "zerocopy::rings_inside_a_sink");
    let setup = format!("{setup} && ethtool -K sink tx-udp-segmentation off");
    network::run(Owner::User, &setup, "zerocopy::rings_inside_a_sink");
}

#[test]
#[ignore = "run by a_device_copies_nothing_that_rings_send"]
fn rings_inside_a_sink() {
    let to_the_sink = || {
        let socket = UdpSocket::bind("10.98.0.1:0").unwrap();
        socket.connect("10.98.0.2:5004").unwrap();
        Destination::new(socket, "a sink").unwrap()
    };
    for (spec, stats) in by_rings(to_the_sink) {
        assert_eq!((stats.zerocopy_copied_bytes, stats.refused), (0, 0), "{spec}");
        let claimed = u64::from(spec.copies_per_byte) * stats.bytes;
        assert_eq!(stats.copied_bytes, claimed, "{spec}");
    }
}
