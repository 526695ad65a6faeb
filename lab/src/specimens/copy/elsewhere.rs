// SPDX-License-Identifier: MIT OR Apache-2.0
//! The variants of processors other than x86-64: the portable one.
//!
//! Does not use NEON; the C library of such a machine uses it.

use super::fixed::{Compiled, CopyBatch};
use super::{Run, portable, portable_and_sum};
use simd::variant::{Variant, everywhere};

/// The registers of a variant.
#[derive(Clone, Copy)]
pub(super) enum Set {
    Compiled,
}

impl Set {
    /// # Safety
    /// None is needed; it has the type of the others.
    #[inline]
    pub(super) unsafe fn batch<B: CopyBatch>(self, batch: B) -> B::Output {
        match self {
            Set::Compiled => batch.run(Compiled),
        }
    }
}

pub(super) static VARIANTS: &[Variant<Run>] = &[Variant {
    name: "portable",
    is_here: everywhere,
    run: Run {
        copy: portable,
        copy_and_sum: portable_and_sum,
        past_caches: portable,
        set: Set::Compiled,
    },
}];
