// SPDX-License-Identifier: MIT OR Apache-2.0
//! `krtpsendfile`: a batch from the file in one call of the engine, which makes the headers.
//!
//! `krtpsendfile` of the study's table 1-C (no copy, 1 call), its best: the kernel puts RTP headers
//! of its own before what it sends. Costs no copy and one call per batch whose payload lies in one
//! stretch of the file; each packet passes the network stack by itself.
//!
//! Headers that the engine would not make alike (a jump in the sequence, more than 12 bytes) are
//! copied, in the same call. Which packets are copied whole, and what leaves of a file that is cut:
//! [`crate::rtp::engine`].
//!
//! Sources: the study, sections 4 and 5, and those of [`crate::rtp::engine`].
//!
//! What it does not do: work without the module `pagewire_rtp`.

use crate::rtp::engine::{ByEngine, Way};
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::Load;

pub(crate) static SPEC: Spec = Spec {
    name: "krtpsendfile",
    transport: Transport::Rtp,
    summary: "engine: a batch from the file, headers made in the kernel; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    crossings: Crossings::PerBatch(1),
    sources: &["the study, table 1-C", "kernel/rtp"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(ByEngine::new(WAY)?)),
    },
};

const WAY: Way = Way { mapped: false, made: true, load: Load::Batch };
