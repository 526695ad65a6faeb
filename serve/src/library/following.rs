// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows recordings while they are written. One thread reads the new bytes of each and makes the
//! next plan.
//!
//! Following begins with the first request, after one scan of the file so far, and lasts while the
//! recording has sessions or recent requests; a followed recording is answered without a scan. A
//! new plan is made every half second at most, and every tenth of a second while players wait for
//! the next part; and within a twentieth of the time: the plan of a recording of hours takes
//! milliseconds, one of days may take more.
//!
//! A plan ends where the next one changes nothing in it: that of a transport stream at its last
//! clock reference, that of an MP4 behind its last whole fragment ([`super::recording_reader`]).
//! When the recorder is gone the last plan covers the whole file and is kept in the cache, and the
//! file is an ordinary asset.
//!
//! Recordings of a high rate are read alternately with the others; while one is behind, the thread
//! reads for half of the time at most. It still makes plans and forgets idle recordings. At most
//! [`FOLLOWED_MAX`] are followed: one more replaces the one without a viewer that has been idle the
//! longest.
//!
//! Players of HLS and DASH have no session and may pause. A recording that they have asked for is
//! followed for [`PAUSED`] longer, so that they find its addresses again, and keeps its place among
//! the others for [`IDLE`].
//!
//! Costs one read of the written bytes, mostly from the page cache, of an MP4 of its boxes alone; a
//! descriptor and a scanner (20 KiB and 20 bytes a clock reference) for each followed recording, or
//! its sample tables (1 MB an hour) and the copy of them that is played.
//!
//! Does not detect recordings ([`crate::library::growing_file`] does).

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::DemuxError;
use media::plan::PlanKey;
use media::store::asset_key;
use parking_lot::{Condvar, Mutex};
use paths::MappedFile;

use super::recording_reader::{PIECE_BYTES, RecordingReader};
use super::scans::OpenedFile;
use super::verdicts::FileId;
use super::{Library, NoAsset, StreamSummary};
use crate::library::asset::{Asset, LibraryAsset, LibrarySource};
use crate::library::growing_file::{COST_SHARE, Growth, is_recorded};

/// Table of the followed recordings.
#[derive(Default)]
pub(super) struct Following {
    state: Mutex<State>,
    /// Signalled when a recording is added or the server stops.
    wake: Condvar,
}

#[derive(Default)]
struct State {
    known: HashMap<FileId, Arc<Growth>>,
    new: Vec<Follow>,
    is_stopping: bool,
}

/// State of a followed recording, owned by the following thread.
struct Follow {
    name: String,
    id: FileId,
    file: File,
    reader: RecordingReader,
    /// Bytes read so far.
    offset: u64,
    growth: Arc<Growth>,
    has_news: bool,
    /// True when the last turn left bytes unread.
    is_behind: bool,
    /// Time of the last look at the file.
    looked: Option<Instant>,
    /// Time at which the last plan was finished, and the time it took.
    planned: Instant,
    cost: Duration,
    /// True when the recorder is gone and everything is read.
    is_over: bool,
}

impl Following {
    /// Returns the newest asset of a followed recording.
    pub(super) fn newest(&self, id: FileId) -> Option<LibraryAsset> {
        let state = self.state.lock();
        let growth = state.known.get(&id)?;
        growth.note_asked();
        Some(growth.newest()?.asset())
    }

    pub(super) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.wake.notify_all();
    }

    /// Waits for new recordings, for `wait` at most if given, and returns them. `None` when the
    /// server stops.
    fn next(&self, wait: Option<Duration>) -> Option<Vec<Follow>> {
        let mut state = self.state.lock();
        let is_idle = |state: &State| !state.is_stopping && state.new.is_empty();
        match wait {
            Some(wait) if is_idle(&state) => {
                self.wake.wait_for(&mut state, wait);
            }
            Some(_) => {}
            None => {
                while is_idle(&state) {
                    self.wake.wait(&mut state);
                }
            }
        }
        (!state.is_stopping).then(|| std::mem::take(&mut state.new))
    }

    /// Adds a recording with its first plan. False when recordings with viewers hold all places.
    fn add(&self, follow: Follow, first: &LibrarySource) -> bool {
        let mut state = self.state.lock();
        let mut forgotten = None;
        if state.known.len() >= FOLLOWED_MAX {
            let now = Instant::now();
            let has_viewer = |growth| !has_no_session(growth) || growth.is_viewed(now, IDLE);
            let idle = state.known.iter().filter(|(_, growth)| !has_viewer(*growth));
            let Some(id) = idle.min_by_key(|(_, growth)| growth.asked()).map(|(id, _)| *id) else {
                return false;
            };
            forgotten = state.known.remove(&id);
        }
        follow.growth.set_newest(Some(first.clone()));
        let before = state.known.insert(follow.id, follow.growth.clone());
        state.new.push(follow);
        drop(state);
        // Unmaps files, so it runs without the lock.
        [forgotten, before].into_iter().flatten().for_each(|growth| growth.set_newest(None));
        self.wake.notify_all();
        true
    }

    /// True while a recording is to be followed at `now`. False for one without sessions or recent
    /// requests, and for one that another has replaced.
    fn is_wanted(&self, follow: &Follow, now: Instant) -> bool {
        let mut state = self.state.lock();
        let is_known = state.holds(follow);
        let is_idle = now.saturating_duration_since(follow.growth.asked()) > IDLE
            && !follow.growth.is_viewed(now, PAUSED);
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

    /// Removes a complete recording.
    fn remove(&self, follow: &Follow) {
        let mut state = self.state.lock();
        if state.holds(follow) {
            state.known.remove(&follow.id);
        }
    }
}

