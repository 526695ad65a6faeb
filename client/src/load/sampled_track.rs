// SPDX-License-Identifier: MIT OR Apache-2.0
//! A track of a sampled session: orders its packets, and assembles its frames.
//!
//! The lateness of video packets is relative to decoding times (`decode_order`), so a packet is
//! held until later pictures arrive; the held packets are timed at the end of a play. A session
//! that leaves or seeks cuts the current frame, which no count includes.
//!
//! Costs one copy of each payload, into its frame; memory is that of one frame, of packets after a
//! hole, and of the times of 16 pictures.
//!
//! Sources: RFC 3550 §5.1; the payload formats of `media::depayload`.
//! Does not keep frames.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::depayload::{DepayloadCounts, Depayloader};
use wire::rtp::{Reception, SequenceUpdate};
use wire::sdp::TrackOffer;

use super::outcome::VerifiedTrack;
use super::sampled_stats::{PacketStats, Window};
use crate::rtp_receiver::{ArrivalClock, PacketConsumer, RtpPacket, RtpRefusal};
use crate::track_receiver::TrackReceiver;

/// A track of a sampled session.
#[derive(Debug)]
pub(super) struct SampledTrack {
    offer: Arc<TrackOffer>,
    receiver: TrackReceiver,
    window: Arc<Window>,
    /// Counts of the plays before the last seek.
    before: DepayloadCounts,
    /// Arrival of the first packet since the last [`end_play`](Self::end_play).
    first: Option<Instant>,
}

/// Consumer of the packets of a track.
pub(super) struct SampledTrackConsumer<'a> {
    pub(super) packets: &'a mut PacketStats,
    pub(super) track: &'a mut SampledTrack,
    pub(super) clock: &'a ArrivalClock,
    /// The datagram was truncated to the buffer.
    pub(super) is_cut: bool,
    /// Bytes of the datagram.
    pub(super) bytes: usize,
}

/// Consumer of the packets left in the reorder window: they are already counted.
pub(super) struct HeldTrackConsumer<'a>(pub(super) &'a mut SampledTrack);

impl SampledTrack {
    /// The track of this offer.
    ///
    /// # Panics
    /// The offer has no depayloader; such streams are not chosen.
    pub(super) fn new(offer: Arc<TrackOffer>, window: Arc<Window>) -> SampledTrack {
        let receiver = receiver(&offer);
        let before = DepayloadCounts::default();
        SampledTrack { offer, receiver, window, before, first: None }
    }

    /// Arrival of the first packet of this play.
    pub(super) fn first(&self) -> Option<Instant> {
        self.first
    }

    /// Figures of the track with this number of lost packets.
    pub(super) fn verified(&self, reception: &Reception, lost: u64) -> VerifiedTrack {
        let counts = self.counts();
        VerifiedTrack {
            format: self.offer.format_name(),
            packets: reception.received(),
            lost,
            units: counts.units,
            broken_units: counts.broken_units,
            malformed_packets: counts.malformed_packets,
        }
    }

    /// Frames so far.
    fn counts(&self) -> DepayloadCounts {
        let (mut all, now) = (self.before, self.receiver.counts());
        all.units += now.units;
        all.broken_units += now.broken_units;
        all.malformed_packets += now.malformed_packets;
        all
    }

    /// Computes the lateness of held packets: a play has ended, and all its packets have arrived.
    pub(super) fn end_play(&mut self, packets: &mut PacketStats) {
        let window = &*self.window;
        self.receiver.flush_held(|timestamp, arrival| {
            packets.time(timestamp, arrival, window);
        });
        self.first = None;
    }

    /// Discards the current frame: the next packet is from another position.
    pub(super) fn jump(&mut self) {
        self.before = self.counts();
        self.receiver = receiver(&self.offer);
    }
}

fn receiver(offer: &TrackOffer) -> TrackReceiver {
    let depayloader = Depayloader::new(offer).expect("the description was accepted");
    TrackReceiver::new(depayloader, offer.media == "video", None)
}

