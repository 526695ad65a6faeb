// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unsealing of a book: deciphers its entries and restores the original.
//!
//! Texts keep the deflate stream that was inside the cipher; each is also inflated, since the
//! directory of the book needs the checksum of the inflated text. A changed ciphertext, the key of
//! another book and a wrong padding all give one message.
//!
//! Obfuscated fonts stay obfuscated; the book gets an encryption.xml for them, after `mimetype`.
//!
//! Decryption is parallel within an entry, so it is done here and not in the lanes.
//!
//! Sources: Readium LCP 1.0.4 §2.2, §5.1; W3C XML Encryption §5.2.
//! Opens only the basic profile; does not read licences beside the book.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crc32fast::Hasher;
use simd::cbc::{AesKey, Cbc};

use super::archive::{Archive, Entry, Method};
use super::container::{DOCUMENT_BYTES_MAX, ENCRYPTION, LICENCE, MEDIA_TYPE, MIMETYPE, document};
use super::encryption::{self, Encryption, Inside};
use super::fault::BookFault;
use super::payload::{Change, Codec, Payload, Plain};
use super::zip_writer::{Head, SMALL_MAX, Sum, ZipWriter};
use crate::engine::stage::{SealStage, enter};
use crate::engine::{Filled, Work, WorkStream};
use crate::error::Error;
use crate::lcp::{Licence, RootCertificates, UserKey};
use crate::target_path::TargetPath;

/// A sealed publication to be opened.
#[derive(Clone, Debug)]
pub struct SealedBook {
    /// The sealed EPUB.
    pub source: PathBuf,
    /// The EPUB.
    pub target: TargetPath,
    /// Bytes of the source.
    pub bytes: u64,
    /// Permissions of the target.
    pub mode: u32,
    /// True: an existing target is replaced.
    pub replace: bool,
    /// True: the file is synced before it gets its name.
    pub sync: bool,
    /// Key that opens the licence.
    pub user_key: Arc<UserKey>,
    /// Root certificates; with them the licence's signature is checked, without them it is not.
    pub roots: Option<Arc<RootCertificates>>,
    /// The CBC implementation that deciphers.
    pub cbc: Cbc,
}

/// Reads the licence of a sealed book, and the encryption of its entries.
pub(super) fn read_protection(
    archive: &Archive,
) -> Result<(Licence, HashMap<String, Encryption>), Error> {
    let missing = |missing| archive.fault(BookFault::Clear { missing });
    let licence = archive.find(LICENCE).ok_or_else(|| missing(LICENCE))?;
    let licence = document(archive, licence, DOCUMENT_BYTES_MAX)?;
    let licence = Licence::read(LICENCE, &licence).map_err(|fault| archive.fault(fault))?;
    let encryption = archive.find(ENCRYPTION).ok_or_else(|| missing(ENCRYPTION))?;
    Ok((licence, encryption::read(archive, encryption)?))
}

impl Work for SealedBook {
    type Stream = BookUnsealing;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn held_bytes(&self) -> usize {
        HELD_BYTES
    }

    fn open(self) -> Result<BookUnsealing, Error> {
        let archive = Archive::open(&self.source)?;
        let (licence, encryption) = read_protection(&archive)?;
        if let Some(roots) = &self.roots {
            licence.verify(Some(roots)).map_err(|fault| archive.fault(fault))?;
        }
        let secret =
            licence.open(&self.user_key, &self.cbc).map_err(|fault| archive.fault(fault))?;
        let of_entry = |entry: &Entry| encryption.get(&*entry.name).copied();
        let encryption: Vec<Option<Encryption>> = archive.entries.iter().map(of_entry).collect();
        let target = ZipWriter::new(self.target.create(self.mode)?);
        Ok(BookUnsealing {
            key: AesKey::new(secret.as_slice()).expect("32 bytes"),
            cbc: self.cbc,
            next: None,
            current: None,
            codec: Codec::default(),
            reported_bytes: 0,
            fonts: (0..archive.entries.len())
                .any(|at| describe(&archive, &encryption, at).is_some_and(|text| !text.is_empty()))
                .then(encryption::Text::new),
            archive,
            encryption,
            target,
            replace: self.replace,
            sync: self.sync,
        })
    }
}

