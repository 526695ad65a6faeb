// SPDX-License-Identifier: MIT OR Apache-2.0
//! A segment: a message of its own; read from the film, padded, enciphered, written whole.
//!
//! Costs: the read into a slice, a hash of it there, the cipher in place, the write; a file that
//! is opened, renamed, and a line of the film's journal.
//!
//! Sources: RFC 8216 §4.3.2.4 (AES-128 of the whole segment, PKCS#7), RFC 5652 §6.3 (the padding).

use std::io::{ErrorKind, Write};
use std::sync::Arc;

use simd::cbc::AesKey;

use super::film::Film;
use super::film_part::Reader;
use super::segment_cipher::BLOCK_BYTES;
use super::{Durability, FilmFault};
use crate::engine::stage::{SealStage, enter};
use crate::engine::{Filled, Work, WorkStream};
use crate::error::{Error, FileFault};
use crate::pending_file::PendingFile;

/// A segment to be made.
pub(super) struct SegmentWork<'a> {
    pub(super) film: Arc<Film<'a>>,
    pub(super) index: usize,
}

/// A segment being made.
pub(super) struct SegmentStream<'a> {
    film: Arc<Film<'a>>,
    index: usize,
    pending: Option<PendingFile>,
    /// Tables still to be read; bytes of the film follow.
    tables: Vec<u8>,
    source: Reader,
    hasher: blake3::Hasher,
    iv: [u8; BLOCK_BYTES],
    is_clear: bool,
}

impl<'a> Work for SegmentWork<'a> {
    type Stream = SegmentStream<'a>;

    fn bytes(&self) -> u64 {
        self.film.bytes(self.index)
    }

    fn open(self) -> Result<SegmentStream<'a>, Error> {
        let Self { film, index } = self;
        if film.has_failed() {
            return Err(Error::file(&film.source, FilmFault::GivenUp.into()));
        }
        let pending = match film.create(index) {
            Ok(pending) => Some(pending),
            Err(error) => return Err(first(&film, error)),
        };
        let tables = film.tables(index);
        let mut hasher = hasher(film.options.protection.as_ref().map(|p| p.keys.check()));
        begin_check(&mut hasher, film.number(index), tables.len() as u64);
        hasher.update(&tables);
        let iv = film.key_and_iv(index).map(|(_, iv)| iv);
        Ok(SegmentStream {
            tables,
            source: film.reader(index),
            index,
            pending,
            hasher,
            is_clear: iv.is_none(),
            iv: iv.unwrap_or_default(),
            film,
        })
    }
}

/// Returns the hasher of a segment.
pub(super) fn hasher(key: Option<&[u8; 32]>) -> blake3::Hasher {
    key.map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed)
}

/// Begins the hash of a segment with its number and the length of its tables. The tables and the
/// segment's bytes of the source are hashed next.
pub(super) fn begin_check(hasher: &mut blake3::Hasher, number: u64, tables_bytes: u64) {
    hasher.update(&number.to_le_bytes()).update(&tables_bytes.to_le_bytes());
}

/// Returns the hash in the length that is stored.
pub(super) fn check(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut check = [0; 16];
    hasher.finalize_xof().fill(&mut check);
    check
}

/// Returns a film's first failure unchanged; errors of its other segments become `GivenUp`.
fn first(film: &Film<'_>, error: Error) -> Error {
    match film.fail() {
        true => error,
        false => Error::file(&film.source, FilmFault::GivenUp.into()),
    }
}

impl SegmentStream<'_> {
    /// Fills `buffer` with tables and film up to its end or theirs; returns its bytes, and the
    /// film's.
    fn take(&mut self, buffer: &mut [u8]) -> Result<(usize, u64), Error> {
        let mut filled = self.tables.len().min(buffer.len());
        buffer[..filled].copy_from_slice(&self.tables[..filled]);
        self.tables.drain(..filled);
        let mut source_bytes = 0;
        while filled < buffer.len() && !self.source.is_exhausted() {
            match self.source.read(&self.film.file, &mut buffer[filled..]) {
                Ok(0) => return Err(Error::file(&self.film.source, FileFault::Changed)),
                Ok(read) => {
                    enter(SealStage::Hash);
                    self.hasher.update(&buffer[filled..filled + read]);
                    enter(SealStage::Read);
                    (filled, source_bytes) = (filled + read, source_bytes + read as u64);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::host("read", &self.film.source)(error)),
            }
        }
        Ok((filled, source_bytes))
    }

    fn is_exhausted(&self) -> bool {
        self.tables.is_empty() && self.source.is_exhausted()
    }

    fn file(&self) -> &PendingFile {
        self.pending.as_ref().expect("there until the segment is finished")
    }

    fn publish(&mut self) -> Result<(), Error> {
        let pending = self.pending.take().expect("finished once");
        if self.film.options.sync == Durability::Each {
            let synced = pending.file().sync_all();
            synced.map_err(Error::host("fsync", &pending.target()))?;
        }
        self.film.record(self.index, check(&self.hasher))?;
        pending.commit(true)?;
        self.film.done()
    }
}

impl WorkStream for SegmentStream<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error> {
        let room = buffer.len() / BLOCK_BYTES * BLOCK_BYTES;
        assert!(room > 0, "a slice holds a block");
        let (mut bytes, source_bytes) = match self.take(&mut buffer[..room]) {
            Ok(counts) => counts,
            Err(error) => return Err(first(&self.film, error)),
        };
        let mut is_last = self.is_exhausted();
        if !self.is_clear {
            // A full slice has no room for the padding, which then gets a slice of its own.
            is_last &= bytes < room;
            if is_last {
                let padding = BLOCK_BYTES - bytes % BLOCK_BYTES;
                buffer[bytes..bytes + padding].fill(padding as u8);
                bytes += padding;
            }
        }
        let cipher = if self.is_clear { 0..0 } else { 0..bytes };
        Ok(Filled { bytes, cipher, source_bytes, is_last })
    }

    fn chain(&mut self) -> (&AesKey, &mut [u8; BLOCK_BYTES]) {
        let (key, _) = self.film.key_and_iv(self.index).expect("asked for ciphers alone");
        (key, &mut self.iv)
    }

    fn drain(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file().file().write_all(bytes);
        let path = self.file().target();
        written.map_err(|error| first(&self.film, Error::host("write", &path)(error)))
    }

    fn finish(mut self) -> Result<(), Error> {
        self.publish().map_err(|error| first(&self.film, error))
    }
}
