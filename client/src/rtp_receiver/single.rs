// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows the source of a session that a server has announced: one address for the whole session,
//! with any SSRC.
//!
//! Some cameras change their SSRC with each group of pictures, or send another than SETUP has
//! named; a sender that detects a collision of its SSRC changes it, too (RFC 3550 §8.2). If
//! sequence numbers and timestamps continue, so does the stream. If they do not, two consecutive
//! packets begin a new sequence. An SSRC that was abandoned in this way is followed again only
//! after a silence, so that two concurrent senders do not alternate. The same SSRC at another
//! address is another source. Another address, such as that of a standby sender, is followed after
//! [`MOVED_AFTER`] of silence. A pause is subtracted from the times that the jitter is computed
//! from, since the network did not cause it.
//!
//! Sources: RFC 3550 §8.2, A.1, A.8; RFC 2326 §12.33, Appendix B (a pause leaves no gap).
//! Does not follow two addresses at once: packets of the other one are foreign.

use std::net::SocketAddr;
use std::time::Duration;

use wire::rtp::{Header, Reception, SequenceUpdate};
use wire::sources::SourceStatus;

use super::SelectSource;

/// An announced source and its statistics.
#[derive(Debug)]
pub(crate) struct SingleSource {
    pub(crate) ssrc: Option<u32>,
    /// Source address of its packets, and the arrival of the last one; none before the first.
    from: Option<(SocketAddr, Duration)>,
    pub(crate) reception: Reception,
    /// The sequence number of the first packet, where RTP-Info had named another and no loss
    /// explains the difference.
    pub(crate) first_received: Option<u16>,
    /// The sequence number in RTP-Info, if any; the outer option is none after the first packet.
    first: Option<Option<u16>>,
    confirmed: Option<u16>,
    clock_rate_hz: u32,
    timeline: Timeline,
    /// The first packet of another SSRC whose sequence numbers do not continue.
    contender: Option<(Header, Duration)>,
    /// SSRCs that were followed before, the latest first.
    left: [Option<u32>; 4],
}

/// Times of arrival without the pauses.
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
            contender: None,
            left: [None; 4],
        }
    }

    /// Sets the first sequence number; ignored once a packet has arrived.
    pub(crate) fn expect_first(&mut self, sequence: Option<u16>) {
        if let Some(first) = &mut self.first {
            *first = sequence;
        }
    }

    /// Starts a new clock after a pause: its first packet counts as punctual.
    pub(crate) fn renew_clock(&mut self) {
        self.timeline.is_new = true;
    }

    /// Begins the statistics at the announced number, unless the first packet is far after it.
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

impl SingleSource {
    /// True where a packet of another SSRC continues the sequence numbers and timestamps, or is a
    /// late packet of an SSRC followed before.
    fn continues(&self, header: &Header) -> bool {
        let Some((_, last)) = self.timeline.last else { return false };
        let highest = self.reception.highest_sequence() as u16;
        let ahead = header.sequence.wrapping_sub(highest).cast_signed();
        let stamps = header.timestamp.wrapping_sub(last).cast_signed().unsigned_abs();
        let is_near = ahead != 0 && ahead.unsigned_abs() <= NEAR_PACKETS;
        is_near
            && stamps <= self.clock_rate_hz.saturating_mul(NEAR_S)
            && (ahead > 0 || self.left.contains(&Some(header.ssrc)))
    }

    /// Follows another SSRC of the sender.
    fn change(&mut self, ssrc: u32) {
        self.left.rotate_right(1);
        self.left[0] = self.ssrc.replace(ssrc);
    }

    /// Begins a new sequence with two consecutive packets of another SSRC; `None` after the first,
    /// which waits.
    fn contend(&mut self, header: &Header, at: Duration) -> Option<SequenceUpdate> {
        let first = self.contender.replace((*header, at));
        let is_next = |(first, _): &(Header, Duration)| {
            first.ssrc == header.ssrc && first.sequence.wrapping_add(1) == header.sequence
        };
        let (first, arrived_at) = first.filter(is_next)?;
        self.change(header.ssrc);
        if self.from.is_some() {
            self.reception.restart();
        }
        (self.timeline.is_new, self.timeline.last) = (false, None);
        self.note(&first, arrived_at);
        Some(self.note(header, at))
    }

    /// Counts a packet of the source.
    fn note(&mut self, header: &Header, at: Duration) -> SequenceUpdate {
        self.contender = None;
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
        arrival
    }
}

impl SelectSource for SingleSource {
    fn receive(&mut self, header: &Header, from: SocketAddr, at: Duration) -> SourceStatus {
        let is_heard =
            |(_, heard): &(SocketAddr, Duration)| at.saturating_sub(*heard) < MOVED_AFTER;
        let heard = self.from.filter(is_heard);
        if heard.is_some_and(|(own, _)| own != from) {
            return SourceStatus::Foreign;
        }
        let followed = *self.ssrc.get_or_insert(header.ssrc);
        if followed != header.ssrc {
            if !self.continues(header) {
                if heard.is_some() && self.left.contains(&Some(header.ssrc)) {
                    return SourceStatus::Foreign;
                }
                let Some(update) = self.contend(header, at) else { return SourceStatus::Waiting };
                self.from = Some((from, at));
                return SourceStatus::Chosen(update);
            }
            let highest = self.reception.highest_sequence() as u16;
            if header.sequence.wrapping_sub(highest).cast_signed() > 0 {
                self.change(header.ssrc);
            }
        }
        self.from = Some((from, at));
        SourceStatus::Followed(self.note(header, at))
    }

    fn followed(&self) -> Option<(Option<u32>, Option<SocketAddr>)> {
        self.ssrc.map(|ssrc| (Some(ssrc), self.from.map(|(from, _)| from)))
    }

    fn take_first(&mut self) -> Option<u16> {
        self.confirmed.take()
    }
}

impl Timeline {
    /// The time of an arrival without the pauses. The first packet of a new clock is placed at its
    /// due time after the last packet of the old one.
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

/// Sequence numbers and timestamps of another SSRC continue the stream within these bounds: A.1's
/// MAX_MISORDER, and more than the time between two pictures.
const NEAR_PACKETS: u16 = 100;
const NEAR_S: u32 = 10;

/// A.1 MAX_DROPOUT: a larger distance of the first packet is not explained by loss at the start.
const FIRST_DISTANCE_MAX: u16 = 3000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Any sender that has learnt an SSRC can write it into its own packets.
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
        // Due 10 ms after the last, at any time of arrival; the lateness of the next packet is
        // unchanged.
        assert_eq!(timeline.at(ms(3000), 1800, 90_000), ms(25));
        assert_eq!(timeline.at(ms(3012), 2700, 90_000), ms(37));
    }
}
