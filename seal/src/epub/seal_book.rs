// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sealing of a book: its entries in order, a slice at a time.
//!
//! A slice holds bytes of one entry. The first slice of a sealed entry begins with its IV, the last
//! ends with the padding; an incomplete block waits for the next slice. `mimetype` comes first and
//! stored; encryption.xml and the licence come last, so that replacing the licence rewrites only
//! the end of the file.
//!
//! Costs an entry: two `pread`s (its local header, its bytes) and one `pwritev`, for each that fits
//! a slice.
//!
//! Source: Readium LCP 1.0.4 §2.
//! Does not run itself; [`crate::engine`] does that.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crc32fast::Hasher;
use simd::cbc::AesKey;
use zeroize::Zeroizing;

use super::archive::{Archive, Entry, Method};
use super::book_journal::BookJournal;
use super::container::{ENCRYPTION, LICENCE, MEDIA_TYPE, MIMETYPE, Parts};
use super::content_hash::Content;
use super::encryption::{self, Encryption, Inside};
use super::fault::BookFault;
use super::payload::{Change, Codec, Payload};
use super::zip_writer::{Head, SMALL_MAX, Sum, ZipWriter};
use crate::engine::stage::{SealStage, enter};
use crate::engine::{Filled, Work, WorkStream};
use crate::error::Error;
use crate::key::random;
use crate::lcp::{Terms, UserKey};
use crate::manifest::ManifestRecord;
use crate::target_path::TargetPath;

/// A publication to be sealed.
#[derive(Clone, Debug)]
pub struct Book {
    /// The EPUB.
    pub source: PathBuf,
    /// The sealed EPUB.
    pub target: TargetPath,
    /// Bytes of the source.
    pub bytes: u64,
    /// Permissions of the target.
    pub mode: u32,
    /// True: an existing target is replaced.
    pub replace: bool,
    /// True: the file is synced before it gets its name.
    pub sync: bool,
    /// True: the licence is also written beside the target, with the extension `lcpl`.
    pub licence_beside: bool,
    /// Terms of the licence.
    pub terms: Arc<Terms>,
    /// Key made from the passphrase that opens the book.
    pub user_key: Arc<UserKey>,
    /// Journal that records the finished book.
    pub ledger: Option<BookJournal>,
}

impl Work for Book {
    type Stream = BookSealing;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn held_bytes(&self) -> usize {
        HELD_BYTES
    }

    fn open(self) -> Result<BookSealing, Error> {
        let archive = Archive::open(&self.source)?;
        let obfuscated = refuse_protected(&archive)?;
        let parts = Parts::read(&archive)?;
        encryption::check_fonts(&archive, &parts, &obfuscated)?;
        let entries = archive.entries.iter();
        let fates: Vec<EntryAction> =
            entries.map(|entry| EntryAction::of(entry, &parts, &obfuscated)).collect();
        let mut secret = Zeroizing::new([0; 32]);
        random(secret.as_mut())?;
        let path = self.target.shown();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let licence = self.terms.issue(&name, &secret, &self.user_key)?;
        let target = ZipWriter::new(self.target.create(self.mode)?);
        Ok(BookSealing {
            reported_bytes: 0,
            key: AesKey::new(secret.as_slice()).expect("32 bytes"),
            iv: [0; 16],
            licence,
            next: Next::Mimetype,
            current: None,
            codec: Codec::default(),
            fates,
            archive,
            target,
            replace: self.replace,
            sync: self.sync,
            beside: self.licence_beside.then(|| self.target.with_extension(LICENCE_EXTENSION)),
            content: self.ledger.as_ref().map(BookJournal::content),
            ledger: self.ledger,
        })
    }
}

/// Action on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryAction {
    /// Written anew: `mimetype` before all others, encryption.xml after them.
    Anew,
    /// Stays unchanged.
    Clear,
    /// Stays unchanged, with this element in encryption.xml.
    Obfuscated(Encryption),
    /// Enciphered, after this change.
    Sealed(Change),
}

impl EntryAction {
    fn of(entry: &Entry, parts: &Parts, obfuscated: &HashMap<String, Encryption>) -> Self {
        if [MIMETYPE, ENCRYPTION].contains(&&*entry.name) {
            return EntryAction::Anew;
        }
        if let Some(encryption) = obfuscated.get(&*entry.name) {
            return EntryAction::Obfuscated(*encryption);
        }
        if parts.is_clear(&entry.name) {
            return EntryAction::Clear;
        }
        EntryAction::Sealed(match (entry.method, parts.is_compressed(&entry.name)) {
            (Method::Deflated, false) | (Method::Stored, true) => Change::None,
            (Method::Deflated, true) => Change::Inflate,
            // Deflate makes two bytes of an empty entry.
            (Method::Stored, false) if entry.bytes == 0 => Change::None,
            (Method::Stored, false) => Change::Deflate,
        })
    }
}

