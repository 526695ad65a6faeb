// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mapped file, one `writev` of header and payload of every packet of a batch.
//!
//! Costs one copy a byte and one call a batch of up to 512 packets. The header of a packet is the
//! frame's four bytes and RTP's twelve.
//!
//! Sources: RFC 2326 §10.12, `mmap(2)`, `writev(2)`.
//!
//! Does not read mapped bytes.

use std::os::fd::AsFd;

use super::{InterleavedOutput, InterleavedPath, count_accepted, read_rest, refusal};
use crate::batch::Batch;
use crate::error::SendError;
use crate::rtp::gathered::{CALL, GatheredPackets, gather};
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport};
use crate::stream_path::{SegmentRun, SendFailure};
use crate::sys::Scratch;

pub(crate) static SPEC: Spec = Spec {
    name: "framed_writev",
    transport: Transport::Interleaved,
    summary: "mapped file, headers and payloads of a batch gathered into one writev",
    copies_per_byte: 1,
    header_copies: 1,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["RFC 2326 §10.12", "mmap(2)", "writev(2)"],
    probe: |_| Ok(()),
    open: Open::Interleaved {
        feed: Feed::Gathered,
        open: || Ok(Box::new(FramedWritev { scratch: Scratch::new() })),
    },
};

struct FramedWritev {
    scratch: Scratch,
}

impl InterleavedPath for FramedWritev {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut InterleavedOutput,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        batch.assert_sound();
        to.flush(stats)?;
        let packets = GatheredPackets::of(batch);
        let mut wanted = batch.packets;
        while wanted > 0 {
            let run = SegmentRun { first: 0, packets: wanted };
            match self.send_run(&packets, run, to, stats) {
                Ok(sent) => {
                    let (count, cut) = count_accepted(batch, sent, stats);
                    if cut > 0 {
                        keep_rest(&packets, batch, (count - 1, cut), to, stats);
                    }
                    return Ok(count);
                }
                Err(SendFailure::Cut { at, whole: 0 }) => return Err(SendError::Shrunk { at }),
                Err(SendFailure::Cut { whole, .. }) => wanted = whole,
                Err(SendFailure::Refused { call, errno }) => {
                    return Err(refusal(call, errno, to, stats));
                }
                Err(SendFailure::InPieces) => unreachable!("a stream has no pieces"),
            }
        }
        Ok(0)
    }
}

impl FramedWritev {
    /// Sends `run`, or as many of its bytes as the list holds and the socket accepts; returns the
    /// bytes sent.
    fn send_run(
        &mut self,
        packets: &GatheredPackets<'_>,
        run: SegmentRun,
        to: &InterleavedOutput,
        stats: &mut SendStats,
    ) -> Result<u64, SendFailure> {
        let map = packets.source.mapped();
        let map = map.map_err(|errno| SendFailure::Refused { call: "mmap", errno })?;
        let mut list = self.scratch.gather();
        let start = packets.start();
        let listed = match gather(packets, map, &mut list, run, start) {
            Ok((listed, _)) => listed,
            // Packets before the cut are sent; the call after them reports it.
            Err(failure) => return Err(failure),
        };
        match list.send(to.as_fd(), stats) {
            Ok(sent) => Ok(sent as u64),
            Err(errno) => {
                let run = SegmentRun { packets: listed, ..run };
                Err(packets.refused((CALL, errno), run, start, stats))
            }
        }
    }
}

/// Keeps packet `packet` from byte `cut` on.
fn keep_rest(
    packets: &GatheredPackets<'_>,
    batch: &Batch<'_>,
    (packet, cut): (u32, u64),
    to: &mut InterleavedOutput,
    stats: &mut SendStats,
) {
    let mut cursor = packets.start();
    for before in 0..packet {
        cursor.take(packets.payload_bytes(before), |_| ());
    }
    let mut whole = Vec::with_capacity(batch.run_bytes(packet, 1) as usize);
    whole.extend_from_slice(packets.head(packet));
    cursor.take(packets.payload_bytes(packet), |piece| {
        let from = whole.len();
        whole.resize(from + piece.bytes as usize, 0);
        // Headers and bytes before the cut are not needed, but are read as well: one packet at
        // most.
        read_rest(packets.source, &mut whole[from..], piece.offset, stats);
    });
    to.keep(&whole[cut as usize..]);
}
