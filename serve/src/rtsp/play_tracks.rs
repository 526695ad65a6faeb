// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles PLAY of an asset with tracks.
//!
//! All tracks that were set up play together. A play begins with the last random-access point of
//! the pictures at or before the requested time; audio begins with the samples presented at the
//! same time as that picture. The response names that time, and for each stream the timestamp that
//! belongs to it. Timestamps continue across jumps: each jump adds the same time to all tracks.
//!
//! The pictures of a file at another rate (Scale) are a source with one track; the other streams of
//! the session are silent meanwhile. Such a play begins and continues like any other; the source's
//! timeline converts times of the file.
//!
//! Sources: RFC 2326 §10.5, §12.29, §12.33, §12.34, §12.35, Appendix B.
//! Does not send media.

use std::sync::Arc;
use std::time::Instant;

use media::TICKS_PER_SECOND;
use media::tracks::{Entry, Presentation};
use wire::rtsp::{
    NptRange, NptStart, PlayRequest, RangeUnit, Request, Response, RtpInfo, SessionState, Status,
    asset_track,
};

use super::RtspConnection;
use super::pending_play::PendingPlay;
use super::play::FIRST_REPORT;
use super::play_queue::{PlayPlace, QueuedPlay, refusal};
use super::play_range::{duration, presented_ticks};
use super::resume_position::ResumePosition;
use super::stream_session::{Played, SessionContent, SessionControl, StreamSession};
use crate::library::track_asset::TrackSource;
use crate::pacer::{PlayStart, TrackPlace, TrackStart};
use crate::play::Speed;

/// A requested range, on the timelines of a presentation.
struct WantedTracks {
    /// Start of the range; `None` if play continues from the current position.
    entry: Option<Entry>,
    /// Due time before which packets are sent.
    limit_ticks: u64,
}