/// Returns the compression of an entry inside the cipher.
fn method_inside(entry: &Entry, change: Change) -> Method {
    match change {
        Change::None => entry.method,
        Change::Inflate => Method::Stored,
        Change::Deflate => Method::Deflated,
    }
}

/// A book in progress.
#[derive(Debug)]
pub struct BookSealing {
    archive: Archive,
    fates: Vec<EntryAction>,
    target: ZipWriter,
    key: AesKey,
    iv: [u8; 16],
    licence: Vec<u8>,
    next: Next,
    current: Option<Current>,
    codec: Codec,
    /// Bytes of the source that were reported as read.
    reported_bytes: u64,
    replace: bool,
    sync: bool,
    /// Second path of the licence.
    beside: Option<TargetPath>,
    ledger: Option<BookJournal>,
    content: Option<Content>,
}

/// The part after the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Mimetype,
    Entry(usize),
    Encryption,
    Licence,
    End,
}

/// The part of the target that is being written.
#[derive(Debug)]
struct Current {
    body: PartBody,
    /// Checksum of the written bytes.
    crc: Hasher,
    stored: u64,
    /// Set by the last slice.
    ended: bool,
}

#[derive(Debug)]
enum PartBody {
    /// An entry that stays unchanged.
    Clear { at: usize, payload: Payload },
    /// An entry that is enciphered, and its incomplete block.
    Sealed { at: usize, payload: Payload, begun: bool, rest: Rest },
    /// `mimetype` or the licence.
    Document { bytes: Vec<u8>, at: usize },
    /// encryption.xml, deflated.
    Encryption(encryption::Text),
}

/// Bytes of an incomplete block.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    bytes: [u8; 16],
    length: usize,
}

impl WorkStream for BookSealing {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error> {
        assert!(buffer.len() >= BUFFER_BYTES_MIN, "room for an IV, a block and its padding");
        loop {
            let filled = self.fill_part(buffer)?;
            if filled.bytes > 0 {
                return Ok(filled);
            }
            // The engine does not drain an empty slice, as of an empty clear entry.
            self.drain(&[])?;
            if filled.is_last {
                return Ok(filled);
            }
        }
    }

    fn chain(&mut self) -> (&AesKey, &mut [u8; 16]) {
        (&self.key, &mut self.iv)
    }

    fn drain(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let current = self.current.as_mut().expect("filled before it is drained");
        let crc = &mut current.crc;
        // A clear entry's checksum is that of its inflated bytes, and known already.
        if matches!(current.body, PartBody::Sealed { .. } | PartBody::Document { .. }) {
            enter(SealStage::Hash);
            crc.update(bytes);
        }
        current.stored += bytes.len() as u64;
        let sum = current.ended.then(|| current.sum(&self.archive));
        enter(SealStage::Write);
        self.target.write(bytes, sum)?;
        if current.ended {
            self.current = None;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Error> {
        let Self { archive, target, licence, replace, sync, beside, .. } = self;
        archive.unchanged()?;
        enter(SealStage::Commit);
        let (pending, sealed_bytes) = target.finish(sync)?;
        if let Some(beside) = beside {
            write_beside(&beside, &licence, replace)?;
        }
        let (Some(ledger), Some(content)) = (self.ledger, self.content) else {
            return pending.commit(replace);
        };
        let record = ManifestRecord {
            source_bytes: archive.bytes(),
            modified: archive.modified(),
            sealed_bytes,
            content: content.end(),
        };
        ledger.note(&record, sync)?;
        pending.commit(replace).inspect_err(|_| ledger.undo())
    }
}

impl BookSealing {
    /// Fills a slice from the current part or, when there is none, from the next.
    fn fill_part(&mut self, buffer: &mut [u8]) -> Result<Filled, Error> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin()?,
        };
        let mut filled = Filled::default();
        let left = source_left(&current.body);
        match &mut current.body {
            PartBody::Clear { at, payload } => {
                let entry = &self.archive.entries[*at];
                let (bytes, ended) = payload.read(&self.archive, entry, &mut self.codec, buffer)?;
                if let Some(content) = &mut self.content {
                    content.add(&buffer[..bytes]);
                }
                filled.bytes = bytes;
                current.ended = ended;
            }
            PartBody::Sealed { at, payload, begun, rest } => {
                let mut start = 0;
                if !*begun {
                    random(&mut self.iv)?;
                    buffer[..16].copy_from_slice(&self.iv);
                    start = 16;
                    *begun = true;
                }
                let entry = &self.archive.entries[*at];
                let (archive, codec) = (&self.archive, &mut self.codec);
                let content = &mut self.content;
                let (cipher, ended) = rest.fill_blocks(&mut buffer[start..], |room| {
                    let (bytes, ended) = payload.read(archive, entry, codec, room)?;
                    if let Some(content) = content {
                        content.add(&room[..bytes]);
                    }
                    Ok((bytes, ended))
                })?;
                filled.bytes = start + cipher;
                filled.cipher = start..start + cipher;
                current.ended = ended;
            }
            PartBody::Document { bytes, at } => {
                let copied = buffer.len().min(bytes.len() - *at);
                buffer[..copied].copy_from_slice(&bytes[*at..*at + copied]);
                *at += copied;
                filled.bytes = copied;
                current.ended = *at == bytes.len();
            }
            PartBody::Encryption(document) => {
                let (archive, fates) = (&self.archive, &self.fates);
                let more = |at: usize| describe(archive, fates, at);
                let codec = &mut self.codec;
                enter(SealStage::Deflate);
                (filled.bytes, current.ended) = document.fill(codec, buffer, more);
            }
        }
        filled.source_bytes = left - source_left(&current.body);
        self.reported_bytes += filled.source_bytes;
        filled.is_last = current.ended && self.next == Next::End;
        if filled.is_last {
            // Counts headers, names and bytes that no entry refers to.
            filled.source_bytes += self.archive.bytes().saturating_sub(self.reported_bytes);
        }
        self.current = Some(current);
        Ok(filled)
    }

