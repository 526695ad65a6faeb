// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mmap_rtpmsend`: the mapped file, one call of the engine with header and address per packet.
//!
//! `mmap_rtpmsend` of the study's table 1-C (n copies, of the header; 1 mmap and n rtpmsend calls):
//! `mmap_writev` without the copy of the payload, whose pages the socket refers to. Costs one copy
//! of the header and one call per packet.
//!
//! Which packets are copied, and what leaves of a file that is cut: [`crate::rtp::engine`].
//!
//! Sources: the study, sections 4 and 5; `mmap(2)`, and those of [`crate::rtp::engine`].
//!
//! What it does not do: work without the module `pagewire_rtp`.

use crate::rtp::engine::{ByEngine, Way};
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::Load;

pub(crate) static SPEC: Spec = Spec {
    name: "mmap_rtpmsend",
    transport: Transport::Rtp,
    summary: "engine: header and mapped payload per packet; payload not copied",
    copies_per_byte: 0,
    header_copies: 1,
    crossings: Crossings::PerPacket(1),
    sources: &["the study, table 1-C", "kernel/rtp", "mmap(2)"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(ByEngine::new(WAY)?)),
    },
};

const WAY: Way = Way { mapped: true, made: false, load: Load::Packet };
