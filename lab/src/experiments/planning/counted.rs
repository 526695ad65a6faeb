// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file that counts the reads of it, and the share of them that is samples.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;

use media::ReadAt;

/// Counts the reads of a file.
pub(super) struct CountingFile<'a> {
    file: &'a File,
    /// Places of samples, in order.
    media: &'a [Range<u64>],
    reads: Cell<u64>,
    bytes: Cell<u64>,
    media_bytes: Cell<u64>,
}

impl<'a> CountingFile<'a> {
    pub(super) fn new(file: &'a File, media: &'a [Range<u64>]) -> CountingFile<'a> {
        let [reads, bytes, media_bytes] = [0; 3].map(Cell::new);
        CountingFile { file, media, reads, bytes, media_bytes }
    }

    /// Calls so far.
    pub(super) fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Bytes read so far; a byte that was read twice counts twice.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Bytes of samples among them.
    pub(super) fn media_bytes(&self) -> u64 {
        self.media_bytes.get()
    }
}

impl ReadAt for CountingFile<'_> {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        self.reads.update(|reads| reads + 1);
        self.bytes.update(|count| count + bytes.len() as u64);
        self.media_bytes.update(|count| count + overlap(self.media, offset..end));
        self.file.read_exact_at(bytes, offset)
    }
}

/// Returns the bytes of `read` that lie in the ranges, which are in order and apart.
fn overlap(ranges: &[Range<u64>], read: Range<u64>) -> u64 {
    let first = ranges.partition_point(|range| range.end <= read.start);
    let met = ranges[first..].iter().take_while(|range| range.start < read.end);
    met.map(|range| range.end.min(read.end) - range.start.max(read.start)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_among_the_bytes_of_a_read_are_counted() {
        let media = [10..20, 30..31, 40..50];
        let cases = [
            (0..10, 0),
            (0..11, 1),
            (20..30, 0),
            (12..14, 2),
            (19..41, 3),
            (0..99, 21),
            (50..60, 0),
            (15..15, 0),
        ];
        for (read, expected) in cases {
            assert_eq!(overlap(&media, read.clone()), expected, "{read:?}");
        }
    }
}
