// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues plays behind the current one of a session, for clients that play a list of pieces.
//!
//! A piece is a play whose end the client has named. A PLAY with a Range that arrives during a
//! piece is queued and begins exactly where the last of the preceding plays ends (RFC 2326 §10.5:
//! `npt=10-15`, `npt=20-25` and `npt=30-` are played one after the other). Any other PLAY takes
//! effect at once:
//!
//! | PLAY while playing | effect |
//! |---|---|
//! | with a Range, behind a piece | queued; the response is sent at once |
//! | with a Range, behind a play without an end, also a queued one | at once: a seek |
//! | the last request again, behind a piece | a keep-alive |
//! | without a Range, or from `now` | at once: another Scale or Speed, or a keep-alive |
//!
//! A seek and another Scale or Speed discard the queue. So does PAUSE, which players send before
//! they seek (rtspsrc of GStreamer 1.22; the RTSP demuxer of ffmpeg, thus mpv). The first PLAY of
//! rtspsrc names the end of the file, so a play that ends there is no piece. Channels have no end,
//! so their plays are never pieces.
//!
//! The response names the first sequence number if it is known: for a transport stream at its
//! normal rate. Packets of tracks are counted when they are sent.
//!
//! Sources: RFC 2326 §10.5, §10.6, §12.33, Appendix B.
//! Does not send: the pacer begins a queued play itself ([`crate::pacer`]), and the control side
//! adopts it in [`SessionControl::catch_up`].

use std::sync::Arc;

use media::tracks::Entry;
use media::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP};
use wire::rtsp::{PlayRequest, Request, Response};

use super::pending_play::PendingPlay;
use super::play_tracks::other_ticks;
use super::resume_position::coordinates;
use super::stream_session::{Played, SessionContent, SessionControl, StreamSession};
use crate::library::asset::Source;
use crate::library::track_asset::TrackSource;
use crate::pacer::{PlayStart, StreamLead, TrackPlace, TrackStart};
use crate::play::{Shift, Speed};

/// A play that is accepted and waits for the preceding plays to end.
pub(crate) struct QueuedPlay {
    /// Number of the PLAY in its session.
    pub(super) number: u64,
    /// The request as received.
    asked: PlayRequest,
    /// First packet and end; due times for tracks.
    pub(super) from: u64,
    pub(super) end: u64,
    pub(super) shift: Shift,
    pub(super) shift_ticks: i64,
    trick: Option<Arc<TrackSource>>,
    speed: Speed,
    /// First sequence number of the first stream, if it is known.
    pub(super) sequence: Option<u16>,
    /// Presentation time of its start; for tracks only.
    pub(super) presented_ticks: i64,
}

/// Effect of a PLAY while another is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlayPlace {
    AtOnce,
    /// Repeats the latest request.
    Repeats,
    Queued,
    /// The queue is full.
    Refused,
}

/// End of the last play that was requested.
struct QueueEnd {
    /// Sequence number that follows on the first stream, if it is known.
    sequence: Option<u16>,
    /// Timestamp that follows on the first stream.
    timestamp: u32,
    /// End of all media sent until then, on the timeline of RTP timestamps, in ticks.
    ticks: i64,
}

impl SessionControl {
    /// Adopts the queued plays that the pacer has begun since the last call.
    pub(super) fn catch_up(&mut self, session: &StreamSession) {
        if self.queue.is_empty() {
            return;
        }
        let progress = session.first_stream().link.progress();
        while self.queue.front().is_some_and(|next| next.number <= progress.play) {
            let begun = self.queue.pop_front().expect("it has a front");
            (self.under_way, self.asked) = (begun.number, Some(begun.asked));
            (self.resume, self.end, self.is_paused) = (begun.from, begun.end, false);
            (self.shift_ticks, self.trick, self.speed) =
                (begun.shift_ticks, begun.trick, begun.speed);
            self.shift = progress.shift;
        }
    }

