// SPDX-License-Identifier: MIT OR Apache-2.0
//! Size of a film's folder on disk, known from its scan, and the bound on it.
//!
//! A stream says itself how often its packets are taken: each programme and each further sound is
//! an extract, and programmes may share PIDs. So the size is counted before a segment is written,
//! and a folder is made only up to [`TIMES_MAX`] times the stream's own size.
//!
//! Costs a look at each segment. Does not do: ask the disk how much room it has.

use super::film_part::Cut;
use super::{FilmFault, HlsOptions};

/// The whole stream is one; programmes that share nothing are together one more, and their further
/// sounds less than a third. Four programmes with pictures in common make six of it at most; eleven
/// regional ones of the same PIDs share their segments and count once.
pub(super) const TIMES_MAX: u64 = 6;
/// What is borne besides: of a short film the blocks of its files are the most.
const SPARE_BYTES: u64 = 1 << 20;
/// Most extracts of one stream. Transponders of radio have about seventy programmes, of television
/// twenty with some three sounds each. Each costs about 20 KiB and a look at every packet.
pub(super) const PARTS_MAX: usize = 256;
/// What most file systems give a file in: a short file takes as much.
const BLOCK_BYTES: u64 = 4096;

/// Most bytes that a folder of a stream of `source_bytes` may take.
pub(super) fn limit(source_bytes: u64) -> u64 {
    source_bytes.saturating_mul(TIMES_MAX).saturating_add(SPARE_BYTES)
}

/// Bytes on disk of all segments; the stream as it is comes first.
///
/// # Errors
/// They are more than the limit.
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

/// Bytes of a segment's file: tables, packets, and with a key the padding, which is never none
/// (PKCS#7).
pub(super) fn file_bytes(cut: &Cut, index: usize, options: &HlsOptions) -> u64 {
    let segment = &cut.segments.list()[index];
    let tables = cut.segments.tables(segment).len() as u64;
    let bytes = tables + segment.file.end - segment.file.start;
    match options.protection {
        Some(_) => (bytes / 16 + 1) * 16,
        None => bytes,
    }
}
