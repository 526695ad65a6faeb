// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verification of a sealed book: a second implementation opens and compares it.
//!
//! The licence and every entry are deciphered by OpenSSL, inflated from beginning to end and
//! compared byte for byte with the source, if there is one; without it, with the declared lengths
//! and checksums. Entries that must be clear or must exist are checked, too.
//!
//! Costs: one pass over both books on one core; 128 KiB.
//!
//! Sources: Readium LCP 1.0.4 §2, §3.4, §5; W3C XML Encryption §5.2.
//! Uses neither the lanes nor code of the sealing, except the reader of archives.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::path::Path;

use crc32fast::Hasher;
use flate2::read::DeflateDecoder;
use openssl::symm::{Cipher, Crypter, Mode};
use zeroize::Zeroizing;

use super::archive::{Archive, Entry, Method};
use super::container::{MIMETYPE, Parts};
use super::content_hash::Content;
use super::encryption::{self, Encryption, Inside};
use super::fault::BookFault;
use super::unseal_book::{OWN, check_sealed, read_protection, undecipherable};
use crate::engine::stage::{SealStage, enter};
use crate::error::Error;
use crate::lcp::{Licence, RootCertificates, UserKey};

/// Counts of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifiedBook {
    /// Enciphered entries.
    pub sealed: u64,
    /// Clear entries.
    pub clear: u64,
    /// Bytes of all entries, inflated.
    pub bytes: u64,
}

/// Verifies the sealed book at `sealed`: with a `source` byte for byte, with `roots` also the
/// signature of its licence, with key and hash of a journal also its recorded content.
///
/// # Errors
/// The first fault found.
pub fn verify(
    sealed: &Path,
    source: Option<&Path>,
    user_key: &UserKey,
    roots: Option<&RootCertificates>,
    content: Option<(&[u8; 32], &[u8; 32])>,
) -> Result<VerifiedBook, Error> {
    let archive = Archive::open(sealed)?;
    let (licence, encryption) = read_protection(&archive)?;
    licence.verify(roots).map_err(|fault| archive.fault(fault))?;
    let key = open_licence(&licence, user_key).map_err(|fault| archive.fault(fault))?;
    check_clear(&archive, |name| encryption.contains_key(name))?;
    let source = source.map(Archive::open).transpose()?;
    if let Some(source) = &source {
        check_complete(&archive, source)?;
        check_obfuscated(&archive, &encryption, source)?;
    }
    let by_name: HashMap<&str, &Entry> = source
        .iter()
        .flat_map(|source| &source.entries)
        .map(|entry| (&*entry.name, entry))
        .collect();
    let mut verified = VerifiedBook::default();
    let unhashed = RefCell::new(None);
    let hash = RefCell::new(content.map(|(key, _)| Content::new(key)));
    for entry in &archive.entries {
        let name = &*entry.name;
        let is_own = OWN.contains(&name);
        let original = match source.as_ref().zip(by_name.get(name)) {
            // `mimetype` is written anew, without white space around it; so is encryption.xml.
            Some((source, entry)) if !is_own => Some(plain(source, entry, &unhashed)?),
            _ => None,
        };
        if let Some(hash) = hash.borrow_mut().as_mut().filter(|_| !is_own) {
            hash.begin(name);
        }
        let hash = if is_own { &unhashed } else { &hash };
        verified.bytes += match encryption.get(name) {
            Some(Encryption::Sealed(inside)) => {
                verified.sealed += 1;
                verify_sealed(&archive, entry, *inside, &key, original, hash)?
            }
            Some(Encryption::Obfuscated(..)) | None => {
                verified.clear += 1;
                verify_clear(&archive, entry, original, hash)?
            }
        };
    }
    let hash = hash.into_inner().map(Content::end);
    if hash.is_some() && hash.as_ref() != content.map(|(_, expected)| expected) {
        return Err(archive.fault(BookFault::Exchanged));
    }
    Ok(verified)
}

/// Verifies an enciphered entry; returns its bytes.
fn verify_sealed(
    archive: &Archive,
    entry: &Entry,
    inside: Inside,
    key: &[u8],
    original: Option<Bytes<'_>>,
    hash: &RefCell<Option<Content>>,
) -> Result<u64, Error> {
    check_sealed(archive, entry, inside)?;
    let crc = RefCell::new(Hasher::new());
    let found = deciphered(archive, entry, inside, key, &crc, hash)?;
    let (bytes, _) = compare(archive, entry, found, original)
        .map_err(|error| error.unwrap_or_else(|| undecipherable(archive, entry)))?;
    let is_whole = crc.into_inner().finalize() == entry.crc
        && inside.bytes.is_none_or(|declared| declared == bytes);
    if is_whole { Ok(bytes) } else { Err(undecipherable(archive, entry)) }
}

