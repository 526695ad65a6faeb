// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums over the sessions of a load: verified ones, counted ones, and reasons of ends.
//!
//! Each end of a session is added once, and only its share of the sums is kept: a load in which
//! sessions start and end for hours needs no more memory than a short one.
//!
//! A session that leaves and returns has several ends; it is judged once, by all its packets.

use std::time::{Duration, Instant};

use super::bottleneck::Evidence;
use super::load_session::SessionEnd;
use super::outcome::{EndReason, VerifiedSessions, VerifiedTrack};
use super::sampled_stats::{SampledStats, is_punctual};
use super::session_streams::Media;
use crate::lateness::Lateness;
use crate::stream_stats::lock;

/// Sums over verified sessions.
#[derive(Debug, Default)]
pub(super) struct VerifiedSum {
    figures: VerifiedSessions,
    lateness: Lateness,
    /// Sessions that were late in each tenth of a second of the measured time.
    late_tenths: Vec<u32>,
    silent: u32,
    late: u32,
    first_gap: Option<Instant>,
    first_drop: Option<Instant>,
    first_late: Option<Instant>,
    /// Gaps: places at which packets were missing when the next one arrived.
    pub(super) gaps: u64,
    /// Incomplete frames, of tracks without a missing packet.
    broken_without_loss: u64,
}

/// Packets of one session so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SessionSum {
    /// Packets of the measured time, and the late ones among them.
    packets: u64,
    late: u64,
    lost: u64,
    has_broken: bool,
}

impl VerifiedSum {
    /// Adds the end of a verified session to the sums and to those of the session.
    pub(super) fn add(&mut self, end: &SessionEnd, session: &mut SessionSum) {
        session.has_broken |= end.ended.is_some();
        let mut streams = 0;
        let (mut silent, mut sent_to_silent) = (0, false);
        let mut late_tenths = Vec::new();
        let mut is_late = false;
        for (number, stream) in end.streams.iter().enumerate() {
            let Media::Verified(stats) = &stream.media else { continue };
            streams += 1;
            let stats = &mut *lock(stats);
            stats.finish();
            if stats.reception().received() == 0 {
                silent += 1;
                sent_to_silent |= stream.sent.is_some_and(|sent| sent > 0);
            }
            let packets = &stats.packets;
            if packets.counted > 0 && !is_punctual(packets.counted, packets.late()) {
                is_late = true;
                self.first_late = earlier(self.first_late, packets.first_late);
                join_tenths(&mut late_tenths, &packets.late_tenths);
            }
            self.add_stream(stats, (number, stream.sent), session);
        }
        if is_late {
            self.late += 1;
            add_tenths(&mut self.late_tenths, &late_tenths);
        }
        // A track may have had nothing to send yet.
        let is_silent = silent > 0 && (silent == streams || sent_to_silent);
        if is_silent && end.ended.is_none() && !end.is_brief {
            self.silent += 1;
        }
    }

    fn add_stream(
        &mut self,
        stats: &mut SampledStats,
        (number, sent): (usize, Option<u32>),
        session: &mut SessionSum,
    ) {
        let lost = lost(stats, sent);
        if let Some(track) = &stats.track {
            let of_track = track.verified(stats.reception(), lost);
            if lost == 0 {
                self.broken_without_loss += of_track.broken_units;
            }
            session.has_broken |= !of_track.is_whole();
            self.add_track(number, of_track);
        }
        let packets = &stats.packets;
        session.packets += packets.counted;
        session.late += packets.late();
        session.lost += lost;
        let figures = &mut self.figures;
        figures.packets += packets.counted;
        figures.bytes += packets.bytes;
        figures.packets_in_all += stats.reception().received();
        figures.lost += lost;
        figures.duplicates += stats.reception().duplicates();
        figures.reordered += stats.reception().reordered();
        figures.unexpected_source += packets.unexpected_source;
        figures.bad_payload_size += packets.bad_payload_size;
        if let Some(different) = packets.different() {
            *figures.different.get_or_insert(0) += different;
        }
        figures.dropped += u64::from(packets.dropped);
        self.gaps += packets.gaps;
        if lost > 0 {
            self.first_gap = earlier(self.first_gap, packets.first_gap);
        }
        self.first_drop = earlier(self.first_drop, packets.first_drop);
        self.lateness.merge(std::mem::take(&mut stats.packets.lateness));
    }

    /// Adds a track to those of the same number.
    fn add_track(&mut self, number: usize, track: VerifiedTrack) {
        let tracks = &mut self.figures.tracks;
        match tracks.get_mut(number) {
            Some(sum) => sum.add(&track),
            // Sessions are added in any order, and their tracks in that of the description.
            None => tracks.push(track),
        }
    }

