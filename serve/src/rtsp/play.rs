// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles PLAY and PAUSE.
//!
//! A PLAY begins at once, or is queued behind the current play ([`super::play_queue`]), or only
//! keeps the session alive if it repeats the request under way. All tracks that were set up play
//! together: audio begins with the samples presented at the same time as the picture with which
//! play begins. Sequence numbers and timestamps continue across jumps ([`super::play_change`]). A
//! play begins when its response is written ([`super::pending_play`]); the response names the range
//! that is really played and the RTP coordinates of its start on each stream.
//!
//! Sources: RFC 2326 §10.5, §10.6, §12.33, Appendix B.
//! Does not send media.

use std::time::Duration;

use wire::rtsp::{PlayRequest, Request, Response, RtpInfo, SessionState, Status, asset_track};

use super::RtspConnection;
use super::pending_play::PendingPlay;
use super::play_change::{AnsweredPlay, FirstSequence};
use super::play_queue::{PlayPlace, refusal};
use super::stream_session::{SessionContent, StreamSession};
use super::wanted_play::{WantedMedia, WantedPlay};

impl RtspConnection {
    pub(super) async fn play(
        &self,
        request: &Request,
        asked: &PlayRequest,
    ) -> Result<Response, Response> {
        let session = self.session(request)?;
        let is_of_track = asset_track(&request.path).is_some();
        if is_of_track && session.streams().len() > 1 {
            return Err(Response::new(Status::OnlyAggregateOperationAllowed, request));
        }
        if session.pacer.is_none() {
            session.control.lock().state.play(self.server.now());
            return Ok(Response::play_group(request, &session.id, asked));
        }
        let wanted = WantedPlay::resolve(&session, asked, self.server.clock.moment()).await;
        let wanted = wanted.map_err(|status| Response::new(status, request))?;
        let before = {
            let mut control = session.control.lock();
            control.catch_up(&session);
            let before = control.state.play(self.server.now());
            match control.place_of(&wanted, before) {
                PlayPlace::AtOnce => before,
                PlayPlace::Refused => return Err(refusal(request)),
                PlayPlace::Repeats => {
                    // The PLAY only keeps the session alive: the pacer gets no command.
                    let under_way = control.under_way(&session, &wanted, self.server.clock.now());
                    return Ok(self.playing(request, &session, &wanted, under_way));
                }
                PlayPlace::Queued => {
                    *self.pending_play.lock() = Some(control.queue(&session, &wanted));
                    let queued = control.queue.back().map(AnsweredPlay::queued);
                    let queued = queued.expect("a play has been queued");
                    return Ok(self.playing(request, &session, &wanted, queued));
                }
            }
        };
        let paused_at = match before {
            SessionState::Playing => session.pause().await,
            SessionState::Ready => None,
        };
        let answered = {
            let mut control = session.control.lock();
            control.stopped(&session, paused_at);
            let (start, answered) = control.begin(&session, &wanted);
            // The call is repeated: the end of the previous play may have been reported meanwhile.
            control.state.play(self.server.now());
            control.report_at = self.server.now() + FIRST_REPORT;
            let pending = PendingPlay { session: session.clone(), play: control.under_way, start };
            *self.pending_play.lock() = Some(pending);
            answered
        };
        self.provide_image(&session, &wanted);
        Ok(self.playing(request, &session, &wanted, answered))
    }

    /// Makes the wire image of a transport stream if the session's transport sends one and it is
    /// not yet made.
    fn provide_image(&self, session: &StreamSession, wanted: &WantedPlay) {
        let WantedMedia::Packets { source, .. } = &wanted.media else { return };
        if let Some(layout) = session.first_stream().transport.image_layout()
            && !source.is_image_asked(layout)
        {
            let (server, source) = (self.server.clone(), source.clone());
            // `provide` opens a file, so it runs on a thread that may block.
            tokio::task::spawn_blocking(move || server.images.provide(&source, layout));
        }
    }

    /// Returns the response to PLAY: the range really played, and the RTP coordinates of its start
    /// on each stream that is sent. A sequence number that is not known is left out.
    fn playing(
        &self,
        request: &Request,
        session: &StreamSession,
        wanted: &WantedPlay,
        AnsweredPlay { span, sequence: first }: AnsweredPlay,
    ) -> Response {
        let base = wire::rtsp::content_base(&self.url(request, session.content.name()));
        let url = |track| match &session.content {
            SessionContent::Tracks(_) => format!("{base}{}", wire::sdp::track_control(track)),
            SessionContent::Stream(_) => format!("{base}{}", wire::sdp::CONTROL),
        };
        let streams = session.streams();
        let sent = streams
            .iter()
            .filter_map(|stream| Some((url(stream.track), span.coordinates(stream)?)));
        let sent: Vec<_> = sent.collect();
        let infos = sent.iter().map(|(url, (next, timestamp))| RtpInfo {
            url,
            sequence: match first {
                FirstSequence::OfNextPacket => Some(*next),
                FirstSequence::Known(sequence) => sequence,
            },
            timestamp: *timestamp,
        });
        let infos = infos.collect::<Vec<_>>();
        let (start, end) = span.times(wanted.applied.unit, self.server.clock.moment());
        Response::play(request, &session.id, &wanted.applied, start, end, &infos)
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
                control.stopped(&session, Some(next));
            }
        }
        Ok(Response::in_session(request, &session.id))
    }
}

/// Delay of the first sender report: short, so that a client can soon relate the stream to
/// wall-clock time.
const FIRST_REPORT: Duration = Duration::from_millis(500);
