// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library: what lies in the served folder, and the plan of each asset when it is wanted.
//!
//! Names are kept in memory (about 200 bytes a file); plans only while somebody streams them or
//! asked lately. What is known of a file (a plan in memory or in the cache, a refusal) is answered
//! without waiting for any scan. A plan is made at most once at a time however many ask, on demand
//! by [`scans`] and for the index by the background planner. [`watch`] keeps the names current.
//!
//! Sources: DESIGN "asset", "packet plan".
//! Does not do: decide what may be served ([`crate::served_folder`] does, on every open).

mod background;
mod following;
mod inotify;
mod listing;
mod planning;
mod queue;
mod scans;
mod segments;
mod touched;
mod verdicts;
mod watch;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use media::plan::{PacketPlan, PlanKey};
use media::store::asset_key;
use media::{PlanStore, TICKS_PER_SECOND};
use paths::MappedFile;
use serde::Serialize;
use tokio::sync::futures::Notified;
use tokio::time::timeout_at;

use crate::asset::Asset;
use crate::formats::is_transport_stream;
use crate::growing_file;
use crate::served_folder::{Denied, Folder};

use following::Following;
use scans::{OpenedFile, Scans, Ticket};
use segments::Playlists;
use verdicts::{FileId, Verdicts};

pub(crate) use scans::Scan;
pub(crate) use segments::LibraryTitle;
pub(crate) use watch::FolderWatch;

/// A file below the folder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LibraryEntry {
    pub(crate) bytes: u64,
    pub(crate) modified: SystemTime,
    pub(crate) state: State,
    /// A recorder writes it.
    pub(crate) is_live: bool,
}

/// A name, and what is known of it.
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) entry: LibraryEntry,
    /// A playlist lists it.
    pub(crate) is_part: bool,
    /// It is the playlist of a title.
    pub(crate) title: Option<LibraryTitle>,
}

/// What is known of a file as a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum State {
    /// Not streamed: its name does not suggest it and nobody asked.
    Download,
    /// To be planned.
    Waiting,
    Ready(Arc<StreamSummary>),
    /// Not a stream though it is called one, and why.
    Refused(String),
}

/// What the index says of an asset.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StreamSummary {
    /// Seconds of media.
    pub duration_s: f64,
    /// Mean, of the transport stream.
    pub bits_per_second: u64,
    /// RTP packets.
    pub packets: u64,
    /// Where play can start.
    pub entries: usize,
    /// The streams' codecs as RFC 6381 names them, where each has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codecs: Option<String>,
    /// Elementary streams: PID and stream type (ISO/IEC 13818-1 table 2-34).
    pub streams: Vec<(u16, u8)>,
    /// Places where packet synchronisation was lost.
    pub sync_losses: u64,
}

/// Why a file cannot be streamed now.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NoAsset {
    #[error("{0}")]
    Denied(Arc<Denied>),
    /// Not a stream pagewire can play: answered 415 with the reason.
    #[error("{0}")]
    Refused(String),
    /// It changed while it was read: somebody is writing it.
    #[error("the file is being written; try again when it is whole")]
    Changing { again_in: Duration },
    /// All places for scans are taken.
    #[error("other files are being read; try again in {} s", again_in.as_secs())]
    Busy { again_in: Duration },
    /// Whoever asked is gone before the answer.
    #[error("the peer has hung up")]
    HungUp,
    #[error("reading it: {0}")]
    Unreadable(String),
}

impl NoAsset {
    const CHANGING: NoAsset = NoAsset::Changing { again_in: Duration::from_secs(1) };
    const BUSY: NoAsset = NoAsset::Busy { again_in: Duration::from_secs(5) };

    /// When to ask again, in whole seconds, where that may help (Retry-After).
    pub(crate) fn again_in_s(&self) -> Option<u64> {
        match self {
            NoAsset::Changing { again_in } | NoAsset::Busy { again_in } => {
                Some(again_in.as_millis().div_ceil(1000).max(1) as u64)
            }
            _ => None,
        }
    }
}