    /// Returns the effect of this request while a play is under way. `names_start` is false for a
    /// request that continues from the current position.
    pub(super) fn place_of(
        &self,
        content: &SessionContent,
        asked: &PlayRequest,
        names_start: bool,
    ) -> PlayPlace {
        let (played, end) = self.last(content);
        if !names_start || !is_piece(&played, end) {
            return PlayPlace::AtOnce;
        }
        let last = self.queue.back().map_or(self.asked, |last| Some(last.asked));
        behind_a_piece(asked, last, self.queue.len())
    }

    /// Returns the content of the last play that was requested, and its end.
    fn last<'a>(&'a self, content: &'a SessionContent) -> (Played<'a>, u64) {
        match self.queue.back() {
            Some(last) => (Played::of(last.trick.as_ref(), content), last.end),
            None => (self.played(content), self.end),
        }
    }

    fn queue_end(&self, content: &SessionContent) -> QueueEnd {
        let (played, end) = self.last(content);
        let (shift, shift_ticks, knows_sequence) = match self.queue.back() {
            Some(last) => (last.shift, last.shift_ticks, last.sequence.is_some()),
            None => (self.shift, self.shift_ticks, true),
        };
        match played {
            Played::Stream(source) => {
                let (sequence, timestamp) = coordinates(source, shift, end);
                let first = source.asset.plan.identity().first_timestamp;
                let units = i64::from(timestamp.wrapping_sub(first));
                let sequence = knows_sequence.then_some(sequence);
                QueueEnd { sequence, timestamp, ticks: units * TICKS_PER_TIMESTAMP as i64 }
            }
            Played::Tracks(source) => {
                let presentation = &source.asset.presentation;
                let end = presentation.duration_ticks().min(end);
                let ticks = presentation.presented_behind(end) + shift_ticks;
                let timestamp = presentation.tracks()[0].timestamp(ticks);
                QueueEnd { sequence: None, timestamp, ticks }
            }
        }
    }

    /// Queues packets `from..end` of a transport stream.
    pub(super) fn queue_stream(
        &mut self,
        session: &Arc<StreamSession>,
        (asked, speed): (PlayRequest, Speed),
        source: &Arc<Source>,
        (from, end): (u64, u64),
        lead: Option<&StreamLead>,
    ) -> PendingPlay {
        let behind = self.queue_end(&session.content);
        let landing = (behind.sequence.unwrap_or_default(), behind.timestamp);
        let lead = lead.filter(|lead| lead.is_of(&(from..end)));
        let shift = Shift::landing(source, landing, from).behind(lead);
        let (held, lead) = (source.holding(from), lead.cloned());
        let start = PlayStart::Stream { source: held, shift, speed, packets: from..end, lead };
        let (shift_ticks, trick, sequence) = (self.shift_ticks, None, behind.sequence);
        let (number, presented_ticks) = (self.next_number(), 0);
        self.queue.push_back(QueuedPlay {
            number,
            asked,
            from,
            end,
            shift,
            shift_ticks,
            trick,
            speed,
            sequence,
            presented_ticks,
        });
        PendingPlay { session: session.clone(), play: number, start }
    }

    /// Queues tracks, or the pictures of a file at another rate, from a random-access point to a
    /// due time.
    pub(super) fn queue_tracks(
        &mut self,
        session: &Arc<StreamSession>,
        (asked, speed): (PlayRequest, Speed),
        source: &Arc<TrackSource>,
        (entry, limit_ticks): (Entry, u64),
    ) -> PendingPlay {
        let behind = self.queue_end(&session.content);
        let presented_ticks = entry.presented_ticks as i64;
        let shift_ticks = behind.ticks - presented_ticks;
        let place = TrackPlace {
            leading_ticks: entry.due_ticks,
            other_ticks: other_ticks(&source.asset.presentation, entry),
            shift_ticks,
        };
        // Tracks continue their own sequence numbers; the pacer counts those of a transport stream.
        let sequence = behind.sequence.unwrap_or_default();
        let (source, at) = (source.clone(), Some(place));
        let trick = source.asset.is_trick().then(|| source.clone());
        let start = PlayStart::Tracks(TrackStart { source, sequence, speed, at, limit_ticks });
        let number = self.next_number();
        self.queue.push_back(QueuedPlay {
            number,
            asked,
            from: entry.due_ticks,
            end: limit_ticks,
            shift: self.shift,
            shift_ticks,
            trick,
            speed,
            sequence: behind.sequence,
            presented_ticks,
        });
        PendingPlay { session: session.clone(), play: number, start }
    }

    /// Returns the number for a new PLAY.
    pub(super) fn next_number(&mut self) -> u64 {
        self.play += 1;
        self.play
    }
}

