// SPDX-License-Identifier: MIT OR Apache-2.0
//! `read_writev`: read the payload into a buffer, write header and buffer. The reference.
//!
//! What a plain program does, and what every other path is compared with. Costs two copies per byte
//! and two calls per packet (1,506 calls per megabyte at 1,328 bytes): 2.42 s/GB.
//!
//! A payload in several pieces (192-byte transport stream packets, of which 188 are sent) is read
//! in one call, gaps and all, when it lies within the buffer, and piece by piece otherwise.
//!
//! Sources: `pread(2)`, `writev(2)`.
//!
//! What it does not do: read ahead or keep what it read; a refused packet is read again.

use std::ops::Range;
use std::os::fd::AsFd;

use crate::batch::{Batch, Cursor, DATAGRAM_BYTES_MAX, Form, Piece};
use crate::destination::Destination;
use crate::error::{Errno, SendError};
use crate::media::Media;
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::{Setback, StreamPath, fill, send_runs};
use crate::sys::Scratch;
use crate::tally::Tally;

pub(crate) static SPEC: Spec = Spec {
    name: "read_writev",
    transport: Transport::Rtp,
    summary: "read into a buffer, writev of header and buffer per packet: the reference",
    copies_per_byte: 2,
    header_copies: 1,
    crossings: Crossings::PerPacket(2),
    sources: &["pread(2)", "writev(2)"],
    probe: |_| Ok(()),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(ReadWritev::new())),
    },
};

/// Room for the largest datagram's payload, with gaps of a fiftieth (4 bytes in 192) and to spare.
const BUFFER_BYTES: usize = 2 * DATAGRAM_BYTES_MAX as usize;

struct ReadWritev {
    buffer: Box<[u8]>,
    scratch: Scratch,
    /// The payload's ranges in the buffer.
    ranges: Vec<Range<usize>>,
}

impl ReadWritev {
    fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_BYTES].into(),
            scratch: Scratch::new(),
            ranges: Vec::with_capacity(16),
        }
    }

    /// Reads the next `payload_bytes` into the buffer and notes where its ranges lie.
    fn read<'c>(
        &mut self,
        media: &Media,
        start: Cursor<'c>,
        payload_bytes: u64,
        tally: &mut Tally,
    ) -> Result<Cursor<'c>, Setback> {
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
        if ascending && span.end - span.start <= self.buffer.len() as u64 {
            let bytes = (span.end - span.start) as usize;
            fill(media, &mut self.buffer[..bytes], span.start, tally)?;
            let mut again = start;
            again.take(payload_bytes, |piece| {
                let at = (piece.offset - span.start) as usize;
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
            fill(media, &mut self.buffer[at..end], offset, tally)?;
            left -= bytes;
            at = end;
        }
        self.ranges.push(0..at);
        Ok(cursor)
    }

    /// Sends `head` and what was read as one datagram.
    fn write(&mut self, head: &[u8], to: &Destination, tally: &mut Tally) -> Result<(), Setback> {
        let mut list = self.scratch.gather();
        let mut fits = head.is_empty() || list.bytes(head);
        for range in &self.ranges {
            fits = fits && list.bytes(&self.buffer[range.clone()]);
        }
        let sent = if fits { list.send(to.as_fd(), tally) } else { Err(Errno::new(libc::E2BIG)) };
        sent.map(|_| ()).map_err(|errno| Setback::Refused { call: "writev", errno })
    }
}

impl StreamPath for ReadWritev {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        tally: &mut Tally,
    ) -> Result<u32, SendError> {
        let Form::Gathered { media, heads, pieces } = batch.form else {
            panic!("read_writev is fed gathered batches");
        };
        let head_bytes = heads.len() / batch.packets.max(1) as usize;
        let mut cursor = Cursor::new(pieces);
        send_runs(batch, false, to, tally, |run, to, tally| {
            let at = run.first as usize * head_bytes;
            let payload_bytes = batch.run_bytes(run.first, 1) - head_bytes as u64;
            let after = self.read(media, cursor, payload_bytes, tally)?;
            self.write(&heads[at..at + head_bytes], to, tally)?;
            cursor = after;
            Ok(1)
        })
    }
}
