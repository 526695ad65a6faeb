// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relayed datagrams arrive as they were sent: whole, in order, once, by either method.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use paths::{Error, HEAD_BYTES_MAX, Port, Relay, RelayMethod, RelayTarget, RelayedRun, Via};

use crate::harness::network::sh;
use crate::harness::noise;
use crate::harness::ports::free_port;
use crate::pair::is_inside;
use crate::sender::Sender;
use crate::{Place, ROOM_BYTES, Receiver, TIMEOUT, datagrams, places};

/// Returns the places, each with a member that receives datagrams one by one at the target.
fn ends() -> Vec<Place> {
    let by_socket = |place: &Place| place.spec.via == Via::Socket && place.spec.name == "recvmmsg";
    places().into_iter().filter(by_socket).collect()
}

fn relays() -> [Relay; 2] {
    [Relay::new().unwrap(), Relay::copying().unwrap()]
}

fn port(place: &Place) -> Port {
    let interface = place.interface.map(str::to_string);
    let address = SocketAddr::new(place.far, 0);
    Port { address, sources: Vec::new(), interface, buffer_bytes: ROOM_BYTES }
}

fn to(address: SocketAddr) -> RelayTarget {
    RelayTarget { address, interface: None, hops: None }
}

/// Address of the receiver of relayed datagrams: on the near side.
fn awaited(place: Place) -> (Receiver, SocketAddr) {
    let mut receiver = Receiver::new(Place { far: place.near, interface: None, ..place }).unwrap();
    let port = receiver.port(ROOM_BYTES);
    let address = receiver.add_port(1, port);
    (receiver, address)
}

/// Reports of a relay.
#[derive(Clone, Debug)]
struct Report {
    key: u32,
    source: SocketAddr,
    head: Vec<u8>,
    bytes: u32,
    packets: u32,
    sent: u32,
}

/// Relays until `count` datagrams have arrived.
fn forward(relay: &mut Relay, count: usize) -> Vec<Report> {
    let (mut reports, mut packets, start) = (Vec::new(), 0, Instant::now());
    let mut each = |one: &RelayedRun<'_>| {
        let RelayedRun { key, source, head, bytes, packets, sent, .. } = *one;
        reports.push(Report { key, source, head: head.to_vec(), bytes, packets, sent });
    };
    while packets < count && start.elapsed() < TIMEOUT {
        packets += relay.forward(Duration::from_millis(100), &mut each).unwrap();
    }
    assert_eq!(packets, count, "datagrams that came");
    reports
}

fn assert_bytes(receiver: &mut Receiver, address: SocketAddr, sent: &[Vec<u8>], what: &str) {
    let got = receiver.all(1, address, sent.len());
    for (number, (got, sent)) in got.iter().zip(sent).enumerate() {
        assert_eq!(got.bytes.len(), sent.len(), "{what}: length of datagram {number}");
        assert!(got.bytes == *sent, "{what}: bytes of datagram {number}");
    }
    assert_eq!(got.len(), sent.len(), "{what}: number of datagrams");
}

#[test]
fn runs_and_datagrams_of_every_shape_are_relayed() {
    let shapes = [
        (49, 1328, 1328),
        (49, 1328, 1),
        (48, 1328, 1327),
        (64, 1000, 333),
        (64, 1, 1),
        (2, 4097, 4095),
        (15, 4095, 1),
        (16, 4095, 4094),
        (3, 20_001, 19_999),
        (7, 9001, 9000),
        (1, 4097, 4097),
        (1, 8193, 8193),
        (1, 65_507, 65_507),
        (300, 1328, 17),
    ];
    for place in ends() {
        for mut relay in relays() {
            let (mut receiver, address) = awaited(place);
            relay.add(&port(&place), 5, &to(address)).unwrap();
            let mut sender = Sender::new(place.near, relay.address(5).unwrap());
            for (count, bytes, last_bytes) in shapes {
                if place.interface.is_some() && bytes > 1400 {
                    continue; // The datagram is larger than the device carries in a packet.
                }
                let what = format!("{place} {}: {count} by {bytes}, {last_bytes}", relay.method());
                let sent = datagrams(count, bytes, last_bytes);
                sender.runs(&sent);
                let reports = forward(&mut relay, count);
                assert!(reports.iter().all(|one| one.sent == one.packets), "{what}: {reports:?}");
                assert_bytes(&mut receiver, address, &sent, &what);
            }
            assert_eq!((relay.lost(5), relay.dropped(5)), (0, 0), "{place}");
        }
    }
}

