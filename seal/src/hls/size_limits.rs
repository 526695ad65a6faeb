// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits on a film's folder: the bytes on disk, and the extracts of its stream.
//!
//! The stream determines how often its packets are copied: each programme and each further sound is
//! an extract, and programmes may share PIDs. So a folder is made only up to [`TIMES_MAX`] times
//! the stream's own size.
//!
//! Does not compute sizes (`disk_size` does).

/// Largest folder, in sizes of its stream. The whole stream is one; programmes that share nothing
/// are together one more, their further sounds less than a third. Four programmes with pictures in
/// common make six at most; eleven regional ones of the same PIDs share segments and count once.
pub(super) const TIMES_MAX: u64 = 6;
/// Bytes allowed besides: the blocks of files outweigh a short film.
const SPARE_BYTES: u64 = 1 << 20;
/// Most extracts of one stream. A transponder of radio has about seventy programmes, of television
/// twenty with about three sounds each. Each costs about 20 KiB and a look at every packet.
pub(super) const PARTS_MAX: usize = 256;

/// Returns the most bytes that a folder of a stream of `source_bytes` may occupy.
pub(super) fn limit(source_bytes: u64) -> u64 {
    source_bytes.saturating_mul(TIMES_MAX).saturating_add(SPARE_BYTES)
}
