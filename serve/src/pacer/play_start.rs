// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts plays, and queues the plays that follow the current one.
//!
//! A queued play begins on the pacer thread at the moment at which the media before it ends,
//! without waiting for the control side. Its first second is requested a second ahead. Costs a
//! look-up a step while a session has a queue, and nothing otherwise.
//!
//! Sources: RFC 2326 §10.5.
//! Does not choose ranges or limit the queue ([`crate::rtsp`] does).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{PacedSession, StreamLead, TrackStart, paced_stream};
use crate::library::asset::Source;
use crate::library::track_asset::ChapterKey;
use crate::play::{Shift, Speed};
use crate::prefetch::{ChapterRequest, PrefetchHandle};

/// Media that a play sends.
pub(crate) enum PlayStart {
    /// Packets of a file or channel; `source` holds the first of them.
    Stream {
        source: Arc<Source>,
        shift: Shift,
        speed: Speed,
        packets: Range<u64>,
        /// Media that is sent in place of the first packets.
        lead: Option<StreamLead>,
    },
    /// The tracks of a file.
    Tracks(TrackStart),
}

/// A play that begins at the end of the preceding one.
pub(super) struct QueuedStart {
    /// Number of the PLAY.
    pub(super) play: u64,
    pub(super) start: PlayStart,
    /// True once its first second has been requested.
    is_asked: bool,
}

/// Plays of a session that follow the current one, in order.
#[derive(Default)]
pub(super) struct StartQueue(VecDeque<QueuedStart>);

impl StartQueue {
    pub(super) fn push(&mut self, play: u64, start: PlayStart) {
        self.0.push_back(QueuedStart { play, start, is_asked: false });
    }

    pub(super) fn pop(&mut self) -> Option<QueuedStart> {
        self.0.pop_front()
    }

    /// Requests the first media of the next play when the current one is about to end.
    pub(super) fn look_ahead(
        &mut self,
        session: &PacedSession,
        readers: &PrefetchHandle,
        now: Instant,
    ) {
        let Some(next) = self.0.front_mut().filter(|next| !next.is_asked) else { return };
        let Some(end) = session.end_moment() else { return };
        if end.saturating_duration_since(now) < LOOK_AHEAD {
            next.is_asked = true;
            next.start.ask_first(&session.own_tracks(), readers);
        }
    }
}

impl PlayStart {
    /// Requests the first media of a play of these tracks of the file.
    fn ask_first(&self, own_tracks: &[usize], readers: &PrefetchHandle) {
        let start = match self {
            PlayStart::Stream { source, packets, .. } => {
                return paced_stream::ask_first(source, packets, readers);
            }
            PlayStart::Tracks(start) => start,
        };
        let (asset, Some(place)) = (&start.source.asset, start.at) else { return };
        for &own in own_tracks {
            let Some(track) = asset.index_of(own) else { continue };
            let chapter = asset.presentation.chapter_at(place.begin_ticks(asset, own));
            let (source, key) = (start.source.clone(), ChapterKey { track, chapter });
            readers.ask_chapter(ChapterRequest { source, key, mark: Arc::default() });
        }
    }
}

/// Media that was read into memory counts as fresh for a second at least ([`crate::prefetch`]).
const LOOK_AHEAD: Duration = Duration::from_secs(1);