impl State {
    /// True when the table holds this very recording; the same file may have been followed anew.
    fn holds(&self, follow: &Follow) -> bool {
        self.known.get(&follow.id).is_some_and(|known| Arc::ptr_eq(known, &follow.growth))
    }
}

/// True when only the table, the thread and the newest asset refer to the recording.
fn has_no_session(growth: &Arc<Growth>) -> bool {
    // The recording and this caller hold the newest source.
    Arc::strong_count(growth) <= 3 && growth.newest().is_none_or(|newest| newest.holders() <= 2)
}

impl Library {
    /// Body of the following thread.
    pub(super) fn follow_recordings(&self) {
        let mut follows: Vec<Follow> = Vec::new();
        let mut piece = vec![0; PIECE_BYTES];
        let mut wait = None;
        while let Some(new) = self.following.next(wait) {
            follows.extend(new);
            let began = Instant::now();
            follows.retain_mut(|follow| {
                let now = Instant::now();
                !follow.is_due(now) || self.look_after(follow, &mut piece, now)
            });
            let is_watched = follows.iter().any(|follow| follow.growth.is_watched(began));
            let look_every = if is_watched { LOOK_QUICKLY } else { LOOK_EVERY };
            wait = match follows.iter().any(|follow| follow.is_behind) {
                // Pauses as long as the round took, so that reading uses half of the time.
                true => Some(began.elapsed().min(look_every)),
                false => (!follows.is_empty()).then_some(look_every),
            };
        }
    }

    /// Starts to follow a recording, of which `reader` has read the first `offset` bytes.
    pub(super) fn follow(
        &self,
        opened: &OpenedFile,
        reader: RecordingReader,
        offset: u64,
    ) -> Result<LibraryAsset, NoAsset> {
        let unreadable = |error: std::io::Error| NoAsset::Unreadable(error.to_string());
        let mut follow = Follow {
            name: opened.name.clone(),
            id: opened.id,
            file: opened.file.try_clone().map_err(unreadable)?,
            reader,
            offset,
            growth: Arc::new(Growth::new()),
            has_news: false,
            is_behind: false,
            looked: None,
            planned: Instant::now(),
            cost: Duration::ZERO,
            is_over: false,
        };
        let source = follow.plan_on(self.path_of(&follow))?;
        match self.following.add(follow, &source) {
            true => Ok(source.asset()),
            false => Err(NoAsset::BUSY),
        }
    }

    /// Reads new bytes of a recording; returns false when no session or request wants it at `now`.
    fn look_after(&self, follow: &mut Follow, piece: &mut [u8], now: Instant) -> bool {
        if follow.is_over {
            // Sessions with an older plan reach the last one through `growth`.
            let is_wanted = Arc::strong_count(&follow.growth) > 1;
            if !is_wanted {
                follow.growth.set_newest(None);
            }
            return is_wanted;
        }
        // Checked first: bytes written before the recorder ended are read below.
        let is_recorded = is_recorded(&follow.file);
        let is_complete = match follow.read_on(piece) {
            Ok(()) => !is_recorded && !follow.is_behind,
            Err(error) => {
                tracing::warn!("{}: {error}; the recording ends here", follow.name);
                if follow.file.metadata().is_ok_and(|now| now.len() < follow.offset) {
                    follow.growth.cut_short().note();
                }
                true
            }
        };
        if is_complete {
            self.complete(follow);
            return true;
        }
        let is_watched = follow.growth.is_watched(now);
        let rest = if is_watched { PLAN_QUICKLY } else { PLAN_EVERY };
        let rest = rest.max(follow.cost * COST_SHARE);
        if follow.has_news && now.saturating_duration_since(follow.planned) >= rest {
            match follow.plan_on(self.path_of(follow)) {
                Ok(source) => follow.growth.set_newest(Some(source)),
                // The new fragments do not continue the known ones.
                Err(error @ NoAsset::Refused(_)) => {
                    tracing::warn!("{}: {error}; the recording ends here", follow.name);
                    self.complete(follow);
                    return true;
                }
                Err(error) => tracing::info!("{}: {error}", follow.name),
            }
        }
        self.following.is_wanted(follow, now)
    }

