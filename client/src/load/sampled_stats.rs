// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of a stream of a sampled session: every packet's number, time and, with a file,
//! bytes; for a track, its frames (`sampled_track`).
//!
//! Loss, order and duplicates are counted from PLAY to the end. Lateness is counted only within the
//! measured time, but against the earliest packet since PLAY.
//!
//! Sources: RFC 3550 §5.1, A.1; RFC 2326 §12.33 (RTP-Info); RFC 2250 §2.
//! Does not reorder packets of a transport stream.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use wire::rtp::Reception;
use wire::sdp::TrackOffer;

use super::sampled_track::{HeldTrackConsumer, SampledTrack, SampledTrackConsumer};
use crate::lateness::Lateness;
use crate::rtp_receiver::{
    ArrivalClock, PacketConsumer, RtpPacket, RtpReceiver, RtpRefusal, SingleSource, SocketDatagram,
    is_transport_stream,
};
use crate::track_receiver::TRACK_REORDER;

/// The measured time; all sessions share it.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub(super) from: OnceLock<Instant>,
    pub(super) until: OnceLock<Instant>,
}

impl Window {
    pub(super) fn holds(&self, moment: Instant) -> bool {
        self.from.get().is_some_and(|from| moment >= *from)
            && self.until.get().is_none_or(|until| moment < *until)
    }

    fn tenth(&self, moment: Instant) -> usize {
        let since = self.from.get().map(|from| moment.saturating_duration_since(*from));
        let tenth = since.unwrap_or_default().as_millis() / TENTH.as_millis();
        usize::try_from(tenth).unwrap_or(usize::MAX).min(TENTHS_MAX - 1)
    }
}

/// The announced stream, and the allowed lateness.
#[derive(Debug, Clone)]
pub(super) struct ExpectedStream {
    pub(super) ssrc: Option<u32>,
    pub(super) payload_type: u8,
    pub(super) clock_rate_hz: u32,
    /// Its description; none for a transport stream.
    pub(super) track: Option<Arc<TrackOffer>>,
    /// The first sequence number, if RTP-Info has named it.
    pub(super) sequence: Option<u16>,
    pub(super) within: Duration,
    /// The asset.
    pub(super) file: Option<Arc<Vec<u8>>>,
}

/// Statistics of a stream of a sampled session.
#[derive(Debug)]
pub(super) struct SampledStats {
    pub(super) receiver: RtpReceiver<SingleSource>,
    pub(super) packets: PacketStats,
    /// None for a transport stream.
    pub(super) track: Option<Box<SampledTrack>>,
}

/// Counts of datagrams, and times.
#[derive(Debug)]
pub(super) struct PacketStats {
    expected: ExpectedStream,
    pub(super) lateness: Lateness,
    /// Packets within the measured time, and their datagrams' bytes.
    pub(super) counted: u64,
    pub(super) bytes: u64,
    /// Datagrams of another SSRC or payload type, or that are not RTP.
    pub(super) unexpected_source: u64,
    /// Payloads that are not whole TS packets; for a track, datagrams truncated to the read buffer.
    pub(super) bad_payload_size: u64,
    different: u64,
    /// Datagrams that the socket dropped because its buffer was full.
    pub(super) dropped: u32,
    pub(super) first_gap: Option<Instant>,
    /// Gaps: places at which packets were missing when the next one arrived.
    pub(super) gaps: u64,
    pub(super) first_drop: Option<Instant>,
    pub(super) first_late: Option<Instant>,
    /// Bit n: a packet was late in the n-th tenth of a second of the measured time.
    pub(super) late_tenths: Vec<u64>,
    place: FilePosition,
}

/// Position of the payloads in the file.
#[derive(Debug, Default)]
struct FilePosition {
    /// Sequence number and position, counted in packets, of the last packet.
    last: Option<(u16, u64)>,
    /// Payload size of each packet except the last.
    payload_bytes: u64,
}

/// Consumer of the packets of a transport stream.
struct SampledConsumer<'a> {
    packets: &'a mut PacketStats,
    window: &'a Window,
    clock: &'a ArrivalClock,
    /// The datagram was truncated to the buffer.
    is_cut: bool,
    /// Bytes of the datagram.
    bytes: usize,
}

