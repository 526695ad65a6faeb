// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths by device, when the device is slow, removed, replaced, or used by another program.
//!
//! The tests run in the network of [`crate::frames`], whose far end checks and compares.
//!
//! Sources: `tc-tbf(8)`, `veth(4)`, `ip-neighbour(8)`.
//!
//! Does not fill a driver's own queue, which neither veth nor ifb has.

use std::time::{Duration, Instant};

use paths::{Feed, SendError, SendStats, Spec, Unframed};

use crate::asset::{Asset, Shape};
use crate::frames::{device_paths, far, leading_to, run_alone, send_all, wrong_checksums};
use crate::harness::network::{PAIR, sh};
use crate::peer::assert_received;

/// The far end's address.
const FAR: &str = "10.99.0.2";

/// A queue discipline that holds frames back, and one that refuses them: refused packets are sent
/// again, and nothing arrives twice.
#[test]
fn a_full_ring_and_a_full_queue_lose_nothing_and_double_nothing() {
    for limit in ["30k", "2m"] {
        let tc = format!("tc qdisc add dev left root tbf rate 50mbit burst 20k limit {limit}");
        run_alone(&format!("{PAIR}\n{tc}"), "devices::inside_a_slow_pair");
    }
}

#[test]
#[ignore = "run by a_full_ring_and_a_full_queue_lose_nothing_and_double_nothing"]
fn inside_a_slow_pair() {
    let asset = Asset::new(Shape::full(1500));
    for (spec, _, mut path) in device_paths() {
        let mut peer = far();
        let mut to = leading_to(&peer);
        let mut stats = SendStats::default();
        let refusals = send_all(&asset, &mut *path, &mut to, &mut peer, &mut stats);
        // The queue's timer may run on another core than the sender, and each core has a backlog of
        // its own for packets of a veth pair: no path can keep their order here.
        let (mut received, mut sent) = (peer.all(1500), asset.datagrams.clone());
        received.sort();
        sent.sort();
        assert_received(&received, &sent, &spec.to_string());
        // An XDP socket bypasses the queue.
        assert_eq!(refusals > 0, spec.name == "packet_ring", "{spec}: {refusals} refusals");
        assert!(stats.refused >= refusals, "{spec}");
    }
    assert_eq!(wrong_checksums(), 0);
}

/// Without a carrier frames are lost as on an unplugged wire, and no sender waits; with a carrier
/// new frames arrive, and none of the lost ones.
#[test]
fn a_pulled_wire_holds_nobody_up() {
    run_alone(PAIR, "devices::inside_a_pair_without_carrier");
}

#[test]
#[ignore = "run by a_pulled_wire_holds_nobody_up"]
fn inside_a_pair_without_carrier() {
    let lost = Asset::new(Shape { offset: 700, ..Shape::full(300) });
    let asset = Asset::new(Shape::full(700));
    for (spec, feed, mut path) in device_paths() {
        let mut peer = far();
        let mut to = leading_to(&peer);
        let mut stats = SendStats::default();
        send_all(&asset, &mut *path, &mut to, &mut peer, &mut stats);
        assert_received(&peer.all(700), &asset.datagrams, &spec.to_string());
        sh("ip link set right down");
        let pieces = lost.pieces(0..300);
        for round in 0..5 {
            let batch = lost.batch(feed, 0..300, &pieces);
            // Until the kernel has noticed, the device refuses; from then on it drops.
            let outcome = path.send(&batch, &mut to, &mut stats);
            let held_up = !matches!(outcome, Ok(_) | Err(SendError::Blocked));
            assert!(!held_up, "{spec} round {round}: {outcome:?}");
        }
        sh("ip link set right up && ip addr replace 10.99.0.2/32 dev right");
        let mut stats = SendStats::default();
        send_all(&asset, &mut *path, &mut to, &mut peer, &mut stats);
        assert_received(&peer.all(700), &asset.datagrams, &spec.to_string());
    }
    assert_eq!(wrong_checksums(), 0);
}

#[test]
fn a_device_that_goes_away_ends_the_stream_and_a_new_one_serves_the_next() {
    run_alone(PAIR, "devices::inside_a_pair_that_goes_away");
}

#[test]
#[ignore = "run by a_device_that_goes_away_ends_the_stream_and_a_new_one_serves_the_next"]
fn inside_a_pair_that_goes_away() {
    let asset = Asset::new(Shape::full(40));
    let pieces = asset.pieces(0..40);
    let batch = asset.batch(Feed::Gathered, 0..40, &pieces);
    for (spec, _, mut path) in device_paths() {
        for away in ["ip link set left down", "ip link del left"] {
            let what = format!("{spec} {away}");
            let mut peer = far();
            let mut to = leading_to(&peer);
            let mut stats = SendStats::default();
            assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(40), "{what}");
            assert_received(&peer.all(40), &asset.datagrams, &what);
            sh(away);
            let gone = path.send(&batch, &mut to, &mut stats).unwrap_err();
            let named = matches!(gone, SendError::Gone { .. } | SendError::Unframed { .. });
            assert!(named, "{what}: {gone:?}");
            assert_eq!(stats.packets, 40, "{what}");
            sh("ip link del left || true; ip rule flush; ip rule add pref 0 lookup local
                ip rule add pref 32766 lookup main");
            sh(PAIR);
            let mut peer = far();
            let mut to = leading_to(&peer);
            assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(40), "{what}: anew");
            assert_received(&peer.all(40), &asset.datagrams, &what);
        }
    }
}

#[test]
fn a_neighbour_that_moves_is_followed() {
    run_alone(PAIR, "devices::inside_a_pair_that_moves");
}