impl RtspConnection {
    /// Plays `source`: the tracks of the session's file, or its pictures at another rate.
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
        let (asked, asset) = (*play, &source.asset);
        let presentation = &asset.presentation;
        let speed = play.speed.map_or(Speed::ONE, Speed::nearest);
        let play = PlayRequest {
            scale: play.scale.map(|_| asset.timeline().scale().value()),
            speed: play.speed.map(|_| speed.value()),
            ..*play
        };
        // The range is checked first: a refused request must not stop a running play.
        let wanted = play.range.map(|range| {
            let announced = match &session.content {
                SessionContent::Tracks(whole) => named_end_ticks(&whole.asset.presentation),
                SessionContent::Stream(_) => 0,
            };
            let known = (play.unit != RangeUnit::Clock).then(|| resolve(source, range, announced));
            known.flatten().ok_or_else(|| Response::new(Status::InvalidRange, request))
        });
        let wanted = wanted.transpose()?;
        let before = {
            let mut control = session.control.lock();
            control.catch_up(session);
            let before = control.state.play(self.server.now());
            let is_same = control.plays(session, source)
                && control.speed == speed
                && wanted.as_ref().is_none_or(|wanted| {
                    wanted.entry.is_none() && wanted.limit_ticks == control.end
                });
            let entry = wanted.as_ref().and_then(|wanted| wanted.entry);
            let place = match before {
                SessionState::Playing if is_same => PlayPlace::Repeats,
                SessionState::Playing => {
                    control.place_of(&session.content, &asked, entry.is_some())
                }
                SessionState::Ready => PlayPlace::AtOnce,
            };
            if place == PlayPlace::Refused {
                return Err(refusal(request));
            }
            let (asked, wants) = ((asked, speed), (source, wanted.as_ref()));
            if let Some(later) = self.play_tracks_later(session, asked, wants, place, &mut control)
            {
                return Ok(self.playing_tracks(request, session, (&play, source), &later));
            }
            before
        };
        let position = match before {
            SessionState::Playing => session.pause().await,
            SessionState::Ready => None,
        };
        let mut control = session.control.lock();
        control.catch_up(session);
        control.queue.clear();
        if let Some(position) = position {
            (control.resume, control.is_paused) = (position, true);
        }
        let resume_position = ResumePosition::of(session, &control);
        let is_same = control.plays(session, source);
        let limit = wanted.as_ref().map(|wanted| wanted.limit_ticks);
        let limit = limit.unwrap_or(if is_same { control.end } else { u64::MAX });
        let entry = wanted.and_then(|wanted| wanted.entry);
        let goes_on = entry.is_none() && is_same && control.is_paused && control.resume < limit;
        let (place, at) = match goes_on {
            true => (None, presentation.presented_of_due(control.resume)),
            false => {
                let here = resume_position.file_ticks.filter(|_| !is_same);
                let here = || here.map(|at| presentation.entry(asset.timeline().ticks(at)));
                let entry = entry.or_else(here).unwrap_or_else(|| presentation.entry(0));
                let presented = entry.presented_ticks as i64;
                if let Some(sent) = resume_position.sent_ticks {
                    control.shift_ticks = sent - presented;
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
        let sequence = resume_position.next.0;
        if matches!(control.played(&session.content), Played::Stream(_)) {
            // For tracks, the position in the link is a sequence number.
            session.first_stream().link.start_at(sequence.into(), 0);
        }
        control.trick = asset.is_trick().then(|| source.clone());
        control.speed = speed;
        control.end = limit;
        control.asked = play.range.map_or(control.asked, |_| Some(asked));
        control.is_paused = false;
        // The call is repeated: the end of the previous play may have been reported meanwhile.
        control.state.play(self.server.now());
        control.bye_sent = false;
        control.under_way = control.next_number();
        control.report_at = self.server.now() + FIRST_REPORT;
        let start =
            TrackStart { source: source.clone(), sequence, speed, at: place, limit_ticks: limit };
        let pending_play = PendingPlay {
            session: session.clone(),
            play: control.under_way,
            start: PlayStart::Tracks(start),
        };
        *self.pending_play.lock() = Some(pending_play);
        let answered = AnsweredPlay::current(&control, at);
        Ok(self.playing_tracks(request, session, (&play, source), &answered))
    }

    /// Returns the play to report for a PLAY that does not stop the current one: a keep-alive or a
    /// queued play. Returns `None` for a PLAY that takes effect at once.
    fn play_tracks_later(
        &self,
        session: &Arc<StreamSession>,
        asked: (PlayRequest, Speed),
        (source, wanted): (&Arc<TrackSource>, Option<&WantedTracks>),
        place: PlayPlace,
        control: &mut SessionControl,
    ) -> Option<AnsweredPlay> {
        let entry = wanted.and_then(|wanted| wanted.entry);
        match (place, wanted, entry) {
            (PlayPlace::Queued, Some(wanted), Some(entry)) => {
                let place = (entry, wanted.limit_ticks);
                let queued = control.queue_tracks(session, asked, source, place);
                *self.pending_play.lock() = Some(queued);
                control.queue.back().map(AnsweredPlay::queued)
            }
            (PlayPlace::Repeats, ..) => {
                // The PLAY only keeps the session alive (RFC 2326 §10.5): the pacer gets no
                // command.
                let last = control.queue.back().filter(|_| entry.is_some());
                let presentation = &source.asset.presentation;
                let under_way = || AnsweredPlay::under_way(session, control, presentation);
                Some(last.map_or_else(under_way, AnsweredPlay::queued))
            }
            _ => None,
        }
    }

    /// Returns the response to PLAY: the range really played, and the RTP coordinates of its start
    /// on each stream that is sent.
    fn playing_tracks(
        &self,
        request: &Request,
        session: &StreamSession,
        (play, source): (&PlayRequest, &TrackSource),
        answered: &AnsweredPlay,
    ) -> Response {
        let asset = &source.asset;
        let presentation = &asset.presentation;
        let base = wire::rtsp::content_base(&self.url(request, &asset.name));
        let url = |track| match &session.content {
            SessionContent::Tracks(_) => format!("{base}{}", wire::sdp::track_control(track)),
            SessionContent::Stream(_) => format!("{base}{}", wire::sdp::CONTROL),
        };
        let streams = session.streams();
        let sent = streams
            .iter()
            .filter_map(|stream| Some((stream, asset.index_of(stream.track)?, url(stream.track))));
        let sent: Vec<_> = sent.collect();
        let infos = sent.iter().map(|(stream, index, url)| RtpInfo {
            url,
            sequence: match answered.first {
                FirstPacket::Next => Some(stream.link.progress().next as u16),
                FirstPacket::Numbered(sequence) => sequence,
            },
            timestamp: presentation.tracks()[*index].timestamp(answered.timestamp_ticks),
        });
        let infos = infos.collect::<Vec<_>>();
        let timeline = asset.timeline();
        let in_file = |shown: i64| timeline.file_ticks(shown.max(0) as u64);
        let start = in_file(answered.at);
        let end = match answered.limit_ticks {
            u64::MAX if timeline.scale().is_backwards() => 0,
            u64::MAX if asset.is_trick() => timeline.file_end_ticks(),
            u64::MAX => named_end_ticks(presentation),
            limit => in_file(presentation.presented_of_due(limit)),
        };
        let is_backwards = timeline.scale().is_backwards();
        let end = if is_backwards { end.min(start) } else { end.max(start) };
        let (start, end) = (duration(start), duration(end));
        Response::play(request, &session.id, play, start, Some(end), &infos)
    }
}

/// Position of a play, as its response reports it.
struct AnsweredPlay {
    /// Presentation time of its start.
    at: i64,
    /// The same time on the timeline of RTP timestamps.
    timestamp_ticks: i64,
    /// Due time before which packets are sent.
    limit_ticks: u64,
    first: FirstPacket,
}

/// First packet of a play on each stream.
enum FirstPacket {
    /// The next packet of the stream.
    Next,
    /// The packet with this sequence number, if it is known.
    Numbered(Option<u16>),
}

impl AnsweredPlay {
    fn current(control: &SessionControl, at: i64) -> AnsweredPlay {
        let timestamp_ticks = at + control.shift_ticks;
        AnsweredPlay { at, timestamp_ticks, limit_ticks: control.end, first: FirstPacket::Next }
    }

    /// Returns the current play from its current position.
    fn under_way(
        session: &StreamSession,
        control: &SessionControl,
        presentation: &Presentation,
    ) -> AnsweredPlay {
        let clock = session.first_stream().link.progress().clock;
        let due = clock.map_or(control.resume, |clock| clock.ticks_at(Instant::now()));
        let due = due.min(presentation.duration_ticks());
        AnsweredPlay::current(control, presentation.presented_of_due(due))
    }

    fn queued(play: &QueuedPlay) -> AnsweredPlay {
        let at = play.presented_ticks;
        let first = FirstPacket::Numbered(play.sequence);
        AnsweredPlay { at, timestamp_ticks: at + play.shift_ticks, limit_ticks: play.end, first }
    }
}

impl SessionControl {
    /// True when the current or last play sends this source.
    fn plays(&self, session: &StreamSession, source: &Arc<TrackSource>) -> bool {
        match self.played(&session.content) {
            Played::Tracks(played) => Arc::ptr_eq(played, source),
            Played::Stream(_) => false,
        }
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

/// Returns the due time from which tracks other than the leading one are sent; 0, which sends all
/// of their packets, at the start of the file.
pub(super) fn other_ticks(presentation: &Presentation, entry: Entry) -> u64 {
    match entry.due_ticks {
        0 => 0,
        _ => presentation.due_of_presented(entry.presented_ticks as i64),
    }
}

/// Finds a range in the presentation. Returns `None` for a range that ends before it begins, or
/// begins beyond both the end and the announced end. A start between the two maps to the end of the
/// media, since a player seeks to any position that its seek bar shows.
fn resolve(source: &TrackSource, range: NptRange, announced_ticks: u64) -> Option<WantedTracks> {
    let presentation = &source.asset.presentation;
    let timeline = source.asset.timeline();
    let file_end = timeline.file_end_ticks();
    let end = range.end.map(presented_ticks);
    let (start, end) = match (range.start, end) {
        (NptStart::Now, end) => (None, end),
        (NptStart::At(start), end) => {
            let start = presented_ticks(start);
            // Backward play runs from the later time to the earlier, in whichever order they are
            // named.
            match end.filter(|_| timeline.scale().is_backwards()) {
                Some(end) => (Some(start.max(end).min(file_end)), Some(start.min(end))),
                None => (Some(start), end),
            }
        }
    };
    let entry = match start {
        None => None,
        Some(start) if timeline.scale().is_backwards() => {
            // Backward play from time zero would be empty: players that name zero in their first
            // PLAY (ffmpeg) mean the whole file.
            let start = if start == 0 { file_end } else { start.min(file_end) };
            if end.is_some_and(|end| end >= start) {
                return None;
            }
            Some(presentation.entry(timeline.ticks(start)))
        }
        Some(start) => {
            if end.is_some_and(|end| end <= start) || start >= file_end.max(announced_ticks) {
                return None;
            }
            let start = start.min(file_end);
            // Clients that count from the first sample received (ffmpeg) request times that are
            // earlier by the priming, truncated to milliseconds.
            let counted_from_first = match presentation.priming_ticks() {
                0 => 0,
                priming => priming.min(PRIMING_TICKS_MAX) + TICKS_PER_SECOND / 1000,
            };
            let wanted = if start == 0 { 0 } else { start + counted_from_first };
            Some(presentation.entry(timeline.ticks(wanted)))
        }
    };
    let limit = end.map(|end| timeline.ticks(end)).filter(|&end| end < timeline.end_ticks());
    let limit_ticks =
        limit.map_or(u64::MAX, |end| presentation.due_of_presented(end as i64).max(1));
    Some(WantedTracks { entry, limit_ticks })
}

/// Upper bound of audio priming: two and a half frames of AAC at 44.1 kHz last 58 ms.
const PRIMING_TICKS_MAX: u64 = TICKS_PER_SECOND / 10;
