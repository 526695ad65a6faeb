// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library: what lies in the served folder, and the plan of each asset when it is wanted.
//!
//! Names are kept in memory (about 200 bytes a file); plans only while somebody streams them or
//! asked lately. A plan is made at most once at a time however many ask, by [`Library::asset`] on
//! demand and by the background planner for the index; both come from the cache when it has them.
//! [`watch`] keeps the names current.
//!
//! Sources: DESIGN "asset", "packet plan".
//! Does not do: decide what may be served ([`crate::access`] does, on every open).

mod planning;
mod segments;
mod watch;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::SystemTime;

use media::TICKS_PER_SECOND;
use media::plan::{Key, Plan};
use paths::Media;
use serde::Serialize;

use crate::access::{Denied, Folder};
use crate::asset::{Asset, key};
use crate::cache::Cache;

pub(crate) use planning::identity;
pub(crate) use watch::Watch;

/// A file below the folder.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) bytes: u64,
    pub(crate) modified: SystemTime,
    pub(crate) state: State,
}

/// What is known of a file as a stream.
#[derive(Debug, Clone)]
pub(crate) enum State {
    /// Not streamed: its name does not suggest it and nobody asked.
    Download,
    /// To be planned.
    Waiting,
    Ready(Arc<Summary>),
    /// Not a stream, and why.
    Refused(String),
}

/// What the index says of an asset.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Seconds of media.
    pub duration_s: f64,
    /// Mean, of the transport stream.
    pub bits_per_second: u64,
    /// RTP packets.
    pub packets: u64,
    /// Where play can start.
    pub entries: usize,
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
    Changing,
    #[error("reading it: {0}")]
    Unreadable(String),
}

/// A plan being made.
pub(crate) struct Scan {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    done: AtomicU64,
}

/// See the module.
pub(crate) struct Library {
    pub(crate) folder: Arc<Folder>,
    cache: Cache,
    entries: RwLock<BTreeMap<String, Entry>>,
    /// What playlists list. Locked before the entries.
    segments: RwLock<HashSet<String>>,
    live: Mutex<Live>,
    /// One at a time per name.
    doors: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    scans: Mutex<Vec<Arc<Scan>>>,
    blocking: tokio::sync::Semaphore,
}

#[derive(Default)]
struct Live {
    by_name: HashMap<String, Weak<Asset>>,
    /// Kept for the SETUP and PLAY that follow a DESCRIBE.
    recent: VecDeque<Arc<Asset>>,
    /// What lately turned out to be no stream, and why: a file without a clock is read to its end
    /// to find that out, which a peer must not have done again and again.
    refused: VecDeque<(Key, String)>,
}

impl Library {
    pub(crate) fn new(folder: Arc<Folder>, cache: Cache) -> Library {
        Library {
            folder,
            cache,
            entries: RwLock::default(),
            segments: RwLock::default(),
            live: Mutex::default(),
            doors: Mutex::default(),
            scans: Mutex::default(),
            blocking: tokio::sync::Semaphore::new(PLANNERS),
        }
    }

    /// The asset of this name as the file is now.
    pub(crate) async fn asset(self: &Arc<Self>, name: &str) -> Result<Arc<Asset>, NoAsset> {
        let name = name.trim_start_matches('/').to_owned();
        let door = self.door(&name);
        let _alone = door.lock().await;
        let permit = self.blocking.acquire().await.expect("never closed");
        let library = self.clone();
        let done = tokio::task::spawn_blocking(move || library.asset_now(&name)).await;
        drop(permit);
        done.unwrap_or_else(|panic| Err(NoAsset::Unreadable(panic.to_string())))
    }

    /// As [`Library::asset`], waiting on this thread; not to be called from tokio's.
    pub(crate) fn asset_blocking(&self, name: &str) -> Result<Arc<Asset>, NoAsset> {
        let door = self.door(name);
        let _alone = door.blocking_lock();
        self.asset_now(name)
    }

    fn asset_now(&self, name: &str) -> Result<Arc<Asset>, NoAsset> {
        let (file, _) = self.folder.file(name).map_err(|denied| NoAsset::Denied(denied.into()))?;
        let unreadable = |error: std::io::Error| NoAsset::Unreadable(error.to_string());
        let key = key(&self.folder.path().join(name), &file).map_err(unreadable)?;
        if let Some(asset) = self.live(name, &key) {
            // Asked for before it was listed: the planner, too, finds it here.
            if self.is_waiting(name) {
                self.note(name, &key, Ok(&asset.plan));
            }
            return Ok(asset);
        }
        let planned = match (self.refusal(&key), self.cache.plan(&key)) {
            (Some(reason), _) => Err(NoAsset::Refused(reason)),
            (None, Some(plan)) => Ok(plan),
            (None, None) => self.plan(name, &file, &key),
        };
        self.note(name, &key, planned.as_ref());
        let asset = Arc::new(Asset::new(name.to_owned(), key, planned?));
        self.keep_live(&asset);
        Ok(asset)
    }

