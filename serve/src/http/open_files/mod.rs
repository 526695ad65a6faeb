// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the files of requests without waiting; keeps those that are requested again.
//!
//! A file is opened on the event loop as far as the kernel can do so from its caches
//! (`RESOLVE_CACHED`, `RWF_NOWAIT`), and on a thread that may wait otherwise. A body of up to
//! [`HELD_BYTES_MAX`] is read at once, so that head and body leave by one call and no descriptor is
//! held; a larger one is sent from its descriptor.
//!
//! A file that is requested a second time is kept, with its descriptor or body. The kernel reports
//! its changes ([`watches`]): an event of inotify is queued within the call that changes the file,
//! and events are read between the receipt of a request and its answer, so the request that follows
//! a rename, a write or a truncation gets the new content. One read serves all requests that were
//! received before it ([`OpenFiles::tick`]). Changes that inotify does not report (by a writer
//! through mmap, by another host) are found by a look at the name, once a second at most. A file
//! without a watch is not kept, nor is one behind a symbolic link.
//!
//! Costs, kept: a look-up, and a share of a `read` of inotify. Not kept: `openat2`, `statx`,
//! `preadv2` and `close` for a small body.
//! Each loop keeps [`FILES_MAX`] files at most, [`HELD_BYTES_MAX_TOTAL`] of bodies and its share of
//! the descriptors; one that was not asked for during [`IDLE`] is dropped.
//!
//! Sources: openat2(2), readv(2) (`RWF_NOWAIT`), inotify(7).
//! Does not decide what may be served ([`crate::library::served_folder`] does, on every open).

mod open_file;
mod watches;

