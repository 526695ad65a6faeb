// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of sealed files in `TARGET/.pagewire-seal`, an append-only journal of lines.
//!
//! The first line records how the folder was sealed. Each file has a line after it, written before
//! the file is renamed to its final name. So a run can resume after a kill at any moment: a file
//! that has a line and exists is done. Each line has a check under the sealing key, which reveals
//! torn lines and lines of another writer. The hash of a file's content is keyed as well: a plain
//! hash would reveal to a reader of the ciphertext that a known file is in it.
//!
//! Only synced lines are sure to survive a power loss: the lines of a run without
//! [`ManifestLine::Synced`] at its end are trusted only until the machine starts again
//! ([`Manifest::is_done`]).
//!
//! Costs about 190 bytes a file; many lines go out in one write. Reading keeps a record of each
//! file in memory.
//!
//! Sources: the BLAKE3 paper §2.2 (`keyed_hash`); proc(5) (`sys/kernel/random/boot_id`); flock(2).
//! Does not decide what to seal (`folder`) and does not read sources.

mod damage;
mod format;
mod journal;
mod line;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};

use rustix::fs::OFlags;

use crate::dir_handle::DirHandle;
use crate::error::{Error, FileFault};
use crate::key::passphrase::Stretch;
use crate::key::{self, Purpose, Secret};
use crate::trust;
pub(crate) use crate::trust::Writer;

pub use damage::ManifestDamage;
use format::FILE;
pub use format::{BYTES_MAX, LINE_BYTES_MAX, NAME, VERSION};
pub use journal::Journal;
pub use line::{ManifestLine, RunRecord, checked_line};

/// First line of the journal: how the folder was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestHeader {
    /// Name of the form, as in `--form`.
    pub form: String,
    /// The IV of all files when it was given as an option and is not stored in each file.
    pub iv: Option<[u8; 16]>,
    /// Parameters that derive the key from a passphrase, when there was one.
    pub stretch: Option<Stretch>,
    /// Random salt of `key_check`.
    pub salt: [u8; 16],
    /// Check that reveals a wrong key ([`Secret::check`]).
    pub key_check: [u8; 32],
}

impl ManifestHeader {
    /// Makes the header of a new folder.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn new(
        form: &str,
        iv: Option<[u8; 16]>,
        stretch: Option<Stretch>,
        secret: &Secret,
    ) -> Result<Self, Error> {
        let mut salt = [0; 16];
        key::random(&mut salt)?;
        let key_check = secret.check(&salt);
        Ok(Self { form: form.to_owned(), iv, stretch, salt, key_check })
    }

    /// Returns true when the folder was sealed with this key.
    pub fn is_sealed_with(&self, secret: &Secret) -> bool {
        secret.matches(&self.salt, &self.key_check)
    }
}

/// Modification time of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970; negative before.
    pub s: i64,
    /// Nanoseconds after `s`.
    pub ns: u32,
}

/// Record of a sealed file. Its path is the key of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestRecord {
    /// Bytes of the source.
    pub source_bytes: u64,
    /// Modification time of the source.
    pub modified: Time,
    /// Bytes of the sealed file.
    pub sealed_bytes: u64,
    /// BLAKE3 of the source under the key for [`Purpose::Content`].
    pub content: [u8; 32],
}

/// Content of a whole journal.
#[derive(Debug)]
pub struct Manifest {
    /// Header: how the folder was sealed.
    pub header: ManifestHeader,
    /// The last record of each path, relative to the folder.
    pub records: HashMap<Box<OsStr>, KeptRecord>,
    /// Number of damaged lines after the header; their files count as not sealed.
    pub damaged: u64,
    /// Offset of the end of the last good line; the next run cuts off a torn line after it.
    pub good_bytes: u64,
}

/// A record, and a flag that its sealed file cannot have been lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptRecord {
    /// The record of the last line for this path.
    pub record: ManifestRecord,
    /// True when the machine has not started again since the run, or the file was synced.
    pub is_believed: bool,
}

