// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles PLAY of a transport stream or a channel, and PAUSE of any session.
//!
//! A Scale other than 1 plays the file's pictures alone ([`super::play_tracks`]). A PLAY maps to a
//! position in the packet plan. It begins when its reply is written ([`super::pending_play`]), or
//! where the preceding plays end ([`super::play_queue`]).
//!
//! Sources: RFC 2326 §10.5, §10.6, §12.33.
//! Does not send media.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use media::PlayScale;
use wire::rtsp::{PlayRequest, RangeUnit, Request, Response, RtpInfo, SessionState, Status};

use super::RtspConnection;
use super::pending_play::PendingPlay;
use super::play_queue::{PlayPlace, QueuedPlay, refusal};
use super::play_range::{Wanted, began, duration, resolve};
use super::resume_position::{ResumePosition, coordinates};
use super::stream_session::{SessionContent, SessionControl, StreamSession};
use crate::library::asset::Source;
use crate::library::track_asset::TrackSource;
use crate::pacer::{PlayStart, StreamLead};
use crate::play::{Shift, Speed};

impl RtspConnection {
    pub(super) async fn play(
        &self,
        request: &Request,
        play: &PlayRequest,
    ) -> Result<Response, Response> {
        let session = self.session(request)?;
        let scale = play.scale.map_or(PlayScale::ONE, PlayScale::nearest);
        let pictures = if scale.is_normal() { None } else { pictures(&session, scale).await };
        match (pictures, &session.content) {
            (Some(pictures), _) => self.play_tracks(request, play, &session, &pictures).await,
            (None, SessionContent::Stream(source)) => {
                self.play_stream(request, play, &session, source).await
            }
            (None, SessionContent::Tracks(source)) => {
                self.play_tracks(request, play, &session, source).await
            }
        }
    }

