// SPDX-License-Identifier: MIT OR Apache-2.0
//! An opened file with all that an answer needs of it.
//!
//! A body is read by one call without waiting, and by a thread where it is not in memory. For a
//! file that is sent from its descriptor, the parts found in memory are remembered, so that the
//! check (two system calls a mebibyte) is made once in [`FRESH_S`] seconds, however many clients
//! download it.
//!
//! Sources: readv(2) (`RWF_NOWAIT`), statx(2).

use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use media::ReadAt;
use parking_lot::Mutex;
use paths::MappedFile;
use rustix::fs::fstatfs;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use tokio::sync::OwnedSemaphorePermit;
use wire::http::{Entity, content_type, file_etag};

use super::HELD_BYTES_MAX;

/// An opened file.
pub(crate) struct OpenFile {
    pub(crate) content: FileContent,
    pub(super) version: FileVersion,
    bytes: u64,
    modified: SystemTime,
    etag: String,
    content_type: &'static str,
    residence: Residence,
    /// True where fewer bytes are allocated than it has.
    is_sparse: bool,
    /// True for a file of a file system in memory; set at the first look.
    in_memory_file_system: OnceLock<bool>,
    /// Identity of its content in addresses; set at the first request for it.
    identity: OnceLock<String>,
    /// Its share of a limit.
    share: Option<OwnedSemaphorePermit>,
}

/// Bytes of an opened file.
pub(crate) enum FileContent {
    /// All of them; the file is closed.
    Held(Box<[u8]>),
    /// The file.
    Open(MappedFile),
}

/// Waits for the disk where the file is not held: for threads that may block.
impl ReadAt for OpenFile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.content {
            FileContent::Held(held) => held[..].read_exact_at(bytes, offset),
            FileContent::Open(media) => media.file().read_exact_at(bytes, offset),
        }
    }
}

/// Identity and content of a file, as far as its metadata show.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    pub(super) fn of(metadata: &Metadata) -> FileVersion {
        FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl OpenFile {
    /// Makes one from an open file, or from its `body`; the file is closed then.
    pub(super) fn new(
        name: &str,
        file: File,
        metadata: &Metadata,
        body: Option<Box<[u8]>>,
    ) -> OpenFile {
        let bytes = body.as_ref().map_or(metadata.len(), |body| body.len() as u64);
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let content = match body {
            Some(body) => FileContent::Held(body),
            None => FileContent::Open(MappedFile::from_regular(file, name, bytes)),
        };
        OpenFile {
            content,
            version: FileVersion::of(metadata),
            bytes,
            modified,
            etag: file_etag(bytes, modified, metadata.ino()),
            content_type: content_type(name),
            residence: Residence::default(),
            is_sparse: metadata.blocks().saturating_mul(ALLOCATION_BYTES) < bytes,
            in_memory_file_system: OnceLock::new(),
            identity: OnceLock::new(),
            share: None,
        }
    }

    /// Adds a share of a limit, which is released when the file is closed.
    pub(crate) fn holding(self, share: OwnedSemaphorePermit) -> OpenFile {
        OpenFile { share: Some(share), ..self }
    }

    /// True for a file that was made for answers, and holds a share of a limit.
    pub(crate) fn is_made(&self) -> bool {
        self.share.is_some()
    }

    /// True when an open file still has the metadata with which it was opened; also of a held body.
    pub(crate) fn is_unchanged(&self) -> bool {
        match &self.content {
            FileContent::Held(_) => true,
            FileContent::Open(media) => media
                .file()
                .metadata()
                .is_ok_and(|metadata| FileVersion::of(&metadata) == self.version),
        }
    }

    /// Makes one from a file that is not one of the library.
    ///
    /// # Errors
    /// fstat(2) fails.
    pub(crate) fn made(name: &str, file: File) -> io::Result<OpenFile> {
        let metadata = file.metadata()?;
        Ok(OpenFile::new(name, file, &metadata, None))
    }

    /// Returns it as answers describe it.
    pub(crate) fn entity(&self) -> Entity<'_> {
        Entity {
            bytes: self.bytes,
            modified: self.modified,
            etag: &self.etag,
            content_type: self.content_type,
        }
    }

    /// Returns the identity of its content in addresses, which a server makes in one way.
    pub(crate) fn identity(&self, make: impl FnOnce(&Entity<'_>) -> String) -> &str {
        self.identity.get_or_init(|| make(&self.entity()))
    }

    /// Returns a range of a held body.
    pub(crate) fn held(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        let FileContent::Held(body) = &self.content else { return None };
        let (offset, bytes) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
        body.get(offset..offset.checked_add(bytes)?)
    }

    pub(super) fn held_bytes(&self) -> usize {
        match &self.content {
            FileContent::Held(body) => body.len(),
            FileContent::Open(_) => 0,
        }
    }

    pub(super) fn descriptors(&self) -> usize {
        usize::from(matches!(self.content, FileContent::Open(_)))
    }

    /// True when the part from `offset` on, of at most [`PART_BYTES`], is in memory or was lately.
    pub(crate) fn is_in_memory(&self, media: &MappedFile, offset: u64, bytes: u64) -> bool {
        let part = offset / PART_BYTES;
        let now_s = clock_s();
        if self.is_in_memory_file_system(media) || self.residence.is_fresh(part, now_s) {
            return true;
        }
        // Checks the whole part, so that clients of its other bytes need no check.
        let from = part * PART_BYTES;
        let whole = from..(from + PART_BYTES).min(self.bytes);
        if media.is_in_cache(whole.clone()) {
            self.residence.note(part, now_s, self.bytes.div_ceil(PART_BYTES));
            return true;
        }
        let asked = offset..offset + bytes;
        asked != whole && media.is_in_cache(asked)
    }

    /// True for a file with holes in a file system in memory. They are allocated for good, or
    /// refused where that is full, when they are read through a map.
    pub(crate) fn has_holes_in_memory(&self, media: &MappedFile) -> bool {
        self.is_sparse && self.is_in_memory_file_system(media)
    }

    /// True for a file of a file system in memory; one call at the first look.
    fn is_in_memory_file_system(&self, media: &MappedFile) -> bool {
        *self.in_memory_file_system.get_or_init(|| is_in_memory_file_system(media.file()))
    }
}

