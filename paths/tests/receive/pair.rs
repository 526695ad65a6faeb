// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same tests in a network of its own: two devices wired to each other, and an own loopback.
//!
//! Both ends are in one namespace. Rules make the far end's address one of the network for what is
//! sent, and of this host for what arrives at the far end, so frames go out by one device and come
//! in by the other. The program runs itself there, all tests but this one, a test at a time: a
//! device has few queues.
//!
//! Real root makes a namespace that is its own (`unshare --net`), where the kernel lets programs
//! for XDP in as well; anybody else one of a user of its own.
//!
//! Sources: `veth(4)`, `ip-rule(8)`, `unshare(1)`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Output};

use crate::{Place, usable};

/// Says that this process is in the network.
const INSIDE: &str = "PAGEWIRE_RECEIVE_PAIR";

/// The device on the receiving side.
pub(crate) const FAR_DEVICE: &str = "right";

pub(crate) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// Another sender's.
pub(crate) const ALSO_NEAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 3);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
pub(crate) const NEAR_6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 1);
pub(crate) const ALSO_NEAR_6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 3);
const FAR_6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 2);

const PAIR: &str = "\
    ip link add left address 02:00:00:00:00:01 type veth peer name right address 02:00:00:00:00:02
    ip addr add 10.99.0.1/24 dev left
    ip addr add 10.99.0.3/24 dev left
    ip addr add 10.99.0.2/32 dev right
    ip link set left up
    ip link set right up
    ip link set lo up
    ip rule add pref 10 iif right lookup local
    ip rule add pref 11 to 10.99.0.2 lookup 200
    ip rule add pref 20 lookup local
    ip rule del pref 0
    ip route add 10.99.0.2 dev left table 200
    echo 1 > /proc/sys/net/ipv4/conf/right/accept_local
    ip neigh replace 10.99.0.2 lladdr 02:00:00:00:00:02 dev left nud permanent";

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

/// Switches the far device on again; what it loses when it is switched off are its addresses of
/// IPv6 and the routes by it.
pub(crate) const UP_AGAIN: &str = "\
    ip link set right up
    ip -6 addr replace fd00:99::2/128 dev right nodad || true";

/// Puts the pair up again after its devices have been removed. The rules are there still.
pub(crate) fn put_up_anew() {
    let without_rules = |script: &str| -> String {
        script.lines().filter(|line| !line.contains(" rule ")).collect::<Vec<_>>().join("\n")
    };
    let (pair, pair_6) = (without_rules(PAIR), without_rules(PAIR_6));
    let script = format!("{pair}\n{{ {pair_6}\n}} || true");
    let output = Command::new("sh").args(["-ec", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((FAR_6, 0)).is_ok()
}

/// Every member, over the pair.
pub(crate) fn places() -> Vec<Place> {
    let mut ends = vec![(IpAddr::V4(NEAR), IpAddr::V4(FAR))];
    if has_ipv6() {
        ends.push((IpAddr::V6(NEAR_6), IpAddr::V6(FAR_6)));
    } else {
        eprintln!("skip: no IPv6 in the network of two devices");
    }
    let of = |(near, far)| {
        usable().into_iter().map(move |spec| Place { spec, near, far, interface: Some(FAR_DEVICE) })
    };
    ends.into_iter().flat_map(of).collect()
}

fn unshared(how: &str, script: &str, program: &Path) -> std::io::Result<Output> {
    let script = format!("{PAIR}\n{{ {PAIR_6}\n}} || true\n{script}");
    Command::new("unshare").args([how, "sh", "-ec", &script]).arg(program).output()
}

#[test]
fn all_of_it_holds_over_a_pair_of_devices() {
    if is_inside() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let mut refusals = Vec::new();
    for how in ["-n", "-Urn"] {
        match unshared(how, "exit 0", &program) {
            Ok(output) if output.status.success() => return run_in(how, &program),
            Ok(output) => refusals.push(String::from_utf8_lossy(&output.stderr).trim().to_string()),
            Err(error) => refusals.push(format!("unshare: {error}")),
        }
    }
    eprintln!("skip: no network namespace: {}", refusals.join("; "));
}

fn run_in(how: &str, program: &Path) {
    let script = format!("{INSIDE}=1 exec \"$0\" --test-threads=1 --nocapture");
    let output = unshared(how, &script, program).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "in the network:\n{said}\n{complained}");
    assert!(said.contains("test result: ok") && !said.contains(" 0 passed"), "{said}");
    let mut skips: Vec<_> = complained.lines().filter(|line| line.starts_with("skip:")).collect();
    skips.sort_unstable();
    skips.dedup();
    skips.iter().for_each(|line| eprintln!("{line}"));
}

/// Runs a command of the shell that has to succeed.
pub(crate) fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {complained}");
}
