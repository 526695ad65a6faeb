// SPDX-License-Identifier: MIT OR Apache-2.0
//! paced_session: a session on a pacer thread, of either kind of asset.
//!
//! Costs a branch a step.

use std::time::{Duration, Instant};

use super::media_target::MediaTarget;
use super::paced_stream::Step;
use super::wheel::Tick;
use super::{PacedStream, PacedTracks, PacingChoice, Tools};

/// A session on its pacer.
pub(crate) enum PacedSession {
    /// A transport stream, or a channel.
    Stream(Box<PacedStream>),
    /// Tracks of their own.
    Tracks(Box<PacedTracks>),
}

impl PacedSession {
    /// Prepares the departures of its targets.
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

    pub(super) fn halt(&mut self) {
        match self {
            PacedSession::Stream(stream) => stream.halt(),
            PacedSession::Tracks(tracks) => tracks.halt(),
        }
    }

    /// Returns the next packet of the file or channel; of tracks the due time of the next.
    pub(super) fn position(&self) -> u64 {
        match self {
            PacedSession::Stream(stream) => stream.position(),
            PacedSession::Tracks(tracks) => tracks.position(),
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
