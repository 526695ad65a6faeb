// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders that a measurement reads and writes, removed at its end.
//!
//! By default they lie in a file system in memory: the measurement then reads from and writes to
//! the page cache, without a device.
//!
//! A killed run leaves its folder, and with it occupied memory: the next run removes folders that
//! no process holds locked.
//!
//! Sources: tmpfs(5), flock(2), posix_fadvise(2).
//! Does not fill them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Advice, FlockOperation, fadvise, flock};
use tempfile::TempDir;

use crate::error::Error;

/// A place for folders, removed when it is dropped.
pub struct ScratchDir {
    folder: TempDir,
    /// Locked while the folder is in use.
    _lock: File,
    /// Description for the notes.
    pub description: String,
    targets: u64,
}

impl ScratchDir {
    /// Makes the place below `folder`, or in memory without one.
    pub fn new(folder: Option<&Path>) -> Result<ScratchDir, Error> {
        let memory = Path::new(MEMORY);
        let (below, description) = match folder {
            Some(folder) => (folder.to_owned(), format!("the file system of {}", folder.display())),
            None if memory.is_dir() => (memory.to_owned(), "a file system in memory".to_owned()),
            None => {
                let temporary = std::env::temp_dir();
                (temporary, format!("the temporary folder, as there is no {MEMORY}"))
            }
        };
        remove_left(&below, YOUNG);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&below);
        let folder = folder.map_err(Error::host(format!("a folder in {}", below.display())))?;
        let lock = File::open(folder.path()).map_err(failed("opening", folder.path()))?;
        flock(&lock, FlockOperation::NonBlockingLockShared)
            .map_err(|errno| failed("locking", folder.path())(errno.into()))?;
        Ok(ScratchDir { folder, _lock: lock, description, targets: 0 })
    }

    /// Makes an empty folder.
    pub fn folder(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.folder.path().join(name);
        fs::create_dir(&path).map_err(failed("making", &path))?;
        Ok(path)
    }

    /// Returns the path of a target that does not exist yet.
    pub fn target(&mut self) -> PathBuf {
        self.targets += 1;
        self.folder.path().join(format!("target-{}", self.targets))
    }

    /// Removes a source or target.
    pub fn remove(path: &Path) -> Result<(), Error> {
        fs::remove_dir_all(path).map_err(failed("removing", path))
    }
}

/// Writes every file below a folder to its device, drops it from memory and reads it again from
/// front to back: the page cache then holds it in the pieces of its read-ahead and not in those of
/// the writer, as a file that was there before a server began. Nothing changes where files lie in
/// memory alone. Links are not followed.
///
/// # Errors
/// [`Error::Host`]: a folder or file cannot be read, or not written to its device.
pub fn read_again(folder: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(failed("reading", folder))? {
        let entry = entry.map_err(failed("reading", folder))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(failed("reading", &path))?;
        if kind.is_dir() {
            read_again(&path)?;
        } else if kind.is_file() {
            read_file_again(&path).map_err(failed("reading", &path))?;
        }
    }
    Ok(())
}

fn read_file_again(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    io::copy(&mut file, &mut io::sink()).map(drop)
}

/// Removes folders of killed runs: those with our prefix that no process holds locked and that are
/// not just being made. A folder that cannot be removed belongs to another user.
fn remove_left(below: &Path, young: Duration) {
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.file_type().is_ok_and(|found| found.is_dir());
        let age = entry.metadata().and_then(|found| found.modified()).ok();
        let is_old = age.and_then(|age| age.elapsed().ok()).is_some_and(|age| age >= young);
        if !is_ours || !is_old {
            continue;
        }
        let held = |folder: &File| flock(folder, FlockOperation::NonBlockingLockExclusive).is_err();
        if File::open(entry.path()).is_ok_and(|folder| !held(&folder)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Maps an I/O error to [`Error::Host`] with the action and the path.
pub fn failed(doing: &str, what: &Path) -> impl FnOnce(io::Error) -> Error {
    Error::host(format!("{doing} {}", what.display()))
}

/// Returns the memory available without swapping; `u64::MAX` where it is unknown.
pub fn memory_free_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

/// Prefix that no user would use for a folder worth keeping.
const PREFIX: &str = ".pagewire-lab-unfinished-";
/// Longest time between the making of a folder and its lock.
const YOUNG: Duration = Duration::from_secs(10);
/// The file system in memory of Linux.
const MEMORY: &str = "/dev/shm";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_removed_and_what_is_in_use_is_not() {
        let here = tempfile::tempdir().unwrap();
        let left = here.path().join(format!("{PREFIX}left"));
        let foreign = here.path().join("foreign");
        for folder in [&left, &foreign] {
            fs::create_dir_all(folder.join("source")).unwrap();
        }
        let scratch = ScratchDir::new(Some(here.path())).unwrap();
        assert!(left.exists(), "it is young");
        remove_left(here.path(), Duration::ZERO);
        assert!(!left.exists() && foreign.exists() && scratch.folder.path().exists());
    }

    #[test]
    fn files_of_all_folders_are_read_again_and_stay_the_same() {
        let scratch = ScratchDir::new(None).unwrap();
        let film = scratch.folder("films").unwrap().join("film.mp4");
        fs::write(&film, [7; 100_000]).unwrap();
        std::os::unix::fs::symlink("/dev/zero", film.with_extension("endless")).unwrap();
        read_again(scratch.folder.path()).unwrap();
        assert_eq!(fs::read(&film).unwrap(), [7; 100_000]);
    }
}
