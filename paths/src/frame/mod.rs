// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole Ethernet frames: the headers of a destination's frames, and the rings of frames.
//!
//! A path by device does the work of the kernel's routing: it finds device, next hop and its
//! Ethernet address by queries to the kernel (rtnetlink), so policy rules, gateways and the route's
//! MTU apply. The result is a [`Framing`], kept in the destination: a template of the three
//! headers. The kernel is queried once, again when the device fails, and every 1,024 batches,
//! because neighbours change; that costs 12 calls and some 30 µs.
//!
//! Unlike with a socket, the firewall does not see these frames, IPsec policies and tunnels do not
//! apply, and ICMP answers of the peer are not read.
//!
//! Sources: `rtnetlink(7)`, RFC 826, RFC 1122 §2.3; Linux 6.18 `net/ipv4/route.c`
//! (`inet_rtm_getroute`).
//!
//! Does not query the network for an address (ARP). The kernel does, for anything sent by a socket;
//! here an address that is being resolved returns [`SendError::Blocked`], and an unknown one is a
//! refusal.

pub(crate) mod message;
pub(crate) mod ring;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::sync::Arc;

use simd::stamp::{Addresses, FRONT_BYTES, Template};

use crate::destination::Destination;
use crate::error::{Errno, SendError, Unframed};
use crate::send_stats::SendStats;
use crate::sys::{Netlink, ip_option};
pub(crate) use message::Link;
use message::Neighbour;

/// Batches after which route and neighbour are queried again.
const FRESH_BATCHES: u32 = 1024;

/// Name of the queries in errors.
const CALL: &str = "rtnetlink";

/// Bytes of the IPv4 and UDP headers, which the MTU includes.
const IP_UDP_BYTES: u32 = 28;

/// Bytes for an answer about one device, which is about 1 KiB.
const ANSWER_BYTES: usize = 16 * 1024;

/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;

/// `RTN_UNICAST`.
const UNICAST: u8 = 1;

/// States of a neighbour with a valid address (`NUD_REACHABLE`, `NUD_STALE`, `NUD_DELAY`,
/// `NUD_PROBE`, `NUD_NOARP`, `NUD_PERMANENT`).
const KNOWN: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// `NUD_INCOMPLETE`: the kernel is resolving it.
const BEING_ASKED: u16 = 0x01;

/// A device that sends frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) index: u32,
    pub(crate) name: Arc<str>,
    /// The largest frame, Ethernet header included.
    pub(crate) frame_bytes: u32,
}

/// Headers of the frames to a destination.
#[derive(Clone, Debug)]
pub(crate) struct Framing {
    pub(crate) template: Template,
    pub(crate) device: Device,
    /// Largest UDP payload of a datagram that needs no fragments.
    most_bytes: u32,
    /// The next datagram's IP identification. It has no meaning in a datagram that may not be
    /// fragmented (RFC 6864 §4.1); different ones help software that reads it.
    identification: u16,
    batches: u32,
}

impl Framing {
    /// Queries the kernel for the headers of frames to the destination.
    pub(crate) fn ask(to: &Destination, stats: &mut SendStats) -> Result<Self, SendError> {
        let (source, target) = addresses(to, stats)?;
        let failed = |errno| to.host(CALL, errno);
        let kernel = Netlink::open(stats).map_err(failed)?;
        let mut answer = vec![0; ANSWER_BYTES];

        let question = message::ask_route(source.into(), target.into());
        let reply = kernel.ask(&question, &mut answer, stats).map_err(failed)?;
        let no_route = |errno| to.unframed(Unframed::NoRoute { errno });
        let route = message::route(reply).map_err(no_route)?;

        let question = message::ask_link(route.device);
        let reply = kernel.ask(&question, &mut answer, stats).map_err(failed)?;
        let link = message::link(reply).map_err(failed)?;
        let device: Arc<str> = link.name.as_str().into();
        if route.kind != UNICAST || route.is_wrapped {
            return Err(to.unframed(Unframed::NotUnicast { device, kind: route.kind }));
        }
        let (ETHERNET, Some(source_mac)) = (link.kind, link.address) else {
            return Err(to.unframed(Unframed::NotEthernet { device, kind: link.kind }));
        };
        if !link.is_up {
            return Err(SendError::Gone { errno: Errno::new(libc::ENETDOWN) });
        }

        let hop = route.gateway.unwrap_or(*target.ip());
        // The kernel's own frames on such a device have this address (`arp_constructor`).
        let target_mac = if link.is_silent {
            source_mac
        } else {
            address_of(hop, (route.device, &device), &kernel, to, stats)?
        };

        let option = |option, name, stats: &mut SendStats| {
            ip_option(to.as_fd(), option, stats).map_err(|errno| to.host(name, errno))
        };
        let time_to_live = option(libc::IP_TTL, "getsockopt IP_TTL", stats)?;
        let service = option(libc::IP_TOS, "getsockopt IP_TOS", stats)?;
        let addresses = Addresses { source_mac, target_mac, source, target };
        let mtu = route.mtu.unwrap_or(link.mtu).min(link.mtu);
        let ethernet_bytes = FRONT_BYTES as u32 - IP_UDP_BYTES;
        let frame_bytes = link.mtu.saturating_add(ethernet_bytes);
        Ok(Self {
            template: Template::new(&addresses, time_to_live, service),
            device: Device { index: route.device, name: device, frame_bytes },
            most_bytes: mtu.saturating_sub(IP_UDP_BYTES),
            identification: source.port(),
            batches: 0,
        })
    }

