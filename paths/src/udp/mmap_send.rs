// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapped file, one `send` per packet.
//!
//! `mmap_send` of table 1-A of the data-paths paper (n copies, 1 mmap and n sends): against
//! `read_write` it saves the read and its copy. Costs one copy per byte and one call per packet.
//!
//! Sources: `mmap(2)`, `send(2)`.
//!
//! Does not read mapped bytes. [`crate::MappedFile`] describes the consequence for a file that is
//! cut.

use std::os::fd::AsFd;

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::SendError;
use crate::file_datagrams::FileDatagrams;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, StreamPath, send_runs};
use crate::sys;

pub(crate) static SPEC: Spec = Spec {
    name: "mmap_send",
    transport: Transport::Udp,
    summary: "mapped file, one send per packet",
    copies_per_byte: 1,
    header_copies: 0,
    system_calls: SystemCalls::PerPacket(1),
    sources: &["mmap(2)", "send(2)"],
    probe: |_| Ok(()),
    open: Open::Stream { feed: Feed::Image, via: Via::Socket, open: || Ok(Box::new(MmapSend)) },
};

struct MmapSend;

impl StreamPath for MmapSend {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let datagrams = FileDatagrams::of(batch);
        send_runs(batch, PacketsPerCall::One, to, stats, |run, to, stats| {
            let range = datagrams.range(batch, run);
            let sent = sys::send_mapped(to.as_fd(), range.map()?, range.offset, range.bytes, stats);
            sent.map(|_| run.packets).map_err(|errno| range.refused("send", errno, stats))
        })
    }
}