/// Verifies a clear entry; returns its bytes.
fn verify_clear(
    archive: &Archive,
    entry: &Entry,
    original: Option<Bytes<'_>>,
    hash: &RefCell<Option<Content>>,
) -> Result<u64, Error> {
    let found = plain(archive, entry, hash)?;
    let (bytes, crc) = compare(archive, entry, found, original)
        .map_err(|error| error.unwrap_or_else(|| archive.broken(entry, "no deflate stream")))?;
    if (bytes, crc) == (entry.bytes, entry.crc) {
        Ok(bytes)
    } else {
        Err(archive.broken(entry, "its length or its checksum differs"))
    }
}

/// Deciphers the content key with OpenSSL.
fn open_licence(licence: &Licence, user_key: &UserKey) -> Result<Zeroizing<Vec<u8>>, BookFault> {
    let opened = |bytes: &[u8]| -> Option<Zeroizing<Vec<u8>>> {
        let (iv, blocks) = bytes.split_first_chunk::<16>()?;
        let mut crypter = crypter(user_key.bytes(), iv).ok()?;
        let mut plain = Zeroizing::new(vec![0; blocks.len() + 16]);
        let made = crypter.update(blocks, &mut plain).ok()?;
        let padding = usize::from(*plain[..made].last()?);
        plain.truncate(made.checked_sub(padding).filter(|_| (1..=16).contains(&padding))?);
        Some(plain)
    };
    let check = opened(&licence.key_check);
    if check.is_none_or(|check| check.as_slice() != licence.id.as_bytes()) {
        return Err(licence.mismatch());
    }
    opened(&licence.content_key)
        .filter(|key| key.len() == 32)
        .ok_or_else(|| BookFault::Licence { found: "no key of 32 bytes inside".into() })
}

/// Checks that `mimetype` is first and stored, and that no entry needed without a key is
/// enciphered.
fn check_clear(archive: &Archive, is_sealed: impl Fn(&str) -> bool) -> Result<(), Error> {
    let parts = Parts::read(archive)?;
    let first = archive.entries.first();
    if first.is_none_or(|first| &*first.name != MIMETYPE || first.method != Method::Stored) {
        let found = "mimetype is not the first entry, stored".into();
        return Err(archive.fault(BookFault::NotEpub { found }));
    }
    let wrong =
        archive.entries.iter().find(|entry| parts.is_clear(&entry.name) && is_sealed(&entry.name));
    match wrong {
        Some(entry) => {
            let (name, found) = (entry.name.to_string(), "enciphered, and must not be".into());
            Err(archive.fault(BookFault::Foreign { name, found }))
        }
        None => Ok(()),
    }
}

/// Checks that both have the same entries, except those that sealing adds.
fn check_complete(sealed: &Archive, source: &Archive) -> Result<(), Error> {
    let differs = |entry: &Entry, found: &str| {
        let (name, found) = (entry.name.to_string(), found.into());
        Err(sealed.fault(BookFault::Differs { name, found }))
    };
    let is_foreign = |entry: &&Entry| !OWN.contains(&&*entry.name);
    let mut names: HashSet<_> =
        sealed.entries.iter().filter(is_foreign).map(|entry| &*entry.name).collect();
    for entry in source.entries.iter().filter(is_foreign) {
        if !names.remove(&*entry.name) {
            return differs(entry, "missing");
        }
    }
    match sealed.entries.iter().find(|entry| names.contains(&*entry.name)) {
        Some(entry) => differs(entry, "not in the source"),
        None => Ok(()),
    }
}

/// Checks that the obfuscated fonts are those of the source.
fn check_obfuscated(
    sealed: &Archive,
    encryption: &HashMap<String, Encryption>,
    source: &Archive,
) -> Result<(), Error> {
    let expected = encryption::read_obfuscated(source)?;
    let is_obfuscated = |one: &&Encryption| matches!(one, Encryption::Obfuscated(..));
    let of_name = |name: &str| encryption.get(name).filter(is_obfuscated);
    let mut names = expected.keys().chain(encryption.keys());
    match names.find(|name| of_name(name) != expected.get(*name)) {
        Some(name) => {
            let (name, found) = (name.clone(), "its obfuscation is another".into());
            Err(sealed.fault(BookFault::Differs { name, found }))
        }
        None => Ok(()),
    }
}

type Bytes<'a> = Box<dyn Read + 'a>;

/// Reads a clear entry, inflated.
fn plain<'a>(
    archive: &'a Archive,
    entry: &Entry,
    hash: &'a RefCell<Option<Content>>,
) -> Result<Bytes<'a>, Error> {
    let raw = Raw { archive, at: archive.data_start(entry)?, left: entry.stored, crc: None };
    Ok(inflated(Hashed { bytes: raw, hash }, entry.method))
}

