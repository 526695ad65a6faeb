// SPDX-License-Identifier: MIT OR Apache-2.0
//! The media of one play: its content, its position, its end, and the offset of its sequence
//! numbers and timestamps.
//!
//! | | packets | samples |
//! |---|---|---|
//! | content | a transport stream or a channel | tracks of a file; its pictures at another rate |
//! | position and end | packets of the packet plan | due times |
//! | offset | [`Shift`] | ticks added to presentation time |
//!
//! PLAY, its queue, its response and the sender reports use a span of either kind alike. Costs two
//! binary searches a call.
//!
//! Sources: RFC 2326 §10.5, §12.33, Appendix B.
//! Does not choose positions ([`super::wanted_play`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use clock::Moment;
use media::TICKS_PER_SECOND;
use media::tracks::Presentation;
use wire::rtsp::RangeUnit;

use super::play_range::began;
use super::stream_session::{RtpStream, SessionContent};
use crate::library::asset::Source;
use crate::library::track_asset::TrackSource;
use crate::pacer::{PlayStart, StreamLead, TrackPlace, TrackStart};
use crate::play::{Progress, Shift, Speed};
use media::duration_of;

/// The media of one play.
#[derive(Clone)]
pub(crate) enum PlaySpan {
    Packets(PacketSpan),
    Samples(SampleSpan),
}

/// Packets of a transport stream or a channel.
#[derive(Clone)]
pub(crate) struct PacketSpan {
    /// The session's own source, which leads to newer ones ([`Source::holding`]).
    pub(crate) source: Arc<Source>,
    /// The next packet.
    pub(crate) next: u64,
    /// Packet before which the play ends.
    pub(crate) end: u64,
    pub(crate) shift: Shift,
}

/// Samples of the tracks of a file, or of its pictures at another rate.
#[derive(Clone)]
pub(crate) struct SampleSpan {
    pub(crate) source: Arc<TrackSource>,
    /// Due time of the next sample of the leading track.
    pub(crate) next_ticks: u64,
    /// Presentation time of that sample.
    pub(crate) presented_ticks: i64,
    /// Due time before which packets are sent; `u64::MAX` for the end of the file.
    pub(crate) end_ticks: u64,
    /// Ticks added to presentation time.
    pub(crate) shift_ticks: i64,
}

impl PlaySpan {
    /// Returns the media of a new session, which begins at the start of a file.
    pub(crate) fn whole(content: &SessionContent) -> PlaySpan {
        match content {
            SessionContent::Stream(source) => PlaySpan::Packets(PacketSpan {
                // A viewer of a channel joins at the channel's position at the time of PLAY.
                next: if source.asset.channel_parts().is_some() { u64::MAX } else { 0 },
                end: source.limit(),
                shift: Shift::default(),
                source: source.clone(),
            }),
            SessionContent::Tracks(source) => PlaySpan::Samples(SampleSpan {
                source: source.clone(),
                next_ticks: 0,
                presented_ticks: 0,
                end_ticks: u64::MAX,
                shift_ticks: 0,
            }),
        }
    }

    /// Sets the position at which the pacer has stopped: a packet, or a due time.
    pub(super) fn stop_at(&mut self, position: u64) {
        match self {
            PlaySpan::Packets(span) => span.next = position,
            PlaySpan::Samples(span) => span.set_next(position),
        }
    }

    /// Sets the position to the beginning of the file.
    pub(super) fn rewind(&mut self) {
        self.stop_at(0);
    }

    /// Returns the media still to be sent, from the position that the pacer reports.
    pub(super) fn under_way(&self, progress: &Progress, now: Instant) -> PlaySpan {
        let mut span = self.clone();
        match &mut span {
            PlaySpan::Packets(span) => {
                (span.next, span.shift) = (progress.next, span.shift.before(progress.ahead));
            }
            PlaySpan::Samples(span) => {
                let due = progress.clock.map(|clock| clock.ticks_at(now));
                let due = due.unwrap_or(span.next_ticks);
                let newest = span.source.newest();
                span.set_next(due.min(newest.asset.presentation.duration_ticks()));
            }
        }
        span
    }

