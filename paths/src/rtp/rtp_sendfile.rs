// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rtp_sendfile`: cork, send the header, `sendfile` the payload, uncork.
//!
//! `rtp_sendfile` of the study's table 1-B (n copies, of the header; n cork, n send, n sendfile and
//! n uncork calls), the best that it found without changing the kernel. Costs no copy of the
//! payload, one of the header, and four calls per packet; a payload in several pieces takes a
//! `sendfile` for each.
//!
//! Which packets are copied, and how nothing stays corked: [`crate::rtp::corked`]. Of a file that
//! is cut nothing leaves behind the last whole packet: the cork holds back what there was.
//!
//! Sources: `udp(7)` (`UDP_CORK`), `sendfile(2)`.
//!
//! What it does not do: learn what becomes of the datagram once the cork is out.

use crate::rtp::corked::HeadAndFile;
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};

pub(crate) static SPEC: Spec = Spec {
    name: "rtp_sendfile",
    transport: Transport::Rtp,
    summary: "cork, send header, sendfile of the payload, uncork per packet; payload not copied",
    copies_per_byte: 0,
    header_copies: 1,
    crossings: Crossings::PerPacket(4),
    sources: &["udp(7) UDP_CORK", "sendfile(2)"],
    probe: |host| host.needs_kernel(2, 6),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(HeadAndFile::new(false))),
    },
};