    /// Judges a session after all its ends were added. A session that plays all the time is not
    /// timely without a packet in the measured time.
    pub(super) fn judge(&mut self, session: SessionSum, needs_packets: bool) {
        self.figures.sessions += 1;
        let has_packets = session.packets > 0 || !needs_packets;
        let is_timely = has_packets
            && is_punctual(session.packets, session.late)
            && session.lost == 0
            && !session.has_broken;
        self.figures.timely += u32::from(is_timely);
    }

    /// Adds other sessions.
    pub(super) fn merge(&mut self, other: VerifiedSum) {
        let (sum, more) = (&mut self.figures, other.figures);
        sum.sessions += more.sessions;
        sum.timely += more.timely;
        sum.packets += more.packets;
        sum.bytes += more.bytes;
        sum.packets_in_all += more.packets_in_all;
        sum.lost += more.lost;
        sum.duplicates += more.duplicates;
        sum.reordered += more.reordered;
        sum.unexpected_source += more.unexpected_source;
        sum.bad_payload_size += more.bad_payload_size;
        sum.dropped += more.dropped;
        if let Some(different) = more.different {
            *sum.different.get_or_insert(0) += different;
        }
        for (number, track) in more.tracks.into_iter().enumerate() {
            self.add_track(number, track);
        }
        self.broken_without_loss += other.broken_without_loss;
        self.lateness.merge(other.lateness);
        let tenths = self.late_tenths.len().max(other.late_tenths.len());
        self.late_tenths.resize(tenths, 0);
        for (sum, more) in self.late_tenths.iter_mut().zip(&other.late_tenths) {
            *sum += more;
        }
        self.silent += other.silent;
        self.late += other.late;
        self.gaps += other.gaps;
        self.first_gap = earlier(self.first_gap, other.first_gap);
        self.first_drop = earlier(self.first_drop, other.first_drop);
        self.first_late = earlier(self.first_late, other.first_late);
    }

    /// Figures so far.
    pub(super) fn figures(&self, within: Duration) -> VerifiedSessions {
        let lateness_ms = self.lateness.milliseconds(within);
        VerifiedSessions { lateness_ms, ..self.figures.clone() }
    }

    /// Adds the evidence for a bottleneck.
    pub(super) fn testify(&self, evidence: &mut Evidence) {
        let figures = &self.figures;
        evidence.silent += self.silent;
        evidence.late += self.late;
        evidence.first_gap = earlier(evidence.first_gap, self.first_gap);
        evidence.first_drop = earlier(evidence.first_drop, self.first_drop);
        evidence.first_late = earlier(evidence.first_late, self.first_late);
        evidence.verified += figures.sessions;
        evidence.together = self.late_tenths.iter().copied().max().unwrap_or(0);
        evidence.lost += figures.lost;
        evidence.dropped += figures.dropped;
        let malformed: u64 = figures.tracks.iter().map(|track| track.malformed_packets).sum();
        evidence.wrong += figures.bad_payload_size + figures.different.unwrap_or(0) + malformed;
        evidence.broken_frames += self.broken_without_loss;
    }
}

/// Sent packets that did not arrive, modulo 2^32. More arrivals than sent packets are duplicates or
/// unrelated datagrams: none is missing.
pub(super) fn missing(sent: u32, arrived: u32) -> u32 {
    sent.wrapping_sub(arrived).cast_signed().max(0).cast_unsigned()
}

/// Losses by sequence numbers or by the sender's count: the larger one.
fn lost(stats: &SampledStats, sent: Option<u32>) -> u64 {
    let reception = stats.reception();
    // Modulo 2^32, like the sender's count.
    let arrived = (reception.received() - reception.duplicates()) as u32;
    let missing = sent.map_or(0, |sent| missing(sent, arrived));
    stats.lost().max(missing.into())
}

/// Adds the tenths of a second in which a stream was late to those of its session.
fn join_tenths(session: &mut Vec<u64>, stream: &[u64]) {
    session.resize(session.len().max(stream.len()), 0);
    for (session, stream) in session.iter_mut().zip(stream) {
        *session |= stream;
    }
}

