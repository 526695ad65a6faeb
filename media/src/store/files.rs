// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a cache folder: written under another name, locked, synced and renamed, so that a
//! reader sees a whole file or none.
//!
//! The creator of a file holds a shared lock on it until the file has its name. The kernel releases
//! the lock when the creator is killed, so [`remove_unfinished`] distinguishes a leftover from a
//! file that another server is writing by the lock alone, at any age.
//!
//! Sources: rename(2), flock(2).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

/// A file being written beside its final name, locked; removed if dropped before
/// [`UnfinishedFile::keep`].
pub struct UnfinishedFile {
    /// The open file, for reading and writing.
    pub file: File,
    temporary: PathBuf,
    path: PathBuf,
    kept: bool,
}

impl UnfinishedFile {
    /// Creates and locks the file. `path` is its final name.
    ///
    /// # Errors
    /// The folder cannot be written, or every new file is removed at once.
    pub fn create(path: &Path) -> io::Result<UnfinishedFile> {
        for _ in 0..SWEPT_MAX {
            let temporary = path.with_extension(format!("{}.tmp", random_name()));
            let file = File::options().read(true).write(true).create_new(true).open(&temporary)?;
            let pending = UnfinishedFile { file, temporary, path: path.to_owned(), kept: false };
            // Shared: a sweep requires an exclusive lock, and a reader of the finished file shares
            // it.
            match flock(&pending.file, FlockOperation::NonBlockingLockShared) {
                Ok(()) if pending.file.metadata()?.nlink() > 0 => return Ok(pending),
                // Swept between the two calls.
                Ok(()) | Err(Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::Error::other("every new file is removed at once by another program"))
    }

    /// Syncs the file and renames it to its final name.
    ///
    /// # Errors
    /// A full disk, or a name that is used by a folder.
    pub fn keep(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.replace_unsynced()
    }

    /// Like [`UnfinishedFile::keep`], without a sync: a loss of power may damage the file.
    ///
    /// # Errors
    /// A name that is used by a folder.
    pub fn replace_unsynced(&mut self) -> io::Result<()> {
        std::fs::rename(&self.temporary, &self.path)?;
        self.kept = true;
        Ok(())
    }

    /// Like [`UnfinishedFile::replace_unsynced`], but never replaces a file.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`].
    pub fn keep_new_unsynced(&mut self) -> io::Result<()> {
        match renameat_with(CWD, &self.temporary, CWD, &self.path, RenameFlags::NOREPLACE) {
            Ok(()) => self.kept = true,
            // NFS cannot do it; the other name is removed when this is dropped.
            Err(Errno::INVAL | Errno::NOSYS) => std::fs::hard_link(&self.temporary, &self.path)?,
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.kept {
            // The file may not exist; in any case nothing is left on the disk.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Number and size of the unfinished files of a folder.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct UnfinishedFiles {
    /// Count.
    pub files: u64,
    /// Disk space of the files, bytes.
    pub bytes: u64,
}

/// Removes the files that killed creators left half-written and logs their number and size. Returns
/// those still being written: they fill the disk as finished ones do.
pub fn remove_unfinished(folder: &Path) -> UnfinishedFiles {
    let (mut swept, mut held) = (UnfinishedFiles::default(), UnfinishedFiles::default());
    let Ok(entries) = std::fs::read_dir(folder) else { return held };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "tmp") {
            continue;
        }
        // Its creator has renamed it in the meantime.
        let Ok(file) = open_regular(&path) else { continue };
        let Ok(metadata) = file.metadata() else { continue };
        let is_free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let counted = match is_free && std::fs::remove_file(&path).is_ok() {
            true => &mut swept,
            false => &mut held,
        };
        counted.files += 1;
        // Counts blocks: a file may be longer than its written part.
        counted.bytes += metadata.blocks() * BLOCK_BYTES;
    }
    if swept.files > 0 {
        let (folder, UnfinishedFiles { files, bytes }) = (folder.display(), swept);
        tracing::info!("cache {folder}: {files} unfinished files of {bytes} bytes removed");
    }
    held
}

/// 128 random bits in hexadecimal.
fn random_name() -> String {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the kernel has random bits once it runs");
    format!("{:032x}", u128::from_be_bytes(bits))
}

/// Reads a regular file of at most `bytes_max` bytes. A longer file is an error before it is read.
///
/// # Errors
/// Errors of [`open_regular`] and of reading; [`io::ErrorKind::FileTooLarge`].
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.len() <= bytes_max {
        // The file may grow while it is read.
        file.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= bytes_max {
            return Ok(bytes);
        }
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("over {bytes_max} bytes")))
}

/// Opens a regular file without following a link or waiting for a pipe.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a file of another type; the kernel's error, as ELOOP for a
/// symbolic link.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Removes the files with names of earlier releases (16 hexadecimal digits) that are not in use.
pub(super) fn remove_of_earlier_releases(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut retired = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_old = stem.len() == OLD_NAME_CHARS
            && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
            && path.extension().is_some_and(|kind| kind == "plan" || kind == "wire");
        // An earlier release that runs holds a shared lock on the images that it sends.
        let is_free = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_old && open_regular(&path).is_ok_and(|file| is_free(&file)) {
            retired += u64::from(std::fs::remove_file(&path).is_ok());
        }
    }
    if retired > 0 {
        tracing::info!("cache {}: {retired} files of an earlier release removed", folder.display());
    }
}

const OLD_NAME_CHARS: usize = 16;
/// A sweep very rarely finds a new file before its lock is taken; ten times is not an accident.
const SWEPT_MAX: u32 = 10;
/// stat(2): `st_blocks` counts in these.
const BLOCK_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn sweep_removes_by_lock_and_not_by_age() {
        let folder = tempfile::tempdir().unwrap();
        let made = |name: &str| folder.path().join(name);
        for leftover in ["old.1.tmp", "young.2.tmp"] {
            std::fs::write(made(leftover), [1; 5000]).unwrap();
        }
        let day = std::time::Duration::from_secs(86_400);
        let long_ago = std::time::SystemTime::now() - day;
        let old = File::options().write(true).open(made("old.1.tmp")).unwrap();
        old.set_modified(long_ago).unwrap();
        drop(old);
        std::fs::write(made("kept.wire"), "whole").unwrap();
        std::os::unix::fs::symlink("kept.wire", made("link.3.tmp")).unwrap();
        let mut making = UnfinishedFile::create(&made("making.wire")).unwrap();
        making.file.write_all(&[2; 9000]).unwrap();
        making.file.sync_all().unwrap();
        making.file.set_modified(long_ago).unwrap();
        let held = remove_unfinished(folder.path());
        assert_eq!(held.files, 1, "{held:?}");
        assert!((9000..50_000).contains(&held.bytes), "{held:?}");
        assert!(!made("old.1.tmp").exists() && !made("young.2.tmp").exists());
        assert!(made("kept.wire").exists());
        making.keep().unwrap();
        assert_eq!(std::fs::read(made("making.wire")).unwrap(), [2; 9000]);
        assert_eq!(remove_unfinished(folder.path()), UnfinishedFiles::default());
    }

    #[test]
    fn dropped_pending_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        drop(UnfinishedFile::create(&folder.path().join("a.plan")).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