/// Returns the effect of a request that names a start, behind a piece requested by `last` and this
/// number of queued plays.
fn behind_a_piece(asked: &PlayRequest, last: Option<PlayRequest>, queued: usize) -> PlayPlace {
    if last == Some(*asked) {
        PlayPlace::Repeats
    } else if queued >= QUEUED_MAX {
        PlayPlace::Refused
    } else {
        PlayPlace::Queued
    }
}

/// Returns the response to a PLAY that finds the queue full.
pub(super) fn refusal(request: &Request) -> Response {
    let allow = "OPTIONS, DESCRIBE, PAUSE, TEARDOWN, GET_PARAMETER";
    Response::not_in_this_state(request, allow)
        .reason(format!("{QUEUED_MAX} plays are queued already; PAUSE discards them"))
}

/// True for a play whose end lies before that of the file.
fn is_piece(played: &Played<'_>, end: u64) -> bool {
    let (all_ticks, end_ticks) = match played {
        Played::Stream(source) if source.asset.continues() => return end < source.limit(),
        Played::Stream(source) => {
            let plan = &source.asset.plan;
            (plan.duration_ticks(), plan.ticks(end.min(plan.packets())))
        }
        Played::Tracks(source) => (source.asset.presentation.duration_ticks(), end),
    };
    is_before_end(end_ticks, all_ticks)
}

/// True if a play ends before a file of this duration does, by more than clients' rounding.
fn is_before_end(end_ticks: u64, all_ticks: u64) -> bool {
    all_ticks.saturating_sub(end_ticks) > END_ROUNDING_TICKS
}

/// Most queued plays of a session.
const QUEUED_MAX: usize = 8;
/// A client may round the end of the file to one decimal.
const END_ROUNDING_TICKS: u64 = TICKS_PER_SECOND / 10;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::rtsp::{NptRange, NptStart};

    use super::*;

    fn piece(start_s: u64, scale: Option<f64>) -> PlayRequest {
        let range = NptRange {
            start: NptStart::At(Duration::from_secs(start_s)),
            end: Some(Duration::from_secs(start_s + 5)),
        };
        PlayRequest { range: Some(range), scale, ..PlayRequest::default() }
    }

    #[test]
    fn a_piece_is_queued_behind_a_piece_until_the_queue_is_full() {
        let last = Some(piece(10, None));
        let of = |asked: PlayRequest, queued| behind_a_piece(&asked, last, queued);
        assert_eq!(of(piece(20, None), 0), PlayPlace::Queued);
        assert_eq!(of(piece(20, None), QUEUED_MAX - 1), PlayPlace::Queued);
        assert_eq!(of(piece(20, None), QUEUED_MAX), PlayPlace::Refused);
        assert_eq!(behind_a_piece(&piece(20, None), None, 0), PlayPlace::Queued);
    }

    #[test]
    fn the_last_request_again_is_a_sign_of_life_also_when_the_queue_is_full() {
        let last = Some(piece(10, Some(2.0)));
        let of = |asked: PlayRequest, queued| behind_a_piece(&asked, last, queued);
        assert_eq!(of(piece(10, Some(2.0)), 0), PlayPlace::Repeats);
        assert_eq!(of(piece(10, Some(2.0)), QUEUED_MAX), PlayPlace::Repeats);
        assert_eq!(of(piece(10, None), 0), PlayPlace::Queued, "at another rate");
    }

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
