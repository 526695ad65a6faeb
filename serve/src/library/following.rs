// SPDX-License-Identifier: MIT OR Apache-2.0
//! Following recordings while they are written: one thread reads what each has got since and makes
//! the next plan.
//!
//! A recording is followed from the first time that somebody asks for it, after one scan of what is
//! there, and for as long as it has sessions or was asked for lately; once followed it is known
//! without a scan. A new plan is made every half second at most, and no more often than a twentieth
//! of the time allows: a plan of hours takes milliseconds, one of days may take more.
//!
//! A plan of a recording ends where the clock is known, at the last clock reference, so nothing in
//! it changes in the next one. When the recorder is gone the last plan has everything, is kept in
//! the cache, and the file is an asset like any other.
//!
//! Costs one read of what is written, mostly from the page cache, a descriptor and a scanner (20
//! KiB and 20 bytes a clock reference) for each recording followed.
//!
//! Does not do: tell whether a file is a recording ([`crate::growth`] does).

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use media::plan::{Identity, Key};
use media::{Scanner, TICKS_PER_SECOND};
use paths::Media;

use super::scans::Opened;
use super::verdicts::FileId;
use super::{Library, NoAsset, identity, name_codecs};
use crate::asset::{Asset, Source, key};
use crate::growth::{Growth, is_recorded};

/// The recordings followed.
#[derive(Default)]
pub(super) struct Following {
    state: Mutex<State>,
    /// There is a new one, or the server stops.
    wake: Condvar,
}

#[derive(Default)]
struct State {
    known: HashMap<FileId, Arc<Growth>>,
    new: Vec<Follow>,
    is_stopping: bool,
}

/// A recording followed, in the hands of the thread.
struct Follow {
    name: String,
    id: FileId,
    file: File,
    scanner: Box<Scanner>,
    identity: Identity,
    /// Bytes read.
    offset: u64,
    growth: Arc<Growth>,
    has_news: bool,
    /// The last plan was made then, and took so long.
    planned: Instant,
    cost: Duration,
    /// The recorder is gone and everything is read.
    is_over: bool,
}

impl Following {
    /// The newest of a recording that is followed.
    pub(super) fn newest(&self, id: FileId) -> Option<Arc<Asset>> {
        let state = self.lock();
        let growth = state.known.get(&id)?;
        growth.note_asked();
        Some(growth.newest()?.asset.clone())
    }

