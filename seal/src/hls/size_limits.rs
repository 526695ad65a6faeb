// SPDX-License-Identifier: MIT OR Apache-2.0
//! Size of a film's folder on disk, computed from its scan, and the limit on it.
//!
//! The stream determines how often its packets are copied: each programme and each further sound is
//! an extract, and programmes may share PIDs. So the size is computed before a segment is written,
//! and a folder is made only up to [`TIMES_MAX`] times the stream's own size.
//!
//! Costs a visit to each segment. Does not query the free space of the disk.

use super::film_part::Cut;
use super::{FilmFault, HlsOptions};

/// Largest folder, in sizes of its stream. The whole stream is one; programmes that share nothing
/// are together one more, their further sounds less than a third. Four programmes with pictures in
/// common make six at most; eleven regional ones of the same PIDs share segments and count once.
pub(super) const TIMES_MAX: u64 = 6;
/// Bytes allowed besides: the blocks of files outweigh a short film.
const SPARE_BYTES: u64 = 1 << 20;
/// Most extracts of one stream. A transponder of radio has about seventy programmes, of television
/// twenty with about three sounds each. Each costs about 20 KiB and a look at every packet.
pub(super) const PARTS_MAX: usize = 256;
/// Allocation unit of most file systems: a short file occupies as much.
const BLOCK_BYTES: u64 = 4096;

/// Returns the most bytes that a folder of a stream of `source_bytes` may occupy.
pub(super) fn limit(source_bytes: u64) -> u64 {
    source_bytes.saturating_mul(TIMES_MAX).saturating_add(SPARE_BYTES)
}

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
