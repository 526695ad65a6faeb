// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that adds complete files to the indices of their cameras (`recordings::file_completed`):
//! a disk that hangs delays no recording and no deletion.
//!
//! Files that do not fit its queue are left out; the next list of the recordings reads them.
//!
//! Does not remove deleted files: lists do.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use recordings::CameraFiles;

use crate::error::Error;

/// The thread's queue: the index of a camera, and its file.
pub(crate) struct IndexQueue {
    files: SyncSender<(usize, PathBuf)>,
    /// Its sender is dropped when the thread ends.
    end: Receiver<()>,
}

impl IndexQueue {
    /// Starts the thread.
    ///
    /// # Errors
    /// Host: the thread is refused.
    pub(crate) fn start(cameras: Vec<CameraFiles>) -> Result<IndexQueue, Error> {
        let (files, queue) = sync_channel::<(usize, PathBuf)>(QUEUE_FILES);
        let (alive, end): (Sender<()>, _) = channel();
        let run = move || {
            for (index, path) in queue {
                recordings::file_completed(&cameras[index], &path);
            }
            drop(alive);
        };
        let spawned = thread::Builder::new().name("index".to_owned()).spawn(run);
        let object = "the index of recordings".to_owned();
        spawned.map_err(|source| Error::Host { call: "clone", object, source })?;
        Ok(IndexQueue { files, end })
    }

    /// Adds a complete file of the camera with this index.
    pub(crate) fn add(&self, camera: usize, path: PathBuf) {
        if self.files.try_send((camera, path)).is_err() {
            tracing::debug!("an index is behind; the next list of recordings reads the file");
        }
    }

    /// Waits until all files are added, or for `wait`.
    pub(crate) fn end(self, wait: Duration) {
        drop(self.files);
        // Disconnected: the thread has ended.
        let _ = self.end.recv_timeout(wait);
    }
}

/// Files of as many cameras may end at the same time.
const QUEUE_FILES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording of three seconds in MP4, behind a byte for the fuzzer.
    const RECORDED: &[u8] = include_bytes!("../../fuzz/seeds/mp4/recorded");

    #[test]
    fn complete_files_are_in_the_index_of_their_camera() {
        let folder = tempfile::tempdir().unwrap();
        let camera = |name: &str| CameraFiles::new(name.to_owned(), folder.path().to_owned());
        let queue = IndexQueue::start(vec![camera("door"), camera("yard")]).unwrap();
        for name in ["yard-20261130T140000Z.mp4", "yard-20261130T150000Z.mp4", "other.mp4"] {
            let path = folder.path().join(name);
            std::fs::write(&path, &RECORDED[1..]).unwrap();
            let file = std::fs::File::options().append(true).open(&path).unwrap();
            // 2026-11-30, three seconds past two.
            let written = std::time::UNIX_EPOCH + Duration::from_secs(1_796_047_203);
            file.set_modified(written).unwrap();
            queue.add(1, path);
        }
        queue.end(Duration::from_secs(60));
        assert!(!folder.path().join(".door-recordings.sqlite3").exists());
        // One was not written at the time of its name: the list reads it.
        let mut unknown = 0;
        let listing = recordings::list(&camera("yard"), &mut |_, of| unknown = of).unwrap();
        assert_eq!((listing.files.len(), unknown), (2, 1));
    }
}
