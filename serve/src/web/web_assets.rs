// SPDX-License-Identifier: MIT OR Apache-2.0
//! The segment plans that are in use.
//!
//! One plan serves all loops and viewers of a file. Requests that arrive while it is made wait for
//! it. The least used plans are dropped when all exceed [`MEMORY_BYTES_MAX`]; those of a content
//! that a file no longer has are not requested, and are dropped with them.
//!
//! Does not make plans ([`super::web_asset`]) or look for files.

use std::net::IpAddr;
use std::sync::Arc;

use media::plan::PlanKey;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};
use tokio::sync::Semaphore;
use wire::http::file_etag;

use super::address::{WebAddress, WebItem};
use super::live::LiveAsset;
use super::live_tracks::{LiveTracks, tracks_identity};
use super::made_parts::MadeParts;
use super::protection::{AssetKeys, Protection};
use super::recorded_file::live_identity;
use super::segment_copies::SegmentCopies;
use super::subtitles::Subtitles;
use super::web_asset::{WebAsset, identity};
use super::weighted_cache::{weighted_cache, weighted_cache_with};
use crate::http::open_files::OpenFile;
use crate::library::asset::{Asset, LibraryAsset};
use crate::library::track_asset::TrackAsset;
use crate::library::{Library, NoAsset};

/// Memory of all plans, their playlists, and the plans of files that they hold; and their expected
/// number.
const MEMORY_BYTES_MAX: u64 = 256 << 20;
const ASSETS_EXPECTED: usize = 1024;

/// Most requests that wait at once for a segment, part or playlist ([`super::live_reload`]).
const WAITS_MAX: usize = 16_384;

/// The plans in use, and the segments that were copied.
pub(crate) struct WebAssets {
    assets: Cache<AssetName, Arc<WebAsset>, ByMemory>,
    recordings: Cache<String, LiveRecording, ByRecording, DefaultHashBuilder, InProgress>,
    /// Places for requests that wait for the next part of a recording.
    pub(crate) waits: Semaphore,
    pub(super) copies: SegmentCopies,
    pub(super) made_parts: MadeParts,
    pub(super) subtitles: Subtitles,
    /// Unset where segments are clear.
    protection: Option<Protection>,
}

/// A recording of either kind.
#[derive(Clone)]
enum LiveRecording {
    Stream(Arc<LiveAsset>),
    Tracks(Arc<LiveTracks>),
}

impl LiveRecording {
    fn is_in_progress(&self) -> bool {
        match self {
            LiveRecording::Stream(live) => live.recorded.growth().is_some(),
            LiveRecording::Tracks(live) => live.recorded.growth().is_some(),
        }
    }

    fn tracks(self) -> Option<Arc<LiveTracks>> {
        match self {
            LiveRecording::Stream(_) => None,
            LiveRecording::Tracks(live) => Some(live),
        }
    }

    fn stream(self) -> Option<Arc<LiveAsset>> {
        match self {
            LiveRecording::Stream(live) => Some(live),
            LiveRecording::Tracks(_) => None,
        }
    }
}

/// Name of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AssetName {
    file: String,
    identity: String,
    form: AssetForm,
}

/// Form of the content that a plan is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AssetForm {
    /// The file as it is.
    AsItIs,
    /// The elementary streams of a transport stream.
    Elementary,
}

#[derive(Clone)]
struct ByMemory;

impl Weighter<AssetName, Arc<WebAsset>> for ByMemory {
    fn weight(&self, name: &AssetName, asset: &Arc<WebAsset>) -> u64 {
        (name.file.len() + asset.memory_bytes()) as u64
    }
}

/// Weighs a recording by its memory when it is added.
#[derive(Clone)]
struct ByRecording;

impl Weighter<String, LiveRecording> for ByRecording {
    fn weight(&self, _: &String, recording: &LiveRecording) -> u64 {
        match recording {
            LiveRecording::Stream(_) => 1,
            LiveRecording::Tracks(live) => 1 + live.memory_bytes() as u64 / RECORDING_BYTES,
        }
    }
}

impl WebAssets {
    /// `folder` holds the copied segments; without one they are in memory.
    pub(crate) fn new(
        folder: Option<std::path::PathBuf>,
        protection: Option<Protection>,
    ) -> WebAssets {
        WebAssets {
            protection,
            recordings: weighted_cache_with(
                RECORDINGS_MAX,
                RECORDINGS_MAX as u64,
                ByRecording,
                InProgress,
            ),
            waits: Semaphore::new(WAITS_MAX),
            assets: weighted_cache(ASSETS_EXPECTED, MEMORY_BYTES_MAX, ByMemory),
            copies: SegmentCopies::new(folder),
            made_parts: MadeParts::new(),
            subtitles: Subtitles::new(),
        }
    }

