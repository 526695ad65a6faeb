// SPDX-License-Identifier: MIT OR Apache-2.0
//! play_tracks: PLAY of an asset with tracks.
//!
//! All tracks that were set up play together. A play begins with the last random-access point of
//! the pictures at or before the time asked for; sound begins with what is heard when that picture
//! is seen. The reply names that time, and for each stream the timestamp that belongs to it.
//! Timestamps continue over jumps: each jump adds the same time to all tracks.
//!
//! Sources: RFC 2326 §10.5, §12.29, §12.33, Appendix B.
//! Does not send media.

use std::sync::Arc;

use media::TICKS_PER_SECOND;
use media::tracks::{Entry, Presentation};
use wire::rtsp::{
    NptRange, NptStart, PlayRequest, Request, Response, RtpInfo, SessionState, Status, asset_track,
};

use super::RtspConnection;
use super::play::FIRST_REPORT;
use super::play_range::{duration, presented_ticks};
use super::starting::{PlayStart, Starting};
use super::stream_session::{SessionControl, StreamSession};
use crate::library::track_asset::TrackSource;
use crate::pacer::{TrackPlace, TrackStart};

/// A range, on the timelines of a presentation.
struct WantedTracks {
    /// Where it begins; unset where play goes on from where it is.
    entry: Option<Entry>,
    /// Due time before which packets are sent.
    limit_ticks: u64,
}

impl RtspConnection {
    pub(super) async fn play_tracks(
        &self,
        request: &Request,
        play: &PlayRequest,
        session: &Arc<StreamSession>,
        source: &Arc<TrackSource>,
    ) -> Result<Response, Response> {
        if asset_track(&request.path).is_some() && session.streams().len() > 1 {
            return Err(Response::new(Status::OnlyAggregateOperationAllowed, request));
        }
        let presentation = &source.asset.presentation;
        // Checked first: a refused request must not stop a running play.
        let wanted = play.range.map(|range| {
            resolve(presentation, range).ok_or_else(|| Response::new(Status::InvalidRange, request))
        });
        let wanted = wanted.transpose()?;
        let before = {
            let mut control = session.control.lock().unwrap();
            let before = control.state.play(self.server.now());
            let is_same = wanted
                .as_ref()
                .is_none_or(|wanted| wanted.entry.is_none() && wanted.limit_ticks == control.end);
            if before == SessionState::Playing && is_same {
                // Only keeps the session alive (RFC 2326 §10.5): the pacer gets no command.
                let at = now_ticks(session, presentation);
                return Ok(self.playing_tracks(request, session, (play, source), &control, at));
            }
            before
        };
        if before == SessionState::Playing
            && let Some(position) = session.pause().await
        {
            let mut control = session.control.lock().unwrap();
            (control.resume, control.is_paused) = (position, true);
        }
        let mut control = session.control.lock().unwrap();
        let limit = wanted.as_ref().map_or(control.end, |wanted| wanted.limit_ticks);
        let entry = wanted.and_then(|wanted| wanted.entry);
        let goes_on = entry.is_none() && control.is_paused && control.resume < limit;
        let (place, at) = match goes_on {
            true => (None, presentation.presented_of_due(control.resume)),
            false => {
                let entry = entry.unwrap_or_else(|| presentation.entry(0));
                let has_sent = session.streams().iter().any(|s| s.link.progress().packets > 0);
                let presented = entry.presented_ticks as i64;
                if has_sent {
                    let left = presentation.presented_behind(control.resume_or_end(presentation));
                    control.shift_ticks += left - presented;
                }
                let place = TrackPlace {
                    leading_ticks: entry.due_ticks,
                    other_ticks: other_ticks(presentation, entry),
                    shift_ticks: control.shift_ticks,
                };
                control.resume = entry.due_ticks;
                (Some(place), presented)
            }
        };
        control.end = limit;
        control.is_paused = false;
        // Repeated: the end of the previous play may have been reported meanwhile.
        control.state.play(self.server.now());
        control.bye_sent = false;
        control.play += 1;
        control.report_at = self.server.now() + FIRST_REPORT;
        let starting = Starting {
            session: session.clone(),
            play: control.play,
            start: PlayStart::Tracks(TrackStart { at: place, limit_ticks: limit }),
        };
        *self.starting.lock().unwrap() = Some(starting);
        Ok(self.playing_tracks(request, session, (play, source), &control, at))
    }

