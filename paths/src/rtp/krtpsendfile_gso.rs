// SPDX-License-Identifier: MIT OR Apache-2.0
//! `krtpsendfile_gso`: `krtpsendfile` whose packets pass the network stack in runs.
//!
//! What the study could not have: between the engine and the device a run is one packet, which is
//! cut apart at the end (`UDP_SEGMENT`). Costs no copy and one call per batch whose payload lies in
//! one stretch of the file. Against `wire_sendfile`, as cheap in work per packet, the headers may
//! be any session's own.
//!
//! A device or route that refuses runs makes the number of segments fall, as for `mmap_gso`. Which
//! headers and packets are copied, and what leaves of a file that is cut: [`crate::rtp::engine`].
//!
//! Sources: `udp(7)` (`UDP_SEGMENT`), and those of [`crate::rtp::engine`].
//!
//! What it does not do: run on kernels before 6.5, where the engine sends single packets; or work
//! without the module `pagewire_rtp`.

use crate::rtp::engine::{ByEngine, Way};
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::Load;

pub(crate) static SPEC: Spec = Spec {
    name: "krtpsendfile_gso",
    transport: Transport::Rtp,
    summary: "engine: a batch from the file in runs, headers made in the kernel; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    crossings: Crossings::PerBatch(1),
    sources: &["udp(7) UDP_SEGMENT", "kernel/rtp"],
    probe: |host| host.needs_engine().and_then(|()| host.needs_kernel(6, 5)),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(ByEngine::new(WAY)?)),
    },
};

const WAY: Way = Way { mapped: false, made: true, load: Load::Runs };
