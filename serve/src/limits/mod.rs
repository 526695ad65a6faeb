// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits on clients: how many connections and sessions one connection, one address and all
//! together may hold, and which file descriptors they may take.
//!
//! An address is counted while it holds something, so the table is never longer than connections
//! and sessions are many, and a client that is gone leaves nothing behind. A host of IPv6 has a
//! whole /64 to itself and is counted by it ([`network`]).
//!
//! Descriptors need no book: the kernel gives out the lowest free number, so a new socket whose
//! number is high says that as many are taken. Sessions keep below one mark, connections below a
//! higher one; what is above is for answers to those who are refused and for files of running
//! sessions (wire images, plans, the index).
//!
//! Costs a lock and a look-up at either end of a connection and of a session, and nothing between.
//!
//! Sources: open(2) (lowest-numbered descriptor), getrlimit(2), RFC 2326 §11.3.4 (453), RFC 6585
//! §4 (429), RFC 4291 §2.5.1 (64-bit interface identifiers), RFC 6598 (CGNAT).
//! Does not do: limits on a session's rate (a session never sends more than its media's time and a
//! burst, `pacer/stream.rs`), remember clients that were refused.

mod client_prefix;
mod pace;
mod refusal;

use std::collections::HashMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;

pub(crate) use client_prefix::counted_as;
pub use client_prefix::{ClientPrefix, InvalidPrefix};
pub(crate) use pace::RequestPace;
pub(crate) use refusal::{RefusalMeters, Refused};

/// Limits on clients. Each has its flag of `pagewire serve`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientLimits {
    /// Sessions set up on one RTSP connection, by whomever. Players set one up for each stream of a
    /// presentation; ffmpeg, GStreamer and VLC open a connection for each presentation.
    pub sessions_per_connection: u32,
    /// Sessions of one address: a household or a small office behind one.
    pub sessions_per_address: u32,
    /// Sessions in all; without it the descriptors are the limit.
    pub sessions: Option<u32>,
    /// Connections of one address, RTSP and HTTP: one for each session, and a browser's beside it.
    pub connections_per_address: u32,
    /// Connections in all; without it half of the descriptors.
    pub connections: Option<u32>,
    /// Requests a second on one connection; what comes faster is read later. Ten times what a
    /// player sends that scrubs.
    pub requests_per_s: u32,
    /// From SETUP to PLAY; a session that does not play by then ends. Players take milliseconds.
    pub play_within: Duration,
    /// Networks whose addresses and requests are not counted: proxies and carrier-grade NAT have
    /// many clients behind one address. Sessions per connection and limits in all hold for them.
    pub exempt: Vec<ClientPrefix>,
    /// Ports below 1024 are streamed to. By default not: they are those of services (DNS, NTP),
    /// which no player receives at and an attacker would like to have flooded.
    pub low_ports: bool,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            sessions_per_connection: 16,
            sessions_per_address: 64,
            sessions: None,
            connections_per_address: 128,
            connections: None,
            requests_per_s: 200,
            play_within: Duration::from_secs(10),
            exempt: ClientPrefix::LOOPBACK.to_vec(),
            low_ports: false,
        }
    }
}

/// Counts what clients hold, and refuses what is over a limit.
pub(crate) struct Limiter {
    pub(crate) limits: ClientLimits,
    pub(crate) refusals: RefusalMeters,
    descriptors: u64,
    marks: Marks,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    connections: u32,
    sessions: u32,
    /// By [`client_prefix::counted_as`]; only those that hold something.
    addresses: HashMap<IpAddr, Held>,
}

#[derive(Default)]
struct Held {
    connections: u32,
    sessions: u32,
}

/// Numbers of descriptors below which each use stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks {
    sessions: RawFd,
    connections: RawFd,
}

impl Marks {
    /// For a process that may open `max` descriptors.
    fn of(max: u64) -> Marks {
        let max = RawFd::try_from(max).unwrap_or(RawFd::MAX);
        let reserve = (max / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX);
        let connections = max.saturating_sub(reserve);
        Marks { sessions: connections - max / CONNECTIONS_PART, connections }
    }
}

impl Limiter {
    /// For a process that may open `descriptors`.
    pub(crate) fn new(limits: ClientLimits, descriptors: u64) -> Limiter {
        let refusals = RefusalMeters::default();
        let marks = Marks::of(descriptors);
        Limiter { limits, refusals, descriptors, marks, table: Mutex::default() }
    }

