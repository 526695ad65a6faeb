// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiver of RTP: turns datagrams with arrival times into payloads in sequence order.
//!
//! One receiver serves the verifying player, the sampled sessions of a load, and the recorder. They
//! differ in the selection of the source ([`SelectSource`]) and in the use of packets
//! ([`PacketConsumer`]):
//!
//! | user | source | reorders | socket |
//! |---|---|---|---|
//! | player | the announced SSRC (`SingleSource`) | for the file | `SocketReader` |
//! | sampled session | the announced SSRC (`SingleSource`) | no | `SocketReader` |
//! | recorder | any, after probation (`wire::sources`) | yes | a path of `paths::RECEIVE_PATHS` |
//!
//! A datagram passes four steps: its header is parsed (`wire::rtp`); its payload type and source
//! are checked; its sequence number and time are added to the statistics of the source
//! ([`wire::rtp::Reception`]); its payload passes the reorder window (`wire::reorder`). A packet in
//! order costs no copy, no allocation and no system call here, only two calls of consumer methods,
//! which are statically dispatched. A packet after a hole is copied once, and so is one of a source
//! on probation.
//!
//! Sources: RFC 3550 §5.1, §6.4.1, §8.2, A.1; RFC 2326 §12.33 (RTP-Info); RFC 2250 §2.
//! Does not read sockets itself, repair losses, or send reports.

mod any_source;
mod byte_stream;
mod clock;
mod probation;
mod single;
mod socket;

use std::net::SocketAddr;
use std::time::Duration;

use wire::reorder::{Limits, Placed, Reorder};
use wire::rtp::{Header, SequenceUpdate};
use wire::sources::SourceStatus;

use self::byte_stream::ByteStreams;
use self::probation::{HeldPacket, Identity, ProbationBuffer};

pub use any_source::ObservedHeaders;
pub use clock::ArrivalClock;
pub(crate) use single::SingleSource;
pub(crate) use socket::{SocketDatagram, SocketReader};

/// Receiver of one stream.
#[derive(Debug)]
pub struct RtpReceiver<S> {
    payload_type: u8,
    /// The selection of the source, with the statistics of each source.
    pub sources: S,
    window: Option<Reorder>,
    bytes: ByteStreams,
    probation: ProbationBuffer,
    /// A packet far from the previous ones. If its successor arrives, it is the first of a new
    /// sequence.
    stray: Option<(u16, Vec<u8>)>,
    late: u64,
}

/// A packet of the stream, in order of arrival.
#[derive(Debug, Clone, Copy)]
pub struct RtpPacket<'a> {
    /// The header and its place in the sequence; none for a bare transport stream, and for a packet
    /// that was on probation.
    pub header: Option<(&'a Header, SequenceUpdate)>,
    /// The payload.
    pub payload: &'a [u8],
    /// The whole packet with its header.
    datagram: &'a [u8],
    /// The address of the sender.
    pub from: SocketAddr,
    /// The time of arrival, on the caller's clock.
    pub at: Duration,
}

/// Reason to refuse a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RtpRefusal {
    /// RTP with another payload type than the stream's.
    PayloadType(u8),
    /// Another SSRC of the followed sender.
    OtherSsrc,
    /// The SSRC of the stream, from another address (RFC 3550 §8.2).
    Collision,
    /// Another sender than the followed one.
    NotFollowed,
    /// Too few packets for a stream, while no source is followed.
    NoStream,
    /// Neither RTP nor a transport stream.
    Malformed,
    /// A bare transport stream in packets of another size than 188 bytes.
    BareSize,
}

/// Consumer of accepted and refused packets. All methods are called on the receiving thread.
pub trait PacketConsumer {
    /// True to receive packets with their headers.
    const TAKES_HEADERS: bool = false;

    /// Handles a packet of the stream on arrival, including duplicates and strays.
    fn arrived(&mut self, packet: RtpPacket<'_>);

    /// Handles the next payload in order, or the packet with its header
    /// ([`TAKES_HEADERS`](Self::TAKES_HEADERS)). It arrived at `arrived_at`; the current time is
    /// `now`. Called only by receivers that reorder.
    fn deliver(&mut self, payload: &[u8], arrived_at: Duration, now: Duration);

    /// Counts refused datagrams from `from`, while the stream arrives from `peer`.
    fn refused(
        &mut self,
        from: SocketAddr,
        datagrams: u64,
        reason: RtpRefusal,
        peer: Option<SocketAddr>,
    );

    /// Handles a change of the followed source.
    fn source_changed(&mut self) {}
}

/// Selection of the source that a receiver follows.
pub trait SelectSource {
    /// Counts a packet of the right payload type, and classifies its source.
    fn receive(&mut self, header: &Header, from: SocketAddr, at: Duration) -> SourceStatus;

