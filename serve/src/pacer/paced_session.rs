// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session on a pacer thread, of either kind of asset.
//!
//! A session of a transport stream changes its kind when it begins to show pictures at another rate
//! (their source is one of tracks), and again when it returns to normal play. Costs a branch a
//! step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::media_target::MediaTarget;
use super::paced_stream::Step;
use super::wheel::Tick;
use super::{
    PacedStream, PacedTrack, PacedTracks, PacingChoice, PlayStart, StreamLead, Tools, TrackStart,
};
use crate::library::asset::Source;
use crate::play::{PacketTrace, Shift};

/// A session on its pacer.
pub(crate) enum PacedSession {
    /// A transport stream, or a channel.
    Stream(Box<PacedStream>),
    /// The tracks of a file.
    Tracks(Box<PacedTracks>),
}

impl PacedSession {
    /// Prepares the departure times of its targets.
    pub(super) fn prepare(&mut self, pacing: &PacingChoice) {
        match self {
            PacedSession::Stream(stream) => {
                if let MediaTarget::Datagrams(to) = &mut stream.to {
                    stream.departures = pacing.prepare(to);
                }
            }
            PacedSession::Tracks(tracks) => tracks.last_track().prepare(pacing),
        }
    }

    /// Converts it to the kind of session that can play this start.
    pub(super) fn for_start(self, start: &PlayStart, now: Instant) -> PacedSession {
        match start {
            PlayStart::Stream { source, .. } => self.for_stream(source, now),
            PlayStart::Tracks(start) => self.for_tracks(start),
        }
    }

    /// Starts the play for which [`PacedSession::for_start`] has prepared the session.
    pub(super) fn play_from(&mut self, play: u64, start: PlayStart, now: Instant) {
        match (self, start) {
            (
                PacedSession::Stream(stream),
                PlayStart::Stream { source, shift, speed, packets, lead },
            ) => {
                stream.play = play;
                stream.play_from(source, packets, (shift, speed), lead);
                let ahead = stream.lead.as_ref().map_or(0, StreamLead::ahead);
                stream.link.start_at(stream.position(), ahead);
                stream.link.note_play(play, shift);
            }
            (PacedSession::Tracks(tracks), PlayStart::Tracks(start)) => {
                tracks.play = play;
                tracks.play_from(start, now);
            }
            _ => unreachable!("it was made for this start"),
        }
    }

    /// Makes a play continue with the next sequence number, which is unknown to the control side
    /// while pictures at another rate are sent.
    pub(super) fn continue_sequence(&self, start: &mut PlayStart) {
        let next = match self {
            PacedSession::Stream(stream) => stream.next_sequence(),
            PacedSession::Tracks(tracks) => tracks.first_sequence(),
        };
        match start {
            PlayStart::Stream { source, shift, packets, lead, .. } => {
                let landing = Shift::landing(source, (next, 0), packets.start);
                shift.sequence = landing.behind(lead.as_ref()).sequence;
            }
            PlayStart::Tracks(start) => start.sequence = next,
        }
    }

    /// Returns the moment at which the media of the current play ends; `None` before its clock has
    /// started.
    pub(super) fn end_moment(&self) -> Option<Instant> {
        match self {
            PacedSession::Stream(stream) => stream.end_moment(),
            PacedSession::Tracks(tracks) => tracks.end_moment(),
        }
    }

    /// Starts the clock of the new play at the end of the preceding one.
    pub(super) fn begin_at(&mut self, moment: Instant) {
        let (begins_at, sent_until) = match self {
            PacedSession::Stream(stream) => (&mut stream.begins_at, &mut stream.sent_until),
            PacedSession::Tracks(tracks) => (&mut tracks.begins_at, &mut tracks.sent_until),
        };
        (*begins_at, *sent_until) = (Some(moment), Some(moment));
    }

    /// Returns the indices of its tracks in the file.
    pub(super) fn own_tracks(&self) -> Vec<usize> {
        match self {
            PacedSession::Stream(_) => vec![0],
            PacedSession::Tracks(tracks) => tracks.own_tracks(),
        }
    }