impl PacketConsumer for SampledTrackConsumer<'_> {
    const TAKES_HEADERS: bool = true;

    fn arrived(&mut self, packet: RtpPacket<'_>) {
        let Some((header, update)) = packet.header else { return };
        let at = self.clock.instant(packet.at);
        if !self.packets.note_order(update, at) {
            return;
        }
        let SampledTrack { receiver, window, first, .. } = &mut *self.track;
        first.get_or_insert(at);
        if window.holds(at) {
            self.packets.count(self.bytes);
        }
        self.packets.bad_payload_size += u64::from(self.is_cut);
        receiver.push_time(header.timestamp, at, |timestamp, at| {
            self.packets.time(timestamp, at, window);
        });
    }

    fn deliver(&mut self, datagram: &[u8], _arrived: Duration, _now: Duration) {
        self.track.receiver.take(datagram);
    }

    fn refused(&mut self, _: SocketAddr, datagrams: u64, _: RtpRefusal, _: Option<SocketAddr>) {
        self.packets.unexpected_source += datagrams;
    }
}

impl PacketConsumer for HeldTrackConsumer<'_> {
    const TAKES_HEADERS: bool = true;

    fn arrived(&mut self, _: RtpPacket<'_>) {}

    fn deliver(&mut self, datagram: &[u8], _arrived: Duration, _now: Duration) {
        self.0.receiver.take(datagram);
    }

    fn refused(&mut self, _: SocketAddr, _: u64, _: RtpRefusal, _: Option<SocketAddr>) {}
}

