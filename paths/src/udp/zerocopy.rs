// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mapped file, `MSG_ZEROCOPY` of a whole run, cut into datagrams by the kernel.
//!
//! The socket refers to the page cache's pages, as with `sendfile`, but by way of the page tables:
//! each page is looked up and pinned, and the kernel reports when it has released them. Costs no
//! copy and two calls per run: the send, and reading one report from the socket's error queue, so
//! that no more than a few are ever in it. A device that is slow to send makes reports late; those
//! of a stream's last runs may never be read, and end with the socket.
//!
//! Bytes that the kernel copied nevertheless are in [`SendStats::zerocopy_copied_bytes`]: on
//! loopback, into a veth peer and without checksum offload all of them, and datagrams above the
//! MTU, which are sent in fragments. One send refers to at most 17 page fragments
//! (`MAX_SKB_FRAGS`); 65,507 bytes of a file in one range never touch more, which is why this path
//! is for files and not for payloads with headers between them.
//!
//! The kernel accounts for sends under way with the socket's option memory (`optmem_max`) and the
//! user's locked memory (`RLIMIT_MEMLOCK`); when either is exhausted (`ENOBUFS`), or 128 reports
//! are outstanding, reports are read and the run is sent by a copy, counted as one.
//!
//! Sources: Linux `Documentation/networking/msg_zerocopy.rst`; 6.18 `net/ipv4/ip_output.c`
//! (`__ip_append_data`), `net/core/skbuff.c` (`msg_zerocopy_realloc`, `skb_orphan_frags_rx`).
//!
//! Does not protect the file's content: bytes overwritten in place before the device has sent them
//! are sent with their new content. Does not read mapped bytes: see [`crate::MappedFile`].

use std::os::fd::AsFd;

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::SendError;
use crate::file_datagrams::{FileDatagrams, RunRange};
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SendFailure, StreamPath, send_runs};
use crate::sys;
use crate::zerocopy::Unreported;

pub(crate) static SPEC: Spec = Spec {
    name: "zerocopy",
    transport: Transport::Udp,
    summary: "mapped file, MSG_ZEROCOPY of a run that the kernel cuts into datagrams, and a report",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerRun(2),
    sources: &["msg_zerocopy.rst", "udp(7) UDP_SEGMENT", "mmap(2)", "linux 6.18 net/core/skbuff.c"],
    probe: |host| host.needs_kernel(5, 0),
    open: Open::Stream { feed: Feed::Image, via: Via::Socket, open: || Ok(Box::new(Zerocopy)) },
};

struct Zerocopy;

impl StreamPath for Zerocopy {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let datagrams = FileDatagrams::of(batch);
        batch.assert_sound();
        if batch.packets == 0 {
            return Ok(0);
        }
        let mut unreported = to.begin_zerocopy(stats)?;
        let sent = send_runs(batch, PacketsPerCall::Run, to, stats, |run, to, stats| {
            send(datagrams.range(batch, run), &mut unreported, to, stats).map(|()| run.packets)
        });
        to.end_zerocopy(unreported);
        sent
    }
}

/// Sends a run and reads a report.
fn send(
    range: RunRange<'_>,
    unreported: &mut Unreported,
    to: &Destination,
    stats: &mut SendStats,
) -> Result<(), SendFailure> {
    let (map, RunRange { offset, bytes, .. }) = (range.map()?, range);
    if unreported.has_room() {
        match sys::send_mapped_zerocopy(to.as_fd(), map, offset, bytes, stats) {
            Ok(_) => {
                unreported.sent(bytes);
                // The report may not have arrived yet.
                let _ = unreported.reap(to.as_fd(), stats);
                return Ok(());
            }
            Err(errno) => {
                unreported.reap_all(to.as_fd(), stats);
                if errno.code() != libc::ENOBUFS {
                    return Err(range.refused("send", errno, stats));
                }
            }
        }
    } else {
        unreported.reap_all(to.as_fd(), stats);
    }
    let sent = sys::send_mapped(to.as_fd(), map, offset, bytes, stats);
    sent.map(|_| ()).map_err(|errno| range.refused("send", errno, stats))
}
