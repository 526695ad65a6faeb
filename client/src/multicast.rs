// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of a multicast group that a server names in its answer to SETUP.
//!
//! The group is joined on the interface of the RTSP connection, because the server is reached
//! there. Where the answer names the source, an IPv4 group is joined for that sender alone (IGMPv3,
//! RFC 4607). The sockets are bound to the group's address, so datagrams of other groups with the
//! same port do not arrive; other programs of this host may receive the same group.
//!
//! Sources: RFC 2326 §12.39; RFC 3376 §4; RFC 4607 §1; ip(7) IP_ADD_SOURCE_MEMBERSHIP.
//! Does not join an IPv6 group for one sender alone: other senders are dropped here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};
use wire::rtsp::client::MulticastGroup;

use super::socket_pair::enlarge;
use crate::error::Error;

/// Sockets of a group.
pub(super) struct GroupSockets {
    pub(super) rtp: UdpSocket,
    pub(super) rtcp: UdpSocket,
    /// Address of the group for RTP.
    pub(super) address: SocketAddr,
    /// Address of the group for RTCP.
    pub(super) rtcp_address: SocketAddr,
    /// Receive buffer that the kernel granted for RTP.
    pub(super) buffer_bytes: usize,
}

/// Returns the address of a group; none for text that is not a multicast address.
pub(super) fn group_address(group: &MulticastGroup) -> Option<IpAddr> {
    let address = group.destination.trim_matches(['[', ']']).parse::<IpAddr>().ok()?;
    address.is_multicast().then_some(address)
}

/// Joins a group on the interface that has the address `local`, the RTSP connection's own.
///
/// # Errors
/// Host: the kernel refuses, such as for an interface without multicast.
pub(super) fn join(
    address: IpAddr,
    group: &MulticastGroup,
    source: Option<IpAddr>,
    local: SocketAddr,
) -> Result<GroupSockets, Error> {
    let (rtp, rtcp) = (group.ports.rtp, group.ports.rtcp);
    let (rtp_at, rtcp_at) = (SocketAddr::new(address, rtp), SocketAddr::new(address, rtcp));
    let open = |at: SocketAddr| {
        let socket = member(at, source, local);
        socket.map_err(|source| Error::Host {
            call: "joining a group",
            object: format!("{at} from {}", local.ip()),
            source,
        })
    };
    let (rtp, rtcp) = (open(rtp_at)?, open(rtcp_at)?);
    let buffer_bytes = enlarge(&rtp).map_err(|source| Error::Host {
        call: "setsockopt SO_RCVBUF",
        object: rtp_at.to_string(),
        source,
    })?;
    Ok(GroupSockets { rtp, rtcp, address: rtp_at, rtcp_address: rtcp_at, buffer_bytes })
}

fn member(at: SocketAddr, source: Option<IpAddr>, local: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    match at.ip() {
        IpAddr::V4(group) => {
            let interface = match local.ip().to_canonical() {
                IpAddr::V4(interface) => interface,
                IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
            };
            match source.map(|source| source.to_canonical()) {
                Some(IpAddr::V4(source)) => socket.join_ssm_v4(&source, &group, &interface)?,
                _ => socket.join_multicast_v4(&group, &interface)?,
            }
            socket.set_multicast_if_v4(&interface)?;
        }
        IpAddr::V6(group) => {
            let interface = match local {
                SocketAddr::V6(local) => local.scope_id(),
                SocketAddr::V4(_) => 0,
            };
            socket.join_multicast_v6(&group, interface)?;
            socket.set_multicast_if_v6(interface)?;
        }
    }
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use wire::rtsp::PortPair;

    use super::*;

    #[test]
    fn an_address_that_is_no_group_is_refused() {
        let address = |destination: &str| {
            let ports = PortPair { rtp: 5004, rtcp: 5005 };
            group_address(&MulticastGroup { destination: destination.to_owned(), ports })
        };
        assert_eq!(address("239.1.2.3"), Some("239.1.2.3".parse().unwrap()));
        assert_eq!(address("[ff15::1]"), Some("ff15::1".parse().unwrap()));
        for wrong in ["192.0.2.1", "group", "", "255.255.255.255"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
