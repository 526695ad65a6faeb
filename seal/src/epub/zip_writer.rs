// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writer of a publication's zip archive, entry after entry.
//!
//! The checksum of a sealed entry is known when its last slice leaves the lanes. An entry that fits
//! a slice is written with its header in one `pwritev`; a longer one has its header rewritten at
//! the end. So every local header holds true sizes and no data descriptor follows: programs that
//! read an archive from its beginning cannot skip a stored entry that has one. Memory: the central
//! directory, as long as the source's and the entries that sealing adds.
//!
//! Sources: PKWARE APPNOTE 6.3.10 §4.3.7 to §4.3.16, §4.4, §4.5.3 (Zip64).
//!
//! Does not compress or check anything; does not interpret entries.

use std::io::IoSlice;
use std::os::unix::fs::FileExt;

use super::archive::Method;
use crate::error::Error;
use crate::pending_file::PendingFile;

/// An archive being written. Dropped before [`ZipWriter::finish`], it leaves no file.
#[derive(Debug)]
pub(super) struct ZipWriter {
    pending: PendingFile,
    at: u64,
    entries: u64,
    central: Vec<u8>,
    open: Option<Open>,
}

/// Properties of an entry that are known before its first byte.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) name: Box<str>,
    pub(super) method: Method,
    /// Time and date in the form of MS-DOS, time in the lower half.
    pub(super) modified: u32,
    /// True when it may have 4 GiB or more, in the archive or inflated.
    pub(super) is_large: bool,
}

/// Properties of an entry that are known after its last byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// CRC-32 of the inflated bytes.
    pub(super) crc: u32,
    /// Bytes in the archive.
    pub(super) stored: u64,
    /// Bytes inflated.
    pub(super) bytes: u64,
}

#[derive(Debug)]
struct Open {
    head: Head,
    /// Offset of its local header.
    offset: u64,
    /// True when its header is written, with unknown fields zero.
    begun: bool,
}

impl ZipWriter {
    pub(super) fn new(pending: PendingFile) -> Self {
        Self { pending, at: 0, entries: 0, central: Vec::new(), open: None }
    }

    /// Begins the next entry. Nothing is written before its first bytes.
    pub(super) fn begin(&mut self, head: Head) {
        assert!(self.open.is_none(), "one entry at a time");
        self.open = Some(Open { head, offset: self.at, begun: false });
    }

    /// Writes more bytes of the open entry; with its `sum` the last ones.
    pub(super) fn write(&mut self, bytes: &[u8], sum: Option<Sum>) -> Result<(), Error> {
        let mut open = self.open.take().expect("begun before it is written");
        if open.begun {
            self.put(&[], bytes)?;
        } else {
            open.begun = true;
            self.put(&local_header(&open.head, sum.unwrap_or_default()), bytes)?;
            if let Some(sum) = sum {
                self.end(open, sum);
                return Ok(());
            }
        }
        let Some(sum) = sum else {
            self.open = Some(open);
            return Ok(());
        };
        let header = local_header(&open.head, sum);
        self.pending.file().write_all_at(&header, open.offset).map_err(|error| self.host(error))?;
        self.end(open, sum);
        Ok(())
    }

    /// Writes the directory; returns the file, which has no name yet, and its length. With `sync`
    /// the file has reached the disk.
    pub(super) fn finish(mut self, sync: bool) -> Result<(PendingFile, u64), Error> {
        assert!(self.open.is_none(), "the last entry was ended");
        let (start, bytes) = (self.at, self.central.len() as u64);
        let mut end = Vec::with_capacity(ENDS_BYTES);
        if start > SMALL_MAX || bytes > SMALL_MAX || self.entries > ENTRIES_SMALL_MAX {
            end.extend_from_slice(b"PK\x06\x06");
            end.extend_from_slice(&44_u64.to_le_bytes());
            end.extend_from_slice(&MADE_BY.to_le_bytes());
            end.extend_from_slice(&NEEDS_ZIP64.to_le_bytes());
            end.extend_from_slice(&[0; 8]);
            for word in [self.entries, self.entries, bytes, start] {
                end.extend_from_slice(&word.to_le_bytes());
            }
            end.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            end.extend_from_slice(&(start + bytes).to_le_bytes());
            end.extend_from_slice(&1_u32.to_le_bytes());
        }
        let entries = self.entries.min(ENTRIES_SMALL_MAX + 1) as u16;
        end.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        end.extend_from_slice(&entries.to_le_bytes());
        end.extend_from_slice(&entries.to_le_bytes());
        end.extend_from_slice(&small(bytes).to_le_bytes());
        end.extend_from_slice(&small(start).to_le_bytes());
        end.extend_from_slice(&0_u16.to_le_bytes());
        let central = std::mem::take(&mut self.central);
        self.put(&central, &end)?;
        if sync {
            let target = || self.pending.target();
            self.pending
                .file()
                .sync_all()
                .map_err(|error| Error::host("fsync", &target())(error))?;
        }
        Ok((self.pending, self.at))
    }

    fn host(&self, error: std::io::Error) -> Error {
        Error::host("pwrite", &self.pending.target())(error)
    }

    fn end(&mut self, open: Open, sum: Sum) {
        central_header(&mut self.central, &open, sum);
        self.entries += 1;
    }

