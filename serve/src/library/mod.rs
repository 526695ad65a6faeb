// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the files in the served folder, and the plan of each streamed asset.
//!
//! Names are kept in memory (about 200 bytes a file); plans stay only while an asset is streamed or
//! was requested lately. A known file (its plan in memory or in the cache, or a refusal) is
//! answered without waiting for any scan. Concurrent requests share one scan of a file. [`scans`]
//! makes plans on demand, the background planner makes them for the index. [`watch`] keeps the
//! names current.
//!
//! Sources: ARCHITECTURE.md, "The words": asset, packet plan.
//! Does not decide what may be served ([`crate::library::served_folder`] does, on every open).

pub(crate) mod asset;
pub(crate) mod formats;
pub(crate) mod growing_file;
pub(crate) mod served_folder;

mod background;
#[cfg(test)]
pub(crate) mod byte_name_trials;
pub(crate) mod channel_parts;
mod elementary;
mod file_plan;
mod following;
mod inotify;
mod listing;
mod media_rate;
pub(crate) mod part_starts;
mod planning;
mod queue;
mod recording_reader;
mod scans;
mod segments;
mod summary;
mod touched;
pub(crate) mod track_asset;
mod verdicts;
mod watch;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use media::PlanStore;
use media::plan::PlanKey;
use media::store::asset_key;
use parking_lot::{Mutex, RwLock};
use paths::MappedFile;
use tokio::sync::futures::Notified;
use tokio::time::timeout_at;
use wire::http::path_text;

use crate::library::asset::{Asset, LibraryAsset, WeakLibraryAsset};
use crate::library::formats::is_streamed;
use crate::library::served_folder::{Denied, Folder};

use following::Following;
use scans::{OpenedFile, Scans, Ticket};
use segments::Playlists;
use verdicts::{FileId, Verdicts};

pub(crate) use background::be_nice;
pub use file_plan::{FilePlan, NoFilePlan, plan_file};
pub use formats::{DOWNLOAD_ONLY, download_only, extensions};
pub(crate) use listing::ListedFile;
pub(crate) use scans::Scan;
pub(crate) use segments::LibraryTitle;
pub use summary::{StreamSummary, TrackSummary};
pub(crate) use watch::FolderWatch;

/// An indexed file below the served folder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LibraryEntry {
    pub(crate) bytes: u64,
    pub(crate) modified: SystemTime,
    pub(crate) state: State,
    /// True while a recorder writes the file.
    pub(crate) is_live: bool,
}

/// A name with its entry, for the index.
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) entry: LibraryEntry,
    /// True when a playlist lists the file.
    pub(crate) is_part: bool,
    /// Title whose playlist this file is.
    pub(crate) title: Option<LibraryTitle>,
}

/// Streaming state of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum State {
    /// Not streamed: its name does not suggest it and no client requested it.
    Download,
    /// Waits for its plan.
    Waiting,
    Ready(Arc<StreamSummary>),
    /// Named like a stream but not one, with the reason.
    Refused(String),
}

/// Reason why a file cannot be streamed now.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NoAsset {
    #[error("{0}")]
    Denied(Arc<Denied>),
    /// Not a stream that pagewire can play: answered 415 with the reason.
    #[error("{0}")]
    Refused(String),
    /// Another process is writing the file: it changed while it was read, or too little is there.
    #[error("the file is being written; try again in {} s", again_in.as_secs().max(1))]
    Changing { again_in: Duration },
    /// All scan slots are in use.
    #[error("other files are being read; try again in {} s", again_in.as_secs())]
    Busy { again_in: Duration },
    /// The channel has not sent for long enough.
    #[error("the channel is not on the air here yet; try again in a second")]
    NotOnAir,
    /// Another server sends the channel.
    #[error("this server stands by for channel {name}; the primary serves its viewers")]
    OnStandby { name: String },
    #[error("no such channel: {name}; /channels.json over HTTP lists them")]
    NoChannel { name: String },
    /// The client disconnected before the answer.
    #[error("the peer has hung up")]
    HungUp,
    #[error("reading it: {0}")]
    Unreadable(String),
}

impl NoAsset {
    pub(crate) const CHANGING: NoAsset = NoAsset::Changing { again_in: Duration::from_secs(1) };
    pub(crate) const BUSY: NoAsset = NoAsset::Busy { again_in: Duration::from_secs(5) };

    /// Prefixes the reason with the name of the file, for requests for several files.
    pub(crate) fn of(self, name: &str) -> NoAsset {
        match self {
            NoAsset::Refused(reason) => NoAsset::Refused(format!("{name}: {reason}")),
            NoAsset::Unreadable(reason) => NoAsset::Unreadable(format!("{name}: {reason}")),
            other => other,
        }
    }

