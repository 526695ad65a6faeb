// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open wire image: its blocks are compared with their checksums before they are first sent, and
//! again after they were out of memory; one with a bad block is removed.
//!
//! Costs one look at the page tables a window, and a checksum of each block each time it
//! is loaded.
//!
//! Does not make images ([`super::WireImages`] does). Does not notice a change to pages that stay
//! in memory, or between the comparison and the send.

use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use paths::MappedFile;

use super::checksums::Blocks;

/// An open wire image. Closing its descriptor releases its lock.
pub(crate) struct WireImage {
    pub(crate) media: MappedFile,
    blocks: Blocks,
    path: PathBuf,
    dropped: AtomicBool,
    /// Number of dropped images.
    drops: Arc<AtomicU64>,
    /// True when the kernel reports page residency correctly; unset until it was first checked.
    reports_residency: OnceLock<bool>,
}

impl WireImage {
    /// Returns an image whose file this process has locked; `drops` counts those that are dropped.
    pub(super) fn new(
        media: MappedFile,
        blocks: Blocks,
        path: PathBuf,
        drops: Arc<AtomicU64>,
    ) -> WireImage {
        let dropped = AtomicBool::new(false);
        WireImage { media, blocks, path, dropped, drops, reports_residency: OnceLock::new() }
    }

    /// Waits until `range` is in memory and compares its blocks not compared since they were
    /// loaded. Returns false, and drops the image, if it cannot be sent from.
    pub(crate) fn make_ready(&self, range: Range<u64>) -> bool {
        // Some file systems (tmpfs) always report pages as absent.
        let is_resident = self.media.is_in_cache(range.clone());
        let may_have_left = self.reports_residency.get() == Some(&true) && !is_resident;
        let compare = !self.blocks.are_compared(&range) || may_have_left;
        let ready = self.media.prefetch_unless(range.clone(), is_resident);
        let ready = ready.map_err(|error| error.to_string());
        let ready = ready.and_then(|()| {
            if !compare {
                return Ok(());
            }
            match self.blocks.compare(self.media.file(), range.clone()) {
                Ok(None) => Ok(()),
                Ok(Some(at)) => Err(format!("the block at byte {at} is not as it was written")),
                Err(error) => Err(error.to_string()),
            }
        });
        if let Err(reason) = ready {
            self.drop_out(&reason);
            return false;
        }
        self.reports_residency.get_or_init(|| self.media.is_in_cache(range));
        true
    }

    /// Removes the image's file; its sessions continue from the asset's file.
    pub(crate) fn drop_out(&self, reason: &str) {
        if self.dropped.swap(true, Ordering::Relaxed) {
            return;
        }
        self.drops.fetch_add(1, Ordering::Relaxed);
        let path = self.path.display();
        tracing::warn!("wire image {path}: {reason}; dropped, its sessions go on from the file");
        // Keeps a file that another server has put in its place meanwhile.
        let inode = |metadata: io::Result<Metadata>| metadata.map(|m| (m.dev(), m.ino())).ok();
        if inode(std::fs::metadata(&self.path)) == inode(self.media.file().metadata())
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("wire image {path}: {error}; remove it");
        }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }
}