/// Times at which parts of a file were found in memory: 4 bytes a mebibyte.
#[derive(Default)]
struct Residence(Mutex<Vec<u32>>);

impl Residence {
    fn is_fresh(&self, part: u64, now_s: u32) -> bool {
        let parts = self.0.lock();
        let seen = usize::try_from(part).ok().and_then(|part| parts.get(part));
        seen.is_some_and(|&seen| seen != 0 && now_s.wrapping_sub(seen) < FRESH_S)
    }

    fn note(&self, part: u64, now_s: u32, of: u64) {
        let mut parts = self.0.lock();
        let (Ok(part), Ok(of)) = (usize::try_from(part), usize::try_from(of)) else { return };
        if of > PARTS_MAX {
            return;
        }
        parts.resize(of, 0);
        parts[part] = now_s;
    }
}

/// Seconds since the first call, from 1 on.
fn clock_s() -> u32 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_secs() as u32 + 1
}

/// Reads a body of up to [`HELD_BYTES_MAX`] if all of it is in memory and has that length.
pub(super) fn body_in_memory(file: &File, bytes: u64, scratch: &mut [u8]) -> Option<Box<[u8]>> {
    let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes as u64 <= HELD_BYTES_MAX)?;
    // One byte more: a file that has grown has another length.
    let wanted = scratch.get_mut(..bytes + 1)?;
    let read = preadv2(file, &mut [IoSliceMut::new(wanted)], 0, ReadWriteFlags::NOWAIT);
    match read {
        Ok(read) if read == bytes => Some(wanted[..bytes].into()),
        Err(Errno::OPNOTSUPP) if is_in_memory_file_system(file) => {
            let read = pread(file, &mut *wanted, 0).ok()?;
            (read == bytes).then(|| wanted[..bytes].into())
        }
        Ok(_) | Err(_) => None,
    }
}

/// True for a file of tmpfs or ramfs, which lack `RWF_NOWAIT` and never wait for a disk (except the
/// swap).
fn is_in_memory_file_system(file: &File) -> bool {
    fstatfs(file).is_ok_and(|found| matches!(found.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC))
}