    /// Writes both at the end of the file, in one call unless the kernel writes only a part.
    fn put(&mut self, first: &[u8], second: &[u8]) -> Result<(), Error> {
        let file = self.pending.file();
        let both = [IoSlice::new(first), IoSlice::new(second)];
        let wrote = match rustix::io::pwritev(file, &both, self.at) {
            Ok(wrote) => wrote,
            Err(rustix::io::Errno::INTR) => 0,
            Err(errno) => return Err(self.host(errno.into())),
        };
        let (first_left, second_left) = if wrote < first.len() {
            (&first[wrote..], second)
        } else {
            (&[][..], &second[wrote - first.len()..])
        };
        let at = self.at + wrote as u64;
        file.write_all_at(first_left, at)
            .and_then(|()| file.write_all_at(second_left, at + first_left.len() as u64))
            .map_err(|error| self.host(error))?;
        self.at += (first.len() + second.len()) as u64;
        Ok(())
    }
}

fn local_header(head: &Head, sum: Sum) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LOCAL_BYTES + ZIP64_LOCAL_BYTES + head.name.len());
    let zip64 = head.is_large;
    bytes.extend_from_slice(b"PK\x03\x04");
    bytes.extend_from_slice(&if zip64 { NEEDS_ZIP64 } else { NEEDS }.to_le_bytes());
    described(&mut bytes, head, sum.crc);
    let (stored, inflated) =
        if zip64 { (u32::MAX, u32::MAX) } else { (known(sum.stored), known(sum.bytes)) };
    bytes.extend_from_slice(&stored.to_le_bytes());
    bytes.extend_from_slice(&inflated.to_le_bytes());
    bytes.extend_from_slice(&(head.name.len() as u16).to_le_bytes());
    let extra = if zip64 { ZIP64_LOCAL_BYTES as u16 } else { 0 };
    bytes.extend_from_slice(&extra.to_le_bytes());
    bytes.extend_from_slice(head.name.as_bytes());
    if zip64 {
        bytes.extend_from_slice(&ZIP64_EXTRA.to_le_bytes());
        bytes.extend_from_slice(&16_u16.to_le_bytes());
        bytes.extend_from_slice(&sum.bytes.to_le_bytes());
        bytes.extend_from_slice(&sum.stored.to_le_bytes());
    }
    bytes
}

fn central_header(bytes: &mut Vec<u8>, open: &Open, sum: Sum) {
    let head = &open.head;
    let mut extra = Vec::new();
    for value in [sum.bytes, sum.stored, open.offset] {
        if value > SMALL_MAX {
            extra.extend_from_slice(&value.to_le_bytes());
        }
    }
    let zip64 = head.is_large || !extra.is_empty();
    bytes.extend_from_slice(b"PK\x01\x02");
    bytes.extend_from_slice(&MADE_BY.to_le_bytes());
    bytes.extend_from_slice(&if zip64 { NEEDS_ZIP64 } else { NEEDS }.to_le_bytes());
    described(bytes, head, sum.crc);
    bytes.extend_from_slice(&small(sum.stored).to_le_bytes());
    bytes.extend_from_slice(&small(sum.bytes).to_le_bytes());
    bytes.extend_from_slice(&(head.name.len() as u16).to_le_bytes());
    let extra_bytes = if extra.is_empty() { 0 } else { extra.len() as u16 + 4 };
    bytes.extend_from_slice(&extra_bytes.to_le_bytes());
    // No comment, the first disk, no internal attributes.
    bytes.extend_from_slice(&[0; 6]);
    bytes.extend_from_slice(&ATTRIBUTES.to_le_bytes());
    bytes.extend_from_slice(&small(open.offset).to_le_bytes());
    bytes.extend_from_slice(head.name.as_bytes());
    if !extra.is_empty() {
        bytes.extend_from_slice(&ZIP64_EXTRA.to_le_bytes());
        bytes.extend_from_slice(&(extra.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&extra);
    }
}

/// Writes the fields that both headers have in the same order: flags, method, time, checksum.
fn described(bytes: &mut Vec<u8>, head: &Head, crc: u32) {
    let flags = if head.name.is_ascii() { 0 } else { FLAG_UTF8 };
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(&head.method.number().to_le_bytes());
    bytes.extend_from_slice(&head.modified.to_le_bytes());
    bytes.extend_from_slice(&crc.to_le_bytes());
}

/// Returns a 32-bit field, or the mark that the value is in the extra field.
fn small(value: u64) -> u32 {
    if value > SMALL_MAX { u32::MAX } else { value as u32 }
}

/// Returns a 32-bit field of an entry that was not declared large.
fn known(value: u64) -> u32 {
    assert!(value <= SMALL_MAX, "an entry that may be large is declared so");
    value as u32
}

/// Largest 32-bit value, without the mark.
pub(super) const SMALL_MAX: u64 = u32::MAX as u64 - 1;
const ENTRIES_SMALL_MAX: u64 = u16::MAX as u64 - 1;
const LOCAL_BYTES: usize = 30;
const ZIP64_LOCAL_BYTES: usize = 20;
const ZIP64_EXTRA: u16 = 1;
/// Bytes of the three records after the directory.
const ENDS_BYTES: usize = 56 + 20 + 22;
const NEEDS: u16 = 20;
const NEEDS_ZIP64: u16 = 45;
/// Unix, version 4.5: the upper half of the attributes below is a mode.
const MADE_BY: u16 = 3 << 8 | 45;
/// A regular file that every user may read.
const ATTRIBUTES: u32 = 0o100_644 << 16;
/// The name is UTF-8 (APPNOTE §4.4.4, bit 11).
const FLAG_UTF8: u16 = 1 << 11;