#[test]
fn one_call_relays_all_that_waits() {
    for place in ends() {
        for mut relay in relays() {
            let (mut receiver, address) = awaited(place);
            relay.add(&port(&place), 5, &to(address)).unwrap();
            let sender = Sender::new(place.near, relay.address(5).unwrap());
            let sent: Vec<_> = (0..400).map(|number| noise(20, number)).collect();
            sent.iter().for_each(|datagram| sender.one(datagram));
            let what = format!("{place} {}", relay.method());
            assert_eq!(relay.forward(TIMEOUT, &mut |_| {}), Ok(sent.len()), "{what}");
            assert_bytes(&mut receiver, address, &sent, &what);
        }
    }
}

/// Runs, single datagrams longer and shorter than those of the run before, and empty ones.
#[test]
fn waiting_datagrams_are_relayed_in_order() {
    for place in ends() {
        for mut relay in relays() {
            let (mut receiver, address) = awaited(place);
            relay.add(&port(&place), 5, &to(address)).unwrap();
            let mut sender = Sender::new(place.near, relay.address(5).unwrap());
            let mut sent = Vec::new();
            for round in 0..20 {
                let run = datagrams(10 + round, 500, 499 - round);
                sender.runs(&run);
                sent.extend(run);
                for bytes in [500, 501, 20, 0, 1400, 1] {
                    let one = noise(bytes, round as u64);
                    sender.one(&one);
                    sent.push(one);
                }
            }
            let reports = forward(&mut relay, sent.len());
            let what = format!("{place} {}", relay.method());
            assert_bytes(&mut receiver, address, &sent, &what);
            let bytes: u32 = reports.iter().map(|one| one.bytes).sum();
            assert_eq!(bytes as usize, sent.concat().len(), "{what}");
            let (receive_stats, send_stats) = (relay.receive_stats(), relay.send_stats());
            assert_eq!(
                (receive_stats.packets, receive_stats.bytes),
                (sent.len() as u64, bytes.into()),
                "{what}"
            );
            assert_eq!(
                (send_stats.packets, send_stats.bytes),
                (receive_stats.packets, receive_stats.bytes),
                "{what}"
            );
        }
    }
}

#[test]
fn each_run_is_told_with_its_head_and_source() {
    for place in ends() {
        for mut relay in relays() {
            let (mut receiver, address) = awaited(place);
            relay.add(&port(&place), 8, &to(address)).unwrap();
            let mut sender = Sender::new(place.near, relay.address(8).unwrap());
            let run = datagrams(20, 1000, 10);
            let small = datagrams(20, 30, 30);
            sender.runs(&run);
            sender.one(b"short");
            sender.runs(&small);
            let reports = forward(&mut relay, 41);
            let what = format!("{place} {}: {reports:?}", relay.method());
            assert_eq!(reports.iter().map(|one| one.packets).sum::<u32>(), 41, "{what}");
            assert!(reports.iter().all(|one| one.source == sender.address() && one.key == 8));
            assert_eq!(reports[0].head, run[0][..HEAD_BYTES_MAX], "{what}");
            let short = reports.iter().find(|one| one.bytes == 5).unwrap();
            assert_eq!((&short.head[..], short.packets), (&b"short"[..], 1), "{what}");
            // The head ends with the first datagram of the run.
            let last = reports.iter().rfind(|one| one.bytes >= 30 && one.head.len() == 30).unwrap();
            assert!(small.contains(&last.head), "{what}");
            let sent = [run, vec![b"short".to_vec()], small].concat();
            assert_bytes(&mut receiver, address, &sent, "told");
        }
    }
}

#[test]
fn splicing_copies_heads_alone_and_makes_three_calls_a_run() {
    for place in ends() {
        for mut relay in relays() {
            let (mut receiver, address) = awaited(place);
            relay.add(&port(&place), 5, &to(address)).unwrap();
            let mut sender = Sender::new(place.near, relay.address(5).unwrap());
            let sent = datagrams(49 * 6, 1328, 1328);
            for round in 0..2 {
                let before = (relay.receive_stats(), relay.send_stats());
                sender.runs(&sent);
                let runs = forward(&mut relay, sent.len()).len() as u64;
                assert_bytes(&mut receiver, address, &sent, "counted");
                let (receive_stats, send_stats) = (relay.receive_stats(), relay.send_stats());
                let copied = receive_stats.copied_bytes - before.0.copied_bytes
                    + send_stats.copied_bytes
                    - before.1.copied_bytes;
                let calls =
                    receive_stats.calls - before.0.calls + send_stats.calls - before.1.calls;
                let what = format!("{place} {} round {round}: {calls} calls", relay.method());
                assert!((6..=7).contains(&runs), "{what}: {runs} runs");
                // The size of a run is set once; one more call finds the port empty.
                let more = calls - if round == 0 { 1 } else { 0 };
                if *relay.method() == RelayMethod::Splice {
                    assert_eq!(copied, runs * HEAD_BYTES_MAX as u64, "{what}");
                    assert_eq!(more, 3 * runs + 1, "{what}");
                } else {
                    assert_eq!(copied, 2 * (sent.len() * 1328) as u64, "{what}");
                    assert!((1 + runs..=4 + runs).contains(&more), "{what}");
                }
            }
        }
    }
}