    /// Returns the answer to PLAY: the range really played from presentation time `at` on, and each
    /// stream's coordinates of that time.
    fn playing_tracks(
        &self,
        request: &Request,
        session: &StreamSession,
        (play, source): (&PlayRequest, &TrackSource),
        control: &SessionControl,
        at: i64,
    ) -> Response {
        let presentation = &source.asset.presentation;
        let base = wire::rtsp::content_base(&self.url(request, &source.asset.name));
        let streams = session.streams();
        let url = |track| format!("{base}{}", wire::sdp::track_control(track));
        let urls: Vec<_> = streams.iter().map(|stream| url(stream.track)).collect();
        let infos = streams.iter().zip(&urls).map(|(stream, url)| RtpInfo {
            url,
            sequence: stream.link.progress().next as u16,
            timestamp: presentation.tracks()[stream.track].timestamp(at + control.shift_ticks),
        });
        let (start, infos) = (at.max(0) as u64, infos.collect::<Vec<_>>());
        let end = match control.end {
            u64::MAX => named_end_ticks(presentation),
            limit => presentation.presented_of_due(limit).max(0) as u64,
        };
        let (start, end) = (duration(start), duration(end.max(start)));
        Response::play(request, &session.id, play, start, Some(end), &infos)
    }
}

impl SessionControl {
    /// Due time at which the session stands: the place of a pause, or the end.
    fn resume_or_end(&self, presentation: &Presentation) -> u64 {
        if self.is_paused { self.resume } else { presentation.duration_ticks().min(self.end) }
    }
}

/// Presentation time that is due now.
fn now_ticks(session: &StreamSession, presentation: &Presentation) -> i64 {
    let clock = session.first_stream().link.progress().clock;
    let due = clock.map_or(0, |clock| clock.ticks_at(std::time::Instant::now()));
    presentation.presented_of_due(due.min(presentation.duration_ticks()))
}

/// The end of a whole presentation as descriptions and ranges name it: by the time that sending
/// takes, which is longer than its presentation by as much as samples are decoded ahead, and a
/// quarter of a second. GStreamer ends a stream when that time has passed by the stream's
/// timestamps (rtpjitterbuffer, estimated EOS), and would lose packets that are due then; BYE tells
/// it the real end.
pub(super) fn named_end_ticks(presentation: &Presentation) -> u64 {
    presentation.presented_end_ticks().max(presentation.duration_ticks()) + TICKS_PER_SECOND / 4
}

/// Due time from which tracks other than the leading one are sent: with the title's start, all of
/// them.
fn other_ticks(presentation: &Presentation, entry: Entry) -> u64 {
    match entry.due_ticks {
        0 => 0,
        _ => presentation.due_of_presented(entry.presented_ticks as i64),
    }
}

/// Finds a range in the presentation. Returns `None` for one beyond the end or one that ends before
/// it begins.
fn resolve(presentation: &Presentation, range: NptRange) -> Option<WantedTracks> {
    let end = range.end.map(presented_ticks);
    let entry = match range.start {
        NptStart::Now => None,
        NptStart::At(start) => {
            let start = presented_ticks(start);
            let is_empty = end.is_some_and(|end| end <= start);
            if is_empty || start >= presentation.presented_end_ticks() {
                return None;
            }
            // Clients that count from the first sample that they got (ffmpeg) ask for times that
            // lie so much earlier, in milliseconds cut off.
            let counted_from_first = match presentation.priming_ticks() {
                0 => 0,
                priming => priming.min(PRIMING_TICKS_MAX) + TICKS_PER_SECOND / 1000,
            };
            let wanted = if start == 0 { 0 } else { start + counted_from_first };
            Some(presentation.entry(wanted))
        }
    };
    let limit = end.filter(|&end| end < presentation.presented_end_ticks());
    let limit_ticks =
        limit.map_or(u64::MAX, |end| presentation.due_of_presented(end as i64).max(1));
    Some(WantedTracks { entry, limit_ticks })
}

/// Priming of sound is less: two frames and a half of AAC at 44.1 kHz take 58 ms.
const PRIMING_TICKS_MAX: u64 = TICKS_PER_SECOND / 10;
