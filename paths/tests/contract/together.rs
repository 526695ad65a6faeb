// SPDX-License-Identifier: MIT OR Apache-2.0
//! A send to many destinations at once has the same results as a send to each.
//!
//! Two equal sets of sessions are made. One is served by `send`, session by session, the other by
//! `send_all`; some sessions have a full socket, a closed port or a cut file. Outcomes, numbers of
//! segments and received bytes must be equal, session by session.

use std::net::UdpSocket;
use std::ops::Range;

use paths::{Batch, Destination, Due, Feed, Piece, SendError, SendStats, StreamPath};

use crate::asset::{Asset, Shape};
use crate::harness::network::{self, Owner, sh};
use crate::peer::{Peer, assert_received};
use crate::stream_paths;

const SESSIONS: usize = 100;

/// Packets of a session in a round: more than a run, and no more than a peer's receive buffer
/// certainly holds.
const PACKETS_MAX: u32 = 60;

/// Rounds of sends to each session.
const ROUNDS: u32 = 4;

/// Numbers of the sessions with a fault.
const FULL: usize = 13;
const FULL_ON_THE_WAY: usize = 14;
const CLOSED: usize = 57;
const CUT: usize = 58;
const UNSEGMENTED: usize = 90;

/// Packet in which the file is cut.
const CUT_PACKET: u32 = 20;

/// A network with neighbours that do not answer, with a longer resolution time than a slow guest
/// needs for a path: when resolution fails, the kernel drops the packets that wait for it and a
/// full socket has room again. Waiting packets keep rings and their locked memory alive, so they
/// are dropped at the end.
const NETWORK: &str = "ip link set lo up \
                       && ip link add left type veth peer name right && ip link set right up \
                       && ip addr add 10.99.0.1/16 dev left && ip link set left up \
                       && ip ntable change name arp_cache dev left mcast_probes 30";

/// The first run allows hardly any locked memory: zero-copy sends need some, and sends beyond the
/// limit are copied.
#[test]
fn many_at_once_are_sent_as_each_alone() {
    for limit in [" && ulimit -l 2048", ""] {
        let setup = format!("{NETWORK}{limit}");
        network::run(Owner::User, &setup, "together::inside_a_network_with_silent_peers");
    }
}

struct Session {
    /// The listening socket, if there is one.
    peer: Option<Peer>,
    to: Destination,
}

/// Returns the packets of a session in a round: none to as many as two runs, none twice.
fn packets(session: usize, round: u32) -> Range<u32> {
    let count = match session {
        FULL | FULL_ON_THE_WAY | CUT => PACKETS_MAX,
        CLOSED => 1,
        _ => (session as u32 * 7) % (PACKETS_MAX + 1),
    };
    round * PACKETS_MAX..round * PACKETS_MAX + count
}

/// Session `number`; silent neighbours have addresses of the set's own.
fn session(number: usize, set: &str) -> Session {
    if matches!(number, FULL | FULL_ON_THE_WAY) {
        let address = format!("10.99.{set}.{}", number + 2);
        let socket = UdpSocket::bind("10.99.0.1:0").unwrap();
        socket.connect((address.as_str(), 5004)).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, 8192).unwrap();
        return Session { peer: None, to: Destination::new(socket, address).unwrap() };
    }
    if number == CLOSED {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect("127.0.0.1:9").unwrap();
        socket.send(b"to a closed port").unwrap();
        return Session { peer: None, to: Destination::new(socket, "127.0.0.1:9").unwrap() };
    }
    let peer = Peer::on_loopback();
    let mut to = peer.destination();
    if number == UNSEGMENTED {
        to.limit_segments(1);
    }
    Session { peer: Some(peer), to }
}

struct Assets {
    large: Asset,
    small: Asset,
    cut: Asset,
}

impl Assets {
    fn new() -> Self {
        let packets = (ROUNDS * PACKETS_MAX) as usize;
        Self {
            large: Asset::new(Shape { offset: 78, ..Shape::full(packets) }),
            small: Asset::new(Shape { segment_bytes: 200, last_bytes: 99, ..Shape::full(packets) }),
            cut: Asset::new(Shape::full(packets)),
        }
    }

    fn of(&self, session: usize) -> &Asset {
        match session {
            CUT => &self.cut,
            _ if session % 3 == 1 && !matches!(session, FULL | FULL_ON_THE_WAY) => &self.small,
            _ => &self.large,
        }
    }

    fn batch<'a>(
        &'a self,
        feed: Feed,
        session: usize,
        round: u32,
        pieces: &'a [Piece],
    ) -> Batch<'a> {
        self.of(session).batch(feed, packets(session, round), pieces)
    }

    fn pieces(&self, round: u32) -> Vec<Vec<Piece>> {
        let of = |session| self.of(session).pieces(packets(session, round));
        (0..SESSIONS).map(of).collect()
    }
}

type Outcomes = Vec<Result<u32, SendError>>;

fn one_by_one(
    path: &mut dyn StreamPath,
    (assets, feed, round): (&Assets, Feed, u32),
    sessions: &mut [Session],
    stats: &mut SendStats,
) -> Outcomes {
    let pieces = assets.pieces(round);
    let mut outcomes = Vec::new();
    for (number, session) in sessions.iter_mut().enumerate() {
        let batch = assets.batch(feed, number, round, &pieces[number]);
        outcomes.push(path.send(&batch, &mut session.to, stats));
    }
    outcomes
}