    /// Looks whether a few clients find room below the marks, once everything of the server's own
    /// is open.
    pub(crate) fn check_room(&self) -> Result<(), Error> {
        // The lowest number that is free says how many are taken.
        let free = File::open("/dev/null").map_or(RawFd::MAX, |file| file.as_raw_fd());
        let wanted = free.saturating_add(CLIENTS_MIN);
        if wanted <= self.marks.sessions {
            return Ok(());
        }
        let (found, held) =
            (self.descriptors, u64::from(free.unsigned_abs()).min(self.descriptors));
        let is_enough = |max: &u64| Marks::of(*max).sessions >= wanted.min(RawFd::MAX / 2);
        // Not even one was free: how many more it takes is seen at the next try.
        let needed = (found..DESCRIPTORS_TRIED).find(is_enough).unwrap_or(2 * found) + SPARE;
        Err(Error::Descriptors { found, held, needed })
    }

    /// Counts an accepted connection, or says why it must go.
    pub(crate) fn connect(
        self: &Arc<Self>,
        peer: IpAddr,
        socket: &impl AsRawFd,
    ) -> Result<ConnectionPermit, Refused> {
        let half = (self.marks.connections / 2).unsigned_abs();
        let most = self.limits.connections.unwrap_or(half);
        let address = self.counted(peer);
        let mut table = self.table();
        if table.connections >= most || socket.as_raw_fd() >= self.marks.connections {
            return Err(Refused::Connections);
        }
        if let Some(address) = address {
            let held = table.addresses.entry(address).or_default();
            if held.connections >= self.limits.connections_per_address {
                return Err(Refused::ConnectionsPerAddress);
            }
            held.connections += 1;
        }
        table.connections += 1;
        Ok(ConnectionPermit { limiter: self.clone(), address })
    }

    /// Counts a session about to be set up on a connection that has set up `of_connection`.
    pub(crate) fn set_up(
        self: &Arc<Self>,
        peer: IpAddr,
        of_connection: &Arc<AtomicU32>,
    ) -> Result<SessionPermit, Refused> {
        let address = self.counted(peer);
        let mut table = self.table();
        // Only the connection's own task adds to it.
        if of_connection.load(Ordering::Relaxed) >= self.limits.sessions_per_connection {
            return Err(Refused::SessionsPerConnection);
        }
        if self.limits.sessions.is_some_and(|most| table.sessions >= most) {
            return Err(Refused::Sessions);
        }
        if let Some(address) = address {
            let held = table.addresses.entry(address).or_default();
            if held.sessions >= self.limits.sessions_per_address {
                return Err(Refused::SessionsPerAddress);
            }
            held.sessions += 1;
        }
        table.sessions += 1;
        of_connection.fetch_add(1, Ordering::Relaxed);
        Ok(SessionPermit { limiter: self.clone(), address, connection: of_connection.clone() })
    }

    /// Whether a session may keep its socket.
    pub(crate) fn has_room_for_session(&self, socket: &impl AsRawFd) -> bool {
        socket.as_raw_fd() < self.marks.sessions
    }

    /// Whether a client may keep this file open; if not, it is one of the reserve.
    pub(crate) fn has_room_for_file(&self, file: &impl AsRawFd) -> bool {
        file.as_raw_fd() < self.marks.connections
    }

    /// The pace of a new connection's requests; none for those who are not counted.
    pub(crate) fn pace(&self, peer: IpAddr) -> Option<RequestPace> {
        self.counted(peer).map(|_| RequestPace::new(self.limits.requests_per_s))
    }

    /// Open connections.
    pub(crate) fn connections(&self) -> usize {
        self.table().connections as usize
    }

    /// What `peer` is counted as, if it is.
    fn counted(&self, peer: IpAddr) -> Option<IpAddr> {
        let peer = peer.to_canonical();
        let is_exempt = self.limits.exempt.iter().any(|network| network.contains(peer));
        (!is_exempt).then(|| counted_as(peer))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Counts that stand between two statements are whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn give_back(&mut self, address: Option<IpAddr>, give: impl FnOnce(&mut Held)) {
        let Some(address) = address else { return };
        let Some(held) = self.addresses.get_mut(&address) else { return };
        give(held);
        if held.connections == 0 && held.sessions == 0 {
            self.addresses.remove(&address);
        }
    }
}

/// One connection in the counts, until it is dropped.
pub(crate) struct ConnectionPermit {
    limiter: Arc<Limiter>,
    address: Option<IpAddr>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut table = self.limiter.table();
        table.connections -= 1;
        table.give_back(self.address, |held| held.connections -= 1);
    }
}

/// One session in the counts, until it is dropped.
pub(crate) struct SessionPermit {
    limiter: Arc<Limiter>,
    address: Option<IpAddr>,
    connection: Arc<AtomicU32>,
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        let mut table = self.limiter.table();
        table.sessions -= 1;
        table.give_back(self.address, |held| held.sessions -= 1);
        self.connection.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A sixteenth of the descriptors is kept back, and so many at least and at most.
const RESERVE_PART: RawFd = 16;
/// A wire image being made, a plan, a scan of the folder, and answers to a few who are refused.
const RESERVE_MIN: RawFd = 16;
const RESERVE_MAX: RawFd = 512;
/// An eighth is out of the sessions' reach, so that those who come when sessions have taken the
/// rest can connect, and read why they get none.
const CONNECTIONS_PART: RawFd = 8;
/// Descriptors for clients that a server starts with at least: two that play.
const CLIENTS_MIN: RawFd = 8;
/// What one start holds more than another (a file being looked at), in what is asked for.
const SPARE: u64 = 8;
/// More than a server holds itself on any machine.
const DESCRIPTORS_TRIED: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket of this number.
    struct Numbered(RawFd);