impl SampledStats {
    pub(super) fn new(expected: ExpectedStream, window: &Arc<Window>) -> SampledStats {
        let track = expected.track.clone();
        let mut receiver = RtpReceiver::new(
            expected.payload_type,
            SingleSource::new(expected.ssrc, expected.clock_rate_hz),
            track.is_some().then_some(TRACK_REORDER),
        );
        receiver.expect_first(expected.sequence);
        let track = track.map(|offer| Box::new(SampledTrack::new(offer, window.clone())));
        SampledStats { receiver, packets: PacketStats::new(expected), track }
    }

    /// The SSRC of the sender, once it is known.
    pub(super) fn ssrc(&self) -> Option<u32> {
        self.receiver.sources.ssrc
    }

    pub(super) fn reception(&self) -> &Reception {
        &self.receiver.sources.reception
    }

    /// Handles a datagram.
    pub(super) fn take(
        &mut self,
        datagram: &SocketDatagram<'_>,
        clock: &ArrivalClock,
        window: &Window,
    ) {
        let SocketDatagram { bytes, is_cut, from, at, dropped } = *datagram;
        self.packets.note_drops(dropped, clock.instant(at));
        let (packets, length) = (&mut self.packets, bytes.len());
        let Some(track) = &mut self.track else {
            let mut consumer = SampledConsumer { packets, window, clock, is_cut, bytes: length };
            self.receiver.receive(bytes, from, at, &mut consumer);
            return;
        };
        let mut consumer = SampledTrackConsumer { packets, track, clock, is_cut, bytes: length };
        self.receiver.receive(bytes, from, at, &mut consumer);
        self.receiver.expire(at, &mut consumer);
    }

    /// Arrival of the first packet of this play, if any.
    pub(super) fn first_packet(&self) -> Option<Instant> {
        match &self.track {
            Some(track) => track.first(),
            None => self.packets.lateness.first(),
        }
    }

    /// Begins a new play, after a pause or at another position: all packets of the last one have
    /// arrived.
    pub(super) fn renew(&mut self, is_seek: bool) {
        if is_seek {
            self.finish();
        }
        if let Some(track) = &mut self.track {
            track.end_play(&mut self.packets);
            if is_seek {
                track.jump();
            }
        }
        self.packets.lateness.renew();
        self.receiver.sources.renew_clock();
    }

    /// Delivers the packets in the reorder window, and computes the lateness of held packets: the
    /// play has ended.
    pub(super) fn finish(&mut self) {
        let Some(track) = &mut self.track else { return };
        self.receiver.flush(&mut HeldTrackConsumer(track));
        track.end_play(&mut self.packets);
    }

    /// Packets that did not arrive, by the sequence numbers of the received ones.
    pub(super) fn lost(&self) -> u64 {
        self.reception().lost()
    }
}

impl PacketConsumer for SampledConsumer<'_> {
    fn arrived(&mut self, packet: RtpPacket<'_>) {
        let Some((header, arrival)) = packet.header else { return };
        let (at, packets) = (self.clock.instant(packet.at), &mut *self.packets);
        if !packets.note_order(arrival, at) {
            return;
        }
        if packets.time(header.timestamp, at, self.window) {
            packets.count(self.bytes);
        }
        packets.bad_payload_size += u64::from(!is_transport_stream(packet.payload));
        let is_other = self.is_cut || packets.differs_from_file(header.sequence, packet.payload);
        packets.different += u64::from(is_other);
    }

    fn deliver(&mut self, _payload: &[u8], _arrived: Duration, _now: Duration) {}

    fn refused(&mut self, _: SocketAddr, datagrams: u64, _: RtpRefusal, _: Option<SocketAddr>) {
        self.packets.unexpected_source += datagrams;
    }
}

impl PacketStats {
    fn new(expected: ExpectedStream) -> PacketStats {
        let lateness = Lateness::new(expected.clock_rate_hz);
        PacketStats {
            expected,
            lateness,
            counted: 0,
            bytes: 0,
            unexpected_source: 0,
            bad_payload_size: 0,
            different: 0,
            dropped: 0,
            first_gap: None,
            gaps: 0,
            first_drop: None,
            first_late: None,
            late_tenths: Vec::new(),
            place: FilePosition::default(),
        }
    }

