// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that waits for the disks: it syncs files and stores the plans of complete files. A file
//! of MP4 has none: its own tables are its plan.
//!
//! A file is synced before its plan is stored, so that after a loss of power no plan describes more
//! than the file holds. A sync may take seconds and delays only the next sync.
//!
//! Sources: fdatasync(2).
//! Does not sync the folder: after a loss of power the name of a new file may be missing, and with
//! it the file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use media::PlanStore;
use media::Scanner;

/// Command to the thread.
pub(crate) enum CloseCommand {
    /// Sync a file that still grows.
    Sync { file: Arc<File>, path: PathBuf, is_syncing: Arc<AtomicBool> },
    /// Sync and plan a complete file of a stream.
    File {
        stream: usize,
        file: Arc<File>,
        path: PathBuf,
        scanner: Option<Box<Scanner>>,
        is_synced: bool,
    },
}

/// A complete file of a stream, synced and planned.
#[derive(Debug)]
pub(crate) struct CompleteFile {
    pub(crate) stream: usize,
    pub(crate) path: PathBuf,
}

/// Counts of fdatasync(2): done, and refused by the disk.
#[derive(Debug, Default)]
pub(crate) struct SyncCounts {
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// Handles commands until all of their senders are dropped; passes complete files on.
pub(crate) fn run(
    orders: &Receiver<CloseCommand>,
    plans: Option<&PlanStore>,
    syncs: &SyncCounts,
    complete: Option<&Sender<CompleteFile>>,
) {
    let mut is_reported = false;
    for order in orders {
        match order {
            CloseCommand::Sync { file, path, is_syncing } => {
                sync(&file, &path, syncs);
                is_syncing.store(false, Ordering::Relaxed);
            }
            CloseCommand::File { stream, file, path, scanner, is_synced } => {
                if is_synced {
                    sync(&file, &path, syncs);
                }
                if let Some((plans, scanner)) = plans.zip(scanner)
                    && let Err(error) = plans.keep(&path, &file, *scanner)
                {
                    tracing::info!("{}: no plan: {error}", path.display());
                }
                // The file is locked until it is closed.
                drop(file);
                if let Some(keeper) = complete
                    && keeper.send(CompleteFile { stream, path }).is_err()
                    && !std::mem::replace(&mut is_reported, true)
                {
                    tracing::error!(
                        "the thread that keeps files has ended: nothing is deleted and no program \
                         runs until the recorder is started again"
                    );
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
