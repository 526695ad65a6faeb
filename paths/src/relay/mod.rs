// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relays datagrams from a port to another address without a copy to user memory.
//!
//! The next datagram or run of a port is peeked at (`MSG_PEEK`: its length, the segment size of a
//! run that the kernel has joined, its first bytes for statistics), then spliced into a pipe and
//! out of it to the target's socket, whose `UDP_SEGMENT` is set to that size: a run leaves as it
//! arrived, in one call, and the kernel or the device cuts it where it was cut before. The bytes
//! are copied once, within the kernel, into the pipe's pages; the socket refers to those.
//!
//! No datagram is split or merged with another: the pipe's content leaves as one run and is
//! segmented at the target as it arrived; it has at most 16 pages, so `splice` passes it on in one
//! message; and a lone datagram begins with a page, so that no page begins at an odd byte of it
//! (consequence: [`crate::file_datagrams`]). Datagrams that exceed the pipe's room, sizes that the
//! target's route does not segment, and empty datagrams, which no pipe can hold, are received and
//! sent; so are all where the kernel does not splice from UDP sockets ([`RelayMethod::Copy`]).
//!
//! Costs three calls a run (two, and a third for up to 16, where they leave together), a copy of 64
//! bytes at most, and a call for each change of size. By [`RelayMethod::Copy`] one call receives up
//! to 64, and one call sends those that leave together, with two copies.
//!
//! The gain of splicing is small: a copy to user memory costs little where the cache holds a run,
//! and the pipe's pages have to be allocated. At 1,328 bytes over loopback, delivery included,
//! seconds of processor time per 10⁹ bytes: runs of 49 spliced 0.44, copied 0.42; datagrams that
//! arrived one by one spliced 2.4, as each is peeked at and moved by itself, copied 1.1. So
//! [`Relay::copying`] is useful on new kernels too.
//!
//! Datagrams that the target's socket or route refuses are lost, as on a wire, and counted: waiting
//! for one target would delay the others.
//!
//! Sources: `splice(2)`, `udp(7)` (`UDP_GRO`, `UDP_SEGMENT`), `recvmsg(2)` (`MSG_PEEK`); Linux 6.18
//! `fs/splice.c` (`copy_splice_read`, since 6.5 for UDP sockets; `splice_to_socket`).
//!
//! Does not change datagrams, put them in order or send them evenly.

mod forwarder;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::destination::Destination;
use crate::error::{Errno, Error, Unavailable};
use crate::receive::{Port, ReceiveStats, SocketOptions, Sockets, Turn};
use crate::send_stats::SendStats;
use crate::sys;
use forwarder::{RelayCallbacks, RelayForwarder};

/// Bytes of a datagram or run that are passed to the callbacks.
pub const HEAD_BYTES_MAX: usize = 64;

/// Target of a port's datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayTarget {
    /// A host's or a group's address, and the port there.
    pub address: SocketAddr,
    /// The device by which a group's datagrams leave; the route's when `None`.
    pub interface: Option<String>,
    /// Hops (TTL) that they may pass; the host's default when `None`, which for a group is 1.
    pub hops: Option<u8>,
}

/// The way of datagrams from port to target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayMethod {
    /// Spliced: only the first 64 bytes are copied to user memory.
    Splice,
    /// Received and sent, runs as runs: two copies a byte.
    Copy(Unavailable),
}

impl fmt::Display for RelayMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Splice => write!(f, "splice"),
            Self::Copy(reason) => write!(f, "recvmmsg and send, two copies: splice {reason}"),
        }
    }
}

/// A received datagram or joined run, and the result of its send.
#[derive(Clone, Copy, Debug)]
pub struct RelayedRun<'a> {
    /// The port's key.
    pub key: u32,
    /// The sender.
    pub source: SocketAddr,
    /// The beginning of the first datagram: at most [`HEAD_BYTES_MAX`].
    pub head: &'a [u8],
    /// Bytes of all datagrams.
    pub bytes: u32,
    /// Bytes of each datagram except the last, which may be shorter; 0 for a single datagram.
    pub segment_bytes: u16,
    /// Datagrams in it.
    pub packets: u32,
    /// Number of datagrams that the target's socket has accepted, the first ones.
    pub sent: u32,
    /// Time at which the kernel received it from the device.
    pub time: Option<SystemTime>,
}

