// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of an entry to be sealed, slice by slice, checked against its checksum.
//!
//! A deflated text is not deflated again: LCP wants its stream inside the cipher. The stream is
//! copied from the page cache into the slice and inflated only as a check, five to ten times as
//! fast as deflating. The directory's declared size is the limit: an entry that inflates to one
//! byte more fails there.
//!
//! Costs: one `pread` a slice; 64 KiB of stack; a window of 32 KiB for a book that has an entry
//! to inflate, 300 KiB for one that has a stored text to deflate. Nothing grows with the entry.
//!
//! Sources: RFC 1951; PKWARE APPNOTE 6.3.10 §4.4.7 (CRC-32 of the inflated bytes).
//!
//! Does not encipher, pad or write.

use crc32fast::Hasher;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::archive::{Archive, Entry, Method};
use crate::engine::stage::{SealStage, enter};
use crate::error::Error;
use crate::plural::counted;

/// Change to the bytes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// They stay as they are in the archive.
    None,
    /// Deflated in the archive, they are inflated.
    Inflate,
    /// Stored in the archive, they are deflated.
    Deflate,
}

/// Progress in reading an entry.
#[derive(Debug)]
pub(super) struct Payload {
    change: Change,
    /// Offset in the archive of the next bytes.
    at: u64,
    /// Bytes of the archive that are still to be read.
    left: u64,
    plain: Plain,
    ended: bool,
}

/// Count and checksum of the inflated bytes so far.
#[derive(Debug, Default)]
pub(super) struct Plain {
    pub(super) bytes: u64,
    pub(super) crc: Hasher,
}

/// State of deflate in both directions; shared by all entries of a book.
#[derive(Debug, Default)]
pub(super) struct Codec {
    inflate: Option<Decompress>,
    deflate: Option<Compress>,
}

impl Codec {
    /// Returns the inflater; it is reset before each entry.
    pub(super) fn inflate(&mut self) -> &mut Decompress {
        self.inflate.get_or_insert_with(|| Decompress::new(false))
    }

    /// Returns the deflater, also for documents that are not entries of the source.
    pub(super) fn deflate(&mut self) -> &mut Compress {
        let level = Compression::new(DEFLATE_LEVEL);
        self.deflate.get_or_insert_with(|| Compress::new(level, false))
    }
}

impl Payload {
    /// Finds the offset of the data of `entry`.
    pub(super) fn open(
        archive: &Archive,
        entry: &Entry,
        change: Change,
        codec: &mut Codec,
    ) -> Result<Self, Error> {
        match (change, entry.method) {
            (Change::Deflate, _) => codec.deflate().reset(),
            (_, Method::Deflated) => codec.inflate().reset(false),
            (_, Method::Stored) => {}
        }
        Ok(Self {
            change,
            at: archive.data_start(entry)?,
            left: entry.stored,
            plain: Plain::default(),
            ended: false,
        })
    }

    /// Fills all of `out`, or less at the end of the entry. Returns the bytes written, and true
    /// after the last ones; then checksum and length have been compared.
    pub(super) fn read(
        &mut self,
        archive: &Archive,
        entry: &Entry,
        codec: &mut Codec,
        out: &mut [u8],
    ) -> Result<(usize, bool), Error> {
        let filled = match self.change {
            Change::None => self.copy(archive, entry, codec, out)?,
            Change::Inflate => self.inflate(archive, entry, codec, out)?,
            Change::Deflate => self.deflate(archive, entry, codec, out)?,
        };
        if self.ended {
            if self.plain.bytes != entry.bytes {
                let found =
                    format!("{}, declared {}", counted(self.plain.bytes, "byte"), entry.bytes);
                return Err(archive.broken(entry, found));
            }
            if self.plain.crc.clone().finalize() != entry.crc {
                return Err(archive.broken(entry, "its checksum differs"));
            }
        }
        Ok((filled, self.ended))
    }

