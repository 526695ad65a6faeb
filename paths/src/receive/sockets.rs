// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP sockets of the receive paths by socket.
//!
//! A port is a socket of its own, bound to the requested address, so the kernel separates streams
//! and each has its own buffer. A group's socket is bound to the group's address and receives for
//! its own memberships alone (`IP_MULTICAST_ALL`, `IPV6_MULTICAST_ALL` off), from the named sources
//! (RFC 4607) or from any; other sockets may be bound to the same group and receive the same
//! datagrams. A host's address is bound exclusively: a second socket would get the first one's
//! datagrams. A socket of IPv6 receives no IPv4.
//!
//! One `epoll_wait` waits for all sockets. Each ready socket then has a turn of a fixed number of
//! datagrams, and those that a turn has not emptied have further turns, up to
//! [`FULL_CALL_PACKETS`]. So a busy port delays another by one turn only, and a reader that sleeps
//! after a call leaves no datagram waiting.
//!
//! ICMP errors about packets that others sent from the same address do not end a call. A removed
//! device silently ends the memberships of groups joined on it: after a wait without datagrams, the
//! path checks the device of one of the ports in a group.
//!
//! Sources: `ip(7)`, `ipv6(7)`, `epoll(7)`, `udp(7)`; RFC 3678, RFC 4607.
//!
//! Does not interpret datagrams. Does not bind a unicast port to a device (`interface` only has to
//! exist).

use std::cell::Cell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::error::{Errno, Error};
use crate::receive::{FULL_CALL_PACKETS, Port, ReceiveStats, ReceivedRun, pause};
use crate::send_stats::SendStats;
use crate::sys::{self, Poll, READY_MAX, RecvMeta, Slots};

/// The longest datagram that UDP's length can express. Joined runs have the same limit.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 65_535;

/// Socket options of a receive path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SocketOptions {
    /// True to timestamp each datagram.
    pub(crate) time: bool,
    /// True to receive runs that the kernel has joined.
    pub(crate) joined: bool,
    /// True to drop all: frames are received from the device, and the socket only holds the port
    /// and the group's membership.
    pub(crate) discard: bool,
}

/// A port's socket.
#[derive(Debug)]
pub(crate) struct PortSocket {
    pub(crate) key: u32,
    socket: UdpSocket,
    name: Arc<str>,
    address: SocketAddr,
    /// The device that a group was joined on, where one was named.
    device: Option<u32>,
    /// Longest pause while it is empty.
    pause_max: Duration,
    /// The kernel's count at the last query.
    dropped: Cell<u64>,
}

