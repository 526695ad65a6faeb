// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reassembles whole packets of bare transport streams whose datagrams split packets.
//!
//! `ffmpeg -f mpegts udp://…` cuts its stream into datagrams of 1472 bytes at arbitrary positions.
//! Such a sender is recognised by a datagram that begins with a packet, which the first one and
//! then every 47th does; each later datagram continues where the last ended. If the sync bytes are
//! at other positions, a datagram was lost: the cut packet is dropped, and the stream continues
//! with the next whole packet of the datagram.
//!
//! Costs one copy a byte of such streams; for RTP and for datagrams of whole packets only a test.
//! Memory is bounded: [`SENDERS_MAX`] senders, a packet each.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.2 (sync byte).
//! Does not reorder datagrams: they have no numbers.

use std::net::SocketAddr;

use media::TS_PACKET_BYTES;
use wire::rtp::Header;

use super::{SYNC_BYTE, is_bare, is_transport_stream};

/// Senders whose packets span datagrams.
#[derive(Debug, Default)]
pub(super) struct ByteStreams {
    senders: Vec<ByteStream>,
    /// The packets reassembled with one datagram.
    joined: Vec<u8>,
}

/// A sender, and the start of the packet that its last datagram cut.
#[derive(Debug)]
struct ByteStream {
    from: SocketAddr,
    cut: Vec<u8>,
}

impl ByteStreams {
    /// Returns the whole packets that end with this datagram, if it is of a bare transport stream.
    /// `peer` is the followed sender, whose state is kept.
    pub(super) fn join<'a>(
        &'a mut self,
        datagram: &'a [u8],
        from: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Option<&'a [u8]> {
        let is_whole = is_bare(datagram) && datagram.len().is_multiple_of(TS_PACKET_BYTES);
        let at = match self.senders.iter().position(|sender| sender.from == from) {
            Some(at) => at,
            None if is_whole => return Some(datagram),
            None if is_bare(datagram) && is_row(datagram, 0) => self.enter(from, peer),
            None => return None,
        };
        let cut = &mut self.senders[at].cut;
        if cut.is_empty() && is_whole {
            return Some(datagram);
        }
        let expected = (TS_PACKET_BYTES - cut.len()) % TS_PACKET_BYTES;
        let is_next = datagram.get(expected..).is_none_or(has_steps);
        let start = match is_next {
            true => 0,
            false if is_rtp(datagram) => return None,
            false => {
                cut.clear();
                (0..TS_PACKET_BYTES).find(|&start| is_row(datagram, start))?
            }
        };
        self.joined.clear();
        self.joined.append(cut);
        self.joined.extend_from_slice(&datagram[start..]);
        let whole = self.joined.len() / TS_PACKET_BYTES * TS_PACKET_BYTES;
        cut.extend_from_slice(&self.joined[whole..]);
        Some(&self.joined[..whole])
    }

    /// True while no sender is known.
    pub(super) fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Adds a sender, replacing the oldest that is not followed.
    fn enter(&mut self, from: SocketAddr, peer: Option<SocketAddr>) -> usize {
        if self.senders.len() == SENDERS_MAX {
            let oldest = self.senders.iter().position(|sender| Some(sender.from) != peer);
            self.senders.remove(oldest.expect("more than one, and one is followed"));
        }
        self.senders.push(ByteStream { from, cut: Vec::with_capacity(TS_PACKET_BYTES) });
        self.senders.len() - 1
    }
}

/// True where every packet of `bytes` begins with a sync byte; the last packet may be cut.
fn has_steps(bytes: &[u8]) -> bool {
    bytes.iter().step_by(TS_PACKET_BYTES).all(|&byte| byte == SYNC_BYTE)
}

/// True where at least two packets begin at `start`.
fn is_row(datagram: &[u8], start: usize) -> bool {
    datagram.get(start..).is_some_and(|rest| rest.len() > TS_PACKET_BYTES && has_steps(rest))
}

/// True for RTP that carries whole packets.
fn is_rtp(datagram: &[u8]) -> bool {
    Header::parse(datagram).is_ok_and(|(_, payload)| is_transport_stream(&datagram[payload]))
}

