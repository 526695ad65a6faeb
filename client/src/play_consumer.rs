// SPDX-License-Identifier: MIT OR Apache-2.0
//! Consumers of the packets of a play: update the statistics, and pass the bytes to the file or to
//! the depayloader.
//!
//! Sources: RFC 3550 §5.1.
//! Does not count packets itself ([`PacketStats`] does).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::file_writer::FileWriter;
use super::stream_stats::PacketStats;
use super::track_receiver::TrackReceiver;
use crate::rtp_receiver::{
    ArrivalClock, PacketConsumer, RtpPacket, RtpRefusal, is_transport_stream,
};

/// Consumer of the packets of a transport stream.
pub(super) struct PlayConsumer<'a> {
    pub(super) packets: &'a mut PacketStats,
    pub(super) output: &'a mut Option<FileWriter>,
    pub(super) clock: &'a ArrivalClock,
    pub(super) paused_since: Option<Instant>,
}

/// Consumer of the packets of a track.
pub(super) struct TrackConsumer<'a> {
    pub(super) packets: &'a mut PacketStats,
    pub(super) track: &'a mut TrackReceiver,
    pub(super) clock: &'a ArrivalClock,
    pub(super) paused_since: Option<Instant>,
}

impl PacketConsumer for PlayConsumer<'_> {
    fn arrived(&mut self, packet: RtpPacket<'_>) {
        let noted = self.packets.arrived(&packet, self.clock, self.paused_since);
        let Some((timestamp, at)) = noted else { return };
        self.packets.lateness.arrived(timestamp, at);
        self.packets.bad_payload_size += u64::from(!is_transport_stream(packet.payload));
    }

    fn deliver(&mut self, payload: &[u8], _arrived: Duration, _now: Duration) {
        if let Some(output) = self.output {
            output.push(payload);
        }
    }

    fn refused(
        &mut self,
        from: SocketAddr,
        datagrams: u64,
        reason: RtpRefusal,
        peer: Option<SocketAddr>,
    ) {
        self.packets.refused(from, datagrams, reason, peer);
    }
}

impl PacketConsumer for TrackConsumer<'_> {
    const TAKES_HEADERS: bool = true;

    fn arrived(&mut self, packet: RtpPacket<'_>) {
        let noted = self.packets.arrived(&packet, self.clock, self.paused_since);
        let Some((timestamp, at)) = noted else { return };
        self.track.time(timestamp, at, &mut self.packets.lateness);
    }

    fn deliver(&mut self, datagram: &[u8], arrived: Duration, _now: Duration) {
        self.track.take_arrived(datagram, self.clock.instant(arrived));
    }

    fn refused(
        &mut self,
        from: SocketAddr,
        datagrams: u64,
        reason: RtpRefusal,
        peer: Option<SocketAddr>,
    ) {
        self.packets.refused(from, datagrams, reason, peer);
    }
}
