// SPDX-License-Identifier: MIT OR Apache-2.0
//! A call empties every port, so that a reader can sleep after it; its memory sets the time.

use std::time::Duration;

use paths::{FULL_CALL_PACKETS, Via};

use crate::harness::noise;
use crate::sender::Sender;
use crate::{Place, ROOM_BYTES, Receiver, TIMEOUT, joins, places};

/// Number of datagrams that fit the default buffer of a process without rights: 425,984 bytes, 768
/// for each.
const SMALL: usize = 400;

fn by_socket() -> impl Iterator<Item = Place> {
    // A device's ring hands over complete blocks, and an incomplete one perhaps later.
    places().into_iter().filter(|place| place.spec.via == Via::Socket)
}

#[test]
fn one_call_takes_all_that_waits_at_a_port() {
    for place in by_socket() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let sender = Sender::new(place.near, receiver.add_port(1, port));
        for number in 0..SMALL {
            sender.one(&noise(20, number as u64));
        }
        assert_eq!(receiver.receive(TIMEOUT), Ok(SMALL), "{place}");
        let in_order = (0..).zip(&receiver.got).all(|(at, got)| got.bytes == noise(20, at));
        assert!(in_order, "{place}: as they were sent");
        assert_eq!(receiver.receive(Duration::ZERO), Ok(0), "{place}");
        assert_eq!(receiver.path.dropped(1), 0, "{place}");
    }
}

/// One wait reports 64 sockets.
#[test]
fn one_call_takes_what_waits_at_many_ports() {
    const PORTS: u32 = 150;
    for place in by_socket() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let addresses: Vec<_> = (0..PORTS).map(|key| receiver.add(key)).collect();
        for address in &addresses {
            let sender = Sender::new(place.near, *address);
            sender.one(b"first");
            sender.one(b"second");
        }
        assert_eq!(receiver.receive(TIMEOUT), Ok(2 * PORTS as usize), "{place}");
    }
}

#[test]
fn a_call_ends_though_more_comes() {
    for place in by_socket() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(1, port);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let sender = Sender::new(place.near, address);
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    sender.one(b"flood");
                }
            });
            // Each call returns at most this number, with the excess of a turn.
            let calls = (0..20).map(|_| receiver.receive(TIMEOUT)).collect::<Vec<_>>();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            let turn = if joins(place.spec) { 64 * 64 } else { 64 };
            let most = FULL_CALL_PACKETS + turn;
            for call in &calls {
                // A call returns none where the kernel announced a datagram before it was queued.
                let is_bounded = matches!(call, Ok(packets) if *packets <= most);
                assert!(is_bounded, "{place}: {calls:?}");
            }
        });
    }
}

#[test]
fn a_pause_is_as_long_as_the_smallest_room_allows() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        assert_eq!(receiver.path.pause_max(), Duration::MAX, "{place}: no port");
        let port = receiver.port(ROOM_BYTES);
        receiver.add_port(1, port);
        let large = receiver.path.pause_max();
        assert!(large > Duration::from_micros(100) && large < Duration::from_secs(1), "{place}");
        if place.spec.via == Via::Device {
            continue; // One ring serves all ports, as large as the first port requested.
        }
        let port = receiver.port(20_000);
        receiver.add_port(2, port);
        assert!(receiver.path.pause_max() < large / 2, "{place}: {large:?}");
        receiver.path.remove(2);
        assert_eq!(receiver.path.pause_max(), large, "{place}");
    }
}
