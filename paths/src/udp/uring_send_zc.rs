// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file read into registered buffers and sent from there without a copy, all in one submission
//! to `io_uring`.
//!
//! A read of up to 64 KiB is linked to the sends of the runs in it; the runs of several
//! destinations share a buffer, each from a page's beginning. Costs one copy per byte, the read,
//! and one call for all due batches. `uring_send` copies from the file's mapping to the socket's
//! buffers; this path copies from the page cache to its own buffers, to which the socket then
//! refers.
//!
//! It does not send from the mapped file, because the kernel registers only memory that it may
//! write to (`FOLL_WRITE`; Linux 6.18 answers `EFAULT` for a file mapped to be read, shared or
//! private).
//!
//! A buffer is in use until the kernel's notification. When all but one are, runs are copied from
//! the last (two copies per byte), so that a network that holds packets delays no other; these
//! copies are counted, and so are those of the kernel itself: on loopback everything.
//!
//! Sources: `io_uring_enter(2)` (`IORING_OP_SEND_ZC`, Linux 6.0; `IORING_OP_READ_FIXED`),
//! `io_uring_register(2)` (`IORING_REGISTER_BUFFERS`); Linux 6.18 `io_uring/rsrc.c`.
//!
//! Does not wait until the packets have left. A read of pages that are not in the page cache waits
//! for the disk, or for a worker of the kernel where the file system does not support non-blocking
//! reads.

use std::os::fd::AsFd;

use crate::batch::{Batch, CursorPosition};
use crate::error::{Errno, Error, SendError};
use crate::file_datagrams::{FileDatagrams, RunRange};
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{SegmentRun, SendFailure};
use crate::submission::{QueueFailure, QueuedSend, RunQueuer, RunToQueue, Submission};
use crate::sys::{self, Queue, Ring};

pub(crate) static SPEC: Spec = Spec {
    name: "uring_send_zc",
    transport: Transport::Udp,
    summary: "read into registered buffers, which segmented sends refer to; one submission for all",
    copies_per_byte: 1,
    header_copies: 0,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["io_uring_enter(2) IORING_OP_SEND_ZC", "io_uring_register(2)"],
    probe: |host| host.needs_io_uring_zero_copy(),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || {
            let mut ring = Ring::with_pool(BUFFERS, BUFFER_BYTES).map_err(Error::ring)?;
            ring.register().map_err(Error::registered)?;
            let page_bytes = sys::page_bytes() as usize;
            let layout = Registered { page_bytes, chunk: None, open: None };
            Ok(Box::new(Submission::new(ring, layout)))
        },
    },
};

/// Bytes of a buffer: those of the longest run, so that a run has at most 16 fragments.
const BUFFER_BYTES: usize = 64 * 1024;

/// 1 MiB in flight, and one to copy from.
const BUFFERS: u16 = 17;

/// Runs in buffers that are read into.
struct Registered {
    page_bytes: usize,
    /// The chunk that may hold the destination's next run.
    chunk: Option<Chunk>,
    /// The buffer of the submission that still has room.
    open: Option<Room>,
}

/// Packets that are read in one piece.
#[derive(Clone, Copy)]
struct Chunk {
    room: Room,
    first: u32,
    end: u32,
}

/// A buffer, from its byte `at` on.
#[derive(Clone, Copy)]
struct Room {
    buffer: u16,
    at: usize,
    zero_copy: bool,
}

impl Registered {
    /// Finds space for `bytes` bytes: behind earlier reads, or in a new buffer.
    fn room(&mut self, bytes: usize, queue: &mut Queue<'_, '_>, copy: bool) -> Option<Room> {
        let zero_copy = !copy && queue.can_fly();
        let fits = |room: &Room| room.at + bytes <= BUFFER_BYTES && room.zero_copy == zero_copy;
        if let Some(room) = self.open.filter(fits) {
            return Some(room);
        }
        let referred = if zero_copy { queue.take(1) } else { None };
        match referred {
            Some(buffer) => Some(Room { buffer, at: 0, zero_copy }),
            // The buffers of this submission may be free after it.
            None if zero_copy && !queue.is_empty() => None,
            None => Some(Room { buffer: queue.take(0)?, at: 0, zero_copy: false }),
        }
    }

    /// Queues the read of the packets from `part.run` on that fit a buffer; `None` when there is
    /// no buffer.
    fn read<'data>(
        &mut self,
        queue: &mut Queue<'_, 'data>,
        part: &RunToQueue<'data>,
    ) -> Option<(Chunk, (u32, u32))> {
        let RunToQueue { batch, run: SegmentRun { first, .. }, .. } = *part;
        let fit = BUFFER_BYTES as u32 / batch.segment_bytes;
        let end = part.end.min(first.saturating_add(fit));
        // The value is no more than the buffer's size.
        let bytes = batch.run_bytes(first, end - first) as u32;
        let room = self.room(bytes as usize, queue, part.copy)?;
        let RunRange { source, offset, .. } =
            FileDatagrams::of(batch).range(batch, SegmentRun { first, packets: 1 });
        let read = queue.read(source.file(), offset, room.buffer, (room.at, bytes));
        queue.link(read);
        let at = (room.at + bytes as usize).next_multiple_of(self.page_bytes);
        self.open = Some(Room { at, ..room });
        Some((Chunk { room, first, end }, (read, bytes)))
    }
}

impl RunQueuer for Registered {
    fn begin(&mut self, queue: &Queue<'_, '_>) {
        self.chunk = None;
        if queue.is_empty() {
            self.open = None;
        }
    }

    fn lay<'data>(
        &mut self,
        queue: &mut Queue<'_, 'data>,
        part: &RunToQueue<'data>,
    ) -> Result<Option<QueuedSend>, QueueFailure> {
        let RunToQueue { batch, run, start, .. } = *part;
        let (chunk, read) = match self.chunk {
            Some(chunk) if run.first < chunk.end => (chunk, None),
            _ => match self.read(queue, part) {
                Some((chunk, read)) => (chunk, Some(read)),
                None => return Ok(None),
            },
        };
        self.chunk = Some(chunk);
        let packets = run.packets.min(chunk.end - run.first);
        let Room { buffer, at, zero_copy } = chunk.room;
        let at = at + batch.run_bytes(chunk.first, run.first - chunk.first) as usize;
        let bytes = batch.run_bytes(run.first, packets) as u32;
        let zero_copy = zero_copy && queue.can_fly();
        let send = queue.send_pooled(part.to.as_fd(), buffer, (at, bytes), zero_copy);
        Ok(Some(QueuedSend { packets, after: start, read, send }))
    }

    fn refused(
        &self,
        _: &Batch<'_>,
        _: (SegmentRun, CursorPosition),
        errno: Errno,
        _: &mut SendStats,
    ) -> SendFailure {
        SendFailure::Refused { call: "io_uring send_zc", errno }
    }

    fn unread(
        &self,
        batch: &Batch<'_>,
        rest: SegmentRun,
        errno: Errno,
        stats: &mut SendStats,
    ) -> Result<SendFailure, SendError> {
        let range = FileDatagrams::of(batch).range(batch, rest);
        let source = range.source;
        let at = source.size_now(stats).map_err(|errno| source.host("statx", errno))?;
        if at < range.offset.saturating_add(range.bytes) {
            return Ok(range.cut(at));
        }
        Err(source.host("io_uring read", errno))
    }
}