impl Manifest {
    /// Returns the record when the source is unchanged since it was sealed and its target cannot
    /// have been lost.
    pub fn is_done(
        &self,
        path: &OsStr,
        source_bytes: u64,
        modified: Time,
    ) -> Option<&ManifestRecord> {
        let kept = self.records.get(path).filter(|kept| kept.is_believed)?;
        let record = &kept.record;
        (record.source_bytes == source_bytes && record.modified == modified).then_some(record)
    }
}

/// Reads the header of a sealed folder without testing its check, as the parameters in it are
/// needed to derive the key. Returns `None` when the folder has no journal, or a run was killed
/// before the header was whole. The maker of the folder may be another user, so any regular file of
/// limited length is read, whatever its owner.
///
/// # Errors
/// The journal cannot be read, or its first line is no header.
pub fn header(folder: &DirHandle) -> Result<Option<ManifestHeader>, Error> {
    header_by(folder, Writer::Anybody)
}

/// Reads the header as [`header`] does; with [`Writer::User`] the file must be this user's.
pub(crate) fn header_by(
    folder: &DirHandle,
    writer: Writer,
) -> Result<Option<ManifestHeader>, Error> {
    match trust::open(folder, FILE, OFlags::RDONLY, writer, BYTES_MAX)? {
        Some(file) => header_from(&file, folder),
        None => Ok(None),
    }
}

fn header_from(file: &File, folder: &DirHandle) -> Result<Option<ManifestHeader>, Error> {
    let path = folder.shown(FILE);
    let damaged = |damage| Error::file(&path, FileFault::Manifest(damage));
    let mut reader = BufReader::new(file.take(LINE_BYTES_MAX as u64));
    let mut line = Vec::new();
    match next_line(&mut reader, &mut line).map_err(Error::host("read", &path))? {
        Next::Line(_) => parse_header(&line).map(Some).map_err(damaged),
        Next::End if line::is_torn_header(&line) => Ok(None),
        Next::End => Err(damaged(ManifestDamage::Header)),
    }
}

/// Reads the whole journal of a sealed folder.
///
/// # Errors
/// Errors of [`header`]; the key is another ([`Secret::mismatch`]).
pub fn read(folder: &DirHandle, secret: &Secret) -> Result<Option<Manifest>, Error> {
    match trust::open(folder, FILE, OFlags::RDONLY, Writer::Anybody, BYTES_MAX)? {
        Some(file) => read_from(&file, folder, secret),
        None => Ok(None),
    }
}

/// Reads a journal that is open and at its beginning.
fn read_from(
    mut file: &File,
    folder: &DirHandle,
    secret: &Secret,
) -> Result<Option<Manifest>, Error> {
    let path = folder.shown(FILE);
    let Some(header) = header_from(file, folder)? else { return Ok(None) };
    if !header.is_sealed_with(secret) {
        return Err(secret.mismatch(&folder.path().display().to_string()));
    }
    file.rewind().map_err(Error::host("lseek", &path))?;
    let boot = boot_id();
    // The file may grow during the reading.
    let reader = BufReader::with_capacity(64 * 1024, file.take(BYTES_MAX));
    parse(reader, &secret.derive(Purpose::Line), &boot)
        .map_err(Error::host("read", &path))?
        .map(Some)
        .map_err(|damage| Error::file(&path, FileFault::Manifest(damage)))
}

/// Parses a header's line without testing its check, as the key is not known yet.
///
/// # Errors
/// The line is no header.
pub fn parse_header(line: &[u8]) -> Result<ManifestHeader, ManifestDamage> {
    match line::unchecked(line) {
        Some(ManifestLine::Header(version, _)) if version != VERSION => {
            Err(ManifestDamage::Version(version))
        }
        Some(ManifestLine::Header(_, header)) => Ok(header),
        _ => Err(ManifestDamage::Header),
    }
}

