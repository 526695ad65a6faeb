// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams that did not fit are counted by port: exactly, where they arrive one by one.

use paths::Via;

use crate::harness::noise;
use crate::sender::Sender;
use crate::{Place, Receiver, datagrams, places};

fn by_socket() -> impl Iterator<Item = Place> {
    // A device's ring is shared by all its ports, and has its own tests.
    places().into_iter().filter(|place| place.spec.via == Via::Socket)
}

#[test]
fn a_late_reader_is_told_how_many_it_missed() {
    const SENT: usize = 700;
    for place in by_socket() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(20_000);
        let small = receiver.add_port(1, port);
        let other = receiver.add(2);
        let mut missed = 0;
        for round in 1..=2 {
            let sender = Sender::new(place.near, small);
            for number in 0..SENT {
                sender.one(&noise(1000, number as u64));
            }
            let got = receiver.all_there(1);
            assert!((1..SENT).contains(&got.len()), "{place}: {}", got.len());
            let dropped = receiver.path.dropped(1);
            assert_eq!(dropped - missed, (SENT - got.len()) as u64, "{place} round {round}");
            missed = dropped;
            // The received datagrams are whole and in order.
            let mut numbers = 0..SENT as u64;
            for bytes in &got {
                assert!(numbers.any(|number| *bytes == noise(1000, number)), "{place}");
            }
        }
        assert_eq!(receiver.path.dropped(2), 0, "{place}: another port's are its own");
        let sender = Sender::new(place.near, other);
        sender.one(b"well");
        receiver.assert_all((2, other), sender.address(), &[b"well".to_vec()], "other");
        assert_eq!(receiver.path.dropped(99), 0, "{place}: no such port");
    }
}

/// The kernel counts a run that did not fit as one where it would have been handed over as one.
#[test]
fn missed_runs_are_counted_as_runs_at_least() {
    for place in by_socket() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(100_000);
        let address = receiver.add_port(1, port);
        let mut sender = Sender::new(place.near, address);
        let run = datagrams(40, 1000, 1000);
        for _ in 0..30 {
            sender.runs(&run);
        }
        let got = receiver.all_there(1).len();
        let dropped = receiver.path.dropped(1);
        let missed = (30 * 40 - got) as u64;
        assert!(missed > 0, "{place}: {got} fit");
        assert!(
            dropped >= missed.div_ceil(40) && dropped <= missed,
            "{place}: {dropped}, {missed}"
        );
    }
}

impl Receiver {
    /// Returns datagrams that wait at a port now; loopback and pair deliver before a send returns.
    fn all_there(&mut self, key: u32) -> Vec<Vec<u8>> {
        while self.receive(std::time::Duration::from_millis(50)).unwrap() > 0 {}
        let got = std::mem::take(&mut self.got);
        got.into_iter().filter(|got| got.key == key).map(|got| got.bytes).collect()
    }
}
