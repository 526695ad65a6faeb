// SPDX-License-Identifier: MIT OR Apache-2.0
//! A playlist that is always on the air, computed from the wall clock alone.
//!
//! A channel has no state that a second server would have to copy: its settings, the durations of
//! its files and the time of day name the frame that is due. So two servers with one configuration
//! stay in step without a message between them, and a viewer's time shift is the same question
//! about an earlier time.
//!
//! Below are two parts that do more: `playout` sends a channel and `window` keeps what was sent.
//!
//! Modules: `settings` (settings as written, checked), `send_target` (addresses to send to),
//! `invalid` (errors), `playlist` (settings to files), `timeline` (files to programmes by the
//! clock), `exports` (M3U, XMLTV and SDP), `shown_text` (titles written by
//! strangers), `name_hash` (numbers that are the same everywhere).
//!
//! Cost, but for those two: no system call and no thread. A programme is found by binary search.
//!
//! Sources: RFC 5771 and RFC 4291 §2.7 (multicast addresses), RFC 4607 (SSM), RFC 3550 §11 (ports).
//! The modules of the list do not read files, open sockets or read a clock: callers pass lookups
//! and times.

mod exports;
mod invalid;
mod name_hash;
mod playlist;
pub(crate) mod playout;
mod send_target;
mod settings;
mod shown_text;
mod timeline;
pub(crate) mod window;

pub use exports::{
    GUIDE_PROGRAMMES_MAX, GUIDE_TIME_MAX, M3uLinks, m3u, session_description, xmltv,
};
pub use invalid::{ChannelSetting, InvalidChannel};
pub use playlist::{EntryFault, EntryFaultKind, EntryLookup, Playlist, PlaylistChange};
pub use send_target::{SendFormat, SendTarget};
pub use settings::{
    ChannelConfig, ChannelDraft, ChannelRole, PlayOrder, ScheduleDraft, ScheduleSlot,
    check_channels,
};
pub use timeline::{AirReason, CLOCK_STEP, Lineup, OnAir, Timeline, TimelineEntry, is_clock_step};

/// Returns the name of the channel at a URL's path; `None` where the path is no channel's.
pub(crate) fn name_at(path: &str) -> Option<&str> {
    path.trim_start_matches('/').strip_prefix("channel/")
}

/// Most entries of a playlist, the files of its folders included; the rest is left out and named.
pub const ENTRIES_MAX: usize = 10_000;
