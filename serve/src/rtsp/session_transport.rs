// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transport of a session's media and RTCP to its client.
//!
//! Sources: RFC 2326 §10.12, §12.39; RFC 3550 §11.
//! Does not send media (the pacer does).

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::UdpSocket;
use wire::rtsp::ChannelPair;

use crate::play::RtspOutput;
use crate::rtsp::media_ports::Lease;
use crate::wire_image::ImageLayout;

/// Transport of one session.
pub(crate) enum SessionTransport {
    /// Datagrams to ports of the client.
    Udp(UdpTransport),
    /// Frames on the RTSP connection.
    Interleaved {
        output: Arc<RtspOutput>,
        channels: ChannelPair,
        /// The client's end of the connection.
        peer: SocketAddr,
    },
    /// A multicast group, to which the channel sends regardless of sessions.
    Multicast { peer: SocketAddr },
}

/// Ports and sockets of a session over UDP.
pub(crate) struct UdpTransport {
    /// Target address of media, and source address of RTCP.
    pub(crate) rtp_peer: SocketAddr,
    pub(crate) rtcp_peer: SocketAddr,
    pub(crate) rtcp: Arc<UdpSocket>,
    /// Task that reads `rtcp` when that socket is the session's own.
    pub(crate) rtcp_task: Option<tokio::task::AbortHandle>,
    /// Released when the session is dropped.
    pub(crate) lease: Lease,
}

impl SessionTransport {
    /// Returns the client's address, for the log.
    pub(crate) fn peer(&self) -> SocketAddr {
        match self {
            SessionTransport::Udp(udp) => udp.rtp_peer,
            SessionTransport::Interleaved { peer, .. } | SessionTransport::Multicast { peer } => {
                *peer
            }
        }
    }

    /// Returns the source address of receiver reports, by which the session is found.
    pub(crate) fn rtcp_peer(&self) -> Option<SocketAddr> {
        match self {
            SessionTransport::Udp(udp) => Some(udp.rtcp_peer),
            SessionTransport::Interleaved { .. } | SessionTransport::Multicast { .. } => None,
        }
    }

    /// True if the media uses the RTSP connection itself, and ends with it.
    pub(crate) fn is_interleaved(&self) -> bool {
        matches!(self, SessionTransport::Interleaved { .. })
    }

    /// Returns the layout of the wire image that can serve the session, if any.
    pub(crate) fn image_layout(&self) -> Option<ImageLayout> {
        match self {
            SessionTransport::Udp(_) => Some(ImageLayout::Packets),
            SessionTransport::Interleaved { channels, .. } => ImageLayout::of_channel(channels.rtp),
            SessionTransport::Multicast { .. } => None,
        }
    }

    /// Sends the RTCP packet that ends a stream; a slow reader over TCP receives it later.
    pub(crate) fn send_bye(&self, packet: &[u8]) {
        match self {
            SessionTransport::Udp(_) => self.send_rtcp(packet),
            SessionTransport::Interleaved { output, channels, .. } => {
                output.send_last_rtcp(channels.rtcp, packet);
            }
            SessionTransport::Multicast { .. } => {}
        }
    }

    /// Sends an RTCP packet; drops it if the send buffer is full.
    pub(crate) fn send_rtcp(&self, packet: &[u8]) {
        match self {
            SessionTransport::Udp(udp) => {
                if let Err(error) = udp.rtcp.try_send_to(packet, udp.rtcp_peer) {
                    // The next report has the same content with newer figures.
                    tracing::debug!("rtcp to {}: {error}", udp.rtcp_peer);
                }
            }
            SessionTransport::Interleaved { output, channels, .. } => {
                output.send_rtcp(channels.rtcp, packet);
            }
            // The other members of the group have not requested it.
            SessionTransport::Multicast { .. } => {}
        }
    }
}
