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

use wire::rtsp::{PlayRequest, Request, Response, SessionState};

use super::pending_play::PendingPlay;
use super::play_span::{PacketSpan, PlaySpan, SampleSpan};
use super::stream_session::{SessionControl, StreamSession};
use super::wanted_play::{WantedMedia, WantedPlay};
use crate::pacer::PlayStart;
use crate::play::Speed;

/// A play that is accepted and waits for the preceding plays to end.
pub(crate) struct QueuedPlay {
    /// Number of the PLAY in its session.
    pub(super) number: u64,
    /// The request as received.
    asked: PlayRequest,
    pub(super) span: PlaySpan,
    speed: Speed,
    /// First sequence number of the first stream, if it is known.
    pub(super) sequence: Option<u16>,
    submission: Submission,
}

/// State of a queued play on its way to the pacer.
enum Submission {
    /// Its response is not yet written.
    Unanswered,
    /// It waits for the plays before it.
    Answered(PlayStart),
    Submitted,
}

/// Effect of a PLAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlayPlace {
    AtOnce,
    /// Repeats the latest request.
    Repeats,
    Queued,
    /// The queue is full.
    Refused,
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
            (self.span, self.speed, self.is_paused) = (begun.span, begun.speed, false);
            if let PlaySpan::Packets(span) = &mut self.span {
                span.shift = progress.shift;
            }
        }
    }

    /// Returns the effect of this request in a session that was in state `before`.
    pub(super) fn place_of(&self, wanted: &WantedPlay, before: SessionState) -> PlayPlace {
        let last = self.queue.back().map_or(&self.span, |last| &last.span);
        if before == SessionState::Ready {
            PlayPlace::AtOnce
        } else if self.continues_with(wanted) {
            PlayPlace::Repeats
        } else if !wanted.names_start() || !last.is_piece() {
            PlayPlace::AtOnce
        } else {
            let asked = self.queue.back().map_or(self.asked, |last| Some(last.asked));
            behind_a_piece(&wanted.asked, asked, self.queue.len())
        }
    }

    /// True if the current play, continued, is what the request asks for.
    fn continues_with(&self, wanted: &WantedPlay) -> bool {
        !wanted.names_start()
            && wanted.is_content_of(&self.span)
            && wanted.named_end().is_none_or(|end| end == self.span.end())
            && self.speed == wanted.speed
    }

    /// Queues a play that names its start.
    pub(super) fn queue(
        &mut self,
        session: &Arc<StreamSession>,
        wanted: &WantedPlay,
    ) -> PendingPlay {
        let last = self.queue.back();
        let (known, time) = last.map_or(&self.span, |last| &last.span).after_end();
        // Behind samples that are queued or under way, the pacer alone counts sequence numbers.
        let known = known.filter(|_| last.is_none_or(|last| last.sequence.is_some()));
        let first = known.unwrap_or_default();
        let (span, start) = match &wanted.media {
            WantedMedia::Packets { own, source, from, end, lead } => {
                let from = source.playable(from.unwrap_or_default());
                let range = (from, end.unwrap_or_else(|| source.limit()));
                let span = PacketSpan::landing(own, range, (first, time.timestamp));
                let (span, start) = span.start(wanted.speed, span.lead(lead.as_ref()));
                (PlaySpan::Packets(span), start)
            }
            WantedMedia::Samples { source, entry, end_ticks } => {
                let entry = entry.unwrap_or_else(|| source.asset.presentation.entry(0));
                let range = (entry, end_ticks.unwrap_or(u64::MAX));
                let span = SampleSpan::landing(source, range, Some(time));
                let start = span.start(wanted.speed, first, Some(span.place()));
                (PlaySpan::Samples(span), start)
            }
        };
        let (asked, speed, number) = (wanted.asked, wanted.speed, self.next_number());
        let (sequence, submission) = (known, Submission::Unanswered);
        self.queue.push_back(QueuedPlay { number, asked, span, speed, sequence, submission });
        PendingPlay { session: session.clone(), play: number, start }
    }

    /// Records that the response to a queued play is written. Returns the plays that the pacer can
    /// queue now: in the order of the queue, also if connections that share the session write their
    /// responses in another one.
    pub(super) fn submit(&mut self, number: u64, start: PlayStart) -> Vec<(u64, PlayStart)> {
        if let Some(queued) = self.queue.iter_mut().find(|queued| queued.number == number) {
            queued.submission = Submission::Answered(start);
        }
        let mut submitted = Vec::new();
        for queued in &mut self.queue {
            match std::mem::replace(&mut queued.submission, Submission::Submitted) {
                Submission::Submitted => {}
                Submission::Answered(start) => submitted.push((queued.number, start)),
                Submission::Unanswered => {
                    queued.submission = Submission::Unanswered;
                    break;
                }
            }
        }
        submitted
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

/// Most queued plays of a session.
const QUEUED_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::rtsp::{NptRange, NptStart, RtspSession};

    use super::*;
    use crate::channel::window::tests::Scene;
    use crate::play::Shift;
    use crate::rtsp::stream_session::SessionContent;

    fn piece(start_s: u64, scale: Option<f64>) -> PlayRequest {
        let range = NptRange {
            start: NptStart::At(Duration::from_secs(start_s)),
            end: Some(Duration::from_secs(start_s + 5)),
        };
        PlayRequest { range: Some(range), scale, ..PlayRequest::default() }
    }

    /// A queued play of a channel, which is never sent.
    fn queued(number: u64) -> (QueuedPlay, PlayStart) {
        let mut scene = Scene::new(Duration::from_secs(60));
        scene.send(0);
        let source = scene.window.assets.newest().expect("it was sent");
        let span = PacketSpan { source, next: 0, end: 1, shift: Shift::default() };
        let (span, start) = span.start(Speed::ONE, None);
        let (asked, submission) = (piece(number, None), Submission::Unanswered);
        let (span, speed, sequence) = (PlaySpan::Packets(span), Speed::ONE, None);
        (QueuedPlay { number, asked, span, speed, sequence, submission }, start)
    }

    #[test]
    fn plays_are_submitted_in_the_order_of_the_queue() {
        let (first, first_start) = queued(2);
        let (second, second_start) = queued(3);
        let (third, third_start) = queued(4);
        let PlaySpan::Packets(span) = &first.span else { unreachable!("packets were queued") };
        let content = SessionContent::Stream(span.source.clone());
        let minute = Duration::from_secs(60);
        let state = RtspSession::new(Duration::ZERO, minute, minute);
        let mut control = SessionControl::new(&content, state);
        control.queue.extend([first, second, third]);
        let mut numbers = |number, start| {
            let submitted = control.submit(number, start);
            submitted.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(3, second_start), [0_u64; 0], "the one before it is not answered");
        assert_eq!(numbers(2, first_start), [2, 3]);
        assert_eq!(numbers(4, third_start), [4]);
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
}
