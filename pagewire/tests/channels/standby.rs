// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two servers with one channel, one of them its hot standby, in a separate network: whatever
//! happens to the primary, one of the two sends, and a receiver of the group sees one sender.
//!
//! The receiver distinguishes the servers by their ports; a real one sees one sender. The time of
//! the takeover is judged by `timed`.

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::capture::{Capture, Datagram, rtp};
use crate::clips::{Streams, clip};
use crate::harness::answer::{Answer, http};
use crate::harness::recorder::{Rtp, Sender};
use crate::harness::rtsp::Control;
use crate::harness::{Place, Server};
use crate::network::{self, Owner};
use crate::{await_state, serve};

pub(crate) const LOOPBACK: &str = "ip link set lo up multicast on
    ip route add 224.0.0.0/4 dev lo";

const RTP_GROUP: &str = "239.9.1.1:5004";
const UDP_GROUP: &str = "239.9.1.2:5006";
/// Channels of the configuration: over RTP at a constant rate, and over plain UDP.
pub(crate) const BY_RTP: usize = 0;
pub(crate) const BARE: usize = 1;

#[test]
fn a_second_server_takes_over_and_steps_back() {
    network::run(Owner::User, LOOPBACK, "standby::inside_a_network");
}

#[test]
#[ignore = "in a network of its own, by the test above"]
fn inside_a_network() {
    let Some(files) = files("standby::a_second_server_takes_over_and_steps_back") else { return };
    let mut receivers = Receivers::open();
    let began = Instant::now();
    let primary = start("primary", &files);
    receivers.wait_for_both("the primary", began, &[vec![], vec![]]);
    let of_primary = receivers.ports_since(began);
    let standby = start("standby", &files);
    assert_stands_by(&standby);

    let killed = Instant::now();
    kill(&primary, Signal::KILL);
    receivers.wait_for_both("the standby", killed, &of_primary);
    await_sending(&standby, true);
    drop(primary);

    let hostile = forged();
    receivers.strangers = hostile.iter().map(|(sender, _)| local_port(sender)).collect();
    for _ in 0..20 {
        hostile.iter().for_each(|(sender, datagram)| sender.send_raw(datagram));
        receivers.captures[BY_RTP].await_more("packets beside strangers", hostile.len());
    }
    receivers.wait_for_both("the standby beside strangers", Instant::now(), &of_primary);

    let primary = start("primary", &files);
    await_sending(&primary, true);
    assert_stands_by(&standby);
    kill(&primary, Signal::STOP);
    await_sending(&standby, true);
    kill(&primary, Signal::CONT);
    assert_stands_by(&standby);
    await_sending(&primary, true);
    primary.stop();
    await_sending(&standby, true);
    await_state(&standby, BY_RTP, "it counts", |state| state["takeovers"].as_u64() >= Some(3));
    standby.stop();
    let by_rtp = receivers.since(BY_RTP, began);
    let sources: Vec<u32> = by_rtp.iter().map(|datagram| rtp(datagram).2).collect();
    assert!(sources.iter().all(|source| *source == sources[0]), "one sender, to a receiver");
}

/// Returns two files of the channel; `None`, with the reason printed, where there are none.
pub(crate) fn files(test: &str) -> Option<[Vec<u8>; 2]> {
    Some([clip(test, 10, 75, Streams::Both)?, clip(test, 11, 90, Streams::Both)?])
}

/// Waits until a server sends both channels, or neither.
#[track_caller]
fn await_sending(server: &Server, is_sending: bool) {
    for channel in [BY_RTP, BARE] {
        await_state(server, channel, &format!("sending: {is_sending}"), |state| {
            state["sending"] == is_sending
        });
    }
}

/// Starts a server of the pair.
pub(crate) fn start(role: &str, files: &[Vec<u8>]) -> Server {
    let place = Place::new();
    for (number, bytes) in files.iter().enumerate() {
        place.put(&format!("{number}.ts"), bytes);
    }
    let channel = |name: &str, target: &str, more: &str| {
        format!(
            "[channel.{name}]\nplaylist = [\"./\"]\nsend = [\"{target}\"]\ninterface = \"lo\"\n\
             role = \"{role}\"\n{more}\n"
        )
    };
    let config = channel("a", &format!("rtp://{RTP_GROUP}"), "constant_rate_kbps = 2000")
        + &channel("b", &format!("udp://{UDP_GROUP}"), "");
    serve(&place, &config)
}

