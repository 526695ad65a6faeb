// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result of a scenario's group: figures for programs (serde), a few lines for people (`Display`).
//!
//! A group of sessions that read at full speed is *harmed* by a refused start, a session that the
//! server ended, a late or lost packet, or a play without packets. Sessions that read slowly or not
//! at all miss packets by their own fault; a refused start harms them, too.

use std::fmt;

use serde::Serialize;

use super::outcome::{EndReason, VerifiedSessions};
use super::scenario::GroupIdentity;
use crate::plural::counted;

/// Result of a group.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupOutcome {
    /// Name, behaviour, transport and number of sessions.
    #[serde(flatten)]
    pub group: GroupIdentity,
    /// True where the server did not serve the group properly.
    pub is_harmed: bool,
    /// Granted starts, from SETUP to PLAY: the first of each session, and reconnects.
    pub starts: u32,
    /// Granted seeks.
    pub seeks: u32,
    /// Pauses after which the session played again.
    pub pauses: u32,
    /// Granted starts except the first of each session.
    pub reconnects: u32,
    /// Refused starts, by reason.
    pub failed: Vec<EndReason>,
    /// Sessions that the server ended, by reason; a refused seek is included.
    pub ended: Vec<EndReason>,
    /// Time from the request of PLAY to the first packet after it.
    pub first_packet_ms: FirstPacketMs,
    /// Plays of two seconds and more without a packet.
    pub plays_without_packets: u32,
    /// Gaps in the packets of verified sessions. Over TCP the server has skipped them for a slow
    /// reader.
    pub reader_skips: u64,
    /// Figures of the verified sessions; of all sessions in a group that reads slowly or not at
    /// all.
    pub verified: VerifiedSessions,
    /// Figures of the others.
    pub counted: CountedVisits,
}

/// Times from PLAY to the first packet of verified sessions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FirstPacketMs {
    /// Number of plays.
    pub plays: u64,
    /// Median, in milliseconds.
    pub p50: f64,
    /// 99th percentile of the wait.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// Visits of sessions that are only counted: from SETUP to the end of an RTSP session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CountedVisits {
    /// Number of visits.
    pub visits: u32,
    /// Packets from PLAY to the end.
    pub packets: u64,
    /// Visits whose sender reported its total packet count at the end.
    pub accounted: u32,
    /// Visits whose sender did not, although TEARDOWN was sent.
    pub unaccounted: u32,
    /// Packets missing from accounted visits.
    pub lost: u64,
}

impl GroupOutcome {
    pub(super) fn is_at_fault(&self) -> bool {
        let GroupOutcome { group, verified, counted, .. } = self;
        let is_wrong = verified.bad_payload_size > 0
            || verified.different.is_some_and(|different| different > 0)
            || verified.tracks.iter().any(|track| track.malformed_packets > 0);
        let is_late = || {
            !self.ended.is_empty()
                || self.plays_without_packets > 0
                || verified.timely < verified.sessions
                || verified.tracks.iter().any(|track| track.broken_units > 0)
                || counted.lost > 0
                || counted.unaccounted > 0
        };
        !self.failed.is_empty() || is_wrong || group.is_judged && is_late()
    }
}