impl PortSocket {
    /// Binds a socket for `port` and joins its group.
    pub(crate) fn new(port: &Port, key: u32, options: SocketOptions) -> Result<Self, Error> {
        let name: Arc<str> = match &port.interface {
            Some(interface) => format!("{} on {interface}", port.address).into(),
            None => port.address.to_string().into(),
        };
        let host = |call| {
            let object = name.clone();
            move |errno| Error::Host { call, object, errno }
        };
        let send_stats = &mut SendStats::default();
        let device = match &port.interface {
            Some(device) => {
                Some(sys::device_index(device, send_stats).map_err(host("if_nametoindex"))?)
            }
            None => None,
        };
        let ip = port.address.ip();
        let socket = sys::udp_socket(port.address, send_stats).map_err(host("socket"))?;
        let fd = socket.as_fd();
        // Options are set before the first datagram can arrive.
        if options.time {
            sys::report_time(fd, send_stats).map_err(host("setsockopt SO_TIMESTAMPNS"))?;
        }
        if options.joined {
            sys::take_joined(fd, send_stats).map_err(host("setsockopt UDP_GRO"))?;
        }
        if options.discard {
            sys::take_nothing(fd, send_stats).map_err(host("setsockopt SO_ATTACH_FILTER"))?;
        } else if port.buffer_bytes > 0 {
            let set = sys::set_receive_buffer(fd, port.buffer_bytes, send_stats);
            set.map_err(host("setsockopt SO_RCVBUF"))?;
        }
        if ip.is_multicast() {
            sys::share_address(fd, send_stats).map_err(host("setsockopt SO_REUSEADDR"))?;
        }
        // A wildcard address would also receive the groups that others on the host have joined.
        if ip.is_multicast() || ip.is_unspecified() {
            let only = sys::own_groups_only(fd, ip, send_stats);
            only.map_err(host("setsockopt IP_MULTICAST_ALL=0"))?;
        }
        sys::bind(fd, port.address, send_stats).map_err(host("bind"))?;
        if ip.is_multicast() {
            join(fd, ip, &port.sources, device.unwrap_or(0)).map_err(host("joining a group"))?;
        }
        let address = socket.local_addr().map_err(|error| host("getsockname")(error.into()))?;
        let device = device.filter(|_| ip.is_multicast());
        let granted = sys::receive_buffer(fd, send_stats).map_err(host("getsockopt SO_RCVBUF"))?;
        let pause_max = pause::of_socket(granted);
        Ok(Self { key, socket, name, address, device, pause_max, dropped: Cell::new(0) })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the bound address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of datagrams that the kernel dropped there. It counts modulo 2³²; the
    /// total is right if it is queried before the count wraps.
    pub(crate) fn dropped(&self) -> u64 {
        if let Ok(now) = sys::drops(self.as_fd()) {
            let before = self.dropped.get();
            self.dropped.set(before + u64::from(now.wrapping_sub(before as u32)));
        }
        self.dropped.get()
    }

    /// True when the device that its group was joined on has been removed.
    pub(crate) fn is_orphan(&self, send_stats: &mut SendStats) -> bool {
        self.device.is_some_and(|device| !sys::has_device(device, send_stats))
    }

    pub(crate) fn refused(&self, call: &'static str, errno: Errno) -> Error {
        Error::Host { call, object: self.name.clone(), errno }
    }
}

fn join(
    socket: BorrowedFd<'_>,
    group: IpAddr,
    sources: &[IpAddr],
    device: u32,
) -> Result<(), Errno> {
    let send_stats = &mut SendStats::default();
    if sources.is_empty() {
        return sys::join_group(socket, group, None, device, send_stats);
    }
    for source in sources {
        // A sender of the other family cannot send to this group.
        if source.is_ipv4() != group.is_ipv4() {
            return Err(Errno::new(libc::EAFNOSUPPORT));
        }
        sys::join_group(socket, group, Some(*source), device, send_stats)?;
    }
    Ok(())
}

/// True for an error that does not concern the socket itself: nothing waiting, an ICMP error, or a
/// shortage of memory.
pub(super) fn is_passing(errno: Errno) -> bool {
    let passing = [
        libc::ECONNREFUSED,
        libc::ECONNRESET,
        libc::EHOSTUNREACH,
        libc::EHOSTDOWN,
        libc::ENETUNREACH,
        libc::ENETDOWN,
        libc::ENOPROTOOPT,
        libc::EPROTO,
        libc::EMSGSIZE,
        libc::EACCES,
        libc::ENOBUFS,
        libc::ENOMEM,
    ];
    errno.is_again() || passing.contains(&errno.code())
}

/// Ports by key, each in a numbered place.
#[derive(Debug, Default)]
pub(super) struct Ports {
    bound: Vec<Option<PortSocket>>,
    free: Vec<u32>,
    places: HashMap<u32, u32>,
    /// Place of the port whose device is checked next.
    asked: usize,
}

impl Ports {
    /// Refuses a key that another port has.
    pub(super) fn check(&self, port: &Port, key: u32) -> Result<(), Error> {
        if !self.places.contains_key(&key) {
            return Ok(());
        }
        let object = format!("{} as {key}", port.address).into();
        Err(Error::Host { call: "adding a port", object, errno: Errno::new(libc::EEXIST) })
    }

    /// Returns the place that the next port gets.
    pub(super) fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.bound.len() as u32)
    }

    pub(super) fn insert(&mut self, bound: PortSocket) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.bound.push(None);
            self.bound.len() as u32 - 1
        });
        self.places.insert(bound.key, place);
        self.bound[place as usize] = Some(bound);
        place
    }

    pub(super) fn remove(&mut self, key: u32) -> Option<(u32, PortSocket)> {
        let place = self.places.remove(&key)?;
        self.free.push(place);
        Some((place, self.bound[place as usize].take()?))
    }

    pub(super) fn at(&self, place: u32) -> Option<&PortSocket> {
        self.bound.get(place as usize)?.as_ref()
    }

    pub(super) fn of(&self, key: u32) -> Option<&PortSocket> {
        self.at(*self.places.get(&key)?)
    }

    /// Returns the longest pause while all of them are empty.
    pub(super) fn pause_max(&self) -> Duration {
        self.bound.iter().flatten().map(|bound| bound.pause_max).min().unwrap_or(Duration::MAX)
    }

    /// Checks the device of a port in a group: another port each time.
    pub(super) fn ask_after_device(&mut self) -> Result<(), Error> {
        let count = self.bound.len();
        let with_device = |bound: &Option<PortSocket>| bound.as_ref()?.device;
        let next = (0..count)
            .map(|step| (self.asked + step) % count)
            .find(|place| with_device(&self.bound[*place]).is_some());
        let Some(place) = next else { return Ok(()) };
        self.asked = place + 1;
        match &self.bound[place] {
            Some(bound) if bound.is_orphan(&mut SendStats::default()) => {
                Err(bound.refused("receiving", Errno::new(libc::ENODEV)))
            }
            _ => Ok(()),
        }
    }
}

