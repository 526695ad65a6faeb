// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of a table in the file, read a slice at a time.
//!
//! The number of entries is compared with the size of the box before any is read. Costs one buffer
//! of at most 48 KiB and a read for as many bytes.

use super::boxes::{FULL_BYTES, FileBox, Input, broken, spelled};
use crate::DemuxError;

/// Bytes read at once; every entry size divides them, so no entry is split between two slices.
const SLICE_BYTES: u64 = 48 << 10;

/// Entries of one table, from front to back.
#[derive(Debug)]
pub(super) struct Slices {
    /// Offset of the bytes that are not in the buffer yet.
    next: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Index of the next entry in the buffer.
    at: usize,
}

impl Slices {
    /// Reads the `bytes` after the first `skipped` bytes of a body, which are `entries` entries.
    pub(super) fn of(
        found: &FileBox,
        skipped: u64,
        bytes: u64,
        entries: u32,
    ) -> Result<Slices, DemuxError> {
        let next = found.body.saturating_add(skipped);
        if next > found.end || bytes > found.end - next {
            let (name, body) = (spelled(found.code), found.body_bytes());
            let what = format!("{name} of {entries} entries in {body} bytes");
            return Err(broken(found.start, what));
        }
        Ok(Slices { next, end: next + bytes, buffer: Vec::new(), at: 0 })
    }

    /// The entries of a box that begins with their number.
    pub(super) fn counted(
        input: &Input<'_>,
        found: &FileBox,
        entry_bytes: u64,
    ) -> Result<Slices, DemuxError> {
        let [_, _, _, _, count @ ..] = found.fields::<8>(input)?;
        let count = u32::from_be_bytes(count);
        Slices::of(found, FULL_BYTES + 4, u64::from(count) * entry_bytes, count)
    }

    /// True after the last entry.
    pub(super) fn is_empty(&self) -> bool {
        self.at == self.buffer.len() && self.next == self.end
    }

    /// Returns the next entry. The caller ensures that there is one.
    #[inline]
    pub(super) fn entry<const BYTES: usize>(
        &mut self,
        input: &Input<'_>,
    ) -> Result<[u8; BYTES], DemuxError> {
        const { assert!(SLICE_BYTES.is_multiple_of(BYTES as u64)) };
        if self.at == self.buffer.len() {
            self.fill(input)?;
        }
        let entry = self.buffer[self.at..].first_chunk().expect("the table has whole entries");
        self.at += BYTES;
        Ok(*entry)
    }

    #[cold]
    fn fill(&mut self, input: &Input<'_>) -> Result<(), DemuxError> {
        self.at = 0;
        self.buffer.resize(SLICE_BYTES.min(self.end - self.next) as usize, 0);
        if let Err(error) = input.read(&mut self.buffer, self.next) {
            self.buffer.clear();
            return Err(error);
        }
        self.next += self.buffer.len() as u64;
        Ok(())
    }
}
