// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache folder: plans and wire images, kept beside nothing they describe.
//!
//! A plan is read whole, checked against the key of the open file and against itself, and otherwise
//! made again: nothing in the cache is trusted, so it may be deleted or damaged at any time. Files
//! are written under another name, synced and renamed, so a reader sees a whole file or none. Costs
//! one file read per asset and start; a plan takes 16 bytes per PCR and 8 per entry point.
//!
//! The maker of a file holds a shared lock on it until the file has its name. The kernel lets go of
//! the lock when the maker is killed, so [`sweep`] tells a leftover from a file that another server
//! is making by the lock alone, however young or old either is.
//!
//! Files are named by the BLAKE3 hash of their asset's path, which is the same in every build:
//! recorder and server find each other's. Releases before named them by a hash that the Rust
//! library may change; such files are removed when a cache is opened, unless they are in use.
//!
//! Sources: XDG Base Directory Specification 0.8, rename(2), flock(2); BLAKE3 (the paper's §2.6 on
//! shortened output).
//! Does not do: wire images' contents and limits ([`crate::image`]).

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use media::plan::{PacketPlan, PlanKey};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// Where plans and images are kept; nowhere if the folder cannot be written.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// Makes the folders. One that cannot be made is a warning: serving works, planning is repeated
    /// at every start and no wire images are made.
    pub(crate) fn open(folder: Option<PathBuf>) -> Cache {
        let Some(folder) = folder.or_else(default_folder) else {
            tracing::warn!(
                "no cache folder: neither XDG_CACHE_HOME nor HOME is set; write --cache"
            );
            return Cache { folder: None };
        };
        for part in [PLANS, IMAGES] {
            if let Err(error) = std::fs::create_dir_all(folder.join(part)) {
                let folder = folder.display();
                tracing::warn!(
                    "cache {folder}: {error}; plans are not kept; write --cache and a folder that \
                     can be written to"
                );
                return Cache { folder: None };
            }
            sweep(&folder.join(part));
            retire(&folder.join(part));
        }
        Cache { folder: Some(folder) }
    }

    /// Where wire images go.
    pub(crate) fn images(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(IMAGES))
    }

    /// The plan of the file with this key, if the cache has one that holds.
    pub(crate) fn plan(&self, key: &PlanKey) -> Option<PacketPlan> {
        let path = self.plan_path(key)?;
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("plan {}: {error}; made again", path.display());
                return None;
            }
        };
        match PacketPlan::decode(&bytes, key) {
            Ok(plan) => Some(plan),
            Err(fault) => {
                tracing::info!("plan {}: {fault}; made again", path.display());
                None
            }
        }
    }

    /// Keeps a plan; false where that cannot be. A full disk is a warning.
    pub(crate) fn keep_plan(&self, key: &PlanKey, plan: &PacketPlan) -> bool {
        let Some(path) = self.plan_path(key) else { return false };
        let mut written = Pending::create(&path);
        let kept = written.as_mut().map_err(|e| io::Error::from(e.kind())).and_then(|pending| {
            pending.file.write_all(&plan.encode(key))?;
            pending.keep()
        });
        if let Err(error) = &kept {
            tracing::warn!(
                "plan {}: {error}; it will be made again at the next start",
                path.display()
            );
        }
        kept.is_ok()
    }

    fn plan_path(&self, key: &PlanKey) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.join(PLANS).join(format!("{}.plan", name(&key.path))))
    }
}

/// A file being written beside its final name, locked; removed when dropped before
/// [`Pending::keep`].
pub(crate) struct Pending {
    pub(crate) file: File,
    temporary: PathBuf,
    path: PathBuf,
    kept: bool,
}

