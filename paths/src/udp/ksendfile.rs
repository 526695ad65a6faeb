// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ksendfile`: a batch from the file in one call of the engine.
//!
//! `ksendfile` of the study's table 1-A (no copy; 1 call that performs `sendfile` over UDP in the
//! kernel as `sendfile` over TCP does): here a call carries a batch, which may be the file. Costs
//! no copy and one call per batch; each datagram passes the network stack by itself, which is what
//! `sendfile_gso` saves without a module.
//!
//! Which datagrams are copied, and what leaves of a file that is cut: [`crate::udp::engine`].
//!
//! Sources: the study, section 3.4, and those of [`crate::udp::engine`].
//!
//! What it does not do: work without the module `pagewire_rtp`.

use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::Load;
use crate::udp::engine::ByEngine;

pub(crate) static SPEC: Spec = Spec {
    name: "ksendfile",
    transport: Transport::Udp,
    summary: "engine: page cache to socket, a batch in one call; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    crossings: Crossings::PerBatch(1),
    sources: &["the study, table 1-A", "kernel/rtp"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(ByEngine::new(false, Load::Batch)?)),
    },
};
