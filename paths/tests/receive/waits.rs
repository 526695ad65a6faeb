// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wait lasts its time, ends early when a datagram arrives, and is counted.
//!
//! Lower bounds are exact; upper bounds are large enough for any load.

use std::time::{Duration, Instant};

use crate::sender::Sender;
use crate::{Place, Receiver, places};

#[test]
fn a_wait_for_nothing_lasts_as_long_as_asked() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        for ports in 0..2 {
            for wait in [Duration::from_millis(60), Duration::from_micros(300)] {
                let before = receiver.stats();
                let start = Instant::now();
                let mut rounds = 0;
                // A signal ends a wait early; signals are rare.
                while start.elapsed() < wait {
                    let left = wait.saturating_sub(start.elapsed());
                    assert_eq!(receiver.receive(left).unwrap(), 0, "{place}");
                    rounds += 1;
                }
                assert!(rounds < 60, "{place}: {rounds} waits in {wait:?}");
                let waits = receiver.stats().waits - before.waits;
                assert_eq!(waits, rounds, "{place}: a wait is counted");
            }
            assert_eq!(receiver.receive(Duration::ZERO).unwrap(), 0, "{place}");
            receiver.add(ports);
        }
    }
}

#[test]
fn a_wait_ends_when_something_comes() {
    const LONG: Duration = Duration::from_secs(60);
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let address = receiver.add(1);
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(40));
                Sender::new(place.near, address).one(b"at last");
            });
            receiver.wait_long(LONG, place);
        });
        assert!(start.elapsed() < LONG / 2, "{place}: {:?}", start.elapsed());
        assert_eq!(receiver.got[0].bytes, b"at last", "{place}");
        // Waiting datagrams are received without a wait.
        let sender = Sender::new(place.near, address);
        let start = Instant::now();
        for _ in 0..3 {
            sender.one(b"there");
            receiver.wait_long(LONG, place);
        }
        assert!(start.elapsed() < LONG / 2, "{place}: {:?}", start.elapsed());
    }
}

impl Receiver {
    /// Waits for a datagram, again where a signal has ended the wait.
    fn wait_long(&mut self, wait: Duration, place: Place) {
        let start = Instant::now();
        let mut received = 0;
        while received == 0 && start.elapsed() < wait {
            received = self.receive(wait).unwrap();
        }
        assert_eq!(received, 1, "{place}");
    }
}
