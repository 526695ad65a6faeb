// SPDX-License-Identifier: MIT OR Apache-2.0
//! Members by device, when the device has changed: down, removed, or used by another program; and
//! their effect on other programs, while they run and after a crash.
//!
//! A test that removes a device makes it again, because others run after it in the same network.
//!
//! Sources: `ip-link(8)`, `veth(4)`; the kernel's `Documentation/networking/af_xdp.rst`.
//!
//! Does not send malformed frames, which no socket sends (unit tests of `paths` do).

use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use paths::{Error, Host, Port, ReceivedRun, Untapped, Via, find_receive};

use crate::pair;
use crate::sender::Sender;
use crate::{Place, ROOM_BYTES, Receiver, TIMEOUT, datagrams, places};

/// Members by device over IPv4; none outside the network of two devices.
fn device_places() -> Vec<Place> {
    if !pair::is_inside() {
        return Vec::new();
    }
    let by_device = |place: &Place| place.spec.via == Via::Device && place.far.is_ipv4();
    places().into_iter().filter(by_device).collect()
}

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Receives until the path returns the error that stops it.
fn refusal(receiver: &mut Receiver) -> Error {
    let start = Instant::now();
    loop {
        match receiver.path.receive(Duration::from_millis(50), &mut |_| {}) {
            Ok(_) => assert!(start.elapsed() < TIMEOUT, "{}: says nothing", receiver.place),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_device_that_is_down_is_said_to_be_and_serves_again_when_it_is_up() {
    for place in device_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let address = receiver.add(1);
        let sender = Sender::new(place.near, address);
        let sent = datagrams(20, 1328, 1328);
        for _ in 0..2 {
            sent.iter().for_each(|datagram| sender.one(datagram));
            receiver.assert_all((1, address), sender.address(), &sent, "before");
            sh("ip link set right down");
            let message = refusal(&mut receiver).to_string();
            assert_eq!(
                message, "frames of right: the device is down; ip link set it up",
                "{place}"
            );
            // The path returns the error again, and does not spin.
            let before = receiver.stats().waits;
            let message = refusal(&mut receiver);
            let expected = Error::Untapped { device: "right".into(), reason: Untapped::Down };
            assert_eq!(message, expected, "{place}");
            assert!(receiver.stats().waits - before < 10, "{place}");
            sh(pair::UP_AGAIN);
        }
        sent.iter().for_each(|datagram| sender.one(datagram));
        receiver.assert_all((1, address), sender.address(), &sent, "after");
    }
}

#[test]
fn a_device_that_goes_away_is_named_and_its_successor_can_be_taken_from() {
    for place in device_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let address = receiver.add(1);
        let sender = Sender::new(place.near, address);
        let sent = datagrams(20, 700, 700);
        sent.iter().for_each(|datagram| sender.one(datagram));
        receiver.assert_all((1, address), sender.address(), &sent, "before");
        sh("ip link del right");
        for _ in 0..2 {
            let message = refusal(&mut receiver).to_string();
            let expected = "frames of right: the device is gone; add its ports again when it is \
                            back";
            assert_eq!(message, expected, "{place}");
        }
        let refused = receiver.path.add(&receiver.port(0), 2).unwrap_err().to_string();
        let expected = "if_nametoindex on 10.99.0.2:0 on right: ENODEV";
        assert_eq!(refused, expected, "{place}");
        pair::put_up_anew();
        receiver.path.remove(1);
        let address = receiver.add(1);
        let sender = Sender::new(place.near, address);
        sent.iter().for_each(|datagram| sender.one(datagram));
        receiver.assert_all((1, address), sender.address(), &sent, "after");
    }
}

/// Packets to other ports, and to other addresses, reach the sockets there; packets to a removed
/// port do not.
#[test]
fn other_ports_are_left_to_others() {
    for place in device_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let address = receiver.add(1);
        let other = UdpSocket::bind((place.far, 0)).unwrap();
        other.set_read_timeout(Some(TIMEOUT)).unwrap();
        let (to_it, to_other) = (
            Sender::new(place.near, address),
            Sender::new(place.near, other.local_addr().unwrap()),
        );
        let mut buffer = [0; 2048];
        for number in 0..50_u8 {
            to_it.one(&[number; 500]);
            to_other.one(&[number; 600]);
            assert_eq!(other.recv(&mut buffer).unwrap(), 600, "{place}");
            assert_eq!(buffer[..600], [number; 600], "{place}");
        }
        let sent: Vec<Vec<u8>> = (0..50_u8).map(|number| vec![number; 500]).collect();
        receiver.assert_all((1, address), to_it.address(), &sent, "beside others");
        let held = UdpSocket::bind(address).unwrap_err();
        assert_eq!(held.kind(), std::io::ErrorKind::AddrInUse, "{place}: the port is held");
        receiver.path.remove(1);
        let heir = UdpSocket::bind(address).unwrap();
        heir.set_read_timeout(Some(TIMEOUT)).unwrap();
        to_it.one(b"to the heir");
        assert_eq!(heir.recv(&mut buffer).unwrap(), 11, "{place}");
    }
}