    /// Begins the next part. One exists: the last slice was not filled yet.
    fn begin(&mut self) -> Result<Current, Error> {
        let (body, head) = loop {
            match self.next {
                Next::Mimetype => {
                    self.next = Next::Entry(0);
                    let (body, head) = document(MIMETYPE, MEDIA_TYPE.to_vec());
                    break (body, self.as_before(head));
                }
                Next::Entry(at) if at == self.fates.len() => self.next = Next::Encryption,
                Next::Entry(at) => {
                    self.next = Next::Entry(at + 1);
                    if let Some(part) = self.begin_entry(at)? {
                        break part;
                    }
                }
                Next::Encryption => {
                    self.next = Next::Licence;
                    self.codec.deflate().reset();
                    let head = head(ENCRYPTION, Method::Deflated, NOT_LARGE);
                    break (PartBody::Encryption(encryption::Text::new()), self.as_before(head));
                }
                Next::Licence => {
                    self.next = Next::End;
                    break document(LICENCE, self.licence.clone());
                }
                Next::End => unreachable!("nothing is filled after the last slice"),
            }
        };
        if let (Some(content), PartBody::Clear { .. } | PartBody::Sealed { .. }) =
            (&mut self.content, &body)
        {
            content.begin(&head.name);
        }
        self.target.begin(head);
        Ok(Current { body, crc: Hasher::new(), stored: 0, ended: false })
    }

    /// Sets the time of a part written anew to that of the entry in the source, if there is one.
    fn as_before(&self, head: Head) -> Head {
        let entry = self.archive.find(&head.name);
        Head { modified: entry.map_or(DOS_EPOCH, |entry| entry.modified), ..head }
    }

    fn begin_entry(&mut self, at: usize) -> Result<Option<(PartBody, Head)>, Error> {
        let (entry, fate) = (&self.archive.entries[at], self.fates[at]);
        let (change, is_sealed) = match fate {
            EntryAction::Anew => return Ok(None),
            EntryAction::Clear | EntryAction::Obfuscated(_) => (Change::None, false),
            EntryAction::Sealed(change) => (change, true),
        };
        enter(SealStage::Read);
        let payload = Payload::open(&self.archive, entry, change, &mut self.codec)?;
        let most = match change {
            Change::None => entry.stored.max(entry.bytes),
            Change::Inflate => entry.bytes,
            // zlib adds at most a few bytes for every 16 KiB.
            Change::Deflate => entry.bytes + entry.bytes / 1000,
        };
        let method = if is_sealed { Method::Stored } else { entry.method };
        let mut head = head(&entry.name, method, most.saturating_add(SPARE_BYTES));
        head.modified = entry.modified;
        let body = if is_sealed {
            PartBody::Sealed { at, payload, begun: false, rest: Rest::default() }
        } else {
            PartBody::Clear { at, payload }
        };
        Ok(Some((body, head)))
    }
}

