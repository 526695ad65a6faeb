// SPDX-License-Identifier: MIT OR Apache-2.0
//! ICMP from a stranger: forged reports for every port, for the right port, and quoting the actual
//! packets. No report ends, slows or thins a session whose client is present; a port that is really
//! closed ends its session within seconds, with a log line.
//!
//! Sources: RFC 792, RFC 4443 (formats), RFC 5927 (the attacks).

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::harness::clip::Clip;
use crate::harness::rtsp::{Control, LOCALHOST, Player, PortPair, session_of};
use crate::harness::{PROGRAM, Place, Server};
use crate::network::{self, Owner};
use crate::{beside_canary, serve};

const LOOPBACK: &str = "ip link set lo up";
/// RFC 792: net, host, protocol, port unreachable, fragmentation needed, prohibited; hop limit and
/// parameter problem.
const KINDS: [(u8, u8); 8] = [(3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 13), (11, 0), (12, 0)];

/// Two minutes, longer than any attack.
fn long(seed: u64) -> Vec<u8> {
    Clip::of_seconds(seed, 120).bytes()
}

/// A host that may send arbitrary packets.
struct Stranger {
    raw: Socket,
    server: SocketAddr,
}

impl Stranger {
    /// Creates a host that forges ICMP to `server`, the address that media is sent from.
    fn of(server: SocketAddr) -> Stranger {
        let (domain, protocol) = match server {
            SocketAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            SocketAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let raw = Socket::new(domain, Type::RAW, Some(protocol)).expect("root of the namespace");
        Stranger { raw, server }
    }

    /// Reports `kind` of a datagram to `client` with this payload; the kernel adds the IP header.
    fn report(&self, kind: (u8, u8), client: SocketAddr, payload: &[u8]) {
        // The field of the MTU; other kinds ignore it.
        let mut message = vec![kind.0, kind.1, 0, 0, 0, 0, 2, 88];
        let udp_bytes = (8 + 1328_u16).to_be_bytes();
        match (self.server.ip(), client.ip()) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                message.extend([0x45, 0, 5, 72, 0, 1, 0, 0, 63, 17, 0, 0]);
                message.extend(source.octets());
                message.extend(target.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                message.extend([0x60, 0, 0, 0, udp_bytes[0], udp_bytes[1], 17, 63]);
                message.extend(source.octets());
                message.extend(target.octets());
            }
            _ => panic!("two families"),
        }
        message.extend(self.server.port().to_be_bytes());
        message.extend(client.port().to_be_bytes());
        message.extend(udp_bytes);
        message.extend([0, 0]);
        message.extend(payload);
        // The kernel computes the ICMPv6 checksum.
        let sum = checksum(&message).to_be_bytes();
        if self.server.is_ipv4() {
            message[2..4].copy_from_slice(&sum);
        }
        let target = SocketAddr::new(self.server.ip(), 0);
        // A report that a full queue drops is as good as lost.
        let _ = self.raw.send_to(&message, &target.into());
    }
}

/// Computes the checksum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.sum();
    while sum >> 16 > 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the address from which the server sends media to a player.
fn media_of(player: &Player) -> SocketAddr {
    SocketAddr::new(player.server_rtcp.ip(), player.server_rtcp.port() - 1)
}

fn client_of(player: &Player) -> SocketAddr {
    let rtcp = player.rtcp().local_addr().expect("it is bound");
    SocketAddr::new(rtcp.ip(), rtcp.port() - 1)
}

fn last_header(player: &Player) -> Vec<u8> {
    player.heard().packets.last().expect("it plays")[..12].to_vec()
}

#[test]
fn forged_icmp_ends_no_session_and_a_closed_port_does() {
    network::run(Owner::User, LOOPBACK, "icmp::inside_a_namespace_with_a_stranger");
}

#[test]
#[ignore = "run by forged_icmp_ends_no_session_and_a_closed_port_does"]
fn inside_a_namespace_with_a_stranger() {
    let server = serve(&[("a.ts", &long(51)), ("b.ts", &long(52))], &[]);
    beside_canary(&server, || {
        forge(&server, |round| round < ROUNDS);
        close_a_port(&server);
    });
    assert_unthinned(server);
}

