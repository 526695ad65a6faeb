// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of a channel goes down and comes back: unsent packets are counted, the log has the
//! reason, and the channel resumes by itself, at the position of its clock.

use std::time::Instant;

use crate::capture::{Capture, stream};
use crate::clips::{Streams, clip};
use crate::harness::Place;
use crate::network::{self, Owner, sh};
use crate::{await_state, has_left_out, serve, state};

/// A veth pair in one namespace. Its sender segments: a veth device that claims to segment drops
/// the packets that need segmentation.
const CABLE: &str = "ip link set lo up
    ip link add left type veth peer name right
    ethtool -K left tx-udp-segmentation off
    ip link set left up && ip link set right up
    ip address add 10.9.1.1/24 dev left
    ip route add 224.0.0.0/4 dev left
    sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.right.rp_filter=0
    sysctl -qw net.ipv4.conf.all.accept_local=1 net.ipv4.conf.right.accept_local=1";
const GROUP: &str = "239.9.2.1:5004";

#[test]
fn a_channel_comes_back_with_its_interface() {
    network::run(Owner::User, CABLE, "interfaces::inside_a_network");
}

#[test]
#[ignore = "in a network of its own, by the test above"]
fn inside_a_network() {
    let test = "a_channel_comes_back_with_its_interface";
    let Some(bytes) = clip(test, 50, 75, Streams::Both) else { return };
    let place = Place::new();
    place.put("a.ts", &bytes);
    let receiver = Capture::group(GROUP, "right");
    let server = serve(
        &place,
        &format!(
            "[channel.a]\nplaylist = [\"a.ts\"]\nsend = [\"udp://{GROUP}\"]\n\
             interface = \"left\"\nconstant_rate_kbps = 2000\n"
        ),
    );
    let began = Instant::now();
    receiver.await_more("the channel", 150);
    sh("ip link set left down");
    await_state(&server, 0, "losses are counted", |state| {
        state["dropped_packets"].as_u64() > Some(150)
    });
    server.await_log("trying again every second");
    let before_up = receiver.count_of_all();
    sh("ip link set left up && ip route replace 224.0.0.0/4 dev left");
    receiver.await_more("the channel again", 1);
    let counts = || {
        let state = state(&server, 0);
        ["packets", "dropped_packets"].map(|name| state[name].as_u64().expect("a count"))
    };
    let mut from = counts();
    await_state(&server, 0, "all is taken again", |_| {
        let [packets, dropped] = counts();
        if dropped > from[1] {
            from = [packets, dropped];
        }
        packets > from[0] + 190
    });
    let log = server.stop();
    let logged = log.matches("trying again every second").count() as u64;
    assert!((1..=1 + began.elapsed().as_secs() / 60).contains(&logged), "once a minute: {log}");
    if has_left_out(test, &log) {
        return;
    }

    let Some(datagrams) = receiver.stop_whole(test) else { return };
    let (before, after) = datagrams.split_at(before_up);
    stream(before, 0).walk().assert_seamless(0);
    stream(after, 0).walk().assert_seamless(0);
    // Clock references before and after the outage lie on one line.
    let walk = stream(&datagrams, 0).walk();
    assert!(walk.clocks.windows(2).all(|pair| pair[1].1 > pair[0].1), "the clock goes forward");
}