use std::collections::{HashMap, VecDeque};
use std::fs::{File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio::task::spawn_blocking;

use crate::http::event_loops::with_scratch;
use crate::library::served_folder::{Denied, Folder};

pub(crate) use open_file::{FileContent, OpenFile, PART_BYTES};
use open_file::{FileVersion, body_from_disk, body_in_memory};
use watches::{Changed, Watches};

/// The open files of one event loop.
pub(crate) struct OpenFiles {
    table: Mutex<Table>,
    /// Receipts of requests so far.
    ticks: AtomicU64,
    hasher: RandomState,
    descriptors_max: usize,
}

struct Table {
    by_name: HashMap<Box<str>, KeptFile>,
    /// Names in order of age; a name that was used meanwhile is queued once more.
    by_age: VecDeque<Box<str>>,
    held_bytes: usize,
    descriptors: usize,
    /// Hashes of names that were asked for once.
    asked: Box<[u64]>,
    /// Receipts before the last read of events.
    read_at: u64,
    /// `None` where the kernel has no inotify for this process: nothing is kept.
    watches: Option<Watches>,
}

struct KeptFile {
    file: Arc<OpenFile>,
    /// Time of the last look at its name.
    looked: Instant,
    /// True when it was requested since its last turn to be dropped.
    is_used: bool,
    watch: i32,
}

/// Error: a file may not be opened, or no descriptor is left for it.
#[derive(Debug)]
pub(crate) enum NotOpened {
    Denied(Denied),
    /// Its descriptor is one of those that are reserved.
    Reserved,
    /// A thread panicked, or a disk failed.
    Failed(String),
}

impl OpenFiles {
    /// Creates the table of one of `loops` loops of a process that may open `descriptors`.
    pub(crate) fn new(loops: usize, descriptors: u64) -> OpenFiles {
        let share = descriptors / DESCRIPTORS_PART / loops.max(1) as u64;
        let watches = Watches::open();
        if let Err(error) = &watches {
            tracing::warn!("inotify: {error}; files are opened for each request");
        }
        let table = Table {
            by_name: HashMap::new(),
            by_age: VecDeque::new(),
            held_bytes: 0,
            descriptors: 0,
            asked: vec![0; ASKED].into(),
            read_at: 0,
            watches: watches.ok(),
        };
        OpenFiles {
            table: Mutex::new(table),
            ticks: AtomicU64::new(0),
            hasher: RandomState::new(),
            descriptors_max: usize::try_from(share).unwrap_or(usize::MAX).min(FILES_MAX),
        }
    }

    /// Marks the receipt of bytes. [`OpenFiles::find`] with this tick sees all changes of files
    /// before it.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the file that a request names, which was received at `tick`. `is_reserved` is true
    /// for a descriptor that is kept in reserve.
    pub(crate) async fn find(
        &self,
        name: &str,
        tick: u64,
        folder: &Arc<Folder>,
        is_reserved: impl Fn(&File) -> bool,
    ) -> Result<Arc<OpenFile>, NotOpened> {
        if let Some(kept) = self.kept(name, tick, folder) {
            return Ok(kept);
        }
        let mut opened = open(name, folder).await;
        let is_short = match &opened {
            Ok((file, _)) => is_reserved(file),
            Err(denied) => matches!(denied, NotOpened::Denied(Denied::DescriptorsExhausted)),
        };
        if is_short {
            // Kept files are dropped to make room.
            drop(opened);
            self.table.lock().clear();
            opened = open(name, folder).await;
        }
        let (file, metadata) = opened?;
        if is_reserved(&file) {
            return Err(NotOpened::Reserved);
        }
        let is_asked_again = self.is_asked_again(name);
        if is_asked_again && let Some(kept) = self.keep(name, folder, &file, &metadata) {
            return Ok(kept);
        }
        read(name, file, metadata).await.map(Arc::new)
    }

    /// Returns a kept file, unless its name leads elsewhere now.
    fn kept(&self, name: &str, tick: u64, folder: &Folder) -> Option<Arc<OpenFile>> {
        let mut table = self.table.lock();
        if table.read_at < tick {
            table.read_at = self.ticks.load(Ordering::Relaxed);
            table.read_events();
        }
        let kept = table.by_name.get_mut(name)?;
        kept.is_used = true;
        let now = Instant::now();
        if now.saturating_duration_since(kept.looked) < LOOK_EVERY {
            return Some(kept.file.clone());
        }
        kept.looked = now;
        let version = kept.file.version;
        // A name that cannot be checked in place is opened anew.
        let found = folder.file_in_place(name).and_then(Result::ok);
        if found.is_some_and(|(_, metadata)| FileVersion::of(&metadata) == version) {
            return table.by_name.get(name).map(|kept| kept.file.clone());
        }
        table.drop_file(name);
        None
    }

    /// True when this name is among those that were asked for lately; remembers it.
    fn is_asked_again(&self, name: &str) -> bool {
        let hash = self.hasher.hash_one(name) | 1;
        let mut table = self.table.lock();
        let index = (hash >> 32) as usize % ASKED;
        std::mem::replace(&mut table.asked[index], hash) == hash
    }

    /// Keeps an open file if it can be watched and read without waiting.
    fn keep(
        &self,
        name: &str,
        folder: &Folder,
        file: &File,
        metadata: &Metadata,
    ) -> Option<Arc<OpenFile>> {
        let needs_descriptor = metadata.len() > HELD_BYTES_MAX;
        if needs_descriptor && self.descriptors_max == 0 {
            return None;
        }
        let mut table = self.table.lock();
        table.drop_file(name);
        let watch = table.watches.as_mut()?.add(name, folder, file.as_fd())?;
        // The watch reports a change from here on, and this look shows an earlier one.
        let again = folder.file_in_place(name).and_then(Result::ok);
        let made = again.filter(|(_, found)| FileVersion::of(found) == FileVersion::of(metadata));
        let made = made.and_then(|(again, found)| {
            let body = with_scratch(|scratch| body_in_memory(&again, found.len(), scratch));
            let is_whole = body.is_some() || needs_descriptor;
            is_whole.then(|| Arc::new(OpenFile::new(name, again, &found, body)))
        });
        let Some(file) = made else {
            table.watches.as_mut()?.remove(watch, name);
            return None;
        };
        let looked = Instant::now();
        table.insert(name, KeptFile { file: file.clone(), looked, is_used: false, watch });
        table.make_room(self.descriptors_max);
        Some(file)
    }

    /// Follows the changes of kept files until it is dropped.
    pub(crate) async fn watch(self: Arc<Self>) {
        let inotify = self.table.lock().watches.as_ref().map(Watches::descriptor);
        let Some(inotify) = inotify else { return };
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that may close their descriptor early, \
                      which an OwnedFd does not; this crate has no unsafe code"
        )]
        let inotify = AsyncFd::with_interest(inotify, Interest::READABLE);
        let Ok(inotify) = inotify else { return };
        let mut sweep = tokio::time::interval(IDLE);
        loop {
            tokio::select! {
                biased;
                ready = inotify.readable() => {
                    let Ok(mut ready) = ready else { return };
                    self.table.lock().read_events();
                    ready.clear_ready_matching(Ready::READABLE);
                }
                _ = sweep.tick() => self.table.lock().drop_unused(),
            }
        }
    }
}

