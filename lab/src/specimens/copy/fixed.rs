// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of sizes that the compiler knows, and how a loop of them is compiled for the registers
//! that this processor has.
//!
//! A function for AVX2 is compiled into no function that is not for AVX2, so a loop that is to hold
//! its loads and stores itself must be for AVX2 as well. A [`CopyBatch`] is such a loop, written
//! once; it is compiled once for each kind of registers, and one of these is chosen when it starts.
//! The [`Fixed`] it gets is proof that the processor has them: there is no branch between two
//! copies.
//!
//! Sources: pulp's `WithSimd` for the form.
//!
//! Does not copy sizes over [`FIXED_BYTES_MAX`].

/// Copies of fixed sizes by registers that this processor has.
pub trait Fixed: Copy + sealed::SealedSize {
    /// Copies `N` bytes, [`FIXED_BYTES_MAX`] at most, without a branch. No call is left in a
    /// [`CopyBatch`], but for large `N` one of a function of their own.
    fn copy<const N: usize>(self, source: &[u8; N], target: &mut [u8; N]);
}

/// Something that copies often, for [`super::Copier::batch`].
pub trait CopyBatch {
    /// Its result.
    type Output;

    /// Does it. `#[inline(always)]` compiles it for the same registers as its copies.
    fn run<F: Fixed>(self, fixed: F) -> Self::Output;
}

/// The registers that the program is compiled for.
#[derive(Clone, Copy)]
pub(super) struct Compiled;

impl Fixed for Compiled {
    #[inline(always)]
    fn copy<const N: usize>(self, source: &[u8; N], target: &mut [u8; N]) {
        const { assert!(N <= FIXED_BYTES_MAX) }
        *target = *source;
    }
}

/// A batch of one.
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

/// A copy of more is a loop: its branches cost less than its instructions' room in the caches.
pub const FIXED_BYTES_MAX: usize = 4096;