/// Returns the source ports of packets, in order of appearance.
pub(crate) fn ports(datagrams: &[Datagram]) -> Vec<u16> {
    let mut ports = Vec::new();
    for datagram in datagrams {
        if !ports.contains(&datagram.from.port()) {
            ports.push(datagram.from.port());
        }
    }
    ports
}

/// Receivers of both channels, and the ports of strangers, whose packets they leave out.
pub(crate) struct Receivers {
    pub(crate) captures: [Capture; 2],
    pub(crate) strangers: Vec<u16>,
}

impl Receivers {
    pub(crate) fn open() -> Receivers {
        let captures = [RTP_GROUP, UDP_GROUP].map(|group| Capture::group(group, "lo"));
        Receivers { captures, strangers: Vec::new() }
    }

    /// Returns the datagrams that the servers sent to a channel from a moment on.
    pub(crate) fn since(&self, channel: usize, moment: Instant) -> Vec<Datagram> {
        let mut datagrams = self.captures[channel].so_far();
        datagrams.retain(|datagram| datagram.at >= moment && self.is_servers(datagram));
        datagrams
    }

    fn is_servers(&self, datagram: &Datagram) -> bool {
        !self.strangers.contains(&datagram.from.port())
    }

    pub(crate) fn wait_for_both(&self, what: &str, since: Instant, but: &[Vec<u16>; 2]) {
        for (capture, but) in self.captures.iter().zip(but) {
            capture.await_any(what, |datagram| {
                let is_known = but.contains(&datagram.from.port());
                datagram.at >= since && self.is_servers(datagram) && !is_known
            });
        }
    }

    pub(crate) fn ports_since(&self, moment: Instant) -> [Vec<u16>; 2] {
        [BY_RTP, BARE].map(|channel| ports(&self.since(channel, moment)))
    }
}

/// Asserts that a silent standby reports its state to operators and to viewers. Where the other
/// server was late it sends for a moment, and then stands by again.
#[track_caller]
pub(crate) fn assert_stands_by(standby: &Server) {
    await_state(standby, BY_RTP, "it stands by, and says so", |state| {
        let answers = [
            Control::to(standby.rtsp).ask("DESCRIBE", "channel/a", &[]),
            http(standby.http, "GET", "/channel/a/master.m3u8"),
        ];
        let says_so = |answer: &Answer| {
            answer.status == 503 && answer.text().contains("stands by for channel a")
        };
        state["reason"] == "standby" && state["sending"] == false && answers.iter().all(says_so)
    });
}

/// Returns packets of strangers to both groups: noise, a foreign RTP stream, foreign packets of a
/// transport stream, and odd lengths.
pub(crate) fn forged() -> Vec<(Sender, Vec<u8>)> {
    let noise: Vec<u8> =
        (0..1316_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut foreign = vec![0xff; 7 * 188];
    for packet in foreign.chunks_exact_mut(188) {
        packet[..4].copy_from_slice(&[0x47, 0x01, 0x00, 0x10]);
    }
    let sender = |group: &str, rtp: Option<Rtp>| {
        let from = "127.0.0.1".parse().expect("an address");
        let sender = Sender::to(group.parse().expect("an address"), from);
        Sender { rtp, ..sender }
    };
    let mut all = Vec::new();
    for payload in [noise, foreign.clone(), foreign[..1000].to_vec(), vec![0x47], Vec::new()] {
        let rtp = Rtp { ssrc: 0x0bad_cafe, sequence: 7, timestamp: 1 };
        let mut by_rtp = sender(RTP_GROUP, Some(rtp));
        let datagram = by_rtp.datagram(&payload);
        all.push((by_rtp, datagram));
        all.push((sender(RTP_GROUP, None), payload.clone()));
        all.push((sender(UDP_GROUP, None), payload));
    }
    all
}

pub(crate) fn local_port(sender: &Sender) -> u16 {
    sender.socket.local_addr().expect("it is bound").port()
}

pub(crate) fn kill(server: &Server, signal: Signal) {
    let pid = Pid::from_raw(server.pid().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it still runs");
}
