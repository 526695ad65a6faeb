// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mmap_gso`: the mapped file, header and payload of a whole run gathered into one call.
//!
//! The path for a stream whose wire image is not there (yet): it sends from the asset itself, so
//! the headers may be any session's own. Costs one copy per byte and one call per run of up to 49
//! packets of 1,328 bytes (15 calls per megabyte); 0.43 to 0.51 s/GB where `read_writev` cost 2.42
//! (software segmentation).
//!
//! Sources: `udp(7)` (`UDP_SEGMENT`, Linux 4.18), `writev(2)`, `mmap(2)`.
//!
//! What it does not do: avoid the copy. `MSG_ZEROCOPY` was measured and not worth it: it is limited
//! to 17 page fragments and copies on loopback.

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::SendError;
use crate::rtp::gathered;
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::StreamPath;
use crate::sys::Scratch;
use crate::tally::Tally;

pub(crate) static SPEC: Spec = Spec {
    name: "mmap_gso",
    transport: Transport::Rtp,
    summary: "mapped file, headers and payloads of a run gathered into one segmented send",
    copies_per_byte: 1,
    header_copies: 1,
    crossings: Crossings::PerRun(1),
    sources: &["udp(7) UDP_SEGMENT", "writev(2)", "mmap(2)"],
    probe: |host| host.needs_kernel(4, 18),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || Ok(Box::new(MmapGso { scratch: Scratch::new() })),
    },
};

struct MmapGso {
    scratch: Scratch,
}

impl StreamPath for MmapGso {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        tally: &mut Tally,
    ) -> Result<u32, SendError> {
        gathered::send(&mut self.scratch, batch, true, to, tally)
    }
}