    /// The SSRC and the address of the followed source, as far as they are known. `Some(None)` is
    /// the SSRC of a bare transport stream.
    fn followed(&self) -> Option<(Option<u32>, Option<SocketAddr>)>;

    /// Returns the first sequence number once, if the first packet confirms the announced one.
    fn take_first(&mut self) -> Option<u16> {
        None
    }

    /// True while another source may still replace the followed one.
    fn is_contested(&self) -> bool {
        false
    }

    /// True for a source whose packets may still be accepted.
    fn is_known(&self, _ssrc: Option<u32>, _from: SocketAddr) -> bool {
        false
    }
}

impl<S: SelectSource> RtpReceiver<S> {
    /// A receiver of this payload type. Without `reorder` payloads are not delivered.
    pub fn new(payload_type: u8, sources: S, reorder: Option<Limits>) -> RtpReceiver<S> {
        RtpReceiver {
            payload_type,
            sources,
            window: reorder.map(Reorder::new),
            bytes: ByteStreams::default(),
            probation: ProbationBuffer::default(),
            stray: None,
            late: 0,
        }
    }

    /// Handles an RTP datagram that arrived from `from` at `at`. Returns true for a datagram of the
    /// followed sender, and for any while no source is followed: a relay forwards these.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        at: Duration,
        consumer: &mut impl PacketConsumer,
    ) -> bool {
        let Ok((header, payload)) = Header::parse(datagram) else {
            return self.malformed(from, 1, RtpRefusal::Malformed, consumer);
        };
        if header.payload_type != self.payload_type {
            let peer = self.peer();
            consumer.refused(from, 1, RtpRefusal::PayloadType(header.payload_type), peer);
            return peer.is_none_or(|peer| peer == from);
        }
        let status = self.sources.receive(&header, from, at);
        if let Some(sequence) = self.sources.take_first()
            && let Some(window) = &mut self.window
        {
            window.start_at(sequence);
        }
        let packet = RtpPacket { header: None, payload: &datagram[payload], datagram, from, at };
        self.take(status, Some(&header), packet, consumer)
    }

    /// Gives up the holes whose waiting time has expired.
    pub fn expire(&mut self, now: Duration, consumer: &mut impl PacketConsumer) {
        if let Some(window) = &mut self.window {
            window.expire(now, |payload, arrived_at| consumer.deliver(payload, arrived_at, now));
        }
    }

    /// Delivers the content of the window; the next packet is the first of a new sequence.
    pub fn flush(&mut self, consumer: &mut impl PacketConsumer) {
        if let Some(window) = &mut self.window {
            window.finish(|payload, arrived_at| consumer.deliver(payload, arrived_at, arrived_at));
        }
        self.stray = None;
    }

    /// Delivers the content of the window and refuses the packets on probation: the stream has
    /// ended.
    pub fn finish(&mut self, consumer: &mut impl PacketConsumer) {
        self.flush(consumer);
        self.clear_probation(consumer);
    }