    pub(super) fn stop(&self) {
        self.lock().is_stopping = true;
        self.wake.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to follow, or for the next look where `is_busy`; those that
    /// are new. None when the server stops.
    fn next(&self, is_busy: bool) -> Option<Vec<Follow>> {
        let mut state = self.lock();
        if is_busy && !state.is_stopping && state.new.is_empty() {
            let waited = self.wake.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        while !is_busy && !state.is_stopping && state.new.is_empty() {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.is_stopping).then(|| std::mem::take(&mut state.new))
    }

    /// Forgets a recording; false where somebody has asked for it meanwhile.
    fn forget_idle(&self, follow: &Follow) -> bool {
        let mut state = self.lock();
        // One here, one with the thread, and one of the newest asset.
        let is_idle = Arc::strong_count(&follow.growth) <= 3
            && follow.growth.newest().is_none_or(|newest| Arc::strong_count(&newest) <= 2)
            && follow.growth.asked().elapsed() > IDLE;
        if is_idle {
            state.known.remove(&follow.id);
            follow.growth.set_newest(None);
        }
        is_idle
    }
}

impl Library {
    /// The thread that follows.
    pub(super) fn follow_recordings(&self) {
        let mut follows: Vec<Follow> = Vec::new();
        let mut piece = vec![0; PIECE_BYTES];
        while let Some(new) = self.following.next(!follows.is_empty()) {
            follows.extend(new);
            follows.retain_mut(|follow| self.look_after(follow, &mut piece));
        }
    }

    /// Follows a recording from here on; `scanner` was fed its first `offset` bytes.
    pub(super) fn follow(
        &self,
        opened: &Opened,
        scanner: Box<Scanner>,
        offset: u64,
    ) -> Result<Arc<Asset>, NoAsset> {
        let unreadable = |error: std::io::Error| NoAsset::Unreadable(error.to_string());
        let mut follow = Follow {
            name: opened.name.clone(),
            id: opened.id,
            file: opened.file.try_clone().map_err(unreadable)?,
            scanner,
            identity: identity(),
            offset,
            growth: Arc::new(Growth::new()),
            has_news: false,
            planned: Instant::now(),
            cost: Duration::ZERO,
            is_over: false,
        };
        let source = follow.plan_on(self.path_of(&follow))?;
        let mut state = self.following.lock();
        if state.known.len() >= FOLLOWED_MAX {
            return Err(NoAsset::BUSY);
        }
        follow.growth.set_newest(Some(source.clone()));
        state.known.insert(follow.id, follow.growth.clone());
        state.new.push(follow);
        drop(state);
        self.following.wake.notify_all();
        Ok(source.asset.clone())
    }

    /// Reads what is new of a recording; false when nobody wants it any more.
    fn look_after(&self, follow: &mut Follow, piece: &mut [u8]) -> bool {
        if follow.is_over {
            // Sessions that have still an older plan find the last one by way of it.
            let is_wanted = Arc::strong_count(&follow.growth) > 1;
            if !is_wanted {
                follow.growth.set_newest(None);
            }
            return is_wanted;
        }
        // Asked first: what was written before the recorder went is read below.
        let is_recorded = is_recorded(&follow.file);
        match follow.read_on(piece) {
            Ok(false) => return true,
            Ok(true) if is_recorded => {}
            Ok(true) => {
                self.complete(follow);
                return true;
            }
            Err(error) => {
                tracing::warn!("{}: {error}; the recording ends here", follow.name);
                self.complete(follow);
                return true;
            }
        }
        let rest = PLAN_EVERY.max(follow.cost * COST_SHARE);
        if follow.has_news && follow.planned.elapsed() >= rest {
            match follow.plan_on(self.path_of(follow)) {
                Ok(source) => follow.growth.set_newest(Some(source)),
                Err(error) => tracing::info!("{}: {error}", follow.name),
            }
        }
        !self.following.forget_idle(follow)
    }

    /// The recording is complete: the last plan, which ends.
    fn complete(&self, follow: &mut Follow) {
        follow.is_over = true;
        let path = self.path_of(follow);
        let finished = follow.scanner.plan_so_far(follow.identity);
        let key = key(&path, &follow.file);
        let asset = match (finished, key) {
            (Ok(mut plan), Ok(key)) if key.bytes == follow.offset => {
                name_codecs(&mut plan, &follow.file);
                self.cache.keep_plan(&key, &plan);
                self.note(&follow.name, &key, Ok(&plan));
                Some(Asset::new(follow.name.clone(), key, plan))
            }
            // Cut, or no stream any more: what is known ends here.
            _ => follow.growth.newest().map(|newest| {
                let asset = &newest.asset;
                Asset::new(asset.name.clone(), asset.key.clone(), asset.plan.clone())
            }),
        };
        let asset = asset.map(Arc::new);
        let last = asset.as_ref().and_then(|asset| {
            self.keep_live(asset);
            asset.source(|| follow.media()).ok()
        });
        if let Some(last) = last {
            follow.growth.set_newest(Some(last));
        }
        self.following.lock().known.remove(&follow.id);
        tracing::info!("{}: the recording is complete", follow.name);
    }

    fn path_of(&self, follow: &Follow) -> std::path::PathBuf {
        self.folder.path().join(&follow.name)
    }
}

impl Follow {
    /// Feeds what was written since; true when that is everything, false when there is more to read
    /// than fits a turn.
    fn read_on(&mut self, piece: &mut [u8]) -> std::io::Result<bool> {
        for _ in 0..PIECES_A_TURN {
            let read = self.file.read_at(piece, self.offset)?;
            if read == 0 {
                return Ok(true);
            }
            self.scanner.feed(&piece[..read]);
            self.offset += read as u64;
            self.has_news = true;
        }
        Ok(false)
    }

    /// A plan of what was read so far, with the file open for sessions.
    fn plan_on(&mut self, path: std::path::PathBuf) -> Result<Arc<Source>, NoAsset> {
        let began = Instant::now();
        let plan = self.scanner.plan_so_far(self.identity);
        (self.planned, self.has_news) = (Instant::now(), false);
        self.cost = began.elapsed();
        // Too short for a clock, as yet.
        let plan = plan.map_err(|_| NoAsset::CHANGING)?;
        if plan.ticks(plan.settled_packets()) < LEAST_TICKS {
            return Err(NoAsset::CHANGING);
        }
        let asset = Asset::growing(self.name.clone(), self.key(&path)?, plan, &self.growth);
        // Not `source`, which gives the newest that there is, the one before this.
        Ok(Arc::new(asset).opened(self.media()?))
    }

    fn key(&self, path: &std::path::Path) -> Result<Key, NoAsset> {
        let key = key(path, &self.file).map_err(|e| NoAsset::Unreadable(e.to_string()))?;
        Ok(Key { bytes: self.offset, ..key })
    }

    fn media(&self) -> Result<Media, NoAsset> {
        let unreadable = |error: String| NoAsset::Unreadable(error);
        let file = self.file.try_clone().map_err(|error| unreadable(error.to_string()))?;
        Media::open(file, self.name.as_str()).map_err(|error| unreadable(error.to_string()))
    }
}

/// As often as a recorder writes a slow stream, or twice.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const PLAN_EVERY: Duration = Duration::from_millis(400);
/// A plan is followed by so many times its time without one.
const COST_SHARE: u32 = 20;
/// A rate is measured over a second; from then on the clock of what is there stays as it is.
const LEAST_TICKS: u64 = TICKS_PER_SECOND;
/// A recording is followed so long after it was last asked for.
const IDLE: Duration = Duration::from_secs(30);
/// Bounds what recordings hold that are followed: one descriptor, and 20 MB after three hours.
const FOLLOWED_MAX: usize = 256;
const PIECE_BYTES: usize = 256 << 10;
/// 16 MiB.
const PIECES_A_TURN: u32 = 64;