/// Relays from any number of ports, each to its target, for the thread that owns it.
#[derive(Debug)]
pub struct Relay {
    sockets: Sockets,
    routes: HashMap<u32, Route>,
    forwarder: RelayForwarder,
}

/// A port and its target.
#[derive(Debug)]
struct Route {
    to: Destination,
    port: RouteEnd,
    target: RouteEnd,
    /// Number of datagrams that the target's socket refused.
    lost: u64,
}

/// An end of a route, for loop detection.
#[derive(Clone, Copy, Debug)]
struct RouteEnd {
    address: SocketAddr,
    /// True for an address of this host and for the address of a port.
    is_ours: bool,
    device: Option<u32>,
}

impl RouteEnd {
    /// True when packets to `target` arrive here.
    fn takes(&self, target: &Self) -> bool {
        let (own, theirs) = (self.address.ip(), target.address.ip());
        if self.address.port() != target.address.port() || own.is_ipv4() != theirs.is_ipv4() {
            return false;
        }
        if own.is_multicast() {
            let apart = matches!((self.device, target.device), (Some(a), Some(b)) if a != b);
            return own == theirs && !apart;
        }
        own == theirs || own.is_unspecified() && target.is_ours
    }
}

impl Relay {
    /// Relays by splicing, as long as the kernel does it.
    ///
    /// # Errors
    /// The kernel's answer to `epoll_create1` or `pipe2`.
    pub fn new() -> Result<Self, Error> {
        Self::by(RelayMethod::Splice)
    }

    /// Relays by receiving and sending.
    ///
    /// # Errors
    /// Same as for [`Relay::new`].
    pub fn copying() -> Result<Self, Error> {
        let asked = Unavailable { need: "to be wanted".into(), found: "copies asked for".into() };
        Self::by(RelayMethod::Copy(asked))
    }

    fn by(method: RelayMethod) -> Result<Self, Error> {
        let forwarder = RelayForwarder::new(method)?;
        let sockets = Sockets::new(SocketOptions { time: true, joined: true, discard: false })?;
        Ok(Self { sockets, routes: HashMap::new(), forwarder })
    }

    /// Adds a route from `port` to `target`; it carries `key`, which no other has.
    ///
    /// # Errors
    /// A call that the kernel refused, with its object. [`Error::Loop`] where relayed packets would
    /// arrive here again, by other routes of this relay or at once.
    pub fn add(&mut self, port: &Port, key: u32, target: &RelayTarget) -> Result<(), Error> {
        self.sockets.add(port, key)?;
        let route = self.route(port, key, target);
        match route {
            Ok(route) => {
                self.routes.insert(key, route);
                Ok(())
            }
            Err(error) => {
                self.sockets.remove(key);
                Err(error)
            }
        }
    }

    fn route(&self, port: &Port, key: u32, target: &RelayTarget) -> Result<Route, Error> {
        let send_stats = &mut SendStats::default();
        let mut index = |device: &Option<String>| match device {
            Some(device) => sys::device_index(device, send_stats).map(Some),
            None => Ok(None),
        };
        let name: Arc<str> = target.address.to_string().into();
        let refused = |call, errno| Error::Host { call, object: name.clone(), errno };
        let [from, by] = [&port.interface, &target.interface]
            .map(|device| index(device).map_err(|errno| refused("if_nametoindex", errno)));
        let (from, by) = (from?, by?);
        let address = self.sockets.address(key).unwrap_or(port.address);
        let socket = connected(target, by).map_err(|(call, errno)| refused(call, errno))?;
        // A socket can be bound to a host's own address only.
        let is_ours = UdpSocket::bind(SocketAddr::new(target.address.ip(), 0)).is_ok();
        let port = RouteEnd { address, is_ours: true, device: from };
        let target = RouteEnd { address: target.address, is_ours, device: by };
        if self.comes_back(&port, &target) {
            return Err(Error::Loop { port: address.to_string().into(), target: name });
        }
        Ok(Route { to: Destination::new(socket, name)?, port, target, lost: 0 })
    }

