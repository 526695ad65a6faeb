// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording while it is written: the newest plan and open file, for all sessions.
//!
//! Plans are immutable; a growing recording has a sequence of them, each extending the one before
//! under the same identity. A session switches to the newest when it reaches the end of its plan,
//! one of tracks two seconds before. The last plan, made when the recording is complete, ends like
//! that of any file.
//!
//! A recording is complete when its recorder releases its lock (fcntl_locking(2), of the open
//! file): `pagewire receive` holds a write lock on each file that it writes, and the kernel
//! releases the lock of a killed recorder. So nothing is guessed from silence, and a pausing source
//! ends nothing. The kernel grants that lock only on files opened for writing, so a reader cannot
//! make a film a recording. Without lock support no file counts as a recording: a file being
//! written is answered as one that changes, and served when it is complete.
//!
//! Costs one system call a look.
//!
//! Does not read files ([`crate::library`] does) or follow other programs' output: a file that
//! grows without the lock is answered as one that changes.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::library::asset::{LibrarySource, Source};
use crate::library::track_asset::TrackSource;

/// Pause between two plans of a recording, in times of the first one's duration.
pub(crate) const COST_SHARE: u32 = 20;

/// True once bytes of a recording were lost that addresses of segments refer to. It outlives the
/// recording.
#[derive(Clone, Default)]
pub(crate) struct CutShort(Arc<AtomicBool>);

impl CutShort {
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Newest state of a recording.
pub(crate) struct Growth {
    newest: Mutex<Option<LibrarySource>>,
    asked: Mutex<Instant>,
    /// Time of the last request of a player of HLS or DASH.
    viewed: Mutex<Option<Instant>>,
    /// Time of the last request that waits for the next part.
    watched: Mutex<Option<Instant>>,
    cut_short: CutShort,
    grown: Notify,
}

impl Growth {
    pub(crate) fn new() -> Growth {
        Growth {
            newest: Mutex::new(None),
            asked: Mutex::new(Instant::now()),
            viewed: Mutex::new(None),
            watched: Mutex::new(None),
            cut_short: CutShort::default(),
            grown: Notify::new(),
        }
    }

    /// Returns the newest plan and open file; the last ones once the recording is complete.
    pub(crate) fn newest(&self) -> Option<LibrarySource> {
        self.newest.lock().clone()
    }

    /// Returns the newest source of a transport stream.
    pub(crate) fn newest_stream(&self) -> Option<Arc<Source>> {
        self.newest()?.stream()
    }

    /// Returns the newest source of tracks.
    pub(crate) fn newest_tracks(&self) -> Option<Arc<TrackSource>> {
        self.newest()?.tracks()
    }

    /// Replaces the newest source. It refers back to this, so `None` breaks the cycle in the end.
    pub(crate) fn set_newest(&self, newest: Option<LibrarySource>) {
        let before = {
            let mut slot = self.newest.lock();
            std::mem::replace(&mut *slot, newest)
        };
        // May unmap a file, so it runs without the lock that pacers wait for.
        drop(before);
        self.grown.notify_waiters();
    }

    /// Returns the mark of a recording that was cut short.
    pub(crate) fn cut_short(&self) -> &CutShort {
        &self.cut_short
    }

    /// Resolves when a newer plan than at the time of this call is set.
    pub(crate) fn grown(&self) -> Notified<'_> {
        self.grown.notified()
    }

    /// Records that a player waits for the next segment or part, or will request it.
    pub(crate) fn note_watched(&self) {
        *self.watched.lock() = Some(Instant::now());
    }

    /// True while players wait for the next segment or part.
    pub(crate) fn is_watched(&self, now: Instant) -> bool {
        let watched = *self.watched.lock();
        watched.is_some_and(|at| now.saturating_duration_since(at) < WATCHED)
    }

    /// Records a request of a player of HLS or DASH.
    pub(crate) fn note_viewed(&self) {
        *self.viewed.lock() = Some(Instant::now());
    }

    /// True when a player of HLS or DASH has asked within this time before `now`.
    pub(crate) fn is_viewed(&self, now: Instant, within: Duration) -> bool {
        let viewed = *self.viewed.lock();
        viewed.is_some_and(|at| now.saturating_duration_since(at) <= within)
    }

    /// Records a request for the recording.
    pub(crate) fn note_asked(&self) {
        *self.asked.lock() = Instant::now();
    }

    /// Returns the time of the last request.
    pub(crate) fn asked(&self) -> Instant {
        *self.asked.lock()
    }
}

/// Longest time between two requests of a player that waits for the next segment or part, with a
/// margin.
const WATCHED: Duration = Duration::from_secs(10);

/// True while a recorder writes this file.
pub(crate) fn is_recorded(file: &File) -> bool {
    // An error means that the file system has no locks.
    paths::is_locked_to_write(file).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_recorded_until_its_recorder_closes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ts");
        let recorder = File::create(&path).unwrap();
        let (server, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        assert!(!is_recorded(&server));
        paths::lock_to_write(&recorder).unwrap();
        assert!(is_recorded(&server) && is_recorded(&other));
        drop(recorder);
        assert!(!is_recorded(&server) && !is_recorded(&other));
    }

    /// Regression: any reader could make a film a recording, and 256 of them kept others out.
    #[test]
    fn locks_of_readers_make_no_recording() {
        use rustix::fs::{FlockOperation, flock};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ts");
        File::create(&path).unwrap();
        let (server, reader) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        flock(&reader, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(paths::lock_to_write(&reader).is_err());
        assert!(!is_recorded(&server));
    }
}
