// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams that lie in a file one after the other: their ranges, and the copy of a lone one.
//!
//! Shared by `rtp/wire_sendfile` and the paths of `udp/`. A path queries the range of a run, makes
//! one call for it, and has a refusal interpreted here.
//!
//! Some datagrams are read into a buffer and sent instead ([`CopySender`]), at two calls and two
//! copies: a datagram that is sent alone and crosses a page border at an odd byte. Where the device
//! computes no checksums, or the datagram needs two steps, the kernel (from 6.5 on; 6.18.44 still,
//! 6.12.117 no longer) adds the pages' sums as if each page began at an even byte, and the peer
//! drops the packet. `skb_splice_from_iter` counts a page in `skb->len` only after all are added.
//! Segmented runs are not affected. Nor is MPEG transport stream: its packets have an even length.
//!
//! Sources: Linux 6.18 `net/core/skbuff.c` (`skb_splice_from_iter`).
//!
//! Does not send, apart from that copy.

use std::os::fd::AsFd;

use crate::batch::{Batch, BatchForm, DATAGRAM_BYTES_MAX};
use crate::destination::Destination;
use crate::error::Errno;
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::stream_path::{SegmentRun, SendFailure, fill};
use crate::sys::{self, FileMap};

/// Pages that pass through a pipe in one step: `PIPE_DEF_BUFFERS` of Linux.
pub(crate) const PIPE_PAGES: u64 = 16;

/// A batch of datagrams in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileDatagrams<'a> {
    pub(crate) source: &'a MappedFile,
    start: u64,
    segment_bytes: u64,
}

impl<'a> FileDatagrams<'a> {
    /// # Panics
    /// When the batch is gathered: [`crate::Feed`] names the form that each path requires.
    pub(crate) fn of(batch: &Batch<'a>) -> Self {
        let BatchForm::Image { source, offset: start } = batch.form else {
            panic!("this path is fed images");
        };
        Self { source, start, segment_bytes: batch.segment_bytes.into() }
    }

    /// Returns the range of the packets of a run.
    pub(crate) fn range(&self, batch: &Batch<'_>, run: SegmentRun) -> RunRange<'a> {
        let offset = self.start.saturating_add(batch.run_bytes(0, run.first));
        let bytes = batch.run_bytes(run.first, run.packets);
        RunRange { source: self.source, offset, bytes, segment_bytes: self.segment_bytes }
    }
}

/// A run's range of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunRange<'a> {
    pub(crate) source: &'a MappedFile,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) segment_bytes: u64,
}

impl<'a> RunRange<'a> {
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// Returns the number of its packets within a step of `pages` pages; at least one.
    pub(crate) fn packets_per_step(&self, pages: u64, page_bytes: u64) -> u32 {
        let bytes = pages * page_bytes - self.offset % page_bytes;
        u32::try_from(bytes / self.segment_bytes).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the number of pages that it touches.
    pub(crate) fn pages(&self, page_bytes: u64) -> u64 {
        (self.offset % page_bytes).saturating_add(self.bytes).div_ceil(page_bytes)
    }

    /// True when its second page begins at an odd byte of it.
    pub(crate) fn crosses_oddly(&self, page_bytes: u64) -> bool {
        crosses_oddly(self.offset, self.bytes, page_bytes)
    }

    /// Returns the map, when it covers the range.
    pub(crate) fn map(&self) -> Result<&'a FileMap, SendFailure> {
        let refused = |errno| SendFailure::Refused { call: "mmap", errno };
        let map = self.source.mapped().map_err(refused)?;
        match map.address(self.offset, self.bytes) {
            Some(_) => Ok(map),
            // The range exceeds the file's size at opening.
            None => Err(self.cut(self.source.bytes())),
        }
    }

    /// Returns the failure for a file that ends at `at`, within the range or before.
    pub(crate) fn cut(&self, at: u64) -> SendFailure {
        let whole = at.saturating_sub(self.offset) / self.segment_bytes;
        SendFailure::Cut { at, whole: u32::try_from(whole).unwrap_or(u32::MAX) }
    }