    /// Records the socket's counter of drops. A packet that waited in the socket has an older
    /// value.
    pub(super) fn note_drops(&mut self, dropped: u32, moment: Instant) {
        if dropped.wrapping_sub(self.dropped).cast_signed() > 0 {
            self.dropped = dropped;
            self.first_drop.get_or_insert(moment);
        }
    }

    /// Counts a packet of the measured time.
    pub(super) fn count(&mut self, bytes: usize) {
        self.counted += 1;
        self.bytes += bytes as u64;
    }

    /// Computes the lateness of a packet; returns true for one of the measured time.
    pub(super) fn time(&mut self, timestamp: u32, arrival: Instant, window: &Window) -> bool {
        if !window.holds(arrival) {
            self.lateness.passed(timestamp, arrival);
            return false;
        }
        self.lateness.arrived(timestamp, arrival);
        if self.lateness.last() > self.expected.within {
            self.first_late.get_or_insert(arrival);
            let tenth = window.tenth(arrival);
            if self.late_tenths.len() <= tenth / 64 {
                self.late_tenths.resize(tenth / 64 + 1, 0);
            }
            self.late_tenths[tenth / 64] |= 1 << (tenth % 64);
        }
        true
    }

    /// Returns true for a payload that differs from the file at its position.
    fn differs_from_file(&mut self, sequence: u16, payload: &[u8]) -> bool {
        let (Some(file), Some(first)) = (&self.expected.file, self.expected.sequence) else {
            return false;
        };
        // The count starts one cycle above zero: a packet from before the first has no position in
        // the file.
        let (last, at) = self.place.last.unwrap_or((first, CYCLE));
        let at = at.saturating_add_signed(sequence.wrapping_sub(last).cast_signed().into());
        self.place.last = Some((sequence, at));
        self.place.payload_bytes = self.place.payload_bytes.max(payload.len() as u64);
        let start = at.checked_sub(CYCLE).map(|packet| packet * self.place.payload_bytes);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let held = start.and_then(|start| file.get(start..)?.get(..payload.len()));
        held != Some(payload)
    }

    /// Payloads that differ from the file; none where they were not compared.
    pub(super) fn different(&self) -> Option<u64> {
        let is_compared = self.expected.file.is_some() && self.expected.sequence.is_some();
        is_compared.then_some(self.different)
    }

    /// Packets of the measured time beyond the allowed lateness.
    pub(super) fn late(&self) -> u64 {
        self.lateness.later_than(self.expected.within)
    }
}

/// Returns true where 99.9 % of these packets were in time.
pub(super) fn is_punctual(packets: u64, late: u64) -> bool {
    late.saturating_mul(LATE_ONE_IN) <= packets
}

