// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reader of a publication's zip archive, which may be hostile.
//!
//! Entries are those of the central directory, and each of its values is checked before use:
//! names, counts, sizes, growth. An entry's data offset is read from its local header when the
//! entry is opened. The data must end before the next entry begins, so no two entries share bytes
//! (the overlap that makes the strongest zip bombs). Costs a `pread` for each 32 KiB of the
//! directory and one for each local header; memory for the names and 64 bytes an entry.
//!
//! Sources: PKWARE APPNOTE 6.3.10 §4.3, §4.4; EPUB 3.3 §4.2 (OCF ZIP Container); D. Fifield, "A
//! better zip bomb", WOOT 2019.
//!
//! Does not repair archives. Does not read archives of several disks, encrypted by zip itself, or
//! compressed by anything but deflate (OCF allows no other).

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rawzip::time::DosDateTime;
use rawzip::{CompressionMethod, ReaderAt, ZipFileHeaderRecord, ZipLocator};
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::fault::BookFault;
use crate::error::{Error, FileFault};
use crate::manifest::Time;
use crate::plural::counted;

/// Most entries of a publication.
pub const ENTRIES_MAX: u64 = 65_536;
/// Most bytes of the central directory: names and the other fields of entries.
pub const DIRECTORY_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of all entries together, inflated.
pub const BYTES_MAX: u64 = 64 << 30;
/// Largest growth factor of an entry over [`GROWTH_EXEMPT_BYTES`] when inflated. Text grows 3 to 20
/// times, a blank bitmap more.
pub const GROWTH_MAX: u64 = 250;
/// Entries up to this size may grow as deflate allows (1032 times).
pub const GROWTH_EXEMPT_BYTES: u64 = 4 << 20;

/// Compression of an entry in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Not compressed.
    Stored,
    /// Compressed by deflate.
    Deflated,
}

impl Method {
    /// Returns the number of the method in zip (APPNOTE §4.4.5) and OCF's `Compression` element.
    pub(super) fn number(self) -> u16 {
        match self {
            Method::Stored => 0,
            Method::Deflated => 8,
        }
    }
}

/// Entry of the central directory. Folders are left out.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Box<str>,
    pub(super) method: Method,
    /// Bytes in the archive.
    pub(super) stored: u64,
    /// Bytes inflated.
    pub(super) bytes: u64,
    /// CRC-32 of the inflated bytes.
    pub(super) crc: u32,
    /// Time and date in the form of MS-DOS, time in the lower half.
    pub(super) modified: u32,
    /// Offset of its local header.
    header: u64,
    /// Offset of the next local header or of the central directory.
    end: u64,
}

/// An open archive.
#[derive(Debug)]
pub(super) struct Archive {
    source: Source,
    pub(super) entries: Vec<Entry>,
}

/// The file, and its state when it was opened.
#[derive(Debug)]
struct Source {
    file: File,
    path: PathBuf,
    stamp: Stamp,
}

/// State that shows a write to the file: size, modification and change time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Time,
    changed: Time,
}

impl ReaderAt for Source {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
}

