// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xdp`: whole frames through an XDP socket, in copy mode, one call a batch.
//!
//! As `packet_ring`, but from memory of ours and past the queue discipline. The payload is read
//! into it (one copy) and the kernel copies each frame into a buffer of its own (the second). Costs
//! two calls a batch of up to 512 packets from Linux 6.17 on, before that one more for each 32
//! packets; 0.41 s/GB in batches of 44 (0.55 in batches of 10) where `packet_ring` cost 0.51 and
//! `read_writev` 2.19: the copy by the kernel costs less than attaching pages does.
//!
//! A driver that takes pages instead (virtio_net) saves the second copy, of which the kernel says
//! nothing: it is billed all the same.
//!
//! Sources: `Documentation/networking/af_xdp.rst`, [`crate::sys`]'s `xdp`, which says why not
//! zero-copy.
//!
//! What it does not do: see [`crate::Via::Device`]. An XDP socket has a queue of the device to
//! itself, so a device serves as many sending threads as it has queues. Frames are of at most a
//! page: no jumbo datagrams.

use crate::batch::Batch;
use crate::destination::Destination;
use crate::error::{SendError, Unavailable};
use crate::host::Host;
use crate::rtp::framed::Framer;
use crate::spec::{Crossings, Feed, Open, Spec, Transport, Via};
use crate::stream::StreamPath;
use crate::sys::XdpRing;
use crate::tally::Tally;

pub(crate) static SPEC: Spec = Spec {
    name: "xdp",
    transport: Transport::Rtp,
    summary: "payloads read into an XDP socket's memory, frames stamped there, one call a batch",
    copies_per_byte: 2,
    header_copies: 1,
    crossings: Crossings::PerBatch(2),
    sources: &["linux af_xdp.rst", "preadv(2)"],
    probe,
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Device,
        open: || Ok(Box::new(XdpPath(Framer::new("sendto AF_XDP")))),
    },
};

/// Rings with flags are of 5.4.
fn probe(host: &Host) -> Result<(), Unavailable> {
    host.needs_kernel(5, 4)?;
    host.needs_xdp_sockets()?;
    host.needs_raw_frames()
}

struct XdpPath(Framer<XdpRing>);

impl StreamPath for XdpPath {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        tally: &mut Tally,
    ) -> Result<u32, SendError> {
        self.0.send(batch, to, tally)
    }
}
