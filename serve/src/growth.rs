// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording while it is written: the newest plan and open file, for all its sessions.
//!
//! Plans do not change; a recording that grows has one after the other, each the one before with
//! more at its end, of the same identity. A session goes over to the newest where the plan that it
//! has ends, and the last of them, made when the recording is complete, ends as any file does.
//!
//! A recording is complete when its recorder lets go of its lock (flock(2)): `pagewire receive`
//! holds an exclusive one on each file that it writes, and the kernel takes it from a recorder that
//! is killed. So nothing is guessed from silence, and a source that pauses ends nothing.
//!
//! Costs one system call a look at a file that is complete.
//!
//! Does not do: read files ([`crate::library`] does); follow what other programs write: a file that
//! grows without the lock is answered as one that changes.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

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
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => true,
        Ok(()) => {
            // Nothing to do where that fails: it goes when the file is closed.
            let _ = flock(file, FlockOperation::Unlock);
            false
        }
        // A file system without locks.
        Err(_) => false,
    }
}

/// Takes the lock of a recorder on a file that was just made. Tried again for a moment, since a
/// server that looks whether there is one holds another for as long as two system calls.
///
/// # Errors
/// The file system has no locks, or somebody else holds one.
pub fn lock_recording(file: &File) -> std::io::Result<()> {
    let mut locked = Err(Errno::WOULDBLOCK);
    for _ in 0..LOCK_ATTEMPTS {
        locked = flock(file, FlockOperation::NonBlockingLockExclusive);
        if locked != Err(Errno::WOULDBLOCK) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(locked?)
}

const LOCK_ATTEMPTS: u32 = 20;

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
        lock_recording(&recorder).unwrap();
        assert!(is_recorded(&server) && is_recorded(&other));
        drop(recorder);
        assert!(!is_recorded(&server) && !is_recorded(&other));
    }
}