/// A few lines, each with its line end.
impl fmt::Display for GroupOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupOutcome { group, verified, counted: unverified, .. } = self;
        let verdict = match (self.is_harmed, group.is_judged) {
            (true, _) => "harmed",
            (false, true) => "well",
            (false, false) => "not judged",
        };
        let count = |count: u32, one, many| counted(count.into(), one, many);
        write!(f, "group {}: {} over {}, ", group.name, group.behaviour, group.transport)?;
        write!(f, "{}, ", count(group.sessions, "session", "sessions"))?;
        write!(f, "{}", count(self.starts, "start", "starts"))?;
        for (actions, one, many) in [
            (self.seeks, "seek", "seeks"),
            (self.pauses, "pause", "pauses"),
            (self.reconnects, "reconnect", "reconnects"),
        ] {
            if actions > 0 {
                write!(f, ", {}", count(actions, one, many))?;
            }
        }
        writeln!(f, ": {verdict}")?;
        let first = &self.first_packet_ms;
        if first.plays > 0 {
            let FirstPacketMs { plays, p50, p99, max } = first;
            writeln!(
                f,
                "  first       p50 {p50:.2}, p99 {p99:.2}, max {max:.2} ms from PLAY to the first \
                 packet, {}",
                counted(*plays, "play", "plays")
            )?;
        }
        if self.plays_without_packets > 0 {
            writeln!(f, "  silent      {} plays without a packet", self.plays_without_packets)?;
        }
        for EndReason { sessions, reason } in &self.failed {
            writeln!(f, "  refused     {sessions}: {reason}")?;
        }
        for EndReason { sessions, reason } in &self.ended {
            writeln!(f, "  ended       {sessions}: {reason}")?;
        }
        if verified.sessions > 0 {
            if group.is_judged {
                let VerifiedSessions { timely, sessions, .. } = verified;
                writeln!(f, "  timely      {timely} of the {sessions} verified")?;
            }
            writeln!(f, "  lateness    {}", verified.lateness_ms)?;
            writeln!(f, "  verified    {} bytes, {verified}", verified.bytes)?;
        }
        for track in &verified.tracks {
            writeln!(f, "  track       {track}")?;
        }
        if self.reader_skips > 0 {
            let skips = counted(self.reader_skips, "time", "times");
            writeln!(f, "  skipped     {skips}, {} packets at least", verified.lost)?;
        }
        if unverified.visits > 0 {
            let CountedVisits { visits, packets, accounted, lost, .. } = unverified;
            writeln!(
                f,
                "  counted     {packets} packets of {}; {lost} lost of what the senders of \
                 {accounted} say they sent",
                count(*visits, "visit", "visits")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::VerifiedTrack;
    use super::*;
    use crate::transport::StreamTransport;

    fn outcome(is_judged: bool) -> GroupOutcome {
        GroupOutcome {
            group: GroupIdentity {
                name: "zap".to_owned(),
                behaviour: "seek",
                transport: StreamTransport::Tcp,
                is_judged,
                sessions: 20,
            },
            is_harmed: false,
            starts: 20,
            seeks: 1,
            pauses: 0,
            reconnects: 0,
            failed: Vec::new(),
            ended: Vec::new(),
            first_packet_ms: FirstPacketMs { plays: 21, p50: 1.25, p99: 4.0, max: 5.0 },
            plays_without_packets: 0,
            reader_skips: 0,
            verified: VerifiedSessions { sessions: 3, timely: 3, ..VerifiedSessions::default() },
            counted: CountedVisits { visits: 17, accounted: 17, ..CountedVisits::default() },
        }
    }

    #[test]
    fn lines_name_group_behaviour_actions_and_verdict() {
        let text = outcome(true).to_string();
        let first = "group zap: seek over tcp, 20 sessions, 20 starts, 1 seek: well\n";
        assert!(text.starts_with(first), "{text}");
        let words =
            "  first       p50 1.25, p99 4.00, max 5.00 ms from PLAY to the first packet, 21";
        assert!(text.contains(words) && text.contains("  timely      3 of the 3 "), "{text}");
        assert!(text.contains("0 packets of 17 visits; 0 lost of what the senders of 17 say"));
        let mut slow = outcome(false);
        (slow.reader_skips, slow.verified.lost) = (2, 700);
        let text = slow.to_string();
        assert!(text.contains(": not judged\n") && !text.contains("timely"), "{text}");
        assert!(text.contains("  skipped     2 times, 700 packets at least\n"), "{text}");
    }

    #[test]
    fn each_fault_harms_and_slowness_is_none_of_a_slow_group() {
        let reason = || vec![EndReason { sessions: 1, reason: "453".to_owned() }];
        let track = |broken_units, malformed_packets| VerifiedTrack {
            broken_units,
            malformed_packets,
            ..VerifiedTrack::default()
        };
        let late: [fn(&mut GroupOutcome); 4] = [
            |o| o.plays_without_packets = 1,
            |o| o.verified.timely = 2,
            |o| o.counted.lost = 1,
            |o| o.counted.unaccounted = 1,
        ];
        let check = |change: &dyn Fn(&mut GroupOutcome), harms_slow: bool| {
            let (mut good, mut slow) = (outcome(true), outcome(false));
            assert!(!good.is_at_fault() && !slow.is_at_fault());
            change(&mut good);
            change(&mut slow);
            assert_eq!((good.is_at_fault(), slow.is_at_fault()), (true, harms_slow));
        };
        late.iter().for_each(|change| check(change, false));
        check(&|o| o.ended = reason(), false);
        check(&|o| o.failed = reason(), true);
        check(&|o| o.verified.tracks.push(track(1, 0)), false);
        check(&|o| o.verified.tracks.push(track(0, 1)), true);
        check(&|o| o.verified.bad_payload_size = 1, true);
        check(&|o| o.verified.different = Some(1), true);
    }
}
