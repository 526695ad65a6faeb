// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache folder: plans and wire images, kept beside nothing they describe.
//!
//! A plan is read whole, checked against the key of the open file and against itself, and otherwise
//! made again: nothing in the cache is trusted, so it may be deleted or damaged at any time. Files
//! are written under another name, synced and renamed, so a reader sees a whole file or none. Costs
//! one file read per asset and start; a plan takes 16 bytes per PCR and 8 per entry point.
//!
//! Sources: XDG Base Directory Specification 0.8, rename(2).
//! Does not do: wire images' contents and limits ([`crate::image`]).

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use media::plan::{Key, Plan};

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
                tracing::warn!("cache {folder}: {error}; plans are not kept; write --cache DIR");
                return Cache { folder: None };
            }
        }
        Cache { folder: Some(folder) }
    }

    /// Where wire images go.
    pub(crate) fn images(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(IMAGES))
    }

    /// The plan of the file with this key, if the cache has one that holds.
    pub(crate) fn plan(&self, key: &Key) -> Option<Plan> {
        let path = self.plan_path(key)?;
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("plan {}: {error}; made again", path.display());
                return None;
            }
        };
        match Plan::decode(&bytes, key) {
            Ok(plan) => Some(plan),
            Err(fault) => {
                tracing::info!("plan {}: {fault}; made again", path.display());
                None
            }
        }
    }

    /// Keeps a plan. A full disk is a warning.
    pub(crate) fn keep_plan(&self, key: &Key, plan: &Plan) {
        let Some(path) = self.plan_path(key) else { return };
        let mut written = Pending::create(&path);
        let kept = written.as_mut().map_err(|e| io::Error::from(e.kind())).and_then(|pending| {
            pending.file.write_all(&plan.encode(key))?;
            pending.keep()
        });
        if let Err(error) = kept {
            tracing::warn!(
                "plan {}: {error}; it will be made again at the next start",
                path.display()
            );
        }
    }

    fn plan_path(&self, key: &Key) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.join(PLANS).join(format!("{:016x}.plan", hash(&key.path))))
    }
}

/// A file being written beside its final name; removed when dropped before [`Pending::keep`].
pub(crate) struct Pending {
    pub(crate) file: File,
    temporary: PathBuf,
    path: PathBuf,
    kept: bool,
}

impl Pending {
    pub(crate) fn create(path: &Path) -> io::Result<Pending> {
        let temporary = path.with_extension(format!("{}.tmp", crate::session::random_id()));
        let file = File::options().read(true).write(true).create_new(true).open(&temporary)?;
        Ok(Pending { file, temporary, path: path.to_owned(), kept: false })
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

/// Removes what a killed server left half-written. Files of a running one are younger than this.
pub(crate) fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let temporary = path.extension().is_some_and(|extension| extension == "tmp");
        let age =
            entry.metadata().and_then(|m| m.modified()).map(|m| m.elapsed().unwrap_or_default());
        if temporary && age.is_ok_and(|age| age > ABANDONED) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// A name for the file in the cache; the key inside is what is trusted, so a collision costs a
/// rebuild.
pub(crate) fn hash(path: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

fn default_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("pagewire"))
}

const PLANS: &str = "plans";
const IMAGES: &str = "images";
const ABANDONED: std::time::Duration = std::time::Duration::from_secs(3600);
