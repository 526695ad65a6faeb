// SPDX-License-Identifier: MIT OR Apache-2.0
//! Size of a film's folder on disk, computed from its scan before a segment is written.
//!
//! Costs a visit to each segment. Does not query the free space of the disk.

use super::film_part::Cut;
use super::size_limits::limit;
use super::{FilmFault, HlsOptions};

/// Allocation unit of most file systems: a short file occupies as much.
const BLOCK_BYTES: u64 = 4096;

/// Returns the bytes on disk of all segments; the whole stream is the first cut.
///
/// # Errors
/// The bytes are more than the limit.
pub(super) fn checked(cuts: &[Cut], options: &HlsOptions) -> Result<u64, FilmFault> {
    let of = |cut: &Cut| -> u64 {
        let files = (0..cut.segments.list().len()).map(|index| file_bytes(cut, index, options));
        files.map(|bytes| bytes.next_multiple_of(BLOCK_BYTES)).sum()
    };
    let (source_bytes, whole) = (cuts[0].bytes, of(&cuts[0]));
    let limit = limit(source_bytes);
    if whole > limit {
        let segments = cuts[0].segments.list().len() as u64;
        return Err(FilmFault::Scattered { bytes: whole, source_bytes, segments });
    }
    let bytes = whole + cuts[1..].iter().map(of).sum::<u64>();
    if bytes > limit {
        let parts = cuts.len() as u64 - 1;
        return Err(FilmFault::Multiplied { bytes, source_bytes, parts });
    }
    Ok(bytes)
}

/// Returns the bytes of a segment's file: tables, packets, and with a key the padding, of 1 byte at
/// least (PKCS#7).
pub(super) fn file_bytes(cut: &Cut, index: usize, options: &HlsOptions) -> u64 {
    let segment = &cut.segments.list()[index];
    let tables = cut.segments.tables(segment).len() as u64;
    let bytes = tables + segment.file.end - segment.file.start;
    match options.protection {
        Some(_) => (bytes / 16 + 1) * 16,
        None => bytes,
    }
}
