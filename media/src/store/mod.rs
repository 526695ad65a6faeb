// SPDX-License-Identifier: MIT OR Apache-2.0
//! The store of packet plans: a cache folder with one file per asset, and one more for a transport
//! stream whose elementary streams have been requested.
//!
//! A server stores the plans that it creates here, and a recorder the plan of each file that it
//! completes, so that the server need not read that file again. A plan is read whole and checked
//! against the key of the open file and against itself; an invalid one is counted and created
//! again. Nothing in the folder is trusted, so it may be deleted or damaged at any time. Costs one
//! file read per asset and start; a plan has 16 bytes per PCR and 8 per entry point.
//!
//! Files are named by the BLAKE3 hash of their asset's path, which is the same in every build:
//! recorder and server find each other's files. Earlier releases named them by a hash that the Rust
//! library may change; such files are removed when a store is opened, unless they are in use.
//!
//! Sources: XDG Base Directory Specification 0.8; BLAKE3 (the paper's §2.6 on shortened output).
//! Does not create plans ([`Scanner`] does) and does not read the wire images beside them.

mod asset;
mod files;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::PlanKey;
use crate::tracks::Presentation;
use crate::ts::Scanner;
use crate::{AssetPlan, PlanFault};

pub use asset::{asset_key, modified_ns, name_codecs, random_identity};
pub use files::{UnfinishedFile, UnfinishedFiles, open_regular, read_regular, remove_unfinished};

