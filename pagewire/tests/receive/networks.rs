// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups and interfaces, in a network of their own (`unshare -Urn`): joined, source-specific, down
//! and up again.

use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::assert_file;
use crate::harness::clip::Clip;
use crate::harness::recorder::{Recorder, Sender};
use crate::harness::{PROGRAM, Place, await_ok};
use crate::network::{self, Owner, sh};

/// A loopback that supports groups, with two addresses.
const LOOPBACK: &str = "ip link set lo up multicast on
    ip address add 10.9.0.1/32 dev lo
    ip address add 10.9.0.2/32 dev lo
    ip route add 224.0.0.0/4 dev lo";

/// A veth pair in one network.
const CABLE: &str = "ip link set lo up
    ip link add left type veth peer name right
    ip link set left up && ip link set right up
    ip address add 10.9.1.1/24 dev left
    ip route add 224.0.0.0/4 dev left";

fn group(text: &str) -> std::net::SocketAddr {
    text.parse().expect("an address")
}

fn host(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn groups() {
    network::run(Owner::User, LOOPBACK, "networks::groups_are_joined_for_the_sources_named");
}

#[test]
#[ignore = "in a network of its own"]
fn groups_are_joined_for_the_sources_named() {
    let place = Place::new();
    let clips = [1, 2, 3].map(|seed| Clip::of_seconds(seed, 6).bytes());
    let urls = [
        "udp://239.1.1.1:5004?interface=lo".to_owned(),
        "udp://10.9.0.1@232.1.1.1:5010?interface=lo".to_owned(),
    ];
    let recorder = Recorder::start(&place, &urls, &[]);
    let mut any = Sender::to(group("239.1.1.1:5004"), host("10.9.0.2"));
    let mut wanted = Sender::to(group("232.1.1.1:5010"), host("10.9.0.1"));
    let mut unwanted = Sender::to(group("232.1.1.1:5010"), host("10.9.0.2"));
    let rtp = Sender::rtp(1, 5, 0).rtp;
    (any.rtp, wanted.rtp, unwanted.rtp) = (rtp, rtp, rtp);
    any.send_all(&clips[0]);
    unwanted.send_all(&clips[2]);
    wanted.send_all(&clips[1]);
    let recorded = recorder.stop().well();
    assert_file(&place.folder().join("0.ts"), &clips[0]);
    assert_file(&place.folder().join("1.ts"), &clips[1]);
    // The kernel passed no packet of the other sender.
    assert_eq!(recorded.stream(1)["unexpected_source"], 0, "{:#}", recorded.summary);
    assert_eq!(
        recorded.stream(1)["sender"].as_str().map(|s| s.starts_with("10.9.0.1:")),
        Some(true)
    );
}

#[test]
fn interfaces() {
    network::run(
        Owner::User,
        CABLE,
        "networks::an_interface_that_goes_and_comes_back_is_joined_again",
    );
}

#[test]
#[ignore = "in a network of its own"]
fn an_interface_that_goes_and_comes_back_is_joined_again() {
    let place = Place::new();
    let clip = Clip::of_seconds(4, 12).bytes();
    let half = clip.len() / 2 / 1316 * 1316;
    let url = "udp://239.1.1.1:5004?interface=right".to_owned();
    sh("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.right.rp_filter=0 \
        net.ipv4.conf.all.accept_local=1 net.ipv4.conf.right.accept_local=1");
    let mut recorder = Recorder::start(&place, &[url], &[]);
    let send = |part: &[u8]| {
        let mut sender = Sender::to(group("239.1.1.1:5004"), host("10.9.1.1"));
        sender.socket.set_multicast_loop_v4(false).expect("a UDP socket has the option");
        sender.send_all(part);
    };
    send(&clip[..half]);
    recorder.await_bytes("0.ts", half as u64);
    sh("ip link delete left");
    recorder.await_log("still trying");
    sh("ip link add left type veth peer name right
        ip link set left up && ip link set right up
        ip address add 10.9.1.1/24 dev left
        ip route add 224.0.0.0/4 dev left
        sysctl -qw net.ipv4.conf.right.rp_filter=0 net.ipv4.conf.right.accept_local=1");
    await_membership("right", "010101EF");
    // A silence of a second or more counts as an outage.
    sleep(Duration::from_millis(1500));
    send(&clip[half..]);
    let recorded = recorder.stop().well();
    assert_file(&place.folder().join("0.ts"), &clip);
    assert!(recorded.summary["path_errors"].as_u64() > Some(0), "{:#}", recorded.summary);
    assert!(recorded.figure("outages") >= 1);
}

/// Waits until a group, as a number in host byte order, is joined at a device.
fn await_membership(device: &str, group: &str) {
    await_ok(|| {
        let joined = fs::read_to_string("/proc/net/igmp").expect("the kernel has IPv4");
        let of_device = joined.split('\n').skip_while(|line| !line.contains(device));
        let mut groups = of_device.skip(1).take_while(|line| line.starts_with('\t'));
        let is_joined = groups.any(|line| line.trim_start().starts_with(group));
        let found = || format!("{group} is not joined at {device}:\n{joined}");
        if is_joined { Ok(()) } else { Err(found()) }
    });
}

#[test]
fn rights() {
    network::run(
        Owner::User,
        "ip link set lo up",
        "networks::a_way_that_is_refused_is_named_and_the_next_taken",
    );
}

#[test]
#[ignore = "in a network of its own"]
fn a_way_that_is_refused_is_named_and_the_next_taken() {
    let known =
        Command::new(PROGRAM).args(["receive", "--path", "?", "udp://127.0.0.1:1"]).output();
    let known = String::from_utf8_lossy(&known.expect("the program is built").stderr).into_owned();
    if !known.contains("xdp") {
        eprintln!("skip: rights: no xdp among the ways of receiving: {known}");
        return;
    }
    // In a user namespace no process may load a program into the kernel.
    let place = Place::new();
    let clip = Clip::of_seconds(5, 2).bytes();
    let url = "udp://127.0.0.1:5004?interface=lo".to_owned();
    let recorder = Recorder::start(&place, &[url], &["--path", "xdp"]);
    Sender::rtp(5004, 1, 0).send_all(&clip);
    let recorded = recorder.stop().well();
    assert_file(&place.folder().join("0.ts"), &clip);
    let refused = recorded.summary["refused"][0].as_str().expect("a reason").to_owned();
    assert!(refused.starts_with("receive/xdp: "), "{refused}");
    assert_ne!(recorded.summary["path"], "xdp");
    assert!(recorded.log.contains("instead"), "{}", recorded.log);
}
