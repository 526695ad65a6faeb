// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapped file, header and payload of a whole run gathered into one call; `mmap_writev`: the
//! same for each packet.
//!
//! The path for a stream without a wire image (yet): it sends from the asset itself, so each
//! session may have headers of its own. Costs one copy per byte and one call per run of up to 49
//! packets of 1,328 bytes (15 calls per megabyte); 0.43 to 0.51 s/GB where `read_writev` cost 2.42
//! (software segmentation).
//!
//! A batch with a departure time is sent by `sendmsg` with a control message (`SCM_TXTIME`) instead
//! of `writev`: the same work, and one time for a run. A wire image's `sendfile` has no control
//! messages, so streams with departure times are sent by this path from the asset: one copy more.
//!
//! Sources: `udp(7)` (`UDP_SEGMENT`, Linux 4.18), `writev(2)`, `sendmsg(2)`, `mmap(2)`.
//!
//! Does not avoid the copy: `MSG_ZEROCOPY` was measured without a gain; it is limited to 17 page
//! fragments and copies on loopback.

use std::os::fd::AsFd;

use crate::batch::{Batch, Cursor};
use crate::departure::Departure;
use crate::destination::Destination;
use crate::error::SendError;
use crate::rtp::gathered::{CALL, GatheredPackets, gather};
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SegmentRun, SendFailure, StreamPath, send_runs};
use crate::sys::{FileMap, Scratch};

pub(crate) static SPEC: Spec = Spec {
    name: "mmap_gso",
    transport: Transport::Rtp,
    summary: "mapped file, headers and payloads of a run gathered into one segmented send",
    copies_per_byte: 1,
    header_copies: 1,
    system_calls: SystemCalls::PerRun(1),
    sources: &["udp(7) UDP_SEGMENT", "writev(2)", "mmap(2)"],
    probe: |host| host.needs_kernel(4, 18),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(MappedGather::new(PacketsPerCall::Run))),
    },
};

/// One `writev` of header and payload per packet. It separates two savings: against `read_writev`
/// it saves the read and its copy, and `mmap_gso` saves the system calls as well. Costs one copy
/// per byte and one call per packet (753 calls per megabyte at 1,328 bytes); 1.73 s/GB where
/// `read_writev` cost 2.42 (software segmentation). Works on any kernel and device.
pub(crate) static MMAP_WRITEV: Spec = Spec {
    name: "mmap_writev",
    transport: Transport::Rtp,
    summary: "mapped file, one writev of header and payload per packet",
    copies_per_byte: 1,
    header_copies: 1,
    system_calls: SystemCalls::PerPacket(1),
    sources: &["mmap(2)", "writev(2)"],
    probe: |_| Ok(()),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(MappedGather::new(PacketsPerCall::One))),
    },
};

/// Sends a gathered batch over the mapped file.
struct MappedGather {
    per_call: PacketsPerCall,
    scratch: Scratch,
}

impl MappedGather {
    fn new(per_call: PacketsPerCall) -> Self {
        Self { per_call, scratch: Scratch::new() }
    }
}

impl StreamPath for MappedGather {
    fn carries_departures(&self) -> bool {
        true
    }

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
        send_runs(batch, self.per_call, to, stats, |run, to, stats| {
            let at = batch.departure;
            let (sent, after) =
                send_run(&packets, map, &mut self.scratch, (run, cursor, at), to, stats)?;
            cursor = after;
            Ok(sent)
        })
    }
}

/// Sends `run`, or as many of its packets as the list holds; returns their number and the position
/// of the payload after them.
fn send_run<'a>(
    packets: &GatheredPackets<'a>,
    map: &'a FileMap,
    scratch: &mut Scratch,
    (run, start, departure): (SegmentRun, Cursor<'a>, Option<Departure>),
    to: &Destination,
    stats: &mut SendStats,
) -> Result<(u32, Cursor<'a>), SendFailure> {
    let mut list = scratch.gather();
    let (listed, cursor) = gather(packets, map, &mut list, run, start)?;
    let sent = match departure.filter(|_| to.has_departures()) {
        Some(at) => list.send_at(to.as_fd(), at.ns(), stats),
        None => list.send(to.as_fd(), stats),
    };
    match sent {
        Ok(_) => Ok((listed, cursor)),
        Err(errno) => Err(packets.refused((CALL, errno), run, start, stats)),
    }
}