/// Reason for which a store saves no plans: serving works, but planning is repeated at every start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreUnavailable {
    /// No folder was named, and the environment names none.
    #[error("no cache folder: neither XDG_CACHE_HOME nor HOME is set; plans are not kept")]
    NoFolder,
    /// The folder cannot be created.
    #[error("cache {}: {source}; plans are not kept", folder.display())]
    Folder {
        /// The cache folder.
        folder: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The plans and wire images of a cache folder. Clones share the folder and its counter.
#[derive(Debug, Clone)]
pub struct PlanStore {
    folder: Result<PathBuf, Arc<StoreUnavailable>>,
    invalid: Arc<AtomicU64>,
}

impl PlanStore {
    /// Opens the store in `folder`, or in the XDG cache folder if none is named. Creates the
    /// folders; if that fails, the store is empty and saves nothing ([`PlanStore::unavailable`]).
    pub fn open(folder: Option<PathBuf>) -> PlanStore {
        PlanStore { folder: opened(folder).map_err(Arc::new), invalid: Arc::default() }
    }

    /// Reason for which this store saves nothing, if any.
    pub fn unavailable(&self) -> Option<&StoreUnavailable> {
        self.folder.as_ref().err().map(|unavailable| &**unavailable)
    }

    /// The cache folder.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref().ok()
    }

    /// The folder of wire images.
    pub fn images(&self) -> Option<PathBuf> {
        self.folder.as_ref().ok().map(|folder| folder.join(IMAGES))
    }

    /// Returns the stored plan of the file with this key, if it exists and is valid.
    pub fn plan(&self, key: &PlanKey) -> Option<AssetPlan> {
        self.look_up(key, PLAN, AssetPlan::decode)
    }

    /// Returns the stored elementary streams of the transport stream with this key, if they exist
    /// and are valid.
    pub fn elementary(&self, key: &PlanKey) -> Option<Presentation> {
        self.look_up(key, ELEMENTARY, Presentation::decode_elementary)
    }

    fn look_up<T>(
        &self,
        key: &PlanKey,
        kind: &str,
        decode: impl FnOnce(&[u8], &PlanKey) -> Result<T, PlanFault>,
    ) -> Option<T> {
        let path = self.plan_path(key, kind)?;
        let found = match read_regular(&path, plan_bytes_max(key)) {
            Ok(bytes) => decode(&bytes, key).map_err(|fault| fault.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Err(error.to_string()),
        };
        let invalid = |fault: &String| {
            self.invalid.fetch_add(1, Ordering::Relaxed);
            tracing::info!("plan {}: {fault}; made again", path.display());
        };
        found.inspect_err(invalid).ok()
    }

    /// Looks since the store was opened that found a plan damaged, unreadable or of a file that has
    /// changed.
    pub fn invalid_plans(&self) -> u64 {
        self.invalid.load(Ordering::Relaxed)
    }

    /// Stores a plan, encoded for the file with this key; false if that fails, as on a full disk,
    /// which is logged.
    pub fn keep_plan(&self, key: &PlanKey, encoded: &[u8]) -> bool {
        self.keep_encoded(key, PLAN, encoded)
    }

    /// Stores elementary streams as [`keep_plan`](Self::keep_plan) stores a plan.
    pub fn keep_elementary(&self, key: &PlanKey, encoded: &[u8]) -> bool {
        self.keep_encoded(key, ELEMENTARY, encoded)
    }

    fn keep_encoded(&self, key: &PlanKey, kind: &str, encoded: &[u8]) -> bool {
        let Some(path) = self.plan_path(key, kind) else { return false };
        let written = || -> io::Result<()> {
            let mut pending = UnfinishedFile::create(&path)?;
            pending.file.write_all(encoded)?;
            pending.keep()
        };
        let kept = written();
        if let Err(error) = &kept {
            let path = path.display();
            tracing::warn!("plan {path}: {error}; it will be made again at the next start");
        }
        kept.is_ok()
    }

    /// Stores the plan of a complete file. `scanner` was fed all of it; `path` is absolute and
    /// without symbolic links, as the server will see it.
    ///
    /// # Errors
    /// The file cannot be read, differs from the bytes that were fed, or cannot be streamed.
    pub fn keep(&self, path: &Path, file: &File, scanner: Scanner) -> io::Result<()> {
        let key = asset_key(path, file)?;
        let mut plan = scanner.finish(key.bytes, random_identity()).map_err(io::Error::other)?;
        name_codecs(&mut plan, file);
        self.keep_plan(&key, &plan.encode(&key));
        Ok(())
    }

    /// Removes what is stored of a file that was deleted; `path` as in [`keep`](Self::keep).
    pub fn forget(&self, path: &Path) {
        for kind in [PLAN, ELEMENTARY] {
            if let Some(stored) = self.stored_path(path.as_os_str().as_bytes(), kind) {
                // Most files have no such part.
                let _ = std::fs::remove_file(stored);
            }
        }
    }

    fn plan_path(&self, key: &PlanKey, kind: &str) -> Option<PathBuf> {
        self.stored_path(&key.path, kind)
    }

    fn stored_path(&self, path: &[u8], kind: &str) -> Option<PathBuf> {
        let folder = self.folder.as_ref().ok()?;
        Some(folder.join(PLANS).join(format!("{}.{kind}", file_name(path))))
    }
}

/// Largest size of the stored plan of the file with this key: its tables have at most one entry for
/// each packet of 188 bytes, and a few bytes an entry.
fn plan_bytes_max(key: &PlanKey) -> u64 {
    (64 << 10) + key.path.len() as u64 + key.bytes / 4
}

/// Creates the folders and removes leftovers in them.
fn opened(folder: Option<PathBuf>) -> Result<PathBuf, StoreUnavailable> {
    let folder = folder.or_else(default_folder).ok_or(StoreUnavailable::NoFolder)?;
    for part in [PLANS, IMAGES] {
        let part = folder.join(part);
        if let Err(source) = std::fs::create_dir_all(&part) {
            return Err(StoreUnavailable::Folder { folder: part, source });
        }
        remove_unfinished(&part);
        files::remove_of_earlier_releases(&part);
    }
    Ok(folder)
}

/// Name of an asset's file in the cache, without its extension: 128 bits of BLAKE3. The key inside
/// of the file is decisive, so a collision costs a rebuild.
pub fn file_name(path: &[u8]) -> String {
    blake3::hash(path).to_hex()[..NAME_CHARS].to_owned()
}

fn default_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("pagewire"))
}