    /// True where segments are enciphered.
    pub(super) fn is_enciphered(&self) -> bool {
        self.protection.is_some()
    }

    /// Returns the identity of a file's content in addresses.
    pub(super) fn identity<'a>(&self, file: &'a OpenFile) -> &'a str {
        let mark = self.protection.as_ref().map_or("", Protection::mark);
        file.identity(|entity| identity(entity, mark))
    }

    /// Returns the film for which the keys of a file's content are made.
    pub(crate) fn film(&self, name: &str, file: &OpenFile) -> String {
        format!("{name}/~{}", self.identity(file))
    }

    /// Returns the plan of an open file that has the item of an address.
    pub(crate) async fn get(
        &self,
        address: &WebAddress<'_>,
        file: &Arc<OpenFile>,
        library: &Arc<Library>,
        peer: IpAddr,
    ) -> Result<WebSource, NoAsset> {
        let (name, item) = (address.file, &address.item);
        if item.is_live() {
            return self.recording(address, file, library, peer).await;
        }
        if *item == WebItem::Manifest
            && let Some(ended) = self.just_ended(name, file, library, peer).await
        {
            return Ok(ended);
        }
        match self.in_form(AssetForm::AsItIs, name, file, library, peer).await {
            Ok(asset) if asset.needs_elementary(item) => {
                let made = self.in_form(AssetForm::Elementary, name, file, library, peer).await;
                made.map(WebSource::Whole).map_err(NotWhole::reason)
            }
            Ok(asset) => Ok(WebSource::Whole(asset)),
            Err(NotWhole::Continues) if matches!(item, WebItem::Master | WebItem::Manifest) => {
                self.recording(address, file, library, peer).await
            }
            Err(reason) => Err(reason.reason()),
        }
    }

    /// Returns a recording that is whole and whose players may not have learned that yet.
    async fn just_ended(
        &self,
        name: &str,
        file: &Arc<OpenFile>,
        library: &Arc<Library>,
        peer: IpAddr,
    ) -> Option<WebSource> {
        if self.recordings.is_empty() {
            return None;
        }
        let asset = library.asset(name, peer, std::future::pending()).await.ok()?;
        if asset.continues() {
            return None;
        }
        match &asset {
            LibraryAsset::Stream(asset) => {
                let live = self.recordings.get(&stream_name(name, asset))?.stream()?;
                if !live.recorded.is_of(file) || !live.dash.is_followed() {
                    return None;
                }
                live.extend(asset);
                Some(WebSource::Live(live, asset.clone()))
            }
            LibraryAsset::Tracks(asset) => {
                let live = self.recordings.get(&tracks_name(name, asset))?.tracks()?;
                if !live.recorded.is_of(file) || !live.is_described() {
                    return None;
                }
                let plan = self.extended((name, &live), Some(asset), file).await.ok()?;
                Some(WebSource::LiveTracks(live, plan))
            }
        }
    }

    /// Returns a recording as it is now; also one that is whole, as long as it is kept from the
    /// time when it was recorded: its cuts and dates are nowhere else.
    async fn recording(
        &self,
        address: &WebAddress<'_>,
        file: &Arc<OpenFile>,
        library: &Arc<Library>,
        peer: IpAddr,
    ) -> Result<WebSource, NoAsset> {
        let name = address.file;
        let asset = match library.asset(name, peer, std::future::pending()).await {
            Ok(asset) => asset,
            // It may have broken off, and its file be no film any more, or not yet one again.
            Err(reason) => match self.asked(address) {
                Some(LiveRecording::Tracks(live))
                    if live.is_over() && live.recorded.is_of(file) =>
                {
                    let plan = self.extended((name, &live), None, file).await?;
                    return Ok(WebSource::LiveTracks(live, plan));
                }
                Some(LiveRecording::Stream(live)) if live.recorded.was_cut_short() => {
                    return Ok(WebSource::Over);
                }
                _ => return Err(reason),
            },
        };
        let is_same = file.entity().etag.starts_with(&format!("\"{:x}-", asset.key().inode));
        if self.protection.is_some() {
            return Err(NoAsset::Refused(ENCIPHERED.to_owned()));
        }
        if !is_same {
            return Err(NoAsset::Refused(NO_RECORDING.to_owned()));
        }
        asset.growth().inspect(|growth| growth.note_viewed());
        match &asset {
            LibraryAsset::Stream(asset) => self.stream_recording(name, asset, file).await,
            LibraryAsset::Tracks(asset) => self.tracks_recording(address, asset, file).await,
        }
    }

    /// Returns a recording of tracks, also one that is over and that the library has planned anew:
    /// one whose recorder was killed.
    async fn tracks_recording(
        &self,
        address: &WebAddress<'_>,
        asset: &Arc<TrackAsset>,
        file: &Arc<OpenFile>,
    ) -> Result<WebSource, NoAsset> {
        let live = match self.asked(address).and_then(LiveRecording::tracks) {
            // It is followed anew, as another.
            Some(live)
                if asset.is_growing() && live.recorded.identity() != tracks_identity(asset) =>
            {
                return Ok(WebSource::Over);
            }
            Some(live) => live,
            None if !asset.is_growing() => return Ok(WebSource::Over),
            None => {
                let named = tracks_name(address.file, asset);
                let made = self.recordings.get_or_insert_async(&named, async {
                    let (asset, file) = (asset.clone(), file.clone());
                    let make = move || LiveTracks::new(&asset, &file);
                    let made = tokio::task::spawn_blocking(make).await;
                    let made = made.map_err(|panic| NoAsset::Unreadable(panic.to_string()))?;
                    let made = made.map_err(NoAsset::Refused)?.ok_or(NoAsset::CHANGING)?;
                    Ok::<_, NoAsset>(LiveRecording::Tracks(Arc::new(made)))
                });
                made.await?.tracks().ok_or(NoAsset::CHANGING)?
            }
        };
        let plan = self.extended((address.file, &live), Some(asset), file).await?;
        Ok(WebSource::LiveTracks(live, plan))
    }

    /// Returns the known recording that an address names.
    fn asked(&self, address: &WebAddress<'_>) -> Option<LiveRecording> {
        self.recordings.get(&format!("{}/~{}", address.file, address.identity?))
    }

    /// Returns the segments of a recording, which is weighed again when it is over.
    async fn extended(
        &self,
        (name, live): (&str, &Arc<LiveTracks>),
        asset: Option<&Arc<TrackAsset>>,
        file: &Arc<OpenFile>,
    ) -> Result<Arc<WebAsset>, NoAsset> {
        let (plan, is_over) = live.extended(asset, file).await?;
        if is_over {
            let named = format!("{name}/~{}", live.recorded.identity());
            self.recordings.insert(named, LiveRecording::Tracks(live.clone()));
        }
        Ok(plan)
    }

    async fn stream_recording(
        &self,
        name: &str,
        asset: &Arc<Asset>,
        file: &Arc<OpenFile>,
    ) -> Result<WebSource, NoAsset> {
        if asset.channel_parts().is_some() {
            return Err(NoAsset::Refused(NO_RECORDING.to_owned()));
        }
        let named = stream_name(name, asset);
        let made = self.recordings.get_or_insert_async(&named, async {
            if !asset.is_growing() {
                return Err(NoRecording::Over);
            }
            let (asset, file) = (asset.clone(), file.clone());
            let made = tokio::task::spawn_blocking(move || LiveAsset::new(&asset, &file)).await;
            let unreadable = |reason: String| NoRecording::Other(NoAsset::Unreadable(reason));
            let made = made.map_err(|panic| unreadable(panic.to_string()))?;
            let made = made.map_err(|error| unreadable(error.to_string()))?.map(Arc::new);
            made.map(LiveRecording::Stream).ok_or(NoRecording::Other(NoAsset::CHANGING))
        });
        match made.await {
            Ok(live) => {
                let live = live.stream().ok_or(NoAsset::CHANGING)?;
                live.extend(asset);
                Ok(WebSource::Live(live, asset.clone()))
            }
            Err(NoRecording::Over) => Ok(WebSource::Over),
            Err(NoRecording::Other(reason)) => Err(reason),
        }
    }

    async fn in_form(
        &self,
        form: AssetForm,
        name: &str,
        file: &Arc<OpenFile>,
        library: &Arc<Library>,
        peer: IpAddr,
    ) -> Result<Arc<WebAsset>, NotWhole> {
        let named =
            AssetName { file: name.to_owned(), identity: self.identity(file).to_owned(), form };
        let made = self.assets.get_or_insert_async(&named, async {
            let hung_up = std::future::pending;
            let mut asset = library.asset(name, peer, hung_up()).await?;
            if asset.continues() {
                return Err(NotWhole::Continues);
            }
            if !is_of(asset.key(), file) {
                return Err(NoAsset::CHANGING.into());
            }
            if let (AssetForm::Elementary, LibraryAsset::Stream(stream)) = (form, &asset) {
                asset = library.elementary(stream, peer, hung_up()).await?;
            }
            let protection = self.protection.as_ref();
            let keys = protection.map(|by| AssetKeys::new(self.film(name, file), by));
            let (file, identity) = (file.clone(), named.identity.clone());
            let make = move || WebAsset::of(&asset, &file, identity, keys);
            let made = tokio::task::spawn_blocking(make).await;
            let made = made.map_err(|panic| NoAsset::Unreadable(panic.to_string()))?;
            made.map(Arc::new).map_err(|reason| NoAsset::Refused(reason).into())
        });
        made.await
    }
}