    /// The source address of the stream.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.sources.followed()?.1
    }

    /// Arrival of the packet behind the first hole, which is held until the hole is filled or given
    /// up.
    pub fn held_since(&self) -> Option<Duration> {
        self.window.as_ref()?.held_since()
    }

    /// Packets that were not delivered: lost, or too late.
    pub fn missing(&self) -> u64 {
        self.window.as_ref().map_or(0, Reorder::missing)
    }

    /// Packets that arrived after the window had given them up.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Handles a packet whose source has been classified.
    fn take<C: PacketConsumer>(
        &mut self,
        status: SourceStatus,
        header: Option<&Header>,
        packet: RtpPacket<'_>,
        consumer: &mut C,
    ) -> bool {
        let who = (header.map(|header| header.ssrc), packet.from);
        let arrival = match status {
            SourceStatus::Followed(arrival) => {
                if let Some(oldest) = self.probation.oldest()
                    && (!self.sources.is_contested()
                        || packet.at.saturating_sub(oldest) >= CONTESTED_FOR_MAX)
                {
                    self.clear_probation(consumer);
                }
                arrival
            }
            SourceStatus::Chosen(arrival) => {
                self.follow(who, header, packet.at, consumer);
                arrival
            }
            SourceStatus::Waiting => {
                self.hold(who, header, packet, consumer);
                return self.sources.followed().is_none();
            }
            SourceStatus::Foreign => {
                self.refuse_source(who, 1, consumer);
                return false;
            }
        };
        consumer.arrived(RtpPacket { header: header.map(|header| (header, arrival)), ..packet });
        match header {
            Some(header) => {
                let bytes = if C::TAKES_HEADERS { packet.datagram } else { packet.payload };
                self.place(header.sequence, bytes, arrival, packet.at, consumer);
            }
            None => consumer.deliver(packet.payload, packet.at, packet.at),
        }
        true
    }

    /// Adds a packet of the followed source to the reorder window.
    fn place(
        &mut self,
        sequence: u16,
        payload: &[u8],
        arrival: SequenceUpdate,
        at: Duration,
        consumer: &mut impl PacketConsumer,
    ) {
        let Some(window) = &mut self.window else { return };
        match arrival {
            SequenceUpdate::Duplicate => return,
            SequenceUpdate::Stray => {
                self.stray = Some((sequence, payload.to_vec()));
                return;
            }
            SequenceUpdate::Restarted => {
                window.finish(|payload, arrived_at| {
                    consumer.deliver(payload, arrived_at, arrived_at);
                });
                let stray = self.stray.take();
                if let Some((before, payload)) = stray
                    && before.wrapping_add(1) == sequence
                {
                    window.push(before, &payload, at, |payload, arrived_at| {
                        consumer.deliver(payload, arrived_at, at);
                    });
                }
            }
            SequenceUpdate::InOrder
            | SequenceUpdate::AfterGap { .. }
            | SequenceUpdate::Reordered
            | SequenceUpdate::Old => {}
        }
        let placed = window.push(sequence, payload, at, |payload, arrived_at| {
            consumer.deliver(payload, arrived_at, at);
        });
        self.late += u64::from(placed == Placed::Behind);
    }

    /// Holds a packet whose source may be followed later, if it fits.
    fn hold<C: PacketConsumer>(
        &mut self,
        who: Identity,
        header: Option<&Header>,
        packet: RtpPacket<'_>,
        consumer: &mut C,
    ) {
        let sequence = header.map_or(0, |header| header.sequence);
        let payload = if C::TAKES_HEADERS { packet.datagram } else { packet.payload };
        let held = HeldPacket { sequence, payload, arrived_at: packet.at };
        if self.probation.hold(who, held) {
            return;
        }
        if self.probation.may_compact(packet.at) {
            let RtpReceiver { probation, sources, .. } = self;
            let peer = sources.followed().and_then(|(_, from)| from);
            probation.retain(
                |(ssrc, from)| sources.is_known(ssrc, from),
                |(_, from)| consumer.refused(from, 1, RtpRefusal::NotFollowed, peer),
            );
            if probation.hold(who, held) {
                return;
            }
        }
        self.refuse_source(who, 1, consumer);
    }

    /// Refuses all packets on probation: another source is followed.
    fn clear_probation(&mut self, consumer: &mut impl PacketConsumer) {
        let mut probation = std::mem::take(&mut self.probation);
        probation.retain(|_| false, |who| self.refuse_source(who, 1, consumer));
        // The memory is reused.
        self.probation = probation;
    }

    /// Switches to another source, whose first packets have been on probation.
    fn follow(
        &mut self,
        who: Identity,
        header: Option<&Header>,
        now: Duration,
        consumer: &mut impl PacketConsumer,
    ) {
        self.flush(consumer);
        consumer.source_changed();
        let mut probation = std::mem::take(&mut self.probation);
        if let (Some(header), Some(window)) = (header, &mut self.window) {
            let ahead = |other: u16| other.wrapping_sub(header.sequence).cast_signed();
            let first = probation.of(who).map(|held| ahead(held.sequence)).min();
            window.start_at(header.sequence.wrapping_add_signed(first.unwrap_or(0).min(0)));
        }
        for held in probation.of(who) {
            let (payload, from) = (held.payload, who.1);
            consumer.arrived(RtpPacket { header: None, payload, datagram: payload, from, at: now });
            match &mut self.window {
                Some(window) if header.is_some() => {
                    window.push(held.sequence, payload, held.arrived_at, |payload, arrived_at| {
                        consumer.deliver(payload, arrived_at, held.arrived_at);
                    });
                }
                _ => consumer.deliver(payload, held.arrived_at, now),
            }
        }
        probation.retain(
            |_| false,
            |other| {
                if other != who {
                    self.refuse_source(other, 1, consumer);
                }
            },
        );
        self.probation = probation;
    }

    /// Refuses datagrams of a source that is not followed.
    fn refuse_source(
        &mut self,
        (ssrc, from): Identity,
        datagrams: u64,
        consumer: &mut impl PacketConsumer,
    ) {
        let followed = self.sources.followed();
        let peer = followed.and_then(|(_, from)| from);
        let reason = match followed {
            Some(_) if peer == Some(from) => RtpRefusal::OtherSsrc,
            Some((followed, _)) if followed == ssrc => RtpRefusal::Collision,
            Some(_) => RtpRefusal::NotFollowed,
            None => RtpRefusal::NoStream,
        };
        consumer.refused(from, datagrams, reason, peer);
    }

    /// Refuses datagrams of no stream; returns true where a relay forwards them.
    fn malformed(
        &mut self,
        from: SocketAddr,
        datagrams: u64,
        reason: RtpRefusal,
        consumer: &mut impl PacketConsumer,
    ) -> bool {
        let peer = self.peer();
        consumer.refused(from, datagrams, reason, peer);
        peer.is_none_or(|peer| peer == from)
    }
}

