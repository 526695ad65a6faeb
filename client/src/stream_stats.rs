// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of a played stream: its receiver with loss and order, times of arrival, foreign and
//! malformed datagrams, units of a track, and RTCP.
//!
//! The receiving thread and the RTCP task write them; the session and the verdict read them. They
//! share one lock, which the thread acquires once a packet.
//!
//! Sources: RFC 3550 §5.1, §8.2, A.1; RFC 2326 §10.6 (PAUSE).

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use media::depayload::DepayloadCounts;
use wire::rtp::{Reception, SequenceUpdate};

use super::lateness::Lateness;
use crate::rtp_receiver::{ArrivalClock, RtpPacket, RtpReceiver, RtpRefusal, SingleSource};

/// Statistics of a stream; shared with the tasks that report.
#[derive(Debug)]
pub(super) struct StreamStats {
    pub(super) receiver: RtpReceiver<SingleSource>,
    pub(super) packets: PacketStats,
    /// Counts of a track's access units.
    pub(super) units: DepayloadCounts,
    pub(super) is_output_broken: bool,
    pub(super) is_receiving: bool,
    /// Datagrams that the kernel dropped, once the thread has ended.
    pub(super) kernel_drops: Option<u64>,
    pub(super) rtcp: RtcpStats,
}

/// Counts of datagrams, and times.
#[derive(Debug, Default)]
pub(super) struct PacketStats {
    pub(super) lateness: Lateness,
    /// Payload of packets that arrived for the first time.
    pub(super) payload_bytes: u64,
    /// Time of arrival of the last packet of the stream.
    pub(super) last: Option<Instant>,
    pub(super) last_timestamp: u32,
    /// The longest step from one timestamp to the next in order. It also estimates the duration of
    /// the last packet's frame where pictures are seconds apart.
    pub(super) longest_step: u32,
    /// Datagrams that are not of this stream, and the last foreign host among their senders.
    pub(super) unexpected_source: u64,
    pub(super) unexpected_from: Option<SocketAddr>,
    /// Datagrams that are not RTP.
    pub(super) malformed: u64,
    /// Payloads that are not whole TS packets.
    pub(super) bad_payload_size: u64,
    /// Packets that arrived although PAUSE had been answered.
    pub(super) while_paused: u64,
}

/// Statistics of RTCP.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RtcpStats {
    pub(super) sender_reports: u64,
    pub(super) last_sender: Option<(wire::rtcp::SenderInfo, Instant)>,
    /// Sender reports that were passed on to the writer of the tracks.
    pub(super) passed_on: u64,
    /// SSRC of the stream's last BYE.
    pub(super) bye: Option<u32>,
    pub(super) malformed: u64,
}

impl StreamStats {
    pub(super) fn new(receiver: RtpReceiver<SingleSource>, clock_rate_hz: u32) -> StreamStats {
        let lateness = Lateness::new(clock_rate_hz);
        StreamStats {
            receiver,
            packets: PacketStats { lateness, ..PacketStats::default() },
            units: DepayloadCounts::default(),
            is_output_broken: false,
            is_receiving: true,
            kernel_drops: None,
            rtcp: RtcpStats::default(),
        }
    }

    pub(super) fn ssrc(&self) -> Option<u32> {
        self.receiver.sources.ssrc
    }

    /// True where the sender has left. A sender that changes its SSRC sends BYE for the old one,
    /// and continues (RFC 3550 §8.2).
    pub(super) fn has_sent_bye(&self) -> bool {
        self.rtcp.bye.is_some_and(|bye| self.ssrc().is_none_or(|ssrc| ssrc == bye))
    }

    pub(super) fn reception(&self) -> &Reception {
        &self.receiver.sources.reception
    }
}

impl PacketStats {
    /// Counts a packet; returns its timestamp and arrival, if it is the first with its number.
    pub(super) fn arrived(
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

    /// Counts datagrams that the receiver has refused.
    pub(super) fn refused(&mut self, datagrams: u64, reason: RtpRefusal) {
        match reason {
            RtpRefusal::Malformed | RtpRefusal::BareSize => self.malformed += datagrams,
            _ => self.unexpected_source += datagrams,
        }
    }
}

/// Locks statistics. A poisoned lock is ignored: each figure is valid by itself.
pub(crate) fn lock<T>(stats: &Mutex<T>) -> MutexGuard<'_, T> {
    stats.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Packets still in flight when PAUSE is answered.
const PAUSE_GRACE: Duration = Duration::from_millis(200);