    /// Returns whole seconds until a retry may succeed (Retry-After); `None` where it cannot.
    pub(crate) fn again_in_s(&self) -> Option<u64> {
        match self {
            NoAsset::Changing { again_in } | NoAsset::Busy { again_in } => {
                Some(again_in.as_millis().div_ceil(1000).max(1) as u64)
            }
            NoAsset::NotOnAir => Some(1),
            _ => None,
        }
    }
}

/// Request for an asset.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// The file of this name.
    File(&'a str),
    /// The elementary streams of a transport stream.
    Elementary(&'a Arc<Asset>),
}

/// Result of a look-up without a scan.
enum Known {
    Asset(LibraryAsset),
    /// The plan has to be read from the cache or made.
    Unplanned(OpenedFile),
}

/// Index of the served folder with its plans.
pub(crate) struct Library {
    pub(crate) folder: Arc<Folder>,
    pub(crate) cache: PlanStore,
    entries: RwLock<BTreeMap<String, LibraryEntry>>,
    /// Number of changes to the entries.
    generation: AtomicU64,
    /// Files listed by playlists. Locked before the entries.
    playlists: RwLock<Playlists>,
    live: Mutex<LiveAssets>,
    verdicts: Mutex<Verdicts>,
    /// Verdicts about the elementary streams of transport streams.
    elementary_verdicts: Mutex<Verdicts>,
    /// One lock per name: plans of a name are read from the cache one at a time.
    doors: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    scans: Scans,
    following: Following,
}

#[derive(Default)]
struct LiveAssets {
    by_name: HashMap<String, WeakLibraryAsset>,
    /// Recent assets, kept for the SETUP and PLAY that follow a DESCRIBE.
    recent: VecDeque<LibraryAsset>,
}

impl LiveAssets {
    fn keep(&mut self, asset: &LibraryAsset) {
        self.recent.push_back(asset.clone());
        // The newest stays regardless of its size, for the SETUP that follows.
        let bytes = |recent: &VecDeque<LibraryAsset>| {
            recent.iter().map(LibraryAsset::memory_bytes).sum::<usize>()
        };
        while self.recent.len() > RECENT_MAX
            || self.recent.len() > 1 && bytes(&self.recent) > RECENT_BYTES_MAX
        {
            self.recent.pop_front();
        }
    }
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
            elementary_verdicts: Mutex::default(),
            doors: Mutex::default(),
            scans: Scans::default(),
            following: Following::default(),
        }
    }

    /// Returns the asset of this name for the file's present content, requested by `peer`.
    ///
    /// A known asset is returned at once. If the file has to be scanned the caller waits, holding
    /// no resource of the server, until `hung_up` is ready; a scan without waiting callers ends.
    pub(crate) async fn asset(
        self: &Arc<Self>,
        name: &str,
        peer: IpAddr,
        hung_up: impl Future<Output = ()>,
    ) -> Result<LibraryAsset, NoAsset> {
        self.awaited(Wanted::File(name), peer, hung_up).await
    }

    async fn awaited(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        peer: IpAddr,
        hung_up: impl Future<Output = ()>,
    ) -> Result<LibraryAsset, NoAsset> {
        // Created before each look-up, so that no slot freed meanwhile is missed.
        let place_freed = self.scans.place_freed();
        let first = match self.known(wanted).await? {
            Known::Asset(asset) => return Ok(asset),
            Known::Unplanned(opened) => self.ticket(opened, peer),
        };
        tokio::select! {
            biased;
            asset = self.scanned(wanted, peer, first, place_freed) => asset,
            () = hung_up => Err(NoAsset::HungUp),
        }
    }

    /// Returns the result of a scan, by the `first` ticket or one obtained within [`PLACE_WAIT`].
    async fn scanned(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        peer: IpAddr,
        first: Option<Ticket>,
        mut place_freed: Notified<'_>,
    ) -> Result<LibraryAsset, NoAsset> {
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
                true => match self.known(wanted).await? {
                    Known::Asset(asset) => return Ok(asset),
                    Known::Unplanned(opened) => self.ticket(opened, peer),
                },
            };
        }
    }

    fn ticket(self: &Arc<Self>, opened: OpenedFile, peer: IpAddr) -> Option<Ticket> {
        let is_listed = opened.elementary.is_none() && self.is_waiting(&opened.name);
        Ticket::take(self, opened, is_listed, peer)
    }

    /// Looks up the wanted asset without a scan.
    async fn known(self: &Arc<Self>, wanted: Wanted<'_>) -> Result<Known, NoAsset> {
        match wanted {
            Wanted::File(name) => self.known_file(name).await,
            Wanted::Elementary(stream) => self.known_elementary(stream).await,
        }
    }

    /// Looks the file up without a scan.
    async fn known_file(self: &Arc<Self>, name: &str) -> Result<Known, NoAsset> {
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

    /// Opens the file; returns its asset if one is in use.
    fn look_up(&self, name: &str) -> Result<Known, NoAsset> {
        let opened = self.open_file(name)?;
        // A recording whose recorder has just ended is followed until all of it is read. The
        // recorder has left a plan of it in the cache, of another identity.
        let followed = self.following.newest(opened.id);
        let live = || self.live(&opened.name, &opened.key).filter(|_| !opened.is_growing);
        let live = followed.or_else(live);
        Ok(live.map_or(Known::Unplanned(opened), Known::Asset))
    }

    /// Looks the plan up in the cache; returns an error while a verdict forbids a scan.
    fn look_up_planned(&self, opened: OpenedFile) -> Result<Known, NoAsset> {
        if let Some(asset) = self.planned(&opened) {
            return Ok(Known::Asset(asset));
        }
        let verdicts = self.verdicts.lock();
        match verdicts.scan_refusal(opened.id, &opened.key, Instant::now()) {
            // A recording is followed while it changes.
            Some(NoAsset::Changing { .. }) if opened.is_growing => Ok(Known::Unplanned(opened)),
            Some(reason) => Err(reason),
            None => Ok(Known::Unplanned(opened)),
        }
    }

    /// Returns the asset of an open file if it is in use or the cache has its plan.
    fn planned(&self, opened: &OpenedFile) -> Option<LibraryAsset> {
        let (name, key) = (&opened.name, &opened.key);
        if let Some(stream) = &opened.elementary {
            return self.planned_elementary(stream);
        }
        if opened.is_growing {
            return self.following.newest(opened.id);
        }
        self.live(name, key).or_else(|| {
            let asset = LibraryAsset::new(name.clone(), key.clone(), self.cache.plan(key)?);
            self.note(name, key, Ok(StreamSummary::of(&asset)));
            Some(asset)
        })
    }

    fn open_file(&self, name: &str) -> Result<OpenedFile, NoAsset> {
        let (file, metadata) =
            self.folder.file(name).map_err(|denied| NoAsset::Denied(denied.into()))?;
        let name = self.resolved(name, &file);
        let key = asset_key(&self.folder.path_of(&name), &file)
            .map_err(|error| NoAsset::Unreadable(error.to_string()))?;
        let id = FileId::of(&metadata);
        let is_growing = growing_file::is_recorded(&file);
        Ok(OpenedFile { name, file, key, id, is_growing, elementary: None })
    }

    /// Returns an open file's name with links resolved: a file has one plan under all its names.
    /// For a file that was replaced meanwhile, which the kernel marks in the path, it returns the
    /// given name.
    fn resolved(&self, name: &str, file: &File) -> String {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let resolved = link.ok().and_then(|path| {
            let is_marked = path.as_os_str().as_bytes().ends_with(DELETED);
            if is_marked && !is_at(file, &path) {
                return None;
            }
            let name = path.strip_prefix(self.folder.path()).ok()?;
            Some(path_text(name.as_os_str().as_bytes()).into_owned())
        });
        resolved.unwrap_or_else(|| {
            let parts = name.split('/').filter(|part| !matches!(*part, "" | "."));
            parts.collect::<Vec<_>>().join("/")
        })
    }

    /// Opens an asset's file for sessions, unless it has changed since it was planned.
    pub(crate) fn open(&self, name: &str, key: &PlanKey) -> Result<MappedFile, NoAsset> {
        let opened = self.folder.file(name);
        let (file, _) = opened.map_err(|denied| NoAsset::Denied(denied.into()))?;
        let unreadable = |error: std::io::Error| NoAsset::Unreadable(error.to_string());
        let found = asset_key(&self.folder.path_of(name), &file).map_err(unreadable)?;
        if found != *key {
            return Err(NoAsset::CHANGING);
        }
        MappedFile::open(file, name).map_err(|error| NoAsset::Unreadable(error.to_string()))
    }

    /// Copies the entries, in order of names.
    pub(crate) fn entries(&self) -> Vec<Listed> {
        let playlists = self.playlists.read();
        let entries = self.entries.read();
        let mut looks = segments::LOOKS_MAX;
        let known = |(name, entry): (&String, &LibraryEntry)| Listed {
            name: name.clone(),
            entry: entry.clone(),
            is_part: playlists.is_part(name),
            title: playlists.title(name, &entries, &mut looks),
        };
        entries.iter().map(known).collect()
    }

    /// True when an entry lies below this folder, whose name ends with `/`.
    pub(crate) fn has_below(&self, folder: &str) -> bool {
        let entries = self.entries.read();
        let next = entries.range(folder.to_owned()..).next();
        next.is_some_and(|(name, _)| name.starts_with(folder))
    }

    /// Lists the scans in progress with the bytes each has read.
    pub(crate) fn scans(&self) -> Vec<(Arc<Scan>, u64)> {
        let scans = self.scans.list().into_iter();
        scans.map(|scan| (scan.clone(), scan.done.load(Ordering::Relaxed))).collect()
    }

    /// Updates the file's entry with the result of planning.
    fn note(&self, name: &str, key: &PlanKey, planned: Result<StreamSummary, &NoAsset>) {
        let state = match planned {
            Ok(summary) => State::Ready(Arc::new(summary)),
            Err(NoAsset::Changing { .. }) => State::Waiting,
            Err(error) => {
                tracing::info!("{name}: not streamed: {error}");
                match is_streamed(name) {
                    true => State::Refused(error.to_string()),
                    // Its name promises no stream: it is an ordinary download.
                    false => State::Download,
                }
            }
        };
        let playlists = self.playlists.read();
        if playlists.is_part(name) {
            return;
        }
        let mut entries = self.entries.write();
        if let Some(entry) = entries.get_mut(name).filter(|entry| entry.bytes == key.bytes) {
            entry.state = state;
            self.count_change();
        }
    }

    fn live(&self, name: &str, key: &PlanKey) -> Option<LibraryAsset> {
        let live = self.live.lock();
        live.by_name.get(name)?.upgrade().filter(|asset| asset.key() == key)
    }

    fn keep_live(&self, asset: &LibraryAsset) {
        // `Following` owns growing assets and drops them when idle.
        if asset.growth().is_some() {
            return;
        }
        let mut live = self.live.lock();
        live.by_name.retain(|_, known| known.upgrade().is_some());
        if live.recent.iter().any(|recent| recent.is(asset)) {
            return;
        }
        live.by_name.insert(asset.name().to_owned(), asset.downgrade());
        live.keep(asset);
    }

    /// Keeps elementary streams: they are found by their transport stream, not by name.
    fn keep_recent(&self, asset: &LibraryAsset) {
        let mut live = self.live.lock();
        if !live.recent.iter().any(|recent| recent.is(asset)) {
            live.keep(asset);
        }
    }

    fn door(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut doors = self.doors.lock();
        doors.retain(|_, door| door.strong_count() > 0);
        if let Some(door) = doors.get(name).and_then(Weak::upgrade) {
            return door;
        }
        let door = Arc::default();
        doors.insert(name.to_owned(), Arc::downgrade(&door));
        door
    }
}

