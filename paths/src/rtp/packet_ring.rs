// SPDX-License-Identifier: MIT OR Apache-2.0
//! `packet_ring`: whole frames in a packet socket's transmit ring, one call a batch.
//!
//! What is left of the kernel's work when UDP, IP and the firewall are done without: a buffer's
//! header per frame, and the driver. The payload is read straight into the ring, and the ring's
//! pages are what the device reads from: one copy, by the read. Costs two calls a batch of up to
//! 512 packets; 0.51 s/GB in batches of 44 (0.66 in batches of 10) where `read_writev` cost 2.19
//! and `mmap_gso` 0.18, into an ifb that takes super-packets whole: where the kernel has to
//! segment, `mmap_gso` costs as much as this.
//!
//! On a device that delivers on this host (veth), the kernel copies each frame once more, because
//! the slot would be written again while a receiver still has it; that is on no account here.
//!
//! Sources: `packet(7)`, `Documentation/networking/packet_mmap.rst`, [`crate::sys`]'s `packet`.
//!
//! What it does not do: see [`crate::Via::Device`]. UDP segmentation: each frame is its own.

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::SendError;
use crate::rtp::framed::Framer;
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::StreamPath;
use crate::sys::PacketRing;
use crate::tally::Tally;

pub(crate) static SPEC: Spec = Spec {
    name: "packet_ring",
    transport: Transport::Rtp,
    summary: "payloads read into a packet socket's ring, frames stamped there, one call a batch",
    copies_per_byte: 1,
    header_copies: 1,
    crossings: Crossings::PerBatch(2),
    sources: &["packet(7) PACKET_TX_RING", "preadv(2)", "linux packet_mmap.rst"],
    // rtnetlink's answer about one neighbour.
    probe: |host| host.needs_kernel(5, 0).and_then(|()| host.needs_raw_frames()),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Device,
        open: || Ok(Box::new(PacketRingPath(Framer::new("sendto PACKET_TX_RING")))),
    },
};

struct PacketRingPath(Framer<PacketRing>);

impl StreamPath for PacketRingPath {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        tally: &mut Tally,
    ) -> Result<u32, SendError> {
        self.0.send(batch, to, tally)
    }
}
