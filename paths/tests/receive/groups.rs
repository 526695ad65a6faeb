// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups: joined from any source, or from named ones, without the groups that others have joined.
//!
//! The tests run over the pair of devices only: there the sender's device and the one that a group
//! is joined on are two.
//!
//! Sources: RFC 4607, RFC 3678.

use std::net::{IpAddr, SocketAddr};

use paths::{Port, RECEIVE_PATHS, Via};
use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::{set_ip_multicast_if, set_ipv6_multicast_if};

use crate::harness::network::sh;
use crate::pair::{ALSO_NEAR, ALSO_NEAR_6, NEAR, is_inside};
use crate::sender::{Sender, shared};
use crate::{Place, Receiver, datagrams, places};

/// Returns the places in the network of two devices; none elsewhere.
fn group_places() -> Vec<Place> {
    if is_inside() { places() } else { Vec::new() }
}

/// Returns a group of the place's family.
fn group(place: &Place, number: u8) -> IpAddr {
    if place.far.is_ipv4() {
        IpAddr::from([232, 1, 2, number])
    } else {
        IpAddr::from([0xff35, 0, 0, 0, 0, 0, 0x8000, u16::from(number)])
    }
}

/// Returns the other sender's address.
fn also_near(place: &Place) -> IpAddr {
    if place.near.is_ipv4() { ALSO_NEAR.into() } else { ALSO_NEAR_6.into() }
}

/// Sends from `source` by the near device.
fn sender(source: IpAddr, target: SocketAddr) -> Sender {
    let plain = shared(SocketAddr::new(source, 0));
    let cutting = shared(plain.local_addr().unwrap());
    for socket in [&plain, &cutting] {
        if source.is_ipv4() {
            set_ip_multicast_if(socket, &NEAR).unwrap();
        } else {
            set_ipv6_multicast_if(socket, name_to_index(socket, "left").unwrap()).unwrap();
        }
    }
    Sender::by([plain, cutting], target)
}

fn port_of(receiver: &Receiver, group: IpAddr, port: u16, sources: &[IpAddr]) -> Port {
    let address = SocketAddr::new(group, port);
    Port { address, sources: sources.to_vec(), ..receiver.port(1 << 20) }
}

/// Receives all datagrams of a while after the first `count`.
fn settled(receiver: &mut Receiver, count: usize) -> Vec<(u32, SocketAddr, Vec<u8>)> {
    receiver.wait_for(count);
    while receiver.receive(std::time::Duration::from_millis(30)).unwrap() > 0 {}
    receiver.got.drain(..).map(|got| (got.key, got.source, got.bytes)).collect()
}

#[test]
fn a_group_is_taken_from_any_source() {
    for place in group_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = port_of(&receiver, group(&place, 1), 0, &[]);
        let address = receiver.add_port(5, port);
        assert_eq!(address.ip(), group(&place, 1), "{place}");
        let mut one = sender(place.near, address);
        let other = sender(also_near(&place), address);
        let run = datagrams(30, 1000, 77);
        one.runs(&run);
        other.one(b"from the other");
        let got = settled(&mut receiver, 31);
        let mut expected: Vec<_> = run.into_iter().map(|bytes| (5, one.address(), bytes)).collect();
        expected.push((5, other.address(), b"from the other".to_vec()));
        assert!(got == expected, "{place}: {} came", got.len());
    }
}

#[test]
fn a_group_is_taken_from_its_source_alone() {
    for place in group_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let port = port_of(&receiver, group(&place, 2), 0, &[place.near]);
        let address = receiver.add_port(1, port);
        let (wanted, unwanted) = (sender(place.near, address), sender(also_near(&place), address));
        unwanted.one(b"another source's");
        wanted.one(b"first");
        unwanted.one(b"another source's");
        wanted.one(b"second");
        let first = (1, wanted.address(), b"first".to_vec());
        let second = (1, wanted.address(), b"second".to_vec());
        assert_eq!(settled(&mut receiver, 2), [first, second], "{place}");
        // Both sources are received where both are named.
        receiver.path.remove(1);
        let sources = [also_near(&place), place.near];
        let port = port_of(&receiver, group(&place, 2), address.port(), &sources);
        assert_eq!(receiver.add_port(2, port), address, "{place}");
        unwanted.one(b"wanted now");
        wanted.one(b"third");
        let now = (2, unwanted.address(), b"wanted now".to_vec());
        let third = (2, wanted.address(), b"third".to_vec());
        assert_eq!(settled(&mut receiver, 2), [now, third], "{place}");
    }
}

