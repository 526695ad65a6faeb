// SPDX-License-Identifier: MIT OR Apache-2.0
//! Consumers of the packets of a play: update the statistics, and pass the bytes to the file or to
//! the depayloader.
//!
//! Sources: RFC 3550 §5.1, A.1; RFC 2326 §10.6 (PAUSE).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::rtp::SequenceUpdate;

use super::file_writer::FileWriter;
use super::receive_thread::PacketStats;
use super::track_receiver::TrackReceiver;
use crate::rtp_receiver::{
    ArrivalClock, PacketConsumer, RtpPacket, RtpRefusal, is_transport_stream,
};

/// Consumer of the packets of a transport stream.
pub(super) struct PlayConsumer<'a> {
    pub(super) packets: &'a mut PacketStats,
    pub(super) output: &'a mut Option<FileWriter>,
    pub(super) clock: ArrivalClock,
    pub(super) paused_since: Option<Instant>,
}

/// Consumer of the packets of a track.
pub(super) struct TrackConsumer<'a> {
    pub(super) packets: &'a mut PacketStats,
    pub(super) track: &'a mut TrackReceiver,
    pub(super) clock: ArrivalClock,
    pub(super) paused_since: Option<Instant>,
}

impl PacketStats {
    /// Counts a packet; returns its timestamp and arrival, if it is the first with its number.
    fn arrived(
        &mut self,
        packet: &RtpPacket<'_>,
        clock: ArrivalClock,
        paused_since: Option<Instant>,
    ) -> Option<(u32, Instant)> {
        let (header, arrival) = packet.header?;
        let at = clock.instant(packet.at);
        self.last = Some(at);
        self.while_paused += u64::from(paused_since.is_some_and(|since| at >= since + PAUSE_GRACE));
        if matches!(
            arrival,
            SequenceUpdate::Duplicate | SequenceUpdate::Stray | SequenceUpdate::Old
        ) {
            return None;
        }
        if arrival != SequenceUpdate::Reordered {
            let step = header.timestamp.wrapping_sub(self.last_timestamp).cast_signed();
            if self.payload_bytes > 0 {
                self.longest_step = self.longest_step.max(step.max(0).unsigned_abs());
            }
            self.last_timestamp = header.timestamp;
        }
        self.payload_bytes += packet.payload.len() as u64;
        Some((header.timestamp, at))
    }

    fn refused(&mut self, datagrams: u64, reason: RtpRefusal) {
        match reason {
            RtpRefusal::Malformed | RtpRefusal::BareSize => self.malformed += datagrams,
            _ => self.unexpected_source += datagrams,
        }
    }
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
        _: SocketAddr,
        datagrams: u64,
        reason: RtpRefusal,
        _: Option<SocketAddr>,
    ) {
        self.packets.refused(datagrams, reason);
    }
}

impl PacketConsumer for TrackConsumer<'_> {
    const TAKES_HEADERS: bool = true;

    fn arrived(&mut self, packet: RtpPacket<'_>) {
        let noted = self.packets.arrived(&packet, self.clock, self.paused_since);
        let Some((timestamp, at)) = noted else { return };
        self.track.time(timestamp, at, &mut self.packets.lateness);
    }

    fn deliver(&mut self, datagram: &[u8], _arrived: Duration, _now: Duration) {
        self.track.take(datagram);
    }

    fn refused(
        &mut self,
        _: SocketAddr,
        datagrams: u64,
        reason: RtpRefusal,
        _: Option<SocketAddr>,
    ) {
        self.packets.refused(datagrams, reason);
    }
}

/// Packets still in flight when PAUSE is answered.
const PAUSE_GRACE: Duration = Duration::from_millis(200);