const NAME_CHARS: usize = 32;
const PLANS: &str = "plans";
/// Endings of the files in it.
const PLAN: &str = "plan";
const ELEMENTARY: &str = "es";
const IMAGES: &str = "images";

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock};

    use super::*;

    #[test]
    fn names_are_the_same_in_every_build() {
        // Known answers of BLAKE3 for "abc" and for the empty input, shortened.
        assert_eq!(file_name(b"abc"), "6437b3ac38465133ffb63b75273a8db5");
        assert_eq!(file_name(b""), "af1349b9f5f9a1a6a0404dea36dcc949");
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
            of(PLANS, &format!("{}.plan", file_name(b"abc"))),
            of(IMAGES, &format!("{}.wire", file_name(b"abc"))),
            of(PLANS, "0123456789abcdef.txt"),
            of(PLANS, "0123456789abcdeg.plan"),
        ];
        for path in old.iter().chain(&kept).chain([&held]) {
            std::fs::write(path, "whole").unwrap();
        }
        let user = File::open(&held).unwrap();
        flock(&user, FlockOperation::NonBlockingLockShared).unwrap();
        PlanStore::open(Some(folder.path().to_owned()));
        assert!(old.iter().all(|path| !path.exists()));
        assert!(kept.iter().all(|path| path.exists()) && held.exists());
        drop(user);
        PlanStore::open(Some(folder.path().to_owned()));
        assert!(!held.exists());
    }

    fn ts_packets(plans: &PlanStore, key: &PlanKey) -> Option<u64> {
        plans.plan(key)?.transport_stream().map(|plan| plan.ts_packets())
    }

    #[test]
    fn a_kept_plan_is_found_by_the_key_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("a.ts");
        // Null packets with two clock references, a second apart.
        let packet = |pcr: Option<u64>| {
            let mut bytes = [0xff; 188];
            bytes[..4].copy_from_slice(&[0x47, 1, 0, 0x10]);
            if let Some(base) = pcr {
                bytes[3..6].copy_from_slice(&[0x20, 183, 0x10]);
                bytes[6..12].copy_from_slice(&(base << 15 | 0x7e00).to_be_bytes()[2..]);
            }
            bytes
        };
        let bytes = [packet(Some(0)), packet(None), packet(Some(90_000)), packet(None)].concat();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let plans = PlanStore::open(Some(folder.path().join("cache")));
        let fed = |bytes: &[u8]| {
            let mut scanner = Scanner::new();
            scanner.feed(bytes);
            scanner
        };
        assert!(plans.keep(&path, &file, fed(&bytes[188..])).is_err(), "not all of it");
        assert!(plans.plan(&asset_key(&path, &file).unwrap()).is_none());
        plans.keep(&path, &file, fed(&bytes)).unwrap();
        let key = asset_key(&path, &file).unwrap();
        assert_eq!(ts_packets(&plans, &key), Some(4));

        // A file that cannot be a plan is neither waited for, followed nor read into memory.
        let kept = plans.plan_path(&key, PLAN).unwrap();
        let pipe = || rustix::fs::mknodat(CWD, &kept, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let endless = || std::os::unix::fs::symlink("/dev/zero", &kept).unwrap();
        let long = || File::create(&kept).unwrap().set_len(1 << 40).unwrap();
        let plants: [&dyn Fn(); 3] = [&pipe, &endless, &long];
        for (count, plant) in plants.iter().enumerate() {
            std::fs::remove_file(&kept).unwrap();
            plant();
            assert!(plans.plan(&key).is_none());
            assert_eq!(plans.invalid_plans(), count as u64 + 1);
            plans.keep(&path, &file, fed(&bytes)).unwrap();
            assert_eq!(ts_packets(&plans, &key), Some(4), "it is made again");
        }
    }
}
