// SPDX-License-Identifier: MIT OR Apache-2.0
//! Departure times: batches arrive whole, in order and, where the device has a queue for them, at
//! their times.
//!
//! The times need a kernel with `fq` or `etf`; elsewhere those tests are skipped with `tc`'s
//! answer, and `kernel/qemu/contract.sh` runs them in a guest that has both.

use std::time::{Duration, Instant};

use paths::{Departure, DepartureQueue, Destination, Feed, SendStats, StreamPath};

use crate::asset::{Asset, Shape};
use crate::harness::network::{self, Owner, PAIR};
use crate::peer::{Peer, assert_received};
use crate::stream_paths;

const PACKETS_PER_DEPARTURE: u32 = 2;

/// Sends `asset` in batches of a few packets: the first to leave at `first`, each of the others
/// `apart` after the one before.
fn send_spread(
    asset: &Asset,
    (feed, path): (Feed, &mut dyn StreamPath),
    to: &mut Destination,
    queue: &DepartureQueue,
    (first, apart): (Instant, Duration),
) -> SendStats {
    let (clock, mut stats) = (queue.reading(), SendStats::default());
    let mut next = 0;
    while next < asset.packets() {
        let end = asset.packets().min(next + PACKETS_PER_DEPARTURE);
        let pieces = asset.pieces(next..end);
        let at = clock.departure(first + apart * (next / PACKETS_PER_DEPARTURE));
        let batch = asset.batch(feed, next..end, &pieces).departing(at);
        assert_eq!(path.send(&batch, to, &mut stats), Ok(end - next), "packet {next}");
        next = end;
    }
    stats
}

#[test]
fn datagrams_with_departure_times_arrive_whole_and_in_order() {
    let queue = DepartureQueue::fq("lo");
    let mut carrying = Vec::new();
    for (spec, feed, mut path) in stream_paths() {
        let asset = Asset::new(Shape::full(61));
        let (mut peer, clocked) = (Peer::on_loopback(), path.carries_departures());
        let mut to = peer.destination();
        if clocked {
            to.use_departures(&queue).unwrap();
            carrying.push(spec.name);
        }
        let times = (Instant::now(), Duration::from_micros(10));
        let stats = send_spread(&asset, (feed, &mut *path), &mut to, &queue, times);
        assert_received(&peer.all(61), &asset.datagrams, &spec.to_string());
        assert_eq!((stats.packets, stats.refused), (61, 0), "{spec}");
        if spec.name == "mmap_gso" {
            // One call for each departure, and two for the segment size.
            assert!(stats.calls <= 31 + 2, "{spec}: {} calls", stats.calls);
        }
        assert_eq!(to.take_missed_departures(), 0, "{spec}");
    }
    if std::env::var_os("ONLY").is_none() {
        assert_eq!(carrying, ["mmap_writev", "mmap_gso"]);
    }
}

#[test]
fn fq_holds_each_batch_until_its_departure() {
    let setup = format!("{PAIR}\ntc qdisc replace dev left root fq");
    network::run(Owner::User, &setup, "departures::by_a_pair_with_fq");
}

#[test]
#[ignore = "run by fq_holds_each_batch_until_its_departure"]
fn by_a_pair_with_fq() {
    let asset = Asset::new(Shape::full(20));
    for (spec, feed, mut path) in stream_paths() {
        if !path.carries_departures() {
            continue;
        }
        let (mut peer, mut to) = pair();
        let queue = DepartureQueue::of(to.socket()).unwrap();
        assert_eq!((&*queue.device, queue.discipline), ("left", "fq"));
        to.use_departures(&queue).unwrap();
        // Far enough ahead that a late machine has sent all by then.
        let (first, apart) = (Instant::now() + Duration::from_secs(2), Duration::from_millis(30));
        send_spread(&asset, (feed, &mut *path), &mut to, &queue, (first, apart));
        assert!(Instant::now() < first, "{spec}: sending does not wait");
        for departure in 0..10_u32 {
            let due = first + apart * departure;
            // The last moment before it: packets due later have not arrived.
            std::thread::sleep((due + apart / 2).saturating_duration_since(Instant::now()));
            peer.take_in();
            let (received, late) = (peer.received.len() as u32, due.elapsed());
            let expected = (departure + 1) * PACKETS_PER_DEPARTURE;
            let over = late.as_millis() as u32 / apart.as_millis() as u32;
            assert!(received <= expected + over * PACKETS_PER_DEPARTURE, "{spec}: {departure}");
        }
        assert_received(&peer.all(20), &asset.datagrams, &spec.to_string());
    }
}

#[test]
fn etf_reports_departures_that_were_missed() {
    // It wakes 0.5 s before each departure: a slow guest is late by more than the usual 0.3 ms.
    let etf = "tc qdisc replace dev left root etf clockid CLOCK_TAI delta 500000000";
    let setup = format!("{PAIR}\n{etf}");
    network::run(Owner::User, &setup, "departures::by_a_pair_with_etf");
}

#[test]
#[ignore = "run by etf_reports_departures_that_were_missed"]
fn by_a_pair_with_etf() {
    let asset = Asset::new(Shape::full(2));
    for (spec, feed, mut path) in stream_paths() {
        if !path.carries_departures() {
            continue;
        }
        let (mut peer, mut to) = pair();
        let queue = DepartureQueue::of(to.socket()).unwrap();
        assert_eq!((&*queue.device, queue.discipline), ("left", "etf"));
        to.use_departures(&queue).unwrap();
        let (pieces, mut stats) = (asset.pieces(0..2), SendStats::default());
        let long_ago = asset.batch(feed, 0..2, &pieces).departing(Departure::at_ns(1));
        let _ = path.send(&long_ago, &mut to, &mut stats);
        assert!(to.take_missed_departures() > 0, "{spec}");
        // Later than a slow guest needs: an `etf` refuses packets that are late.
        let first = Instant::now() + Duration::from_secs(5);
        let times = (first, Duration::from_millis(1));
        send_spread(&asset, (feed, &mut *path), &mut to, &queue, times);
        assert_received(&peer.all(2), &asset.datagrams, &spec.to_string());
        assert_eq!(to.take_missed_departures(), 0, "{spec}");
    }
}

fn pair() -> (Peer, Destination) {
    let peer = Peer::at("10.99.0.2:0").unwrap();
    let socket = std::net::UdpSocket::bind("10.99.0.1:0").unwrap();
    socket.connect(peer.address()).unwrap();
    (peer, Destination::new(socket, "right").unwrap())
}
