// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives the other server of a standby pair in the channel's multicast group.
//!
//! Both servers join the group to which they send. A standby sends once it has received nothing for
//! [`SILENCE`]; a primary listens for [`LISTEN`] when it starts, so that it continues the counters
//! of a standby that is sending. The received packets contain the next sequence number and, through
//! the splicer, the next continuity counters.
//!
//! Strangers may send to the group. Only packets with the SSRC of the channel count, and bare
//! packets only from the address that last sent the channel's PAT; both are the same on both
//! servers. A stranger that copies them keeps a standby silent. Receivers cannot distinguish it
//! from the channel either, so the network has to keep it out (RFC 4607, or a filter at its edge).
//!
//! Sources: RFC 3550 §5.1; ISO/IEC 13818-1 §2.4.4.3 (PAT); ip(7) (`IP_ADD_MEMBERSHIP`).
//! Does not exchange messages with the other server, and does not elect: the roles are settings.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use media::TS_PACKET_BYTES;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use wire::mp2t::PAYLOAD_TYPE;
use wire::rtp::Header;

use super::outlet::interface_index;
use crate::channel::send_target::{SendFormat, SendTarget};

/// A member of the group that a channel sends to.
pub(super) struct PeerWatch {
    socket: UdpSocket,
    format: SendFormat,
    identity: ChannelIdentity,
    /// Address that sent the channel's PAT.
    peer: Option<SocketAddr>,
    buffer: Vec<u8>,
}

/// Numbers of a channel that are the same on both servers of a pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChannelIdentity {
    pub(super) ssrc: u32,
    pub(super) transport_stream_id: u16,
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
    pub(super) fn join(
        target: &SendTarget,
        interface: Option<&str>,
        identity: ChannelIdentity,
    ) -> io::Result<PeerWatch> {
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
                // Other programs of this host may have joined the group on other interfaces.
                socket.set_multicast_all_v4(false)?;
                socket.join_multicast_v4_n(address.ip(), &on)?;
            }
            SocketAddr::V6(address) => {
                socket.set_multicast_all_v6(false)?;
                socket.join_multicast_v6(address.ip(), index)?;
            }
        }
        Ok(PeerWatch {
            socket: socket.into(),
            format: target.format,
            identity,
            peer: None,
            buffer: vec![0; DATAGRAM_BYTES_MAX],
        })
    }

    /// Reads the datagrams received since the last call, without waiting; passes on the payload of
    /// each packet that was not sent from `own`, this server's own sending address.
    pub(super) fn listen(&mut self, own: Option<SocketAddr>, mut pass: impl FnMut(&[u8])) -> Heard {
        let mut heard = Heard::default();
        for _ in 0..DATAGRAMS_MAX {
            let Ok((bytes, from)) = self.socket.recv_from(&mut self.buffer) else { break };
            // The own address may be unspecified; the port is the kernel's choice and unique.
            if own.is_some_and(|own| is_own(own, from)) {
                continue;
            }
            let datagram = &self.buffer[..bytes];
            let payload = match self.format {
                SendFormat::Udp => 0..bytes,
                SendFormat::Rtp => match Header::parse(datagram) {
                    Ok((header, payload)) if self.identity.has_sent(&header) => {
                        heard.next_sequence = Some(header.sequence.wrapping_add(1));
                        payload
                    }
                    _ => continue,
                },
            };
            let payload = &datagram[payload];
            let packets = payload.chunks(TS_PACKET_BYTES);
            let is_stream =
                |packet: &[u8]| packet.len() == TS_PACKET_BYTES && packet[0] == SYNC_BYTE;
            if payload.is_empty() || !packets.clone().all(is_stream) {
                continue;
            }
            match packets.clone().find_map(transport_stream_id) {
                Some(id) if id == self.identity.transport_stream_id => self.peer = Some(from),
                // The address of another channel.
                Some(_) => self.peer = self.peer.filter(|peer| *peer != from),
                None => {}
            }
            if self.format == SendFormat::Rtp || self.peer == Some(from) {
                heard.packets += 1;
                pass(payload);
            }
        }
        heard
    }
}

impl ChannelIdentity {
    fn has_sent(&self, header: &Header) -> bool {
        header.payload_type == PAYLOAD_TYPE && header.ssrc == self.ssrc
    }
}

/// Returns the transport_stream_id of a packet that has a PAT's beginning.
fn transport_stream_id(packet: &[u8]) -> Option<u16> {
    let is_start = packet[1] & 0x5f == 0x40 && packet[2] == 0 && packet[3] & 0x30 == 0x10;
    let section = packet.get(5 + usize::from(packet[4])..).filter(|_| is_start)?;
    match *section {
        [TABLE_ID_PAT, _, _, high, low, ..] => Some(u16::from_be_bytes([high, low])),
        _ => None,
    }
}

fn is_own(own: SocketAddr, from: SocketAddr) -> bool {
    own.port() == from.port() && (own.ip().is_unspecified() || own.ip() == from.ip())
}

/// Silence after which a standby sends: a take-over loses less than a second, and a primary that
/// was stopped for a moment is not considered dead.
pub(super) const SILENCE: Duration = Duration::from_millis(500);
/// Time that a primary listens before it begins.
pub(super) const LISTEN: Duration = Duration::from_millis(300);
const SYNC_BYTE: u8 = 0x47;
const TABLE_ID_PAT: u8 = 0;
const DATAGRAM_BYTES_MAX: usize = 9216;
/// Datagrams read at once: more than a burst has.
const DATAGRAMS_MAX: usize = 512;
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(head: &[u8]) -> [u8; TS_PACKET_BYTES] {
        let mut packet = [0xff; TS_PACKET_BYTES];
        packet[..head.len()].copy_from_slice(head);
        packet
    }

    #[test]
    fn only_the_start_of_a_pat_tells_the_transport_stream() {
        let pat = [0x47, 0x40, 0, 0x10, 0, 0, 0xb0, 13, 0x12, 0x34];
        assert_eq!(transport_stream_id(&packet(&pat)), Some(0x1234));
        let pointed = [0x47, 0x40, 0, 0x10, 2, 9, 9, 0, 0xb0, 13, 0x12, 0x34];
        assert_eq!(transport_stream_id(&packet(&pointed)), Some(0x1234));
        let with = |at: usize, byte: u8| {
            let mut other = pat;
            other[at] = byte;
            transport_stream_id(&packet(&other))
        };
        for (at, byte) in [(1, 0), (1, 0x41), (2, 1), (3, 0x30), (4, 0xff), (4, 180), (5, 2)] {
            assert_eq!(with(at, byte), None, "byte {at} is {byte:#x}");
        }
    }

    #[test]
    fn packets_of_another_sender_are_told_by_their_ssrc() {
        let identity = ChannelIdentity { ssrc: 7, transport_stream_id: 1 };
        let header = |payload_type, ssrc| Header {
            marker: false,
            payload_type,
            sequence: 1,
            timestamp: 2,
            ssrc,
        };
        assert!(identity.has_sent(&header(PAYLOAD_TYPE, 7)));
        assert!(!identity.has_sent(&header(PAYLOAD_TYPE, 8)));
        assert!(!identity.has_sent(&header(PAYLOAD_TYPE + 1, 7)));
    }
}