/// The ports of a path by sockets, with their wait.
#[derive(Debug)]
pub(crate) struct Sockets {
    ports: Ports,
    poll: Poll,
    options: SocketOptions,
    /// Places that the current call has not emptied yet.
    unread: Vec<u32>,
    pause_max: Duration,
    pub(crate) stats: ReceiveStats,
}

/// Result of a port's turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) packets: usize,
    /// True when the turn was exhausted, so that more may wait.
    pub(crate) is_full: bool,
}

impl Sockets {
    pub(crate) fn new(options: SocketOptions) -> Result<Self, Error> {
        let refused =
            |errno| Error::Host { call: "epoll_create1", object: "a path's ports".into(), errno };
        let poll = Poll::new().map_err(refused)?;
        let (ports, unread, stats) = (Ports::default(), Vec::new(), ReceiveStats::default());
        Ok(Self { ports, poll, options, unread, pause_max: Duration::MAX, stats })
    }

    pub(crate) fn add(&mut self, port: &Port, key: u32) -> Result<(), Error> {
        self.ports.check(port, key)?;
        let bound = PortSocket::new(port, key, self.options)?;
        let added = self.poll.add(bound.as_fd(), self.ports.next().into());
        added.map_err(|errno| bound.refused("epoll_ctl", errno))?;
        self.ports.insert(bound);
        self.pause_max = self.ports.pause_max();
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: u32) {
        // Closing the socket ends the wait for it.
        drop(self.ports.remove(key));
        self.pause_max = self.ports.pause_max();
    }

    /// Returns the longest pause, as [`crate::ReceivePath::pause_max`].
    pub(crate) fn pause_max(&self) -> Duration {
        self.pause_max
    }

    pub(crate) fn address(&self, key: u32) -> Option<SocketAddr> {
        self.ports.of(key).map(PortSocket::address)
    }

    pub(crate) fn dropped(&self, key: u32) -> u64 {
        self.ports.of(key).map_or(0, PortSocket::dropped)
    }

    /// Waits, then calls `turn` for each ready port, and again for those that were not emptied,
    /// until all are empty or [`FULL_CALL_PACKETS`] is reached. Each ready port has its turn, even
    /// after an error of another.
    pub(crate) fn receive(
        &mut self,
        wait: Duration,
        mut turn: impl FnMut(&PortSocket, &mut ReceiveStats) -> Result<Turn, Errno>,
    ) -> Result<usize, Error> {
        let mut ready = self.find_ready(wait)?;
        if ready == 0 && !wait.is_zero() {
            self.ports.ask_after_device()?;
        }
        let (mut packets, mut refusal) = (0, None);
        while !self.unread.is_empty() && packets < FULL_CALL_PACKETS {
            let Self { ports, unread, stats, .. } = self;
            unread.retain(|place| {
                let Some(bound) = ports.at(*place) else { return false };
                match turn(bound, stats) {
                    Ok(of_turn) => {
                        packets += of_turn.packets;
                        return of_turn.is_full;
                    }
                    Err(errno) if is_passing(errno) => {}
                    Err(errno) => refusal = Some(bound.refused("recvmmsg", errno)),
                }
                false
            });
            if ready == READY_MAX {
                // Other ports may be ready; the next wait reports them first.
                ready = self.find_ready(Duration::ZERO)?;
            }
        }
        refusal.map_or(Ok(packets), Err)
    }

    /// Waits at most `wait` for ports to be ready, and lists them as unread; returns their number.
    fn find_ready(&mut self, wait: Duration) -> Result<usize, Error> {
        let ready = self.poll.wait(wait, &mut self.stats);
        let object = || "a path's ports".into();
        let ready =
            ready.map_err(|errno| Error::Host { call: "epoll_wait", object: object(), errno })?;
        self.unread.clear();
        let places = (0..ready).filter_map(|number| u32::try_from(self.poll.ready(number)).ok());
        self.unread.extend(places);
        Ok(ready)
    }
}