    /// True when packets to `target` arrive at `port`, by the present routes.
    fn comes_back(&self, port: &RouteEnd, target: &RouteEnd) -> bool {
        let mut ahead = vec![*target];
        let mut passed = vec![];
        while let Some(target) = ahead.pop() {
            if port.takes(&target) {
                return true;
            }
            for (key, route) in &self.routes {
                if route.port.takes(&target) && !passed.contains(key) {
                    passed.push(*key);
                    ahead.push(route.target);
                }
            }
        }
        false
    }

    /// Removes a route. Waiting datagrams are dropped.
    pub fn remove(&mut self, key: u32) {
        self.sockets.remove(key);
        self.routes.remove(&key);
    }

    /// Returns the bound address, for a port requested as 0.
    pub fn address(&self, key: u32) -> Option<SocketAddr> {
        self.sockets.address(key)
    }

    /// Waits at most `wait` for datagrams, then forwards all waiting ones, up to 64 datagrams or
    /// runs of a port at a time, and reports each of them. Returns the number of received
    /// datagrams, sent or not; when fewer than [`crate::FULL_CALL_PACKETS`] arrived, every port was
    /// found empty.
    ///
    /// # Errors
    /// A device is gone, or the kernel refuses to receive. The call may be repeated.
    pub fn forward(
        &mut self,
        wait: Duration,
        each: &mut dyn FnMut(&RelayedRun<'_>),
    ) -> Result<usize, Error> {
        self.forward_if(wait, &mut |_| true, each)
    }

    /// Does the same as [`Relay::forward`], but sends and reports only datagrams that `admit`
    /// accepts. It is called once for each datagram or run, in their order, before any of it is
    /// sent (`sent` is 0). Each rejected one is dropped by a call of its own.
    ///
    /// # Errors
    /// Same as for [`Relay::forward`].
    pub fn forward_if(
        &mut self,
        wait: Duration,
        admit: &mut dyn FnMut(&RelayedRun<'_>) -> bool,
        each: &mut dyn FnMut(&RelayedRun<'_>),
    ) -> Result<usize, Error> {
        let Self { sockets, routes, forwarder } = self;
        sockets.receive(wait, |bound, receive_stats| {
            let nothing = Turn { packets: 0, is_full: false };
            let Some(route) = routes.get_mut(&bound.key) else { return Ok(nothing) };
            let mut packets = 0;
            let mut asked = |relayed: &RelayedRun<'_>| {
                packets += relayed.packets as usize;
                admit(relayed)
            };
            let mut calls = RelayCallbacks { admit: &mut asked, note: each };
            let turned =
                forwarder.turn((bound.as_fd(), bound.key), route, receive_stats, &mut calls);
            // The datagrams before it have been reported.
            match turned {
                Err(errno) if packets == 0 => Err(errno),
                turned => Ok(Turn { packets, is_full: turned.unwrap_or(false) }),
            }
        })
    }

    /// Returns the method, with its reason.
    pub fn method(&self) -> &RelayMethod {
        self.forwarder.method()
    }

    /// Returns counters of received datagrams and of the work for them.
    pub fn receive_stats(&self) -> ReceiveStats {
        self.sockets.stats
    }

    /// Returns counters of sent datagrams and of the work for them; the pipe's calls are among
    /// them.
    pub fn send_stats(&self) -> SendStats {
        self.forwarder.send_stats()
    }

    /// Returns the number of datagrams of this port that the target's socket or route refused.
    pub fn lost(&self, key: u32) -> u64 {
        self.routes.get(&key).map_or(0, |route| route.lost)
    }

    /// Returns the longest pause, as [`crate::ReceivePath::pause_max`].
    pub fn pause_max(&self) -> Duration {
        self.sockets.pause_max()
    }

    /// Returns the drops, as [`crate::ReceivePath::dropped`].
    pub fn dropped(&self, key: u32) -> u64 {
        self.sockets.dropped(key)
    }
}

/// Makes a socket for a target; an error names the refused call.
fn connected(
    target: &RelayTarget,
    device: Option<u32>,
) -> Result<UdpSocket, (&'static str, Errno)> {
    let send_stats = &mut SendStats::default();
    let ip: IpAddr = target.address.ip();
    let socket = sys::udp_socket(target.address, send_stats).map_err(|errno| ("socket", errno))?;
    if let Some(hops) = target.hops {
        let set = sys::set_hops(socket.as_fd(), ip, hops, send_stats);
        set.map_err(|errno| ("setsockopt IP_TTL", errno))?;
    }
    if let Some(device) = device.filter(|_| ip.is_multicast()) {
        let set = sys::send_groups_by(socket.as_fd(), ip, device, send_stats);
        set.map_err(|errno| ("setsockopt IP_MULTICAST_IF", errno))?;
    }
    socket.connect(target.address).map_err(|error| ("connect", error.into()))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{ip_multicast_ttl, ip_ttl};

    use super::*;

    fn localhost(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn port() -> Port {
        Port { address: localhost(0), sources: vec![], interface: None, buffer_bytes: 0 }
    }

    #[test]
    fn a_kernel_that_does_not_splice_is_found_out_and_nothing_is_lost() {
        let mut relay = Relay::new().unwrap();
        relay.forwarder.spoil();
        let peer = UdpSocket::bind(localhost(0)).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let target =
            RelayTarget { address: peer.local_addr().unwrap(), interface: None, hops: None };
        relay.add(&port(), 1, &target).unwrap();
        let sender = UdpSocket::bind(localhost(0)).unwrap();
        for text in ["one", "two", "three"] {
            sender.send_to(text.as_bytes(), relay.address(1).unwrap()).unwrap();
        }
        let mut received = 0;
        while received < 3 {
            received += relay.forward(Duration::from_secs(5), &mut |_| {}).unwrap();
        }
        let method = relay.method().to_string();
        let begins = "recvmmsg and send, two copies: splice needs UDP sockets that can be spliced \
                      from (kernel 6.5), found EINVAL, kernel ";
        assert!(method.starts_with(begins), "{method}");
        let mut buffer = [0; 16];
        for text in ["one", "two", "three"] {
            let bytes = peer.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..bytes], text.as_bytes());
        }
        assert_eq!((relay.lost(1), relay.send_stats().packets), (0, 3));
    }

    #[test]
    fn hops_are_those_asked_for() {
        let group = SocketAddr::from(([239, 1, 1, 1], 5004));
        for (address, hops) in [(group, 9), (localhost(9), 7)] {
            let asked =
                connected(&RelayTarget { address, interface: None, hops: Some(hops) }, None);
            let left = connected(&RelayTarget { address, interface: None, hops: None }, None);
            // The test cannot query a host without a route to groups.
            let (Ok(asked), Ok(left)) = (asked, left) else {
                eprintln!("skip: {address}: no route");
                continue;
            };
            let of = |socket| {
                if address.ip().is_multicast() {
                    ip_multicast_ttl(socket).unwrap()
                } else {
                    ip_ttl(socket).unwrap()
                }
            };
            assert_eq!(of(&asked), hops.into());
            assert_ne!(of(&left), hops.into());
        }
    }

    #[test]
    fn ends_take_what_is_sent_to_them() {
        let end = |text: &str, is_ours, device| RouteEnd {
            address: text.parse().unwrap(),
            is_ours,
            device,
        };
        let takes = |own: &str, own_device, theirs: &str, is_ours, device| {
            end(own, true, own_device).takes(&end(theirs, is_ours, device))
        };
        assert!(takes("10.0.0.1:5", None, "10.0.0.1:5", true, None));
        assert!(!takes("10.0.0.1:5", None, "10.0.0.1:6", true, None));
        assert!(!takes("10.0.0.1:5", None, "10.0.0.2:5", true, None));
        assert!(takes("0.0.0.0:5", None, "10.0.0.2:5", true, None));
        assert!(!takes("0.0.0.0:5", None, "10.0.0.2:5", false, None));
        assert!(!takes("[::]:5", None, "10.0.0.2:5", true, None));
        assert!(takes("239.1.1.1:5", Some(2), "239.1.1.1:5", false, None));
        assert!(takes("239.1.1.1:5", Some(2), "239.1.1.1:5", false, Some(2)));
        assert!(!takes("239.1.1.1:5", Some(2), "239.1.1.1:5", false, Some(3)));
        assert!(!takes("239.1.1.1:5", Some(2), "239.1.1.2:5", false, Some(2)));
    }
}
