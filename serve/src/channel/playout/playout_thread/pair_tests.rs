// SPDX-License-Identifier: MIT OR Apache-2.0
//! A standby pair under a clock that the test sets: who sends at which turn, and that receivers see
//! one sender throughout.
//!
//! Both servers send to a group on the loopback interface, of which the test is a member.
//!
//! Does not test strangers in the group (`pagewire/tests/channels/standby.rs`).

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::UNIX_EPOCH;

use clock::{Clock, SetClock};
use media::TS_PACKET_BYTES;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::tests::{BEGAN, BURST, RTP_BYTES, draft, plan};
use super::*;
use crate::channel::playout::outlet::interface_index;
use crate::channel::settings::ChannelDraft;

/// Local to an organisation (RFC 2365), and of no other test.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 71, 9);

/// Port in the group, and rate of the channel.
type Address = (u16, Option<i64>);

/// The servers of a pair, and a receiver of what they send.
struct Pair {
    set: SetClock,
    address: Address,
    /// The last one receives; the first keeps the port.
    members: Vec<Socket>,
    primary: Option<PlayoutThread>,
    standby: PlayoutThread,
    /// RTP packets in order of arrival, each with the number of its turn and its sender.
    received: Vec<(u64, ChannelRole, Vec<u8>)>,
    turns: u64,
}

/// Returns a member of the group at an even port, at this one if it is not zero.
fn member(port: u16) -> Socket {
    // The others are kept until one at an even port is found, or the kernel chooses them again.
    let mut odd = Vec::new();
    loop {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
        // The servers listen at the same port.
        socket.set_reuse_address(true).expect("an option");
        socket.bind(&SocketAddrV4::new(GROUP, port).into()).expect("a port");
        if port_of(&socket) % 2 == 1 {
            odd.push(socket);
            continue;
        }
        let index = interface_index("lo").expect("a loopback interface");
        let on = InterfaceIndexOrAddress::Index(index);
        socket.join_multicast_v4_n(&GROUP, &on).expect("a member of the group");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit against hanging");
        return socket;
    }
}

fn port_of(socket: &Socket) -> u16 {
    let local = socket.local_addr().expect("it is bound").as_socket();
    local.expect("IPv4").port()
}

fn open(role: &str, (port, constant_rate_kbps): Address, clock: &Clock) -> PlayoutThread {
    let config = ChannelDraft {
        send: vec![format!("rtp://{GROUP}:{port}")],
        interface: Some("lo".to_owned()),
        role: Some(role.to_owned()),
        constant_rate_kbps,
        ..draft()
    };
    let config = config.check("news").expect("good settings");
    let shared = Arc::new(ChannelShared::new(&config, clock));
    shared.set_plan(plan(&config));
    let host = ChannelHost { burst: BURST, cache: None, clock };
    PlayoutThread::open(shared, host).expect("a host that has sockets")
}

impl Pair {
    fn open(constant_rate_kbps: Option<i64>) -> Pair {
        let set = SetClock::at(UNIX_EPOCH + BEGAN);
        let members = vec![member(0)];
        let (clock, address) = (set.clock(), (port_of(&members[0]), constant_rate_kbps));
        let primary = Some(open("primary", address, &clock));
        let standby = open("standby", address, &clock);
        let received = Vec::new();
        let mut pair = Pair { set, address, members, primary, standby, received, turns: 0 };
        pair.listen();
        pair
    }

    /// Receives by a new member. The kernel gives a datagram to the member that was opened last
    /// behind all others: where it has it, both servers have it.
    fn listen(&mut self) {
        self.members.push(member(self.address.0));
    }

    /// Runs turns of both, one burst apart; what the primary sends is there before the standby
    /// listens.
    fn run(&mut self, turns: u64) {
        for _ in 0..turns {
            let now = self.set.clock().moment();
            let mut sent = 0;
            for thread in self.primary.iter_mut().chain([&mut self.standby]) {
                let counted = packets(thread);
                thread.turn(now);
                let more = packets(thread) - counted;
                let receiver = self.members.last().expect("it listens");
                let socket: UdpSocket = receiver.try_clone().expect("a descriptor").into();
                let mut buffer = [0; 2048];
                for _ in 0..more {
                    let bytes = socket.recv(&mut buffer).expect("it was sent");
                    let role = thread.shared.config.role;
                    self.received.push((self.turns, role, buffer[..bytes].to_vec()));
                }
                sent += u32::from(more > 0);
            }
            assert!(sent <= 1, "both send at turn {}", self.turns);
            self.set.advance(BURST);
            self.turns += 1;
        }
    }

