// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rtpsendfile`: one call of the engine with header and range of the file per packet.
//!
//! `rtpsendfile` of the study's table 1-C (n copies, of the header; n calls): `rtp_sendfile` in one
//! call instead of four, and without a pipe in between. Costs one copy of the header and one call
//! per packet.
//!
//! Which packets are copied, and what leaves of a file that is cut: [`crate::rtp::engine`].
//!
//! Sources: the study, sections 4 and 5, and those of [`crate::rtp::engine`].
//!
//! What it does not do: work without the module `pagewire_rtp`.

use crate::rtp::engine::{ByEngine, Way};
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::Load;

pub(crate) static SPEC: Spec = Spec {
    name: "rtpsendfile",
    transport: Transport::Rtp,
    summary: "engine: header and payload from the file per packet; payload not copied",
    copies_per_byte: 0,
    header_copies: 1,
    crossings: Crossings::PerPacket(1),
    sources: &["the study, table 1-C", "kernel/rtp"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(ByEngine::new(WAY)?)),
    },
};

const WAY: Way = Way { mapped: false, made: false, load: Load::Packet };
