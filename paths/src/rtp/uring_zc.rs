// SPDX-License-Identifier: MIT OR Apache-2.0
//! `uring` with references to the pages of the mapped file instead of a copy.
//!
//! Costs no copy and one call per burst. Headers are copied within the program, into buffers that
//! stay unchanged until the kernel's notification; the pages of the file are the page cache's own,
//! so a page that is overwritten before it has left is sent with its new content.
//!
//! A socket buffer refers to at most 17 ranges of pages (`MAX_SKB_FRAGS`), and a packet needs two
//! or three: its header, and a payload that lies in one page or two. So a run has 5 to 8 packets of
//! 1,328 bytes where `uring` sends 49, and the pages are looked up and held one by one. That costs
//! more than the copies it saves: 64 sessions of 10 packets 6.1 µs each where the device segments
//! (`uring` 4.0), 9.3 where it does not (6.6).
//!
//! Some bytes are copied, and counted: a packet that alone needs more than 17 ranges; runs for
//! which the kernel may hold no more memory (`RLIMIT_MEMLOCK`); and all while over 1,000 runs are
//! still held. The kernel reports its own copies, for a device without scatter-gather or checksums
//! and on loopback always.
//!
//! Sources: `io_uring_enter(2)` (`IORING_OP_SENDMSG_ZC`, Linux 6.1); Linux 6.18
//! `net/core/datagram.c` (`zerocopy_fill_skb_from_iter`), `io_uring/notif.c`.
//!
//! Does not wait until the packets have left.

use std::os::fd::AsFd;

use crate::batch::{Batch, Cursor, CursorPosition, Piece};
use crate::error::{Errno, Error};
use crate::rtp::gathered::GatheredPackets;
use crate::rtp::uring::Gathered;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{SegmentRun, SendFailure};
use crate::submission::{QueueFailure, QueuedSend, RunQueuer, RunToQueue, Submission};
use crate::sys::{self, Queue, Ring};

pub(crate) static SPEC: Spec = Spec {
    name: "uring_zc",
    transport: Transport::Rtp,
    summary: "as uring, the mapped file's pages referred to and not copied; runs of 17 fragments",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["io_uring_enter(2) IORING_OP_SENDMSG_ZC", "udp(7) UDP_SEGMENT"],
    probe: |host| host.needs_io_uring_zero_copy(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || {
            let ring = Ring::with_pool(RUNS_HELD_MAX, HEADS_BYTES_MAX).map_err(Error::ring)?;
            let layout = Referred { page_bytes: sys::page_bytes() };
            Ok(Box::new(Submission::new(ring, layout)))
        },
    },
};

/// Runs whose headers are kept until the kernel has released them.
const RUNS_HELD_MAX: u16 = 1024;

/// Bytes for the headers of a run: RTP's, with extensions, of 8 packets and more. A power of two
/// below a page, so that no header lies in two pages.
const HEADS_BYTES_MAX: usize = 256;

/// The lowest value of Linux's `MAX_SKB_FRAGS`.
const FRAGMENTS_MAX: u64 = 17;

/// Headers in the ring's pool and payloads in the map, as one message that is not copied.
struct Referred {
    page_bytes: u64,
}

impl Referred {
    /// Returns the number of pages that a range of the map touches.
    fn pages(&self, piece: Piece) -> u64 {
        (piece.offset % self.page_bytes + piece.bytes).div_ceil(self.page_bytes)
    }

    /// Returns the number of fragments of a packet whose payload begins at `cursor`.
    fn fragments(&self, packets: &GatheredPackets<'_>, packet: u32, mut cursor: Cursor<'_>) -> u64 {
        let mut fragments = u64::from(packets.head_bytes() > 0);
        cursor.take(packets.payload_bytes(packet), |piece| fragments += self.pages(piece));
        fragments
    }

    /// Gathers as much of `run` as one message can refer to, its headers in `buffer`; returns the
    /// number of packets, and the position of the payload after them.
    fn gather<'data>(
        &self,
        queue: &mut Queue<'_, 'data>,
        buffer: u16,
        packets: &GatheredPackets<'data>,
        part: &RunToQueue<'data>,
    ) -> Result<(u32, Cursor<'data>), QueueFailure> {
        let map = packets.map().map_err(QueueFailure::Over)?;
        let head_bytes = packets.head_bytes();
        let (mut cursor, mut listed, mut fragments) = (packets.at(part.start), 0, 0);
        while listed < part.run.packets {
            let packet = part.run.first + listed;
            fragments += self.fragments(packets, packet, cursor);
            let at = listed as usize * head_bytes;
            if fragments > FRAGMENTS_MAX || at + head_bytes > HEADS_BYTES_MAX {
                break;
            }
            if head_bytes > 0 {
                queue.keep(buffer, at, packets.head(packet));
            }
            let mut message = queue.gather();
            let result = packets.take_mapped(map, &mut cursor, (packet, listed), |piece| {
                message.mapped(map, piece.offset, piece.bytes)
            });
            result.map_err(|failure| QueueFailure::of(failure, part.to))?;
            listed += 1;
        }
        Ok((listed, cursor))
    }
}

impl RunQueuer for Referred {
    fn lay<'data>(
        &mut self,
        queue: &mut Queue<'_, 'data>,
        part: &RunToQueue<'data>,
    ) -> Result<Option<QueuedSend>, QueueFailure> {
        let held = if part.copy || !queue.can_fly() { None } else { queue.take(0) };
        let Some(buffer) = held else { return Gathered.lay(queue, part) };
        let packets = GatheredPackets::of(part.batch);
        queue.abandon();
        let (listed, after) = self.gather(queue, buffer, &packets, part)?;
        if listed == 0 {
            let run = SegmentRun { packets: 1, ..part.run };
            return Gathered.lay(queue, &RunToQueue { run, ..*part });
        }
        let send = queue.send_zero_copy(part.to.as_fd(), buffer);
        Ok(Some(QueuedSend { packets: listed, after: packets.mark(after), read: None, send }))
    }

    fn refused(
        &self,
        batch: &Batch<'_>,
        run: (SegmentRun, CursorPosition),
        errno: Errno,
        stats: &mut SendStats,
    ) -> SendFailure {
        Gathered.refused(batch, run, errno, stats)
    }
}