    async fn play_stream(
        &self,
        request: &Request,
        play: &PlayRequest,
        session: &Arc<StreamSession>,
        source: &Arc<Source>,
    ) -> Result<Response, Response> {
        if session.pacer.is_none() {
            session.control.lock().state.play(self.server.now());
            return Ok(Response::play_group(request, &session.id));
        }
        let (asked, source, stream) = (*play, source.current(), session.first_stream());
        let limit = source.limit();
        // Packets that a live source has not produced yet cannot be sent faster.
        let speed = match play.speed.filter(|_| !source.asset.continues()) {
            Some(speed) => Speed::nearest(speed),
            None => Speed::ONE,
        };
        let play = PlayRequest {
            scale: play.scale.map(|_| PlayScale::ONE.value()),
            speed: play.speed.map(|_| speed.value()),
            ..*play
        };
        // The range is checked first: a refused request must not stop a running play.
        let wanted = match play.range {
            Some(range) => resolve(&source, range, play.unit)
                .ok_or_else(|| Response::new(Status::InvalidRange, request))?,
            None => Wanted { from: None, end: None },
        };
        let likely = wanted.from.unwrap_or_else(|| session.control.lock().resume);
        let lead = StreamLead::read(&source, source.playable(likely)).await;
        let before = {
            let mut control = session.control.lock();
            control.catch_up(session);
            let before = control.state.play(self.server.now());
            let end = play.range.map(|_| wanted.end.unwrap_or(limit));
            let is_same = wanted.from.is_none()
                && end.is_none_or(|end| end == control.end)
                && control.trick.is_none()
                && control.speed == speed;
            let place = match before {
                SessionState::Playing if is_same => PlayPlace::Repeats,
                SessionState::Playing => {
                    control.place_of(&session.content, &asked, wanted.from.is_some())
                }
                SessionState::Ready => PlayPlace::AtOnce,
            };
            if place == PlayPlace::Refused {
                return Err(refusal(request));
            }
            let wants = (&source, &wanted, lead.as_ref());
            let later = self.play_later(session, (asked, speed), wants, place, &mut control);
            if let Some(later) = later {
                return Ok(self.playing(request, session, (&play, &source), later));
            }
            before
        };
        let paused_at = match before {
            SessionState::Playing => session.pause().await,
            SessionState::Ready => None,
        };
        let (number, lead, shift, answered) = {
            let mut control = session.control.lock();
            control.catch_up(session);
            control.queue.clear();
            if let Some(position) = paused_at {
                (control.resume, control.is_paused) = (position, true);
            }
            let resume_position = ResumePosition::of(session, &control);
            let was_trick = control.trick.take().is_some();
            let resume = match was_trick {
                true => {
                    resume_position.file_ticks.map_or(0, |ticks| source.asset.plan.entry(ticks))
                }
                false => control.resume,
            };
            let from = wanted.from.unwrap_or(resume);
            // A PLAY without a range after the end of a file starts from the beginning.
            let from = source.playable(from);
            let end = match (wanted.end, play.range) {
                (Some(end), _) => end,
                (None, Some(_)) => limit,
                (None, None) if control.end > from && !was_trick => control.end,
                (None, None) => limit,
            };
            (control.resume, control.end, control.is_paused) = (from, end, false);
            control.speed = speed;
            control.asked = play.range.map_or(control.asked, |_| Some(asked));
            // The call is repeated: the end of the previous play may have been reported meanwhile.
            control.state.play(self.server.now());
            let sent = stream.link.progress();
            let lead = lead.filter(|lead| lead.is_of(&(from..end)));
            if was_trick {
                control.shift = Shift::landing(&source, resume_position.next, from);
            } else {
                control.shift = control.shift.before(sent.ahead);
                if sent.packets > 0 {
                    control.shift = control.shift.jump(&source, sent.next, from);
                }
            }
            let answered = AnsweredPackets::of(&source, control.shift, from..end);
            control.shift = control.shift.behind(lead.as_ref());
            // The next jump is computed from here, even if no packet is sent before it.
            stream.link.start_at(from, lead.as_ref().map_or(0, StreamLead::room));
            control.bye_sent = false;
            control.under_way = control.next_number();
            control.report_at = self.server.now() + FIRST_REPORT;
            (control.under_way, lead, control.shift, answered)
        };
        let packets = answered.packets.clone();
        if let Some(layout) = stream.transport.image_layout()
            && !source.is_image_asked(layout)
        {
            let provider = (self.server.clone(), source.clone());
            // `provide` opens a file, so it runs on a thread that may block.
            tokio::task::spawn_blocking(move || provider.0.images.provide(&provider.1, layout));
        }
        let pending_play = PendingPlay {
            session: session.clone(),
            play: number,
            start: PlayStart::Stream {
                source: source.holding(packets.start),
                shift,
                speed,
                packets,
                lead,
            },
        };
        *self.pending_play.lock() = Some(pending_play);
        Ok(self.playing(request, session, (&play, &source), answered))
    }

    /// Returns the play to report for a PLAY that does not stop the current one: a keep-alive or a
    /// queued play. Returns `None` for a PLAY that takes effect at once.
    fn play_later(
        &self,
        session: &Arc<StreamSession>,
        asked: (PlayRequest, Speed),
        (source, wanted, lead): (&Arc<Source>, &Wanted, Option<&StreamLead>),
        place: PlayPlace,
        control: &mut SessionControl,
    ) -> Option<AnsweredPackets> {
        match (place, wanted.from) {
            (PlayPlace::Queued, Some(from)) => {
                let packets = (source.playable(from), wanted.end.unwrap_or(source.limit()));
                let queued = control.queue_stream(session, asked, source, packets, lead);
                *self.pending_play.lock() = Some(queued);
                control.queue.back().map(|last| AnsweredPackets::queued(source, last))
            }
            (PlayPlace::Repeats, from) => {
                // The PLAY only keeps the session alive (RFC 2326 §10.5): the pacer gets no
                // command.
                let last = control.queue.back().filter(|_| from.is_some());
                let sent = session.first_stream().link.progress();
                let (shift, packets) = (control.shift.before(sent.ahead), sent.next..control.end);
                let under_way = || AnsweredPackets::of(source, shift, packets);
                Some(last.map_or_else(under_way, |last| AnsweredPackets::queued(source, last)))
            }
            _ => None,
        }
    }

