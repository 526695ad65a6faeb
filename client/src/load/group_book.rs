// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a scenario's group while it runs: the end of each visit adds its counts.
//!
//! A *visit* lasts from SETUP to the end of an RTSP session; sessions that leave and return have
//! several. A *play* lasts from PLAY to the next PAUSE, seek or end.
//!
//! Costs one lock for each visit and each play, and a fixed amount of memory for each group.
//!
//! Does not judge visits of sessions that read slowly or stall.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::group_outcome::{CountedVisits, FirstPacketMs, GroupOutcome};
use super::load_session::SessionEnd;
use super::outcome::CountedSessions;
use super::sample_reader::delays;
use super::scenario::GroupIdentity;
use super::session_sums::{ReasonCounts, SessionSum, VerifiedSum};

/// Figures of a group so far.
pub(super) struct GroupBook {
    pub(super) identity: GroupIdentity,
    starts: u32,
    pub(super) actions: ActionCounts,
    /// Refused starts, and visits that the server ended.
    pub(super) failed: ReasonCounts,
    pub(super) ended: ReasonCounts,
    /// Microseconds from PLAY to the first packet after it.
    first_packets: Histogram<u64>,
    plays_without_packets: u32,
    pub(super) verified: VerifiedSum,
    pub(super) counted: CountedVisits,
    packets_least: Option<u64>,
    packets_most: u64,
}

/// Actions of sessions that the server has granted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ActionCounts {
    pub(super) seeks: u32,
    pub(super) pauses: u32,
    pub(super) reconnects: u32,
}

impl GroupBook {
    pub(super) fn new(identity: GroupIdentity) -> GroupBook {
        GroupBook {
            identity,
            starts: 0,
            actions: ActionCounts::default(),
            failed: ReasonCounts::default(),
            ended: ReasonCounts::default(),
            first_packets: delays(),
            plays_without_packets: 0,
            verified: VerifiedSum::default(),
            counted: CountedVisits::default(),
            packets_least: None,
            packets_most: 0,
        }
    }

    /// Counts a granted start.
    pub(super) fn started(&mut self, is_first: bool) {
        self.starts += 1;
        self.actions.reconnects += u32::from(!is_first);
    }

    /// Records the first packet of a play that was requested at `asked_at`, if there is one. A play
    /// that has just begun may have none.
    pub(super) fn first_packet(&mut self, asked_at: Instant, first: Option<Instant>) {
        match first {
            Some(first) => {
                let waited = first.saturating_duration_since(asked_at).as_micros() as u64;
                self.first_packets.saturating_record(waited.max(1));
            }
            None if asked_at.elapsed() >= SILENT_AFTER => self.plays_without_packets += 1,
            None => {}
        }
    }

    /// Adds the end of a visit.
    pub(super) fn ended(&mut self, end: &SessionEnd, session: &mut SessionSum) {
        if let Some(ended) = &end.ended {
            self.ended.add(ended);
        }
        if end.is_verified() {
            self.verified.add(end, session);
            return;
        }
        let Some(packets) = end.counted() else { return };
        self.packets_least = Some(self.packets_least.map_or(packets, |least| least.min(packets)));
        self.packets_most = self.packets_most.max(packets);
        let counted = &mut self.counted;
        counted.visits += 1;
        counted.packets += packets;
        match end.missing() {
            Some(missing) => {
                counted.accounted += 1;
                counted.lost += missing;
            }
            // The count of a session that ended without TEARDOWN is not awaited.
            None if end.has_vanished => {}
            None => counted.unaccounted += 1,
        }
    }

    /// Adds the counted visits to those of all groups.
    pub(super) fn add_to(&self, all: &mut CountedSessions) {
        let CountedVisits { visits, packets, accounted, lost, .. } = self.counted;
        let least = self.packets_least.unwrap_or(0);
        let is_first = all.sessions == 0;
        if visits > 0 {
            all.packets_least = if is_first { least } else { all.packets_least.min(least) };
        }
        all.packets_most = all.packets_most.max(self.packets_most);
        all.sessions += visits;
        all.packets += packets;
        all.packets_in_all += packets;
        all.accounted += accounted;
        all.lost += lost;
    }

