// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams of every shape arrive as they were sent: whole, in order, once.

use crate::harness::noise;
use crate::sender::Sender;
use crate::{Place, ROOM_BYTES, Receiver, datagrams, places};

/// Returns the longest payload of UDP over either IP, and over the pair's MTU of 1,500.
fn longest(place: &Place) -> usize {
    match (place.interface, place.far.is_ipv4()) {
        (Some(_), true) => 1472,
        (Some(_), false) => 1452,
        (None, true) => 65_507,
        (None, false) => 65_527,
    }
}

#[test]
fn datagrams_of_every_length_come_whole_and_in_order() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(3, port);
        let sender = Sender::new(place.near, address);
        let most = longest(&place);
        let lengths = (0..70).chain(1300..1340).chain([most - 1, most, 0, 188, most]);
        let sent: Vec<Vec<u8>> =
            lengths.enumerate().map(|(n, bytes)| noise(bytes, n as u64)).collect();
        for datagram in &sent {
            sender.one(datagram);
        }
        receiver.assert_all((3, address), sender.address(), &sent, "lengths");
        let stats = receiver.stats();
        let end = crate::END.len() as u64;
        let bytes = sent.iter().map(|datagram| datagram.len() as u64).sum::<u64>() + end;
        assert_eq!((stats.packets, stats.bytes), (sent.len() as u64 + 1, bytes), "{place}");
        assert_eq!((stats.truncated, stats.malformed), (0, 0), "{place}");
        assert_eq!(receiver.path.dropped(3), 0, "{place}");
    }
}

#[test]
fn runs_come_as_the_datagrams_they_are_of() {
    let shapes = [
        (49, 1328, 1328),
        (49, 1328, 1),
        (48, 1328, 1327),
        (64, 1000, 333),
        (64, 188, 188),
        (64, 1, 1),
        (2, 1, 1),
        (1, 700, 700),
        (300, 1328, 17),
        (45, 1451, 1450),
        (44, 1452, 5),
    ];
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(1, port);
        let mut sender = Sender::new(place.near, address);
        for (count, bytes, last_bytes) in shapes {
            let sent = datagrams(count, bytes, last_bytes);
            sender.runs(&sent);
            let what = format!("run of {count} by {bytes}, last {last_bytes}");
            receiver.assert_all((1, address), sender.address(), &sent, &what);
        }
    }
}

/// Runs, single datagrams and empty ones, one after the other and waiting together.
#[test]
fn runs_and_single_datagrams_stay_apart() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(1, port);
        let mut sender = Sender::new(place.near, address);
        let mut sent = Vec::new();
        for round in 0..20 {
            let run = datagrams(10 + round, 500, 499 - round);
            sender.runs(&run);
            sent.extend(run);
            // The datagrams are as long as those of the run, longer, shorter, empty.
            for bytes in [500, 501, 20, 0] {
                let one = noise(bytes, round as u64);
                sender.one(&one);
                sent.push(one);
            }
        }
        receiver.assert_all((1, address), sender.address(), &sent, "mixed");
    }
}

/// The test continues long after any buffer has been reused.
#[test]
fn nothing_is_lost_while_the_reader_keeps_up() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = receiver.port(ROOM_BYTES);
        let address = receiver.add_port(1, port);
        let mut sender = Sender::new(place.near, address);
        for round in 0..120 {
            let sent = datagrams(100, 1328, 1 + round);
            sender.runs(&sent[..49]);
            sent[49..80].iter().for_each(|datagram| sender.one(datagram));
            sender.runs(&sent[80..]);
            receiver.wait_for(sent.len());
            let bytes: Vec<_> = receiver.got.drain(..).map(|got| got.bytes).collect();
            assert!(bytes == sent, "{place}: round {round}, {} came", bytes.len());
        }
        let stats = receiver.stats();
        assert_eq!((stats.packets, receiver.path.dropped(1)), (12_000, 0), "{place}");
    }
}

/// The kernel's time, where a path reports it, is about now.
#[test]
fn times_are_of_when_it_came() {
    use std::time::{Duration, SystemTime};
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let address = receiver.add(1);
        let sender = Sender::new(place.near, address);
        let before = SystemTime::now();
        sender.one(b"now");
        let mut times = Vec::new();
        let mut each =
            |burst: &[paths::ReceivedRun<'_>]| times.extend(burst.iter().map(|a| a.time));
        receiver.path.receive(crate::TIMEOUT, &mut each).unwrap();
        let after = SystemTime::now();
        assert_eq!(times.len(), 1, "{place}");
        // The clock of the test machine may be set back while the test runs, but not by a second.
        let slack = Duration::from_secs(1);
        let is_near = |time: SystemTime| time + slack > before && time < after + slack;
        assert!(times[0].is_none_or(is_near), "{place}: {times:?}");
        assert!(times[0].is_some() || place.spec.name == "recvfrom", "{place} has no time");
    }
}

/// A path belongs to one thread at a time, not to the one that opened it: the first thread may end,
/// or continue and get the path back later.
#[test]
fn a_path_serves_whichever_thread_holds_it() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let address = receiver.add(1);
        let sender = Sender::new(place.near, address);
        for round in 0..3_u8 {
            receiver = std::thread::scope(|scope| {
                let sender = &sender;
                let taking = scope.spawn(move || {
                    sender.one(&[round; 10]);
                    receiver.wait_for(1);
                    sender.one(&[round; 11]);
                    receiver
                });
                taking.join().unwrap()
            });
            sender.one(&[round; 12]);
            receiver.wait_for(3);
            let got: Vec<_> = receiver.got.drain(..).map(|got| got.bytes).collect();
            let sent = [10, 11, 12].map(|bytes| vec![round; bytes]);
            assert_eq!(got, sent, "{place} round {round}");
        }
    }
}