/// Reads a body of up to [`HELD_BYTES_MAX`] from the disk with its metadata, which are the same
/// before and after the read, and has their length. No body of a file that has become longer, or
/// that changes all the time: it is sent from its descriptor.
pub(super) fn body_from_disk(file: &File) -> io::Result<(Option<Box<[u8]>>, Metadata)> {
    body_by(file, |bytes| {
        let mut body = Vec::new();
        // One byte more: a file that has grown has another length.
        (&mut &*file).seek(SeekFrom::Start(0))?;
        file.take(bytes + 1).read_to_end(&mut body)?;
        Ok(body)
    })
}

/// Does the same; `read` reads this many bytes and one more, if they exist.
fn body_by(
    file: &File,
    mut read: impl FnMut(u64) -> io::Result<Vec<u8>>,
) -> io::Result<(Option<Box<[u8]>>, Metadata)> {
    let mut before = file.metadata()?;
    for _ in 0..TRIES_MAX {
        if before.len() > HELD_BYTES_MAX {
            break;
        }
        let body = read(before.len())?;
        let after = file.metadata()?;
        let is_same = FileVersion::of(&before) == FileVersion::of(&after);
        if is_same && body.len() as u64 == before.len() {
            return Ok((Some(body.into()), before));
        }
        before = after;
    }
    Ok((None, before))
}

/// Bytes of the unit in which stat(2) counts what is allocated.
const ALLOCATION_BYTES: u64 = 512;
/// Types of file systems (statfs(2)).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
/// Reads of a file that changes all the time.
const TRIES_MAX: u32 = 3;
/// Length of a part whose residence is remembered, and of a step of a download.
pub(crate) const PART_BYTES: u64 = 1 << 20;
/// The kernel does not reclaim pages so soon that were sent a moment ago.
const FRESH_S: u32 = 2;
/// A tebibyte; of a longer file nothing is remembered.
const PARTS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// A file of `bytes`, which is changed before each of its reads; returns the length of its body
    /// and of its metadata.
    fn body_of(bytes: u64, mut change: impl FnMut(&File, u32)) -> (Option<u64>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, vec![7; bytes as usize]).unwrap();
        let (file, writer) = (File::open(&path).unwrap(), File::options().write(true).open(&path));
        let (writer, mut reads) = (writer.unwrap(), 0);
        let (body, metadata) = body_by(&file, |bytes| {
            change(&writer, reads);
            reads += 1;
            let mut body = vec![0; bytes as usize + 1];
            let read = file.read_at(&mut body, 0)?;
            body.truncate(read);
            Ok(body)
        })
        .unwrap();
        (body.map(|body| body.len() as u64), metadata.len())
    }

    #[test]
    fn a_body_is_never_a_part_of_its_file() {
        let grow = |to: u64| {
            move |file: &File, reads: u32| {
                if reads == 0 {
                    file.set_len(to).unwrap();
                }
            }
        };
        let most = HELD_BYTES_MAX;
        assert_eq!(body_of(100, |_, _| {}), (Some(100), 100));
        assert_eq!(body_of(100, grow(200)), (Some(200), 200), "it is read anew");
        assert_eq!(body_of(100, grow(50)), (Some(50), 50));
        assert_eq!(body_of(100, grow(most)), (Some(most), most));
        assert_eq!(body_of(100, grow(most + 1)), (None, most + 1), "sent from its descriptor");
        assert_eq!(body_of(most, grow(3 * most)), (None, 3 * most));
        let always = |file: &File, reads: u32| file.set_len(200 + u64::from(reads)).unwrap();
        assert_eq!(body_of(100, always), (None, 200 + u64::from(TRIES_MAX) - 1));
    }

    #[test]
    fn body_from_the_disk_is_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for bytes in [0, 1, HELD_BYTES_MAX, HELD_BYTES_MAX + 1] {
            fs::write(&path, vec![7; bytes as usize]).unwrap();
            let (body, metadata) = body_from_disk(&File::open(&path).unwrap()).unwrap();
            assert_eq!(metadata.len(), bytes);
            let expected = (bytes <= HELD_BYTES_MAX).then(|| vec![7; bytes as usize]);
            assert!(body.as_deref() == expected.as_deref(), "{bytes} bytes");
        }
    }
}