/// Two ports of one number, each with a group or a source of its own.
#[test]
fn groups_and_sources_of_one_port_number_are_told_apart() {
    for place in group_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let near = [place.near];
        let one = port_of(&receiver, group(&place, 3), 0, &near);
        let one = receiver.add_port(1, one);
        // The same group and port from the other source; another group on the same port.
        let two = port_of(&receiver, group(&place, 3), one.port(), &[also_near(&place)]);
        assert_eq!(receiver.add_port(2, two), one, "{place}");
        let three = port_of(&receiver, group(&place, 4), one.port(), &[]);
        let three = receiver.add_port(3, three);
        let first = sender(place.near, one);
        let second = sender(also_near(&place), one);
        let third = sender(place.near, three);
        first.one(b"1");
        second.one(b"2");
        third.one(b"3");
        let mut got = settled(&mut receiver, 3);
        got.sort_by_key(|(key, ..)| *key);
        let expected = [(1, &first, b"1"), (2, &second, b"2"), (3, &third, b"3")]
            .map(|(key, from, bytes)| (key, from.address(), bytes.to_vec()));
        assert_eq!(got, expected, "{place}");
        // A removed port leaves the others their memberships.
        receiver.path.remove(2);
        second.one(b"2");
        first.one(b"1");
        third.one(b"3");
        let mut got = settled(&mut receiver, 2);
        got.sort_by_key(|(key, ..)| *key);
        assert_eq!(got, [expected[0].clone(), expected[2].clone()], "{place}");
    }
}

/// Another socket of the host has joined another group: its datagrams do not arrive here.
#[test]
fn groups_of_others_do_not_arrive() {
    for place in group_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        // An XDP program has a device to itself, and hides its frames from all others.
        if place.spec.name == "xdp" {
            continue;
        }
        let Some(mut neighbour) = Receiver::new(place) else { continue };
        let ours = port_of(&receiver, group(&place, 5), 0, &[place.near]);
        let ours = receiver.add_port(1, ours);
        let theirs = port_of(&neighbour, group(&place, 5), ours.port(), &[]);
        neighbour.add_port(9, theirs);
        let other = sender(also_near(&place), ours);
        let one = sender(place.near, ours);
        other.one(b"theirs alone");
        one.one(b"of both");
        let of_both = |key| (key, one.address(), b"of both".to_vec());
        assert_eq!(settled(&mut receiver, 1), [of_both(1)], "{place}");
        let theirs_alone = (9, other.address(), b"theirs alone".to_vec());
        assert_eq!(settled(&mut neighbour, 2), [theirs_alone, of_both(9)], "{place}");
    }
}

/// A port of all addresses of the host receives no group's datagrams, even if another socket has
/// joined it.
#[test]
fn all_addresses_are_those_of_the_host() {
    for place in group_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        // The second is the reference: not every device allows two members of one kind.
        let by_reference = Place { spec: RECEIVE_PATHS[0], ..place };
        let Some(mut neighbour) = Receiver::new(by_reference) else { continue };
        let theirs = port_of(&neighbour, group(&place, 7), 0, &[]);
        neighbour.add_port(9, theirs);
        let any: IpAddr = if place.far.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let port = Port { address: SocketAddr::new(any, 0), ..receiver.port(0) };
        let number = receiver.add_port(1, port).port();
        sender(place.near, SocketAddr::new(group(&place, 7), number)).one(b"the group's");
        let to_host = sender(place.near, SocketAddr::new(place.far, number));
        to_host.one(b"the host's");
        let expected = (1, to_host.address(), b"the host's".to_vec());
        assert_eq!(settled(&mut receiver, 1), [expected], "{place}");
    }
}

/// A removed device ends its groups' memberships: the reader gets an error once nothing arrives any
/// more, and other ports continue.
#[test]
fn a_device_that_goes_away_is_told_of() {
    for place in group_places() {
        if place.spec.via == Via::Device {
            continue; // The member has one device, and tests of its own.
        }
        let Some(mut receiver) = Receiver::new(place) else { continue };
        sh("ip link add gone type veth peer name beyond && ip link set gone up");
        let of_gone = port_of(&receiver, group(&place, 8), 0, &[]);
        receiver.add_port(1, Port { interface: Some("gone".into()), ..of_gone });
        let stays = port_of(&receiver, group(&place, 9), 0, &[]);
        let stays = receiver.add_port(2, stays);
        let wait = std::time::Duration::from_millis(20);
        assert_eq!(receiver.receive(wait).unwrap(), 0, "{place}: still there");
        sh("ip link del gone");
        // The path checks one port after a wait without datagrams; there are two.
        let error = (0..20).find_map(|_| receiver.receive(wait).err());
        let error = error.unwrap_or_else(|| panic!("{place}: nothing was told")).to_string();
        assert!(error.ends_with("on gone: ENODEV"), "{place}: {error}");
        let sender = sender(place.near, stays);
        sender.one(b"goes on");
        let start = std::time::Instant::now();
        while receiver.got.is_empty() && start.elapsed() < crate::TIMEOUT {
            let _ = receiver.receive(wait);
        }
        assert_eq!(receiver.got.drain(..).next().unwrap().bytes, b"goes on", "{place}");
        // Without that port there is no error.
        receiver.path.remove(1);
        for _ in 0..4 {
            assert_eq!(receiver.receive(wait).unwrap(), 0, "{place}");
        }
    }
}

#[test]
fn a_source_of_the_other_family_is_refused() {
    for place in group_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let wrong = if place.near.is_ipv4() {
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 9])
        } else {
            IpAddr::from([10, 0, 0, 9])
        };
        let port = port_of(&receiver, group(&place, 6), 0, &[wrong]);
        let refusal = receiver.path.add(&port, 1).unwrap_err().to_string();
        assert!(refusal.ends_with("EAFNOSUPPORT"), "{place}: {refusal}");
    }
}
