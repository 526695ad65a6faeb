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
use super::refused_senders::{RefusalReason, RefusedSenders};
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

/// Judgement on a BYE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByeVerdict {
    /// There is none.
    None,
    /// The stream may still continue.
    Settling,
    /// Packets have followed: it was forged, or sent by mistake.
    Refuted,
    /// The sender has left.
    Left,
}

/// Counts of datagrams, and times.
#[derive(Debug, Default)]
pub(super) struct PacketStats {
    pub(super) lateness: Lateness,
    /// Payload of packets that arrived for the first time.
    pub(super) payload_bytes: u64,
    /// Time of arrival of the last packet of the stream.
    pub(super) last: Option<Instant>,
    /// The longest time from one arrival to the next.
    pub(super) longest_pause: Duration,
    pub(super) last_timestamp: u32,
    /// The longest step from one timestamp to the next in order. It also estimates the duration of
    /// the last packet's frame where pictures are seconds apart.
    pub(super) longest_step: u32,
    /// Datagrams that are not of this stream, and the last foreign host among their senders.
    pub(super) unexpected_source: u64,
    pub(super) unexpected_from: Option<SocketAddr>,
    /// Datagrams that are not RTP.
    pub(super) malformed: u64,
    /// All refused datagrams by sender, until a recorder removes them.
    pub(super) refused: RefusedSenders,
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
    /// Receiver reports sent, and BYE.
    pub(super) sent: u64,
    /// SSRC of the stream's last BYE, and its arrival.
    pub(super) bye: Option<(u32, Instant)>,
    /// Number of BYE of other ports, and of those that later packets of the stream have refuted.
    pub(super) byes_refuted: u64,
    /// The last sender report of another SSRC, which the packets may follow.
    pub(super) ahead: Option<(wire::rtcp::SenderInfo, Instant)>,
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
        self.rtcp.bye.is_some_and(|(bye, _)| self.ssrc().is_none_or(|ssrc| ssrc == bye))
    }

    /// The judgement on the last BYE of a sender: any receiver of the stream can forge one, so it
    /// counts when the stream has been silent behind it for twice its longest pause.
    pub(super) fn judge_bye(&mut self, now: Instant) -> ByeVerdict {
        if !self.has_sent_bye() {
            // A sender that has changed its SSRC may return to it.
            self.rtcp.bye = None;
        }
        if self.refute_bye() {
            return ByeVerdict::Refuted;
        }
        let Some((_, at)) = self.rtcp.bye else { return ByeVerdict::None };
        let settle = (2 * self.packets.longest_pause).clamp(SETTLE_MIN, SETTLE_MAX);
        match now.saturating_duration_since(at) >= settle {
            true => ByeVerdict::Left,
            false => ByeVerdict::Settling,
        }
    }

    /// Notes a BYE. The first of several counts, until packets refute it.
    pub(super) fn note_bye(&mut self, ssrc: u32, arrival: Instant) {
        self.refute_bye();
        let before = self.rtcp.bye.filter(|(before, _)| *before == ssrc);
        self.rtcp.bye = before.or(Some((ssrc, arrival)));
    }

    /// Removes and counts a BYE that packets have followed.
    fn refute_bye(&mut self) -> bool {
        let Some((_, at)) = self.rtcp.bye.filter(|_| self.has_sent_bye()) else { return false };
        if self.packets.last.is_none_or(|last| last <= at + IN_FLIGHT) {
            return false;
        }
        self.rtcp.bye = None;
        self.rtcp.byes_refuted += 1;
        true
    }

    /// Accepts the sender report that arrived before the packets of its SSRC did.
    pub(super) fn accept_report_ahead(&mut self) {
        let ssrc = self.ssrc();
        if let Some(report) = self.rtcp.ahead.take_if(|(sender, _)| Some(sender.ssrc) == ssrc) {
            self.rtcp.sender_reports += 1;
            self.rtcp.last_sender = Some(report);
        }
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
        clock: &ArrivalClock,
        paused_since: Option<Instant>,
    ) -> Option<(u32, Instant)> {
        let (header, arrival) = packet.header?;
        let at = clock.instant(packet.at);
        if let Some(last) = self.last.replace(at) {
            let pause = at.saturating_duration_since(last);
            self.longest_pause = self.longest_pause.max(pause);
        }
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

    /// Counts datagrams that the receiver of a stream from `peer` has refused.
    pub(super) fn refused(
        &mut self,
        from: SocketAddr,
        datagrams: u64,
        reason: RtpRefusal,
        peer: Option<SocketAddr>,
    ) {
        match reason {
            RtpRefusal::Malformed | RtpRefusal::BareSize => self.malformed += datagrams,
            _ => self.unexpected_source += datagrams,
        }
        // Before its first packet a sender of another payload type is that of the track.
        self.refused.refuse_rtp(from, datagrams, reason, peer.or(Some(from)));
    }

    /// Counts a datagram of a host that nobody has named.
    pub(super) fn refused_host(&mut self, from: SocketAddr) {
        self.unexpected_source += 1;
        self.unexpected_from = Some(from);
        self.refused.refuse(from, 1, RefusalReason::NotNamed);
    }
}

