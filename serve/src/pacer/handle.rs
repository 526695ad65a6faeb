// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control side's handle on one session of a pacer thread.
//!
//! Each call queues a [`PacerCommand`]; calls that return an answer wait for the thread's reply.
//!
//! Sources: ARCHITECTURE.md, "From PLAY to the socket".
//! Does not execute commands ([`super`] does).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::sync::oneshot;

use super::PlayStart;
use super::pacer_command::PacerCommand;
use crate::play::{PacketTrace, TracedPackets};

/// Sends a session's commands to its pacer.
#[derive(Clone)]
pub(crate) struct Handle {
    commands: Sender<PacerCommand>,
    sessions: Arc<AtomicUsize>,
    number: u64,
}

impl Handle {
    pub(super) fn new(
        commands: Sender<PacerCommand>,
        sessions: Arc<AtomicUsize>,
        number: u64,
    ) -> Handle {
        Handle { commands, sessions, number }
    }

    /// Returns the number of the session.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Plays at once.
    pub(crate) fn play(&self, play: u64, start: PlayStart) {
        self.send(PacerCommand::Play { number: self.number, play, start });
    }

    /// Plays after the preceding plays have ended.
    pub(crate) fn queue(&self, play: u64, start: PlayStart) {
        self.send(PacerCommand::Queue { number: self.number, play, start });
    }

    /// Returns the next packet (of tracks: its due time) once the pacer has stopped; `None` if the
    /// pacer is gone.
    pub(crate) async fn pause(&self) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        self.send(PacerCommand::Pause { number: self.number, reply });
        answer.await.ok()
    }

    /// Traces the session for `time`; `None` if the session ends before the trace begins. Ends a
    /// current trace of the session.
    pub(crate) async fn trace(&self, time: Duration) -> Option<TracedPackets> {
        let (reply, mut answer) = oneshot::channel();
        let (number, trace) = (self.number, PacketTrace::next_number());
        self.send(PacerCommand::Trace { number, trace, time, reply });
        tokio::select! {
            traced = &mut answer => return traced.ok(),
            () = tokio::time::sleep(time) => {}
        }
        self.send(PacerCommand::EndTrace { number, trace });
        answer.await.ok()
    }

    pub(crate) fn remove(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        self.send(PacerCommand::Remove { number: self.number });
    }

    /// Sends a command; a pacer is gone only while the server stops.
    pub(super) fn send(&self, command: PacerCommand) {
        let _ = self.commands.send(command);
    }
}
