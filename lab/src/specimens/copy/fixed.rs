// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of sizes that are constant at compile time, and loops of them that are compiled for the
//! registers of this processor.
//!
//! A function for AVX2 is inlined only into functions for AVX2, so a loop that inlines its loads
//! and stores must be for AVX2, too. A [`CopyBatch`] is such a loop, written once; it is compiled
//! once for each kind of registers, and one of these is selected when it starts. Its [`Fixed`] is
//! proof that the processor has the registers: there is no branch between two copies.
//!
//! Sources: pulp's `WithSimd` (the form).
//!
//! Does not copy sizes over [`FIXED_BYTES_MAX`].

/// Copies of fixed sizes by registers that this processor has.
pub trait Fixed: Copy + sealed::SealedSize {
    /// Copies `N` bytes, [`FIXED_BYTES_MAX`] at most, without a branch. It is inlined into a
    /// [`CopyBatch`], except for large `N`, which have a function of their own.
    fn copy<const N: usize>(self, source: &[u8; N], target: &mut [u8; N]);
}

/// Loop of many copies, for [`super::Copier::batch`].
pub trait CopyBatch {
    /// Result of the loop.
    type Output;

    /// Runs the loop. `#[inline(always)]` compiles it for the same registers as its copies.
    fn run<F: Fixed>(self, fixed: F) -> Self::Output;
}

/// Registers that the program is compiled for.
#[derive(Clone, Copy)]
pub(super) struct Compiled;

impl Fixed for Compiled {
    #[inline(always)]
    fn copy<const N: usize>(self, source: &[u8; N], target: &mut [u8; N]) {
        const { assert!(N <= FIXED_BYTES_MAX) }
        *target = *source;
    }
}

/// Batch of one copy.
pub(super) struct One<'a, const N: usize> {
    pub(super) source: &'a [u8; N],
    pub(super) target: &'a mut [u8; N],
}

impl<const N: usize> CopyBatch for One<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<F: Fixed>(self, fixed: F) {
        fixed.copy(self.source, self.target);
    }
}

pub(super) mod sealed {
    pub trait SealedSize {}

    impl SealedSize for super::Compiled {}
}

/// Most bytes of a fixed copy: for more, a loop costs less than the cache space of straight code.
pub const FIXED_BYTES_MAX: usize = 4096;