impl Archive {
    /// Opens the archive at `path`; does not follow a symbolic link.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::empty())
            .map(File::from)
            .map_err(|errno| Error::host("open", path)(errno.into()))?;
        let metadata = file.metadata().map_err(Error::host("fstat", path))?;
        let fault = |fault| Error::file(path, FileFault::Book(fault));
        if !metadata.is_file() {
            return Err(fault(BookFault::NotZip { found: "no regular file".into() }));
        }
        let source = Source { file, path: path.into(), stamp: Stamp::of(&metadata) };
        let entries = read_directory(&source).map_err(fault)?;
        Ok(Self { source, entries })
    }

    pub(super) fn path(&self) -> &Path {
        &self.source.path
    }

    /// Returns the bytes of the whole file.
    pub(super) fn bytes(&self) -> u64 {
        self.source.stamp.bytes
    }

    /// Returns the modification time that the file had when it was opened.
    pub(super) fn modified(&self) -> Time {
        self.source.stamp.modified
    }

    /// Makes an error that names this file.
    pub(super) fn fault(&self, fault: BookFault) -> Error {
        Error::file(&self.source.path, FileFault::Book(fault))
    }

    /// Makes an error for an entry that differs from the directory's record.
    pub(super) fn broken(&self, entry: &Entry, found: impl Into<String>) -> Error {
        self.fault(BookFault::Entry { name: entry.name.to_string(), found: found.into() })
    }

    /// Returns the entry of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| &*entry.name == name)
    }

    /// Fills all of `buffer` from `offset` of the file.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        match self.source.file.read_exact_at(buffer, offset) {
            Ok(()) => Ok(()),
            // The file was longer when the directory was read.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(Error::file(&self.source.path, FileFault::Changed))
            }
            Err(error) => Err(Error::host("pread", &self.source.path)(error)),
        }
    }

    /// Returns the offset of the data of `entry`; its local header must agree with the directory.
    pub(super) fn data_start(&self, entry: &Entry) -> Result<u64, Error> {
        let mut buffer = [0; LOCAL_HEADER_BYTES + NAME_BYTES_MAX];
        let name = entry.name.as_bytes();
        let header = &mut buffer[..LOCAL_HEADER_BYTES + name.len()];
        self.read(header, entry.header)?;
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        if header[..4] != *LOCAL_SIGNATURE {
            return Err(self.broken(entry, "no local header where the directory says"));
        }
        if usize::from(word(26)) != name.len() || header[LOCAL_HEADER_BYTES..] != *name {
            return Err(self.broken(entry, "its local header has another name"));
        }
        if word(8) != entry.method.number() || word(6) & FLAG_ENCRYPTED != 0 {
            return Err(self.broken(entry, "its local header has another method"));
        }
        let start = entry.header + (header.len() as u64) + u64::from(word(28));
        // `header` lies in the file and `stored` was bounded by its size: no overflow.
        if start + entry.stored > entry.end {
            return Err(self.broken(entry, "overlaps what follows it"));
        }
        Ok(start)
    }

    /// Returns an error when the file was changed since it was opened.
    pub(super) fn unchanged(&self) -> Result<(), Error> {
        let path = &self.source.path;
        let metadata = self.source.file.metadata().map_err(Error::host("fstat", path))?;
        if Stamp::of(&metadata) == self.source.stamp {
            Ok(())
        } else {
            Err(Error::file(path, FileFault::Changed))
        }
    }
}

