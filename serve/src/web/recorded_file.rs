// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a recording that is served in segments while it is written: its identity in
//! addresses, which stays when it is whole, and its newest state.
//!
//! Does not have segments ([`super::live`] and [`super::live_tracks`] do).

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use media::plan::{PlanKey, RtpIdentity};

use super::address::VERSION;
use super::media_playlist::TICKS_PER_US;
use crate::http::open_files::OpenFile;
use crate::library::growing_file::{CutShort, Growth};

/// The file of a recording.
pub(super) struct RecordedFile {
    identity: String,
    /// Empty once it is whole, or no longer followed.
    growth: Weak<Growth>,
    cut_short: CutShort,
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

impl RecordedFile {
    pub(super) fn new(identity: String, growth: Option<&Arc<Growth>>) -> RecordedFile {
        RecordedFile {
            identity,
            growth: growth.map_or_else(Weak::new, Arc::downgrade),
            cut_short: growth.map(|growth| growth.cut_short().clone()).unwrap_or_default(),
        }
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// True when this file has it.
    pub(super) fn is_of(&self, file: &OpenFile) -> bool {
        let inode = |text: &str| text.split('-').next().map(str::to_owned);
        inode(file.entity().etag.trim_matches('"')) == inode(&self.identity)
    }

    /// True when the file has lost bytes, also if it has others since.
    pub(super) fn was_cut_short(&self) -> bool {
        self.cut_short.is_so()
    }

    /// Returns its newest state while it is written.
    pub(super) fn growth(&self) -> Option<Arc<Growth>> {
        self.growth.upgrade()
    }
}