/// A sealed book in progress.
#[derive(Debug)]
pub struct BookUnsealing {
    archive: Archive,
    /// Encryption of each entry.
    encryption: Vec<Option<Encryption>>,
    /// encryption.xml of a book with obfuscated fonts, until it is begun.
    fonts: Option<encryption::Text>,
    target: ZipWriter,
    key: AesKey,
    cbc: Cbc,
    /// Index after the current entry; `None` before `mimetype`.
    next: Option<usize>,
    current: Option<Current>,
    codec: Codec,
    reported_bytes: u64,
    replace: bool,
    sync: bool,
}

#[derive(Debug)]
struct Current {
    body: PartBody,
    stored: u64,
    /// Set by the last slice.
    sum: Option<Sum>,
}

#[derive(Debug)]
enum PartBody {
    Mimetype,
    /// encryption.xml of the obfuscated fonts, deflated.
    Fonts(encryption::Text),
    Clear {
        at: usize,
        payload: Payload,
    },
    Sealed(Ciphertext),
}

/// Progress in deciphering an entry.
#[derive(Debug)]
struct Ciphertext {
    entry: usize,
    inside: Inside,
    iv: [u8; 16],
    /// Offset in the archive of the next bytes.
    at: u64,
    left: u64,
    /// Checksum of the ciphertext.
    crc: Hasher,
    plain: Plain,
}

impl WorkStream for BookUnsealing {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error> {
        assert!(buffer.len() >= BUFFER_BYTES_MIN, "room for some blocks");
        let mut read_bytes = 0;
        loop {
            let mut filled = self.fill_part(buffer)?;
            read_bytes += filled.source_bytes;
            filled.source_bytes = read_bytes;
            if filled.bytes > 0 {
                return Ok(filled);
            }
            // The engine does not drain an empty slice: an empty entry, or only padding was left.
            self.drain(&[])?;
            if filled.is_last {
                return Ok(filled);
            }
        }
    }

    fn chain(&mut self) -> (&AesKey, &mut [u8; 16]) {
        unreachable!("nothing is left for the lanes")
    }