    /// Opens an asset's file for sessions, unless it has changed since it was planned.
    pub(crate) fn open(&self, asset: &Asset) -> Result<Media, NoAsset> {
        let opened = self.folder.file(&asset.name);
        let (file, _) = opened.map_err(|denied| NoAsset::Denied(denied.into()))?;
        let unreadable = |error: std::io::Error| NoAsset::Unreadable(error.to_string());
        let found = key(&self.folder.path().join(&asset.name), &file).map_err(unreadable)?;
        if found != asset.key {
            return Err(NoAsset::Changing);
        }
        Media::open(file, asset.name.as_str())
            .map_err(|error| NoAsset::Unreadable(error.to_string()))
    }

    /// A copy of the names and what is known of them, in order.
    pub(crate) fn entries(&self) -> Vec<(String, Entry)> {
        let entries = self.entries.read().unwrap();
        entries.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect()
    }

    /// Plans being made now, with their progress in bytes.
    pub(crate) fn scans(&self) -> Vec<(Arc<Scan>, u64)> {
        let scans = self.scans.lock().unwrap();
        scans.iter().map(|scan| (scan.clone(), scan.done.load(Ordering::Relaxed))).collect()
    }

    fn plan(&self, name: &str, file: &File, found: &Key) -> Result<Plan, NoAsset> {
        let scan =
            Arc::new(Scan { name: name.to_owned(), bytes: found.bytes, done: AtomicU64::new(0) });
        self.scans.lock().unwrap().push(scan.clone());
        let planned = planning::plan(file, found.bytes, &scan.done);
        self.scans.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &scan));
        if let Err(NoAsset::Refused(reason)) = &planned {
            self.keep_refusal(found, reason);
        }
        let plan = planned?;
        let path = self.folder.path().join(name);
        if key(&path, file).ok().as_ref() != Some(found) {
            return Err(NoAsset::Changing);
        }
        self.cache.keep_plan(found, &plan);
        Ok(plan)
    }

    /// Writes what became of a plan into the index.
    fn note(&self, name: &str, key: &Key, planned: Result<&Plan, &NoAsset>) {
        let state = match planned {
            Ok(plan) => State::Ready(Arc::new(Summary::of(plan))),
            Err(NoAsset::Changing) => State::Waiting,
            Err(error) => {
                tracing::info!("{name}: not streamed: {error}");
                State::Refused(error.to_string())
            }
        };
        if self.is_segment(name) {
            return;
        }
        let mut entries = self.entries.write().unwrap();
        if let Some(entry) = entries.get_mut(name).filter(|entry| entry.bytes == key.bytes) {
            entry.state = state;
        }
    }

    fn live(&self, name: &str, key: &Key) -> Option<Arc<Asset>> {
        let live = self.live.lock().unwrap();
        live.by_name.get(name)?.upgrade().filter(|asset| asset.key == *key)
    }

    fn refusal(&self, key: &Key) -> Option<String> {
        let live = self.live.lock().unwrap();
        live.refused.iter().find(|(refused, _)| refused == key).map(|(_, reason)| reason.clone())
    }

    fn keep_refusal(&self, key: &Key, reason: &str) {
        let mut live = self.live.lock().unwrap();
        live.refused.push_back((key.clone(), reason.to_owned()));
        if live.refused.len() > RECENT_MAX {
            live.refused.pop_front();
        }
    }

    fn keep_live(&self, asset: &Arc<Asset>) {
        let mut live = self.live.lock().unwrap();
        live.by_name.retain(|_, known| known.strong_count() > 0);
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

impl Summary {
    fn of(plan: &Plan) -> Summary {
        Summary {
            duration_s: plan.duration_ticks() as f64 / TICKS_PER_SECOND as f64,
            bits_per_second: plan.bits_per_second(),
            packets: plan.packets(),
            entries: plan.entries().len(),
            streams: plan.streams().iter().map(|s| (s.pid, s.stream_type)).collect(),
            sync_losses: plan.losses_seen(),
        }
    }
}

/// Files planned at once on request; the disk is the bottleneck, not the processor.
const PLANNERS: usize = 4;
const RECENT_MAX: usize = 32;
