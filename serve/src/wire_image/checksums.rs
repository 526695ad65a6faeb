// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checksums of a wire image's blocks, made while it is written and compared before a block is
//! sent.
//!
//! A disk, or a user who can write to the cache folder, may change an image without changing its
//! length or trailer. So the trailer has a CRC-32 of every 64 KiB (4 bytes each: 64 KiB a
//! gigabyte), and the thread that makes a block resident compares it, once for all sessions of the
//! asset. Costs a copy and a checksum per block and opened image on a thread that may block: about
//! 0.1 s of CPU time a gigabyte of image, however many sessions play it.
//!
//! Sources: ISO 3309 (CRC-32), by crc32fast, which uses carry-less multiplication where available.
//! Does not detect a change after the comparison while the page stays in memory, nor protect
//! against a writer to the cache who adjusts the checksums.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use crc32fast::Hasher;

/// Computes checksums of blocks from a stream of bytes.
#[derive(Default)]
pub(crate) struct BlockSums {
    sums: Vec<u32>,
    hasher: Hasher,
    filled: usize,
}

impl BlockSums {
    /// Adds the next bytes of the image.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.filled));
            self.hasher.update(now);
            self.filled += now.len();
            if self.filled == BLOCK_BYTES {
                self.end_block();
            }
            bytes = later;
        }
    }

    /// Returns the checksums as in the trailer, little-endian; the last block may be short.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if self.filled > 0 {
            self.end_block();
        }
        self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect()
    }

    fn end_block(&mut self) {
        self.sums.push(std::mem::take(&mut self.hasher).finalize());
        self.filled = 0;
    }
}

/// Returns the size of the checksums of an image of `image_bytes`.
pub(crate) fn sums_bytes(image_bytes: u64) -> u64 {
    4 * image_bytes.div_ceil(BLOCK_BYTES as u64)
}

/// Blocks of an open image, with a flag for those compared.
pub(crate) struct Blocks {
    image_bytes: u64,
    sums: Box<[u32]>,
    /// One bit a block, set after its comparison.
    compared: Box<[AtomicU64]>,
}

impl Blocks {
    /// Creates the blocks of an image of `image_bytes` with the trailer's checksums `sums`.
    pub(crate) fn new(image_bytes: u64, sums: &[u8]) -> Blocks {
        assert_eq!(sums.len() as u64, sums_bytes(image_bytes), "a checksum a block");
        let (sums, _) = sums.as_chunks::<4>();
        let sums: Box<[u32]> = sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
        let compared = (0..sums.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Blocks { image_bytes, sums, compared }
    }

    /// True when all blocks that `range` touches were compared before.
    pub(crate) fn are_compared(&self, range: &Range<u64>) -> bool {
        self.numbers(range).all(|number| {
            let (word, bit) = self.bit(number);
            word.load(Ordering::Relaxed) & bit != 0
        })
    }

    /// Compares the blocks that `range` touches; returns the offset of the first that differs.
    pub(crate) fn compare(&self, file: &File, range: Range<u64>) -> io::Result<Option<u64>> {
        let mut block = Vec::new();
        for number in self.numbers(&range) {
            let offset = (number * BLOCK_BYTES) as u64;
            block.resize((self.image_bytes - offset).min(BLOCK_BYTES as u64) as usize, 0);
            file.read_exact_at(&mut block, offset)?;
            if crc32fast::hash(&block) != self.sums[number] {
                return Ok(Some(offset));
            }
            let (word, bit) = self.bit(number);
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(None)
    }

    fn numbers(&self, range: &Range<u64>) -> Range<usize> {
        let end = range.end.div_ceil(BLOCK_BYTES as u64) as usize;
        (range.start / BLOCK_BYTES as u64) as usize..end.min(self.sums.len())
    }

    fn bit(&self, number: usize) -> (&AtomicU64, u64) {
        (&self.compared[number / 64], 1 << (number % 64))
    }
}

/// Bytes of a block: smaller ones need larger checksums, larger ones more reading for a short
/// window.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates an image of three blocks and a half, its checksums, and its file.
    fn image() -> (Vec<u8>, Blocks, File) {
        let bytes: Vec<u8> = (0..7 * BLOCK_BYTES / 2).map(|at| (at * at / 977) as u8).collect();
        let mut sums = BlockSums::default();
        // Pieces: an empty one, one that ends with a block, one that spans two.
        let ends = [0, 100, BLOCK_BYTES, 2 * BLOCK_BYTES + 1, bytes.len()];
        ends.windows(2).for_each(|ends| sums.add(&bytes[ends[0]..ends[1]]));
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let blocks = Blocks::new(bytes.len() as u64, &sums.finish());
        (bytes, blocks, file)
    }

    #[test]
    fn a_flipped_bit_at_any_of_500_places_is_found_in_its_block() {
        let (bytes, blocks, file) = image();
        let whole = 0..bytes.len() as u64;
        assert_eq!(blocks.compare(&file, whole.clone()).unwrap(), None);
        let mut place = 1_u64;
        for _ in 0..500 {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (place >> 20) % whole.end;
            let flipped = bytes[at as usize] ^ 1 << (place >> 61);
            file.write_all_at(&[flipped], at).unwrap();
            let block = at - at % BLOCK_BYTES as u64;
            assert_eq!(blocks.compare(&file, at..at + 1).unwrap(), Some(block));
            file.write_all_at(&bytes[at as usize..][..1], at).unwrap();
        }
        assert_eq!(blocks.compare(&file, whole).unwrap(), None);
    }

    #[test]
    fn blocks_count_as_compared_when_they_were_well() {
        let (bytes, blocks, file) = image();
        let second = BLOCK_BYTES as u64..2 * BLOCK_BYTES as u64;
        assert!(!blocks.are_compared(&second));
        assert_eq!(blocks.compare(&file, second.start + 9..second.end - 9).unwrap(), None);
        assert!(blocks.are_compared(&second));
        assert!(!blocks.are_compared(&(second.start..second.end + 1)));
        file.write_all_at(&[!bytes[0]], 0).unwrap();
        assert_eq!(blocks.compare(&file, 0..second.end).unwrap(), Some(0));
        assert!(!blocks.are_compared(&(0..1)));
        file.set_len(second.start + 1).unwrap();
        assert!(blocks.compare(&file, second).is_err(), "it ends before");
    }
}
