// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the paths by device with frames of every kind, sent from the other end of a pair of
//! devices.
//!
//! Malformed frames can only be made here; `tests/receive` shows the sound ones. Each test runs
//! itself in a network of its own: real root's where possible, because the kernel accepts XDP
//! programs only there.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::frame::Device;
use crate::frame::ring::Ring;
use crate::host::Host;
use crate::network::{self, Owner};
use crate::receive::frames::tests::{packet_to, seal};
use crate::receive::{Port, RECEIVE_PATHS, ReceivePath, ReceiveSpec};
use crate::send_stats::SendStats;
use crate::spec::Via;
use crate::sys::{PacketRing, device_index};

const PAIR: &str = "\
    ip link add left address 02:00:00:00:00:01 type veth peer name right address 02:00:00:00:00:02
    ip addr add 10.99.0.2/24 dev right
    ip -6 addr add fd00:99::2/64 dev right nodad
    ip link set left up
    ip link set right up";

/// Receiving addresses.
const FOUR: &str = "10.99.0.2:5006";
const SIX: &str = "[fd00:99::2]:5006";

/// Runs the ignored test `name` in a network with the pair.
fn run(name: &str) {
    network::run(Owner::RootIfAny, PAIR, name);
}

fn members() -> Vec<(&'static ReceiveSpec, Box<dyn ReceivePath>)> {
    let host = Host::here();
    let by_device = RECEIVE_PATHS.iter().filter(|spec| spec.via == Via::Device);
    let usable = by_device.filter(|spec| match (spec.probe)(&host) {
        Ok(()) => true,
        Err(reason) => {
            eprintln!("skip: {spec}: {reason}");
            false
        }
    });
    usable.map(|spec| (*spec, (spec.open)().unwrap())).collect()
}

fn port(address: &str) -> Port {
    let address = address.parse().unwrap();
    Port { address, sources: vec![], interface: Some("right".to_string()), buffer_bytes: 0 }
}

/// The other end of the pair.
struct Wire(PacketRing);

impl Wire {
    fn new() -> Self {
        let index = device_index("left", &mut SendStats::default()).unwrap();
        let device = Device { index, name: "left".into(), frame_bytes: 1518 };
        Self(PacketRing::open(&device, &mut SendStats::default()).unwrap())
    }

    fn put(&mut self, frame: &[u8]) {
        let send_stats = &mut SendStats::default();
        let start = Instant::now();
        while self.0.free(1, send_stats) == 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "the ring empties");
            std::thread::yield_now();
        }
        let at = self.0.frame_at();
        self.0.slots(1)[0][at..at + frame.len()].copy_from_slice(frame);
        let bytes = frame.len() as u32;
        let sent = self.0.send(1, bytes, bytes, send_stats);
        assert_eq!((sent.accepted, sent.errno), (1, None));
    }
}

/// Returns a frame to the far end: addresses, `between` and the packet.
fn framed(between: &[u8], packet: &[u8]) -> Vec<u8> {
    let to_from = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    [&to_from[..], between, packet].concat()
}

const IPV4: &[u8] = &[0x08, 0x00];
const IPV6: &[u8] = &[0x86, 0xdd];

fn to(address: &str, payload: &[u8]) -> Vec<u8> {
    packet_to(address.parse().unwrap(), 0, payload)
}

/// Returns a sound packet of IPv4, changed, with the checksum of its header recomputed.
fn four(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = to(FOUR, b"of no good");
    change(&mut packet);
    seal(&mut packet[..20]);
    framed(IPV4, &packet)
}

fn six(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = to(SIX, b"of no good");
    change(&mut packet);
    framed(IPV6, &packet)
}