impl PacketStats {
    /// Counts a packet by its place in the sequence; returns true if it arrived for the first time.
    pub(super) fn note_order(&mut self, update: SequenceUpdate, at: Instant) -> bool {
        match update {
            SequenceUpdate::Duplicate | SequenceUpdate::Stray | SequenceUpdate::Old => {
                return false;
            }
            SequenceUpdate::AfterGap { .. } | SequenceUpdate::Restarted => {
                self.first_gap.get_or_insert(at);
                self.gaps += 1;
            }
            SequenceUpdate::InOrder | SequenceUpdate::Reordered => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;
    use std::net::{IpAddr, Ipv4Addr};

    use wire::rtp::Header;

    use super::super::sampled_stats::{ExpectedStream, SampledStats};
    use super::*;
    use crate::rtp_receiver::SocketDatagram;

    /// A sender of video, 25 pictures a second, each in two packets.
    struct Sender {
        stats: SampledStats,
        window: Arc<Window>,
        clock: ArrivalClock,
        sequence: u16,
    }

    fn sender() -> Sender {
        let offer = TrackOffer {
            media: "video".to_owned(),
            port: 0,
            address: None,
            payload_type: 96,
            encoding: "H264".to_owned(),
            clock_rate_hz: 90_000,
            channels: None,
            parameters: Vec::new(),
            control: None,
            language: None,
        };
        let expected = ExpectedStream {
            ssrc: None,
            payload_type: 96,
            clock_rate_hz: 90_000,
            track: Some(Arc::new(offer)),
            sequence: Some(65_530),
            within: Duration::from_millis(25),
            file: None,
        };
        let (window, clock) = (Arc::new(Window::default()), ArrivalClock::start(&Clock::HOST));
        window.from.set(clock.instant(Duration::ZERO)).unwrap();
        let stats = SampledStats::new(expected, &window);
        Sender { stats, window, clock, sequence: 65_530 }
    }

    impl Sender {
        /// A packet that arrives at `at_ms`.
        fn send(&mut self, at_ms: u64, timestamp: u32, marker: bool, payload: &[u8]) {
            let (payload_type, sequence, ssrc) = (96, self.sequence, 7);
            let header = Header { marker, payload_type, sequence, timestamp, ssrc };
            let bytes = [&header.write()[..], payload].concat();
            let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5004);
            let at = Duration::from_millis(at_ms);
            let datagram = SocketDatagram { bytes: &bytes, is_cut: false, from, at, dropped: 0 };
            self.stats.take(&datagram, &self.clock, &self.window);
            self.sequence = self.sequence.wrapping_add(1);
        }

        /// Sends half of the picture that is the n-th in decoding order and the `shown`-th in
        /// presentation order: a fragment of its one slice.
        fn send_half(&mut self, n: u64, shown: u32, is_second: bool) {
            let fragment = if is_second { 0x41 } else { 0x81 };
            self.send(40 * n, shown * 3600, is_second, &[0x7c, fragment, 0x80, 1, 2, 3]);
        }

        fn send_picture(&mut self, n: u64, shown: u32) {
            self.send_half(n, shown, false);
            self.send_half(n, shown, true);
        }

        fn end(mut self) -> (VerifiedTrack, SampledStats) {
            self.stats.finish();
            let track = self.stats.track.as_ref().unwrap();
            (track.verified(self.stats.reception(), self.stats.lost()), self.stats)
        }
    }

    #[test]
    fn pictures_are_whole_and_in_time_by_their_times_of_decoding() {
        let mut sender = sender();
        for group in 0..10 {
            // I P B B: by their presentation times the last two would be 80 ms late.
            for (at, shown) in [(0, 0), (1, 3), (2, 1), (3, 2)] {
                sender.send_picture(4 * u64::from(group) + at, 4 * group + shown);
            }
        }
        assert_eq!(sender.stats.first_packet(), Some(sender.clock.instant(Duration::ZERO)));
        let (track, stats) = sender.end();
        assert_eq!((track.packets, track.lost), (80, 0));
        assert_eq!((track.units, track.broken_units, track.malformed_packets), (40, 0, 0));
        assert_eq!((stats.packets.counted, stats.packets.late()), (80, 0));
        assert_eq!(stats.packets.lateness.figures().packets, 80);
        assert_eq!(track.format, "video H264/90000");
    }

    #[test]
    fn lateness_is_that_of_each_packet() {
        let mut sender = sender();
        for n in 0..20 {
            let late = if n == 10 { 30 } else { 0 };
            sender.send(40 * n + late, n as u32 * 3600, true, &[0x65, 0x80, 1]);
        }
        let (_, stats) = sender.end();
        assert_eq!((stats.packets.counted, stats.packets.late()), (20, 1));
        let first = stats.packets.first_late.unwrap();
        let clock = stats.packets.lateness.first().unwrap();
        assert_eq!(first - clock, Duration::from_millis(430));
    }

    #[test]
    fn what_lacks_a_packet_or_is_malformed_is_not_whole() {
        let mut sender = sender();
        for n in 0..20 {
            match n {
                5 => {
                    sender.send_half(n, 5, false);
                    sender.sequence = sender.sequence.wrapping_add(1);
                }
                // No NAL unit has this type.
                9 => sender.send(40 * n, 9 * 3600, true, &[0x7f, 1, 2]),
                _ => sender.send_picture(n, n as u32),
            }
        }
        let (track, stats) = sender.end();
        assert_eq!((track.lost, track.units), (1, 18), "{track:?}");
        assert_eq!((track.broken_units, track.malformed_packets), (2, 1));
        assert!(!track.is_whole() && stats.packets.first_gap.is_some());
    }

    #[test]
    fn a_seek_cuts_a_picture_and_breaks_none() {
        let mut sender = sender();
        sender.send_picture(0, 0);
        sender.send_half(1, 1, false);
        // A pause precedes it: the other packets follow when the play continues.
        sender.stats.renew(false);
        sender.send_half(100, 1, true);
        sender.send_half(101, 2, false);
        sender.stats.renew(true);
        assert_eq!(sender.stats.first_packet(), None);
        sender.send_picture(200, 70);
        let (track, stats) = sender.end();
        assert_eq!((track.units, track.broken_units), (3, 0), "{track:?}");
        assert_eq!((track.packets, track.lost, stats.packets.late()), (6 + 1, 0, 0));
    }

    #[test]
    fn a_picture_whose_end_has_not_come_is_in_no_count() {
        let mut sender = sender();
        sender.send_picture(0, 0);
        sender.send_half(1, 1, false);
        let (track, _) = sender.end();
        assert_eq!((track.units, track.broken_units), (1, 0));
    }
}