impl RtpReceiver<SingleSource> {
    /// Sets the first sequence number, if the server has announced one. Ignored once a packet has
    /// arrived.
    pub(crate) fn expect_first(&mut self, sequence: Option<u16>) {
        self.sources.expect_first(sequence);
    }
}

/// True for a datagram that starts like a transport stream and not like RTP version 2.
fn is_bare(datagram: &[u8]) -> bool {
    datagram.first() == Some(&SYNC_BYTE)
}

/// True for an integral number of transport stream packets (RFC 2250 §2).
pub(crate) fn is_transport_stream(payload: &[u8]) -> bool {
    !payload.is_empty()
        && payload.len().is_multiple_of(media::TS_PACKET_BYTES)
        && payload.chunks_exact(media::TS_PACKET_BYTES).all(|packet| packet[0] == SYNC_BYTE)
}

/// ISO/IEC 13818-1 §2.4.3.3; as the first byte of RTP it would be version 1.
const SYNC_BYTE: u8 = 0x47;
/// Time for which packets of another source are held beside a weak one: a little more than two
/// windows of [`wire::sources`].
const CONTESTED_FOR_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use wire::sources::SourceTable;

    use super::*;

    /// First bytes of the delivered payloads, and counts of accepted and refused packets.
    #[derive(Default)]
    struct Delivered {
        letters: String,
        accepted: usize,
        refused: Vec<RtpRefusal>,
    }

    impl PacketConsumer for Delivered {
        fn arrived(&mut self, _: RtpPacket<'_>) {
            self.accepted += 1;
        }

        fn deliver(&mut self, payload: &[u8], _: Duration, _: Duration) {
            self.letters.push(char::from(payload[0]));
        }

        fn refused(&mut self, _: SocketAddr, _: u64, reason: RtpRefusal, _: Option<SocketAddr>) {
            self.refused.push(reason);
        }
    }

    fn send<S: SelectSource>(
        receiver: &mut RtpReceiver<S>,
        delivered: &mut Delivered,
        packets: &[(u32, u16, u8)],
    ) {
        for &(ssrc, sequence, letter) in packets {
            let header =
                Header { marker: false, payload_type: 33, sequence, timestamp: 0, ssrc }.write();
            let from = SocketAddr::from(([10, 0, 0, 1], 5004));
            receiver.receive(&[&header[..], &[letter]].concat(), from, Duration::ZERO, delivered);
        }
    }

    #[test]
    fn an_announced_source_is_taken_from_its_first_packet_and_no_other() {
        let source = SingleSource::new(None, 90_000);
        let mut receiver = RtpReceiver::new(33, source, Some(Limits::default()));
        receiver.expect_first(Some(7));
        let mut delivered = Delivered::default();
        let packets = [(1, 8, b'b'), (1, 7, b'a'), (2, 900, b'x'), (1, 9, b'c')];
        send(&mut receiver, &mut delivered, &packets);
        assert_eq!((delivered.letters.as_str(), delivered.accepted), ("abc", 3));
        assert_eq!(delivered.refused, [RtpRefusal::OtherSsrc]);
    }

    /// Earlier, the player's file lacked the first packet of a new numbering.
    #[test]
    fn a_restart_loses_no_packet_of_either_selection() {
        let packets = [(1, 10, b'a'), (1, 11, b'b'), (1, 20_000, b'm'), (1, 20_001, b'n')];
        let reorder = Some(Limits::default());
        let mut single = RtpReceiver::new(33, SingleSource::new(Some(1), 90_000), reorder);
        let mut delivered = Delivered::default();
        send(&mut single, &mut delivered, &packets);
        assert_eq!(delivered.letters, "abmn");
        let mut any = RtpReceiver::new(33, SourceTable::new(90_000), reorder);
        let mut delivered = Delivered::default();
        send(&mut any, &mut delivered, &packets);
        assert_eq!(delivered.letters, "abmn");
    }

    /// A sender is identified by its address: a camera changes its SSRC with each group of
    /// pictures, or sends another than SETUP has named.
    #[test]
    fn another_ssrc_of_the_sender_is_the_same_stream() {
        let run = |announced, packets: &[(u32, u16, u8)]| {
            let source = SingleSource::new(announced, 90_000);
            let mut receiver = RtpReceiver::new(33, source, Some(Limits::default()));
            let mut delivered = Delivered::default();
            send(&mut receiver, &mut delivered, packets);
            let reception = &receiver.sources.reception;
            (delivered, reception.received(), reception.lost(), receiver.sources.ssrc)
        };
        // The sequence numbers continue; one packet is late, and one lost.
        let packets = [
            (1, 8, b'a'),
            (2, 10, b'c'),
            (1, 9, b'b'),
            (3, 12, b'e'),
            (3, 11, b'd'),
            (1, 14, b'f'),
        ];
        let (mut delivered, received, lost, ssrc) = run(Some(1), &packets);
        assert_eq!((received, lost, ssrc), (6, 1, Some(1)));
        delivered.letters.push('.');
        assert_eq!((delivered.letters.as_str(), delivered.refused.len()), ("abcde.", 0));
        // The sequence numbers do not continue, after the first packet or at the start: two
        // consecutive packets confirm the new SSRC.
        for announced in [Some(1), Some(2)] {
            let packets =
                [(1, 8, b'a'), (1, 9, b'b'), (2, 900, b'c'), (2, 901, b'd'), (2, 902, b'e')];
            let first = if announced == Some(1) { 0 } else { 2 };
            let (delivered, received, lost, ssrc) = run(announced, &packets[first..]);
            assert_eq!((received, lost, ssrc), (5 - first as u64, 0, Some(2)), "{announced:?}");
            assert_eq!(delivered.letters, "abcde"[first..], "{announced:?}");
            assert!(delivered.refused.is_empty(), "{announced:?}");
        }
        // Two SSRCs send at the same time: the second is followed, and does not lose its place
        // again.
        let packets = [(1, 8, b'a'), (2, 900, b'b'), (2, 901, b'c'), (1, 9, b'x'), (1, 10, b'x')];
        let (delivered, _, _, ssrc) = run(None, &packets);
        assert_eq!((delivered.letters.as_str(), ssrc), ("abc", Some(2)));
        assert_eq!(delivered.refused, [RtpRefusal::OtherSsrc; 2]);
    }

    #[test]
    fn whole_ts_packets_are_told_from_others() {
        let packet = |first: u8| [[first; 1].to_vec(), vec![0; 187]].concat();
        assert!(is_transport_stream(&packet(0x47)));
        assert!(is_transport_stream(&[packet(0x47), packet(0x47)].concat()));
        assert!(!is_transport_stream(&[packet(0x47), packet(0x48)].concat()));
        assert!(!is_transport_stream(&packet(0x47)[..187]));
        assert!(!is_transport_stream(&[]));
    }
}