/// Parses all lines of untrusted bytes; memory is bounded except for one record a line.
///
/// # Errors
/// The outer error is the reader's; the inner one is the header's.
pub fn parse(
    mut reader: impl BufRead,
    line_key: &[u8; 32],
    boot: &str,
) -> std::io::Result<Result<Manifest, ManifestDamage>> {
    let mut bytes = Vec::new();
    next_line(&mut reader, &mut bytes)?;
    let header = match parse_header(&bytes) {
        Ok(header) if line::checked(&bytes, line_key).is_some() => header,
        Ok(_) => return Ok(Err(ManifestDamage::Changed)),
        Err(damage) => return Ok(Err(damage)),
    };
    let mut offset = bytes.len() as u64 + 1;
    let mut manifest = Manifest { header, records: HashMap::new(), damaged: 0, good_bytes: offset };
    let mut lasts = false;
    let mut damaged = 0;
    loop {
        let next = next_line(&mut reader, &mut bytes)?;
        let Next::Line(line_bytes) = next else { break };
        offset += line_bytes;
        match line::checked(&bytes, line_key) {
            Some(ManifestLine::Run(run)) => lasts = run.each || run.boot == boot,
            Some(ManifestLine::File(path, record)) => {
                let kept = KeptRecord { record, is_believed: lasts };
                manifest.records.insert(path.into_boxed_os_str(), kept);
            }
            Some(ManifestLine::Undone(path)) => drop(manifest.records.remove(path.as_os_str())),
            Some(ManifestLine::Synced) => {
                manifest.records.values_mut().for_each(|kept| kept.is_believed = true);
            }
            Some(ManifestLine::Header(..)) | None => {
                damaged += 1;
                continue;
            }
        }
        manifest.good_bytes = offset;
        manifest.damaged = damaged;
    }
    Ok(Ok(manifest))
}

/// Result of `next_line`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A line, with its bytes in the file.
    Line(u64),
    /// End of the file, or a last line without a line feed.
    End,
}

/// Reads a line without its line feed into `line`; keeps only the beginning of a line that is too
/// long.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<Next> {
    line.clear();
    let mut bytes = 0;
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok(Next::End);
        }
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        bytes += used as u64;
        if end.is_some() {
            return Ok(Next::Line(bytes));
        }
    }
}

