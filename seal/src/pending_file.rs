// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that gets its final name when it is complete.
//!
//! A reader of the target sees the old file, or none, or the complete new one. The file is written
//! beside its target and renamed. In a folder that is itself hidden until it is complete
//! ([`PendingFile::create_unseen`]), the file has its final name at once, and the folder's rename
//! publishes all its files.
//!
//! The file is made, renamed and removed by the descriptor of its folder, so a symlink that
//! replaces a folder on the way has no effect; its temporary name has random digits.
//!
//! Costs one `openat`, and beside its target one `renameat2` more than writing in place: 5 µs of 15
//! for a file of 4 KB on a RAM file system. A file without a name (`O_TMPFILE`) and `linkat`
//! measured 5 % less of the total, but many file systems do not support it, and it cannot replace a
//! file.
//!
//! Sources: renameat2(2) (`RENAME_NOREPLACE`), openat(2). Does not sync: durability over a power
//! loss is the run's policy.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::dir_handle::{DirHandle, split};
use crate::error::{Error, FileFault};
use crate::key;

/// Prefix of the names of unfinished files: hidden, and never served.
pub(crate) const PREFIX: &str = ".pagewire-unfinished-";

/// A file without its final name. Dropping it before [`PendingFile::commit`] removes it.
#[derive(Debug)]
pub struct PendingFile {
    file: Option<File>,
    /// Folder that `target` is relative to; without one, `target` is a path of its own.
    root: Option<Arc<DirHandle>>,
    target: CString,
    /// Its folder and its temporary name there, when that is not the target's.
    beside: Option<(Arc<OwnedFd>, CString)>,
}

impl PendingFile {
    /// Makes a new, empty file in the folder of `target`, with the permissions `mode`. Symlinks on
    /// the way to that folder are followed now and not again.
    ///
    /// # Errors
    /// [`Error::Host`]: the folder does not exist, is full, or may not be written.
    pub fn create(target: &Path, mode: u32) -> Result<Self, Error> {
        let host = |errno: Errno| Error::host("open", target)(errno.into());
        let path = CString::new(target.as_os_str().as_bytes()).map_err(|_| host(Errno::INVAL))?;
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, folder, flags, Mode::empty()).map_err(host)?;
        Self::create_beside(None, Arc::new(folder), path, mode)
    }

    /// Makes a new file for a path below `root`; no folder on the way may be a symlink.
    ///
    /// # Errors
    /// Errors of [`PendingFile::create`].
    pub fn create_below(root: &Arc<DirHandle>, target: CString, mode: u32) -> Result<Self, Error> {
        let folder = root.parent(&target).map(|(folder, _)| folder);
        let folder = folder.map_err(|errno| root.error("open", &target, errno))?;
        Self::create_beside(Some(root.clone()), folder, target, mode)
    }

    /// Makes a new file with its final name at once, in a `root` that is hidden until it is
    /// complete.
    ///
    /// # Errors
    /// Errors of [`PendingFile::create`]; [`FileFault::Exists`].
    pub fn create_unseen(root: &Arc<DirHandle>, target: CString, mode: u32) -> Result<Self, Error> {
        let file = match root.open_below(&target, NEW, Mode::from_raw_mode(mode)) {
            Ok(file) => file,
            Err(Errno::EXIST) => return Err(Error::file(&root.shown(&target), FileFault::Exists)),
            Err(errno) => return Err(root.error("open", &target, errno)),
        };
        Ok(Self { file: Some(file.into()), root: Some(root.clone()), target, beside: None })
    }

    fn create_beside(
        root: Option<Arc<DirHandle>>,
        folder: Arc<OwnedFd>,
        target: CString,
        mode: u32,
    ) -> Result<Self, Error> {
        let beside = fresh_name()?;
        match openat(&folder, &beside, NEW, Mode::from_raw_mode(mode)) {
            Ok(file) => {
                let beside = Some((folder, beside));
                Ok(Self { file: Some(file.into()), root, target, beside })
            }
            Err(errno) => {
                let target = shown(root.as_deref(), &target);
                Err(Error::host("open", &target)(errno.into()))
            }
        }
    }

    /// Returns the file, for writing.
    pub fn file(&self) -> &File {
        self.file.as_ref().expect("there until it is committed or dropped")
    }

    /// Returns the final path.
    pub fn target(&self) -> PathBuf {
        shown(self.root.as_deref(), &self.target)
    }

    /// Returns the target relative to the root, or as it was given.
    pub(crate) fn below(&self) -> &CStr {
        &self.target
    }

    /// Renames the file to its final name. With `replace` it replaces a file of that name; without,
    /// such a file is an error. A symlink of that name is never followed.
    ///
    /// # Errors
    /// [`FileFault::Exists`], [`FileFault::Obstructed`], [`Error::Host`]; the target is as it was,
    /// and this file is removed.
    pub fn commit(mut self, replace: bool) -> Result<(), Error> {
        if let Some((folder, beside)) = &self.beside {
            let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
            let folder = folder.as_fd();
            match renameat_with(folder, beside, folder, split(&self.target).1, flags) {
                Ok(()) => {}
                Err(Errno::EXIST) => {
                    let stat = statat(folder, split(&self.target).1, AtFlags::SYMLINK_NOFOLLOW);
                    let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
                    let is_file = kind.is_ok_and(|kind| kind == FileType::RegularFile);
                    let fault = if is_file { FileFault::Exists } else { FileFault::Obstructed };
                    return Err(Error::file(&self.target(), fault));
                }
                Err(errno) => return Err(Error::host("rename", &self.target())(errno.into())),
            }
        }
        self.file = None;
        Ok(())
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            // The result is ignored: the next run removes files with the prefix, and in an unseen
            // folder files without a record.
            let _ = match (&self.beside, &self.root) {
                (Some((folder, beside)), _) => unlinkat(folder, beside, AtFlags::empty()),
                (None, Some(root)) => root.remove(&self.target, AtFlags::empty()),
                (None, None) => unreachable!("what has no root is written beside its target"),
            };
        }
    }
}

