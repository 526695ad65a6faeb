// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same tests in a network of its own: two devices wired to each other, and a loopback of its
//! own.
//!
//! Packets leave by one device and arrive at the other ([`PAIR`]). The program runs itself there,
//! with all tests except this one, one at a time: a device has few queues.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::harness::network::{Owner, PAIR, inside, sh};
use crate::harness::skip;
use crate::{Place, usable};

/// Marks a process in the network.
const INSIDE: &str = "PAGEWIRE_RECEIVE_PAIR";

/// The device on the receiving side.
pub(crate) const FAR_DEVICE: &str = "right";

pub(crate) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// Address of another sender.
pub(crate) const ALSO_NEAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 3);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
pub(crate) const NEAR_6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 1);
pub(crate) const ALSO_NEAR_6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 3);
const FAR_6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 2);

/// Another address to send from.
const ALSO: &str = "ip addr add 10.99.0.3/24 dev left";

const PAIR_6: &str = "\
    ip -6 addr add fd00:99::1/64 dev left nodad
    ip -6 addr add fd00:99::3/64 dev left nodad
    ip -6 addr add fd00:99::2/128 dev right nodad
    ip -6 rule add pref 10 iif right lookup local
    ip -6 rule add pref 11 to fd00:99::2 lookup 200
    ip -6 rule add pref 20 lookup local
    ip -6 rule del pref 0
    ip -6 route add fd00:99::2 dev left table 200
    ip -6 neigh replace fd00:99::2 lladdr 02:00:00:00:00:02 dev left nud permanent";

/// Switches the far device on again; it lost its IPv6 addresses and its routes when it was switched
/// off. Waits as [`PAIR`] does.
pub(crate) const UP_AGAIN: &str = "\
    ip link set right up
    ip -6 addr replace fd00:99::2/128 dev right nodad || true
    for device in left right; do
        until ip -o link show $device | grep -q 'state UP'; do sleep 0.01; done
    done";

/// Sets the pair up again after its devices have been removed. The rules still exist.
pub(crate) fn put_up_anew() {
    let without_rules = |script: &str| -> String {
        script.lines().filter(|line| !line.contains(" rule ")).collect::<Vec<_>>().join("\n")
    };
    let (pair, pair_6) = (without_rules(PAIR), without_rules(PAIR_6));
    sh(&format!("{pair}\n{ALSO}\n{{ {pair_6}\n}} || true"));
}

pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((FAR_6, 0)).is_ok()
}

/// Returns every member, over the pair.
pub(crate) fn places() -> Vec<Place> {
    let mut ends = vec![(IpAddr::V4(NEAR), IpAddr::V4(FAR))];
    if has_ipv6() {
        ends.push((IpAddr::V6(NEAR_6), IpAddr::V6(FAR_6)));
    } else {
        skip("no IPv6 in the network of two devices".to_string());
    }
    let of = |(near, far)| {
        usable().into_iter().map(move |spec| Place { spec, near, far, interface: Some(FAR_DEVICE) })
    };
    ends.into_iter().flat_map(of).collect()
}

#[test]
fn all_of_it_holds_over_a_pair_of_devices() {
    if is_inside() {
        return;
    }
    let setup = format!("{PAIR}\n{ALSO}\n{{ {PAIR_6}\n}} || true\nexport {INSIDE}=1");
    let Some(output) = inside(Owner::RootIfAny, &setup, "--test-threads=1 --nocapture") else {
        return;
    };
    assert!(output.contains("test result: ok") && !output.contains(" 0 passed"), "{output}");
}
