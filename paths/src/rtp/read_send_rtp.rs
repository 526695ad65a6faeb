// SPDX-License-Identifier: MIT OR Apache-2.0
//! Read the payload behind the header in one buffer, send the buffer.
//!
//! `read_send_rtp` of table 1-B of the data-paths paper (2n copies, n reads and n sends): against
//! `read_writev` the kernel has one range to gather instead of two. Costs two copies per byte and
//! two calls per packet. Moves within this program's memory do not count as copies: the header, and
//! the payload's pieces where there are gaps to close.
//!
//! Sources: `pread(2)`, `send(2)`.
//!
//! Does not read ahead or keep read bytes; a refused packet is read again.

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::SendError;
use crate::rtp::gathered::GatheredPackets;
use crate::rtp::payload_buffer::PayloadBuffer;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, StreamPath, send_runs};

pub(crate) static SPEC: Spec = Spec {
    name: "read_send_rtp",
    transport: Transport::Rtp,
    summary: "read behind the header in one buffer, send the buffer, per packet",
    copies_per_byte: 2,
    header_copies: 1,
    system_calls: SystemCalls::PerPacket(2),
    sources: &["pread(2)", "send(2)"],
    probe: |_| Ok(()),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(ReadSendRtp { reader: PayloadBuffer::new() })),
    },
};

struct ReadSendRtp {
    reader: PayloadBuffer,
}

impl StreamPath for ReadSendRtp {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let packets = GatheredPackets::of(batch);
        let mut cursor = packets.start();
        send_runs(batch, PacketsPerCall::One, to, stats, |run, to, stats| {
            let (head, bytes) = (packets.head(run.first), packets.payload_bytes(run.first));
            let after = self.reader.read(head.len(), packets.source, cursor, bytes, stats)?;
            self.reader.send(head, to, stats)?;
            cursor = after;
            Ok(1)
        })
    }
}