const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

fn shown(root: Option<&DirHandle>, path: &CStr) -> PathBuf {
    match root {
        Some(root) => root.shown(path),
        None => PathBuf::from(OsStr::from_bytes(path.to_bytes())),
    }
}

/// Returns a unique name, which other users cannot predict from the process number.
fn fresh_name() -> Result<CString, Error> {
    static RUN: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let run = match RUN.get() {
        Some(run) => *run,
        None => {
            let mut random = [0; 8];
            key::random(&mut random)?;
            *RUN.get_or_init(|| u64::from_le_bytes(random))
        }
    };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ok(CString::new(format!("{PREFIX}{run:016x}-{number:x}")).expect("digits have no NUL"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn appears_whole_or_not_at_all(folder: &Path, create: impl Fn() -> Result<PendingFile, Error>) {
        let target = folder.join("book");
        let pending = create().unwrap();
        pending.file().write_all(b"whole").unwrap();
        assert_eq!(pending.target(), target);
        assert!(!target.exists());
        pending.commit(false).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"whole");

        let refused = create().unwrap().commit(false).unwrap_err();
        assert!(matches!(refused, Error::File { fault: FileFault::Exists, .. }), "{refused}");
        drop(create().unwrap());
        assert_eq!(std::fs::read(&target).unwrap(), b"whole");

        create().unwrap().commit(true).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"");
        assert_eq!(names(folder), ["book"]);

        std::fs::remove_file(&target).unwrap();
        std::os::unix::fs::symlink("elsewhere", &target).unwrap();
        let refused = create().unwrap().commit(false).unwrap_err();
        assert!(matches!(refused, Error::File { fault: FileFault::Obstructed, .. }), "{refused}");
        assert_eq!(names(folder), ["book"]);
        std::fs::remove_file(&target).unwrap();
    }

    #[test]
    fn a_target_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("book");
        appears_whole_or_not_at_all(folder.path(), || PendingFile::create(&target, 0o600));
        std::fs::create_dir(folder.path().join("below")).unwrap();
        let root = Arc::new(DirHandle::open(folder.path()).unwrap());
        appears_whole_or_not_at_all(&folder.path().join("below"), || {
            PendingFile::create_below(&root, c"below/book".to_owned(), 0o600)
        });
    }

    #[test]
    fn an_unseen_target_is_removed_unless_it_is_committed() {
        let folder = tempfile::tempdir().unwrap();
        let root = Arc::new(DirHandle::open(folder.path()).unwrap());
        let create = || PendingFile::create_unseen(&root, c"book".to_owned(), 0o600);
        drop(create().unwrap());
        assert!(names(folder.path()).is_empty());
        create().unwrap().commit(false).unwrap();
        let refused = create().unwrap_err();
        assert!(matches!(refused, Error::File { fault: FileFault::Exists, .. }), "{refused}");
        assert_eq!(names(folder.path()), ["book"]);
    }
}
