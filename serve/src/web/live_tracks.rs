// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording in MP4 as HLS and DASH while it is written.
//!
//! Its segments are those of any file with tracks ([`super::web_asset`]), but for the cuts, with
//! which they stay when the recording is longer (`media::cmaf`): ranges of the file behind boxes
//! that are made, without new media. Each plan of the recording gives new playlists; they list the
//! segments that are final, an event with time shift to its beginning. When the recorder ends, so
//! do they. The identity in the addresses is that of the recording, which stays.
//!
//! Dates are those of reception: the file's time of writing less the duration recorded until then.
//! A player is three segments behind the last one, and a segment is listed when the fragment behind
//! it is whole: 2 s at most, and a look at the file (0.65 s). Seen with segments of 2 s in
//! Chromium: hls.js 9.6 s, dash.js 6.4 s behind the source (`pagewire/tests/web/live_tracks.rs`).
//!
//! Costs a plan of the new segments every two seconds while players ask, and a copy of the sample
//! tables: 1 ms an hour of recording.
//!
//! Sources: RFC 8216 §6.2.2 (live playlists).
//! Does not follow files ([`crate::library`] does), or list parts of segments.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use media::cmaf::TrackSegments;
use parking_lot::Mutex;

use super::address::{TrackList, WebItem};
use super::live_dash::FOLLOWED;
use super::manifest;
use super::mpd_elements::{self, DynamicTimes};
use super::recorded_file::{RecordedFile, live_identity, start_time};
use super::ts_form::TsForm;
use super::web_asset::WebAsset;
use super::web_media::GrowingList;
use crate::http::open_files::OpenFile;
use crate::library::NoAsset;
use crate::library::growing_file::COST_SHARE;
use crate::library::track_asset::TrackAsset;

/// Segments at the beginning: players start three behind the last.
const LISTED_MIN: usize = 3;

/// A recording of tracks.
pub(crate) struct LiveTracks {
    pub(super) recorded: RecordedFile,
    /// Wall time of its start.
    began: SystemTime,
    target_s: u64,
    /// Held while the next plan is made.
    planning: tokio::sync::Mutex<()>,
    newest: Mutex<Planned>,
    described: Mutex<Described>,
}

/// The last description.
#[derive(Default)]
struct Described {
    /// Number of the plan that it is of, and its text but its end.
    text: Option<(u64, Bytes)>,
    /// Time of the last dynamic one.
    followed: Option<Instant>,
}

/// Plan of the segments so far.
struct Planned {
    plan: Arc<WebAsset>,
    /// Length of the file that it is of.
    bytes: u64,
    /// Time at which it was finished, and the time it took.
    made: Instant,
    cost: Duration,
}

impl LiveTracks {
    /// Makes one of a recording in progress whose content is in `file`; `None` while too little is
    /// recorded. May read and wait.
    ///
    /// # Errors
    /// The reason why it has no segments.
    pub(super) fn new(
        asset: &TrackAsset,
        file: &Arc<OpenFile>,
    ) -> Result<Option<LiveTracks>, String> {
        let presentation = &asset.presentation;
        let target_s = TrackSegments::growing_target_s(presentation);
        let Some(target_s) = target_s.map_err(|reason| reason.to_string())? else {
            return Ok(None);
        };
        let began = start_time(&asset.key, presentation.presented_end_ticks());
        let identity = tracks_identity(asset);
        let list = GrowingList { target_s, began, is_complete: false };
        let newest = plan(asset, file, &identity, (list, None))?;
        let settled = newest.plan.track_media().map_or(0, |media| media.plan.settled());
        let is_playable = settled >= LISTED_MIN;
        let made = || LiveTracks {
            recorded: RecordedFile::new(identity, asset.growth()),
            began,
            target_s,
            planning: tokio::sync::Mutex::default(),
            newest: Mutex::new(newest),
            described: Mutex::default(),
        };
        Ok(is_playable.then(made))
    }

    /// True when a file lacks bytes of these segments.
    pub(super) fn is_cut_short(&self, plan: &WebAsset, file: &OpenFile) -> bool {
        let planned = plan.track_media().map(|media| media.asset.presentation.file_bytes());
        planned.is_some_and(|bytes| bytes > file.entity().bytes)
    }

    /// True when it is no longer followed; sessions may still play it.
    pub(super) fn is_over(&self) -> bool {
        let newest = self.recorded.growth().and_then(|growth| growth.newest_tracks());
        newest.is_none_or(|newest| !newest.asset.is_growing())
    }

    /// True when a player may have a dynamic description and ask for the next.
    pub(super) fn is_described(&self) -> bool {
        self.described.lock().followed.is_some_and(|at| at.elapsed() < FOLLOWED)
    }

