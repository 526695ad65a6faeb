// SPDX-License-Identifier: MIT OR Apache-2.0
//! End of a run over a folder: sets folders' permissions and times, syncs, names the folder.
//!
//! Folders are set last, the innermost first: files can then be written into a folder that is
//! read-only in the source, and its time is not changed by its files. A stopped run leaves a new
//! folder under its hidden name, for the next run.
//!
//! Sources: syncfs(2).

use std::ffi::CStr;

use rustix::fs::{fsync, syncfs};
use rustix::io::Errno;

use super::file_transfer::SealContext;
use super::target_dir::{TargetDir, settle_folder};
use super::{Durability, folder_walk};
use crate::error::Error;
use crate::folder_walk::DirHandle;
use crate::working_folder::WorkingFolder;

/// Ends the run; returns its errors.
pub(super) fn end(
    context: SealContext,
    target_dir: &TargetDir,
    tree: &folder_walk::Tree,
    is_stopped: bool,
) -> Vec<Error> {
    let mut failed = match is_stopped {
        true => Vec::new(),
        false => settle_folders(&context.target, target_dir, tree),
    };
    if context.sync != Durability::None
        && let Err(error) = sync(&context)
    {
        failed.push(error);
    }
    if let (Some((working, name)), false) = (target_dir.unseen(), is_stopped)
        && let Err(error) = show(working, name, context.sync)
    {
        failed.push(error);
    }
    // Another run may lock the journal only from here on.
    drop(context);
    failed
}

fn settle_folders(
    target: &DirHandle,
    target_dir: &TargetDir,
    tree: &folder_walk::Tree,
) -> Vec<Error> {
    // A folder that the caller made keeps its permissions.
    let own = tree.folders.iter().skip(usize::from(!target_dir.is_unseen()));
    let mut failed = Vec::new();
    for folder in own.rev() {
        match settle_folder(target, folder) {
            Ok(()) => {}
            // The folder could not be made; that error was reported then.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => failed.push(target.error("chmod", &folder.path, errno)),
        }
    }
    failed
}

fn sync(context: &SealContext) -> Result<(), Error> {
    let target = &context.target;
    syncfs(target.fd()).map_err(|errno| target.error("syncfs", c".", errno))?;
    match &context.journal {
        Some(journal) => journal.lock().expect("no worker panicked").synced(),
        None => Ok(()),
    }
}

/// Gives a finished folder its name.
fn show(working: &WorkingFolder, name: &CStr, sync: Durability) -> Result<(), Error> {
    working.publish(name)?;
    if sync == Durability::None {
        return Ok(());
    }
    let parent = working.parent();
    fsync(parent.fd()).map_err(|errno| parent.error("fsync", c".", errno))
}