/// Name of a recording.
fn stream_name(name: &str, asset: &Asset) -> String {
    format!("{name}/~{}", live_identity(&asset.key, asset.plan.identity()))
}

/// Name of a recording of tracks.
fn tracks_name(name: &str, asset: &TrackAsset) -> String {
    format!("{name}/~{}", tracks_identity(asset))
}

/// True when a plan is of the content of this file.
fn is_of(key: &PlanKey, file: &OpenFile) -> bool {
    let is_so = |modified| file_etag(key.bytes, modified, key.inode) == file.entity().etag;
    key.modified().is_some_and(is_so)
}

/// Source that an item is made of.
pub(crate) enum WebSource {
    Whole(Arc<WebAsset>),
    /// A recording, up to the bytes written so far.
    Live(Arc<LiveAsset>, Arc<Asset>),
    /// The same of tracks, with the segments so far.
    LiveTracks(Arc<LiveTracks>, Arc<WebAsset>),
    /// A recording that is whole and whose segments are no longer kept.
    Over,
}

/// Reason why a file is no recording in progress.
enum NoRecording {
    Over,
    Other(NoAsset),
}

/// Keeps the recordings in progress: players hold addresses with their cuts and dates.
#[derive(Clone)]
struct InProgress;

impl Lifecycle<String, LiveRecording> for InProgress {
    type RequestState = ();

