// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making a plan: reads a file once, slice by slice, into the scanner.
//!
//! A scan advances by [`SLICE_BYTES`] a call and can be laid aside between two calls, so that many
//! scans share a few threads and none holds a thread to its end. Before each slice the open file is
//! compared with what it was at the beginning: a file that is being written ends its scan at once.
//! Costs one read of the file, one `fstat` a slice and 1.3 MiB of memory. A short file is in
//! the page cache afterwards; of a long one only the beginning is, so that a scan of a library does
//! not drive out what is being streamed.
//!
//! Does not do: parsing ([`media::ts::Scanner`] does); deciding whose turn it is
//! ([`super::scans`] does).

use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};

use media::plan::PacketPlan;
use media::store::{modified_ns, random_identity};
use media::ts::Scanner;
use rustix::fs::{Advice, fadvise};

use super::NoAsset;
use super::scans::OpenedFile;

/// A scan that has been begun.
pub(super) struct Progress {
    scanner: Box<Scanner>,
    offset: u64,
    /// It had a name when the scan began; some file systems count none.
    was_linked: bool,
}

/// Result of a slice.
pub(super) enum Slice {
    /// There is more to read.
    Unfinished(Progress),
    Over(Box<Result<PacketPlan, NoAsset>>),
    /// All was read that a recording had when its scan began.
    Growing(Box<Scanner>),
}

fn over(planned: Result<PacketPlan, NoAsset>) -> Slice {
    Slice::Over(Box::new(planned))
}

impl Progress {
    pub(super) fn new(file: &File) -> Progress {
        // Only a hint: the scan is right without it. The kernel's own reading ahead is as long as
        // the disk's setting says, several MiB on some; where kernel code is not preempted, a pacer
        // that wants this core waits for all of it (50 ms were seen in a virtual machine).
        let _ = fadvise(file, 0, None, Advice::Random);
        let was_linked = file.metadata().is_ok_and(|now| now.nlink() > 0);
        Progress { scanner: Box::new(Scanner::new()), offset: 0, was_linked }
    }

    /// Nothing has been read yet.
    pub(super) fn is_new(&self) -> bool {
        self.offset == 0
    }

    /// Reads the next slice of a file, which had its key at the beginning, by way of `piece`.
    /// `done` counts the bytes read. Returns early, unfinished, when `is_given_up` before a piece.
    pub(super) fn advance(
        mut self,
        opened: &OpenedFile,
        piece: &mut Vec<u8>,
        done: &AtomicU64,
        is_given_up: impl Fn() -> bool,
    ) -> Slice {
        let (file, key) = (&opened.file, &opened.key);
        if !self.is_as_it_was(opened) {
            return over(Err(NoAsset::CHANGING));
        }
        let slice_end = key.bytes.min(self.offset + SLICE_BYTES);
        piece.resize(PIECE_BYTES as usize, 0);
        while self.offset < slice_end {
            if is_given_up() {
                return Slice::Unfinished(self);
            }
            // The next piece is on its way while this one is parsed.
            let next = self.offset + PIECE_BYTES;
            paths::read_ahead(file, next..next + PIECE_BYTES);
            let wanted = (slice_end - self.offset).min(PIECE_BYTES) as usize;
            let read = match file.read_at(&mut piece[..wanted], self.offset) {
                Ok(0) => return over(Err(NoAsset::CHANGING)),
                Ok(read) => read,
                Err(error) => {
                    let found = format!("byte {}: {error}", self.offset);
                    return over(Err(NoAsset::Unreadable(found)));
                }
            };
            self.scanner.feed(&piece[..read]);
            self.offset += read as u64;
            done.store(self.offset, Ordering::Relaxed);
            if self.scanner.is_refused() {
                return over(self.finish(key.bytes));
            }
        }
        let slice = slice_end - SLICE_BYTES.min(slice_end);
        if key.bytes > KEPT_BYTES && slice >= SLICE_BYTES {
            // Pages that a session has mapped stay.
            let _ = fadvise(file, slice, NonZeroU64::new(SLICE_BYTES), Advice::DontNeed);
        }
        match self.offset == key.bytes {
            true if opened.is_growing => Slice::Growing(self.scanner),
            true => over(self.finish(key.bytes)),
            false => Slice::Unfinished(self),
        }
    }

    fn finish(self, bytes: u64) -> Result<PacketPlan, NoAsset> {
        let planned = self.scanner.finish(bytes, random_identity());
        planned.map_err(|refusal| NoAsset::Refused(refusal.to_string()))
    }

    /// Whether the open file has the size and time of its key, or more as it grows, and still a
    /// name.
    fn is_as_it_was(&self, opened: &OpenedFile) -> bool {
        let key = &opened.key;
        opened.file.metadata().is_ok_and(|now| {
            let is_linked = now.nlink() > 0 || !self.was_linked;
            let is_same = now.len() == key.bytes && modified_ns(&now) == key.modified_ns;
            is_linked && (is_same || opened.is_growing && now.len() >= key.bytes)
        })
    }
}

/// A read, and what is read ahead: larger was not measurably faster.
const PIECE_BYTES: u64 = 256 << 10;
/// What a longer file leaves in the page cache is its first slice, where most plays begin.
const KEPT_BYTES: u64 = 64 << 20;
/// A turn: some 16 ms of a file in the page cache, after which a shorter scan has its turn.
const SLICE_BYTES: u64 = 16 << 20;
