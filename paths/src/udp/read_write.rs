// SPDX-License-Identifier: MIT OR Apache-2.0
//! Read a datagram's bytes into a buffer, send the buffer. The reference.
//!
//! The method of a plain program: `read_write` of table 1-A of the data-paths paper (2n copies, n
//! reads and n writes). Costs two copies per byte and two calls per packet.
//!
//! Sources: `pread(2)`, `send(2)`.
//!
//! Does not read ahead or keep read bytes; a refused packet is read again.

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::SendError;
use crate::file_datagrams::{CopySender, FileDatagrams};
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, StreamPath, send_runs};

pub(crate) static SPEC: Spec = Spec {
    name: "read_write",
    transport: Transport::Udp,
    summary: "read a packet into a buffer, send the buffer: the reference for datagrams",
    copies_per_byte: 2,
    header_copies: 0,
    system_calls: SystemCalls::PerPacket(2),
    sources: &["pread(2)", "send(2)"],
    probe: |_| Ok(()),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(ReadWrite { copy_sender: CopySender::new() })),
    },
};

struct ReadWrite {
    copy_sender: CopySender,
}

impl StreamPath for ReadWrite {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let datagrams = FileDatagrams::of(batch);
        send_runs(batch, PacketsPerCall::One, to, stats, |run, to, stats| {
            self.copy_sender.send(datagrams.range(batch, run), to, stats).map(|()| run.packets)
        })
    }
}
