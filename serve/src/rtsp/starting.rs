// SPDX-License-Identifier: MIT OR Apache-2.0
//! starting: a play whose reply is not yet written.
//!
//! Media over TCP shares the connection with the reply to its PLAY and must not overtake it: a
//! client that waits for the reply drops the frames before it (ffmpeg's rtsp.c skips them), and
//! with them the first key frame. The play is therefore prepared, the reply written, and then the
//! pacer told. Costs nothing but the time of writing the reply.
//!
//! Sources: RFC 2326 §10.5, §10.12.
//! Does not choose the range.

use std::ops::Range;
use std::sync::Arc;

use wire::rtsp::SessionState;

use crate::library::asset::Source;
use crate::pacer::TrackStart;
use crate::rtsp::stream_session::{Shift, Speed, StreamSession};

/// A play to begin behind its reply.
pub(super) struct Starting {
    pub(super) session: Arc<StreamSession>,
    /// Number of the PLAY in its session.
    pub(super) play: u64,
    pub(super) start: PlayStart,
}

/// What is played.
pub(super) enum PlayStart {
    /// Packets of a file or channel, of which `source` holds the first.
    Stream { source: Arc<Source>, shift: Shift, speed: Speed, packets: Range<u64> },
    /// The tracks of a file.
    Tracks(TrackStart),
}

impl Starting {
    /// Begins the play, unless another connection has stopped or replaced it meanwhile.
    pub(super) fn begin(self) {
        let control = self.session.control.lock().unwrap();
        if let Some(pacer) = &self.session.pacer
            && control.play == self.play
            && control.state.state() == SessionState::Playing
        {
            match self.start {
                PlayStart::Stream { source, shift, speed, packets } => {
                    pacer.play(source, self.play, (shift, speed), packets);
                }
                PlayStart::Tracks(start) => pacer.play_tracks(self.play, start),
            }
        }
    }
}