    /// Returns the segments of the recording, which is `asset` now; of one that is over and is
    /// another now, or none, those known so far. True if it has just ended.
    ///
    /// # Errors
    /// Making them failed.
    pub(super) async fn extended(
        self: &Arc<Self>,
        asset: Option<&Arc<TrackAsset>>,
        file: &Arc<OpenFile>,
    ) -> Result<(Arc<WebAsset>, bool), NoAsset> {
        let asset = asset.filter(|asset| self.recorded.identity() == tracks_identity(asset));
        let is_complete = asset.is_none_or(|asset| !asset.is_growing());
        let known = |newest: &Planned, now: Instant| {
            let is_old = asset.is_some_and(|asset| newest.bytes < asset.key.bytes);
            let is_early = now.duration_since(newest.made) < newest.cost * COST_SHARE;
            let was_complete = newest.plan.growing().is_some_and(|list| list.is_complete);
            let is_known = was_complete || is_early || !is_complete && !is_old;
            is_known.then(|| newest.plan.clone())
        };
        if let Some(plan) = known(&self.newest.lock(), Instant::now()) {
            return Ok((plan, false));
        }
        let _alone = self.planning.lock().await;
        if let Some(plan) = known(&self.newest.lock(), Instant::now()) {
            return Ok((plan, false));
        }
        let before = self.newest.lock().plan.clone();
        let asset = asset.or_else(|| Some(&before.track_media()?.asset)).cloned();
        let asset = asset.ok_or(NoAsset::CHANGING)?;
        let bytes = asset.key.bytes;
        let (live, file) = (self.clone(), file.clone());
        let list = GrowingList { target_s: self.target_s, began: self.began, is_complete };
        let known = before.clone();
        let make = move || plan(&asset, &file, live.recorded.identity(), (list, Some(&known)));
        let made = tokio::task::spawn_blocking(make).await;
        match made.map_err(|panic| NoAsset::Unreadable(panic.to_string()))? {
            Ok(made) => {
                let plan = made.plan.clone();
                *self.newest.lock() = made;
                Ok((plan, is_complete))
            }
            // The playlists stay as they are.
            Err(reason) => {
                tracing::warn!("{}: no further segments: {reason}", self.recorded.identity());
                let mut newest = self.newest.lock();
                (newest.bytes, newest.made) = (bytes, Instant::now());
                Ok((before, false))
            }
        }
    }

    /// Memory of the segments so far and of the sample tables.
    pub(super) fn memory_bytes(&self) -> usize {
        self.newest.lock().plan.memory_bytes()
    }

    /// Returns the item of the plan for that of an address; `None` for texts.
    pub(super) fn item(&self, item: &WebItem, plan: &WebAsset) -> Option<WebItem> {
        let of_track = |stream: usize| TrackList(vec![stream]);
        match item {
            WebItem::LiveTracksInit(list) => Some(WebItem::Init(list.clone())),
            WebItem::LiveTracksSegment(list, number) => {
                Some(WebItem::Segment(list.clone(), *number))
            }
            WebItem::LiveInit(stream, 0) => Some(WebItem::Init(of_track(*stream))),
            WebItem::LiveFragment(stream, 0, start) => {
                let number = plan.track_media()?.segment_at(*stream, *start)?;
                Some(WebItem::Segment(of_track(*stream), number))
            }
            _ => None,
        }
    }

    /// Returns a text of these segments; `None` where there is none of its kind.
    pub(super) fn text(
        &self,
        (item, form): (&WebItem, TsForm),
        plan: &WebAsset,
        now: SystemTime,
    ) -> Option<Bytes> {
        match item {
            WebItem::Master => plan.first_text((item, form), &[]),
            WebItem::LiveTracksPlaylist(list) => plan.text(&WebItem::Playlist(list.clone())),
            WebItem::Manifest | WebItem::LiveManifest => {
                let is_complete = plan.growing().is_some_and(|list| list.is_complete);
                let mut described = self.described.lock();
                if !is_complete {
                    described.followed = Some(Instant::now());
                }
                let known = described.text.as_ref().filter(|(number, _)| *number == plan.number);
                let times = DynamicTimes {
                    began: self.began,
                    now,
                    target_s: self.target_s,
                    is_complete,
                    identity: self.recorded.identity(),
                };
                let made = || {
                    let files = [plan.listed(String::new(), "", &[])];
                    manifest::text(&files, Some(&times)).map(Bytes::from)
                };
                let text = known.map(|(_, text)| text.clone()).or_else(made)?;
                described.text = Some((plan.number, text.clone()));
                Some([&text[..], mpd_elements::end(now).as_bytes()].concat().into())
            }
            _ => None,
        }
    }
}

/// Returns the identity of a recording in addresses: its first track stays the first.
pub(super) fn tracks_identity(asset: &TrackAsset) -> String {
    live_identity(&asset.key, asset.presentation.tracks()[0].identity)
}

/// Plans the segments of a recording so far. May read.
fn plan(
    asset: &TrackAsset,
    file: &Arc<OpenFile>,
    identity: &str,
    (list, before): (GrowingList, Option<&WebAsset>),
) -> Result<Planned, String> {
    let begun = Instant::now();
    let bytes = asset.key.bytes;
    // Without the recording's growth, which ends when no one holds it.
    let asset = Arc::new(asset.so_far());
    let plan = WebAsset::of_recording(&asset, file, identity.to_owned(), (list, before))?;
    let plan = Arc::new(plan);
    Ok(Planned { plan, bytes, made: Instant::now(), cost: begun.elapsed() })
}
