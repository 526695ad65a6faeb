// SPDX-License-Identifier: MIT OR Apache-2.0
//! `more_sendfile`: send the header with `MSG_MORE`, then `sendfile` the payload, which ends the
//! datagram.
//!
//! `rtp_sendfile` without the two calls for the cork: the flag corks for one call, and the last
//! page of `sendfile` has none. Costs no copy of the payload, one of the header, and two calls per
//! packet. A payload in several pieces is sent as `rtp_sendfile` does, for the first `sendfile`
//! would end the datagram.
//!
//! Which packets are copied, and how nothing stays corked: [`crate::rtp::corked`]. When the file
//! has been cut within a payload, the kernel sends what there is as a short datagram
//! (`splice_eof`), header and all.
//!
//! Sources: `send(2)` (`MSG_MORE`), `sendfile(2)`; Linux 6.18 `net/ipv4/udp.c` (`udp_splice_eof`).
//!
//! What it does not do: run on kernels before 6.5, where the page that ended the datagram was not
//! known to be the last.

use crate::rtp::corked::HeadAndFile;
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};

pub(crate) static SPEC: Spec = Spec {
    name: "more_sendfile",
    transport: Transport::Rtp,
    summary: "send header with MSG_MORE, sendfile of the payload per packet; payload not copied",
    copies_per_byte: 0,
    header_copies: 1,
    crossings: Crossings::PerPacket(2),
    sources: &["send(2) MSG_MORE", "sendfile(2)", "linux 6.18 net/ipv4/udp.c"],
    probe: |host| host.needs_kernel(6, 5),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(HeadAndFile::new(true))),
    },
};
