// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapped file, all packets of a batch as messages of one call, each of a header and a payload.
//!
//! It separates the cost of system calls from the work per packet: against `mmap_writev` it saves
//! only the calls, because each message still passes through the kernel alone. Costs one copy per
//! byte and one call per batch of up to 1,024 packets (and 8,192 pieces, headers included).
//!
//! Sources: `sendmmsg(2)`, `mmap(2)`.
//!
//! Does not use UDP segmentation, and does not report why a message in the middle was refused: the
//! kernel does not return that reason, and the caller sends the rest again.

use std::os::fd::AsFd;

use crate::batch::{Batch, Cursor};
use crate::destination::Destination;
use crate::error::{Errno, SendError};
use crate::rtp::gathered::GatheredPackets;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SegmentRun, SendFailure, StreamPath, send_runs};
use crate::sys::{FileMap, Outbox};

pub(crate) static SPEC: Spec = Spec {
    name: "mmap_sendmmsg",
    transport: Transport::Rtp,
    summary: "mapped file, all packets of a batch as messages of one sendmmsg",
    copies_per_byte: 1,
    header_copies: 1,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["sendmmsg(2)", "mmap(2)"],
    probe: |host| host.needs_kernel(3, 0),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(MmapSendmmsg { outbox: Outbox::new() })),
    },
};

const CALL: &str = "sendmmsg";

struct MmapSendmmsg {
    outbox: Outbox,
}

impl MmapSendmmsg {
    /// Sends `run`, or as many of its packets as call and socket accept; returns their number.
    fn send_run<'a>(
        &mut self,
        packets: &GatheredPackets<'a>,
        map: &FileMap,
        (run, start): (SegmentRun, Cursor<'a>),
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendFailure> {
        let mut messages = self.outbox.open();
        let mut cursor = start;
        let mut listed = 0;
        while listed < run.packets && messages.begin() {
            let packet = run.first + listed;
            let head = packets.head(packet);
            let fits = (head.is_empty() || messages.bytes(head))
                & packets.take_mapped(map, &mut cursor, (packet, listed), |piece| {
                    messages.mapped(map, piece.offset, piece.bytes)
                })?;
            if !fits {
                messages.withdraw();
                break;
            }
            listed += 1;
        }
        if listed == 0 {
            return Err(SendFailure::Refused { call: CALL, errno: Errno::new(libc::E2BIG) });
        }
        match messages.send(to.as_fd(), stats) {
            // There are no more messages than packets, whose number is a u32.
            Ok(sent) => Ok(sent as u32),
            Err(errno) => Err(packets.refused((CALL, errno), run, start, stats)),
        }
    }
}

impl StreamPath for MmapSendmmsg {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let packets = GatheredPackets::of(batch);
        if batch.packets == 0 {
            return Ok(0);
        }
        let map = packets.map()?;
        let mut cursor = packets.start();
        send_runs(batch, PacketsPerCall::Batch, to, stats, |run, to, stats| {
            let sent = self.send_run(&packets, map, (run, cursor), to, stats)?;
            if sent < batch.packets {
                let accepted = run.first..run.first + sent;
                accepted.for_each(|packet| cursor.take(packets.payload_bytes(packet), |_| ()));
            }
            Ok(sent)
        })
    }
}