    /// Returns the bytes of the archive that are still to be read.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    fn copy(
        &mut self,
        archive: &Archive,
        entry: &Entry,
        codec: &mut Codec,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let read_bytes = (out.len() as u64).min(self.left) as usize;
        let raw = &mut out[..read_bytes];
        enter(SealStage::Read);
        archive.read(raw, self.at)?;
        self.at += read_bytes as u64;
        self.left -= read_bytes as u64;
        match entry.method {
            Method::Stored => {
                enter(SealStage::Hash);
                self.plain.add(raw);
                self.ended = self.left == 0;
            }
            Method::Deflated => {
                let (inflate, is_last) = (codec.inflate(), self.left == 0);
                enter(SealStage::Check);
                self.ended = self
                    .plain
                    .add_deflated(inflate, raw, is_last, entry.bytes)
                    .map_err(|found| archive.broken(entry, found))?;
            }
        }
        Ok(read_bytes)
    }

    fn inflate(
        &mut self,
        archive: &Archive,
        entry: &Entry,
        codec: &mut Codec,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let mut scratch = [0; SCRATCH_BYTES];
        let mut filled = 0;
        while filled < out.len() && !self.ended {
            // Data that deflate could not shrink, usual here, fill `out` in one read; bytes that
            // inflate did not consume are read again.
            let wanted = (out.len() - filled).max(READ_BYTES_MIN).min(scratch.len());
            let read_bytes = (wanted as u64).min(self.left) as usize;
            enter(SealStage::Read);
            archive.read(&mut scratch[..read_bytes], self.at)?;
            let mut raw = &scratch[..read_bytes];
            let inflated = &mut out[filled..];
            enter(SealStage::Check);
            let (status, has_progressed) = step(codec.inflate(), &mut raw, inflated, |inflated| {
                self.plain.add(inflated);
                filled += inflated.len();
            })
            .map_err(|found| archive.broken(entry, found))?;
            let consumed = (read_bytes - raw.len()) as u64;
            self.at += consumed;
            self.left -= consumed;
            if self.plain.bytes > entry.bytes {
                return Err(archive.broken(entry, MORE));
            }
            if status == Status::StreamEnd {
                if self.left > 0 {
                    return Err(archive.broken(entry, BEHIND));
                }
                self.ended = true;
            } else if !has_progressed {
                return Err(archive.broken(entry, TRUNCATED));
            }
        }
        Ok(filled)
    }

    fn deflate(
        &mut self,
        archive: &Archive,
        entry: &Entry,
        codec: &mut Codec,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let mut scratch = [0; SCRATCH_BYTES];
        let mut filled = 0;
        while filled < out.len() && !self.ended {
            let read_bytes = (scratch.len() as u64).min(self.left) as usize;
            let raw = &mut scratch[..read_bytes];
            enter(SealStage::Read);
            archive.read(raw, self.at)?;
            let flush = if read_bytes as u64 == self.left {
                FlushCompress::Finish
            } else {
                FlushCompress::None
            };
            let deflate = codec.deflate();
            let (before_in, before_out) = (deflate.total_in(), deflate.total_out());
            enter(SealStage::Deflate);
            let status = deflate
                .compress(raw, &mut out[filled..], flush)
                .map_err(|error| archive.broken(entry, format!("deflating it: {error}")))?;
            let consumed = (deflate.total_in() - before_in) as usize;
            filled += (deflate.total_out() - before_out) as usize;
            enter(SealStage::Hash);
            self.plain.add(&raw[..consumed]);
            self.at += consumed as u64;
            self.left -= consumed as u64;
            self.ended = status == Status::StreamEnd;
        }
        Ok(filled)
    }
}

impl Plain {
    /// Adds inflated bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.crc.update(bytes);
    }

    /// Inflates `raw` and counts the result without keeping it. Returns true when the stream ended:
    /// it must end with the `is_last` bytes, and inflate to `bytes_max` bytes at most.
    pub(super) fn add_deflated(
        &mut self,
        inflate: &mut Decompress,
        mut raw: &[u8],
        is_last: bool,
        bytes_max: u64,
    ) -> Result<bool, &'static str> {
        let mut scratch = [0; SCRATCH_BYTES];
        loop {
            let (status, has_progressed) =
                step(inflate, &mut raw, &mut scratch, |inflated| self.add(inflated))?;
            if self.bytes > bytes_max {
                return Err(MORE);
            }
            if status == Status::StreamEnd {
                return if raw.is_empty() && is_last { Ok(true) } else { Err(BEHIND) };
            }
            if !has_progressed {
                return if is_last { Err(TRUNCATED) } else { Ok(false) };
            }
        }
    }
}

/// Calls inflate once: consumes from `raw`, passes the result to `inflated`. Returns the status,
/// and true when bytes were consumed or produced.
fn step(
    inflate: &mut Decompress,
    raw: &mut &[u8],
    out: &mut [u8],
    mut inflated: impl FnMut(&[u8]),
) -> Result<(Status, bool), &'static str> {
    let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
    let status =
        inflate.decompress(raw, out, FlushDecompress::None).map_err(|_| "no deflate stream")?;
    let consumed = (inflate.total_in() - before_in) as usize;
    let produced = (inflate.total_out() - before_out) as usize;
    *raw = &raw[consumed..];
    inflated(&out[..produced]);
    Ok((status, consumed > 0 || produced > 0))
}

const MORE: &str = "inflates to more than declared";
const BEHIND: &str = "bytes behind the end of its deflate stream";
const TRUNCATED: &str = "its deflate stream has no end";
/// Measured with zlib-rs on XHTML: 32 KiB in, 64 KiB out at a time inflates as fast as more.
const SCRATCH_BYTES: usize = 64 * 1024;
const READ_BYTES_MIN: usize = 512;
/// Measured with zlib-rs 0.6 on 38 MB of HTML in files of 60 kB: level 5 181 MB/s to 13.8 %, level
/// 6 115 MB/s to 13.6 %, level 9 62 MB/s to 13.9 %.
const DEFLATE_LEVEL: u32 = 5;
