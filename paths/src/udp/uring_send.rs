// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs of many destinations, from the mapped file, in one submission to `io_uring`.
//!
//! A run is one range of the file, sent by `IORING_OP_SEND` and cut into datagrams by the kernel.
//! Costs one copy per byte, and one call for all due batches.
//!
//! Sources: `io_uring_enter(2)` (`IORING_OP_SEND`), `udp(7)` (`UDP_SEGMENT`), `mmap(2)`.
//!
//! Does not read mapped bytes. A cut file causes `EFAULT`; behind the cut, to the end of its page,
//! the kernel sends zeroes ([`crate::MappedFile`]).

use std::os::fd::AsFd;

use crate::batch::{Batch, CursorPosition};
use crate::error::{Errno, Error};
use crate::file_datagrams::FileDatagrams;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{SegmentRun, SendFailure};
use crate::submission::{QueueFailure, QueuedSend, RunQueuer, RunToQueue, Submission};
use crate::sys::{Queue, Ring};

pub(crate) static SPEC: Spec = Spec {
    name: "uring_send",
    transport: Transport::Udp,
    summary: "mapped file, the segmented sends of all destinations in one submission",
    copies_per_byte: 1,
    header_copies: 0,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["io_uring_enter(2) IORING_OP_SEND", "udp(7) UDP_SEGMENT", "mmap(2)"],
    probe: |host| host.needs_io_uring(),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || {
            let ring = Ring::new().map_err(Error::ring)?;
            Ok(Box::new(Submission::new(ring, Mapped)))
        },
    },
};

/// A run as one range of the map.
struct Mapped;

const CALL: &str = "io_uring send";

impl RunQueuer for Mapped {
    fn lay<'data>(
        &mut self,
        queue: &mut Queue<'_, 'data>,
        part: &RunToQueue<'data>,
    ) -> Result<Option<QueuedSend>, QueueFailure> {
        let range = FileDatagrams::of(part.batch).range(part.batch, part.run);
        let map = range.map().map_err(|failure| QueueFailure::of(failure, part.to))?;
        queue.abandon();
        queue.gather().mapped(map, range.offset, range.bytes);
        let send = queue.send(part.to.as_fd());
        Ok(Some(QueuedSend { packets: part.run.packets, after: part.start, read: None, send }))
    }

    fn refused(
        &self,
        batch: &Batch<'_>,
        (run, _): (SegmentRun, CursorPosition),
        errno: Errno,
        stats: &mut SendStats,
    ) -> SendFailure {
        FileDatagrams::of(batch).range(batch, run).refused(CALL, errno, stats)
    }
}