    /// True for a play whose end lies before that of the file.
    pub(super) fn is_piece(&self) -> bool {
        let (all_ticks, end_ticks) = match self {
            PlaySpan::Packets(span) => {
                // A recording may have become complete meanwhile.
                let source = span.source.newest();
                if source.asset.continues() {
                    return span.end < source.limit();
                }
                let plan = &source.asset.plan;
                (plan.duration_ticks(), plan.ticks(span.end.min(plan.packets())))
            }
            PlaySpan::Samples(span) => {
                let asset = &span.source.newest().asset;
                if asset.is_growing() {
                    return span.end_ticks < u64::MAX;
                }
                (asset.presentation.duration_ticks(), span.end_ticks)
            }
        };
        is_before_end(end_ticks, all_ticks)
    }

    /// Returns the end: a packet, or a due time.
    pub(super) fn end(&self) -> u64 {
        match self {
            PlaySpan::Packets(span) => span.end,
            PlaySpan::Samples(span) => span.end_ticks,
        }
    }

    /// Returns the time range that a response names; no end for media that is still growing.
    pub(super) fn times(&self, unit: RangeUnit, now: Moment) -> (Duration, Option<Duration>) {
        match self {
            PlaySpan::Packets(span) => span.times(unit, now),
            PlaySpan::Samples(span) => span.times(),
        }
    }

    /// Returns the RTP coordinates of the first packet on a stream: its sequence number, which for
    /// samples is the stream's next, and its timestamp. `None` for a stream that is silent.
    pub(super) fn coordinates(&self, stream: &RtpStream) -> Option<(u16, u32)> {
        match self {
            PlaySpan::Packets(span) => Some(span.coordinates(span.next)),
            PlaySpan::Samples(span) => {
                let index = span.source.asset.index_of(stream.track)?;
                let track = &span.source.asset.presentation.tracks()[index];
                let timestamp = track.timestamp(span.presented_ticks + span.shift_ticks);
                Some((stream.link.progress().next as u16, timestamp))
            }
        }
    }
}

impl PacketSpan {
    /// Returns the sequence number and the timestamp of a packet.
    pub(super) fn coordinates(&self, packet: u64) -> (u16, u32) {
        let holding = self.source.holding(packet);
        let number = packet.wrapping_sub(holding.asset.first_packet()) as u16;
        let sequence = holding.asset.plan.identity().first_sequence.wrapping_add(number);
        let timestamp = holding.timestamp_of(packet);
        let Shift { sequence: by, timestamp: by_units } = self.shift;
        (sequence.wrapping_add(by), timestamp.wrapping_add(by_units))
    }

    /// Returns the lead if it belongs to these packets.
    pub(super) fn lead(&self, lead: Option<&StreamLead>) -> Option<StreamLead> {
        lead.filter(|lead| lead.is_of(&(self.next..self.end))).cloned()
    }

    /// Returns the play that sends these packets, and the span shifted by its lead, which is sent
    /// in place of the first packets.
    pub(super) fn start(&self, speed: Speed, lead: Option<StreamLead>) -> (PacketSpan, PlayStart) {
        let span = PacketSpan { shift: self.shift.behind(lead.as_ref()), ..self.clone() };
        let (source, packets) = (span.source.holding(span.next), span.next..span.end);
        let start = PlayStart::Stream { source, shift: span.shift, speed, packets, lead };
        (span, start)
    }