/// Senders whose datagrams are joined.
const SENDERS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::reorder::Limits;
    use wire::sources::SourceTable;

    use super::super::{PacketConsumer, RtpPacket, RtpReceiver, RtpRefusal};
    use super::*;

    #[derive(Default)]
    struct Written {
        bytes: Vec<u8>,
        refused: Vec<RtpRefusal>,
    }

    impl PacketConsumer for Written {
        fn arrived(&mut self, _: RtpPacket<'_>) {}

        fn deliver(&mut self, payload: &[u8], _: Duration, _: Duration) {
            self.bytes.extend_from_slice(payload);
        }

        fn refused(&mut self, _: SocketAddr, _: u64, reason: RtpRefusal, _: Option<SocketAddr>) {
            self.refused.push(reason);
        }
    }

    fn sender(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 5004))
    }

    fn receiver() -> RtpReceiver<SourceTable> {
        RtpReceiver::new(33, SourceTable::new(90_000), Some(Limits::default()))
    }

    /// Packets whose bytes are numbers; some of them look like RTP, and some bytes like sync bytes.
    fn stream(packets: usize) -> Vec<u8> {
        let byte = |at: usize| match (at % TS_PACKET_BYTES, at / TS_PACKET_BYTES) {
            (0, _) => SYNC_BYTE,
            (1, packet) => packet as u8,
            (_, packet) if packet % 3 == 0 => [0x80, 0x21][at % 2],
            (inside, packet) => (inside * packet) as u8,
        };
        (0..packets * TS_PACKET_BYTES).map(byte).collect()
    }

    fn send(datagrams: &[&[u8]]) -> (Written, RtpReceiver<SourceTable>) {
        let (mut receiver, mut written) = (receiver(), Written::default());
        for datagram in datagrams {
            receiver.receive_any(datagram, sender(1), Duration::ZERO, &mut written);
        }
        (written, receiver)
    }

    #[test]
    fn a_stream_is_whole_however_it_is_cut() {
        let stream = stream(400);
        for bytes in [1, 100, 187, 189, 1000, 1316, 1472, 1471, 9000] {
            let datagrams: Vec<_> = stream.chunks(bytes).collect();
            if bytes <= TS_PACKET_BYTES {
                // The first datagram has no second sync byte, by which a sender is recognised.
                let (written, _) = send(&datagrams);
                assert!(written.bytes.is_empty() && !written.refused.is_empty(), "{bytes}");
                let datagrams =
                    [&[&stream[..400]], &stream[400..].chunks(bytes).collect::<Vec<_>>()[..]];
                let (written, _) = send(&datagrams.concat());
                assert!(written.bytes == stream && written.refused.is_empty(), "{bytes}");
                continue;
            }
            let (written, receiver) = send(&datagrams);
            assert!(written.bytes == stream, "{bytes}: {}", written.bytes.len());
            assert_eq!((written.refused.len(), receiver.peer()), (0, Some(sender(1))), "{bytes}");
        }
    }

    #[test]
    fn a_lost_datagram_costs_the_packets_that_lay_in_it() {
        let stream = stream(400);
        for lost in 1..stream.len() / 1472 {
            let mut datagrams: Vec<_> = stream.chunks(1472).collect();
            datagrams.remove(lost);
            let (written, _) = send(&datagrams);
            let first = lost * 1472 / TS_PACKET_BYTES;
            let end = ((lost + 1) * 1472).div_ceil(TS_PACKET_BYTES);
            let expected =
                [&stream[..first * TS_PACKET_BYTES], &stream[end * TS_PACKET_BYTES..]].concat();
            assert!(written.bytes == expected, "datagram {lost}");
            assert!(written.refused.is_empty(), "datagram {lost}");
        }
    }

    #[test]
    fn other_datagrams_are_refused_as_before() {
        let stream = stream(60);
        let datagrams: Vec<_> = stream.chunks(1472).collect();
        // The receiver starts in mid-stream: no datagram begins with a packet yet.
        let (written, _) = send(&datagrams[1..8]);
        assert!(written.bytes.is_empty());
        // Packets of 204 bytes are not recognised.
        let padded: Vec<u8> =
            stream.chunks(TS_PACKET_BYTES).flat_map(|packet| [packet, &[1; 16]].concat()).collect();
        let (written, _) = send(&[&padded[..204 * 7]]);
        assert_eq!(written.refused, [RtpRefusal::BareSize]);
        // RTP and garbage are classified as usual, even from such a sender.
        let header = Header { marker: false, payload_type: 33, sequence: 7, timestamp: 0, ssrc: 1 };
        let rtp = [&header.write()[..], &stream[..1316]].concat();
        let garbage = [7; 1400];
        let (written, _) = send(&[datagrams[0], datagrams[1], &rtp, &garbage, datagrams[2]]);
        assert_eq!(written.refused.len(), 1, "{:?}", written.refused);
        let end = 3 * 1472 / TS_PACKET_BYTES * TS_PACKET_BYTES;
        let lost = 2 * 1472 / TS_PACKET_BYTES * TS_PACKET_BYTES;
        let expected = [&stream[..lost], &stream[lost + TS_PACKET_BYTES..end]].concat();
        assert!(written.bytes == expected);
    }

    #[test]
    fn strangers_do_not_displace_the_sender_that_is_followed() {
        let stream = stream(400);
        let (mut receiver, mut written) = (receiver(), Written::default());
        for (number, datagram) in stream.chunks(1472).enumerate() {
            receiver.receive_any(datagram, sender(1), Duration::ZERO, &mut written);
            if number > 1 {
                let stranger = sender(2 + number as u8);
                receiver.receive_any(&stream[..1472], stranger, Duration::ZERO, &mut written);
            }
        }
        assert!(written.bytes == stream);
        assert!(receiver.bytes.senders.len() <= SENDERS_MAX);
    }
}