    /// Returns the headers kept by the destination, or queries the kernel for them. A neighbour
    /// that the kernel has forgotten meanwhile remains in use: frames do not renew its entry.
    pub(crate) fn of(to: &mut Destination, stats: &mut SendStats) -> Result<Box<Self>, SendError> {
        let Some(mut kept) = to.take_framing() else {
            return Self::ask(to, stats).map(Box::new);
        };
        kept.batches += 1;
        if kept.batches >= FRESH_BATCHES {
            kept.batches = 0;
            match Self::ask(to, stats) {
                Ok(fresh) => *kept = Self { identification: kept.identification, ..fresh },
                Err(SendError::Blocked)
                | Err(SendError::Unframed { reason: Unframed::NoNeighbour { .. }, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    /// Refuses a datagram that is too large for a frame of at most `room_bytes`.
    pub(crate) fn fits(&self, bytes: u32, room_bytes: u32) -> Result<(), Unframed> {
        let most = self.most_bytes.min(room_bytes.saturating_sub(FRONT_BYTES as u32));
        if bytes <= most {
            return Ok(());
        }
        Err(Unframed::TooLarge { bytes, most, device: self.device.name.clone() })
    }

    /// Returns the identification of the next datagram.
    pub(crate) fn identification(&self) -> u16 {
        self.identification
    }

    /// Counts sent datagrams.
    pub(crate) fn sent(&mut self, packets: u32) {
        self.identification = self.identification.wrapping_add(packets as u16);
    }
}

/// Returns properties of the device of that number.
pub(crate) fn link(kernel: &Netlink, device: u32, stats: &mut SendStats) -> Result<Link, Errno> {
    let mut answer = vec![0; ANSWER_BYTES];
    message::link(kernel.ask(&message::ask_link(device), &mut answer, stats)?)
}

/// Returns the Ethernet address of a neighbour on a device.
fn address_of(
    hop: Ipv4Addr,
    (index, device): (u32, &Arc<str>),
    kernel: &Netlink,
    to: &Destination,
    stats: &mut SendStats,
) -> Result<[u8; 6], SendError> {
    let mut answer = [0; 1024];
    let question = message::ask_neighbour(index, hop);
    let failed = |errno| to.host(CALL, errno);
    let reply = kernel.ask(&question, &mut answer, stats).map_err(failed)?;
    match message::neighbour(reply) {
        Ok(Neighbour { state, address: Some(address) }) if state & KNOWN != 0 => Ok(address),
        Ok(Neighbour { state: BEING_ASKED, .. }) => {
            stats.refused += 1;
            Err(SendError::Blocked)
        }
        Err(errno) if errno.code() != libc::ENOENT => Err(failed(errno)),
        _ => Err(to.unframed(Unframed::NoNeighbour { hop, device: device.clone() })),
    }
}

/// Returns both ends of the destination's socket.
fn addresses(
    to: &Destination,
    stats: &mut SendStats,
) -> Result<(SocketAddrV4, SocketAddrV4), SendError> {
    stats.calls += 2;
    let local = to.socket().local_addr().map_err(|error| to.host("getsockname", error.into()))?;
    let peer = to.socket().peer_addr().map_err(|error| to.host("getpeername", error.into()))?;
    match (local, peer) {
        (SocketAddr::V4(local), SocketAddr::V4(peer)) => Ok((local, peer)),
        _ => Err(to.unframed(Unframed::Ipv6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn destination(from: &str, to: &str) -> Destination {
        let socket = UdpSocket::bind(from).unwrap();
        socket.connect(to).unwrap();
        Destination::new(socket, to).unwrap()
    }

    /// Every host has loopback, which accepts no frames.
    #[test]
    fn this_hosts_own_address_is_refused_by_name() {
        let to = destination("127.0.0.1:0", "127.0.0.1:9");
        let mut stats = SendStats::default();
        let refusal = Framing::ask(&to, &mut stats).unwrap_err();
        let expected = "frames to 127.0.0.1:9: the route on lo does not lead to a single neighbour \
                    (kind 2 of rtnetlink(7))";
        assert_eq!(refusal.to_string(), expected);
        assert_eq!(stats.calls, 7);
    }

    #[test]
    fn a_socket_of_ipv6_is_refused_by_name() {
        let Ok(socket) = UdpSocket::bind("[::1]:0") else {
            return eprintln!("skip: no IPv6 loopback");
        };
        socket.connect("[::1]:9").unwrap();
        let to = Destination::new(socket, "[::1]:9").unwrap();
        let refusal = Framing::ask(&to, &mut SendStats::default()).unwrap_err();
        let expected = "frames to [::1]:9: over IPv6; frames are made for IPv4 alone";
        assert_eq!(refusal.to_string(), expected);
    }
}
