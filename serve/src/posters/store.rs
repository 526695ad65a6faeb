// SPDX-License-Identifier: MIT OR Apache-2.0
//! Posters and thumbnails in the cache folder, beside plans and wire images.
//!
//! ```text
//! magic      8
//! key           length (4) and bytes of the path; size (8), time (16) and inode (8) of the file
//! verdict    1  0 pictures, 1 a reason why there are none
//! parts         number (4), then length (4) and bytes of each: list, then pictures; or the reason
//! CRC-32     4  of everything before it
//! ```
//! All numbers are little endian. A file is used only when all of it is valid and the key is that
//! of the asset as it is now; a damaged or planted one is made again. The least recently used files
//! are removed when all of them exceed the limit. A verdict that there are no pictures holds for a
//! day: another ffmpeg may decode more.
//!
//! Costs one file read for pictures that are not in memory.
//!
//! Sources: the rules of [`media::store`], which this folder shares.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use media::plan::PlanKey;
use media::store::{UnfinishedFile, file_name, open_regular, remove_unfinished};
use parking_lot::Mutex;

use super::{PictureKind, PictureSet, Verdict};

/// Posters and thumbnails on the disk.
pub(super) struct PictureStore {
    folder: Option<PathBuf>,
    bytes_max: u64,
    /// Bytes of all files, as far as known; the lock is held while files are removed.
    bytes: Mutex<u64>,
}

impl PictureStore {
    /// Opens the store below the folder of the cache; without one nothing is kept.
    pub(super) fn open(cache: Option<&Path>, bytes_max: u64) -> PictureStore {
        let folder = cache.map(|cache| cache.join(FOLDER)).filter(|_| bytes_max > 0);
        let folder = folder.filter(|folder| match std::fs::create_dir_all(folder) {
            Ok(()) => true,
            Err(error) => {
                let folder = folder.display();
                tracing::warn!("cache {folder}: {error}; posters and thumbnails are not kept");
                false
            }
        });
        let bytes = folder.as_deref().map_or(0, |folder| {
            remove_unfinished(folder);
            listed(folder).iter().map(|file| file.bytes).sum()
        });
        PictureStore { folder, bytes_max, bytes: Mutex::new(bytes) }
    }

    /// Returns the stored verdict for an asset, and marks it as just used.
    pub(super) fn find(&self, key: &PlanKey, kind: PictureKind) -> Option<Verdict> {
        let path = self.path(key, kind)?;
        let file = open_regular(&path).ok()?;
        let modified = file.metadata().and_then(|metadata| metadata.modified()).ok()?;
        let mut bytes = Vec::new();
        (&file).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
        let Some(verdict) = decode(&bytes, key) else {
            tracing::info!("{}: damaged or of another file; made again", path.display());
            return None;
        };
        if verdict.is_err() {
            let age = SystemTime::now().duration_since(modified).unwrap_or_default();
            return Some(verdict).filter(|_| age < REFUSED_FOR);
        }
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!("{}: {error}; it may be evicted early", path.display());
        }
        Some(verdict)
    }

    /// Stores the verdict for an asset.
    pub(super) fn keep(&self, key: &PlanKey, kind: PictureKind, verdict: &Verdict) {
        let Some(path) = self.path(key, kind) else { return };
        let encoded = encode(key, verdict);
        let written = || -> io::Result<()> {
            self.make_room(encoded.len() as u64)?;
            let mut pending = UnfinishedFile::create(&path)?;
            pending.file.write_all(&encoded)?;
            pending.keep()
        };
        if let Err(error) = written() {
            tracing::warn!("{}: {error}; it will be made again", path.display());
        }
    }

    fn path(&self, key: &PlanKey, kind: PictureKind) -> Option<PathBuf> {
        let ending = match kind {
            PictureKind::Poster => "poster",
            PictureKind::Thumbnails => "thumbs",
        };
        Some(self.folder.as_ref()?.join(format!("{}.{ending}", file_name(&key.path))))
    }

    /// Removes the files that were used least lately where `bytes` more do not fit.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        if bytes > self.bytes_max {
            return Err(io::Error::other(format!("larger than the cache of {}", self.bytes_max)));
        }
        let mut held = self.bytes.lock();
        if *held + bytes > self.bytes_max {
            // Counted anew: a replaced file was counted twice, and others may share the cache.
            let mut files = listed(folder);
            files.sort_by_key(|file| file.used);
            *held = files.iter().map(|file| file.bytes).sum();
            let goal = (self.bytes_max - bytes).min(self.bytes_max / 10 * 9);
            for file in files {
                if *held <= goal {
                    break;
                }
                if std::fs::remove_file(&file.path).is_ok() {
                    *held -= file.bytes;
                }
            }
        }
        let free = rustix::fs::statvfs(folder)?;
        if free.f_bavail.saturating_mul(free.f_frsize) < FREE_BYTES_MIN {
            return Err(io::Error::other("less than 256 MiB of the disk are free"));
        }
        *held += bytes;
        Ok(())
    }
}