impl Table {
    fn insert(&mut self, name: &str, kept: KeptFile) {
        self.held_bytes += kept.file.held_bytes();
        self.descriptors += kept.file.descriptors();
        self.by_age.push_back(name.into());
        self.by_name.insert(name.into(), kept);
    }

    /// Drops the oldest files until the table is within its limits.
    fn make_room(&mut self, descriptors_max: usize) {
        while self.by_name.len() > FILES_MAX
            || self.held_bytes > HELD_BYTES_MAX_TOTAL
            || self.descriptors > descriptors_max
        {
            let Some(name) = self.by_age.pop_front() else { return };
            match self.by_name.get_mut(&name) {
                Some(kept) if kept.is_used => {
                    kept.is_used = false;
                    self.by_age.push_back(name);
                }
                Some(_) => self.drop_file(&name),
                None => {}
            }
        }
        // Names of dropped files stay in the order until their turn comes; not without end.
        if self.by_age.len() > 2 * FILES_MAX {
            self.by_age.retain(|name| self.by_name.contains_key(name));
        }
    }

    fn drop_file(&mut self, name: &str) {
        let Some(kept) = self.by_name.remove(name) else { return };
        self.held_bytes -= kept.file.held_bytes();
        self.descriptors -= kept.file.descriptors();
        if let Some(watches) = &mut self.watches {
            watches.remove(kept.watch, name);
        }
    }

    fn clear(&mut self) {
        self.by_name.clear();
        self.by_age.clear();
        (self.held_bytes, self.descriptors) = (0, 0);
        if let Some(watches) = &mut self.watches {
            watches.clear();
        }
    }

    /// Drops the files that were not asked for since the call before.
    fn drop_unused(&mut self) {
        let mut unused = Vec::new();
        for (name, kept) in &mut self.by_name {
            if !std::mem::take(&mut kept.is_used) {
                unused.push(name.clone());
            }
        }
        unused.iter().for_each(|name| self.drop_file(name));
        self.by_age.retain(|name| self.by_name.contains_key(name));
    }

    fn read_events(&mut self) {
        let Some(watches) = &mut self.watches else { return };
        match watches.read() {
            Changed::Files(names) => names.iter().for_each(|name| self.drop_file(name)),
            Changed::Unknown => self.clear(),
        }
    }
}

/// Opens a file, on this thread if the kernel need not wait.
async fn open(name: &str, folder: &Arc<Folder>) -> Result<(File, Metadata), NotOpened> {
    let opened = match folder.file_in_place(name) {
        Some(opened) => opened,
        None => {
            let (folder, name) = (folder.clone(), name.to_owned());
            let opened = spawn_blocking(move || folder.file(&name)).await;
            opened.map_err(|panic| NotOpened::Failed(panic.to_string()))?
        }
    };
    opened.map_err(NotOpened::Denied)
}

/// Makes the open file of a request, on this thread if its body is in memory.
async fn read(name: &str, file: File, metadata: Metadata) -> Result<OpenFile, NotOpened> {
    let in_memory = with_scratch(|scratch| body_in_memory(&file, metadata.len(), scratch));
    if in_memory.is_some() || metadata.len() > HELD_BYTES_MAX {
        return Ok(OpenFile::new(name, file, &metadata, in_memory));
    }
    let name = name.to_owned();
    let read = move || {
        let (body, metadata) = body_from_disk(&file)?;
        Ok(OpenFile::new(&name, file, &metadata, body))
    };
    let read = spawn_blocking(read).await;
    let read = read.map_err(|panic| NotOpened::Failed(panic.to_string()))?;
    read.map_err(|error: std::io::Error| NotOpened::Failed(error.to_string()))
}

/// Longest body that is read at once and copied. Copied from memory and by `sendfile` with a call
/// of its own for the head, an answer costs 6.1 and 7.4 µs at 4 KiB, 6.5 and 7.8 at 16, 7.7 and 7.7
/// at 32, 12.2 and 11.2 at 64; with a receiver on another core the two meet at 16 KiB.
pub(crate) const HELD_BYTES_MAX: u64 = 16 << 10;
/// Kept bodies of a loop.
const HELD_BYTES_MAX_TOTAL: usize = 8 << 20;
/// Kept files of a loop.
const FILES_MAX: usize = 1024;
/// Part of the process's descriptors that all loops may keep.
const DESCRIPTORS_PART: u64 = 32;
/// Names that are remembered from their first request to their second.
const ASKED: usize = 4096;
/// Least time between two looks at a name for changes that inotify does not see.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A file that is not asked for is dropped after this time, or twice it.
const IDLE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
