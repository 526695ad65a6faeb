// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapped file, all packets of a batch as messages of one call.
//!
//! It separates the cost of system calls from the work per packet: against `mmap_send` it saves
//! only the calls, because each message still passes through the kernel alone. Costs one copy per
//! byte and one call per batch of up to 1,024 packets.
//!
//! Sources: `sendmmsg(2)`, `mmap(2)`.
//!
//! Does not use UDP segmentation, and does not report why a message in the middle was refused: the
//! kernel does not return that reason, and the caller sends the rest again.

use std::os::fd::AsFd;

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::SendError;
use crate::file_datagrams::FileDatagrams;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SegmentRun, StreamPath, send_runs};
use crate::sys::Outbox;

pub(crate) static SPEC: Spec = Spec {
    name: "sendmmsg",
    transport: Transport::Udp,
    summary: "mapped file, all packets of a batch as messages of one sendmmsg",
    copies_per_byte: 1,
    header_copies: 0,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["sendmmsg(2)", "mmap(2)"],
    probe: |host| host.needs_kernel(3, 0),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(Sendmmsg { outbox: Outbox::new() })),
    },
};

struct Sendmmsg {
    outbox: Outbox,
}

impl StreamPath for Sendmmsg {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let datagrams = FileDatagrams::of(batch);
        send_runs(batch, PacketsPerCall::Batch, to, stats, |run, to, stats| {
            let range = datagrams.range(batch, run);
            let map = range.map()?;
            let mut messages = self.outbox.open();
            for first in run.first..run.first + run.packets {
                let packet = datagrams.range(batch, SegmentRun { first, packets: 1 });
                if !messages.begin() || !messages.mapped(map, packet.offset, packet.bytes) {
                    break;
                }
            }
            let sent = messages.send(to.as_fd(), stats);
            // There are no more messages than packets, whose number is a u32.
            sent.map(|sent| sent as u32).map_err(|errno| range.refused("sendmmsg", errno, stats))
        })
    }
}
