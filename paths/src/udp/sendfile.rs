// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sendfile`: page cache to socket inside the kernel, one call per packet.
//!
//! `sendfile` (UDP) of the study's table 1-A (no copy, n calls). Costs no copy and one call per
//! packet, each of which makes its way through the kernel's pipe and corks the socket for it.
//!
//! What leaves of a file that is cut, and which datagrams are copied: [`crate::image`].
//!
//! Sources: `sendfile(2)`, and those of [`crate::image`].
//!
//! What it does not do: run on kernels before 6.5.

use crate::image::Sendfile;
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};

pub(crate) static SPEC: Spec = Spec {
    name: "sendfile",
    transport: Transport::Udp,
    summary: "page cache to socket inside the kernel, one sendfile per packet; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    crossings: Crossings::PerPacket(1),
    sources: &["sendfile(2)", "linux 6.18 fs/splice.c"],
    probe: |host| host.needs_kernel(6, 5),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(Sendfile::new(false))),
    },
};
