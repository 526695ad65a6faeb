// SPDX-License-Identifier: MIT OR Apache-2.0
//! Upper bounds on connections, sessions and file descriptors per connection, per address and in
//! total.
//!
//! An address has an entry only while it holds a connection or a session, so the table is never
//! longer than their number and departed clients leave nothing behind. An IPv6 host owns a whole
//! /64 and is counted by it ([`counted_as`]).
//!
//! Descriptors need no counter: the kernel returns the lowest free number, so the number of a new
//! socket shows how many are in use. Sessions stay below one mark, connections below a higher one.
//! The numbers above serve answers to refused clients and files of running sessions (wire images,
//! plans, the index).
//!
//! Costs a lock and a look-up at each end of a connection and of a session, and nothing in between.
//! The limits themselves can be replaced ([`crate::swapped`]).
//!
//! Sources: open(2) (lowest-numbered descriptor), getrlimit(2), RFC 2326 §11.3.4 (453), RFC 6585
//! §4 (429), RFC 4291 §2.5.1 (64-bit interface identifiers), RFC 6598 (CGNAT).
//! Limits the rate of downloads ([`rates`]), and the rates of sessions together
//! ([`session_budget`], [`capacity`]); not that of one session (`pacer/paced_stream.rs` bounds it
//! to media time plus a burst). Does not remember refused clients.

pub(crate) mod capacity;
mod copies;
mod pace;
mod rates;
mod refusal;
mod session_budget;

use std::collections::HashMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use access::{ClientPrefix, counted_as};
use parking_lot::Mutex;

use crate::error::{Error, Setting};
use crate::swapped::Swapped;

pub(crate) use copies::{Copied, CopyPermit};
pub(crate) use pace::InputPace;
pub(crate) use rates::{DownloadPermit, RateLimit};
use session_budget::{SessionBudget, SessionShare};

pub(crate) use refusal::{RefusalMeters, Refused};

/// Limits on clients. Each has its flag of `pagewire serve`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientLimits {
    /// Sessions set up on one RTSP connection. Players set one up for each stream of a
    /// presentation; ffmpeg, GStreamer and VLC open a connection for each presentation.
    pub sessions_per_connection: u32,
    /// Sessions of one address, which may be shared by a household or a small office.
    pub sessions_per_address: u32,
    /// Sessions in total. `None`: the descriptors are the limit.
    pub sessions: Option<u32>,
    /// RTSP and HTTP connections of one address: one per session, and a browser's beside them.
    pub connections_per_address: u32,
    /// Connections in total. `None`: half of the descriptors.
    pub connections: Option<u32>,
    /// Requests a second on one connection; faster requests are read later. The default is ten
    /// times the rate of a scrubbing player.
    pub requests_per_s: u32,
    /// Pace of a download of playable media after a start burst, as a multiple of the media's rate;
    /// at least 1. `None`: as fast as the network. The default is above the 3 of the Sammy project
    /// (Netflix and Stanford, SIGCOMM 2023), which counts from a file's highest rate: scenes exceed
    /// the mean rate that is used here.
    pub http_pace: Option<f64>,
    /// Rate of all downloads of one connection, bits a second. `None`: no limit.
    pub http_rate_per_connection: Option<u64>,
    /// Rate of all downloads of one address, bits a second. `None`: no limit.
    pub http_rate_per_address: Option<u64>,
    /// Rate of all downloads, bits a second. `None`: no limit.
    pub http_rate: Option<u64>,
    /// Sessions of one user. `None`: no limit.
    pub sessions_per_user: Option<u32>,
    /// Sessions of one file or channel. `None`: no limit.
    pub sessions_per_asset: Option<u32>,
    /// Sum of the rates of all sessions, bits a second. `None`: no limit.
    pub rate: Option<u64>,
    /// Sum of the rates of a user's sessions, bits a second. `None`: no limit.
    pub rate_per_user: Option<u64>,
    /// Load of the pacer threads, 0 to 1, above which no session is added. `None`: however late
    /// packets are. The default leaves a tenth for the work of sessions besides sending.
    pub admit_load: Option<f64>,
    /// Time from SETUP to PLAY, after which an unplayed session ends. Players take milliseconds.
    pub play_within: Duration,
    /// Networks whose addresses and requests are not counted: proxies and carrier-grade NAT have
    /// many clients behind one address. Limits per connection and in total still apply.
    pub exempt: Vec<ClientPrefix>,
    /// Allows streaming to ports below 1024. Off by default: they belong to services (DNS, NTP), no
    /// player receives there, and an attacker could have them flooded.
    pub low_ports: bool,
}