    fn times(&self, unit: RangeUnit, now: Moment) -> (Duration, Option<Duration>) {
        let source = self.source.holding(self.next);
        let (asset, plan) = (&source.asset, &source.asset.plan);
        let first = asset.first_packet();
        let part = self.next.saturating_sub(first)..self.end.saturating_sub(first);
        // The length follows RTP timestamps, which clients relate to this range (§12.33).
        let length = plan.ticks(part.end).saturating_sub(plan.ticks(part.start));
        let start = asset.first_ticks() + plan.presented_ticks(part.start.min(plan.packets() - 1));
        let is_open = asset.continues() && part.end > source.end();
        // A range in clock time (§3.7) is answered in clock time.
        let is_by_day = unit == RangeUnit::Clock;
        let parts = asset.channel_parts().filter(|_| is_by_day);
        let began = parts.and_then(|parts| began(parts, now));
        let time = |ticks| began.unwrap_or_default() + duration_of(ticks);
        (time(start), (!is_open).then(|| time(start + length)))
    }
}

impl SampleSpan {
    fn set_next(&mut self, due_ticks: u64) {
        self.next_ticks = due_ticks;
        self.presented_ticks = self.source.asset.presentation.presented_of_due(due_ticks);
    }

    /// Returns the play that sends these samples. `sequence` is the first number of pictures that
    /// follow a transport stream; without a place, each track continues with its next packet.
    pub(super) fn start(&self, speed: Speed, sequence: u16, at: Option<TrackPlace>) -> PlayStart {
        let (source, limit_ticks) = (self.source.clone(), self.end_ticks);
        PlayStart::Tracks(TrackStart { source, sequence, speed, at, limit_ticks })
    }

    /// Returns the positions of all tracks. Tracks other than the leading one are sent whole from
    /// the start of the file.
    pub(super) fn place(&self) -> TrackPlace {
        let presentation = &self.source.asset.presentation;
        let other_ticks = match self.next_ticks {
            0 => 0,
            _ => presentation.due_of_presented(self.presented_ticks),
        };
        let (leading_ticks, shift_ticks) = (self.next_ticks, self.shift_ticks);
        TrackPlace { leading_ticks, other_ticks, shift_ticks }
    }

    fn times(&self) -> (Duration, Option<Duration>) {
        let asset = &self.source.newest().asset;
        let (presentation, timeline) = (&asset.presentation, asset.timeline());
        let is_backwards = timeline.scale().is_backwards();
        let in_file = |shown: i64| timeline.file_ticks(shown.max(0) as u64);
        let start = in_file(self.presented_ticks);
        let end = match self.end_ticks {
            u64::MAX if is_backwards => 0,
            u64::MAX if asset.is_trick() => timeline.file_end_ticks(),
            u64::MAX => named_end_ticks(presentation),
            end => in_file(presentation.presented_of_due(end)),
        };
        let end = if is_backwards { end.min(start) } else { end.max(start) };
        let is_open = asset.is_growing() && self.end_ticks == u64::MAX;
        (duration_of(start), (!is_open).then(|| duration_of(end)))
    }
}

/// Returns the end of a whole presentation as descriptions and ranges name it: the end of sending
/// plus a quarter of a second. Sending takes longer than the presentation, by the time that samples
/// are decoded ahead. GStreamer ends a stream when the stream's timestamps reach the named end
/// (rtpjitterbuffer, estimated EOS), and would lose packets that are due then; BYE signals the real
/// end.
pub(super) fn named_end_ticks(presentation: &Presentation) -> u64 {
    presentation.presented_end_ticks().max(presentation.duration_ticks()) + TICKS_PER_SECOND / 4
}

/// True if a play ends before a file of this duration does, by more than clients' rounding.
fn is_before_end(end_ticks: u64, all_ticks: u64) -> bool {
    all_ticks.saturating_sub(end_ticks) > END_ROUNDING_TICKS
}

/// A client may round the end of the file to one decimal.
const END_ROUNDING_TICKS: u64 = TICKS_PER_SECOND / 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_film_is_no_end_however_it_is_rounded() {
        let ticks = |ms: u64| ms * TICKS_PER_SECOND / 1000;
        for named_ms in [12_008, 12_000, 11_909, 12_330] {
            assert!(!is_before_end(ticks(named_ms), ticks(12_008)), "{named_ms}");
        }
        assert!(!is_before_end(u64::MAX, ticks(12_008)), "an open end");
        assert!(is_before_end(ticks(11_900), ticks(12_008)));
    }
}
