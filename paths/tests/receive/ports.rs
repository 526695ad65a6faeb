// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many ports of one path: each gets its own datagrams, all are served, and a removed one gets
//! none.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use paths::{Port, Via};

use crate::harness::noise;
use crate::harness::ports::free_port;
use crate::sender::Sender;
use crate::{ROOM_BYTES, Receiver, datagrams, joins, places};

#[test]
fn each_port_has_what_was_sent_to_it() {
    const PORTS: u32 = 100;
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        // Keys are the caller's: neither dense nor in order.
        let key = |number: u32| (PORTS - number) * 1_000_003;
        let addresses: Vec<_> = (0..PORTS).map(|number| receiver.add(key(number))).collect();
        let mut senders: Vec<_> =
            addresses.iter().map(|address| Sender::new(place.near, *address)).collect();
        let sent = |number: u32| datagrams(3 + number as usize % 5, 200, 1 + number as usize);
        for (number, sender) in senders.iter_mut().enumerate() {
            sender.runs(&sent(number as u32));
        }
        for (number, address) in (0..PORTS).zip(&addresses) {
            let source = senders[number as usize].address();
            receiver.assert_all((key(number), *address), source, &sent(number), "of many");
        }
        assert!(receiver.got.is_empty(), "{place}: {} too many", receiver.got.len());
    }
}

/// Each port is served before any port has been served twice.
#[test]
fn a_busy_port_starves_no_other() {
    const PORTS: u32 = 80;
    const BUSY: u32 = 7;
    const RUNS: usize = 100;
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let addresses: Vec<_> = (0..PORTS)
            .map(|key| {
                let port = receiver.port(ROOM_BYTES);
                receiver.add_port(key, port)
            })
            .collect();
        let mut busy = Sender::new(place.near, addresses[BUSY as usize]);
        let run = datagrams(64, 100, 100);
        for _ in 0..RUNS {
            busy.runs(&run);
        }
        for address in &addresses {
            Sender::new(place.near, *address).one(b"me too");
        }
        let total = RUNS * 64 + PORTS as usize;
        receiver.wait_for(total);
        assert_eq!(receiver.got.len(), total, "{place}");
        if place.spec.via == Via::Device {
            continue; // One ring serves all ports: the first datagram is handed over first.
        }
        let mut first = HashMap::new();
        for (at, got) in receiver.got.iter().enumerate() {
            first.entry(got.key).or_insert(at);
        }
        let last_first = *first.values().max().unwrap();
        let of_busy = receiver.got[..last_first].iter().filter(|got| got.key == BUSY).count();
        // At most two turns: of 64 datagrams, or runs where those are received as one.
        let turn = if joins(place.spec) { 64 * 64 } else { 64 };
        assert!(of_busy <= turn * 2, "{place}: {of_busy} of the busy port came before");
        assert!(of_busy < RUNS * 64, "{place}: the busy port was emptied first");
    }
}

#[test]
fn a_removed_port_is_silent_and_its_key_free() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let gone = SocketAddr::new(place.far, free_port());
        receiver.add_port(1, Port { address: gone, ..receiver.port(0) });
        let stays = receiver.add(2);
        let to_gone = UdpSocket::bind(SocketAddr::new(place.near, 0)).unwrap();
        // Datagrams not yet handed over are dropped.
        to_gone.send_to(b"late", gone).unwrap();
        receiver.path.remove(1);
        receiver.path.remove(77);
        assert_eq!(receiver.path.address(1), None, "{place}");
        assert_eq!(receiver.path.dropped(1), 0, "{place}");
        let _ = to_gone.send_to(b"later", gone);
        let sender = Sender::new(place.near, stays);
        sender.one(b"still here");
        receiver.assert_all((2, stays), sender.address(), &[b"still here".to_vec()], "kept");
        assert!(receiver.got.is_empty(), "{place}: {:?}", receiver.got);
        // The address is free at once, and so is the key.
        let again = receiver.add_port(1, Port { address: gone, ..receiver.port(0) });
        assert_eq!(again, gone, "{place}");
        let sender = Sender::new(place.near, again);
        sender.one(b"again");
        receiver.assert_all((1, again), sender.address(), &[b"again".to_vec()], "again");
    }
}

/// Ports are added and removed repeatedly while others are busy.
#[test]
fn ports_come_and_go_while_others_are_served() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let stays = receiver.add(0);
        let mut sender = Sender::new(place.near, stays);
        let mut sent = Vec::new();
        for round in 1..=50 {
            let passing = receiver.add(round);
            Sender::new(place.near, passing).one(&noise(100, round.into()));
            let run = datagrams(5, 300, round as usize);
            sender.runs(&run);
            sent.extend(run);
            if round % 3 == 0 {
                receiver.receive(Duration::from_millis(1)).unwrap();
            }
            receiver.path.remove(round);
        }
        receiver.got.retain(|got| got.key == 0);
        receiver.assert_all((0, stays), sender.address(), &sent, "stayed");
    }
}

#[test]
fn a_refused_port_is_named() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let address = receiver.add(1);
        let twice = receiver.path.add(&receiver.port(0), 1).unwrap_err().to_string();
        assert!(twice.ends_with("as 1: EEXIST"), "{place}: {twice}");
        let nowhere = Port { interface: Some("no-such-device".into()), ..receiver.port(0) };
        let refusal = receiver.path.add(&nowhere, 2).unwrap_err().to_string();
        assert!(refusal.contains("no-such-device") && refusal.ends_with("ENODEV"), "{refusal}");
        let foreign = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));
        let foreign = Port { address: SocketAddr::new(foreign, 0), ..receiver.port(0) };
        let refusal = receiver.path.add(&foreign, 3).unwrap_err().to_string();
        assert!(refusal.contains("192.0.2.77:0"), "{place}: {refusal}");
        assert!(refusal.ends_with("EADDRNOTAVAIL"), "{place}: {refusal}");
        if place.spec.via == Via::Socket {
            let same = Port { address, ..receiver.port(0) };
            let refusal = receiver.path.add(&same, 4).unwrap_err().to_string();
            assert!(refusal.ends_with("EADDRINUSE"), "{place}: {refusal}");
        }
        // The first port is unaffected.
        let sender = Sender::new(place.near, address);
        sender.one(b"well");
        receiver.assert_all((1, address), sender.address(), &[b"well".to_vec()], "first");
    }
}

/// A port of all addresses, of the place's family.
#[test]
fn any_address_of_the_host_is_taken() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let any: IpAddr = if place.far.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let port = Port { address: SocketAddr::new(any, 0), ..receiver.port(0) };
        let bound = receiver.add_port(1, port);
        let address = SocketAddr::new(place.far, bound.port());
        let sender = Sender::new(place.near, address);
        sender.one(b"anywhere");
        receiver.assert_all((1, address), sender.address(), &[b"anywhere".to_vec()], "any");
    }
}

/// A closed port answers by ICMP; a path with other ports continues.
#[test]
fn complaints_of_the_network_end_nothing() {
    for place in places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let address = receiver.add(1);
        let sender = Sender::new(place.near, address);
        for _ in 0..3 {
            sender.one(b"one");
            let closed = SocketAddr::new(place.near, free_port());
            let other = UdpSocket::bind(SocketAddr::new(place.near, 0)).unwrap();
            other.send_to(b"nobody there", closed).unwrap();
            receiver.assert_all((1, address), sender.address(), &[b"one".to_vec()], "after");
        }
    }
}
