// SPDX-License-Identifier: MIT OR Apache-2.0
//! The target folder of a run, and the files that it has already.
//!
//! A new target is made in a hidden working folder beside it ([`crate::working_folder`]). No reader
//! opens that, so files are written under their final names at once, and the folder is renamed when
//! all are in it. For 10,000 files of 4 KB that saves a fourth of the processor time. A run that
//! ended early leaves the folder, and the next run continues in it; files without a record are
//! removed.
//!
//! Sources: rename(2), umask(2), proc(5) (`status`).

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat};
use rustix::io::Errno;

use crate::dir_handle::CreatedFolder;
use crate::error::Error;
use crate::folder_walk::{self, DirHandle, Tree};
use crate::manifest::{self, Time};
use crate::pending_file::PREFIX;
use crate::target_path;
use crate::working_folder::{self, WorkingFolder, WorkingKind};

/// Place where the target is made.
#[derive(Debug)]
pub(super) struct TargetDir {
    /// The target, without symlinks.
    path: PathBuf,
    state: TargetState,
    /// Folders that look like an earlier run's working folder and are not used as one.
    pub(super) notes: Vec<Error>,
}

#[derive(Debug)]
enum TargetState {
    /// The target exists: files are renamed one by one.
    ExistingFiles(Arc<DirHandle>),
    /// The target is new: the folder is renamed once.
    Unseen {
        /// Parent folder of the target, and the target's name in it.
        parent: Arc<DirHandle>,
        name: CString,
        /// Working folder of this run, or of an earlier one.
        working: Option<WorkingFolder>,
        kind: WorkingKind,
    },
}

/// Files and folders that the target has already.
#[derive(Debug, Default)]
pub(super) struct ExistingFiles {
    /// Files, with their sizes and the times of their last changes.
    pub(super) files: HashMap<CString, (u64, Time)>,
    /// Folders, parents first.
    pub(super) folders: Vec<CString>,
}

impl TargetDir {
    /// Finds the place where `target` is made. Changes nothing.
    pub(super) fn find(target: &Path, kind: WorkingKind) -> Result<Self, Error> {
        let (parent, name) = match target_path::parent(target)? {
            Ok(found) => found,
            Err(root) => return Self::there(root),
        };
        if let Some(root) = target_path::folder(&parent, &name)? {
            return Self::there(root);
        }
        let working_folder::LeftoverFolders { working, notes } =
            working_folder::left(&parent, &working_folder::names(&parent)?, &name, kind);
        let path = parent.shown(&name);
        let state = TargetState::Unseen { parent, name, working, kind };
        Ok(Self { path, state, notes })
    }

    fn there(root: DirHandle) -> Result<Self, Error> {
        let path = root.path().to_owned();
        Ok(Self { path, state: TargetState::ExistingFiles(Arc::new(root)), notes: Vec::new() })
    }

    /// Returns the folder that files are written to, if it exists already.
    pub(super) fn folder(&self) -> Option<&Arc<DirHandle>> {
        match &self.state {
            TargetState::ExistingFiles(root) => Some(root),
            TargetState::Unseen { working, .. } => working.as_ref().map(WorkingFolder::folder),
        }
    }

    /// Returns the hidden working folder of a new target, and the target's name.
    pub(super) fn unseen(&self) -> Option<(&WorkingFolder, &CStr)> {
        match &self.state {
            TargetState::ExistingFiles(_) => None,
            TargetState::Unseen { working, name, .. } => {
                working.as_ref().map(|working| (working, &**name))
            }
        }
    }

    /// True when the target has a hidden name as yet.
    pub(super) fn is_unseen(&self) -> bool {
        matches!(self.state, TargetState::Unseen { .. })
    }

    /// Refuses a target inside the source, and a source inside the target.
    pub(super) fn is_apart_from(&self, source: &Path) -> Result<(), Error> {
        let target = &self.path;
        let found = match (target.starts_with(source), source.starts_with(target)) {
            (true, true) => "the source itself",
            (true, false) => "inside the source",
            (false, true) => "the source is inside it",
            (false, false) => return Ok(()),
        };
        Err(Error::Option {
            option: "TARGET",
            found: format!("{}: {found}", target.display()),
            cure: "name a folder beside the source".to_owned(),
        })
    }