#[test]
fn packets_too_large_for_the_path_end_a_session_by_name() {
    network::run(Owner::User, LOOPBACK, "icmp::inside_a_namespace_with_a_narrow_path");
}

#[test]
#[ignore = "run by packets_too_large_for_the_path_end_a_session_by_name"]
fn inside_a_namespace_with_a_narrow_path() {
    end_by_a_narrow_path();
}

/// Forges reports while `goes_on` returns true for their number; they end neither the session of a
/// client without ICMP nor that of one whose packets are quoted.
#[track_caller]
fn forge(server: &Server, goes_on: impl Fn(u32) -> bool) {
    let mut blind = Player::set_up(server.rtsp, "a.ts");
    let mut known = Player::set_up(server.rtsp, "b.ts");
    let firsts = [blind.play(), known.play()];
    for player in [&blind, &known] {
        player.hear("it plays", |heard| heard.packets.len() > 10);
    }
    let stranger = Stranger::of(media_of(&blind));
    sweep(&stranger);
    for _ in (0..).take_while(|round| goes_on(*round)) {
        guess(&stranger, &blind);
        // A listener on the path quotes the actual packet; this client has shown that it is
        // present.
        assert_eq!(known.command("GET_PARAMETER", &[]).status, 200);
        stranger.report((3, 3), client_of(&known), &last_header(&known));
        thread::sleep(Duration::from_millis(20));
    }
    server.await_index("forged reports are ignored, and quotes of packets recognised", |index| {
        let count = |counter: &str| index["server"][counter].as_u64().expect("a count");
        count("icmp_ignored") > 100 && count("icmp_verified") > 10
    });
    for (mut player, (seed, first)) in
        [blind, known].into_iter().zip([(51, firsts[0]), (52, firsts[1])])
    {
        let before = player.heard().packets.len();
        player.hear("it plays on", |heard| heard.packets.len() > before + 10);
        assert_eq!(player.heard().byes, [""; 0], "nothing has ended it");
        player.heard().assert_gapless(&long(seed), first);
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    }
}

/// Asserts that segment runs are as long as before, and the log is short.
#[track_caller]
fn assert_unthinned(server: Server) {
    let log = server.stop();
    assert!(!log.contains("packets a call"), "runs are as long as before: {log}");
    assert!(log.lines().filter(|line| line.contains("icmp of")).count() <= 4, "{log}");
}

/// The router of a narrow path quotes the packets that it drops; over IPv6 no router fragments
/// them. Here the test is the router. Returns the time from the first report to the end of the
/// session.
#[track_caller]
fn end_by_a_narrow_path() -> Duration {
    const TOO_BIG: (u8, u8) = (2, 0);
    let (place, clip) = (Place::new(), long(53));
    place.put("a.ts", &clip);
    let server = Server::listening("[::1]:0", &place, Command::new(PROGRAM), &[]);
    server.await_stream("a.ts");
    let mut blind = Player::set_up(server.rtsp, "a.ts");
    let mut narrow = Player::set_up(server.rtsp, "a.ts");
    let first = blind.play();
    narrow.play();
    for player in [&blind, &narrow] {
        player.hear("it plays", |heard| heard.packets.len() > 10);
    }
    let router = Stranger::of(media_of(&narrow));
    let began = Instant::now();
    while narrow.heard().byes.is_empty() {
        assert!(began.elapsed() < END_WAIT, "it plays on after {END_WAIT:?}");
        router.report(TOO_BIG, client_of(&narrow), &last_header(&narrow));
        let mut wrong = last_header(&blind);
        wrong[8] ^= 1;
        router.report(TOO_BIG, client_of(&blind), &wrong);
        thread::sleep(Duration::from_millis(50));
    }
    let took = began.elapsed();
    assert_eq!(narrow.heard().byes, ["packets do not fit the path to the client (path MTU)"]);
    let before = blind.heard().packets.len();
    blind.hear("it plays on", |heard| heard.packets.len() > before + 10);
    blind.heard().assert_gapless(&clip, first);
    let log = server.stop();
    assert!(log.contains("(path MTU)") && !log.contains("packets a call"), "{log}");
    took
}

