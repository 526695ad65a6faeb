// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wait lasts its time, ends early when a datagram arrives, and is counted.
//!
//! Lower bounds are exact; upper bounds are large enough for any load.

use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::gettid;

use crate::sender::Sender;
use crate::{Place, Receiver, TIMEOUT, places};

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
        let (start, reader) = (Instant::now(), gettid());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                await_asleep(reader);
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

/// Waits until a thread of this process sleeps in a system call.
fn await_asleep(thread: Pid) {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let start = Instant::now();
    loop {
        let stat = std::fs::read_to_string(&stat).unwrap();
        // proc_pid_stat(5): the state follows the name in parentheses.
        if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')) {
            return;
        }
        assert!(start.elapsed() < TIMEOUT, "it does not wait: {stat}");
        std::thread::sleep(Duration::from_millis(1));
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
