// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that waits for disks: makes bytes lasting, and keeps the plans of complete files.
//!
//! A file is synced before its plan is kept, so that a plan never speaks of more than there is
//! after a loss of power. A sync may take seconds and holds nobody up here but the next one.
//!
//! Sources: fdatasync(2).
//! Does not do: sync the folder; a file that is lost with its name is as good as never begun.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use media::Scanner;
use serve::Plans;

/// What is to be done.
pub(crate) enum CloseCommand {
    /// A file grows on and is to be on the disk as far as it is.
    Sync { file: Arc<File>, path: PathBuf, is_syncing: Arc<AtomicBool> },
    /// A file is complete.
    File { file: Arc<File>, path: PathBuf, scanner: Box<Scanner>, is_synced: bool },
}

/// How often a disk did not do what it was asked.
#[derive(Debug, Default)]
pub(crate) struct SyncCounts {
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// Closes until nobody is left to ask for it.
pub(crate) fn run(orders: &Receiver<CloseCommand>, plans: Option<&Plans>, syncs: &SyncCounts) {
    for order in orders {
        match order {
            CloseCommand::Sync { file, path, is_syncing } => {
                sync(&file, &path, syncs);
                is_syncing.store(false, Ordering::Relaxed);
            }
            CloseCommand::File { file, path, scanner, is_synced } => {
                if is_synced {
                    sync(&file, &path, syncs);
                }
                if let Some(plans) = plans
                    && let Err(error) = plans.keep(&path, &file, *scanner)
                {
                    tracing::info!("{}: no plan: {error}", path.display());
                }
            }
        }
    }
}

fn sync(file: &File, path: &Path, syncs: &SyncCounts) {
    match file.sync_data() {
        Ok(()) => syncs.done.fetch_add(1, Ordering::Relaxed),
        Err(error) => {
            tracing::error!("fdatasync {}: {error}", path.display());
            syncs.failed.fetch_add(1, Ordering::Relaxed)
        }
    };
}