/// Locks statistics. A poisoned lock is ignored: each figure is valid by itself.
pub(crate) fn lock<T>(stats: &Mutex<T>) -> MutexGuard<'_, T> {
    stats.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Packets still in flight when PAUSE is answered.
const PAUSE_GRACE: Duration = Duration::from_millis(200);
/// Packets that BYE has overtaken arrive within this time.
const IN_FLIGHT: Duration = Duration::from_millis(100);
/// Silence behind a BYE after which the sender has left: a sender that changes its SSRC continues
/// within this time.
const SETTLE_MIN: Duration = Duration::from_millis(500);
/// The same where pictures are far apart: less than the silence that ends a session.
const SETTLE_MAX: Duration = Duration::from_secs(8);

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_HZ: u32 = 90_000;

    fn stats() -> StreamStats {
        let receiver = RtpReceiver::new(96, SingleSource::new(Some(7), RATE_HZ), None);
        StreamStats::new(receiver, RATE_HZ)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Judges a BYE at these times behind it, with a last packet behind it and a longest pause.
    fn judged<const N: usize>(packet_ms: u64, pause_s: u64, at_ms: [u64; N]) -> [ByeVerdict; N] {
        let (mut stats, at) = (stats(), Instant::now());
        stats.rtcp.bye = Some((7, at));
        stats.packets.last = Some(at + ms(packet_ms));
        stats.packets.longest_pause = Duration::from_secs(pause_s);
        at_ms.map(|at_ms| stats.judge_bye(at + ms(at_ms)))
    }

    #[test]
    fn bye_counts_when_the_stream_is_silent_behind_it() {
        use ByeVerdict::{Left, None, Refuted, Settling};
        assert_eq!(judged(90, 0, [100, 400, 500]), [Settling, Settling, Left], "in flight");
        assert_eq!(judged(110, 0, [120, 600]), [Refuted, None], "forged");
        // Regression: the order of pictures of a slow title counted as pauses of 6 s, so that its
        // end was found by its silence.
        assert_eq!(judged(0, 2, [500, 3900, 4000]), [Settling, Settling, Left]);
        assert_eq!(judged(0, 3600, [7900, 8000]), [Settling, Left], "it was silent once");
    }

    #[test]
    fn forged_bye_is_counted_and_that_of_another_ssrc_is_none() {
        let (mut stats, at) = (stats(), Instant::now());
        stats.rtcp.bye = Some((8, at));
        assert_eq!(stats.judge_bye(at + ms(60_000)), ByeVerdict::None);
        for _ in 0..2 {
            stats.rtcp.bye = Some((7, at));
            stats.packets.last = Some(at + ms(200));
            assert_eq!(stats.judge_bye(at + ms(600)), ByeVerdict::Refuted);
        }
        assert_eq!((stats.rtcp.byes_refuted, stats.has_sent_bye()), (2, false));
    }

    #[test]
    fn bye_behind_a_forged_one_counts() {
        let (mut stats, at) = (stats(), Instant::now());
        stats.note_bye(7, at);
        stats.packets.last = Some(at + ms(200));
        stats.note_bye(7, at + ms(210));
        stats.note_bye(7, at + ms(260));
        assert_eq!((stats.rtcp.byes_refuted, stats.rtcp.bye), (1, Some((7, at + ms(210)))));
        assert_eq!(stats.judge_bye(at + ms(710)), ByeVerdict::Left);
    }

    /// Regression: the first report behind a change of the SSRC was passed over where it was read
    /// before the packets, which a recorder reads ten times a second.
    #[test]
    fn a_report_that_is_read_before_its_packets_counts_with_them() {
        let mut stats = stats();
        let sender =
            wire::rtcp::SenderInfo { ssrc: 8, ntp: 1, rtp_timestamp: 2, packets: 3, octets: 4 };
        stats.rtcp.ahead = Some((sender, Instant::now()));
        stats.accept_report_ahead();
        assert_eq!((stats.rtcp.sender_reports, stats.rtcp.last_sender.is_some()), (0, false));
        stats.receiver.sources.ssrc = Some(8);
        for _ in 0..2 {
            stats.accept_report_ahead();
            assert_eq!((stats.rtcp.sender_reports, stats.rtcp.last_sender.is_some()), (1, true));
        }
    }
}
