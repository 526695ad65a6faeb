// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gathered runs of many sessions in one submission to `io_uring`.
//!
//! Headers and payloads of a run are gathered, as by `mmap_gso`, from memory and the mapped file
//! into one segmented send; but a pacer's whole burst, all sessions that are due, goes to the
//! kernel in one call. Costs one copy per byte and one call per burst. With 8 to 256 sessions of 10
//! packets each a session costs 0.5 to 0.7 µs less than by `mmap_gso` (3.8 instead of 4.4 µs where
//! the device segments, 6.5 instead of 7.1 where it does not); with one session 0.5 µs more, and
//! with several runs a session, which are linked, the cost is equal.
//!
//! Sources: `io_uring_enter(2)`, `udp(7)` (`UDP_SEGMENT`), `mmap(2)`.
//!
//! Does not have the kernel poll for the submission (`SQPOLL`): that thread would use the same
//! time, hidden from the measurement.

use std::os::fd::AsFd;

use crate::batch::{Batch, CursorPosition};
use crate::error::{Errno, Error};
use crate::rtp::gathered::{GatheredPackets, gather};
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{SegmentRun, SendFailure};
use crate::submission::{QueueFailure, QueuedSend, RunQueuer, RunToQueue, Submission};
use crate::sys::{Queue, Ring};

pub(crate) static SPEC: Spec = Spec {
    name: "uring",
    transport: Transport::Rtp,
    summary: "mapped file, the gathered segmented sends of all sessions in one submission",
    copies_per_byte: 1,
    header_copies: 1,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["io_uring_enter(2)", "udp(7) UDP_SEGMENT", "mmap(2)"],
    probe: |host| host.needs_io_uring(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || {
            let ring = Ring::new().map_err(Error::ring)?;
            Ok(Box::new(Submission::new(ring, Gathered)))
        },
    },
};

/// Headers and payloads of a run as one message that is copied.
pub(super) struct Gathered;

const CALL: &str = "io_uring sendmsg";

impl RunQueuer for Gathered {
    fn lay<'data>(
        &mut self,
        queue: &mut Queue<'_, 'data>,
        part: &RunToQueue<'data>,
    ) -> Result<Option<QueuedSend>, QueueFailure> {
        let packets = GatheredPackets::of(part.batch);
        let map = packets.map().map_err(QueueFailure::Over)?;
        queue.abandon();
        let start = packets.at(part.start);
        match gather(&packets, map, &mut queue.gather(), part.run, start) {
            Ok((listed, after)) => {
                let (send, after) = (queue.send(part.to.as_fd()), packets.mark(after));
                Ok(Some(QueuedSend { packets: listed, after, read: None, send }))
            }
            Err(failure) => Err(QueueFailure::of(failure, part.to)),
        }
    }

    fn refused(
        &self,
        batch: &Batch<'_>,
        (run, start): (SegmentRun, CursorPosition),
        errno: Errno,
        stats: &mut SendStats,
    ) -> SendFailure {
        let packets = GatheredPackets::of(batch);
        packets.refused((CALL, errno), run, packets.at(start), stats)
    }
}