fn add_tenths(sessions: &mut Vec<u32>, late: &[u64]) {
    sessions.resize(sessions.len().max(late.len() * 64), 0);
    for (tenth, sessions) in sessions.iter_mut().enumerate().take(late.len() * 64) {
        *sessions += u32::from(late[tenth / 64] >> (tenth % 64) & 1 == 1);
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Reasons with the number of each, and the earliest. Bounded: a server that gives each session a
/// different reason must not fill the screen.
#[derive(Debug, Clone, Default)]
pub(super) struct ReasonCounts {
    reasons: Vec<EndReason>,
    first: Option<(Instant, String)>,
    count: u32,
}

impl ReasonCounts {
    pub(super) fn add(&mut self, (at, reason): &(Instant, String)) {
        self.note_first(*at, reason);
        self.add_many(1, reason);
    }

    pub(super) fn merge(&mut self, other: &ReasonCounts) {
        if let Some((at, reason)) = &other.first {
            self.note_first(*at, reason);
        }
        for EndReason { sessions, reason } in &other.reasons {
            self.add_many(*sessions, reason);
        }
    }

    fn note_first(&mut self, at: Instant, reason: &str) {
        if self.first.as_ref().is_none_or(|(earliest, _)| at < *earliest) {
            self.first = Some((at, reason.to_owned()));
        }
    }

    fn add_many(&mut self, sessions: u32, reason: &str) {
        self.count += sessions;
        let known = self.reasons.iter().position(|known| known.reason == reason);
        if known.is_none() && self.reasons.len() < REASONS_MAX {
            self.reasons.push(EndReason { sessions, reason: reason.to_owned() });
            return;
        }
        let index = known.unwrap_or(REASONS_MAX - 1);
        self.reasons[index].sessions += sessions;
        if known.is_none() {
            self.reasons[index].reason = "other reasons".to_owned();
        }
    }

    /// The reasons, most frequent first.
    pub(super) fn by_count(&self) -> Vec<EndReason> {
        let mut reasons = self.reasons.clone();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.sessions));
        reasons
    }

    /// The earliest reason with its time, and the total number.
    pub(super) fn first(&self) -> Option<(Instant, String, u32)> {
        self.first.clone().map(|(at, reason)| (at, reason, self.count))
    }
}

const REASONS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_sender_and_socket_are_compared_modulo_their_width() {
        assert_eq!(missing(100, 100), 0);
        assert_eq!(missing(100, 97), 3);
        assert_eq!(missing(2, u32::MAX), 3);
        assert_eq!(missing(100, 103), 0);
        assert_eq!(missing(5_000_000, 100), 4_999_900);
    }

    #[test]
    fn reasons_are_gathered_and_bounded() {
        let at = Instant::now();
        let failure = |n: u64, text: &str| (at + Duration::from_millis(n), text.to_owned());
        let mut counts = ReasonCounts::default();
        for reason in [failure(5, "a"), failure(2, "b"), failure(3, "b")] {
            counts.add(&reason);
        }
        let gathered = counts.by_count();
        let gathered: Vec<_> = gathered.iter().map(|r| (r.sessions, &*r.reason)).collect();
        assert_eq!(gathered, [(2, "b"), (1, "a")]);
        assert_eq!(counts.first(), Some((at + Duration::from_millis(2), "b".to_owned(), 3)));
        let mut many = ReasonCounts::default();
        for n in 0..100 {
            many.add(&failure(n, &n.to_string()));
        }
        let gathered = many.by_count();
        assert_eq!(gathered.len(), REASONS_MAX);
        assert_eq!(gathered.iter().map(|reason| reason.sessions).sum::<u32>(), 100);
        assert_eq!(gathered[0].reason, "other reasons");
        counts.merge(&many);
        assert_eq!(counts.by_count().iter().map(|reason| reason.sessions).sum::<u32>(), 103);
        assert_eq!(counts.first().unwrap(), (at, "0".to_owned(), 103));
    }

    #[test]
    fn sessions_late_together_are_counted_by_the_tenth_of_a_second() {
        let mut sessions = Vec::new();
        add_tenths(&mut sessions, &[0b101, 1]);
        add_tenths(&mut sessions, &[0b100]);
        assert_eq!((sessions[0], sessions[1], sessions[2], sessions[64]), (1, 0, 2, 1));
        let mut session = vec![0b1];
        join_tenths(&mut session, &[0b11, 1]);
        assert_eq!(session, [0b11, 1], "a session whose streams are late is late once");
    }

    #[test]
    fn a_session_of_several_visits_is_judged_by_all_its_packets() {
        let judged = |packets, late, lost, has_broken, needs_packets| {
            let mut sum = VerifiedSum::default();
            sum.judge(SessionSum { packets, late, lost, has_broken }, needs_packets);
            assert_eq!(sum.figures.sessions, 1);
            sum.figures.timely == 1
        };
        assert!(judged(1000, 1, 0, false, true) && !judged(999, 1, 0, false, true));
        assert!(!judged(1000, 0, 1, false, true) && !judged(1000, 0, 0, true, true));
        assert!(judged(0, 0, 0, false, false) && !judged(0, 0, 0, false, true));
    }
}