/// A name and the frame.
type Frames = Vec<(&'static str, Vec<u8>)>;

fn sound() -> Frames {
    let options = packet_to(FOUR.parse().unwrap(), 5, b"behind options");
    let mut unsummed = to(FOUR, b"without a checksum");
    unsummed[26..28].fill(0);
    let tagged = framed(&[0x81, 0, 0xa0, 0, 0x08, 0], &to(FOUR, b"of a priority"));
    let padded = framed(IPV4, &[to(FOUR, b"padded"), vec![0; 12]].concat());
    let mut unsplit = to(FOUR, b"not to be split");
    unsplit[6] = 0x40;
    seal(&mut unsplit[..20]);
    vec![
        ("IPv4", framed(IPV4, &to(FOUR, b"plain"))),
        ("options", framed(IPV4, &options)),
        ("no checksum", framed(IPV4, &unsummed)),
        ("priority tag", tagged),
        ("padding", padded),
        ("do not fragment", framed(IPV4, &unsplit)),
        ("nothing in it", framed(IPV4, &to(FOUR, b""))),
        ("IPv6", framed(IPV6, &to(SIX, b"plain"))),
    ]
}

fn malformed() -> Frames {
    let mut damaged = to(FOUR, b"of no good");
    damaged[8] ^= 1;
    vec![
        ("IPv4 header's checksum", framed(IPV4, &damaged)),
        ("checksum", four(|packet| packet[30] ^= 4)),
        ("longer than its packet", four(|packet| packet[25] += 1)),
        ("shorter than its header", four(|packet| packet[25] = 7)),
        ("cut", four(|packet| packet.truncate(35))),
        ("first fragment", four(|packet| packet[6] = 0x20)),
        ("IPv6 checksum", six(|packet| packet[50] ^= 4)),
        ("IPv6 without checksum", six(|packet| packet[46..48].fill(0))),
        ("IPv6 cut", six(|packet| packet.truncate(55))),
    ]
}

fn for_nobody() -> Frames {
    let mut extended = to(SIX, b"behind an extension");
    extended[6] = 0;
    vec![
        ("a VLAN's", framed(&[0x81, 0, 0, 5, 0x08, 0], &to(FOUR, b"of a VLAN"))),
        ("of two tags", framed(&[0x88, 0xa8, 0, 0, 0x81, 0, 0, 0, 0x08, 0], &to(FOUR, b"two"))),
        ("later fragment", four(|packet| packet[7] = 5)),
        ("of another version", four(|packet| packet[0] = 0x55)),
        ("of a short header", four(|packet| packet[0] = 0x44)),
        ("TCP", four(|packet| packet[9] = 6)),
        ("cut in UDP's header", four(|packet| packet.truncate(27))),
        ("cut in IP's header", framed(IPV4, &to(FOUR, b"")[..19])),
        ("of another port", framed(IPV4, &to("10.99.0.2:5007", b"other"))),
        ("of another address", framed(IPV4, &to("10.99.0.9:5006", b"other"))),
        ("IPv6 of another address", framed(IPV6, &to("[fd00:98::2]:5006", b"other"))),
        ("IPv6 extension", framed(IPV6, &extended)),
        ("ARP", framed(&[0x08, 0x06], &[0; 46])),
    ]
}

#[test]
fn sound_frames_are_handed_over_and_others_counted_or_passed() {
    run("receive::taps::tests::inside_a_pair_with_frames");
}

#[test]
#[ignore = "run by sound_frames_are_handed_over_and_others_counted_or_passed"]
fn inside_a_pair_with_frames() {
    for (spec, mut path) in members() {
        path.add(&port(FOUR), 4).unwrap();
        path.add(&port(SIX), 6).unwrap();
        let mut wire = Wire::new();
        let mut stats_before = path.stats();
        // Each frame is sent between two sound ones.
        let (bad, passed) = (malformed(), for_nobody());
        let all = sound().into_iter().map(|frame| (frame, 1, 0));
        let all = all.chain(bad.into_iter().map(|frame| (frame, 0, 1)));
        let all = all.chain(passed.into_iter().map(|frame| (frame, 0, 0)));
        for ((what, frame), packets, faults) in all {
            wire.put(&frame);
            wire.put(&framed(IPV4, &to(FOUR, b"and on")));
            let mut seen = Vec::new();
            let start = Instant::now();
            while seen.last().is_none_or(|(_, bytes)| bytes != b"and on") {
                assert!(start.elapsed() < Duration::from_secs(60), "{spec}: behind {what}");
                let mut each = |burst: &[crate::ReceivedRun<'_>]| {
                    seen.extend(burst.iter().map(|one| (one.key, one.bytes.to_vec())));
                };
                path.receive(Duration::from_millis(100), &mut each).unwrap();
            }
            assert_eq!(seen.len(), packets + 1, "{spec}: {what}: {seen:?}");
            let stats = path.stats();
            let counted = stats.malformed - stats_before.malformed;
            assert_eq!((counted, stats.truncated), (faults, 0), "{spec}: {what}");
            stats_before = stats;
            let key = if what.starts_with("IPv6") { 6 } else { 4 };
            assert!(packets == 0 || (seen[0].0 == key && frame_has(&frame, &seen[0].1)), "{what}");
        }
        assert_eq!((path.dropped(4), path.dropped(6)), (0, 0), "{spec}");
    }
}

fn frame_has(frame: &[u8], payload: &[u8]) -> bool {
    payload.is_empty() || frame.windows(payload.len()).any(|window| window == payload)
}

/// More ports than a filter has ranges for, added and removed: each receives its own datagrams
/// only.
#[test]
fn many_ports_come_and_go_and_each_has_its_own() {
    run("receive::taps::tests::inside_a_pair_with_many_ports");
}

#[test]
#[ignore = "run by many_ports_come_and_go_and_each_has_its_own"]
fn inside_a_pair_with_many_ports() {
    const PORTS: u32 = 300;
    // The ports have gaps, so that the ranges do not match them exactly.
    let number = |key: u32| (10_000 + 37 * key + key % 5) as u16;
    let address = |key: u32| SocketAddr::new(IpAddr::from([10, 99, 0, 2]), number(key));
    for (spec, mut path) in members() {
        let mut wire = Wire::new();
        let mut has = vec![false; PORTS as usize];
        for round in 0..3_u32 {
            for key in (0..PORTS).filter(|key| round == 0 || key % 3 == round) {
                let is_there = std::mem::replace(&mut has[key as usize], round == 0);
                if is_there {
                    path.remove(key);
                } else if round == 0 {
                    path.add(&port(&address(key).to_string()), key).unwrap();
                }
            }
            for key in 0..PORTS {
                wire.put(&framed(IPV4, &packet_to(address(key), 0, &key.to_be_bytes())));
                let mut beside = address(key);
                beside.set_port(number(key) + 1);
                wire.put(&framed(IPV4, &packet_to(beside, 0, b"of nobody")));
            }
            let expected: Vec<u32> = (0..PORTS).filter(|key| has[*key as usize]).collect();
            let mut seen = Vec::new();
            let start = Instant::now();
            while seen.len() < expected.len() && start.elapsed() < Duration::from_secs(60) {
                let mut each = |burst: &[crate::ReceivedRun<'_>]| {
                    for one in burst {
                        assert_eq!(one.bytes, one.key.to_be_bytes(), "{spec}");
                        seen.push(one.key);
                    }
                };
                path.receive(Duration::from_millis(100), &mut each).unwrap();
            }
            assert_eq!(seen, expected, "{spec}: round {round}");
        }
    }
}
