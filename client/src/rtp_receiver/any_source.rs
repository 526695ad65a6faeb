// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder's selection of the source: follows any source that passes probation, and replaces
//! it when it falls silent (`wire::sources`).
//!
//! Receives bare transport streams as well, and counts packets by their headers alone, for a relay.
//!
//! Sources: RFC 3550 §8.2, A.1; RFC 2250 §2.
//! Does not choose (`wire::sources` does).

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use wire::rtp::{HEADER_BYTES, Header};
use wire::sources::{SourceStatus, SourceTable};

use super::{PacketConsumer, RtpPacket, RtpReceiver, RtpRefusal, SelectSource, is_bare};

impl SelectSource for SourceTable {
    fn receive(&mut self, header: &Header, from: SocketAddr, at: Duration) -> SourceStatus {
        SourceTable::receive(self, header, from, at)
    }

    fn followed(&self) -> Option<(Option<u32>, Option<SocketAddr>)> {
        SourceTable::followed(self).map(|source| (source.ssrc, source.from))
    }

    fn is_contested(&self) -> bool {
        SourceTable::is_contested(self)
    }

    fn is_known(&self, ssrc: Option<u32>, from: SocketAddr) -> bool {
        self.knows(ssrc, from)
    }
}

/// Packets that were counted by their headers alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedHeaders {
    /// Packets of the stream, each with a header of this size.
    Accepted {
        /// 0 for a bare transport stream.
        header_bytes: usize,
    },
    /// Refused packets.
    Refused {
        /// True where a relay forwards them.
        is_sent_on: bool,
    },
}

impl RtpReceiver<SourceTable> {
    /// Begins a session with a server that has announced its payload type, and optionally its
    /// address and its SSRC.
    pub fn announce(
        &mut self,
        payload_type: u8,
        from: Option<SocketAddr>,
        ssrc: Option<u32>,
        consumer: &mut impl PacketConsumer,
    ) {
        self.payload_type = payload_type;
        self.flush(consumer);
        self.sources.renounce();
        self.sources.expect(from);
        if let Some(ssrc) = ssrc {
            self.sources.announce(ssrc, None);
        }
    }

    /// Sets the first sequence number of an announced source, so that losses before the first
    /// packet count. Ignored once a packet has arrived.
    pub fn expect_first(&mut self, sequence: u16) {
        let followed = self.sources.followed().filter(|source| source.reception.received() == 0);
        if let Some(ssrc) = followed.and_then(|source| source.ssrc) {
            self.sources.announce(ssrc, Some(sequence));
            if let Some(window) = &mut self.window {
                window.start_at(sequence);
            }
        }
    }

    /// Handles a datagram of RTP or of a bare transport stream; returns the same as
    /// [`RtpReceiver::receive`].
    pub fn receive_any(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        at: Duration,
        consumer: &mut impl PacketConsumer,
    ) -> bool {
        if self.bytes.is_empty() && !is_bare(datagram) {
            return self.receive(datagram, from, at, consumer);
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        let is_sent_on = match bytes.join(datagram, from, self.peer()) {
            Some(payload) => {
                let status = self.sources.receive_bare(from, at);
                let packet = RtpPacket { header: None, payload, datagram, from, at };
                self.take(status, None, packet, consumer)
            }
            None if is_bare(datagram) => self.malformed(from, 1, RtpRefusal::BareSize, consumer),
            None => self.receive(datagram, from, at, consumer),
        };
        // The memory is reused.
        self.bytes = bytes;
        is_sent_on
    }

    /// Counts consecutive datagrams of which only the start of the first is available. Delivers
    /// nothing.
    pub fn observe_headers(
        &mut self,
        head: &[u8],
        packets: u32,
        from: SocketAddr,
        at: Duration,
        consumer: &mut impl PacketConsumer,
    ) -> ObservedHeaders {
        // The extension and padding are unavailable: the fixed header contains all counted fields.
        let fixed = head.first_chunk::<HEADER_BYTES>().map(|fixed| {
            let mut fixed = *fixed;
            fixed[0] &= VERSION_BITS;
            fixed
        });
        let parsed = fixed.and_then(|fixed| Header::parse(&fixed).ok());
        let (mut status, mut ssrc, mut header_bytes) = (SourceStatus::Foreign, None, 0);
        if is_bare(head) || self.continues_bare(from, parsed.as_ref()) {
            for _ in 0..packets {
                status = self.sources.receive_bare(from, at);
            }
        } else if let Some((mut header, _)) = parsed {
            (ssrc, header_bytes) = (Some(header.ssrc), HEADER_BYTES);
            for _ in 0..packets {
                status = self.sources.receive(&header, from, at);
                header.sequence = header.sequence.wrapping_add(1);
            }
        } else {
            let is_sent_on = self.malformed(from, packets.into(), RtpRefusal::Malformed, consumer);
            return ObservedHeaders::Refused { is_sent_on };
        }
        match status {
            // No source is followed yet.
            SourceStatus::Waiting if self.sources.followed().is_none() => {}
            SourceStatus::Followed(_) | SourceStatus::Chosen(_) => {}
            SourceStatus::Waiting | SourceStatus::Foreign => {
                self.refuse_source((ssrc, from), packets.into(), consumer);
                return ObservedHeaders::Refused { is_sent_on: false };
            }
        }
        ObservedHeaders::Accepted { header_bytes }
    }

    /// True for a datagram of the followed sender of a bare transport stream that begins within a
    /// packet.
    fn continues_bare(&self, from: SocketAddr, parsed: Option<&(Header, Range<usize>)>) -> bool {
        let is_own = parsed.is_some_and(|(header, _)| header.payload_type == self.payload_type);
        let followed = SelectSource::followed(&self.sources);
        followed == Some((None, Some(from))) && !is_own
    }
}

/// RFC 3550 §5.1.
const VERSION_BITS: u8 = 0xc0;
