// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands by which the control side directs a pacer thread.
//!
//! Commands are queued and executed in order, each for one session. Costs a futex wake if the
//! thread sleeps.
//!
//! Sources: ARCHITECTURE.md, "From PLAY to the socket".
//! Does not execute them ([`super`] does).

use std::time::Duration;

use tokio::sync::oneshot;

use super::{PacedSession, PacedTrack, PlayStart};
use crate::play::TracedPackets;

/// A command from the control side. Sessions are identified by number.
pub(super) enum PacerCommand {
    Add {
        number: u64,
        session: Box<PacedSession>,
    },
    /// Adds a track to a session that does not play.
    AddTrack {
        number: u64,
        track: Box<PacedTrack>,
    },
    /// Plays, starting now, and discards queued plays. `play` is returned in the event that ends
    /// it.
    Play {
        number: u64,
        play: u64,
        start: PlayStart,
    },
    /// Plays after the preceding plays have ended.
    Queue {
        number: u64,
        play: u64,
        start: PlayStart,
    },
    /// Stops sending and discards queued plays; replies with the next packet (of tracks: its due
    /// time) once nothing more will be sent.
    Pause {
        number: u64,
        reply: oneshot::Sender<u64>,
    },
    /// Begins a trace of a session that lasts for `time`.
    Trace {
        number: u64,
        trace: u64,
        time: Duration,
        reply: oneshot::Sender<TracedPackets>,
    },
    /// Ends a trace unless another has replaced it; its records are sent.
    EndTrace {
        number: u64,
        trace: u64,
    },
    Remove {
        number: u64,
    },
    Stop,
}

impl PacerCommand {
    /// Returns the session of the command; `None` for the thread itself.
    pub(super) fn session(&self) -> Option<u64> {
        match self {
            PacerCommand::Add { number, .. }
            | PacerCommand::AddTrack { number, .. }
            | PacerCommand::Play { number, .. }
            | PacerCommand::Queue { number, .. }
            | PacerCommand::Pause { number, .. }
            | PacerCommand::Trace { number, .. }
            | PacerCommand::EndTrace { number, .. }
            | PacerCommand::Remove { number } => Some(*number),
            PacerCommand::Stop => None,
        }
    }
}