    /// Completes a recording: keeps the last plan in the cache and publishes it as an asset that
    /// does not grow.
    fn complete(&self, follow: &mut Follow) {
        (follow.is_over, follow.is_behind) = (true, false);
        let path = self.path_of(follow);
        let key = asset_key(&path, &follow.file).ok();
        let finished = key.and_then(|key| {
            let named = (follow.name.clone(), &key, follow.offset);
            let (asset, plan) = follow.reader.finished(named, &follow.file)?;
            self.cache.keep_plan(&key, &plan);
            Some(asset)
        });
        // A file that was truncated or is no stream any more: the newest known plan is the last.
        let newest = || {
            Some(match follow.growth.newest()? {
                LibrarySource::Stream(newest) => {
                    let (name, key) = (newest.asset.name.clone(), newest.asset.key.clone());
                    Asset::new(name, key, newest.asset.plan.clone()).into()
                }
                LibrarySource::Tracks(newest) => {
                    LibraryAsset::Tracks(Arc::new(newest.asset.so_far()))
                }
            })
        };
        let last = finished.or_else(newest).and_then(|asset| {
            self.note(&follow.name, asset.key(), Ok(StreamSummary::of(&asset)));
            self.keep_live(&asset);
            Some(match asset {
                LibraryAsset::Stream(asset) => {
                    LibrarySource::Stream(asset.source(|| follow.media()).ok()?)
                }
                LibraryAsset::Tracks(asset) => {
                    LibrarySource::Tracks(asset.source(|| follow.media()).ok()?)
                }
            })
        });
        if let Some(last) = last {
            follow.growth.set_newest(Some(last));
        }
        self.following.remove(follow);
        tracing::info!("{}: the recording is complete", follow.name);
    }

    fn path_of(&self, follow: &Follow) -> std::path::PathBuf {
        self.folder.path_of(&follow.name)
    }
}

impl Follow {
    /// True when the file is to be read: a recording that nobody waits for is read less often.
    fn is_due(&mut self, now: Instant) -> bool {
        let every = if self.growth.is_watched(now) { LOOK_QUICKLY / 2 } else { LOOK_EVERY / 2 };
        let is_due = self.is_behind
            || self.looked.is_none_or(|at| now.saturating_duration_since(at) >= every);
        if is_due {
            self.looked = Some(now);
        }
        is_due
    }

    /// Reads newly written bytes, as many as fit a turn.
    fn read_on(&mut self, piece: &mut [u8]) -> Result<(), DemuxError> {
        let turn = self.reader.read_on(&self.file, self.offset, piece)?;
        self.has_news |= turn.offset != self.offset;
        (self.offset, self.is_behind) = (turn.offset, turn.is_behind);
        Ok(())
    }