/// Datagrams that arrived one by one and wait together leave in runs, and arrive as they were sent.
#[test]
fn single_datagrams_of_one_size_leave_together() {
    for place in ends() {
        for mut relay in relays() {
            let (mut receiver, address) = awaited(place);
            relay.add(&port(&place), 5, &to(address)).unwrap();
            let sender = Sender::new(place.near, relay.address(5).unwrap());
            for bytes in [1328, 1327, 1452, 1453, 33, 1] {
                let sent = datagrams(160, bytes, bytes);
                let calls = |relay: &Relay| relay.receive_stats().calls + relay.send_stats().calls;
                let before = calls(&relay);
                sent.iter().for_each(|datagram| sender.one(datagram));
                let reports = forward(&mut relay, 160);
                let what = format!("{place} {} {bytes}", relay.method());
                assert_bytes(&mut receiver, address, &sent, &what);
                assert!(reports.iter().all(|one| one.packets == 1 && one.sent == 1), "{what}");
                assert!(
                    reports
                        .iter()
                        .map(|one| &one.head[..])
                        .eq(sent.iter().map(|one| { &one[..one.len().min(HEAD_BYTES_MAX)] })),
                    "{what}: heads"
                );
                let calls = calls(&relay) - before;
                if bytes < 1453 {
                    // A device in between may deliver in several portions, each with an end.
                    let most =
                        if *relay.method() == RelayMethod::Splice { 160 * 2 + 40 } else { 40 };
                    assert!(calls <= most, "{what}: {calls} calls");
                }
            }
        }
    }
}

#[test]
fn each_port_has_its_own_target() {
    for place in ends() {
        for mut relay in relays() {
            let mut routes = Vec::new();
            for key in 0..10 {
                let (receiver, address) = awaited(place);
                relay.add(&port(&place), key, &to(address)).unwrap();
                let sender = Sender::new(place.near, relay.address(key).unwrap());
                routes.push((receiver, address, sender, datagrams(9, 300, 1 + key as usize)));
            }
            routes.iter_mut().for_each(|(.., sender, sent)| sender.runs(sent));
            forward(&mut relay, 90);
            for (receiver, address, _, sent) in &mut routes {
                assert_bytes(receiver, *address, sent, &format!("{place} {}", relay.method()));
            }
            relay.remove(3);
            assert_eq!(relay.address(3), None);
            routes.remove(3);
            routes.iter_mut().for_each(|(.., sender, sent)| sender.runs(sent));
            forward(&mut relay, 81);
        }
    }
}

/// The target's port is closed, then open. ICMP reports it closed, which a stranger can forge: a
/// report refuses no datagram permanently, and datagrams to the closed port do not arrive later.
#[test]
fn a_target_that_is_not_there_loses_what_is_sent_and_no_more() {
    for place in ends() {
        for mut relay in relays() {
            let address = SocketAddr::new(place.near, free_port());
            relay.add(&port(&place), 5, &to(address)).unwrap();
            let mut sender = Sender::new(place.near, relay.address(5).unwrap());
            let lost = datagrams(30, 700, 7);
            let mut refused = 0;
            for _ in 0..10 {
                sender.runs(&lost);
                let reports = forward(&mut relay, 30);
                refused += reports.iter().map(|one| u64::from(one.packets - one.sent)).sum::<u64>();
            }
            let what = format!("{place} {}", relay.method());
            assert_eq!((refused, relay.lost(5)), (0, 0), "{what}: a report costs no datagram");
            let place = Place { far: place.near, interface: None, ..place };
            let mut receiver = Receiver::new(place).unwrap();
            let opened = Port { address, ..receiver.port(ROOM_BYTES) };
            receiver.add_port(1, opened);
            let sent = datagrams(40, 1000, 999);
            sender.runs(&sent);
            forward(&mut relay, 40);
            let got = receiver.all(1, address, 40);
            let got: Vec<_> = got.into_iter().map(|got| got.bytes).collect();
            assert!(got == sent, "{what}: {} came", got.len());
        }
    }
}

