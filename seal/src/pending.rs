// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that is written beside its target and takes its name when it is whole.
//!
//! Whoever looks at the target sees the old file, or none, or the whole new one. Costs one
//! `openat`, one `renameat2` more than writing in place.
//!
//! Sources: renameat2(2) (`RENAME_NOREPLACE`), openat(2).
//! Does not do: make anything last over a loss of power; that is the run's policy.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::error::{Error, Fault};

/// What names of unfinished files begin with: hidden, and never served.
pub const PREFIX: &str = ".pagewire-unfinished-";

/// A file without its name yet. Dropped before [`Pending::commit`], it is removed.
#[derive(Debug)]
pub struct Pending {
    file: Option<File>,
    beside: PathBuf,
    target: PathBuf,
}

impl Pending {
    /// A new file in the folder of `target`, with the permissions `mode`, empty.
    ///
    /// # Errors
    /// [`Error::Host`]: the folder is not there, is full, or may not be written.
    pub fn create(target: &Path, mode: u32) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{:x}-{number:x}", std::process::id());
        let beside = target.with_file_name(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(CWD, &beside, flags, Mode::from_raw_mode(mode))
            .map_err(|errno| Error::host("open", target)(errno.into()))?;
        Ok(Self { file: Some(File::from(file)), beside, target: target.to_owned() })
    }

    /// The file, to be written.
    pub fn file(&self) -> &File {
        self.file.as_ref().expect("there until it is committed or dropped")
    }

    /// Where it will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Gives it its name. With `replace` a file of that name is replaced, else it is an error.
    ///
    /// # Errors
    /// [`Fault::Exists`], [`Error::Host`]; the target is as it was, and this file is removed.
    pub fn commit(mut self, replace: bool) -> Result<(), Error> {
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, &self.beside, CWD, &self.target, flags) {
            Ok(()) => {
                self.file = None;
                Ok(())
            }
            Err(Errno::EXIST) => Err(Error::file(&self.target, Fault::Exists)),
            Err(errno) => Err(Error::host("rename", &self.target)(errno.into())),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.file.is_some() {
            // Nothing hangs on it: the next run removes what begins with the prefix.
            let _ = unlinkat(CWD, &self.beside, rustix::fs::AtFlags::empty());
        }
    }
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

    #[test]
    fn a_target_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("book");
        let pending = Pending::create(&target, 0o600).unwrap();
        pending.file().write_all(b"whole").unwrap();
        assert!(!target.exists());
        pending.commit(false).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"whole");

        let pending = Pending::create(&target, 0o600).unwrap();
        let refused = pending.commit(false).unwrap_err();
        assert!(matches!(refused, Error::File { fault: Fault::Exists, .. }), "{refused}");
        drop(Pending::create(&target, 0o600).unwrap());
        assert_eq!(std::fs::read(&target).unwrap(), b"whole");

        Pending::create(&target, 0o600).unwrap().commit(true).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"");
        assert_eq!(names(folder.path()), ["book"]);
    }
}