impl ClientLimits {
    /// Checks the rates of downloads.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(factor) = self.http_pace
            && !(PACE_MIN..=PACE_MAX).contains(&factor)
        {
            return Err(Error::Setting {
                setting: Setting::HttpPace,
                found: format!("{factor}x the rate of the media"),
                cure: format!("write {PACE_MIN}x to {PACE_MAX}x, or off"),
            });
        }
        if let Some(load) = self.admit_load
            && !(ADMIT_LOAD_MIN..=1.0).contains(&load)
        {
            return Err(Error::Setting {
                setting: Setting::AdmitLoad,
                found: load.to_string(),
                cure: format!("write {ADMIT_LOAD_MIN} to 1, or off"),
            });
        }
        let rates = [
            (Setting::HttpRatePerConnection, self.http_rate_per_connection),
            (Setting::HttpRatePerAddress, self.http_rate_per_address),
            (Setting::HttpRate, self.http_rate),
            (Setting::Rate, self.rate),
            (Setting::RatePerUser, self.rate_per_user),
        ];
        for (setting, rate) in rates {
            if let Some(found) = rate.filter(|&rate| rate < RATE_BITS_MIN) {
                return Err(Error::Setting {
                    setting,
                    found: format!("{found} bits a second"),
                    cure: format!("write {}K or more, or leave it out", RATE_BITS_MIN / 1000),
                });
            }
        }
        Ok(())
    }
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
            http_pace: Some(4.0),
            http_rate_per_connection: None,
            http_rate_per_address: None,
            http_rate: None,
            sessions_per_user: None,
            sessions_per_asset: None,
            rate: None,
            rate_per_user: None,
            admit_load: Some(0.9),
            play_within: Duration::from_secs(10),
            exempt: ClientPrefix::LOOPBACK.to_vec(),
            low_ports: false,
        }
    }
}

/// Counts the connections and sessions of clients; refuses those over a limit.
pub(crate) struct Limiter {
    limits: Swapped<ClientLimits>,
    pub(crate) refusals: RefusalMeters,
    descriptors: u64,
    marks: Marks,
    table: Mutex<Table>,
    downloads: rates::DownloadCounts,
    budget: SessionBudget,
}

#[derive(Default)]
struct Table {
    connections: u32,
    sessions: u32,
    /// Bytes of long texts on their way.
    text_bytes: u64,
    /// Keyed by [`counted_as`]; only addresses that hold something.
    addresses: HashMap<IpAddr, Held>,
}

#[derive(Default)]
struct Held {
    connections: u32,
    sessions: u32,
    /// Bytes of made segments and long texts on their way.
    copied_bytes: u64,
}

/// Upper bounds of descriptor numbers, one for each use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks {
    sessions: RawFd,
    connections: RawFd,
}

impl Marks {
    /// Computes the bounds for a process that may open `max` descriptors.
    fn of(max: u64) -> Marks {
        let max = RawFd::try_from(max).unwrap_or(RawFd::MAX);
        let reserve = (max / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX);
        let connections = max.saturating_sub(reserve);
        Marks { sessions: connections - max / CONNECTIONS_PART, connections }
    }
}

impl Limiter {
    /// Creates the limiter of a process that may open `descriptors`.
    pub(crate) fn new(limits: ClientLimits, descriptors: u64) -> Limiter {
        let refusals = RefusalMeters::default();
        let marks = Marks::of(descriptors);
        let (table, downloads, budget) = Default::default();
        let limits = Swapped::new(limits);
        Limiter { limits, refusals, descriptors, marks, table, downloads, budget }
    }

    /// Returns the limits of the moment.
    pub(crate) fn limits(&self) -> Arc<ClientLimits> {
        self.limits.current()
    }

    /// Replaces the limits. Clients that hold more than a lowered limit keep it, and get no more; a
    /// connection keeps its requests a second, a session its time until PLAY.
    pub(crate) fn replace(&self, limits: ClientLimits) {
        self.limits.replace(limits);
    }