/// Reads an enciphered entry, deciphered and inflated.
fn deciphered<'a>(
    archive: &'a Archive,
    entry: &Entry,
    inside: Inside,
    key: &[u8],
    crc: &'a RefCell<Hasher>,
    hash: &'a RefCell<Option<Content>>,
) -> Result<Bytes<'a>, Error> {
    let start = archive.data_start(entry)?;
    let mut iv = [0; 16];
    archive.read(&mut iv, start)?;
    crc.borrow_mut().update(&iv);
    let raw = Raw { archive, at: start + 16, left: entry.stored - 16, crc: Some(crc) };
    let crypter = crypter(key, &iv)
        .map_err(|error| Error::host("AES-256-CBC", archive.path())(error.into()))?;
    let buffer = vec![0; BUFFER_BYTES + 16];
    let bytes = Deciphering { raw, crypter, blocks: vec![0; BUFFER_BYTES], buffer, from: 0, to: 0 };
    Ok(inflated(Hashed { bytes, hash }, inside.method))
}

fn inflated<'a>(bytes: impl Read + 'a, method: Method) -> Bytes<'a> {
    match method {
        Method::Stored => Box::new(bytes),
        Method::Deflated => Box::new(DeflateDecoder::new(bytes)),
    }
}

fn crypter(key: &[u8], iv: &[u8]) -> Result<Crypter, openssl::error::ErrorStack> {
    let mut crypter = Crypter::new(Cipher::aes_256_cbc(), Mode::Decrypt, key, Some(iv))?;
    // OpenSSL would accept only PKCS#7 padding.
    crypter.pad(false);
    Ok(crypter)
}

/// Reads both to the end; returns the bytes read and their checksum. The error is `None` when the
/// content of `found` cannot be read.
fn compare(
    archive: &Archive,
    entry: &Entry,
    mut found: Bytes<'_>,
    mut expected: Option<Bytes<'_>>,
) -> Result<(u64, u32), Option<Error>> {
    let mut crc = Hasher::new();
    let (mut one, mut other) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    let mut bytes = 0_u64;
    let differs = |found: String| {
        Some(archive.fault(BookFault::Differs { name: entry.name.to_string(), found }))
    };
    loop {
        let length = read_full(&mut found, &mut one).map_err(inner)?;
        if let Some(expected) = &mut expected {
            let wanted = read_full(expected, &mut other).map_err(|error| {
                inner(error).or_else(|| differs("the source is damaged".into()))
            })?;
            let same =
                one[..length].iter().zip(&other[..wanted]).take_while(|(a, b)| a == b).count();
            if same < length.max(wanted) {
                return Err(differs(format!("at byte {}", bytes + same as u64)));
            }
        }
        bytes += length as u64;
        crc.update(&one[..length]);
        if bytes > super::BYTES_MAX {
            return Err(None);
        }
        if length < one.len() {
            return Ok((bytes, crc.finalize()));
        }
    }
}

fn read_full(from: &mut Bytes<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Returns this crate's error from a reader's; `None` for a fault of the content.
fn inner(error: io::Error) -> Option<Error> {
    error.into_inner().and_then(|inner| inner.downcast::<Error>().ok()).map(|error| *error)
}

/// Reader of an archive's bytes.
struct Raw<'a> {
    archive: &'a Archive,
    at: u64,
    left: u64,
    crc: Option<&'a RefCell<Hasher>>,
}

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read_bytes = (buffer.len() as u64).min(self.left) as usize;
        self.archive.read(&mut buffer[..read_bytes], self.at).map_err(io::Error::other)?;
        self.at += read_bytes as u64;
        self.left -= read_bytes as u64;
        if let Some(crc) = self.crc {
            crc.borrow_mut().update(&buffer[..read_bytes]);
        }
        Ok(read_bytes)
    }
}

/// Reader that hashes the bytes read.
struct Hashed<'a, R> {
    bytes: R,
    hash: &'a RefCell<Option<Content>>,
}

impl<R: Read> Read for Hashed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        if let Some(hash) = self.hash.borrow_mut().as_mut() {
            hash.add(&buffer[..read]);
            enter(SealStage::Check);
        }
        Ok(read)
    }
}

/// Reader that deciphers blocks of an archive; removes the padding of the last.
struct Deciphering<'a> {
    raw: Raw<'a>,
    crypter: Crypter,
    blocks: Vec<u8>,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl Read for Deciphering<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.from == self.to && self.raw.left > 0 {
            let read = self.raw.read(&mut self.blocks)?;
            self.to = self.crypter.update(&self.blocks[..read], &mut self.buffer)?;
            self.from = 0;
            if self.raw.left == 0 {
                let padding = self.buffer[..self.to].last().map_or(0, |last| usize::from(*last));
                let is_right = (1..=16).contains(&padding) && padding <= self.to;
                if !is_right {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                self.to -= padding;
            }
        }
        let copied = out.len().min(self.to - self.from);
        out[..copied].copy_from_slice(&self.buffer[self.from..self.from + copied]);
        self.from += copied;
        Ok(copied)
    }
}

/// Bytes of a buffer, in whole blocks.
const BUFFER_BYTES: usize = 64 * 1024;
