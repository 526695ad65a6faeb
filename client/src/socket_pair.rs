// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pair of UDP sockets on which a stream is received.
//!
//! RTP uses an even port and RTCP the next (RFC 3550 §11). A free pair is found by binding an even
//! port of the kernel's choice, then its neighbour; if the neighbour is in use, another pair is
//! tried. The RTP socket gets a receive buffer for some seconds of media, beyond the system's limit
//! where that is allowed (SO_RCVBUFFORCE, CAP_NET_ADMIN), so that a busy machine delays packets and
//! loses none.
//!
//! Sources: RFC 3550 §11; socket(7) SO_RCVBUF, SO_RCVBUFFORCE.
//! Does not hold ports open in a firewall.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};
use wire::rtsp::{PortPair, TransportOffer};

use crate::error::Error;

/// Sockets at two neighbouring ports.
pub(super) struct SocketPair {
    pub(super) rtp: UdpSocket,
    pub(super) rtcp: UdpSocket,
    pub(super) ports: PortPair,
    /// Receive buffer that the kernel granted for RTP, its own overhead included.
    pub(super) buffer_bytes: usize,
}

impl SocketPair {
    /// Binds a pair on the address of `local`, whose port is ignored.
    pub(super) fn bind(local: SocketAddr) -> Result<SocketPair, Error> {
        let mut last = io::ErrorKind::AddrInUse.into();
        for _ in 0..PAIRS_TRIED_MAX {
            match pair(local) {
                Ok(pair) => return Ok(pair),
                Err(error) => last = error,
            }
        }
        let object = format!("a pair of UDP ports on {}", local.ip());
        Err(Error::Host { call: "bind", object, source: last })
    }
}

/// Returns the offer of RTP over UDP at these ports.
pub(super) fn udp_offer(ports: PortPair) -> TransportOffer {
    TransportOffer::Udp { ports, destination: None }
}

fn pair(local: SocketAddr) -> io::Result<SocketPair> {
    let at = |port: u16| SocketAddr::new(local.ip(), port);
    let picked = bound(with_scope(local, at(0)))?;
    let even = picked.local_addr()?.port() & !1;
    // An odd port is released: the even port below it may still be free.
    let picked = (picked.local_addr()?.port() == even).then_some(picked);
    let rtp = match picked {
        Some(socket) => socket,
        None => bound(with_scope(local, at(even)))?,
    };
    let rtcp = bound(with_scope(local, at(even + 1)))?;
    let buffer_bytes = enlarge(&rtp)?;
    Ok(SocketPair { rtp, rtcp, ports: PortPair { rtp: even, rtcp: even + 1 }, buffer_bytes })
}

/// A link-local IPv6 address needs its interface.
fn with_scope(local: SocketAddr, mut at: SocketAddr) -> SocketAddr {
    if let (SocketAddr::V6(local), SocketAddr::V6(at)) = (local, &mut at) {
        at.set_scope_id(local.scope_id());
    }
    at
}

fn bound(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Requests the receive buffer of a stream; returns the size that the kernel granted.
pub(super) fn enlarge(socket: &UdpSocket) -> io::Result<usize> {
    use rustix::net::sockopt;
    if sockopt::set_socket_recv_buffer_size_force(socket, BUFFER_BYTES).is_err() {
        // Without privilege the kernel grants what net.core.rmem_max allows.
        sockopt::set_socket_recv_buffer_size(socket, BUFFER_BYTES)?;
    }
    Ok(sockopt::socket_recv_buffer_size(socket)?)
}

/// Four seconds of a 64 Mb/s stream.
const BUFFER_BYTES: usize = 32 << 20;
const PAIRS_TRIED_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn the_pair_is_even_and_odd_and_one_apart() {
        let mut hosts = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
        if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            hosts.push((Ipv6Addr::LOCALHOST, 0).into());
        } else {
            eprintln!("skip: no IPv6 on this machine's loopback");
        }
        for local in hosts {
            let pair = SocketPair::bind(local).unwrap();
            assert_eq!(pair.ports.rtp % 2, 0);
            assert_eq!(pair.rtp.local_addr().unwrap().port(), pair.ports.rtp);
            assert_eq!(pair.rtcp.local_addr().unwrap().port(), pair.ports.rtp + 1);
            assert!(pair.buffer_bytes >= 4096, "{}", pair.buffer_bytes);
        }
    }
}