    /// Checks that [`CLIENTS_MIN`] descriptors are free below the marks. Called once the server's
    /// own files are open.
    pub(crate) fn check_room(&self) -> Result<(), Error> {
        // The lowest free number shows how many are in use.
        let free = File::open("/dev/null").map_or(RawFd::MAX, |file| file.as_raw_fd());
        let wanted = free.saturating_add(CLIENTS_MIN);
        if wanted <= self.marks.sessions {
            return Ok(());
        }
        let (found, held) =
            (self.descriptors, u64::from(free.unsigned_abs()).min(self.descriptors));
        let is_enough = |max: &u64| Marks::of(*max).sessions >= wanted.min(RawFd::MAX / 2);
        // None was free: the next start finds how many more are needed.
        let needed = (found..DESCRIPTORS_TRIED).find(is_enough).unwrap_or(2 * found) + SPARE;
        Err(Error::Descriptors { found, held, needed })
    }

    /// Counts an accepted connection, or returns the limit that it exceeds.
    pub(crate) fn connect(
        self: &Arc<Self>,
        peer: IpAddr,
        socket: &impl AsRawFd,
    ) -> Result<ConnectionPermit, Refused> {
        let half = (self.marks.connections / 2).unsigned_abs();
        let limits = self.limits();
        let most = limits.connections.unwrap_or(half);
        let address = self.counted(peer);
        let mut table = self.table.lock();
        if table.connections >= most || socket.as_raw_fd() >= self.marks.connections {
            return Err(Refused::Connections);
        }
        if let Some(address) = address {
            let held = table.addresses.entry(address).or_default();
            if held.connections >= limits.connections_per_address {
                return Err(Refused::ConnectionsPerAddress);
            }
            held.connections += 1;
        }
        table.connections += 1;
        Ok(ConnectionPermit { limiter: self.clone(), address })
    }

    /// Counts a new session on a connection that has `of_connection` sessions already.
    pub(crate) fn set_up(
        self: &Arc<Self>,
        peer: IpAddr,
        of_connection: &Arc<AtomicU32>,
    ) -> Result<SessionPermit, Refused> {
        let (limits, address) = (self.limits(), self.counted(peer));
        let mut table = self.table.lock();
        // Only the connection's own task increments it.
        if of_connection.load(Ordering::Relaxed) >= limits.sessions_per_connection {
            return Err(Refused::SessionsPerConnection);
        }
        if limits.sessions.is_some_and(|most| table.sessions >= most) {
            return Err(Refused::Sessions);
        }
        if let Some(address) = address {
            let held = table.addresses.entry(address).or_default();
            if held.sessions >= limits.sessions_per_address {
                return Err(Refused::SessionsPerAddress);
            }
            held.sessions += 1;
        }
        table.sessions += 1;
        of_connection.fetch_add(1, Ordering::Relaxed);
        let connection = of_connection.clone();
        Ok(SessionPermit { limiter: self.clone(), address, connection, share: None })
    }

    /// Returns the rate of all sessions, bits a second.
    pub(crate) fn session_bits_per_s(&self) -> u64 {
        self.budget.bits_per_s()
    }

    /// True when a session may keep this socket.
    pub(crate) fn has_room_for_session(&self, socket: &impl AsRawFd) -> bool {
        socket.as_raw_fd() < self.marks.sessions
    }

    /// True when a client may keep this file open; false when its number is in the reserve.
    pub(crate) fn has_room_for_file(&self, file: &impl AsRawFd) -> bool {
        file.as_raw_fd() < self.marks.connections
    }

    /// Returns the pace for a new connection's requests; `None` for exempt networks.
    pub(crate) fn pace(&self, peer: IpAddr) -> Option<InputPace> {
        self.counted(peer).map(|_| InputPace::new(self.limits().requests_per_s))
    }

    /// Returns the pace for the input of a new RTSP connection beside its requests. No network is
    /// exempt: a proxy of many clients has a connection for each.
    pub(crate) fn pace_beside(&self) -> InputPace {
        InputPace::beside(self.limits().requests_per_s)
    }

    /// Number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.table.lock().connections as usize
    }

    /// Returns the address that `peer` is counted by; `None` for exempt networks.
    fn counted(&self, peer: IpAddr) -> Option<IpAddr> {
        let peer = peer.to_canonical();
        let is_exempt = self.limits().exempt.iter().any(|network| network.contains(peer));
        (!is_exempt).then(|| counted_as(peer))
    }
}