    /// Interprets a refusal of `call`: `EFAULT` for a page beyond the file's end means a cut; other
    /// errors are returned.
    pub(crate) fn refused(
        &self,
        call: &'static str,
        errno: Errno,
        stats: &mut SendStats,
    ) -> SendFailure {
        if errno.code() != libc::EFAULT {
            return SendFailure::Refused { call, errno };
        }
        match self.source.size_now(stats) {
            Ok(at) if at < self.end() => self.cut(at),
            Ok(_) => SendFailure::Refused { call, errno },
            Err(errno) => SendFailure::Refused { call: "statx", errno },
        }
    }
}

/// True when the second page of `bytes` bytes from `offset` on begins at an odd byte of them.
pub(crate) fn crosses_oddly(offset: u64, bytes: u64, page_bytes: u64) -> bool {
    let first_bytes = page_bytes - offset % page_bytes;
    !first_bytes.is_multiple_of(2) && first_bytes < bytes
}

/// A buffer for datagrams that are read and sent.
#[derive(Debug)]
pub(crate) struct CopySender(Box<[u8]>);

impl CopySender {
    pub(crate) fn new() -> Self {
        Self(vec![0; DATAGRAM_BYTES_MAX as usize].into())
    }

    /// Reads a single datagram into the buffer and sends it.
    pub(crate) fn send(
        &mut self,
        range: RunRange<'_>,
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<(), SendFailure> {
        let datagram = &mut self.0[..range.bytes as usize];
        fill(range.source, datagram, range.offset, stats)?;
        let sent = sys::send(to.as_fd(), datagram, stats);
        sent.map(|_| ()).map_err(|errno| SendFailure::Refused { call: "send", errno })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: u64 = 4096;

    fn range(source: &MappedFile, offset: u64, segment_bytes: u64) -> RunRange<'_> {
        RunRange { source, offset, bytes: 10 * segment_bytes, segment_bytes }
    }

    #[test]
    fn a_step_stays_within_its_pages() {
        let source = MappedFile::open(tempfile::tempfile().unwrap(), "a.wire").unwrap();
        let packets = |offset, segment_bytes, page_bytes| {
            range(&source, offset, segment_bytes).packets_per_step(PIPE_PAGES, page_bytes)
        };
        assert_eq!(packets(0, 1328, PAGE_BYTES), 49);
        assert_eq!(packets(464, 1328, PAGE_BYTES), 49);
        assert_eq!(packets(465, 1328, PAGE_BYTES), 48);
        assert_eq!(packets(4095, 1328, PAGE_BYTES), 46);
        assert_eq!(packets(4095, 65_507, PAGE_BYTES), 1);
        assert!(packets(65_535, 1, 65_536) > 900_000);
        let pages = |offset, bytes: u64| range(&source, offset, bytes / 10).pages(PAGE_BYTES);
        assert_eq!((pages(0, 4090), pages(10, 4090), pages(4095, 10)), (1, 2, 2));
    }

    #[test]
    fn only_odd_borders_inside_a_datagram_are_copied() {
        assert!(crosses_oddly(4001, 96, PAGE_BYTES));
        assert!(!crosses_oddly(4001, 95, PAGE_BYTES));
        assert!(!crosses_oddly(4000, 97, PAGE_BYTES));
        assert!(crosses_oddly(1, 4096, PAGE_BYTES));
        assert!(!crosses_oddly(0, 65_507, PAGE_BYTES));
    }

    #[test]
    fn packets_before_a_cut_are_whole() {
        let source = MappedFile::open(tempfile::tempfile().unwrap(), "a.wire").unwrap();
        let whole = |at| match range(&source, 1000, 100).cut(at) {
            SendFailure::Cut { whole, .. } => whole,
            other => panic!("{other:?}"),
        };
        assert_eq!([0, 1000, 1099, 1100, 1950].map(whole), [0, 0, 0, 1, 9]);
    }
}