/// Returns the program that is on the device, by number; none when there is none.
fn program() -> Option<String> {
    let text = sh("ip -d link show right");
    let at = text.find("prog/xdp")?;
    Some(text[at..].split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

#[test]
fn a_device_with_a_program_is_refused_and_keeps_it() {
    for place in device_places().into_iter().filter(|place| place.spec.name == "xdp") {
        assert_eq!(program(), None, "{place}");
        let mut first = Receiver::new(place).unwrap();
        first.add(1);
        let kept = program();
        assert!(kept.is_some(), "{place}");
        let mut second = Receiver::new(place).unwrap();
        let refused = second.path.add(&second.port(0), 1).unwrap_err();
        let device = "right".into();
        let expected = Error::Untapped { device, reason: Untapped::OtherProgram };
        assert_eq!(refused, expected, "{place}");
        assert_eq!(program(), kept, "{place}");
        // The program is removed with the last port, and with the path.
        first.path.remove(1);
        assert_eq!(program(), None, "{place}: without a port");
        first.add(2);
        assert!(program().is_some(), "{place}: with one again");
        drop(first);
        assert_eq!(program(), None, "{place}: without the path");
    }
}

#[test]
fn a_device_of_too_long_frames_is_refused() {
    for place in device_places().into_iter().filter(|place| place.spec.name == "xdp") {
        sh("ip link set right mtu 9000");
        let mut receiver = Receiver::new(place).unwrap();
        let refused = receiver.path.add(&receiver.port(0), 1).unwrap_err().to_string();
        let expected = "frames of right: an MTU of 9000; an XDP socket takes 3822: set that, or \
                        take a path by socket";
        assert_eq!(refused, expected);
        sh("ip link set right mtu 1500");
        assert_eq!(program(), None, "{place}");
    }
}

/// Device and address are given or can be found.
#[test]
fn a_device_that_is_not_named_is_the_one_that_has_the_address() {
    for place in device_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let at = |address: IpAddr| Port { interface: None, ..with(&receiver, address) };
        let (here, anywhere) = (at(place.far), at(IpAddr::from([0; 4])));
        let elsewhere = at(IpAddr::from([10, 1, 2, 3]));
        let address = receiver.add_port(1, here);
        let sender = Sender::new(place.near, address);
        let sent = datagrams(5, 100, 100);
        sent.iter().for_each(|datagram| sender.one(datagram));
        receiver.assert_all((1, address), sender.address(), &sent, "found");
        let refused = receiver.path.add(&anywhere, 2).unwrap_err().to_string();
        let expected = "frames for 0.0.0.0:0: unknown device; name it, or one of its addresses";
        assert_eq!(refused, expected, "{place}");
        let refused = receiver.path.add(&elsewhere, 2).unwrap_err().to_string();
        assert_eq!(refused, "bind on 10.1.2.3:0: EADDRNOTAVAIL", "{place}");
    }
}

fn with(receiver: &Receiver, address: IpAddr) -> Port {
    Port { address: SocketAddr::new(address, 0), ..receiver.port(0) }
}

/// A user's own namespace has devices, but programs belong to the whole host: the probe reports it.
#[test]
fn without_rights_for_programs_the_probe_says_so() {
    let mut unshare = Command::new("unshare");
    unshare.arg("-Urn").arg(std::env::current_exe().unwrap());
    unshare.args(["--exact", "devices::inside_a_namespace_of_a_user", "--ignored", "--nocapture"]);
    let output = match unshare.output() {
        Ok(output) => output,
        Err(error) => return eprintln!("skip: no namespace of a user: unshare: {error}"),
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !stdout.contains("running 1 test") {
        return eprintln!("skip: no namespace of a user: {}", stderr.trim());
    }
    assert!(output.status.success(), "{stdout}\n{stderr}");
}

#[test]
#[ignore = "run by without_rights_for_programs_the_probe_says_so"]
fn inside_a_namespace_of_a_user() {
    let host = Host::here();
    let refusal = (find_receive("xdp").unwrap().probe)(&host).unwrap_err().to_string();
    let expected = "needs CAP_BPF and CAP_NET_ADMIN for an XDP program, found bpf refused: EPERM \
                    (rights in a user namespace do not suffice)";
    if host.needs_kernel(5, 9).is_ok() && host.xdp_sockets {
        assert_eq!(refusal, expected);
    } else {
        assert!(refusal.starts_with("needs "), "{refusal}");
    }
}

/// A process that is killed leaves the device unchanged: its program and its ports are removed.
#[test]
fn a_crash_leaves_the_device_as_it_was() {
    for place in device_places() {
        let before = sh("ip -d link show right");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "devices::inside_a_process_that_is_killed",
                "--ignored",
                "--nocapture",
            ])
            .env(KILLED, place.spec.name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = String::new();
        let mut output = child.stdout.take().unwrap();
        while !printed.contains("port ") || !printed.ends_with('\n') {
            let mut byte = [0];
            assert_eq!(output.read(&mut byte).unwrap(), 1, "{place}: it ended: {printed}");
            printed.push(char::from(byte[0]));
        }
        let port = printed.trim_end().rsplit(' ').next().unwrap();
        let address = SocketAddr::new(place.far, port.parse().unwrap());
        assert_eq!(program().is_some(), place.spec.name == "xdp", "{place}: while it runs");
        let sender = Sender::new(place.near, address);
        sender.one(b"taken by the one that is killed");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(sh("ip -d link show right"), before, "{place}");
        let heir = UdpSocket::bind(address).unwrap();
        heir.set_read_timeout(Some(TIMEOUT)).unwrap();
        sender.one(b"to the heir");
        assert_eq!(heir.recv(&mut [0; 64]).unwrap(), 11, "{place}");
    }
}

/// Names the member that the process to be killed is to open.
const KILLED: &str = "PAGEWIRE_RECEIVE_KILLED";

#[test]
#[ignore = "run by a_crash_leaves_the_device_as_it_was"]
fn inside_a_process_that_is_killed() {
    let Ok(name) = std::env::var(KILLED) else { return };
    let place = device_places().into_iter().find(|place| place.spec.name == name).unwrap();
    let mut receiver = Receiver::new(place).unwrap();
    let address = receiver.add(1);
    println!("port {}", address.port());
    let start = Instant::now();
    // The process ends by itself if the test that started it fails.
    while start.elapsed() < 3 * TIMEOUT {
        let mut each = |_: &[ReceivedRun<'_>]| {};
        receiver.path.receive(Duration::from_millis(100), &mut each).unwrap();
    }
}

/// Many ports at once, at a rate that one thread keeps up with: nothing is lost.
#[test]
fn many_ports_of_one_device_lose_nothing() {
    const PORTS: u32 = 100;
    // A block of a packet ring is closed when its time is over, full or not: where this thread
    // loses its core between two sends, each run has a block of the few to itself, or two.
    const AT_ONCE: usize = 5;
    for place in device_places() {
        let Some(mut receiver) = Receiver::new(place) else { continue };
        let mut senders: Vec<(SocketAddr, Sender)> = (0..PORTS)
            .map(|key| {
                let port = receiver.port(ROOM_BYTES);
                let address = receiver.add_port(key, port);
                (address, Sender::new(place.near, address))
            })
            .collect();
        let sent = datagrams(14, 1328, 1328);
        for _ in 0..10 {
            for (number, some) in senders.chunks_mut(AT_ONCE).enumerate() {
                some.iter_mut().for_each(|(_, sender)| sender.runs(&sent));
                receiver.wait_for((number + 1) * AT_ONCE * sent.len());
            }
            for key in 0..PORTS {
                let of_key = receiver.got.iter().filter(|got| got.key == key);
                assert!(of_key.map(|got| &got.bytes).eq(&sent), "{place}: port {key}");
            }
            assert_eq!(receiver.got.len(), PORTS as usize * sent.len(), "{place}");
            receiver.got.clear();
        }
        assert!((0..PORTS).all(|key| receiver.path.dropped(key) == 0), "{place}");
    }
}
