// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of a channel goes down and comes back: what is not sent is counted, the log has the
//! reason, and the channel is on the air again by itself, where its clock says.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::capture::{Capture, stream};
use crate::clips::{Streams, clip};
use crate::harness::Place;
use crate::network::{self, Owner, sh};
use crate::{await_state, serve, state};

/// Two ends of a cable, in one network. Its sender segments: a cable that claims to segment drops
/// what is to be segmented.
const CABLE: &str = "ip link set lo up
    ip link add left type veth peer name right
    ethtool -K left tx-udp-segmentation off
    ip link set left up && ip link set right up
    ip address add 10.9.1.1/24 dev left
    ip route add 224.0.0.0/4 dev left
    sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.right.rp_filter=0
    sysctl -qw net.ipv4.conf.all.accept_local=1 net.ipv4.conf.right.accept_local=1";
const GROUP: &str = "239.9.2.1:5004";

pub(crate) fn in_a_network() {
    let name = "interfaces::a_channel_comes_back_with_its_interface";
    network::run(Owner::User, CABLE, name);
}

#[test]
#[ignore = "in a network of its own"]
fn a_channel_comes_back_with_its_interface() {
    let Some(bytes) = clip("a_channel_comes_back_with_its_interface", 50, 75, Streams::Both) else {
        return;
    };
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
    receiver.await_any("the channel", |_| true);
    sleep(Duration::from_secs(1));
    sh("ip link set left down");
    await_state(&server, 0, "losses are counted", |state| {
        state["dropped_packets"].as_u64() > Some(0)
    });
    server.await_log("trying again every second");
    sleep(Duration::from_secs(1));
    sh("ip link set left up && ip route replace 224.0.0.0/4 dev left");
    let up = Instant::now();
    receiver.await_any("the channel again", |datagram| datagram.at > up);
    sleep(Duration::from_secs(2));
    let dropped = state(&server, 0)["dropped_packets"].clone();
    sleep(Duration::from_secs(1));
    assert_eq!(state(&server, 0)["dropped_packets"], dropped, "all is taken again");
    let log = server.stop();
    assert_eq!(log.matches("trying again every second").count(), 1, "once a minute: {log}");

    let datagrams = receiver.stop();
    let before: Vec<_> = datagrams.iter().filter(|datagram| datagram.at < up).cloned().collect();
    stream(&before, 0).walk().assert_seamless(0);
    let after: Vec<_> = datagrams.iter().filter(|datagram| datagram.at > up).cloned().collect();
    stream(&after, 0).walk().assert_seamless(0);
    // Before and after lie on one line of the clock.
    let walk = stream(&datagrams, 0).walk();
    assert!(walk.clocks.windows(2).all(|pair| pair[1].1 > pair[0].1), "the clock goes forward");
}