impl Stamp {
    fn of(metadata: &std::fs::Metadata) -> Self {
        let time = |s, ns| Time { s, ns: u32::try_from(ns).unwrap_or_default() };
        Self {
            bytes: metadata.len(),
            modified: time(metadata.mtime(), metadata.mtime_nsec()),
            changed: time(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Reads all entries, in the order of the directory.
fn read_directory(source: &Source) -> Result<Vec<Entry>, BookFault> {
    let not_zip = |error: rawzip::Error| BookFault::NotZip { found: error.to_string() };
    // Long enough for the largest record (APPNOTE has 16-bit lengths), so none is refused.
    let mut buffer = vec![0; DIRECTORY_BUFFER_BYTES];
    let archive = ZipLocator::new()
        .locate_in_reader(source, &mut buffer, source.stamp.bytes)
        .map_err(|(_, error)| not_zip(error))?;
    let limit = |what, found, limit| match found > limit {
        true => Err(BookFault::Limit { what, found, limit }),
        false => Ok(()),
    };
    limit("entries", archive.entries_hint(), ENTRIES_MAX)?;
    let directory = archive.directory_offset();
    let directory_bytes = archive.eocd_offset().saturating_sub(directory);
    limit("bytes of names", directory_bytes, DIRECTORY_BYTES_MAX)?;

    let mut entries = Vec::new();
    let mut bytes = 0_u64;
    let mut seen = 0;
    let mut records = archive.entries(&mut buffer);
    while let Some(record) = records.next_entry().map_err(not_zip)? {
        seen += 1;
        limit("entries", seen, ENTRIES_MAX)?;
        let Some(entry) = read_record(&record, directory)? else { continue };
        bytes = bytes.saturating_add(entry.bytes);
        limit("bytes of all entries", bytes, BYTES_MAX)?;
        entries.push(entry);
    }
    if seen != archive.entries_hint() {
        let found = format!(
            "{seen} {} where the end says {}",
            if seen == 1 { "entry" } else { "entries" },
            archive.entries_hint()
        );
        return Err(BookFault::NotZip { found });
    }
    names_once(&entries)?;
    bound_data(&mut entries, directory)?;
    Ok(entries)
}

/// Reads one entry; `None` for a folder.
fn read_record(
    record: &ZipFileHeaderRecord<'_>,
    directory: u64,
) -> Result<Option<Entry>, BookFault> {
    let path = record.file_path();
    let raw: &[u8] = path.as_ref();
    let shown = || String::from_utf8_lossy(raw).into_owned();
    let name = check_name(raw).map_err(|found| BookFault::Name { name: shown(), found })?;
    let broken = |found: String| BookFault::Entry { name: shown(), found };
    let stored = record.compressed_size_hint();
    let bytes = record.uncompressed_size_hint();
    if name.ends_with('/') {
        return match bytes {
            0 => Ok(None),
            _ => Err(broken(format!("a folder with {}", counted(bytes, "byte")))),
        };
    }
    if record.flags().is_encrypted() {
        return Err(broken("encrypted by zip itself".into()));
    }
    let method = match record.compression_method() {
        CompressionMethod::STORE if stored == bytes => Method::Stored,
        CompressionMethod::STORE => {
            return Err(broken(format!("stored, but {} of {bytes}", counted(stored, "byte"))));
        }
        CompressionMethod::DEFLATE => Method::Deflated,
        other => return Err(broken(format!("compressed by method {}", other.as_u16()))),
    };
    if bytes > GROWTH_EXEMPT_BYTES && bytes / GROWTH_MAX > stored {
        return Err(BookFault::Bomb { name: shown(), stored, bytes });
    }
    let header = record.local_header_offset();
    if header.checked_add(stored).is_none_or(|end| end > directory) {
        return Err(broken("lies outside the archive".into()));
    }
    Ok(Some(Entry {
        name: name.into(),
        method,
        stored,
        bytes,
        crc: record.crc32(),
        modified: packed(&record.last_modified_dos()),
        header,
        end: directory,
    }))
}

/// Packs date and time as zip does (APPNOTE §4.4.6).
fn packed(time: &DosDateTime) -> u32 {
    let date =
        (u32::from(time.year()) - 1980) << 9 | u32::from(time.month()) << 5 | u32::from(time.day());
    let seconds = u32::from(time.second()) / 2;
    date << 16 | u32::from(time.hour()) << 11 | u32::from(time.minute()) << 5 | seconds
}

/// Accepts a relative path of plain components in UTF-8 (OCF 3.3 §4.2.3); else returns the fault.
fn check_name(raw: &[u8]) -> Result<&str, &'static str> {
    let name = std::str::from_utf8(raw).map_err(|_| "no UTF-8")?;
    if name.len() > NAME_BYTES_MAX {
        return Err("longer than 4096 bytes");
    }
    if name.contains('\\') {
        return Err("a backslash");
    }
    if name.chars().any(char::is_control) {
        return Err("a control character");
    }
    if name.starts_with('/') || name.as_bytes().get(1) == Some(&b':') {
        return Err("an absolute path");
    }
    let path = name.strip_suffix('/').unwrap_or(name);
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("an empty component, `.` or `..`");
    }
    Ok(name)
}

fn names_once(entries: &[Entry]) -> Result<(), BookFault> {
    let mut names = HashSet::with_capacity(entries.len());
    match entries.iter().find(|entry| !names.insert(&*entry.name)) {
        Some(entry) => Err(BookFault::Twice { name: entry.name.to_string() }),
        None => Ok(()),
    }
}

/// Sets the offset where each entry must have ended; refuses entries that overlap.
fn bound_data(entries: &mut [Entry], directory: u64) -> Result<(), BookFault> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_unstable_by_key(|&at| entries[at].header);
    let mut end = directory;
    for &at in order.iter().rev() {
        let entry = &mut entries[at];
        let bytes = (LOCAL_HEADER_BYTES + entry.name.len()) as u64 + entry.stored;
        if entry.header + bytes > end {
            let (name, found) = (entry.name.to_string(), "overlaps what follows it".into());
            return Err(BookFault::Entry { name, found });
        }
        entry.end = end;
        end = entry.header;
    }
    Ok(())
}

const LOCAL_SIGNATURE: &[u8; 4] = b"PK\x03\x04";
const LOCAL_HEADER_BYTES: usize = 30;
const FLAG_ENCRYPTED: u16 = 1;
/// OCF bounds a path at 65535 bytes; Linux accepts none longer than this (PATH_MAX).
const NAME_BYTES_MAX: usize = 4096;
const DIRECTORY_BUFFER_BYTES: usize = 256 * 1024;
