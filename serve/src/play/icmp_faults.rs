// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verifies ICMP reports about the network path to a client and decides when one ends a session.
//!
//! Anyone can forge ICMP, so a report counts only if it quotes the RTP header of a packet that the
//! session sent within the last [`RECENT`]: SSRC, sequence number and timestamp, 80 bits that an
//! attacker has to guess together with the client's port. Such a report ends a session only if
//! similar reports continue for [`REPEATED_FOR`] while the client is silent: it sends neither RTSP
//! nor RTCP, and if it has sent RTCP before, its next report is overdue ([`REPORT_MISSED`]). Other
//! reports are counted and ignored; networks that are unreachable for a while end no session.
//!
//! Costs nothing without ICMP; a comparison of 12 bytes a report.
//!
//! Sources: RFC 5927 §4 (ICMP attacks and what hosts can check), RFC 1122 §3.2.2.1 and §4.1.3.3,
//! RFC 3550 §6.3.1 (interval of reports), `icmp_ratelimit` (ip-sysctl: Linux reports a closed port
//! at least once a second).
//! Does not stop an attacker who can predict the packets (by playing the same asset and guessing
//! the session's position, or by eavesdropping on the path); such an attacker has to continue while
//! the client is silent.

use std::time::{Duration, Instant};

use media::plan::PacketPlan;
use paths::{PathFault, QUOTE_BYTES};

use super::shift::Shift;
use media::ticks_of;

/// A fault claimed by verified reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    first: Instant,
    last: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The client's port is closed.
    PortClosed,
    /// The session's packets exceed the MTU of an IPv6 link, where routers do not fragment.
    TooLarge,
}

/// Evidence that a client is alive, for [`Fault::verdict`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Voices {
    /// Time since the last RTSP request or RTCP packet.
    pub(crate) silent_for: Duration,
    /// True when the client sends receiver reports.
    pub(crate) reports: bool,
    /// True if media arrives, according to the last receiver report.
    pub(crate) receives: bool,
}

impl Fault {
    /// Returns the fault updated by another verified report.
    pub(crate) fn after(earlier: Option<Fault>, kind: FaultKind, now: Instant) -> Fault {
        let continues = |fault: &Fault| {
            fault.kind == kind && now.saturating_duration_since(fault.last) < FORGOTTEN_AFTER
        };
        let first = earlier.filter(continues).map_or(now, |fault| fault.first);
        Fault { kind, first, last: now }
    }

    /// Returns the reason to end the session, if there is one.
    pub(crate) fn verdict(&self, now: Instant, voices: Voices) -> Option<&'static str> {
        let lasts = self.last.saturating_duration_since(self.first) >= REPEATED_FOR;
        if !lasts || now.saturating_duration_since(self.last) >= FORGOTTEN_AFTER {
            return None;
        }
        let heard_since = voices.silent_for < now.saturating_duration_since(self.first);
        match self.kind {
            FaultKind::PortClosed => {
                let missed = !voices.reports || voices.silent_for >= REPORT_MISSED;
                (!heard_since && missed).then_some("the client's port is closed")
            }
            FaultKind::TooLarge => {
                let receives = heard_since && voices.reports && voices.receives;
                (!receives).then_some("packets do not fit the path to the client (path MTU)")
            }
        }
    }
}

/// Returns the fault that a report claims, if it can end a session whose largest packet has
/// `packet_bytes` of RTP. Routers fragment packets sent over IPv4.
pub(crate) fn kind(claimed: PathFault, packet_bytes: u64, is_cut: bool) -> Option<FaultKind> {
    match claimed {
        PathFault::PortUnreachable => Some(FaultKind::PortClosed),
        PathFault::TooLarge { mtu } if !is_cut && u64::from(mtu) < packet_bytes + HEADERS_BYTES => {
            Some(FaultKind::TooLarge)
        }
        _ => None,
    }
}