/// Repeats the first attack: reports each even port of the client as closed, once.
fn sweep(stranger: &Stranger) {
    for port in (1024..=65_534_u16).step_by(2) {
        let client = SocketAddr::new(LOCALHOST, port);
        stranger.report((3, 3), client, &[0x80, 33, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4]);
    }
}

/// Reports the right port with all kinds: nothing quoted, another SSRC, an old sequence number,
/// another timestamp.
fn guess(stranger: &Stranger, player: &Player) {
    let client = client_of(player);
    let header = last_header(player);
    let with = |at: usize, flip: u8| {
        let mut wrong = header.clone();
        wrong[at] ^= flip;
        wrong
    };
    for kind in KINDS {
        for quote in [&[][..], &header[..11], &with(2, 0x80), &with(7, 1), &with(11, 1)] {
            stranger.report(kind, client, quote);
        }
        // Quotes the actual packet in a report of a kind that the server ignores.
        if kind != (3, 3) {
            stranger.report(kind, client, &header);
        }
    }
}

/// The connection stays open and idle, and the client no longer has a socket: its session ends.
/// Returns how long that takes.
#[track_caller]
fn close_a_port(server: &Server) -> Duration {
    let ports = PortPair::on(LOCALHOST);
    let mut control = Control::to(server.rtsp);
    let answer = control.ask("SETUP", "a.ts", &[&ports.transport()]);
    let session = format!("Session: {}", session_of(&answer));
    assert_eq!(control.ask("PLAY", "a.ts", &[&session]).status, 200);
    await_media(&ports);
    let began = Instant::now();
    drop(ports);
    server.await_log("the client's port is closed");
    let took = began.elapsed();
    assert_eq!(control.ask("PLAY", "a.ts", &[&session]).status, 454);
    took
}

#[track_caller]
fn await_media(ports: &PortPair) {
    ports.rtp.set_read_timeout(Some(END_WAIT)).expect("a time limit");
    assert!(ports.rtp.recv(&mut [0; 2048]).is_ok_and(|bytes| bytes > 12), "it plays");
}

/// Rounds of some thirty reports.
const ROUNDS: u32 = 20;
const END_WAIT: Duration = Duration::from_secs(60);

/// A session does not trust a single report: it needs three seconds of them.
mod timed {
    use super::*;

    /// Longer than a session needs to trust a repeated report.
    const ATTACK: Duration = Duration::from_secs(4);
    const BELIEVED_AFTER: Duration = Duration::from_secs(2);

    #[test]
    fn forged_icmp_for_seconds_ends_no_session_and_a_closed_port_ends_it_late() {
        network::run(Owner::User, LOOPBACK, "icmp::timed::inside_a_namespace_with_a_stranger");
    }

    #[test]
    #[ignore = "run by forged_icmp_for_seconds_ends_no_session_and_a_closed_port_ends_it_late"]
    fn inside_a_namespace_with_a_stranger() {
        let server = serve(&[("a.ts", &long(51)), ("b.ts", &long(52))], &[]);
        beside_canary(&server, || {
            let began = Instant::now();
            forge(&server, |_| began.elapsed() < ATTACK);
            let took = close_a_port(&server);
            assert!(took > BELIEVED_AFTER, "by a single report: {took:?}");
        });
        assert_unthinned(server);
    }

    #[test]
    fn packets_too_large_for_the_path_end_a_session_late() {
        network::run(Owner::User, LOOPBACK, "icmp::timed::inside_a_namespace_with_a_narrow_path");
    }

    #[test]
    #[ignore = "run by packets_too_large_for_the_path_end_a_session_late"]
    fn inside_a_namespace_with_a_narrow_path() {
        let took = end_by_a_narrow_path();
        assert!(took > BELIEVED_AFTER, "by a single report: {took:?}");
    }
}
