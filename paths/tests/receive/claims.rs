// SPDX-License-Identifier: MIT OR Apache-2.0
//! The claims of each member agree with its counts, and its counts with the calls made.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use paths::{Port, ReceiveStats, Relay, RelayMethod, RelayTarget, SystemCalls, Via};

use crate::harness::tracer;
use crate::sender::Sender;
use crate::{ROOM_BYTES, Receiver, datagrams, joins, places};

/// Not a multiple of a turn's datagrams, whose last call would find none.
const PACKETS: usize = 250;
const BYTES: usize = 1328;
/// Datagrams of a run of this length, in 64 KiB.
const RUN: usize = 49;

fn since(now: ReceiveStats, before: ReceiveStats) -> ReceiveStats {
    ReceiveStats {
        packets: now.packets - before.packets,
        bytes: now.bytes - before.bytes,
        calls: now.calls - before.calls,
        waits: now.waits - before.waits,
        copied_bytes: now.copied_bytes - before.copied_bytes,
        truncated: now.truncated - before.truncated,
        malformed: now.malformed - before.malformed,
    }
}

#[test]
fn taking_in_costs_the_calls_and_copies_it_claims() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(1, port);
        let mut sender = Sender::new(place.near, address);
        let sent = datagrams(PACKETS, BYTES, BYTES);
        // The claim is the cost in a steady state under load.
        for round in 0..3 {
            sender.runs(&sent);
            let before = receiver.stats();
            (receiver.bursts, receiver.arrivals) = (0, 0);
            receiver.wait_for(PACKETS);
            assert_eq!(receiver.got.len(), PACKETS, "{place}");
            receiver.got.clear();
            let received = since(receiver.stats(), before);
            let what = format!("{place} round {round}: {received:?}, {} bursts", receiver.bursts);
            let bytes = (PACKETS * BYTES) as u64;
            assert_eq!((received.packets, received.bytes), (PACKETS as u64, bytes), "{what}");
            assert_eq!((received.truncated, received.malformed), (0, 0), "{what}");
            let copies = u64::from(place.spec.copies_per_byte);
            assert_eq!(received.copied_bytes, copies * bytes, "{what}");
            let (each, most) = match place.spec.system_calls {
                // One more call finds the port empty.
                SystemCalls::PerPacket(each) => (each, PACKETS as u64 + 1),
                SystemCalls::PerRun(each) => (each, (PACKETS as u64).div_ceil(RUN as u64)),
                // With many datagrams waiting, a batch is large.
                SystemCalls::PerBatch(each) => {
                    assert!(receiver.bursts <= PACKETS as u64 / 16, "{what}");
                    (each, receiver.bursts)
                }
                SystemCalls::PerStep(_) => panic!("{what}: nothing is taken in by steps"),
            };
            assert_eq!(received.calls, u64::from(each) * most, "{what}");
            // Frames already in a ring are received without a call.
            assert!(received.waits >= 1 || place.spec.via == Via::Device, "{what}");
        }
    }
}

#[test]
fn joining_members_hand_runs_over_joined() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(1, port);
        let mut sender = Sender::new(place.near, address);
        sender.runs(&datagrams(PACKETS, BYTES, BYTES));
        receiver.wait_for(PACKETS);
        let joined = receiver.arrivals < PACKETS as u64;
        assert_eq!(receiver.got.len(), PACKETS, "{place}");
        let claimed = joins(place.spec);
        assert_eq!(joined, claimed, "{place}: {} pieces", receiver.arrivals);
    }
}

#[test]
#[ignore = "run by a_tracer_counts_the_calls_that_were_counted"]
fn inside_a_tracer() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(1, port);
        let mut sender = Sender::new(place.near, address);
        let sent = datagrams(PACKETS, BYTES, 10);
        // Memory for received bytes, so that none is allocated between the marks.
        let mut lengths: Vec<usize> = Vec::with_capacity(4 * PACKETS);
        for _ in 0..3 {
            sender.runs(&sent);
            sent[..20].iter().for_each(|datagram| sender.one(datagram));
            lengths.clear();
            let before = receiver.stats();
            tracer::begin();
            while lengths.len() < PACKETS + 20 {
                let mut each = |burst: &[paths::ReceivedRun<'_>]| {
                    for run in burst {
                        lengths.extend(run.datagrams().map(<[u8]>::len));
                    }
                };
                receiver.path.receive(Duration::from_secs(10), &mut each).unwrap();
            }
            // One more call finds the port empty.
            receiver.path.receive(Duration::from_millis(1), &mut |_| {}).unwrap();
            tracer::end();
            let received = since(receiver.stats(), before);
            tracer::counted(place.spec, received.calls + received.waits);
        }
    }
}

#[test]
#[ignore = "run by a_tracer_counts_the_calls_that_were_counted"]
fn relaying_inside_a_tracer() {
    for mut relay in [Relay::new().unwrap(), Relay::copying().unwrap()] {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let peer = UdpSocket::bind(here).unwrap();
        let target =
            RelayTarget { address: peer.local_addr().unwrap(), interface: None, hops: None };
        let port = Port { address: here, sources: vec![], interface: None, buffer_bytes: 1 << 20 };
        relay.add(&port, 1, &target).unwrap();
        let mut sender = Sender::new(here.ip(), relay.address(1).unwrap());
        let sent = datagrams(PACKETS, BYTES, 10);
        for _ in 0..3 {
            sender.runs(&sent);
            sent[..20].iter().for_each(|datagram| sender.one(datagram));
            sender.one(b"");
            let calls = |relay: &Relay| {
                relay.receive_stats().calls + relay.receive_stats().waits + relay.send_stats().calls
            };
            let before = calls(&relay);
            tracer::begin();
            let mut arrived = 0;
            while arrived < PACKETS + 21 {
                arrived += relay.forward(Duration::from_secs(10), &mut |_| {}).unwrap();
            }
            relay.forward(Duration::from_millis(1), &mut |_| {}).unwrap();
            tracer::end();
            let way = if *relay.method() == RelayMethod::Splice { "splice" } else { "copy" };
            tracer::counted(format_args!("receive/relay_{way}"), calls(&relay) - before);
        }
    }
}

#[test]
fn a_tracer_counts_the_calls_that_were_counted() {
    let members = 3 * places().len();
    for (name, count) in [("inside_a_tracer", members), ("relaying_inside_a_tracer", 6)] {
        let Some(trace) = tracer::trace_of(&format!("claims::{name}")) else { return };
        let counts = tracer::counts(&trace);
        assert!((1..=count).contains(&counts.len()), "{counts:?}");
        for count in counts {
            assert!(count.counted > 0, "{count:?}");
            assert_eq!(count.seen, count.counted, "{count:?}: calls traced, calls counted");
        }
    }
}
