// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording as HLS while it is written.
//!
//! Its playlist ([`super::live_playlist`]) lists the recorded part, an event with time shift to its
//! beginning, and the parts of the last segments. Segments and parts are ranges of the file; where
//! the tables of the stream lie elsewhere, they come first. When the recorder ends, so does the
//! playlist. The identity in the addresses is that of the recording (its file and its RTP stream),
//! which stays while it grows and when it is whole.
//!
//! Dates are those of reception: the file's time of writing less the duration recorded until then.
//! Where they differ by more than `DATE_DRIFT` from the time of the media, because the source was
//! silent or slow, a later segment has a date of its own.
//!
//! How late a part is, behind the time at which its first byte was received: its own duration (0.4
//! s); the recorder's block (0.25 s at most); the look at the file (40 ms) and the next plan (80
//! ms, both while players wait for parts, [`crate::library`]); the next clock reference (40 ms in
//! most streams, 100 ms at most) and the access unit behind it. Players of parts stay 1.5 s behind
//! the last; others three segments. Seen with hls.js in Chromium: 2.4 s and 7 s behind the source
//! (`pagewire/tests/web/live.rs`).
//!
//! Costs a reload: a look-up, and a copy of the text ([`super::live_state`]). Codecs are looked for
//! once, in the first 512 KB.
//!
//! Sources: RFC 8216 §4.3.2.6 (EXT-X-PROGRAM-DATE-TIME), §6.2.2 (live playlists).
//! Does not wait ([`super::live_reload`]), and has no channels ([`super::channel_answers`]).

use std::io;

use media::{GrowingSegments, RecordedStarts};
use parking_lot::{Mutex, MutexGuard};

use super::live_dash::LiveDash;
use super::live_state::LiveState;
use super::recorded_file::{RecordedFile, live_identity, start_time};
use super::shown_tracks::shown;
use crate::http::open_files::OpenFile;
use crate::library::asset::Asset;

/// A recording as HLS.
pub(crate) struct LiveAsset {
    pub(super) recorded: RecordedFile,
    state: Mutex<LiveState>,
    pub(super) dash: LiveDash,
}

impl LiveAsset {
    /// Makes one of a recording in progress whose content is in `file`; `None` while too little is
    /// recorded, and for a file that does not consist of packets only. May read and wait.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn new(asset: &Asset, file: &OpenFile) -> io::Result<Option<LiveAsset>> {
        let segments = GrowingSegments::of(&asset.plan, false);
        let (Some(segments), Some(starts)) = (segments, asset.starts()) else { return Ok(None) };
        let state = LiveState::recording(segments, shown(asset, file)?);
        let identity = live_identity(&asset.key, asset.plan.identity());
        let live = LiveAsset {
            recorded: RecordedFile::new(identity, asset.growth()),
            state: Mutex::new(state),
            dash: LiveDash::default(),
        };
        live.extend_by(asset, starts);
        let is_playable = live.state().is_playable();
        Ok(is_playable.then_some(live))
    }

    /// Cuts the segments that a newer plan adds.
    pub(super) fn extend(&self, asset: &Asset) {
        if let Some(starts) = asset.starts() {
            self.extend_by(asset, starts);
        }
    }

    fn extend_by(&self, asset: &Asset, starts: &RecordedStarts) {
        let mut state = self.state();
        state.segments.extend(&asset.plan, starts, !asset.is_growing());
        state.note_date(start_time(&asset.key, asset.plan.duration_ticks()));
    }

    /// Returns its segments so far.
    pub(super) fn state(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock()
    }
}

#[cfg(test)]
impl LiveAsset {
    /// The clip as a recording that is in progress for as long as its growth is held.
    pub(super) fn of_clip(
        growth: &std::sync::Arc<crate::library::growing_file::Growth>,
    ) -> LiveAsset {
        let clip = include_bytes!("../../../pagewire/assets/clip.ts");
        let mut scanner = media::Scanner::new();
        scanner.feed(clip);
        let identity = media::store::random_identity();
        let (plan, _) = scanner.recorded_so_far(identity).expect("a stream");
        let segments = GrowingSegments::of(&plan, true).expect("a place to start");
        let state = LiveState::recording(
            segments,
            super::shown_tracks::ShownTracks::of(&plan.surveyed(clip)),
        );
        LiveAsset {
            recorded: RecordedFile::new(String::new(), Some(growth)),
            state: Mutex::new(state),
            dash: LiveDash::default(),
        }
    }
}
