// SPDX-License-Identifier: MIT OR Apache-2.0
//! Specimens: routines that the laboratory measures and the product does not use.
//!
//! They reproduce the published copies and driver loops and develop them further. The product's own
//! kernels are in the crate `simd`, whose list of variants and whose selection these use too.
//! Parsing headers eight at once (`packet`) saves 4.6 ns of the 400 that a received packet costs
//! (`pagewire lab descriptors`, Zen 4), so receiving keeps its plain parser.
//!
//! Sources: the headers of the files.
//! Does not choose variants for a production path.

#![allow(unsafe_code, reason = "SIMD kernels; docs/style.md, unsafe")]

pub mod copy;
pub mod descriptor;
pub mod exercise;
pub mod packet;
pub mod prefetch;

use simd::Dropped;

use self::copy::Copier;
use self::descriptor::Descriptor;
use self::packet::Packet;

/// One variant of each specimen.
#[derive(Clone, Copy, Debug)]
pub struct Specimens {
    /// Copies, with or without a checksum.
    pub copy: Copier,
    /// Conversion of receive descriptors into packet metadata.
    pub descriptor: Descriptor,
    /// Reader of Ethernet, IP, UDP and RTP fields of many frames.
    pub packet: Packet,
    dropped: [Option<Dropped>; 3],
}

impl Specimens {
    /// Selects the widest variants that this processor has and that compute the known answers on
    /// it, in a tenth of a millisecond.
    pub fn here() -> Self {
        let (copy, copy_dropped) = Copier::choose();
        let (descriptor, descriptor_dropped) = Descriptor::choose();
        let (packet, packet_dropped) = Packet::choose();
        let dropped = [copy_dropped, descriptor_dropped, packet_dropped];
        Self { copy, descriptor, packet, dropped }
    }

    /// Returns the variants that computed a wrong answer here: an error of the code or the
    /// processor.
    pub fn dropped(&self) -> impl Iterator<Item = Dropped> {
        self.dropped.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widest_variant_is_selected_and_none_is_dropped() {
        let specimens = Specimens::here();
        assert_eq!(specimens.dropped().count(), 0, "{:?}", specimens.dropped().next());
        assert_eq!(specimens.copy.name(), Copier::all().last().unwrap().name());
        assert_eq!(specimens.descriptor.name(), Descriptor::all().last().unwrap().name());
        assert_eq!(specimens.packet.name(), Packet::all().last().unwrap().name());
        assert_eq!(Copier::all().next().unwrap().name(), "portable");
        assert_eq!(Descriptor::all().next().unwrap().name(), "scalar");
        assert_eq!(Packet::all().next().unwrap().name(), "portable");
    }
}

#[cfg(test)]
#[path = "../../../simd/src/trials.rs"]
mod trials;