/// One packet of this number may be late.
const LATE_ONE_IN: u64 = 1000;
/// Sessions that are late within the same tenth of a second count as late together.
pub(super) const TENTH: Duration = Duration::from_millis(100);
/// An hour; later lateness is counted in the last tenth.
const TENTHS_MAX: usize = 36_000;
const CYCLE: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use clock::Clock;
    use wire::mp2t::CLOCK_RATE_HZ;
    use wire::rtp::Header;

    use super::*;

    struct Sender {
        stats: SampledStats,
        window: Arc<Window>,
        clock: ArrivalClock,
        began: Instant,
        dropped: u32,
    }

    const FROM: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5004);

    fn payload(n: u16) -> Vec<u8> {
        let packet = |part: u16| [vec![0x47], vec![(n * 7 + part) as u8; 187]].concat();
        (0..7).flat_map(packet).collect()
    }

    fn sender(file: bool, first: u16) -> Sender {
        let file = file.then(|| Arc::new((0..100).flat_map(payload).collect()));
        let within = Duration::from_millis(25);
        let sequence = Some(first);
        let expected = ExpectedStream {
            ssrc: None,
            payload_type: 33,
            clock_rate_hz: CLOCK_RATE_HZ,
            track: None,
            sequence,
            within,
            file,
        };
        let (window, clock) = (Arc::new(Window::default()), ArrivalClock::start(&Clock::HOST));
        let began = clock.instant(Duration::ZERO);
        window.from.set(began).unwrap();
        Sender { stats: SampledStats::new(expected, &window), window, clock, began, dropped: 0 }
    }

    impl Sender {
        /// Packet n of a stream with one packet every 10 ms, late by this time.
        fn send(&mut self, first: u16, n: u16, late_ms: u64, payload: &[u8]) {
            let header = Header {
                marker: false,
                payload_type: 33,
                sequence: first.wrapping_add(n),
                timestamp: u32::from(n) * 900,
                ssrc: 7,
            };
            let bytes = [&header.write()[..], payload].concat();
            let dropped = self.dropped;
            let (at, from) = (Duration::from_millis(u64::from(n) * 10 + late_ms), FROM);
            let datagram = SocketDatagram { bytes: &bytes, is_cut: false, from, at, dropped };
            self.stats.take(&datagram, &self.clock, &self.window);
        }
    }

    #[test]
    fn a_whole_stream_is_whole_across_the_wrap() {
        let mut sender = sender(true, 65_500);
        for n in 0..100 {
            sender.send(65_500, n, 0, &payload(n));
        }
        let stats = sender.stats;
        assert_eq!(
            (stats.packets.counted, stats.lost(), stats.packets.late(), stats.packets.different),
            (100, 0, 0, 0)
        );
        assert_eq!(
            (
                stats.packets.bad_payload_size,
                stats.packets.unexpected_source,
                stats.packets.first_gap
            ),
            (0, 0, None)
        );
        assert!(is_punctual(stats.packets.counted, stats.packets.late()));
    }

    #[test]
    fn wrong_bytes_are_seen_where_they_are() {
        let mut sender = sender(true, 9);
        for n in [0, 1, 3, 2, 4, 6] {
            sender.send(9, n, 0, &payload(n));
        }
        assert_eq!(sender.stats.packets.different, 0, "order and loss change no place");
        sender.send(9, 7, 0, &payload(8));
        let mut broken = payload(8);
        broken[1000] ^= 1;
        sender.send(9, 8, 0, &broken);
        sender.send(9, 9, 0, &payload(9)[..1315]);
        assert_eq!((sender.stats.packets.different, sender.stats.packets.bad_payload_size), (2, 1));
        assert_eq!(sender.stats.lost(), 1);
    }

    #[test]
    fn what_was_lost_at_the_very_start_is_lost() {
        let mut sender = sender(false, 100);
        sender.send(100, 3, 0, &payload(3));
        assert_eq!(sender.stats.lost(), 3);
        assert!(sender.stats.packets.first_gap.is_some());
    }

    #[test]
    fn one_late_packet_in_a_thousand_is_allowed_and_not_one_more() {
        let mut sender = sender(false, 0);
        for n in 0..1998 {
            sender.send(0, n, 0, &payload(0));
        }
        sender.send(0, 1998, 26, &payload(0));
        sender.send(0, 1999, 26, &payload(0));
        assert_eq!((sender.stats.packets.counted, sender.stats.packets.late()), (2000, 2));
        assert!(is_punctual(2000, 2));
        sender.send(0, 2000, 26, &payload(0));
        assert_eq!((sender.stats.packets.counted, sender.stats.packets.late()), (2001, 3));
        assert!(!is_punctual(2001, 3));
        let late: u32 = sender.stats.packets.late_tenths.iter().map(|word| word.count_ones()).sum();
        assert_eq!(late, 1, "all within the same tenth of a second");
    }

    #[test]
    fn what_comes_outside_the_measured_time_is_not_counted() {
        let mut sender = sender(false, 0);
        sender.window = Arc::new(Window::default());
        sender.send(0, 0, 0, &payload(0));
        sender.window.from.set(sender.began + Duration::from_millis(10)).unwrap();
        sender.window.until.set(sender.began + Duration::from_millis(30)).unwrap();
        for n in 1..5 {
            sender.send(0, n, 5, &payload(0));
        }
        let figures = sender.stats.packets.lateness.figures();
        assert_eq!((sender.stats.packets.counted, figures.packets), (2, 2));
        assert_eq!(figures.p50, Duration::from_millis(5), "against the one before the window");
        assert_eq!(sender.stats.reception().received(), 5);
    }

    #[test]
    fn drops_have_their_time() {
        let mut sender = sender(false, 0);
        sender.send(0, 0, 0, &payload(0));
        assert_eq!(sender.stats.packets.first_drop, None);
        sender.dropped = 3;
        sender.send(0, 4, 0, &payload(0));
        assert_eq!((sender.stats.packets.dropped, sender.stats.lost()), (3, 3));
        assert_eq!(sender.stats.packets.first_drop, sender.stats.packets.first_gap);
    }
}