impl Current {
    /// Returns checksum and sizes of the part for the archive.
    fn sum(&self, archive: &Archive) -> Sum {
        let stored = self.stored;
        match &self.body {
            PartBody::Clear { at, .. } => {
                let entry = &archive.entries[*at];
                Sum { crc: entry.crc, stored, bytes: entry.bytes }
            }
            PartBody::Encryption(document) => {
                Sum { crc: document.crc(), stored, bytes: document.bytes() }
            }
            PartBody::Sealed { .. } | PartBody::Document { .. } => {
                Sum { crc: self.crc.clone().finalize(), stored, bytes: stored }
            }
        }
    }
}

impl Rest {
    /// Fills whole blocks: waiting bytes, bytes from `read`, and after the last ones the padding.
    /// Returns the bytes filled, and true after the last ones.
    fn fill_blocks(
        &mut self,
        slice: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<(usize, bool), Error>,
    ) -> Result<(usize, bool), Error> {
        slice[..self.length].copy_from_slice(&self.bytes[..self.length]);
        let room = slice.len() - 16;
        let (bytes, ended) = read(&mut slice[self.length..room])?;
        let plain = self.length + bytes;
        let whole = plain / 16 * 16;
        if ended {
            // W3C fixes only the last byte of the padding; filled this way it is PKCS#7, too.
            slice[plain..whole + 16].fill((whole + 16 - plain) as u8);
            return Ok((whole + 16, true));
        }
        self.length = plain - whole;
        self.bytes[..self.length].copy_from_slice(&slice[whole..plain]);
        Ok((whole, false))
    }
}

/// Returns the element of the entry `at` in encryption.xml, empty for a clear one.
fn describe(archive: &Archive, fates: &[EntryAction], at: usize) -> Option<String> {
    let (entry, fate) = (archive.entries.get(at)?, fates[at]);
    Some(match fate {
        EntryAction::Sealed(change) => {
            let inside = Inside { method: method_inside(entry, change), bytes: Some(entry.bytes) };
            encryption::element(&entry.name, Encryption::Sealed(inside))
        }
        EntryAction::Obfuscated(encryption) => encryption::element(&entry.name, encryption),
        EntryAction::Anew | EntryAction::Clear => String::new(),
    })
}

/// Returns the bytes of the source that this part has not read yet.
fn source_left(body: &PartBody) -> u64 {
    match body {
        PartBody::Clear { payload, .. } | PartBody::Sealed { payload, .. } => payload.left(),
        PartBody::Document { .. } | PartBody::Encryption(_) => 0,
    }
}

fn document(name: &str, bytes: Vec<u8>) -> (PartBody, Head) {
    let head = head(name, Method::Stored, bytes.len() as u64);
    (PartBody::Document { bytes, at: 0 }, head)
}

/// Makes the head of an entry of at most `bytes` bytes, in the archive and inflated.
fn head(name: &str, method: Method, bytes: u64) -> Head {
    Head { name: name.into(), method, modified: DOS_EPOCH, is_large: bytes > SMALL_MAX }
}

/// Returns the obfuscated fonts, which are no protection.
fn refuse_protected(archive: &Archive) -> Result<HashMap<String, Encryption>, Error> {
    let obfuscated = encryption::read_obfuscated(archive)?;
    match PROTECTIONS.into_iter().find(|by| archive.find(by).is_some()) {
        Some(by) => Err(archive.fault(BookFault::Protected { by })),
        None => Ok(obfuscated),
    }
}

fn write_beside(beside: &TargetPath, licence: &[u8], replace: bool) -> Result<(), Error> {
    use std::os::unix::fs::FileExt;
    let pending = beside.create(0o666)?;
    pending.file().write_all_at(licence, 0).map_err(Error::host("pwrite", &beside.shown()))?;
    pending.commit(replace)
}

/// LCP's licence, and the files of Adobe's and Apple's protections.
const PROTECTIONS: [&str; 3] = [LICENCE, "META-INF/rights.xml", "META-INF/sinf.xml"];
/// Bytes of an ordinary book's directory, and of deflate in both directions.
const HELD_BYTES: usize = 512 * 1024;
const LICENCE_EXTENSION: &str = "lcpl";
/// Bytes of an IV, a waiting block, a block and the padding.
const BUFFER_BYTES_MIN: usize = 64;
/// Bytes of an IV, the padding, and deflate's overhead for empty input.
const SPARE_BYTES: u64 = 1024;
/// encryption.xml is bounded by the directory and far below the limit.
const NOT_LARGE: u64 = 0;
/// 1 January 1980, the first day of zip.
const DOS_EPOCH: u32 = 1 << 21 | 1 << 16;