fn together(
    path: &mut dyn StreamPath,
    (assets, feed, round): (&Assets, Feed, u32),
    sessions: &mut [Session],
    stats: &mut SendStats,
) -> Outcomes {
    let pieces = assets.pieces(round);
    let mut dues: Vec<Due<'_>> = sessions
        .iter_mut()
        .enumerate()
        .map(|(number, session)| {
            let batch = assets.batch(feed, number, round, &pieces[number]);
            Due::new(batch, &mut session.to)
        })
        .collect();
    path.send_all(&mut dues, stats);
    dues.into_iter().map(|due| due.outcome).collect()
}

#[test]
#[ignore = "run by many_at_once_are_sent_as_each_alone"]
fn inside_a_network_with_silent_peers() {
    for (place, (spec, feed, mut path)) in stream_paths().into_iter().enumerate() {
        let assets = Assets::new();
        let cut_at = assets.cut.offset_of(feed, CUT_PACKET) + 700;
        assets.cut.source(feed).file().set_len(cut_at).unwrap();
        let sets = [(2 * place + 1).to_string(), (2 * place + 2).to_string()];
        let [mut alone, mut at_once] =
            sets.map(|set| (0..SESSIONS).map(|number| session(number, &set)).collect::<Vec<_>>());
        for sessions in [&mut alone, &mut at_once] {
            fill(&mut *path, feed, &assets, &mut sessions[FULL].to);
        }
        let mut stats_of_each = [SendStats::default(); 2];
        let mut accepted = [0; 2];
        let mut received = [vec![Vec::new(); SESSIONS], vec![Vec::new(); SESSIONS]];
        for round in 0..ROUNDS {
            let what = (&assets, feed, round);
            let expected = one_by_one(&mut *path, what, &mut alone, &mut stats_of_each[0]);
            let outcomes = together(&mut *path, what, &mut at_once, &mut stats_of_each[1]);
            for (number, (got, wanted)) in outcomes.iter().zip(&expected).enumerate() {
                let on_the_way = number == FULL_ON_THE_WAY && got.is_ok() && wanted.is_ok();
                assert!(got == wanted || on_the_way, "{spec}: {number}: {got:?}, not {wanted:?}");
            }
            assert_eq!(expected[FULL], Err(SendError::Blocked), "{spec}");
            assert_eq!(expected[CUT], Err(SendError::Shrunk { at: cut_at }), "{spec}");
            assert_eq!(expected[CLOSED], Ok(1), "{spec}");
            let sets = [(&mut alone, &expected), (&mut at_once, &outcomes)];
            for (number, (sessions, outcomes)) in sets.into_iter().enumerate() {
                accepted[number] += outcomes.iter().flatten().sum::<u32>();
                take_in(sessions, &mut received[number], outcomes);
            }
        }
        for (number, stats) in stats_of_each.iter().enumerate() {
            let of_cut_file = received[number][CUT].len() as u64;
            assert_eq!(stats.packets, u64::from(accepted[number]) + of_cut_file, "{spec}");
            assert!(stats.refused >= u64::from(ROUNDS), "{spec}");
        }
        let [alone_calls, calls] = stats_of_each.map(|stats| stats.calls);
        assert!(calls <= alone_calls, "{spec}: {calls} calls, {alone_calls} alone");
        for number in 0..SESSIONS {
            let what = format!("{spec}: session {number}");
            if number == CUT {
                // Packets of zeroes may follow the cut, up to the end of a run.
                for received in &mut received {
                    received[CUT].truncate(CUT_PACKET as usize);
                }
            }
            assert_received(&received[1][number], &received[0][number], &what);
            assert_eq!(at_once[number].to.segments(), alone[number].to.segments(), "{what}");
            if !matches!(number, FULL | FULL_ON_THE_WAY | CLOSED | CUT) {
                let sent = |round| &assets.of(number).datagrams[as_indices(packets(number, round))];
                let expected: Vec<_> = (0..ROUNDS).flat_map(sent).cloned().collect();
                assert_received(&received[1][number], &expected, &what);
            }
        }
        sh("ip neigh flush dev left");
    }
}

fn as_indices(packets: Range<u32>) -> Range<usize> {
    packets.start as usize..packets.end as usize
}

/// Sends until the socket accepts no more.
fn fill(path: &mut dyn StreamPath, feed: Feed, assets: &Assets, to: &mut Destination) {
    let pieces = assets.large.pieces(0..PACKETS_MAX);
    let batch = assets.large.batch(feed, 0..PACKETS_MAX, &pieces);
    let full = (0..10).find_map(|_| path.send(&batch, to, &mut SendStats::default()).err());
    assert_eq!(full, Some(SendError::Blocked));
}

fn take_in(sessions: &mut [Session], received: &mut [Vec<Vec<u8>>], outcomes: &Outcomes) {
    for ((session, received), outcome) in sessions.iter_mut().zip(received).zip(outcomes) {
        if let Some(peer) = &mut session.peer {
            received.extend(peer.all(*outcome.as_ref().unwrap_or(&0) as usize));
        }
    }
}
