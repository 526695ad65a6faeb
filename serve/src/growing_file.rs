// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording while it is written: the newest plan and open file, for all its sessions.
//!
//! Plans do not change; a recording that grows has one after the other, each the one before with
//! more at its end, of the same identity. A session goes over to the newest where the plan that it
//! has ends, and the last of them, made when the recording is complete, ends as any file does.
//!
//! A recording is complete when its recorder lets go of its lock (fcntl_locking(2), of the open
//! file): `pagewire receive` holds a write lock on each file that it writes, and the kernel takes
//! it from a recorder that is killed. So nothing is guessed from silence, and a source that pauses
//! ends nothing. The kernel grants that lock to those alone who have opened the file for writing:
//! whoever may only read a film makes it no recording. Where there are no locks nothing is live:
//! what is written there is answered as a file that changes, and served when it is complete.
//!
//! Costs one system call a look.
//!
//! Does not do: read files ([`crate::library`] does); follow what other programs write: a file that
//! grows without the lock is answered as one that changes.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::asset::Source;

/// See the module.
pub(crate) struct Growth {
    newest: Mutex<Option<Arc<Source>>>,
    asked: Mutex<Instant>,
}

impl Growth {
    pub(crate) fn new() -> Growth {
        Growth { newest: Mutex::new(None), asked: Mutex::new(Instant::now()) }
    }

    /// The newest plan and open file; the last ones once the recording is complete.
    pub(crate) fn newest(&self) -> Option<Arc<Source>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a newer one in place. It refers to this, so it is taken out in the end.
    pub(crate) fn set_newest(&self, newest: Option<Arc<Source>>) {
        let before = {
            let mut slot = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *slot, newest)
        };
        // Unmaps a file, perhaps: not while pacers wait for the lock.
        drop(before);
    }

    /// Notes that somebody has asked for it.
    pub(crate) fn note_asked(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When somebody asked for it last.
    pub(crate) fn asked(&self) -> Instant {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a recorder is at work on this file.
pub(crate) fn is_recorded(file: &File) -> bool {
    // Refused where the file system has no locks.
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

    /// Anybody who could read a film made it a recording, and 256 of them kept others out.
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