    impl AsRawFd for Numbered {
        fn as_raw_fd(&self) -> RawFd {
            self.0
        }
    }

    fn limiter(change: impl FnOnce(&mut ClientLimits)) -> Arc<Limiter> {
        let mut limits = ClientLimits { exempt: Vec::new(), ..ClientLimits::default() };
        change(&mut limits);
        Arc::new(Limiter::new(limits, 1024))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn sessions_are_limited_by_connection_address_and_in_all() {
        let limiter = limiter(|limits| {
            limits.sessions_per_connection = 2;
            limits.sessions_per_address = 3;
            limits.sessions = Some(4);
        });
        let (one, two) = (address("192.0.2.1"), address("192.0.2.2"));
        let connections: Vec<Arc<AtomicU32>> = (0..3).map(|_| Arc::default()).collect();
        let set_up = |peer, connection: usize| limiter.set_up(peer, &connections[connection]);
        let mut held = vec![set_up(one, 0).unwrap(), set_up(one, 0).unwrap()];
        assert_eq!(set_up(one, 0).err(), Some(Refused::SessionsPerConnection));
        held.push(set_up(one, 1).unwrap());
        assert_eq!(set_up(one, 1).err(), Some(Refused::SessionsPerAddress));
        held.push(set_up(two, 2).unwrap());
        assert_eq!(set_up(two, 2).err(), Some(Refused::Sessions));
        drop(held.pop());
        assert!(set_up(two, 2).is_ok());
        drop(held);
        let table = limiter.table();
        assert_eq!((table.sessions, table.addresses.len()), (0, 0), "nothing is left behind");
        assert!(connections.iter().all(|count| count.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn an_address_of_ipv6_is_counted_by_its_64_bit_network() {
        let limiter = limiter(|limits| limits.connections_per_address = 1);
        let socket = Numbered(10);
        let first = limiter.connect(address("2001:db8::1"), &socket);
        let neighbour = limiter.connect(address("2001:db8::ffff:2"), &socket);
        assert_eq!(neighbour.err(), Some(Refused::ConnectionsPerAddress));
        assert!(limiter.connect(address("2001:db8:0:1::1"), &socket).is_ok());
        let mapped = limiter.connect(address("::ffff:192.0.2.1"), &socket);
        assert!(mapped.is_ok(), "an IPv4 address by its own");
        let same = limiter.connect(address("192.0.2.1"), &socket);
        assert_eq!(same.err(), Some(Refused::ConnectionsPerAddress));
        drop((first, mapped));
        assert!(limiter.connect(address("2001:db8::ffff:2"), &socket).is_ok());
        assert_eq!((limiter.connections(), limiter.table().addresses.len()), (0, 0));
    }

    #[test]
    fn exempt_networks_are_limited_in_all_alone() {
        let limiter = limiter(|limits| {
            limits.exempt = vec!["10.0.0.0/8".parse().unwrap()];
            limits.connections_per_address = 1;
            limits.connections = Some(3);
        });
        let socket = Numbered(10);
        let proxy = || limiter.connect(address("10.1.2.3"), &socket);
        let held = [proxy().unwrap(), proxy().unwrap(), proxy().unwrap()];
        assert_eq!(proxy().err(), Some(Refused::Connections));
        assert!(limiter.pace(address("10.1.2.3")).is_none());
        assert!(limiter.pace(address("11.1.2.3")).is_some());
        drop(held);
        assert!(proxy().is_ok());
    }

    #[test]
    fn high_descriptors_are_kept_back() {
        assert_eq!(Marks::of(1024), Marks { sessions: 832, connections: 960 });
        assert_eq!(Marks::of(64), Marks { sessions: 40, connections: 48 });
        let many = Marks { sessions: 524_288 - 512 - 65_536, connections: 524_288 - 512 };
        assert_eq!(Marks::of(524_288), many);
        assert_eq!(Marks::of(u64::MAX).connections, RawFd::MAX - 512, "no limit");
        let limiter = limiter(|_| {});
        let peer = address("192.0.2.1");
        assert_eq!(limiter.connect(peer, &Numbered(960)).err(), Some(Refused::Connections));
        assert!(limiter.connect(peer, &Numbered(959)).is_ok());
        assert!(limiter.has_room_for_session(&Numbered(831)));
        assert!(!limiter.has_room_for_session(&Numbered(832)));
    }
}
