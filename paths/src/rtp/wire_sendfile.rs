// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sendfile` of a whole run of the wire image, cut into datagrams by the kernel.
//!
//! The cheapest path of a stock kernel. Headers lie in the file between the payloads, so a run is
//! one range and nothing is copied: the socket refers to the page cache's pages. One call per run
//! of 46 to 49 packets of 1,328 bytes (16 calls per megabyte); 0.29 to 0.46 s/GB where
//! `read_writev` cost 2.42 (software segmentation).
//!
//! [`Sendfile`] also serves `udp/sendfile_gso` and `udp/sendfile`. The three differ in the content
//! of the file and in the number of packets a call carries.
//!
//! Runs stay whole. `sendfile` moves pages through a pipe of 16 and corks the socket in between
//! (`MSG_MORE`). A run that needs a 17th page is sent in two steps, and a signal or a full buffer
//! between them leaves a part corked, to which the kernel appends the next run. A run here
//! therefore never touches more than 16 pages: it is one step, sent whole or not at all. The pipe
//! is shorter for an unprivileged user who has more than 64 MiB of pipes open
//! (`pipe-user-pages-soft`), and some file systems read less at a time. A short count shows both:
//! the corked part is discarded, runs become shorter until they fit, and nothing is sent twice.
//!
//! After the file was cut, the kernel sends the bytes that are left (`splice_eof`): whole packets,
//! and the start of the packet at the cut as a short datagram. To hold that one back would cost a
//! further call per run.
//!
//! Lone datagrams that are copied: [`crate::file_datagrams`]. A datagram that the kernel accepts in
//! pieces is copied as well.
//!
//! Sources: `sendfile(2)`, `udp(7)` (`UDP_SEGMENT`); Linux 6.18 `fs/splice.c`
//! (`splice_direct_to_actor`, `splice_to_socket`), `net/ipv4/udp.c` (`udp_splice_eof`), commits
//! 2bfc66850952 and 7ac7c987850c (6.5).
//!
//! Does not run on kernels before 6.5: there `sendfile` passed pages to a UDP socket one by one,
//! IPv6 sent each as a datagram of its own and a file's end left the socket corked. Does not give a
//! session its own SSRC or sequence numbers: these are the image's. Does not carry departure times:
//! `sendfile` has no control messages, `splice` neither, and `MSG_SPLICE_PAGES` is not available to
//! user space; streams with departure times use `mmap_gso`.

use std::os::fd::AsFd;

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::{Errno, SendError};
use crate::file_datagrams::{CopySender, FileDatagrams, PIPE_PAGES, RunRange};
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SegmentRun, SendFailure, StreamPath, send_runs};
use crate::sys;

pub(crate) static SPEC: Spec = Spec {
    name: "wire_sendfile",
    transport: Transport::Rtp,
    summary: "wire image, sendfile of a run that the kernel cuts into datagrams; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerRun(1),
    sources: &["sendfile(2)", "udp(7) UDP_SEGMENT", "linux 6.18 fs/splice.c"],
    probe: |host| host.needs_kernel(6, 5),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(Sendfile::new(PacketsPerCall::Run))),
    },
};

/// `sendfile` of a run, or of each packet.
pub(crate) struct Sendfile {
    page_bytes: u64,
    per_call: PacketsPerCall,
    /// Sender of datagrams that the kernel would sum wrongly.
    copy_sender: CopySender,
}

impl Sendfile {
    pub(crate) fn new(per_call: PacketsPerCall) -> Self {
        Self { page_bytes: sys::page_bytes(), per_call, copy_sender: CopySender::new() }
    }
}

impl StreamPath for Sendfile {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let Self { page_bytes, per_call, ref mut copy_sender } = *self;
        let datagrams = FileDatagrams::of(batch);
        send_runs(batch, per_call, to, stats, |run, to, stats| {
            let fit = datagrams.range(batch, run).packets_per_step(PIPE_PAGES, page_bytes);
            let packets = run.packets.min(fit);
            let range = datagrams.range(batch, SegmentRun { packets, ..run });
            if packets == 1 && range.crosses_oddly(page_bytes) {
                return copy_sender.send(range, to, stats).map(|()| packets);
            }
            let file = range.source.file();
            let failure = match sys::sendfile(to.as_fd(), file, range.offset, range.bytes, stats) {
                Ok(sent) if sent as u64 == range.bytes => return Ok(packets),
                Ok(sent) => short(range, sent as u64, to, stats),
                Err(errno) => SendFailure::Refused { call: "sendfile", errno },
            };
            match failure {
                SendFailure::InPieces if packets == 1 => {
                    copy_sender.send(range, to, stats).map(|()| 1)
                }
                failure => Err(failure),
            }
        })
    }
}

/// Interprets a short count of `sent` bytes from `sendfile`, and leaves nothing corked.
fn short(range: RunRange<'_>, sent: u64, to: &Destination, stats: &mut SendStats) -> SendFailure {
    if sent > 0 {
        sys::discard_corked(to.as_fd(), stats);
    }
    let at = match range.source.size_now(stats) {
        Ok(at) => at,
        Err(errno) => return SendFailure::Refused { call: "statx", errno },
    };
    if at < range.end() {
        // The file ended: the kernel has sent the rest of it.
        stats.packets += sent.div_ceil(range.segment_bytes);
        stats.bytes += sent;
        return SendFailure::Cut { at, whole: 0 };
    }
    if sent == 0 {
        // The call returned neither bytes nor the end: the file cannot be read this way.
        return SendFailure::Refused { call: "sendfile", errno: Errno::new(libc::EIO) };
    }
    SendFailure::InPieces
}