/// True if `quote` begins like an RTP packet that a session sent recently. `next` is its next
/// packet; up to `ahead` later ones may have left.
pub(crate) fn is_sent(
    quote: &[u8],
    plan: &PacketPlan,
    shift: Shift,
    next: u64,
    ahead: u64,
) -> bool {
    let Some(quoted) = quote.first_chunk::<QUOTE_BYTES>() else { return false };
    let number = |packet: u64| packet.wrapping_add(u64::from(shift.sequence));
    let newest = (next + ahead).min(plan.packets()).saturating_sub(1);
    let sequence = |header: &[u8; QUOTE_BYTES]| u16::from_be_bytes([header[2], header[3]]);
    let newest_sequence = sequence(&plan.header_at(number(newest), 0));
    let back = newest_sequence.wrapping_sub(sequence(quoted));
    let Some(packet) = newest.checked_sub(u64::from(back)) else { return false };
    let recent = ticks_of(RECENT);
    let oldest = plan.packets_before(plan.ticks(next.min(newest)).saturating_sub(recent));
    let timestamp = plan.timestamp(plan.ticks(packet)).wrapping_add(shift.timestamp);
    packet >= oldest && plan.header_at(number(packet), timestamp) == *quoted
}

/// ICMP about a packet arrives within a round trip; that of a busy router a little later.
const RECENT: Duration = Duration::from_secs(4);
/// A restarting client (port closed and opened again) has recovered by then.
const REPEATED_FOR: Duration = Duration::from_secs(3);
/// Three times the longest interval between a Linux host's reports to one address.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3);
/// Longest interval of receiver reports: 5 s, times 1.5 at most, over e - 3/2, is 6.2 s (RFC 3550
/// §6.3.1 and A.7).
const REPORT_MISSED: Duration = Duration::from_secs(8);
/// Headers before the RTP header: IPv6 (RFC 8200 §3) and UDP (RFC 768).
const HEADERS_BYTES: u64 = 40 + 8;

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT: Voices =
        Voices { silent_for: Duration::from_secs(60), reports: false, receives: false };

    fn reported(kind: FaultKind, seconds: u64) -> (Instant, Fault) {
        let began = Instant::now();
        let at = |half: u64| began + Duration::from_millis(500 * half);
        let fault =
            (0..=2 * seconds).fold(None, |fault, half| Some(Fault::after(fault, kind, at(half))));
        (at(2 * seconds), fault.expect("one report at least"))
    }

    #[test]
    fn a_closed_port_ends_a_session_after_seconds_of_reports_and_silence() {
        let closed = Some("the client's port is closed");
        let (now, fault) = reported(FaultKind::PortClosed, 2);
        assert_eq!(fault.verdict(now, SILENT), None, "not for so long");
        let (now, fault) = reported(FaultKind::PortClosed, 3);
        assert_eq!(fault.verdict(now, SILENT), closed);
        let heard = Voices { silent_for: Duration::from_secs(2), ..SILENT };
        assert_eq!(fault.verdict(now, heard), None, "heard meanwhile");
        let between = Voices { silent_for: Duration::from_secs(5), reports: true, receives: true };
        assert_eq!(fault.verdict(now, between), None, "its next report is not due yet");
        let missed = Voices { silent_for: Duration::from_secs(8), ..between };
        assert_eq!(fault.verdict(now, missed), closed);
        assert_eq!(fault.verdict(now + FORGOTTEN_AFTER, SILENT), None, "no report any more");
    }

    #[test]
    fn reports_far_apart_are_no_fault_that_lasts() {
        let began = Instant::now();
        let fault = (0..10_u32).fold(None, |fault, number| {
            Some(Fault::after(fault, FaultKind::PortClosed, began + number * FORGOTTEN_AFTER))
        });
        assert_eq!(fault.unwrap().verdict(began + 9 * FORGOTTEN_AFTER, SILENT), None);
    }

    #[test]
    fn a_path_too_narrow_ends_a_session_unless_media_arrives() {
        let (now, fault) = reported(FaultKind::TooLarge, 3);
        assert!(fault.verdict(now, SILENT).is_some_and(|reason| reason.contains("path MTU")));
        let talks = Voices { silent_for: Duration::ZERO, reports: true, receives: false };
        assert!(fault.verdict(now, talks).is_some(), "it says that nothing arrives");
        assert_eq!(fault.verdict(now, Voices { receives: true, ..talks }), None);
    }

    #[test]
    fn only_what_can_end_a_session_is_a_fault() {
        let too_large = |mtu| PathFault::TooLarge { mtu };
        assert_eq!(kind(PathFault::PortUnreachable, 1328, true), Some(FaultKind::PortClosed));
        assert_eq!(kind(PathFault::Transient, 1328, false), None);
        assert_eq!(kind(too_large(1280), 1328, false), Some(FaultKind::TooLarge));
        assert_eq!(kind(too_large(1376), 1328, false), None, "it fits");
        assert_eq!(kind(too_large(1280), 1328, true), None, "routers cut it");
    }
}
