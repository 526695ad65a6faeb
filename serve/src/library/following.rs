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
//! A recording of a high rate is read in turns with the others; while one is behind, the thread
//! reads for half of the time at most. Plans are made and idle recordings forgotten all the same.
//! At most [`FOLLOWED_MAX`] are followed: one more takes the place of the one without a session
//! that nobody has asked for the longest.
//!
//! Costs one read of what is written, mostly from the page cache, a descriptor and a scanner (20
//! KiB and 20 bytes a clock reference) for each recording followed.
//!
//! Does not do: tell whether a file is a recording ([`crate::growing_file`] does).

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use media::plan::{PlanKey, RtpIdentity};
use media::store::{asset_key, name_codecs, random_identity};
use media::{Scanner, TICKS_PER_SECOND};
use paths::MappedFile;

use super::scans::OpenedFile;
use super::verdicts::FileId;
use super::{Library, NoAsset};
use crate::asset::{Asset, Source};
use crate::growing_file::{Growth, is_recorded};

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
    identity: RtpIdentity,
    /// Bytes read.
    offset: u64,
    growth: Arc<Growth>,
    has_news: bool,
    /// More was there to read than fits a turn.
    is_behind: bool,
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

    /// Waits until there is something new to follow, for `wait` at most where one is given; those
    /// that are new. None when the server stops.
    fn next(&self, wait: Option<Duration>) -> Option<Vec<Follow>> {
        let mut state = self.lock();
        let is_idle = |state: &State| !state.is_stopping && state.new.is_empty();
        match wait {
            Some(wait) if is_idle(&state) => {
                let waited = self.wake.wait_timeout(state, wait);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            Some(_) => {}
            None => {
                while is_idle(&state) {
                    state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        (!state.is_stopping).then(|| std::mem::take(&mut state.new))
    }

    /// Adds a recording, which has its first plan. False where all places are taken by recordings
    /// with sessions.
    fn add(&self, follow: Follow, first: &Arc<Source>) -> bool {
        let mut state = self.lock();
        let mut forgotten = None;
        if state.known.len() >= FOLLOWED_MAX {
            let idle = state.known.iter().filter(|(_, growth)| has_no_session(growth));
            let Some(id) = idle.min_by_key(|(_, growth)| growth.asked()).map(|(id, _)| *id) else {
                return false;
            };
            forgotten = state.known.remove(&id);
        }
        follow.growth.set_newest(Some(first.clone()));
        let before = state.known.insert(follow.id, follow.growth.clone());
        state.new.push(follow);
        drop(state);
        // Unmaps files: not while others wait for the lock.
        [forgotten, before].into_iter().flatten().for_each(|growth| growth.set_newest(None));
        self.wake.notify_all();
        true
    }

    /// Whether a recording is still to be followed at `now`. One without a session that nobody has
    /// asked for lately is forgotten, and so is one that gave its place to another.
    fn is_wanted(&self, follow: &Follow, now: Instant) -> bool {
        let mut state = self.lock();
        let is_known = state.holds(follow);
        let is_idle = now.saturating_duration_since(follow.growth.asked()) > IDLE;
        if is_known && !(is_idle && has_no_session(&follow.growth)) {
            return true;
        }
        if is_known {
            state.known.remove(&follow.id);
        }
        drop(state);
        follow.growth.set_newest(None);
        false
    }

    /// Takes out a recording that is complete.
    fn remove(&self, follow: &Follow) {
        let mut state = self.lock();
        if state.holds(follow) {
            state.known.remove(&follow.id);
        }
    }
}

impl State {
    /// Whether this very recording is known: its file may be followed anew.
    fn holds(&self, follow: &Follow) -> bool {
        self.known.get(&follow.id).is_some_and(|known| Arc::ptr_eq(known, &follow.growth))
    }
}

/// Whether only the table, the thread and the newest asset refer to it.
fn has_no_session(growth: &Arc<Growth>) -> bool {
    // The newest source is held by the recording and, in here, by what asks.
    Arc::strong_count(growth) <= 3
        && growth.newest().is_none_or(|newest| Arc::strong_count(&newest) <= 2)
}

impl Library {
    /// The thread that follows.
    pub(super) fn follow_recordings(&self) {
        let mut follows: Vec<Follow> = Vec::new();
        let mut piece = vec![0; PIECE_BYTES];
        let mut wait = None;
        while let Some(new) = self.following.next(wait) {
            follows.extend(new);
            let began = Instant::now();
            follows.retain_mut(|follow| self.look_after(follow, &mut piece, Instant::now()));
            wait = match follows.iter().any(|follow| follow.is_behind) {
                // As long as the round took: half of the time is left to others.
                true => Some(began.elapsed().min(LOOK_EVERY)),
                false => (!follows.is_empty()).then_some(LOOK_EVERY),
            };
        }
    }

    /// Follows a recording from here on; `scanner` was fed its first `offset` bytes.
    pub(super) fn follow(
        &self,
        opened: &OpenedFile,
        scanner: Box<Scanner>,
        offset: u64,
    ) -> Result<Arc<Asset>, NoAsset> {
        let unreadable = |error: std::io::Error| NoAsset::Unreadable(error.to_string());
        let mut follow = Follow {
            name: opened.name.clone(),
            id: opened.id,
            file: opened.file.try_clone().map_err(unreadable)?,
            scanner,
            identity: random_identity(),
            offset,
            growth: Arc::new(Growth::new()),
            has_news: false,
            is_behind: false,
            planned: Instant::now(),
            cost: Duration::ZERO,
            is_over: false,
        };
        let source = follow.plan_on(self.path_of(&follow))?;
        match self.following.add(follow, &source) {
            true => Ok(source.asset.clone()),
            false => Err(NoAsset::BUSY),
        }
    }

    /// Reads what is new of a recording; false when nobody wants it any more at `now`.
    fn look_after(&self, follow: &mut Follow, piece: &mut [u8], now: Instant) -> bool {
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
        let is_complete = match follow.read_on(piece) {
            Ok(()) => !is_recorded && !follow.is_behind,
            Err(error) => {
                tracing::warn!("{}: {error}; the recording ends here", follow.name);
                true
            }
        };
        if is_complete {
            self.complete(follow);
            return true;
        }
        let rest = PLAN_EVERY.max(follow.cost * COST_SHARE);
        if follow.has_news && now.saturating_duration_since(follow.planned) >= rest {
            match follow.plan_on(self.path_of(follow)) {
                Ok(source) => follow.growth.set_newest(Some(source)),
                Err(error) => tracing::info!("{}: {error}", follow.name),
            }
        }
        self.following.is_wanted(follow, now)
    }

    /// The recording is complete: the last plan, which ends.
    fn complete(&self, follow: &mut Follow) {
        (follow.is_over, follow.is_behind) = (true, false);
        let path = self.path_of(follow);
        let finished = follow.scanner.plan_so_far(follow.identity);
        let key = asset_key(&path, &follow.file);
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
        self.following.remove(follow);
        tracing::info!("{}: the recording is complete", follow.name);
    }

    fn path_of(&self, follow: &Follow) -> std::path::PathBuf {
        self.folder.path().join(&follow.name)
    }
}

impl Follow {
    /// Feeds what was written since, as far as it fits a turn.
    fn read_on(&mut self, piece: &mut [u8]) -> std::io::Result<()> {
        for _ in 0..PIECES_A_TURN {
            let read = self.file.read_at(piece, self.offset)?;
            if read == 0 {
                self.is_behind = false;
                return Ok(());
            }
            self.scanner.feed(&piece[..read]);
            self.offset += read as u64;
            self.has_news = true;
        }
        self.is_behind = true;
        Ok(())
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

    fn key(&self, path: &std::path::Path) -> Result<PlanKey, NoAsset> {
        let key = asset_key(path, &self.file).map_err(|e| NoAsset::Unreadable(e.to_string()))?;
        Ok(PlanKey { bytes: self.offset, ..key })
    }

    fn media(&self) -> Result<MappedFile, NoAsset> {
        let unreadable = |error: String| NoAsset::Unreadable(error);
        let file = self.file.try_clone().map_err(|error| unreadable(error.to_string()))?;
        MappedFile::open(file, self.name.as_str()).map_err(|error| unreadable(error.to_string()))
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

#[cfg(test)]
mod tests {
    use media::PlanStore;
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::served_folder::Folder;

    static CLIP: &[u8] = include_bytes!("../../../pagewire/assets/clip.ts");
    const BYTES: usize = 2000 * 188;

    struct Scene {
        place: tempfile::TempDir,
        library: Library,
    }

    impl Scene {
        fn new() -> Scene {
            let place = tempfile::tempdir().unwrap();
            fs::create_dir(place.path().join("served")).unwrap();
            let folder = Arc::new(Folder::open(&place.path().join("served")).unwrap());
            let cache = PlanStore::open(Some(place.path().join("cache")));
            Scene { place, library: Library::new(folder, cache) }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.place.path().join("served").join(name)
        }

        /// A recording of some seconds, and its recorder.
        fn record(&self, name: &str) -> File {
            fs::write(self.path(name), &CLIP[..BYTES]).unwrap();
            let recorder = File::options().append(true).open(self.path(name)).unwrap();
            paths::lock_to_write(&recorder).unwrap();
            recorder
        }

        /// Follows what there is, as after a scan of it.
        fn follow(&self, name: &str) -> Result<Arc<Asset>, NoAsset> {
            let opened = self.library.open_file(name).unwrap();
            assert!(opened.is_growing, "{name}");
            let mut scanner = Box::new(Scanner::new());
            scanner.feed(&CLIP[..BYTES]);
            self.library.follow(&opened, scanner, BYTES as u64)
        }

        fn newest(&self, name: &str) -> Option<Arc<Asset>> {
            self.library.following.newest(self.library.open_file(name).unwrap().id)
        }
    }

    /// A recording of more than 537 Mb/s had no further plan, and was read for ever.
    #[test]
    fn recording_that_is_behind_is_planned_and_forgotten_when_idle() {
        let scene = Scene::new();
        let recorder = scene.record("a.ts");
        let first = scene.follow("a.ts").unwrap();
        let mut follow = scene.library.following.next(None).unwrap().pop().unwrap();
        // A hole takes no room and as long to read.
        recorder.set_len(1 << 40).unwrap();
        let mut piece = vec![0; PIECE_BYTES];
        let later = follow.planned + PLAN_EVERY;
        assert!(scene.library.look_after(&mut follow, &mut piece, later));
        assert!(follow.is_behind);
        let turn = BYTES as u64 + u64::from(PIECES_A_TURN) * PIECE_BYTES as u64;
        assert_eq!((first.key.bytes, follow.offset), (BYTES as u64, turn));
        assert_eq!(scene.newest("a.ts").unwrap().key.bytes, turn, "a plan of what was read");
        // Whoever has a plan of it, an older one, keeps it.
        let asked = follow.growth.asked();
        assert!(scene.library.look_after(&mut follow, &mut piece, asked + 2 * IDLE));
        drop(first);
        assert!(scene.library.look_after(&mut follow, &mut piece, asked + IDLE));
        assert!(!scene.library.look_after(&mut follow, &mut piece, asked + 2 * IDLE));
        assert!(scene.newest("a.ts").is_none());
    }

    /// They were answered 503 until one of those was forgotten, whoever had asked for it.
    #[test]
    fn longest_idle_recording_gives_its_place_to_a_new_one() {
        let scene = Scene::new();
        let names: Vec<_> = (0..=FOLLOWED_MAX).map(|number| format!("{number}.ts")).collect();
        let recorders: Vec<_> = names.iter().map(|name| scene.record(name)).collect();
        let last = &names[FOLLOWED_MAX];
        let mut played = Vec::new();
        for name in &names[..FOLLOWED_MAX] {
            let asset = scene.follow(name).unwrap();
            played.push(asset.source(|| Err("opened again")).unwrap());
        }
        assert!(matches!(scene.follow(last), Err(NoAsset::Busy { .. })), "all are played");
        // The first is asked for again, so the second is idle for longer.
        played.drain(..2);
        assert!(scene.newest(&names[0]).is_some());
        assert!(scene.follow(last).is_ok() && scene.newest(last).is_some());
        assert!(scene.newest(&names[1]).is_none() && scene.newest(&names[0]).is_some());
        let mut follows = scene.library.following.next(None).unwrap();
        let (mut piece, now) = (vec![0; PIECE_BYTES], Instant::now());
        follows.retain_mut(|follow| scene.library.look_after(follow, &mut piece, now));
        assert_eq!(follows.len(), FOLLOWED_MAX, "the thread has let go of it");
        drop(recorders);
    }
}