    fn for_tracks(self, start: &TrackStart) -> PacedSession {
        let mut stream = match self {
            PacedSession::Stream(stream) => *stream,
            tracks @ PacedSession::Tracks(_) => return tracks,
        };
        stream.stop();
        let (source, sequence) = (&start.source, start.sequence);
        let PacedStream { to, link, departures, sent_until, wake, trace, .. } = stream;
        let track = PacedTrack::of_stream(source, sequence, to, link, departures);
        let mut tracks = PacedTracks::new(source.clone(), track);
        (tracks.sent_until, tracks.wake, tracks.trace) = (sent_until, wake, trace);
        PacedSession::Tracks(Box::new(tracks))
    }

    /// Converts it to a session that can play a transport stream.
    fn for_stream(self, source: &Arc<Source>, now: Instant) -> PacedSession {
        let mut tracks = match self {
            PacedSession::Tracks(tracks) => *tracks,
            stream @ PacedSession::Stream(_) => return stream,
        };
        tracks.stop(now);
        let (sent_until, wake, trace) = (tracks.sent_until, tracks.wake, tracks.trace.take());
        let PacedTrack { to, link, departures, .. } = tracks.into_first();
        let mut stream = PacedStream::new(source.clone(), to, link);
        (stream.departures, stream.sent_until, stream.wake) = (departures, sent_until, wake);
        stream.trace = trace;
        PacedSession::Stream(Box::new(stream))
    }

    pub(super) fn packets_per_s(&self) -> u64 {
        match self {
            PacedSession::Stream(stream) => stream.packets_per_s,
            PacedSession::Tracks(tracks) => tracks.packets_per_s,
        }
    }

    pub(super) fn is_playing(&self) -> bool {
        match self {
            PacedSession::Stream(stream) => stream.is_playing(),
            PacedSession::Tracks(tracks) => tracks.is_playing(),
        }
    }

    /// Returns the number of the current PLAY.
    pub(super) fn play(&self) -> u64 {
        match self {
            PacedSession::Stream(stream) => stream.play,
            PacedSession::Tracks(tracks) => tracks.play,
        }
    }

    pub(super) fn stop(&mut self, now: Instant) {
        match self {
            PacedSession::Stream(stream) => stream.stop(),
            PacedSession::Tracks(tracks) => tracks.stop(now),
        }
    }

    /// Returns the position of a stopped session: the next packet of the file or channel, or for
    /// tracks a due time.
    pub(super) fn stopped_at(&self) -> u64 {
        match self {
            PacedSession::Stream(stream) => stream.position(),
            PacedSession::Tracks(tracks) => tracks.stopped_at(),
        }
    }

    pub(super) fn step(
        &mut self,
        now: Instant,
        wake: (Instant, Duration),
        tools: &mut Tools,
    ) -> Step {
        match self {
            PacedSession::Stream(stream) => stream.step(now, wake, tools),
            PacedSession::Tracks(tracks) => tracks.step(now, wake, tools),
        }
    }

    pub(super) fn wake(&self) -> Tick {
        match self {
            PacedSession::Stream(stream) => stream.wake,
            PacedSession::Tracks(tracks) => tracks.wake,
        }
    }

    pub(super) fn set_wake(&mut self, wake: Tick) {
        match self {
            PacedSession::Stream(stream) => stream.wake = wake,
            PacedSession::Tracks(tracks) => tracks.wake = wake,
        }
    }

    /// Returns its trace; dropping the trace sends its records.
    pub(super) fn trace(&mut self) -> &mut Option<Box<PacketTrace>> {
        match self {
            PacedSession::Stream(stream) => &mut stream.trace,
            PacedSession::Tracks(tracks) => &mut tracks.trace,
        }
    }

    /// Counts consecutive steps that could send nothing.
    pub(super) fn note_step(&mut self, step: &Step) -> u32 {
        let waits = match self {
            PacedSession::Stream(stream) => &mut stream.waits,
            PacedSession::Tracks(tracks) => &mut tracks.waits,
        };
        *waits = if matches!(step, Step::Wait) { waits.saturating_add(1) } else { 0 };
        *waits
    }
}
