// SPDX-License-Identifier: MIT OR Apache-2.0
//! `msend`: the mapped file, one call of the engine with an address per packet.
//!
//! `mmap_msend` of the study's table 1-A (no copy; 1 mmap and n msend calls): `mmap_send` whose
//! pages the socket refers to. Costs no copy and one call per packet.
//!
//! Which datagrams are copied, and what leaves of a file that is cut: [`crate::udp::engine`].
//!
//! Sources: the study, section 3.4; `mmap(2)`, and those of [`crate::udp::engine`].
//!
//! What it does not do: work without the module `pagewire_rtp`.

use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::Load;
use crate::udp::engine::ByEngine;

pub(crate) static SPEC: Spec = Spec {
    name: "msend",
    transport: Transport::Udp,
    summary: "engine: mapped file, one call per packet; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    crossings: Crossings::PerPacket(1),
    sources: &["the study, table 1-A", "kernel/rtp", "mmap(2)"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Image,
        via: Via::Socket,
        open: || Ok(Box::new(ByEngine::new(true, Load::Packet)?)),
    },
};
