// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces the current play of a session by another one.
//!
//! A play begins at the requested position, or where the last one stopped. A play of the same
//! content continues with the next packet. A play of another form of it (the file instead of its
//! pictures at another rate, or the reverse) continues at the same time in the file. Sequence
//! numbers and timestamps continue in either case. Costs some binary searches in the packet plan.
//!
//! Sources: RFC 2326 §10.5, §10.6, §12.34, Appendix B.
//! Does not command the pacer ([`super::pending_play`]).

use std::sync::Arc;
use std::time::Instant;

use media::tracks::Entry;

use super::play_queue::QueuedPlay;
use super::play_span::{PacketSpan, PlaySpan, SampleSpan};
use super::resume_position::ResumePosition;
use super::stream_session::{SessionControl, StreamSession};
use super::wanted_play::{WantedMedia, WantedPlay};
use crate::library::asset::Source;
use crate::library::track_asset::TrackSource;
use crate::pacer::{PlayStart, StreamLead, TrackPlace};
use crate::play::Shift;

/// A play, as its response reports it.
pub(super) struct AnsweredPlay {
    pub(super) span: PlaySpan,
    pub(super) sequence: FirstSequence,
}

/// First sequence number of a play on each stream.
#[derive(Clone, Copy)]
pub(super) enum FirstSequence {
    /// That of the stream's next packet.
    OfNextPacket,
    /// This one, if it is known.
    Known(Option<u16>),
}

impl AnsweredPlay {
    pub(super) fn queued(play: &QueuedPlay) -> AnsweredPlay {
        AnsweredPlay { span: play.span.clone(), sequence: FirstSequence::Known(play.sequence) }
    }
}

impl SessionControl {
    /// Returns what the response to a repeated PLAY reports: the last queued play if the request
    /// names a start, otherwise the rest of the current play.
    pub(super) fn under_way(
        &self,
        session: &StreamSession,
        wanted: &WantedPlay,
        now: Instant,
    ) -> AnsweredPlay {
        match self.queue.back().filter(|_| wanted.names_start()) {
            Some(last) => AnsweredPlay::queued(last),
            None => AnsweredPlay {
                span: self.span.under_way(&session.first_stream().link.progress(), now),
                sequence: FirstSequence::OfNextPacket,
            },
        }
    }

    /// Discards the queue, and adopts the position at which the pacer has stopped the current play,
    /// if it has.
    pub(super) fn stopped(&mut self, session: &StreamSession, position: Option<u64>) {
        self.catch_up(session);
        self.queue.clear();
        if let Some(position) = position {
            self.span.stop_at(position);
            self.is_paused = true;
        }
    }

    /// Makes a PLAY the current play; the session does not send. Returns the start for the pacer,
    /// and the play as the response reports it.
    pub(super) fn begin(
        &mut self,
        session: &StreamSession,
        wanted: &WantedPlay,
    ) -> (PlayStart, AnsweredPlay) {
        let position = ResumePosition::of(session, self);
        let (answered, span, start) = match &wanted.media {
            WantedMedia::Packets { own, source, from, end, lead } => {
                let begun = self.packets(&position, (own, source), (*from, *end));
                let lead = begun.lead(lead.as_ref());
                let room = lead.as_ref().map_or(0, StreamLead::room);
                // The next jump is computed from here, even if no packet is sent before it.
                session.first_stream().link.start_at(begun.next, room);
                let (span, start) = begun.start(wanted.speed, lead);
                (PlaySpan::Packets(begun), PlaySpan::Packets(span), start)
            }
            WantedMedia::Samples { source, entry, end_ticks } => {
                if matches!(self.span, PlaySpan::Packets(_)) {
                    // For tracks, the position in the link is a sequence number.
                    session.first_stream().link.start_at(position.sequence.into(), 0);
                }
                let (span, place) = self.samples(&position, source, (*entry, *end_ticks));
                let start = span.start(wanted.speed, position.sequence, place);
                (PlaySpan::Samples(span.clone()), PlaySpan::Samples(span), start)
            }
        };
        (self.span, self.speed) = (span, wanted.speed);
        self.asked = wanted.asked.range.map_or(self.asked, |_| Some(wanted.asked));
        (self.is_paused, self.has_new_track, self.bye_sent) = (false, false, false);
        self.under_way = self.next_number();
        (start, AnsweredPlay { span: answered, sequence: FirstSequence::OfNextPacket })
    }

    /// Returns the packet with which a play of `source` without a start begins.
    pub(super) fn resume_packet(&self, source: &Source) -> u64 {
        match &self.span {
            PlaySpan::Packets(span) => span.next,
            PlaySpan::Samples(_) if self.is_paused => {
                source.asset.plan.entry(self.span.file_ticks())
            }
            PlaySpan::Samples(_) => 0,
        }
    }

    /// Returns the packets of a play that begins now. Without a range it keeps the end of the last
    /// play, or the end of the file if that is passed. `source` is the newest state of the source
    /// that the session has (`own`), which the span keeps.
    fn packets(
        &self,
        position: &ResumePosition,
        (own, source): (&Arc<Source>, &Source),
        (from, end): (Option<u64>, Option<u64>),
    ) -> PacketSpan {
        let next = source.playable(from.unwrap_or_else(|| self.resume_packet(source)));
        let kept = match &self.span {
            PlaySpan::Packets(span) => Some(span),
            PlaySpan::Samples(_) => None,
        };
        let kept_end = kept.map(|span| span.end).filter(|&end| end > next);
        let end = end.or(kept_end).unwrap_or_else(|| source.limit());
        if kept.is_some() && !position.has_sent {
            // A session that has sent nothing uses the file's own sequence numbers and timestamps,
            // which the wire image contains.
            return PacketSpan { source: own.clone(), next, end, shift: Shift::default() };
        }
        let coordinates = (position.sequence, position.time.timestamp);
        PacketSpan::landing(own, (next, end), coordinates)
    }

    /// Returns the samples of a play that begins now, and the positions of its tracks; `None` if
    /// each continues with its next packet.
    fn samples(
        &self,
        position: &ResumePosition,
        source: &Arc<TrackSource>,
        (entry, end_ticks): (Option<Entry>, Option<u64>),
    ) -> (SampleSpan, Option<TrackPlace>) {
        let kept = match &self.span {
            PlaySpan::Samples(span) if source.is_content_of(&span.source) => Some(span),
            _ => None,
        };
        let kept_end = || kept.map_or(u64::MAX, |span| span.end_ticks);
        let end_ticks = end_ticks.unwrap_or_else(kept_end);
        let continues = entry.is_none() && self.is_paused && !self.has_new_track;
        if let Some(span) = kept.filter(|span| continues && span.next_ticks < end_ticks) {
            return (SampleSpan { end_ticks, ..span.clone() }, None);
        }
        let asset = &source.asset;
        let here = position.file_ticks.filter(|_| kept.is_none() || self.has_new_track);
        let here = here.map_or(0, |at| asset.timeline().ticks(at));
        let entry = entry.unwrap_or_else(|| asset.presentation.entry(here));
        let time = position.has_sent.then_some(position.time);
        let span = SampleSpan::landing(source, (entry, end_ticks), time);
        let place = span.place();
        (span, Some(place))
    }
}
