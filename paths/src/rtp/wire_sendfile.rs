// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wire_sendfile`: the wire image, `sendfile` of a whole run, cut into datagrams by the kernel.
//!
//! The cheapest path of a stock kernel. Headers lie in the file between the payloads, so a run is
//! one range and nothing is copied: the socket refers to the page cache's pages. One call per run
//! of 46 to 49 packets of 1,328 bytes (16 calls per megabyte); 0.29 to 0.46 s/GB where
//! `read_writev` cost 2.42 (software segmentation).
//!
//! How a run stays whole, what leaves of a file that is cut, and which lone datagrams are copied:
//! [`crate::image`].
//!
//! Sources: `sendfile(2)`, `udp(7)` (`UDP_SEGMENT`), and those of [`crate::image`].
//!
//! What it does not do: run on kernels before 6.5; and give a session its own SSRC or sequence
//! numbers, which are the image's.

use crate::image::Sendfile;
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};

pub(crate) static SPEC: Spec = Spec {
    name: "wire_sendfile",
    transport: Transport::Rtp,
    summary: "wire image, sendfile of a run that the kernel cuts into datagrams; no copy",
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