impl Pending {
    pub(crate) fn create(path: &Path) -> io::Result<Pending> {
        for _ in 0..SWEPT_MAX {
            let temporary = path.with_extension(format!("{}.tmp", crate::session::random_id()));
            let file = File::options().read(true).write(true).create_new(true).open(&temporary)?;
            let pending = Pending { file, temporary, path: path.to_owned(), kept: false };
            // Shared: a sweep wants it exclusively, and a reader of the finished file shares it.
            match flock(&pending.file, FlockOperation::NonBlockingLockShared) {
                Ok(()) if pending.file.metadata()?.nlink() > 0 => return Ok(pending),
                // Swept between the two calls.
                Ok(()) | Err(Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::Error::other("every new file is removed at once by another program"))
    }

    /// Syncs and gives the file its name.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        std::fs::rename(&self.temporary, &self.path)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.kept {
            // It may never have come to be; either way nothing is left behind.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Temporary files of a folder: count and size.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Temporary {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Removes the files that killed makers left half-written and logs their number and size. Returns
/// those that are being made: they fill the disk as finished ones do.
pub(crate) fn sweep(folder: &Path) -> Temporary {
    let (mut swept, mut held) = (Temporary::default(), Temporary::default());
    let Ok(entries) = std::fs::read_dir(folder) else { return held };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "tmp") {
            continue;
        }
        // Gone meanwhile: its maker has renamed it.
        let Ok(file) = open_regular(&path) else { continue };
        let Ok(metadata) = file.metadata() else { continue };
        let is_free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let counted = match is_free && std::fs::remove_file(&path).is_ok() {
            true => &mut swept,
            false => &mut held,
        };
        counted.files += 1;
        // Blocks: a file may be longer than what was written of it.
        counted.bytes += metadata.blocks() * BLOCK_BYTES;
    }
    if swept.files > 0 {
        let (folder, Temporary { files, bytes }) = (folder.display(), swept);
        tracing::info!("cache {folder}: {files} unfinished files of {bytes} bytes removed");
    }
    held
}

/// Opens a regular file without following a link or waiting for a pipe.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Removes the files that earlier releases named, 16 hexadecimal digits, and that nobody holds.
fn retire(folder: &Path) {
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

/// A name for the file in the cache: 128 bits of BLAKE3. The key inside is what is trusted, so a
/// collision costs a rebuild.
pub(crate) fn name(path: &[u8]) -> String {
    blake3::hash(path).to_hex()[..NAME_CHARS].to_owned()
}

fn default_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("pagewire"))
}

const NAME_CHARS: usize = 32;
const OLD_NAME_CHARS: usize = 16;
const PLANS: &str = "plans";
const IMAGES: &str = "images";
/// A sweep meets a new file before its lock once in a very long while; ten times is no accident.
const SWEPT_MAX: u32 = 10;
/// stat(2): `st_blocks` counts in these.
const BLOCK_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
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
        let mut making = Pending::create(&made("making.wire")).unwrap();
        making.file.write_all(&[2; 9000]).unwrap();
        making.file.sync_all().unwrap();
        making.file.set_modified(long_ago).unwrap();
        let held = sweep(folder.path());
        assert_eq!(held.files, 1, "{held:?}");
        assert!((9000..50_000).contains(&held.bytes), "{held:?}");
        assert!(!made("old.1.tmp").exists() && !made("young.2.tmp").exists());
        assert!(made("kept.wire").exists());
        making.keep().unwrap();
        assert_eq!(std::fs::read(made("making.wire")).unwrap(), [2; 9000]);
        assert_eq!(sweep(folder.path()), Temporary::default());
    }

    #[test]
    fn names_are_the_same_in_every_build() {
        // The known answer of BLAKE3 for "abc" and for nothing, shortened.
        assert_eq!(name(b"abc"), "6437b3ac38465133ffb63b75273a8db5");
        assert_eq!(name(b""), "af1349b9f5f9a1a6a0404dea36dcc949");
    }

    #[test]
    fn files_of_earlier_releases_are_removed_unless_they_are_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let of = |part: &str, file: &str| folder.path().join(part).join(file);
        for part in [PLANS, IMAGES] {
            std::fs::create_dir(folder.path().join(part)).unwrap();
        }
        let old = [of(PLANS, "0123456789abcdef.plan"), of(IMAGES, "0123456789abcdef.wire")];
        let held = of(IMAGES, "fedcba9876543210.wire");
        let kept = [
            of(PLANS, &format!("{}.plan", name(b"abc"))),
            of(IMAGES, &format!("{}.wire", name(b"abc"))),
            of(PLANS, "0123456789abcdef.txt"),
            of(PLANS, "0123456789abcdeg.plan"),
        ];
        for path in old.iter().chain(&kept).chain([&held]) {
            std::fs::write(path, "whole").unwrap();
        }
        let user = File::open(&held).unwrap();
        flock(&user, FlockOperation::NonBlockingLockShared).unwrap();
        Cache::open(Some(folder.path().to_owned()));
        assert!(old.iter().all(|path| !path.exists()));
        assert!(kept.iter().all(|path| path.exists()) && held.exists());
        drop(user);
        Cache::open(Some(folder.path().to_owned()));
        assert!(!held.exists());
    }

    #[test]
    fn dropped_pending_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        drop(Pending::create(&folder.path().join("a.plan")).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