    fn drain(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let sum = self.current.as_ref().expect("filled before it is drained").sum;
        enter(SealStage::Write);
        self.target.write(bytes, sum)?;
        if sum.is_some() {
            self.current = None;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Error> {
        let Self { archive, target, replace, sync, .. } = self;
        archive.unchanged()?;
        enter(SealStage::Commit);
        target.finish(sync)?.0.commit(replace)
    }
}

impl BookUnsealing {
    /// Fills a slice from the current entry or, when there is none, from the next.
    fn fill_part(&mut self, buffer: &mut [u8]) -> Result<Filled, Error> {
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin()?,
        };
        let mut filled = Filled::default();
        match &mut current.body {
            PartBody::Mimetype => {
                buffer[..MEDIA_TYPE.len()].copy_from_slice(MEDIA_TYPE);
                filled.bytes = MEDIA_TYPE.len();
                let bytes = MEDIA_TYPE.len() as u64;
                let crc = crc32fast::hash(MEDIA_TYPE);
                current.sum = Some(Sum { crc, stored: bytes, bytes });
            }
            PartBody::Fonts(text) => {
                let (archive, encryption) = (&self.archive, &self.encryption);
                let more = |at: usize| describe(archive, encryption, at);
                enter(SealStage::Deflate);
                let (bytes, ended) = text.fill(&mut self.codec, buffer, more);
                filled.bytes = bytes;
                let stored = current.stored + bytes as u64;
                current.sum = ended.then(|| Sum { crc: text.crc(), stored, bytes: text.bytes() });
            }
            PartBody::Clear { at, payload } => {
                let entry = &self.archive.entries[*at];
                let left = payload.left();
                let (bytes, ended) = payload.read(&self.archive, entry, &mut self.codec, buffer)?;
                filled.bytes = bytes;
                filled.source_bytes = left - payload.left();
                let Entry { crc, stored, bytes, .. } = *entry;
                current.sum = ended.then_some(Sum { crc, stored, bytes });
            }
            PartBody::Sealed(ciphertext) => {
                let deciphered = self.decipher(ciphertext, buffer)?;
                filled.source_bytes = deciphered.0;
                filled.bytes = deciphered.1;
                if ciphertext.left == 0 {
                    let stored = current.stored + filled.bytes as u64;
                    current.sum = Some(self.ended(ciphertext, stored)?);
                }
            }
        }
        current.stored += filled.bytes as u64;
        self.reported_bytes += filled.source_bytes;
        filled.is_last = current.sum.is_some() && self.skip_own() == self.archive.entries.len();
        if filled.is_last {
            filled.source_bytes += self.archive.bytes().saturating_sub(self.reported_bytes);
        }
        self.current = Some(current);
        Ok(filled)
    }

    /// Returns the index of the next entry that goes into the book.
    fn skip_own(&self) -> usize {
        let from = self.next.unwrap_or(0);
        let rest = self.archive.entries[from..].iter();
        from + rest.take_while(|entry| OWN.contains(&&*entry.name)).count()
    }

    fn begin(&mut self) -> Result<Current, Error> {
        let anew = |name: &str, method| {
            let modified = self.archive.find(name).map_or(0, |entry| entry.modified);
            Head { name: name.into(), method, modified, is_large: false }
        };
        let (body, head) = if self.next.is_none() {
            self.next = Some(0);
            (PartBody::Mimetype, anew(MIMETYPE, Method::Stored))
        } else if let Some(text) = self.fonts.take() {
            self.codec.deflate().reset();
            (PartBody::Fonts(text), anew(ENCRYPTION, Method::Deflated))
        } else {
            let at = self.skip_own();
            self.next = Some(at + 1);
            self.begin_entry(at)?
        };
        self.target.begin(head);
        Ok(Current { body, stored: 0, sum: None })
    }

    fn begin_entry(&mut self, at: usize) -> Result<(PartBody, Head), Error> {
        let (archive, entry) = (&self.archive, &self.archive.entries[at]);
        let head = |method, is_large| {
            let (name, modified) = (entry.name.clone(), entry.modified);
            Head { name, method, modified, is_large }
        };
        let Some(Encryption::Sealed(inside)) = self.encryption[at] else {
            let is_large = entry.stored.max(entry.bytes) > SMALL_MAX;
            let payload = Payload::open(archive, entry, Change::None, &mut self.codec)?;
            return Ok((PartBody::Clear { at, payload }, head(entry.method, is_large)));
        };
        check_sealed(archive, entry, inside)?;
        if inside.method == Method::Deflated {
            self.codec.inflate().reset(false);
        }
        let start = archive.data_start(entry)?;
        let mut iv = [0; 16];
        archive.read(&mut iv, start)?;
        let mut crc = Hasher::new();
        crc.update(&iv);
        let ciphertext = Ciphertext {
            entry: at,
            inside,
            iv,
            at: start + 16,
            left: entry.stored - 16,
            crc,
            plain: Plain::default(),
        };
        let is_large = entry.stored.max(inside.bytes.unwrap_or(0)) > SMALL_MAX;
        Ok((PartBody::Sealed(ciphertext), head(inside.method, is_large)))
    }

    /// Deciphers the next blocks into `buffer`. Returns the bytes read, and the bytes deciphered
    /// without the padding.
    fn decipher(
        &mut self,
        text: &mut Ciphertext,
        buffer: &mut [u8],
    ) -> Result<(u64, usize), Error> {
        let entry = &self.archive.entries[text.entry];
        let read_bytes = ((buffer.len() / 16 * 16) as u64).min(text.left) as usize;
        let blocks = &mut buffer[..read_bytes];
        enter(SealStage::Read);
        self.archive.read(blocks, text.at)?;
        enter(SealStage::Hash);
        text.crc.update(blocks);
        enter(SealStage::Cipher);
        self.cbc.decrypt(&self.key, &mut text.iv, blocks);
        text.at += read_bytes as u64;
        text.left -= read_bytes as u64;
        let is_last = text.left == 0;
        let padding = if is_last { usize::from(blocks[read_bytes - 1]) } else { 0 };
        let is_right = !is_last || (1..=16).contains(&padding);
        let plain = &blocks[..read_bytes - if is_right { padding } else { 0 }];
        let made = plain.len();
        let checked = match text.inside.method {
            Method::Stored => {
                enter(SealStage::Hash);
                text.plain.add(plain);
                Ok(is_last)
            }
            Method::Deflated => {
                enter(SealStage::Check);
                let bytes_max = text.inside.bytes.unwrap_or(0);
                text.plain.add_deflated(self.codec.inflate(), plain, is_last, bytes_max)
            }
        };
        if checked == Ok(is_last) && is_right {
            Ok((read_bytes as u64, made))
        } else {
            Err(undecipherable(&self.archive, entry))
        }
    }

    /// Returns the sums of an entry deciphered to its end; an error if it is not as sealed.
    fn ended(&self, text: &Ciphertext, stored: u64) -> Result<Sum, Error> {
        let entry = &self.archive.entries[text.entry];
        let bytes = text.plain.bytes;
        let is_whole = text.crc.clone().finalize() == entry.crc
            && text.inside.bytes.is_none_or(|declared| declared == bytes);
        if is_whole {
            Ok(Sum { crc: text.plain.crc.clone().finalize(), stored, bytes })
        } else {
            Err(undecipherable(&self.archive, entry))
        }
    }
}

/// Returns the element of the entry `at` in encryption.xml, empty unless it is an obfuscated font.
fn describe(archive: &Archive, encryption: &[Option<Encryption>], at: usize) -> Option<String> {
    let entry = archive.entries.get(at)?;
    Some(match encryption[at] {
        Some(font @ Encryption::Obfuscated(..)) if !OWN.contains(&&*entry.name) => {
            encryption::element(&entry.name, font)
        }
        _ => String::new(),
    })
}

pub(super) fn undecipherable(archive: &Archive, entry: &Entry) -> Error {
    archive.fault(BookFault::Undecipherable { name: entry.name.to_string() })
}

/// Checks an entry before it is deciphered: an IV and whole blocks, stored, and a length for
/// deflated content.
pub(super) fn check_sealed(archive: &Archive, entry: &Entry, inside: Inside) -> Result<(), Error> {
    let foreign = |found: &str| {
        Err(archive.fault(BookFault::Foreign { name: entry.name.to_string(), found: found.into() }))
    };
    if entry.method != Method::Stored {
        return foreign("ciphertext that is deflated");
    }
    match inside {
        Inside { method: Method::Deflated, bytes: None } => {
            foreign("no OriginalLength in META-INF/encryption.xml")
        }
        Inside { bytes: Some(bytes), .. } if bytes > super::BYTES_MAX => {
            let (what, limit) = ("bytes of an entry", super::BYTES_MAX);
            Err(archive.fault(BookFault::Limit { what, found: bytes, limit }))
        }
        _ if entry.stored < 32 || !entry.stored.is_multiple_of(16) => {
            Err(undecipherable(archive, entry))
        }
        _ => Ok(()),
    }
}

const BUFFER_BYTES_MIN: usize = 64;
/// Entries that a sealed book has of its own; its source may have had others of these names.
pub(super) const OWN: [&str; 3] = [MIMETYPE, ENCRYPTION, LICENCE];
/// Bytes of an ordinary book's directory, and of a window to inflate. A book with obfuscated fonts
/// holds 300 KiB more to deflate their encryption.xml.
const HELD_BYTES: usize = 128 * 1024;
