// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cork, send the header, send the payload from the mapped file, uncork.
//!
//! `mmap_send_rtp` of table 1-B of the data-paths paper (2n copies by its count, with the header as
//! one; 1 mmap, n cork, n send, n send and n uncork calls): the work of `mmap_writev`, which needs
//! one call. Costs one copy per byte and four calls per packet.
//!
//! Sources: `udp(7)` (`UDP_CORK`), `mmap(2)`, `send(2)`; a payload is gathered by `writev(2)`, in
//! one piece or in several: the call is the same to the kernel.
//!
//! Does not report the fate of the datagram once the cork is removed, and does not read mapped
//! bytes: see [`crate::MappedFile`].

use std::os::fd::AsFd;

use crate::batch::{Batch, Cursor};
use crate::destination::Destination;
use crate::error::{Errno, SendError};
use crate::rtp::corked::{corked, send_head};
use crate::rtp::gathered::GatheredPackets;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SegmentRun, SendFailure, StreamPath, send_runs};
use crate::sys::{FileMap, Scratch};

pub(crate) static SPEC: Spec = Spec {
    name: "mmap_send_rtp",
    transport: Transport::Rtp,
    summary: "mapped file; cork, send header, send payload, uncork per packet",
    copies_per_byte: 1,
    header_copies: 1,
    system_calls: SystemCalls::PerPacket(4),
    sources: &["udp(7) UDP_CORK", "mmap(2)", "send(2)"],
    probe: |_| Ok(()),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(MmapSendRtp { scratch: Scratch::new() })),
    },
};

const CALL: &str = "writev";

struct MmapSendRtp {
    scratch: Scratch,
}

impl MmapSendRtp {
    /// Sends the packet of `run`; returns the position of the payload after it.
    fn send_packet<'a>(
        &mut self,
        packets: &GatheredPackets<'a>,
        map: &FileMap,
        (run, start): (SegmentRun, Cursor<'a>),
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<Cursor<'a>, SendFailure> {
        let mut list = self.scratch.gather();
        let mut cursor = start;
        let fits = packets.take_mapped(map, &mut cursor, (run.first, 0), |piece| {
            list.mapped(map, piece.offset, piece.bytes)
        })?;
        if !fits {
            return Err(SendFailure::Refused { call: CALL, errno: Errno::new(libc::E2BIG) });
        }
        corked(to, stats, |stats| {
            send_head(packets.head(run.first), to, stats)?;
            if list.len() == 0 {
                return Ok(());
            }
            let sent = list.send(to.as_fd(), stats);
            sent.map(|_| ()).map_err(|errno| packets.refused((CALL, errno), run, start, stats))
        })?;
        Ok(cursor)
    }
}

impl StreamPath for MmapSendRtp {
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
        send_runs(batch, PacketsPerCall::One, to, stats, |run, to, stats| {
            cursor = self.send_packet(&packets, map, (run, cursor), to, stats)?;
            Ok(1)
        })
    }
}
