// SPDX-License-Identifier: MIT OR Apache-2.0
//! peer_watch: hears the other server of a standby pair in the channel's multicast group.
//!
//! Both servers join the group that they send to. A standby sends while it has heard nobody for
//! [`SILENCE`]; a primary listens for [`LISTEN`] when it starts, so that it continues the counters
//! of a standby that is sending. What is heard tells the next sequence number and, through the
//! splicer, the next continuity counters.
//!
//! Sources: RFC 3550 §5.1; ip(7) (`IP_ADD_MEMBERSHIP`).
//! Does not exchange messages with the other server, and does not elect: the roles are settings.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use wire::mp2t::PAYLOAD_TYPE;
use wire::rtp::Header;

use super::outlet::interface_index;
use crate::channel::send_target::{SendFormat, SendTarget};

/// A member of the group that a channel sends to.
pub(super) struct PeerWatch {
    socket: UdpSocket,
    format: SendFormat,
    buffer: Vec<u8>,
}

/// Result of listening once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Packets of the other server.
    pub(super) packets: u64,
    /// Sequence number after its last one.
    pub(super) next_sequence: Option<u16>,
}

impl PeerWatch {
    /// Joins the group of a target, on an interface.
    pub(super) fn join(target: &SendTarget, interface: Option<&str>) -> io::Result<PeerWatch> {
        let address = target.address;
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        // Receivers on this host listen at the same port.
        socket.set_reuse_address(true)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        let index = interface.map(interface_index).transpose()?.unwrap_or(0);
        socket.bind(&address.into())?;
        match address {
            SocketAddr::V4(address) => {
                let on = match index {
                    0 => InterfaceIndexOrAddress::Address(Ipv4Addr::UNSPECIFIED),
                    index => InterfaceIndexOrAddress::Index(index),
                };
                socket.join_multicast_v4_n(address.ip(), &on)?;
            }
            SocketAddr::V6(address) => socket.join_multicast_v6(address.ip(), index)?,
        }
        Ok(PeerWatch {
            socket: socket.into(),
            format: target.format,
            buffer: vec![0; DATAGRAM_BYTES_MAX],
        })
    }

    /// Reads what came since the last call, without waiting; passes on the payload of each packet
    /// that `own`, this server's own sending address, has not sent.
    pub(super) fn listen(&mut self, own: Option<SocketAddr>, mut pass: impl FnMut(&[u8])) -> Heard {
        let mut heard = Heard::default();
        for _ in 0..DATAGRAMS_MAX {
            let Ok((bytes, from)) = self.socket.recv_from(&mut self.buffer) else { break };
            // The own address may be unspecified; the port is the kernel's choice and unique.
            if own.is_some_and(|own| is_own(own, from)) {
                continue;
            }
            let datagram = &self.buffer[..bytes];
            match self.format {
                SendFormat::Udp => {
                    if datagram.first() == Some(&0x47) {
                        heard.packets += 1;
                        pass(datagram);
                    }
                }
                SendFormat::Rtp => {
                    let Ok((header, payload)) = Header::parse(datagram) else { continue };
                    if header.payload_type == PAYLOAD_TYPE {
                        heard.packets += 1;
                        heard.next_sequence = Some(header.sequence.wrapping_add(1));
                        pass(&datagram[payload]);
                    }
                }
            }
        }
        heard
    }
}

fn is_own(own: SocketAddr, from: SocketAddr) -> bool {
    own.port() == from.port() && (own.ip().is_unspecified() || own.ip() == from.ip())
}

/// Silence after which a standby sends: less than a second is lost at a take-over, and a primary
/// that was stopped for a moment is not taken for dead.
pub(super) const SILENCE: Duration = Duration::from_millis(500);
/// Time that a primary listens before it begins.
pub(super) const LISTEN: Duration = Duration::from_millis(300);
const DATAGRAM_BYTES_MAX: usize = 9216;
/// Datagrams read at once: more than a burst has.
const DATAGRAMS_MAX: usize = 512;
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;