/// Outcome of a look at what is known.
enum Known {
    Asset(Arc<Asset>),
    /// Its plan has to be read from the cache or made.
    Unplanned(OpenedFile),
}

/// See the module.
pub(crate) struct Library {
    pub(crate) folder: Arc<Folder>,
    pub(crate) cache: PlanStore,
    entries: RwLock<BTreeMap<String, LibraryEntry>>,
    /// Counts changes of the entries.
    generation: AtomicU64,
    /// What playlists list. Locked before the entries.
    playlists: RwLock<Playlists>,
    live: Mutex<LiveAssets>,
    verdicts: Mutex<Verdicts>,
    /// Plans are read from the cache one at a time per name.
    doors: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    scans: Scans,
    following: Following,
}

#[derive(Default)]
struct LiveAssets {
    by_name: HashMap<String, Weak<Asset>>,
    /// Kept for the SETUP and PLAY that follow a DESCRIBE.
    recent: VecDeque<Arc<Asset>>,
}

impl Library {
    pub(crate) fn new(folder: Arc<Folder>, cache: PlanStore) -> Library {
        Library {
            folder,
            cache,
            entries: RwLock::default(),
            generation: AtomicU64::new(0),
            playlists: RwLock::default(),
            live: Mutex::default(),
            verdicts: Mutex::default(),
            doors: Mutex::default(),
            scans: Scans::default(),
            following: Following::default(),
        }
    }

    /// The asset of this name as the file is now, asked for by `peer`.
    ///
    /// What is known is answered at once. Where the file has to be scanned the caller waits, with
    /// nothing of the server's in its hands, until `hung_up` is ready; a scan that nobody waits
    /// for any more ends.
    pub(crate) async fn asset(
        self: &Arc<Self>,
        name: &str,
        peer: IpAddr,
        hung_up: impl Future<Output = ()>,
    ) -> Result<Arc<Asset>, NoAsset> {
        // Made before each look, so that no place is missed that becomes free meanwhile.
        let place_freed = self.scans.place_freed();
        let first = match self.known(name).await? {
            Known::Asset(asset) => return Ok(asset),
            Known::Unplanned(opened) => self.ticket(opened, peer),
        };
        tokio::select! {
            biased;
            asset = self.scanned(name, peer, first, place_freed) => asset,
            () = hung_up => Err(NoAsset::HungUp),
        }
    }

    /// The result of a scan: by the `first` ticket, or by one that is had within [`PLACE_WAIT`].
    async fn scanned(
        self: &Arc<Self>,
        name: &str,
        peer: IpAddr,
        first: Option<Ticket>,
        mut place_freed: Notified<'_>,
    ) -> Result<Arc<Asset>, NoAsset> {
        let deadline = tokio::time::Instant::now() + PLACE_WAIT;
        let mut ticket = first;
        loop {
            if let Some(ticket) = ticket {
                return ticket.outcome().await;
            }
            timeout_at(deadline, place_freed).await.map_err(|_| NoAsset::BUSY)?;
            place_freed = self.scans.place_freed();
            ticket = match self.scans.has_place(peer) {
                false => None,
                true => match self.known(name).await? {
                    Known::Asset(asset) => return Ok(asset),
                    Known::Unplanned(opened) => self.ticket(opened, peer),
                },
            };
        }
    }

    fn ticket(self: &Arc<Self>, opened: OpenedFile, peer: IpAddr) -> Option<Ticket> {
        let is_listed = self.is_waiting(&opened.name);
        Ticket::take(self, opened, is_listed, peer)
    }

