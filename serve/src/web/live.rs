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
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use media::plan::{PlanKey, RtpIdentity};
use media::{GrowingSegments, RecordedStarts};
use parking_lot::{Mutex, MutexGuard};

use super::address::VERSION;
use super::live_dash::LiveDash;
use super::live_state::LiveState;
use super::media_playlist::TICKS_PER_US;
use super::shown_tracks::shown;
use crate::http::open_files::OpenFile;
use crate::library::asset::Asset;
use crate::library::growing_file::{CutShort, Growth};

/// A recording as HLS.
pub(crate) struct LiveAsset {
    identity: String,
    /// Empty once it is whole, or no longer followed.
    growth: Weak<Growth>,
    cut_short: CutShort,
    state: Mutex<LiveState>,
    pub(super) dash: LiveDash,
}

/// Returns the identity of a recording in addresses.
pub(super) fn live_identity(key: &PlanKey, identity: RtpIdentity) -> String {
    format!("{:x}-0-{:x}.{VERSION}", key.inode, identity.ssrc)
}

/// Returns the time at which reception of a recording began, of which `recorded_ticks` are written.
pub(super) fn start_time(key: &PlanKey, recorded_ticks: u64) -> SystemTime {
    let recorded = Duration::from_micros(recorded_ticks / TICKS_PER_US);
    let written = key.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    written.checked_sub(recorded).unwrap_or(written)
}

/// True when a recording of this identity is in this file.
pub(super) fn has_inode(file: &OpenFile, identity: &str) -> bool {
    let inode = |text: &str| text.split('-').next().map(str::to_owned);
    inode(file.entity().etag.trim_matches('"')) == inode(identity)
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
        let live = LiveAsset {
            identity: live_identity(&asset.key, asset.plan.identity()),
            growth: asset.growth().map_or_else(Weak::new, Arc::downgrade),
            cut_short: asset.growth().map(|growth| growth.cut_short().clone()).unwrap_or_default(),
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

    /// Returns the identity of the recording in addresses.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// True when this is its file.
    pub(super) fn is_of(&self, file: &OpenFile) -> bool {
        has_inode(file, &self.identity)
    }

    /// True when its file has lost bytes, also if it has others since.
    pub(super) fn was_cut_short(&self) -> bool {
        self.cut_short.is_so()
    }

    /// Returns its newest state while it is written.
    pub(super) fn growth(&self) -> Option<Arc<Growth>> {
        self.growth.upgrade()
    }

    /// Returns its segments so far.
    pub(super) fn state(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock()
    }
}

#[cfg(test)]
impl LiveAsset {
    /// The clip as a recording that is in progress for as long as its growth is held.
    pub(super) fn of_clip(growth: &Arc<Growth>) -> LiveAsset {
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
            identity: String::new(),
            growth: Arc::downgrade(growth),
            cut_short: CutShort::default(),
            state: Mutex::new(state),
            dash: LiveDash::default(),
        }
    }
}