#[test]
fn a_loop_is_refused() {
    for place in ends() {
        let mut relay = Relay::new().unwrap();
        let first = SocketAddr::new(place.far, free_port());
        let itself = Port { address: first, ..port(&place) };
        let is_loop = |refused: Result<(), Error>| {
            let refusal = refused.unwrap_err();
            assert!(matches!(refusal, Error::Loop { .. }), "{place}: {refusal}");
            refusal.to_string()
        };
        // The target is the port itself.
        let message = is_loop(relay.add(&itself, 1, &to(first)));
        let expected =
            format!("relaying {first} to {first}: relayed datagrams would come in again; ");
        assert!(message.starts_with(&expected), "{message}");
        assert_eq!(relay.address(1), None, "{place}: nothing of it is left");
        // The target is an address of the host, and the port receives at all of them.
        let any: IpAddr = if place.far.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let all = Port { address: SocketAddr::new(any, first.port()), ..port(&place) };
        is_loop(relay.add(&all, 1, &to(first)));
        // The loop leads through another route.
        relay.add(&itself, 1, &to(SocketAddr::new(place.near, 9))).unwrap();
        relay.add(&port(&place), 2, &to(first)).unwrap();
        let second = relay.address(2).unwrap();
        relay.remove(1);
        is_loop(relay.add(&itself, 1, &to(second)));
        // The opposite direction is a chain.
        let (mut receiver, address) = awaited(place);
        relay.add(&itself, 1, &to(address)).unwrap();
        let sender = Sender::new(place.near, second);
        sender.one(b"along");
        forward(&mut relay, 1);
        forward(&mut relay, 1);
        assert_bytes(&mut receiver, address, &[b"along".to_vec()], "a chain");
    }
}

#[test]
fn groups_are_relayed_out_of_the_device_named() {
    if !is_inside() {
        return;
    }
    for place in ends() {
        for mut relay in relays() {
            let group: IpAddr = if place.far.is_ipv4() {
                [239, 7, 7, 7].into()
            } else {
                [0xff15, 0, 0, 0, 0, 0, 0, 7].into()
            };
            let mut receiver = Receiver::new(place).unwrap();
            let joined = Port { address: SocketAddr::new(group, 0), ..receiver.port(ROOM_BYTES) };
            let address = receiver.add_port(1, joined.clone());
            let target = RelayTarget { address, interface: Some("left".into()), hops: Some(3) };
            relay.add(&port(&place), 5, &target).unwrap();
            let mut sender = Sender::new(place.near, relay.address(5).unwrap());
            let sent = datagrams(30, 1200, 3);
            sender.runs(&sent);
            forward(&mut relay, 30);
            receiver.wait_for(30);
            let got: Vec<_> = receiver.got.drain(..).map(|got| got.bytes).collect();
            assert!(got == sent, "{place} {}: {} came", relay.method(), got.len());
            // The same group is another target on another device, and a loop on its own.
            let itself = Port { address, ..joined };
            let away = RelayTarget { address, interface: Some("left".into()), hops: None };
            relay.add(&itself, 6, &away).unwrap();
            let back = RelayTarget { interface: Some("right".into()), ..away };
            let refusal = relay.add(&itself, 7, &back).unwrap_err();
            assert!(matches!(refusal, Error::Loop { .. }), "{refusal}");
        }
    }
}

/// A route that refuses runs of that size gets the datagrams one by one, and they arrive.
#[test]
fn runs_larger_than_the_route_go_one_by_one() {
    if !is_inside() {
        return;
    }
    let mtu = |bytes: u32| sh(&format!("ip link set left mtu {bytes}"));
    for place in ends() {
        for mut relay in relays() {
            let mut receiver = Receiver::new(place).unwrap();
            let port = receiver.port(ROOM_BYTES);
            let address = receiver.add_port(1, port);
            // The device accepts any run; the MTU stays at 1,280, the minimum of IPv6.
            let here = SocketAddr::from(([127, 0, 0, 1], 0));
            let port = Port { address: here, sources: vec![], interface: None, buffer_bytes: 0 };
            relay.add(&port, 5, &to(address)).unwrap();
            let mut sender = Sender::new(here.ip(), relay.address(5).unwrap());
            mtu(1300);
            let sent = datagrams(45, 1329, 1001);
            sender.runs(&sent);
            let reports = forward(&mut relay, 45);
            mtu(1500);
            assert!(reports.iter().all(|one| one.sent == one.packets), "{reports:?}");
            assert_bytes(&mut receiver, address, &sent, &format!("{place} {}", relay.method()));
        }
    }
}

/// A relay's own socket, for facts that the list's members also have.
#[test]
fn a_refused_route_is_named() {
    let mut relay = Relay::new().unwrap();
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let port = Port { address: here, sources: vec![], interface: None, buffer_bytes: 0 };
    let target = RelayTarget {
        address: SocketAddr::from(([127, 0, 0, 1], 9)),
        interface: Some("no-such-device".into()),
        hops: None,
    };
    let refusal = relay.add(&port, 1, &target).unwrap_err().to_string();
    assert_eq!(refusal, "if_nametoindex on 127.0.0.1:9: ENODEV");
    assert_eq!(relay.address(1), None, "nothing of it is left");
    relay.add(&port, 1, &RelayTarget { interface: None, ..target }).unwrap();
    assert!(UdpSocket::bind(relay.address(1).unwrap()).is_err(), "it is taken");
}
