// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of a session that a server has announced: one SSRC from the first packet to the last.
//!
//! Where SETUP has named no SSRC, the first packet does; its address is that of the source, so who
//! copies the SSRC is another (RFC 3550 §8.2). Another address takes its place after
//! [`MOVED_AFTER`] of silence, as a standby does. A pause is taken out of the times that the jitter
//! is computed from, since the network did not cause it.
//!
//! Sources: RFC 3550 §8.2, A.1, A.8; RFC 2326 §12.33, Appendix B (a pause leaves no gap).
//! Does not follow another source: packets of one are foreign.

use std::net::SocketAddr;
use std::time::Duration;

use wire::rtp::{Header, Reception, SequenceUpdate};
use wire::sources::SourceStatus;

use super::SelectSource;

/// An announced source and its statistics.
#[derive(Debug)]
pub(crate) struct SingleSource {
    pub(crate) ssrc: Option<u32>,
    /// Where its packets come from, and when the last one did; none before the first.
    from: Option<(SocketAddr, Duration)>,
    pub(crate) reception: Reception,
    /// The sequence number of the first packet, where RTP-Info had named another and no loss
    /// explains the difference.
    pub(crate) first_received: Option<u16>,
    /// Until the first packet: the sequence number that RTP-Info has named, if it has.
    first: Option<Option<u16>>,
    confirmed: Option<u16>,
    clock_rate_hz: u32,
    timeline: Timeline,
}

/// SequenceUpdate times without the pauses.
#[derive(Debug, Default)]
struct Timeline {
    left_out: Duration,
    last: Option<(Duration, u32)>,
    is_new: bool,
}

impl SingleSource {
    /// The source of a stream whose RTP clock has this rate.
    pub(crate) fn new(ssrc: Option<u32>, clock_rate_hz: u32) -> SingleSource {
        SingleSource {
            ssrc,
            from: None,
            reception: Reception::new(clock_rate_hz),
            first_received: None,
            first: Some(None),
            confirmed: None,
            clock_rate_hz,
            timeline: Timeline::default(),
        }
    }

    /// Names the first sequence number; ignored once a packet has arrived.
    pub(crate) fn expect_first(&mut self, sequence: Option<u16>) {
        if let Some(first) = &mut self.first {
            *first = sequence;
        }
    }

    /// Begins a new clock, after a pause: its first packet is taken as punctual.
    pub(crate) fn renew_clock(&mut self) {
        self.timeline.is_new = true;
    }

    /// Begins the statistics at the announced number, if the first packet is not far behind it.
    fn begin(&mut self, announced: Option<u16>, found: u16) {
        match announced {
            Some(sequence) if found.wrapping_sub(sequence) < FIRST_DISTANCE_MAX => {
                self.reception = Reception::starting_at(self.clock_rate_hz, sequence);
                self.confirmed = Some(sequence);
            }
            Some(_) => self.first_received = Some(found),
            None => {}
        }
    }
}

impl SelectSource for SingleSource {
    fn receive(&mut self, header: &Header, from: SocketAddr, at: Duration) -> SourceStatus {
        let is_elsewhere = self
            .from
            .is_some_and(|(own, heard)| own != from && at.saturating_sub(heard) < MOVED_AFTER);
        if is_elsewhere || *self.ssrc.get_or_insert(header.ssrc) != header.ssrc {
            return SourceStatus::Foreign;
        }
        self.from = Some((from, at));
        if let Some(announced) = self.first.take() {
            self.begin(announced, header.sequence);
        }
        let time = self.timeline.at(at, header.timestamp, self.clock_rate_hz);
        let arrival = self.reception.receive(header, time);
        if !matches!(
            arrival,
            SequenceUpdate::Duplicate | SequenceUpdate::Stray | SequenceUpdate::Old
        ) {
            self.timeline.last = Some((time, header.timestamp));
        }
        SourceStatus::Followed(arrival)
    }

    fn followed(&self) -> Option<(Option<u32>, Option<SocketAddr>)> {
        self.ssrc.map(|ssrc| (Some(ssrc), self.from.map(|(from, _)| from)))
    }

    fn take_first(&mut self) -> Option<u16> {
        self.confirmed.take()
    }
}

impl Timeline {
    /// The time of an arrival. The first of a new clock is made to fit on the last of the old.
    fn at(&mut self, arrival: Duration, timestamp: u32, clock_rate_hz: u32) -> Duration {
        if std::mem::take(&mut self.is_new)
            && let Some((last, last_timestamp)) = self.last
        {
            let step = timestamp.wrapping_sub(last_timestamp).cast_signed().max(0);
            let due = last + Duration::from_secs(u64::from(step.unsigned_abs())) / clock_rate_hz;
            self.left_out = arrival.saturating_sub(due);
        }
        arrival.saturating_sub(self.left_out)
    }
}

/// Longer than the silence between the pictures of most cameras.
const MOVED_AFTER: Duration = Duration::from_millis(500);

/// A.1 MAX_DROPOUT: a first packet further on than this is no stream with a loss at its start.
const FIRST_DISTANCE_MAX: u16 = 3000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever knows an SSRC can write it into packets of its own.
    #[test]
    fn another_address_is_another_source_until_this_one_is_silent() {
        let mut source = SingleSource::new(None, 90_000);
        let ms = Duration::from_millis;
        let [own, other] = [5004, 6000].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let mut take = |sequence, from, at| {
            let header =
                Header { payload_type: 96, marker: false, sequence, timestamp: 0, ssrc: 7 };
            matches!(source.receive(&header, from, at), SourceStatus::Followed(_))
        };
        assert!(take(1, own, ms(0)));
        assert!(!take(2, other, ms(400)), "the same SSRC from another port");
        assert!(take(2, own, ms(450)));
        assert!(!take(3, other, ms(900)));
        assert!(take(3, other, ms(1000)), "a standby");
        assert!(!take(4, own, ms(1100)));
    }

    #[test]
    fn a_pause_is_taken_out_of_the_jitters_time() {
        let mut timeline = Timeline::default();
        let ms = Duration::from_millis;
        assert_eq!(timeline.at(ms(0), 0, 90_000), ms(0));
        timeline.last = Some((ms(0), 0));
        let time = timeline.at(ms(15), 900, 90_000);
        assert_eq!(time, ms(15));
        timeline.last = Some((time, 900));
        timeline.is_new = true;
        // Due 10 ms after the last, whenever it came; the next is late by what it is late.
        assert_eq!(timeline.at(ms(3000), 1800, 90_000), ms(25));
        assert_eq!(timeline.at(ms(3012), 2700, 90_000), ms(37));
    }
}
