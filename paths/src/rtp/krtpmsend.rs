// SPDX-License-Identifier: MIT OR Apache-2.0
//! `krtpmsend`: a batch from the mapped file in one call of the engine, which makes the headers.
//!
//! `krtpmsend` of the study's table 1-C (no copy, 1 call): `krtpsendfile` for a program that has
//! the file in its memory anyway. Costs no copy and one call per batch whose payload lies in one
//! stretch of the file; the kernel looks the pages up in the page tables instead of the file.
//!
//! Which headers and packets are copied, and what leaves of a file that is cut:
//! [`crate::rtp::engine`].
//!
//! Sources: the study, sections 4 and 5; `mmap(2)`, and those of [`crate::rtp::engine`].
//!
//! What it does not do: work without the module `pagewire_rtp`.

use crate::rtp::engine::{ByEngine, Way};
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::Load;

pub(crate) static SPEC: Spec = Spec {
    name: "krtpmsend",
    transport: Transport::Rtp,
    summary: "engine: a batch from the mapped file, headers made in the kernel; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    crossings: Crossings::PerBatch(1),
    sources: &["the study, table 1-C", "kernel/rtp", "mmap(2)"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(ByEngine::new(WAY)?)),
    },
};

const WAY: Way = Way { mapped: true, made: true, load: Load::Batch };
