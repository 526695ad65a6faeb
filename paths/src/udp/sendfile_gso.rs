// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sendfile_gso`: the file, `sendfile` of a whole run, cut into datagrams by the kernel.
//!
//! What the study's `ksendfile` (table 1-A: no copy, one call for the file) was to be, without a
//! changed kernel: a call carries 64 KiB instead of the file. Costs no copy and one call per run.
//! It is `rtp/wire_sendfile` for a file in which no headers lie.
//!
//! How a run stays whole, what leaves of a file that is cut, and which lone datagrams are copied:
//! [`crate::image`].
//!
//! Sources: `sendfile(2)`, `udp(7)` (`UDP_SEGMENT`), and those of [`crate::image`].
//!
//! What it does not do: run on kernels before 6.5.

use crate::image::Sendfile;
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};

pub(crate) static SPEC: Spec = Spec {
    name: "sendfile_gso",
    transport: Transport::Udp,
    summary: "page cache to socket, sendfile of a run that the kernel cuts into datagrams; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    crossings: Crossings::PerRun(1),
    sources: &["sendfile(2)", "udp(7) UDP_SEGMENT", "linux 6.18 fs/splice.c"],
    probe: |host| host.needs_kernel(6, 5),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(Sendfile::new(true))),
    },
};