struct Listed {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// The files of this store, regardless of their content.
fn listed(folder: &Path) -> Vec<Listed> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_own = |path: &Path| {
        path.extension().is_some_and(|extension| extension == "poster" || extension == "thumbs")
    };
    let own = entries.flatten().filter(|entry| is_own(&entry.path()));
    // For a link its own size, not that of its target.
    let listed = own.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Some(Listed { path: entry.path(), bytes: metadata.len(), used })
    });
    listed.collect()
}

fn encode(key: &PlanKey, verdict: &Verdict) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let part = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend((bytes.len() as u32).to_le_bytes());
        out.extend(bytes);
    };
    part(&mut out, &key.path);
    out.extend(key.bytes.to_le_bytes());
    out.extend(key.modified_ns.to_le_bytes());
    out.extend(key.inode.to_le_bytes());
    match verdict {
        Ok(set) => {
            out.push(0);
            out.extend((set.pictures.len() as u32 + 1).to_le_bytes());
            part(&mut out, set.list.as_bytes());
            set.pictures.iter().for_each(|picture| part(&mut out, picture));
        }
        Err(reason) => {
            out.push(1);
            out.extend(1_u32.to_le_bytes());
            part(&mut out, reason.as_bytes());
        }
    }
    out.extend(crc32fast::hash(&out).to_le_bytes());
    out
}

fn decode(bytes: &[u8], key: &PlanKey) -> Option<Verdict> {
    let (body, crc) = bytes.split_last_chunk()?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let rest = &mut body.strip_prefix(MAGIC)?;
    let is_same = part(rest)? == &key.path[..]
        && take(rest).map(u64::from_le_bytes)? == key.bytes
        && take(rest).map(i128::from_le_bytes)? == key.modified_ns
        && take(rest).map(u64::from_le_bytes)? == key.inode;
    if !is_same {
        return None;
    }
    let [is_refused] = take(rest)?;
    let parts = take(rest).map(u32::from_le_bytes)?;
    let first = String::from_utf8(part(rest)?.to_vec()).ok()?;
    let mut pictures = Vec::new();
    for _ in 1..parts {
        pictures.push(part(rest)?.to_vec());
    }
    match (rest.is_empty(), is_refused) {
        (true, 0) => Some(Ok(PictureSet { list: first, pictures }.into())),
        (true, 1) => Some(Err(first)),
        _ => None,
    }
}

fn take<const BYTES: usize>(rest: &mut &[u8]) -> Option<[u8; BYTES]> {
    let (field, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*field)
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bytes = take(rest).map(u32::from_le_bytes)?;
    let (part, behind) = rest.split_at_checked(bytes as usize)?;
    *rest = behind;
    Some(part)
}