    /// What is known of the file without a scan.
    async fn known(self: &Arc<Self>, name: &str) -> Result<Known, NoAsset> {
        let (library, name) = (self.clone(), name.to_owned());
        let opened = match blocking(move || library.look_up(&name)).await? {
            Known::Asset(asset) => return Ok(Known::Asset(asset)),
            Known::Unplanned(opened) => opened,
        };
        let door = self.door(&opened.name);
        let _alone = door.lock().await;
        let library = self.clone();
        blocking(move || {
            let known = library.look_up_planned(opened)?;
            if let Known::Asset(asset) = &known {
                library.keep_live(asset);
            }
            Ok(known)
        })
        .await
    }

    /// Opens the file; the asset, if somebody uses it.
    fn look_up(&self, name: &str) -> Result<Known, NoAsset> {
        let opened = self.open_file(name)?;
        let live = match opened.is_growing {
            true => self.following.newest(opened.id),
            false => self.live(&opened.name, &opened.key),
        };
        Ok(live.map_or(Known::Unplanned(opened), Known::Asset))
    }

    /// As [`Library::look_up`], from the cache, or the reason why it is not to be scanned now.
    fn look_up_planned(&self, opened: OpenedFile) -> Result<Known, NoAsset> {
        if let Some(asset) = self.planned(&opened) {
            return Ok(Known::Asset(asset));
        }
        let verdicts = self.verdicts.lock().unwrap();
        match verdicts.standing(opened.id, &opened.key, Instant::now()) {
            // A recording is followed while it changes.
            Some(NoAsset::Changing { .. }) if opened.is_growing => Ok(Known::Unplanned(opened)),
            Some(standing) => Err(standing),
            None => Ok(Known::Unplanned(opened)),
        }
    }

    /// The asset of an open file, where somebody uses it or the cache has its plan.
    fn planned(&self, opened: &OpenedFile) -> Option<Arc<Asset>> {
        let (name, key) = (&opened.name, &opened.key);
        if opened.is_growing {
            return self.following.newest(opened.id);
        }
        self.live(name, key).or_else(|| {
            let plan = self.cache.plan(key)?;
            self.note(name, key, Ok(&plan));
            Some(Arc::new(Asset::new(name.clone(), key.clone(), plan)))
        })
    }

    fn open_file(&self, name: &str) -> Result<OpenedFile, NoAsset> {
        let (file, metadata) =
            self.folder.file(name).map_err(|denied| NoAsset::Denied(denied.into()))?;
        let name = self.resolved(name, &file);
        let key = asset_key(&self.folder.path().join(&name), &file)
            .map_err(|error| NoAsset::Unreadable(error.to_string()))?;
        let id = FileId { device: metadata.dev(), inode: metadata.ino() };
        let is_growing = growing_file::is_recorded(&file);
        Ok(OpenedFile { name, file, key, id, is_growing })
    }

    /// The name of an open file with links resolved: however a peer writes it, a file has one plan.
    fn resolved(&self, name: &str, file: &File) -> String {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let resolved = link.ok().and_then(|path| {
            let name = path.strip_prefix(self.folder.path()).ok()?.to_str()?;
            Some(name.to_owned())
        });
        resolved.unwrap_or_else(|| {
            let parts = name.split('/').filter(|part| !matches!(*part, "" | "."));
            parts.collect::<Vec<_>>().join("/")
        })
    }

    /// Opens an asset's file for sessions, unless it has changed since it was planned.
    pub(crate) fn open(&self, asset: &Asset) -> Result<MappedFile, NoAsset> {
        let opened = self.folder.file(&asset.name);
        let (file, _) = opened.map_err(|denied| NoAsset::Denied(denied.into()))?;
        let unreadable = |error: std::io::Error| NoAsset::Unreadable(error.to_string());
        let found = asset_key(&self.folder.path().join(&asset.name), &file).map_err(unreadable)?;
        if found != asset.key {
            return Err(NoAsset::CHANGING);
        }
        MappedFile::open(file, asset.name.as_str())
            .map_err(|error| NoAsset::Unreadable(error.to_string()))
    }