/// Hands over the first `count` slots, filled by the last call; returns the number of datagrams.
/// `burst` is the memory for the list, empty again afterwards.
pub(super) fn hand_over(
    (slots, count): (&Slots, usize),
    key: u32,
    burst: &mut Vec<ReceivedRun<'static>>,
    stats: &mut ReceiveStats,
    each: &mut dyn FnMut(&[ReceivedRun<'_>]),
) -> usize {
    let mut list = emptied(std::mem::take(burst));
    let mut packets = 0;
    for slot in 0..count {
        let (bytes, source, meta) = (slots.datagram(slot), slots.source(slot), slots.meta(slot));
        if let Some(run) = (ReceivedMessage { bytes, source, meta }).received(key, stats) {
            packets += run.count();
            list.push(run);
        }
    }
    if !list.is_empty() {
        each(&list);
    }
    *burst = emptied(list);
    packets
}

/// A received datagram or run, with its metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedMessage<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) source: Option<SocketAddr>,
    pub(crate) meta: RecvMeta,
}

impl<'a> ReceivedMessage<'a> {
    /// Counts it and converts it for handing over; `None` when it was cut.
    pub(crate) fn received(self, key: u32, stats: &mut ReceiveStats) -> Option<ReceivedRun<'a>> {
        let Self { bytes, source, meta } = self;
        stats.copied_bytes += bytes.len() as u64;
        let (false, Some(source)) = (meta.is_cut, source) else {
            stats.truncated += 1;
            return None;
        };
        // The time is by `CLOCK_REALTIME`.
        let time = meta.stamp.and_then(|stamp| UNIX_EPOCH.checked_add(stamp));
        let segment_bytes = meta.segment_bytes;
        let run = ReceivedRun { key, source, bytes, segment_bytes, time };
        stats.packets += run.count() as u64;
        stats.bytes += bytes.len() as u64;
        Some(run)
    }
}

/// Reuses the memory of a list for runs with another lifetime.
pub(super) fn emptied<'to>(mut list: Vec<ReceivedRun<'_>>) -> Vec<ReceivedRun<'to>> {
    list.clear();
    // The collection is in place: the standard library reuses the allocation, as the types have the
    // same size.
    list.into_iter().map_while(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lists_memory_is_used_again() {
        let list: Vec<ReceivedRun<'static>> = Vec::with_capacity(64);
        let (start, room) = (list.as_ptr() as usize, list.capacity());
        let mut list = emptied(list);
        let bytes = [1, 2, 3];
        let source = SocketAddr::from(([127, 0, 0, 1], 1));
        list.push(ReceivedRun { key: 1, source, bytes: &bytes, segment_bytes: 0, time: None });
        let list: Vec<ReceivedRun<'static>> = emptied(list);
        assert_eq!((list.as_ptr() as usize, list.capacity(), list.len()), (start, room, 0));
    }

    #[test]
    fn a_cut_datagram_is_counted_and_not_handed_over() {
        let mut sockets = Sockets::new(SocketOptions::default()).unwrap();
        let port = Port {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            sources: Vec::new(),
            interface: None,
            buffer_bytes: 0,
        };
        sockets.add(&port, 9).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for bytes in [101, 100, 5000, 0] {
            sender.send_to(&vec![7; bytes], sockets.address(9).unwrap()).unwrap();
        }
        let (mut slots, mut burst, mut lengths) = (Slots::new(8, 100), Vec::new(), Vec::new());
        let received = sockets.receive(Duration::from_secs(5), |bound, stats| {
            let count = sys::receive_many(bound.as_fd(), &mut slots, stats)?;
            assert_eq!(count, 4);
            let mut each = |list: &[ReceivedRun<'_>]| {
                assert!(list.iter().all(|run| run.key == 9));
                lengths.extend(list.iter().map(|run| run.bytes.len()));
            };
            let packets = hand_over((&slots, count), bound.key, &mut burst, stats, &mut each);
            Ok(Turn { packets, is_full: false })
        });
        assert_eq!((received, lengths), (Ok(2), vec![100, 0]));
        let stats = sockets.stats;
        assert_eq!((stats.truncated, stats.packets, stats.bytes), (2, 2, 100));
        assert_eq!((stats.calls, stats.waits, stats.copied_bytes), (1, 1, 300));
    }

    #[test]
    fn places_are_found_by_key_and_used_again() {
        let mut ports = Ports::default();
        let port = Port {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            sources: Vec::new(),
            interface: None,
            buffer_bytes: 0,
        };
        for key in [7, 8, 9] {
            let bound = PortSocket::new(&port, key, SocketOptions::default()).unwrap();
            let place = ports.next();
            assert_eq!(ports.insert(bound), place);
        }
        let refusal = ports.check(&port, 8).unwrap_err().to_string();
        assert_eq!(refusal, "adding a port on 127.0.0.1:0 as 8: EEXIST");
        let (place, _) = ports.remove(8).unwrap();
        assert!(ports.of(8).is_none() && ports.at(place).is_none() && ports.remove(8).is_none());
        ports.insert(PortSocket::new(&port, 10, SocketOptions::default()).unwrap());
        assert_eq!(ports.of(10).unwrap().address(), ports.at(place).unwrap().address());
    }
}