const FOLDER: &str = "posters";
/// To be raised with every change of the pictures.
const MAGIC: &[u8; 8] = b"PWPICT01";
/// Beyond sheets of 400 thumbnails.
const FILE_BYTES_MAX: u64 = 32 << 20;
const FREE_BYTES_MIN: u64 = 256 << 20;
const REFUSED_FOR: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> PlanKey {
        PlanKey { path: path.into(), bytes: 7, modified_ns: -1, inode: 3 }
    }

    fn set(bytes: usize) -> Verdict {
        Ok(PictureSet { list: "WEBVTT\n".to_owned(), pictures: vec![vec![9; bytes], vec![]] }
            .into())
    }

    #[test]
    fn pictures_and_reasons_come_back_for_the_same_content_alone() {
        for verdict in [set(300), Err("no key frame".to_owned())] {
            let bytes = encode(&key("a"), &verdict);
            assert_eq!(decode(&bytes, &key("a")), Some(verdict));
            assert_eq!(decode(&bytes, &key("b")), None);
            assert_eq!(decode(&bytes, &PlanKey { inode: 4, ..key("a") }), None);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert_eq!(decode(&damaged, &key("a")), None, "byte {at}");
                assert_eq!(decode(&bytes[..at], &key("a")), None, "cut at {at}");
            }
        }
    }

    #[test]
    fn store_keeps_what_was_used_last_within_its_bytes() {
        let cache = tempfile::tempdir().unwrap();
        let store = PictureStore::open(Some(cache.path()), 5000);
        let kept = |name: &str| store.find(&key(name), PictureKind::Poster).is_some();
        for name in ["a", "b", "c"] {
            store.keep(&key(name), PictureKind::Poster, &set(1400));
            let file = store.path(&key(name), PictureKind::Poster).unwrap();
            let hours = u64::from(name.as_bytes()[0] - b'a');
            let used = SystemTime::UNIX_EPOCH + Duration::from_secs(3600 * hours);
            std::fs::File::options().write(true).open(file).unwrap().set_modified(used).unwrap();
        }
        assert!(kept("a"), "now the one used last");
        store.keep(&key("d"), PictureKind::Thumbnails, &set(1400));
        assert!(kept("a") && !kept("b") && kept("c"));
        store.keep(&key("e"), PictureKind::Poster, &set(5000));
        assert!(!kept("e") && kept("a"), "larger than the cache: nothing goes for it");
    }

    #[test]
    fn planted_files_are_neither_followed_nor_waited_for() {
        let cache = tempfile::tempdir().unwrap();
        let store = PictureStore::open(Some(cache.path()), 1 << 20);
        let path = store.path(&key("a"), PictureKind::Poster).unwrap();
        let victim = cache.path().join("victim");
        std::fs::write(&victim, encode(&key("a"), &set(10))).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert_eq!(store.find(&key("a"), PictureKind::Poster), None);
        store.keep(&key("a"), PictureKind::Poster, &set(20));
        assert_eq!(store.find(&key("a"), PictureKind::Poster), Some(set(20)));
        assert_eq!(std::fs::read(&victim).unwrap(), encode(&key("a"), &set(10)));
        std::fs::remove_file(&path).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        assert_eq!(store.find(&key("a"), PictureKind::Poster), None);
    }

    #[test]
    fn verdict_without_pictures_holds_for_a_day() {
        let cache = tempfile::tempdir().unwrap();
        let store = PictureStore::open(Some(cache.path()), 1 << 20);
        let refused: Verdict = Err("no key frame".to_owned());
        store.keep(&key("a"), PictureKind::Poster, &refused);
        assert_eq!(store.find(&key("a"), PictureKind::Poster), Some(refused));
        let file = store.path(&key("a"), PictureKind::Poster).unwrap();
        let long_ago = SystemTime::now() - 2 * REFUSED_FOR;
        std::fs::File::options().write(true).open(file).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(store.find(&key("a"), PictureKind::Poster), None);
    }
}