    /// A copy of the names and what is known of them, in order.
    pub(crate) fn entries(&self) -> Vec<Listed> {
        let playlists = self.playlists.read().unwrap();
        let entries = self.entries.read().unwrap();
        let mut looks = segments::LOOKS_MAX;
        let known = |(name, entry): (&String, &LibraryEntry)| Listed {
            name: name.clone(),
            entry: entry.clone(),
            is_part: playlists.is_part(name),
            title: playlists.title(name, &entries, &mut looks),
        };
        entries.iter().map(known).collect()
    }

    /// Whether anything that is listed lies below this folder, which is named with a `/` behind.
    pub(crate) fn has_below(&self, folder: &str) -> bool {
        let entries = self.entries.read().unwrap();
        let next = entries.range(folder.to_owned()..).next();
        next.is_some_and(|(name, _)| name.starts_with(folder))
    }

    /// Plans being made now, with their progress in bytes.
    pub(crate) fn scans(&self) -> Vec<(Arc<Scan>, u64)> {
        let scans = self.scans.list().into_iter();
        scans.map(|scan| (scan.clone(), scan.done.load(Ordering::Relaxed))).collect()
    }

    /// Writes what became of a plan into the index.
    fn note(&self, name: &str, key: &PlanKey, planned: Result<&PacketPlan, &NoAsset>) {
        let state = match planned {
            Ok(plan) => State::Ready(Arc::new(StreamSummary::of(plan))),
            Err(NoAsset::Changing { .. }) => State::Waiting,
            Err(error) => {
                tracing::info!("{name}: not streamed: {error}");
                match is_transport_stream(name) {
                    true => State::Refused(error.to_string()),
                    // A file like any other, whoever asked for it.
                    false => State::Download,
                }
            }
        };
        let playlists = self.playlists.read().unwrap();
        if playlists.is_part(name) {
            return;
        }
        let mut entries = self.entries.write().unwrap();
        if let Some(entry) = entries.get_mut(name).filter(|entry| entry.bytes == key.bytes) {
            entry.state = state;
            self.count_change();
        }
    }

    fn live(&self, name: &str, key: &PlanKey) -> Option<Arc<Asset>> {
        let live = self.live.lock().unwrap();
        live.by_name.get(name)?.upgrade().filter(|asset| asset.key == *key)
    }

    fn keep_live(&self, asset: &Arc<Asset>) {
        // Those who follow it keep it, and forget it when nobody asks any more.
        if asset.is_growing() {
            return;
        }
        let mut live = self.live.lock().unwrap();
        live.by_name.retain(|_, known| known.strong_count() > 0);
        if live.recent.iter().any(|recent| Arc::ptr_eq(recent, asset)) {
            return;
        }
        live.by_name.insert(asset.name.clone(), Arc::downgrade(asset));
        live.recent.push_back(asset.clone());
        if live.recent.len() > RECENT_MAX {
            live.recent.pop_front();
        }
    }

    fn door(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut doors = self.doors.lock().unwrap();
        doors.retain(|_, door| door.strong_count() > 0);
        if let Some(door) = doors.get(name).and_then(Weak::upgrade) {
            return door;
        }
        let door = Arc::default();
        doors.insert(name.to_owned(), Arc::downgrade(&door));
        door
    }
}

impl StreamSummary {
    fn of(plan: &PacketPlan) -> StreamSummary {
        StreamSummary {
            duration_s: plan.duration_ticks() as f64 / TICKS_PER_SECOND as f64,
            bits_per_second: plan.bits_per_second(),
            packets: plan.packets(),
            entries: plan.entries().len(),
            codecs: plan.codecs().map(str::to_owned),
            streams: plan.streams().iter().map(|s| (s.pid, s.stream_type)).collect(),
            sync_losses: plan.losses_seen(),
        }
    }
}

/// Runs on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NoAsset> + Send + 'static,
) -> Result<T, NoAsset> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(NoAsset::Unreadable(panic.to_string())))
}

const RECENT_MAX: usize = 32;
/// A peer waits so long for a place among the scans before it is told to come again.
const PLACE_WAIT: Duration = Duration::from_secs(5);