    /// Figures for the report.
    pub(super) fn outcome(&self, within: Duration) -> GroupOutcome {
        let ms = |us: u64| us as f64 / 1e3;
        let first = &self.first_packets;
        let quantile = |share| if first.is_empty() { 0 } else { first.value_at_quantile(share) };
        let first_packet_ms = FirstPacketMs {
            plays: first.len(),
            p50: ms(quantile(0.5)),
            p99: ms(quantile(0.99)),
            max: ms(quantile(1.0)),
        };
        let mut outcome = GroupOutcome {
            group: self.identity.clone(),
            is_harmed: false,
            starts: self.starts,
            seeks: self.actions.seeks,
            pauses: self.actions.pauses,
            reconnects: self.actions.reconnects,
            failed: self.failed.by_count(),
            ended: self.ended.by_count(),
            first_packet_ms,
            plays_without_packets: self.plays_without_packets,
            reader_skips: self.verified.gaps,
            verified: self.verified.figures(within),
            counted: self.counted,
        };
        outcome.is_harmed = outcome.is_at_fault();
        outcome
    }
}

/// A play of this length must have a packet.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::super::session_streams::StreamEnd;
    use super::*;
    use crate::transport::StreamTransport;

    fn book() -> GroupBook {
        GroupBook::new(GroupIdentity {
            name: "g".to_owned(),
            behaviour: "leave",
            transport: StreamTransport::Udp,
            is_judged: true,
            sessions: 1,
        })
    }

    fn visit(sent: Option<u32>, counted: u32) -> SessionEnd {
        let streams = vec![StreamEnd::of_counted(sent, counted)];
        SessionEnd { is_played: true, streams, ..SessionEnd::default() }
    }

    #[test]
    fn visits_are_added_and_their_losses_told() {
        let (mut book, mut session) = (book(), SessionSum::default());
        book.started(true);
        book.started(false);
        book.ended(&visit(Some(100), 100), &mut session);
        assert!(!book.outcome(Duration::ZERO).is_harmed);
        book.ended(&visit(Some(50), 47), &mut session);
        let outcome = book.outcome(Duration::ZERO);
        assert_eq!((outcome.starts, outcome.reconnects), (2, 1));
        let counted = outcome.counted;
        assert_eq!((counted.visits, counted.packets, counted.lost), (2, 147, 3));
        assert!(outcome.is_harmed);
        let mut all = CountedSessions::default();
        book.add_to(&mut all);
        assert_eq!((all.sessions, all.packets_least, all.packets_most), (2, 47, 100));
    }

    #[test]
    fn the_count_of_a_vanished_visit_is_not_missed() {
        let (mut book, mut session) = (book(), SessionSum::default());
        book.ended(&SessionEnd { has_vanished: true, ..visit(None, 5) }, &mut session);
        assert!(!book.outcome(Duration::ZERO).is_harmed);
        book.ended(&visit(None, 5), &mut session);
        assert!(book.outcome(Duration::ZERO).is_harmed);
    }

    #[test]
    fn a_long_play_without_a_packet_is_a_fault_and_a_short_one_is_not() {
        let mut book = book();
        let now = Instant::now();
        book.first_packet(now, Some(now + Duration::from_millis(7)));
        book.first_packet(now, None);
        let outcome = book.outcome(Duration::ZERO);
        assert_eq!(outcome.first_packet_ms.plays, 1);
        assert!((6.9..7.1).contains(&outcome.first_packet_ms.p50), "{outcome:?}");
        assert!(!outcome.is_harmed);
        book.first_packet(now.checked_sub(SILENT_AFTER).unwrap(), None);
        assert!(book.outcome(Duration::ZERO).is_harmed);
    }
}
