// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet's payload read into a buffer, for the paths that read, and for the others where the
//! kernel would send a packet wrongly.
//!
//! A payload in several pieces (192-byte transport stream packets, of which 188 are sent) is read
//! in one call, gaps and all, when it lies within the buffer, and piece by piece otherwise.
//!
//! Sources: `pread(2)`, `writev(2)`.
//!
//! Does not read ahead or keep read bytes; a refused packet is read again.

use std::ops::Range;
use std::os::fd::AsFd;

use crate::batch::{Cursor, DATAGRAM_BYTES_MAX, Piece};
use crate::destination::Destination;
use crate::error::Errno;
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::stream_path::{SendFailure, fill};
use crate::sys::{self, Scratch};

/// Bytes for the largest datagram's payload, with gaps of a fiftieth (4 bytes in 192) and a
/// reserve.
const BUFFER_BYTES: usize = 2 * DATAGRAM_BYTES_MAX as usize;

/// A buffer and the payload read into it.
#[derive(Debug)]
pub(super) struct PayloadBuffer {
    buffer: Box<[u8]>,
    scratch: Scratch,
    /// The payload's ranges in the buffer.
    ranges: Vec<Range<usize>>,
}

impl PayloadBuffer {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_BYTES].into(),
            scratch: Scratch::new(),
            ranges: Vec::with_capacity(16),
        }
    }

    /// Reads the next `payload_bytes` into the buffer, from its byte `room` on, and records their
    /// ranges; returns the position of the payload after them.
    pub(super) fn read<'c>(
        &mut self,
        room: usize,
        source: &MappedFile,
        start: Cursor<'c>,
        payload_bytes: u64,
        stats: &mut SendStats,
    ) -> Result<Cursor<'c>, SendFailure> {
        let target = &mut self.buffer[room..];
        let mut cursor = start;
        let mut span: Option<Range<u64>> = None;
        let mut ascending = true;
        self.ranges.clear();
        cursor.take(payload_bytes, |piece| {
            let end = piece.offset.saturating_add(piece.bytes);
            let first = span.clone().unwrap_or(piece.offset..piece.offset);
            ascending = ascending && piece.offset >= first.end;
            span = Some(first.start..end);
        });
        let Some(span) = span else { return Ok(cursor) };
        if ascending && span.end - span.start <= target.len() as u64 {
            let bytes = (span.end - span.start) as usize;
            fill(source, &mut target[..bytes], span.start, stats)?;
            let mut again = start;
            again.take(payload_bytes, |piece| {
                let at = room + (piece.offset - span.start) as usize;
                self.ranges.push(at..at + piece.bytes as usize);
            });
            return Ok(cursor);
        }
        let mut again = start;
        let mut left = payload_bytes;
        let mut at = 0;
        while left > 0 {
            let Piece { offset, bytes } = again.next(left);
            let end = at + bytes as usize;
            fill(source, &mut target[at..end], offset, stats)?;
            left -= bytes;
            at = end;
        }
        self.ranges.push(room..room + at);
        Ok(cursor)
    }

    /// Sends `head` and the read payload as one datagram, gathered by the kernel.
    pub(super) fn write(
        &mut self,
        head: &[u8],
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<(), SendFailure> {
        let mut list = self.scratch.gather();
        let mut fits = head.is_empty() || list.bytes(head);
        for range in &self.ranges {
            fits = fits && list.bytes(&self.buffer[range.clone()]);
        }
        let sent = if fits { list.send(to.as_fd(), stats) } else { Err(Errno::new(libc::E2BIG)) };
        sent.map(|_| ()).map_err(|errno| SendFailure::Refused { call: "writev", errno })
    }

    /// Puts `head` into the room in front of the read payload, closes the gaps and sends the buffer
    /// as one datagram.
    pub(super) fn send(
        &mut self,
        head: &[u8],
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<(), SendFailure> {
        self.buffer[..head.len()].copy_from_slice(head);
        let mut end = head.len();
        for range in &self.ranges {
            if range.start != end {
                self.buffer.copy_within(range.clone(), end);
            }
            end += range.len();
        }
        let sent = sys::send(to.as_fd(), &self.buffer[..end], stats);
        sent.map(|_| ()).map_err(|errno| SendFailure::Refused { call: "send", errno })
    }
}
