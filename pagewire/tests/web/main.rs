// SPDX-License-Identifier: MIT OR Apache-2.0
//! HLS and DASH of `pagewire serve`, tested with web players and web tools.
//!
//! [`clients`] plays in Chromium by hls.js, dash.js, Shaka Player and the browser's own player, and
//! compares with the output of ffmpeg and Shaka Packager for the same file; [`enciphered`] plays
//! enciphered content; [`parsers`] reads everything with third-party parsers and fetches every
//! segment; [`rfc8216`] and [`mpd_schema`] are the rules of playlists and MPDs, one row each.
//! [`ts_forms`] compares both forms of transport streams. [`ttml`] tests subtitles that are sent
//! unchanged. [`live`] plays recordings in progress, [`live_playlists`] requests their playlists,
//! [`live_dash`] does both for DASH, [`live_tracks`] for a recording in MP4, and [`channel`] and
//! [`channel_dash`] with a channel.
//! [`odd_films`] and [`far_films`] play unusual files, [`replaced_films`] files that change
//! meanwhile, and [`many_requests`] sends request patterns that no player should; [`listed`] finds
//! the segments for them. ffmpeg makes the clips ([`clips`]). Where a program is missing, its tests
//! print `skip: TEST: REASON` and pass.
//!
//! Players and packagers are those that scripts/setup.sh installs. Does not measure.

#![forbid(unsafe_code)]

#[path = "../harness/mod.rs"]
mod harness;

mod channel;
mod channel_dash;
mod clients;
mod clips;
mod enciphered;
mod far_films;
mod fragments;
mod listed;
mod live;
mod live_dash;
mod live_playlists;
mod live_rules;
mod live_tracks;
mod many_ranges;
mod many_requests;
mod master_rules;
mod mpd_schema;
mod named_sounds;
mod odd_films;
mod page_server;
mod parsers;
mod playing;
mod playlist_rules;
mod replaced_films;
mod rfc8216;
mod segment_list;
mod segment_rules;
mod shown_sizes;
mod site;
mod thumbnails;
mod ts_forms;
mod ttml;

use std::path::PathBuf;

/// Returns a file that scripts/setup.sh has installed; `None`, with the reason printed, where it
/// has not.
fn tool(test: &str, name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../out/test-tools")).join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skip: {test}: {}: not installed; make setup", path.display());
    None
}