/// Runs `work` on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NoAsset> + Send + 'static,
) -> Result<T, NoAsset> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(NoAsset::Unreadable(panic.to_string())))
}

const RECENT_MAX: usize = 32;
/// Memory of their plans and tables. An hour takes some MB.
const RECENT_BYTES_MAX: usize = 512 << 20;
/// Longest wait of a peer for a scan slot; then it is asked to retry later.
const PLACE_WAIT: Duration = Duration::from_secs(5);

/// Mark behind the path of a file whose name now belongs to another file (proc_pid_fd(5)); a name
/// may end so.
const DELETED: &[u8] = b" (deleted)";

/// True when a path leads to this open file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(found)) = (file.metadata(), std::fs::symlink_metadata(path)) else {
        return false;
    };
    FileId::of(&file) == FileId::of(&found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_meanwhile_keeps_its_name() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::open(place.path()).unwrap());
        let library = Library::new(folder, PlanStore::open(Some(place.path().join(".cache"))));
        for name in ["a.ts", "a.ts (deleted)"] {
            std::fs::write(place.path().join(name), name).unwrap();
            let (file, _) = library.folder.file(name).unwrap();
            assert_eq!(library.resolved(name, &file), name);
            std::fs::write(place.path().join("other"), "other").unwrap();
            std::fs::rename(place.path().join("other"), place.path().join(name)).unwrap();
            assert_eq!(library.resolved(name, &file), name, "replaced");
            std::fs::remove_file(place.path().join(name)).unwrap();
            assert_eq!(library.resolved(name, &file), name, "removed");
        }
    }
}