/// Returns the kernel's ID of this boot; empty when the kernel gives none, so that all boots count
/// as one.
pub(crate) fn boot_id() -> String {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    String::from_utf8_lossy(id.trim_ascii()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Origin;
    use std::io::Write;
    use std::path::Path;

    fn secret(byte: u8) -> Secret {
        let origin = Origin::new("--key-file", "book.key");
        Secret::new(zeroize::Zeroizing::new(vec![byte; 32]), origin).unwrap()
    }

    fn root(folder: &Path) -> DirHandle {
        DirHandle::open(folder).unwrap()
    }

    fn record(bytes: u64) -> ManifestRecord {
        let modified = Time { s: 1_700_000_000, ns: 5 };
        ManifestRecord { source_bytes: bytes, modified, sealed_bytes: bytes + 32, content: [7; 32] }
    }

    /// Makes a journal of one run with the files `a` and `b`.
    fn journal(folder: &Path, each: bool) -> Journal {
        let header = ManifestHeader::new("aes-256-cbc", None, None, &secret(1)).unwrap();
        let mut journal = Journal::open(&root(folder), &secret(1)).unwrap();
        journal.begin(&header, each).unwrap();
        for name in ["a", "b"] {
            journal.push_file(name.as_ref(), &record(100));
        }
        journal.write().unwrap();
        journal
    }

    fn believed(folder: &Path, boot: &str) -> Vec<bool> {
        let file = BufReader::new(File::open(folder.join(NAME)).unwrap());
        let line_key = secret(1).derive(Purpose::Line);
        let manifest = parse(file, &line_key, boot).unwrap().unwrap();
        let mut names: Vec<_> = manifest.records.iter().collect();
        names.sort_by_key(|(name, _)| name.to_owned());
        names.into_iter().map(|(_, kept)| kept.is_believed).collect()
    }

    #[test]
    fn what_was_written_is_read_and_a_torn_line_is_gone_on_after() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(&root(folder.path()), &secret(1)).unwrap().is_none());
        drop(journal(folder.path(), false));
        let whole = std::fs::metadata(folder.path().join(NAME)).unwrap().len();
        let mut file = File::options().append(true).open(folder.path().join(NAME)).unwrap();
        file.write_all(b"0123456789abcdef {\"file\":{\"pa").unwrap();

        let manifest = read(&root(folder.path()), &secret(1)).unwrap().unwrap();
        assert_eq!((manifest.records.len(), manifest.damaged), (2, 0));
        assert_eq!(manifest.good_bytes, whole);
        let modified = record(100).modified;
        assert_eq!(manifest.is_done("a".as_ref(), 100, modified), Some(&record(100)));
        assert_eq!(manifest.is_done("a".as_ref(), 101, modified), None);
        assert_eq!(manifest.is_done("a".as_ref(), 100, Time::default()), None);
        assert_eq!(manifest.is_done("c".as_ref(), 100, modified), None);

        let mut journal = Journal::open(&root(folder.path()), &secret(1)).unwrap();
        journal.resume(manifest.good_bytes, false).unwrap();
        journal.push_file("c".as_ref(), &record(1));
        journal.push_file("a".as_ref(), &record(200));
        journal.write().unwrap();
        let manifest = read(&root(folder.path()), &secret(1)).unwrap().unwrap();
        assert_eq!((manifest.records.len(), manifest.damaged), (3, 0));
        assert!(manifest.is_done("a".as_ref(), 200, modified).is_some());
    }

    #[test]
    fn what_may_have_been_lost_with_the_power_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = journal(folder.path(), false);
        assert_eq!(believed(folder.path(), &boot_id()), [true, true]);
        assert_eq!(believed(folder.path(), "another start"), [false, false]);
        one.synced().unwrap();
        assert_eq!(believed(folder.path(), "another start"), [true, true]);
        drop(one);
        drop(journal(folder.path(), true));
        assert_eq!(believed(folder.path(), "another start"), [true, true]);
    }

    #[test]
    fn a_damaged_line_costs_its_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        drop(journal(folder.path(), false));
        let path = folder.path().join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"path\":\"a\"", "\"path\":\"c\"")).unwrap();
        let manifest = read(&root(folder.path()), &secret(1)).unwrap().unwrap();
        assert_eq!((manifest.records.len(), manifest.damaged), (1, 1));
        assert_eq!(manifest.good_bytes, text.len() as u64);
    }

    #[test]
    fn a_wrong_key_another_version_and_a_foreign_file_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let message = || read(&root(folder.path()), &secret(1)).unwrap_err().to_string();
        drop(journal(folder.path(), false));
        let error = read(&root(folder.path()), &secret(2)).unwrap_err();
        assert!(error.is_caller() && error.to_string().contains("--key-file"), "{error}");

        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("aes-256", "aes-128")).unwrap();
        assert!(message().contains("was changed after it was written"), "{}", message());
        std::fs::write(&path, text.replace("\"pagewire_seal\":1", "\"pagewire_seal\":7")).unwrap();
        assert!(message().contains("version 7, this program knows 1"), "{}", message());
        std::fs::write(&path, "to do: feed the cat\n").unwrap();
        assert!(message().contains("no header of a sealed folder"), "{}", message());
        std::fs::write(&path, "0123456789abcdef {\"header").unwrap();
        assert!(read(&root(folder.path()), &secret(1)).unwrap().is_none());
    }

    #[test]
    fn a_journal_is_for_one_run_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = journal(folder.path(), false);
        let error = Journal::open(&root(folder.path()), &secret(1)).unwrap_err();
        assert!(error.to_string().contains("another run is at work"), "{error}");
        drop(first);
        Journal::open(&root(folder.path()), &secret(1)).unwrap();
    }
}