    /// Returns who sends.
    fn sending(&self) -> (bool, bool) {
        (self.primary.as_ref().is_some_and(|thread| thread.is_sending), self.standby.is_sending)
    }
}

fn packets(thread: &PlayoutThread) -> u64 {
    thread.shared.counters.packets.load(Ordering::Relaxed)
}

/// Asserts one SSRC, and numbers that continue, of RTP and of the transport stream.
fn assert_one_sender(received: &[(u64, ChannelRole, Vec<u8>)]) {
    let header = |packet: &[u8]| Header::parse(packet).expect("RTP").0;
    let first = header(&received[0].2);
    let mut counters: HashMap<u16, u8> = HashMap::new();
    for (number, (turn, _, packet)) in received.iter().enumerate() {
        let found = header(packet);
        let sequence = first.sequence.wrapping_add(number as u16);
        assert_eq!((found.ssrc, found.sequence), (first.ssrc, sequence), "at turn {turn}");
        for packet in packet[RTP_BYTES..].chunks_exact(TS_PACKET_BYTES) {
            let pid = u16::from_be_bytes([packet[1] & 0x1f, packet[2]]);
            let has_payload = packet[3] & 0x10 != 0;
            let is_announced = packet[3] & 0x20 != 0 && packet[4] > 0 && packet[5] & 0x80 != 0;
            if pid == 0x1fff || !has_payload {
                continue;
            }
            let counter = packet[3] & 0xf;
            let before = counters.insert(pid, counter);
            let continues = before.is_none_or(|before| counter == (before + 1) & 0xf);
            assert!(continues || is_announced, "PID {pid:#x} at turn {turn}");
        }
    }
}

/// At a rate with packets at every turn, at one with a packet every 52 ms, and at that of
/// the file.
#[test]
fn standby_takes_over_after_half_a_second_and_gives_way_to_the_primary() {
    for constant_rate_kbps in [Some(1500), Some(200), None] {
        take_over_and_give_way(constant_rate_kbps);
    }
}

fn take_over_and_give_way(constant_rate_kbps: Option<i64>) {
    let mut pair = Pair::open(constant_rate_kbps);
    let turns_of = |time: Duration| time.as_millis() as u64 / BURST.as_millis() as u64;
    pair.run(turns_of(LISTEN));
    assert!(pair.received.is_empty() && pair.sending() == (false, false), "the primary listens");
    pair.run(turns_of(Duration::from_secs(5)));
    assert_eq!((pair.received[0].0, pair.sending()), (turns_of(LISTEN), (true, false)));

    // The primary is gone. The standby has heard its last packets at this turn or the next.
    pair.primary = None;
    let sent = pair.received.len();
    let last = pair.received[sent - 1].0;
    pair.run(turns_of(SILENCE) + 3);
    assert_eq!(pair.sending(), (false, true));
    let after = pair.received[sent].0 - last;
    let least = turns_of(SILENCE) + 1;
    assert!((least..=least + 1).contains(&after), "{after} turns, at least {least}");
    pair.run(turns_of(Duration::from_secs(3)));

    // It is back, listens and continues; the standby is silent from its first packet on.
    let back = pair.turns;
    pair.primary = Some(open("primary", pair.address, &pair.set.clock()));
    pair.listen();
    pair.run(turns_of(LISTEN));
    assert_eq!(pair.sending(), (false, true));
    pair.run(1);
    assert_eq!(pair.sending(), (true, false));
    let since = pair.received.iter().filter(|(turn, ..)| *turn >= back);
    let returned = back + turns_of(LISTEN);
    for (turn, sender, _) in since {
        let wanted = if *turn < returned { ChannelRole::Standby } else { ChannelRole::Primary };
        assert_eq!(*sender, wanted, "at turn {turn}, {} after it is back", turn - back);
    }
    pair.run(turns_of(Duration::from_secs(3)));
    assert_one_sender(&pair.received);
    let takeovers = pair.standby.shared.counters.takeovers.load(Ordering::Relaxed);
    assert_eq!(takeovers, 1);
}
