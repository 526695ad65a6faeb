// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops over bytes in memory that gain from vector instructions, one file per kernel.
//!
//! Each kernel has an *oracle*, plain code that is easy to verify, and a list of variants, widest
//! last, which do the same on wider registers. [`Kernels::here`] selects, once at start, the widest
//! of each that this processor has and that computes the known answers. The choice is a value that
//! is passed down, so a test or a measurement can use any other.
//!
//! Sources: memchr's `arch/generic` for the form: a generic body and a thin function per
//! instruction set.
//!
//! Does no input or output, allocates nothing and reads no clock. On processors other than x86-64
//! the portable variants are the only ones, except for [`cbc`], which also has ARMv8.

pub mod cbc;
pub mod checksum;
pub mod stamp;
#[cfg(test)]
mod trials;
pub mod variant;

pub use cbc::Cbc;
pub use checksum::Checksum;
pub use stamp::Stamp;
pub use variant::Dropped;

/// One variant of each kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    /// AES-CBC over lanes.
    pub cbc: Cbc,
    /// Ones' complement sums of many ranges.
    pub checksum: Checksum,
    /// Ethernet, IPv4, UDP and RTP headers of many frames.
    pub stamp: Stamp,
    dropped: [Option<Dropped>; 3],
}

impl Kernels {
    /// Returns the widest variants that this processor has and that compute right answers on it.
    /// Runs each once on known answers: a fifth of a millisecond.
    pub fn here() -> Self {
        let (cbc, cbc_dropped) = Cbc::choose();
        let (checksum, checksum_dropped) = Checksum::choose();
        let (stamp, stamp_dropped) = Stamp::choose();
        Self { cbc, checksum, stamp, dropped: [cbc_dropped, checksum_dropped, stamp_dropped] }
    }

    /// Returns the variants that computed a wrong answer here and were dropped: a fault of the
    /// kernel or of the processor, to be logged.
    pub fn dropped(&self) -> impl Iterator<Item = Dropped> {
        self.dropped.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_variants_are_chosen_and_none_is_dropped() {
        let kernels = Kernels::here();
        assert_eq!(kernels.dropped().count(), 0, "{:?}", kernels.dropped().next());
        assert_eq!(kernels.cbc.name(), Cbc::all().last().unwrap().name());
        assert_eq!(kernels.checksum.name(), Checksum::all().last().unwrap().name());
        assert_eq!(kernels.stamp.name(), Stamp::all().last().unwrap().name());
        assert_eq!(Cbc::all().next().unwrap().name(), "portable");
        assert_eq!(Checksum::all().next().unwrap().name(), "portable");
        assert_eq!(Stamp::all().next().unwrap().name(), "portable");
    }
}