    /// Locks the folder that files are written to for this run; makes a hidden one if no earlier
    /// run left any.
    pub(super) fn take(&mut self) -> Result<Arc<DirHandle>, Error> {
        let (parent, name, working, kind) = match &mut self.state {
            TargetState::ExistingFiles(root) => {
                root.lock()?;
                return Ok(root.clone());
            }
            TargetState::Unseen { parent, name, working, kind } => (parent, name, working, *kind),
        };
        let claimed = match working.take() {
            Some(left) => {
                left.take()?;
                left
            }
            None => {
                let made = WorkingFolder::make(parent, name, kind)?;
                made.take()?;
                made.yields(name, kind)?
            }
        };
        Ok(working.insert(claimed).folder().clone())
    }

    /// Lists the target's files and folders. Removes unfinished files of earlier runs.
    pub(super) fn look(&self, target: &DirHandle, threads: usize) -> ExistingFiles {
        let mut there = ExistingFiles::default();
        let tree = folder_walk::walk(target, threads);
        for file in tree.files {
            let path = file.path.to_bytes();
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            if file.path.as_c_str() == working_folder::MARKER && self.is_unseen() {
                // Removed when the folder has its name.
            } else if name.starts_with(PREFIX.as_bytes()) {
                // A file that cannot be removed does no harm here.
                let _ = target.remove(&file.path, AtFlags::empty());
            } else if path != manifest::NAME.as_bytes() {
                there.files.insert(file.path, (file.bytes, file.modified));
            }
        }
        there.folders.extend(tree.folders.into_iter().skip(1).map(|folder| folder.path));
        there
    }
}

/// Removes from an unseen folder all that is not `kept`: files without a record, files and folders
/// that the source no longer has.
pub(super) fn clear(
    target: &DirHandle,
    there: &ExistingFiles,
    kept: &HashSet<CString>,
    tree: &Tree,
) {
    // A file that cannot be removed fails its own replacement alone, with an error.
    for path in there.files.keys().filter(|path| !kept.contains(*path)) {
        let _ = target.remove(path, AtFlags::empty());
    }
    let wanted: HashSet<&CStr> = tree.folders.iter().map(|folder| &*folder.path).collect();
    for path in there.folders.iter().rev().filter(|path| !wanted.contains(path.as_c_str())) {
        let _ = target.remove(path, AtFlags::REMOVEDIR);
    }
}

/// Makes the tree's folders below `target`, writable for this program; [`super::finish`] sets their
/// permissions at the end.
pub(super) fn make_folders(target: &DirHandle, tree: &Tree) -> Vec<Error> {
    let mut failed = Vec::new();
    for folder in tree.folders.iter().skip(1) {
        if let Err(errno) = make_folder(target, &folder.path) {
            failed.push(target.error("mkdir", &folder.path, errno));
        }
    }
    failed
}

fn make_folder(target: &DirHandle, path: &CStr) -> Result<(), Errno> {
    if target.make_folder(path, Mode::RWXU)? == CreatedFolder::Now {
        return Ok(());
    }
    let stat = target.stat(path)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    let mode = Mode::from_raw_mode(folder_walk::permissions(&stat));
    if !mode.contains(Mode::RWXU) {
        // Made by an earlier run, read-only as its source is.
        return target.chmod_folder(path, mode | Mode::RWXU);
    }
    Ok(())
}

/// Sets permissions and times of a folder below `target`.
pub(super) fn settle_folder(target: &DirHandle, folder: &folder_walk::Folder) -> Result<(), Errno> {
    /// Permission bits copied to a folder; setgid and sticky are kept, setuid is dropped.
    const MODE: u32 = 0o3777;
    use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, futimens};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let fd = target.open_below(&folder.path, flags, Mode::empty())?;
    let mode = folder.mode & MODE;
    if folder_walk::permissions(&fstat(&fd)?) != mode {
        fchmod(&fd, Mode::from_raw_mode(mode))?;
    }
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: folder.modified.s,
            tv_nsec: folder.modified.ns.into(),
        },
    };
    futimens(&fd, &times)
}

/// Returns the permission bits that the kernel removes from new files of this process. All bits,
/// where the kernel does not report them: then every file's permissions are set.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok()).unwrap_or(0o777)
}
