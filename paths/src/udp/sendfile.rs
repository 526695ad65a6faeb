// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sendfile` and `sendfile_gso`: page cache to socket inside the kernel, a packet or a run a call.
//!
//! The work is done in [`crate::rtp::wire_sendfile`], which describes runs, files that were cut,
//! and copied datagrams.
//!
//! Sources: `sendfile(2)`, and those of [`crate::rtp::wire_sendfile`].
//!
//! Does not run on kernels before 6.5.

use crate::rtp::wire_sendfile::Sendfile;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::PacketsPerCall;

/// `sendfile` (UDP) of table 1-A of the data-paths paper (no copy, n calls). Costs no copy and one
/// call per packet. Each call goes through the kernel's pipe and corks the socket for it.
pub(crate) static SPEC: Spec = Spec {
    name: "sendfile",
    transport: Transport::Udp,
    summary: "page cache to socket inside the kernel, one sendfile per packet; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerPacket(1),
    sources: &["sendfile(2)", "linux 6.18 fs/splice.c"],
    probe: |host| host.needs_kernel(6, 5),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(Sendfile::new(PacketsPerCall::One))),
    },
};

/// `ksendfile` of the data-paths paper (table 1-A: no copy, one call for the file) without a
/// changed kernel: a call carries 64 KiB instead of the file. Costs no copy and one call per run.
/// It is `rtp/wire_sendfile` for a file without headers.
pub(crate) static SENDFILE_GSO: Spec = Spec {
    name: "sendfile_gso",
    transport: Transport::Udp,
    summary: "page cache to socket, sendfile of a run that the kernel cuts into datagrams; no copy",
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