    /// Plans the bytes read so far and opens the file for sessions.
    fn plan_on(&mut self, path: std::path::PathBuf) -> Result<LibrarySource, NoAsset> {
        let began = Instant::now();
        let named = (self.name.clone(), self.key(&path)?);
        let planned = self.reader.growing(named, &self.growth);
        (self.planned, self.has_news) = (Instant::now(), false);
        self.cost = began.elapsed();
        // `source` would return the newest published asset, which precedes this one.
        Ok(match planned? {
            LibraryAsset::Stream(asset) => LibrarySource::Stream(asset.opened(self.media()?)),
            LibraryAsset::Tracks(asset) => LibrarySource::Tracks(asset.opened(self.media()?)),
        })
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

/// A recorder of a slow stream writes once or twice in this time.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const PLAN_EVERY: Duration = Duration::from_millis(400);
/// The same while players wait for the next part.
const LOOK_QUICKLY: Duration = Duration::from_millis(40);
const PLAN_QUICKLY: Duration = Duration::from_millis(80);
/// Time after the last request for which a recording is followed.
const IDLE: Duration = Duration::from_secs(30);
/// The same after a request of a player of HLS or DASH, which may pause.
const PAUSED: Duration = Duration::from_secs(3600);
/// Bounds the cost of followed recordings: each one descriptor, and 20 MB after three hours.
const FOLLOWED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use media::{PlanStore, Scanner};

    use super::super::recording_reader::PIECES_A_TURN;
    use super::*;
    use crate::library::served_folder::Folder;

    static CLIP: &[u8] = include_bytes!("../../../pagewire/assets/clip.ts");
    const BYTES: usize = 2000 * 188;

    struct Scene {
        place: tempfile::TempDir,
        library: Library,
    }

    fn stream(asset: LibraryAsset) -> Arc<Asset> {
        match asset {
            LibraryAsset::Stream(asset) => asset,
            LibraryAsset::Tracks(asset) => panic!("{}: it has tracks", asset.name),
        }
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

        /// Creates a recording of some seconds; returns its recorder's file.
        fn record(&self, name: &str) -> File {
            fs::write(self.path(name), &CLIP[..BYTES]).unwrap();
            let recorder = File::options().append(true).open(self.path(name)).unwrap();
            paths::lock_to_write(&recorder).unwrap();
            recorder
        }

        /// Follows the file from its present length, as after a scan.
        fn follow(&self, name: &str) -> Result<Arc<Asset>, NoAsset> {
            let opened = self.library.open_file(name).unwrap();
            assert!(opened.is_growing, "{name}");
            let mut scanner = Box::new(Scanner::new());
            scanner.feed(&CLIP[..BYTES]);
            let reader = RecordingReader::stream(scanner);
            self.library.follow(&opened, reader, BYTES as u64).map(stream)
        }

        fn newest(&self, name: &str) -> Option<Arc<Asset>> {
            let id = self.library.open_file(name).unwrap().id;
            self.library.following.newest(id).map(stream)
        }
    }

    /// Regression: a recording of more than 537 Mb/s had no further plan and was read for ever.
    #[test]
    fn recording_that_is_behind_is_planned_and_forgotten_when_idle() {
        let scene = Scene::new();
        let recorder = scene.record("a.ts");
        let first = scene.follow("a.ts").unwrap();
        let mut follow = scene.library.following.next(None).unwrap().pop().unwrap();
        // A hole takes no disk space, and takes as long to read as data.
        recorder.set_len(1 << 40).unwrap();
        let mut piece = vec![0; PIECE_BYTES];
        let later = follow.planned + PLAN_EVERY;
        assert!(scene.library.look_after(&mut follow, &mut piece, later));
        assert!(follow.is_behind);
        let turn = BYTES as u64 + u64::from(PIECES_A_TURN) * PIECE_BYTES as u64;
        assert_eq!((first.key.bytes, follow.offset), (BYTES as u64, turn));
        assert_eq!(scene.newest("a.ts").unwrap().key.bytes, turn, "a plan of what was read");
        // A session with an older plan keeps it.
        let asked = follow.growth.asked();
        assert!(scene.library.look_after(&mut follow, &mut piece, asked + 2 * IDLE));
        drop(first);
        assert!(scene.library.look_after(&mut follow, &mut piece, asked + IDLE));
        assert!(!scene.library.look_after(&mut follow, &mut piece, asked + 2 * IDLE));
        assert!(scene.newest("a.ts").is_none());
    }

    /// Regression: after 30 s without a request a player of HLS found its addresses gone.
    #[test]
    fn recording_of_a_player_that_pauses_is_followed_on() {
        let scene = Scene::new();
        let _recorder = scene.record("a.ts");
        scene.follow("a.ts").unwrap();
        let mut follow = scene.library.following.next(None).unwrap().pop().unwrap();
        follow.growth.note_viewed();
        let (mut piece, asked) = (vec![0; PIECE_BYTES], follow.growth.asked());
        assert!(scene.library.look_after(&mut follow, &mut piece, asked + 2 * IDLE));
        assert!(scene.library.look_after(&mut follow, &mut piece, asked + PAUSED));
        assert!(!scene.library.look_after(&mut follow, &mut piece, asked + PAUSED + IDLE));
    }

    /// Regression: new recordings were answered with 503 until an idle one was forgotten, for every
    /// client.
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
        // The first is requested again, so the second is idle for longer.
        played.drain(..2);
        assert!(scene.newest(&names[0]).is_some());
        assert!(scene.follow(last).is_ok() && scene.newest(last).is_some());
        assert!(scene.newest(&names[1]).is_none() && scene.newest(&names[0]).is_some());
        let mut follows = scene.library.following.next(None).unwrap();
        let (mut piece, now) = (vec![0; PIECE_BYTES], Instant::now());
        follows.retain_mut(|follow| scene.library.look_after(follow, &mut piece, now));
        assert_eq!(follows.len(), FOLLOWED_MAX, "the thread has let go of it");
        // Players of HLS have no session, and keep theirs.
        played.clear();
        scene.library.following.state.lock().known.values().for_each(|growth| growth.note_viewed());
        let more = scene.record("more.ts");
        assert!(matches!(scene.follow("more.ts"), Err(NoAsset::Busy { .. })), "all are viewed");
        drop((recorders, more));
    }
}