#[test]
#[ignore = "run by a_neighbour_that_moves_is_followed"]
fn inside_a_pair_that_moves() {
    const NEW: &str = "02:00:00:00:00:0a";
    const OLD: &str = "02:00:00:00:00:02";
    let asset = Asset::new(Shape::full(1));
    let pieces = asset.pieces(0..1);
    let batch = asset.batch(Feed::Gathered, 0..1, &pieces);
    for (spec, _, mut path) in device_paths() {
        let mut peer = far();
        let mut to = leading_to(&peer);
        let mut stats = SendStats::default();
        let mut calls = Vec::new();
        for number in 0..1100 {
            if number == 10 {
                sh(&format!("ip link set right address {NEW}"));
                sh(&format!("ip neigh replace {FAR} lladdr {NEW} dev left nud permanent"));
            }
            let before = stats.calls;
            assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(1), "{spec}");
            calls.push(stats.calls - before);
        }
        let arrived = peer.all(1100 - 1024 + 10).len();
        assert_eq!(arrived, 10 + 1100 - 1024, "{spec}");
        assert_eq!(calls.iter().filter(|calls| **calls > 2).count(), 2, "{spec}");
        // The path still sends to a neighbour that the kernel has forgotten meanwhile.
        sh(&format!("ip neigh del {FAR} dev left"));
        for _ in 0..1100 {
            assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(1), "{spec}");
            peer.take_in();
        }
        sh(&format!("ip link set right address {OLD}"));
        sh(&format!("ip neigh replace {FAR} lladdr {OLD} dev left nud permanent"));
        assert_eq!(peer.all(1100).len(), 1100, "{spec}: forgotten");
    }
}

/// An XDP socket has a queue to itself; a packet ring shares.
#[test]
fn a_second_thread_needs_a_second_queue() {
    run_alone(PAIR, "devices::inside_a_pair_with_two_threads");
    let two = PAIR.replace("ip link add left", "ip link add left numtxqueues 2 numrxqueues 2");
    run_alone(&two, "devices::inside_a_pair_of_two_queues");
}

fn two_threads(queues: usize) {
    let asset = Asset::new(Shape::full(20));
    let pieces = asset.pieces(0..20);
    let batch = asset.batch(Feed::Gathered, 0..20, &pieces);
    let mut peer = far();
    for ((spec, _, mut one), (_, _, mut other)) in device_paths().into_iter().zip(device_paths()) {
        let (mut to, mut stats) = (leading_to(&peer), SendStats::default());
        assert_eq!(one.send(&batch, &mut to, &mut stats), Ok(20), "{spec}");
        let second = other.send(&batch, &mut to, &mut stats);
        if spec.name == "xdp" && queues == 1 {
            let expected =
                "no queue of left is free for an XDP socket; each serves one sending thread";
            let refusal = second.unwrap_err().to_string();
            assert_eq!(refusal, format!("frames to {}: {expected}", to.name()));
        } else {
            assert_eq!(second, Ok(20), "{spec}");
        }
        peer.all(stats.packets as usize);
        // When the first thread has ended, its queue is free again, once a kernel worker has closed
        // it.
        drop(one);
        let same = |(other, ..): &(&Spec, _, _)| other.name == spec.name;
        let (_, _, mut third) = device_paths().into_iter().find(same).unwrap();
        let mut stats = SendStats::default();
        let start = Instant::now();
        let outcome = loop {
            match third.send(&batch, &mut to, &mut stats) {
                Err(SendError::Unframed { reason: Unframed::NoQueue { .. }, .. })
                    if start.elapsed() < Duration::from_secs(20) =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                outcome => break outcome,
            }
        };
        assert_eq!(outcome, Ok(20), "{spec}");
        assert_received(&peer.all(20), &asset.datagrams, &spec.to_string());
    }
}

#[test]
#[ignore = "run by a_second_thread_needs_a_second_queue"]
fn inside_a_pair_with_two_threads() {
    two_threads(1);
}

#[test]
#[ignore = "run by a_second_thread_needs_a_second_queue"]
fn inside_a_pair_of_two_queues() {
    two_threads(2);
}

/// The sink is the laboratory's: a device that resolves no addresses needs no known neighbour.
#[test]
fn a_device_without_neighbours_is_sent_to() {
    // IPv6 is off: its own packets would be counted too.
    let sink = "ip link add sink type ifb
        ip addr add 10.97.0.1/24 dev sink
        ip link set sink addrgenmode none
        ip link set sink up";
    run_alone(sink, "devices::inside_a_sink");
}

#[test]
#[ignore = "run by a_device_without_neighbours_is_sent_to"]
fn inside_a_sink() {
    let taken_in = || -> u64 {
        let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
        let counters = devices.lines().find_map(|line| line.trim().strip_prefix("sink:")).unwrap();
        counters.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let asset = Asset::new(Shape::full(20));
    let pieces = asset.pieces(0..20);
    let batch = asset.batch(Feed::Gathered, 0..20, &pieces);
    for (spec, _, mut path) in device_paths() {
        let socket = std::net::UdpSocket::bind("10.97.0.1:0").unwrap();
        socket.connect("10.97.0.2:9").unwrap();
        let mut to = paths::Destination::new(socket, "10.97.0.2:9").unwrap();
        let before = taken_in();
        assert_eq!(path.send(&batch, &mut to, &mut SendStats::default()), Ok(20), "{spec}");
        let start = Instant::now();
        while taken_in() < before + 20 && start.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!(taken_in(), before + 20, "{spec}");
    }
}
