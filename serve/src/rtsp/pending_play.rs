// SPDX-License-Identifier: MIT OR Apache-2.0
//! A play whose reply is not yet written.
//!
//! Media over TCP shares the connection with the reply to its PLAY and must not overtake it: a
//! client that waits for the reply drops the frames before it (ffmpeg's rtsp.c skips them), and
//! with them the first key frame. The server therefore prepares the play, writes the reply, and
//! only then commands the pacer. A queued play uses the same order, because the preceding play may
//! be about to end. Costs only the time of writing the reply.
//!
//! Sources: RFC 2326 §10.5, §10.12.
//! Does not choose the range.

use std::sync::Arc;

use wire::rtsp::SessionState;

use crate::pacer::PlayStart;
use crate::rtsp::stream_session::StreamSession;

/// A play that begins after its reply is written.
pub(super) struct PendingPlay {
    pub(super) session: Arc<StreamSession>,
    /// Number of the PLAY in its session.
    pub(super) play: u64,
    pub(super) start: PlayStart,
}

impl PendingPlay {
    /// Begins or queues the play, unless another connection has stopped or replaced it meanwhile.
    pub(super) fn begin(self) {
        let mut control = self.session.control.lock();
        if let Some(pacer) = &self.session.pacer
            && control.state.state() == SessionState::Playing
        {
            if control.under_way == self.play {
                pacer.play(self.play, self.start);
            } else {
                for (play, start) in control.submit(self.play, self.start) {
                    pacer.queue(play, start);
                }
            }
        }
    }
}
