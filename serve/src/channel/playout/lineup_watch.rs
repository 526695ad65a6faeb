// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps a channel's timeline current with the served folder.
//!
//! When the library has changed, all names of the playlist are looked up again; new files are
//! planned and measured, and the timeline is made anew. Faults are logged when they appear and when
//! they disappear.
//!
//! Costs one look-up a name and change of the library, at most once a second.
//!
//! Sources: `serve/src/channel/playlist.rs`, `timeline.rs`.
//! Does not decide what is on the air.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::ChannelShared;
use super::channel_file::ChannelFile;
use crate::channel::playlist::{EntryLookup, Playlist};
use crate::channel::settings::ChannelConfig;
use crate::channel::timeline::{Lineup, Timeline};
use crate::library::asset::LibraryAsset;
use crate::library::served_folder::Denied;
use crate::library::{Library, NoAsset};

/// Files and timeline of a channel at a moment.
pub(crate) struct ChannelPlan {
    pub(crate) timeline: Timeline,
    /// Files that can be played, by name.
    pub(super) files: HashMap<Arc<str>, Arc<ChannelFile>>,
    /// Entries that cannot be played, in words.
    pub(super) faults: Vec<String>,
    /// Grows with every plan.
    pub(super) version: u64,
}

impl ChannelPlan {
    /// A plan without files.
    pub(super) fn empty(config: &ChannelConfig) -> ChannelPlan {
        let timeline = Timeline::new(config, &Lineup::default());
        ChannelPlan { timeline, files: HashMap::new(), faults: Vec::new(), version: 0 }
    }
}

/// The watch of one channel.
pub(super) struct LineupWatch {
    shared: Arc<ChannelShared>,
    library: Arc<Library>,
    playlist: Playlist,
    found: HashMap<String, Found>,
    version: u64,
}

/// Result of a look-up.
enum Found {
    File(Arc<ChannelFile>),
    Folder(Vec<String>),
    Missing,
    Unplayable(String),
}

impl LineupWatch {
    pub(super) fn new(shared: Arc<ChannelShared>, library: Arc<Library>) -> LineupWatch {
        let playlist = Playlist::new(&shared.config);
        LineupWatch { shared, library, playlist, found: HashMap::new(), version: 0 }
    }

    /// Watches until it is aborted.
    pub(super) async fn run(mut self) {
        let mut seen = None;
        loop {
            let generation = self.library.generation();
            if seen != Some(generation) {
                seen = Some(generation);
                self.refresh().await;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Looks every name up again and publishes the plan.
    async fn refresh(&mut self) {
        let mut known = std::mem::take(&mut self.found);
        // Names become known as folders are expanded; each pass looks up those that were missing.
        loop {
            let mut wanted = HashSet::new();
            let found = &self.found;
            let mut draft = Playlist::new(&self.shared.config);
            draft.refresh(|name| look_up(found, name, &mut wanted));
            if wanted.is_empty() {
                break;
            }
            for name in wanted {
                let before = known.remove(&name);
                let found = self.find(&name, before).await;
                self.found.insert(name, found);
            }
        }
        let found = &self.found;
        let change = self.playlist.refresh(|name| look_up(found, name, &mut HashSet::new()));
        let channel = &self.shared.config.name;
        for fault in &change.appeared {
            tracing::warn!("channel.{channel}: {fault}");
        }
        for fault in &change.healed {
            tracing::info!("channel.{channel}: no longer: {fault}");
        }
        self.version += 1;
        let files = self.found.iter().filter_map(|(name, found)| match found {
            Found::File(file) => Some((Arc::from(name.as_str()), file.clone())),
            _ => None,
        });
        let files: HashMap<Arc<str>, Arc<ChannelFile>> = files.collect();
        if let Some(window) = &self.shared.window {
            files.values().for_each(|file| window.note_apart(file.key_frames_apart_ticks()));
        }
        self.shared.set_plan(ChannelPlan {
            timeline: Timeline::new(&self.shared.config, self.playlist.lineup()),
            files,
            faults: self.playlist.faults().map(ToString::to_string).collect(),
            version: self.version,
        });
    }

    /// Looks a name up; keeps the measured file of `before` while the file is the same.
    async fn find(&self, name: &str, before: Option<Found>) -> Found {
        let folder = if name.is_empty() { String::new() } else { format!("{name}/") };
        if name.is_empty() || self.library.has_below(&folder) {
            return Found::Folder(self.files_of(&folder));
        }
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let asset = match self.library.asset(name, local, pending()).await {
            Ok(asset) => asset,
            Err(NoAsset::Denied(denied)) if matches!(*denied, Denied::Missing) => {
                return Found::Missing;
            }
            Err(error) => return Found::Unplayable(error.to_string()),
        };
        let LibraryAsset::Stream(asset) = asset else {
            return Found::Unplayable(TRANSPORT_STREAMS_ALONE.to_owned());
        };
        if let Some(Found::File(file)) = before
            && file.asset.key == asset.key
        {
            return Found::File(file);
        }
        let (library, program) = (self.library.clone(), self.shared.config.program);
        let measured = tokio::task::spawn_blocking(move || {
            let file = library.open(&asset.name, &asset.key).map_err(|error| error.to_string())?;
            let file = file.file().try_clone().map_err(|error| error.to_string())?;
            ChannelFile::measure(asset, file, program).map_err(|error| error.to_string())
        });
        match measured.await {
            Ok(Ok(file)) => Found::File(Arc::new(file)),
            Ok(Err(reason)) => Found::Unplayable(reason),
            Err(_) => Found::Unplayable("measuring it failed".to_owned()),
        }
    }

    /// Returns the names in a folder, whose own name ends with `/`, without those below it.
    fn files_of(&self, folder: &str) -> Vec<String> {
        let entries = self.library.entries().into_iter();
        let names =
            entries.filter_map(|listed| listed.name.strip_prefix(folder).map(str::to_owned));
        names.filter(|name| !name.is_empty() && !name.contains('/')).collect()
    }
}

fn look_up(
    found: &HashMap<String, Found>,
    name: &str,
    wanted: &mut HashSet<String>,
) -> EntryLookup {
    match found.get(name) {
        Some(Found::File(file)) => EntryLookup::Stream { duration: file.duration },
        Some(Found::Folder(files)) => EntryLookup::Folder { files: files.clone() },
        Some(Found::Missing) => EntryLookup::Missing,
        Some(Found::Unplayable(reason)) => EntryLookup::Unstreamable { reason: reason.clone() },
        None => {
            wanted.insert(name.to_owned());
            EntryLookup::Pending
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Reason why a file of tracks is not played.
const TRANSPORT_STREAMS_ALONE: &str = "not an MPEG transport stream, and a channel plays no other \
    file; remux it (ffmpeg -i IN -map 0 -c copy OUT.ts)";