impl Table {
    fn give_back(&mut self, address: Option<IpAddr>, give: impl FnOnce(&mut Held)) {
        let Some(address) = address else { return };
        let Some(held) = self.addresses.get_mut(&address) else { return };
        give(held);
        if held.connections == 0 && held.sessions == 0 && held.copied_bytes == 0 {
            self.addresses.remove(&address);
        }
    }
}

/// One counted connection; dropping it uncounts it.
pub(crate) struct ConnectionPermit {
    limiter: Arc<Limiter>,
    address: Option<IpAddr>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut table = self.limiter.table.lock();
        table.connections -= 1;
        table.give_back(self.address, |held| held.connections -= 1);
    }
}

/// One counted session; dropping it uncounts it.
pub(crate) struct SessionPermit {
    limiter: Arc<Limiter>,
    address: Option<IpAddr>,
    connection: Arc<AtomicU32>,
    share: Option<SessionShare>,
}

impl SessionPermit {
    /// Counts the session among those of its user and of its asset, with its rate.
    pub(crate) fn take_share(
        &mut self,
        user: Option<Arc<str>>,
        asset: (&str, u64),
    ) -> Result<(), Refused> {
        self.share = Some(self.limiter.budget.take(&self.limiter.limits(), user, asset)?);
        Ok(())
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        let mut table = self.limiter.table.lock();
        table.sessions -= 1;
        table.give_back(self.address, |held| held.sessions -= 1);
        drop(table);
        self.connection.fetch_sub(1, Ordering::Relaxed);
        if let Some(share) = &self.share {
            self.limiter.budget.give_back(share);
        }
    }
}

/// Slower downloads than the media's rate make every player stall.
const PACE_MIN: f64 = 1.0;
/// A higher pace has no effect.
const PACE_MAX: f64 = 1000.0;
/// Less is a server that plays next to nothing.
const ADMIT_LOAD_MIN: f64 = 0.05;
/// Low-rate speech; `write_deadline.rs` disconnects peers at a twelfth of it.
const RATE_BITS_MIN: u64 = 100_000;
/// A sixteenth of the descriptors is reserved, within the bounds below.
const RESERVE_PART: RawFd = 16;
/// Enough for a wire image in the making, a plan, a scan of the folder and a few refusals.
const RESERVE_MIN: RawFd = 16;
const RESERVE_MAX: RawFd = 512;
/// An eighth is reserved for connections, so that a client can still connect and read the reason
/// why it gets no session.
const CONNECTIONS_PART: RawFd = 8;
/// Descriptors that must be left for clients at start: two playing clients.
const CLIENTS_MIN: RawFd = 8;
/// Added to the suggested limit: descriptors held by one start and not by another.
const SPARE: u64 = 8;
/// More descriptors than a server opens for itself on any machine.
const DESCRIPTORS_TRIED: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket with a chosen descriptor number.
    struct Numbered(RawFd);

    impl AsRawFd for Numbered {
        fn as_raw_fd(&self) -> RawFd {
            self.0
        }
    }

    #[test]
    fn replaced_limits_hold_for_what_comes() {
        let limiter = limiter(|limits| limits.connections_per_address = 2);
        let peer = IpAddr::from([192, 0, 2, 1]);
        let connect = || limiter.connect(peer, &Numbered(10));
        let held = [connect().unwrap(), connect().unwrap()];
        let one =
            ClientLimits { connections_per_address: 1, exempt: Vec::new(), ..Default::default() };
        limiter.replace(one.clone());
        assert!(matches!(connect(), Err(Refused::ConnectionsPerAddress)));
        drop(held);
        let last = connect().expect("nothing is held");
        limiter.replace(ClientLimits { exempt: vec!["192.0.2.0/24".parse().unwrap()], ..one });
        let exempt = connect().expect("the network is exempt now");
        drop((last, exempt));
        assert!(limiter.table.lock().addresses.is_empty(), "counted as when it began");
    }

    pub(super) fn limiter(change: impl FnOnce(&mut ClientLimits)) -> Arc<Limiter> {
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
        let table = limiter.table.lock();
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
        assert_eq!((limiter.connections(), limiter.table.lock().addresses.len()), (0, 0));
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