    fn is_pinned(&self, _: &String, live: &LiveRecording) -> bool {
        live.is_in_progress()
    }
}

/// Reason why there is no plan of a whole file.
enum NotWhole {
    /// It is still written.
    Continues,
    Other(NoAsset),
}

impl From<NoAsset> for NotWhole {
    fn from(reason: NoAsset) -> NotWhole {
        NotWhole::Other(reason)
    }
}

impl NotWhole {
    fn reason(self) -> NoAsset {
        match self {
            NotWhole::Continues => NoAsset::Refused(CONTINUES.to_owned()),
            NotWhole::Other(reason) => reason,
        }
    }
}

/// Recordings whose segments are kept: those in progress, which are followed and at most 256, and
/// others that have ended.
const RECORDINGS_MAX: usize = 512;

/// Memory of a recording; a longer one takes the place of several.
const RECORDING_BYTES: u64 = 2 << 20;

/// Reasons for files without an end, and for others.
const CONTINUES: &str =
    "the file is still written: play its master.m3u8 or manifest.mpd, or wait until it is whole";
const ENCIPHERED: &str = "segments are enciphered (--hls-cipher), and those of a recording cannot \
    be: wait until it is whole";
const NO_RECORDING: &str = "no recording with key frames that can be cut as it lies in the file";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::growing_file::Growth;

    /// Regression: requests for 300 other files once pushed a recording out, which was then made
    /// anew with other dates.
    #[test]
    fn recordings_in_progress_stay_and_others_give_way() {
        let of_clip =
            |growth: &Arc<Growth>| LiveRecording::Stream(Arc::new(LiveAsset::of_clip(growth)));
        let ended = of_clip(&Arc::new(Growth::new()));
        for is_in_progress in [true, false] {
            let recordings = weighted_cache_with(4, 4, ByRecording, InProgress);
            let growth = Arc::new(Growth::new());
            let mut made = Some(of_clip(&growth));
            let held = is_in_progress.then_some(growth);
            for number in 0..40 {
                recordings.insert(number.to_string(), ended.clone());
                // The first entries keep their places for longest.
                if let Some(live) = made.take_if(|_| number == 10) {
                    recordings.insert("a".to_owned(), live);
                }
            }
            assert_eq!(recordings.peek("a").is_some(), is_in_progress);
            assert!(recordings.len() <= 4, "{} are kept", recordings.len());
            drop(held);
        }
    }
}