    /// Returns the response to PLAY: the range really played, the RTP timestamp of its first packet
    /// and, if it is known, that packet's sequence number.
    fn playing(
        &self,
        request: &Request,
        session: &StreamSession,
        (play, source): (&PlayRequest, &Arc<Source>),
        AnsweredPackets { sequence, timestamp, packets }: AnsweredPackets,
    ) -> Response {
        let source = source.holding(packets.start);
        let (asset, plan) = (&source.asset, &source.asset.plan);
        let url = format!(
            "{}{}",
            wire::rtsp::content_base(&self.url(request, &asset.name)),
            wire::sdp::CONTROL
        );
        let first = asset.first_packet();
        let part = packets.start.saturating_sub(first)..packets.end.saturating_sub(first);
        let info = RtpInfo { url: &url, sequence, timestamp };
        // The length follows RTP timestamps, which clients relate to this range (§12.33).
        let length = plan.ticks(part.end).saturating_sub(plan.ticks(part.start));
        let start = asset.first_ticks() + plan.presented_ticks(part.start.min(plan.packets() - 1));
        let is_open = asset.continues() && part.end > source.end();
        // A range in clock time (§3.7) is answered in clock time.
        let is_by_day = play.unit == RangeUnit::Clock;
        let began = asset.window().filter(|_| is_by_day).and_then(|window| began(window));
        let time = |ticks| began.unwrap_or_default() + duration(ticks);
        let end = (!is_open).then(|| time(start + length));
        Response::play(request, &session.id, play, time(start), end, &[info])
    }

    pub(super) async fn pause(&self, request: &Request) -> Result<Response, Response> {
        let session = self.session(request)?;
        let (before, number) = {
            let mut control = session.control.lock();
            let before = control.state.pause(self.server.now());
            let before = before.map_err(|no| Response::not_in_this_state(request, no.allow))?;
            (before, control.play)
        };
        if before == SessionState::Playing
            && let Some(next) = session.pause().await
        {
            let mut control = session.control.lock();
            // Another connection may have requested a play meanwhile.
            if control.play == number {
                control.catch_up(&session);
                control.queue.clear();
                (control.resume, control.is_paused) = (next, true);
            }
        }
        Ok(Response::in_session(request, &session.id))
    }
}

/// Packets of a play, as its response reports them.
struct AnsweredPackets {
    /// The first sequence number, if it is known.
    sequence: Option<u16>,
    /// The first timestamp.
    timestamp: u32,
    packets: Range<u64>,
}

impl AnsweredPackets {
    fn of(source: &Arc<Source>, shift: Shift, packets: Range<u64>) -> AnsweredPackets {
        let (sequence, timestamp) = coordinates(source, shift, packets.start);
        AnsweredPackets { sequence: Some(sequence), timestamp, packets }
    }

    fn queued(source: &Arc<Source>, play: &QueuedPlay) -> AnsweredPackets {
        let packets = play.from..play.end;
        let answered = AnsweredPackets::of(source, play.shift, packets);
        AnsweredPackets { sequence: play.sequence, ..answered }
    }
}

/// Returns the pictures that a play at this scale shows. Returns `None` if the file has none, if
/// the session does not include their track, or if the file's end is unknown.
async fn pictures(session: &Arc<StreamSession>, scale: PlayScale) -> Option<Arc<TrackSource>> {
    session.pacer.as_ref()?;
    let session = session.clone();
    // `trick` visits every random-access point.
    let made = tokio::task::spawn_blocking(move || match &session.content {
        SessionContent::Stream(source) => source.current().trick(scale),
        SessionContent::Tracks(source) => {
            let leading = source.asset.leading_index();
            let has_it = session.streams().iter().any(|stream| stream.track == leading);
            has_it.then(|| source.trick(scale)).flatten()
        }
    });
    made.await.ok().flatten()
}

/// Delay of the first sender report: short, so that a client can soon relate the stream to
/// wall-clock time.
pub(super) const FIRST_REPORT: Duration = Duration::from_millis(500);
