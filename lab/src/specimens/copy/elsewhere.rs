// SPDX-License-Identifier: MIT OR Apache-2.0
//! Variants of processors other than x86-64: only the portable one.
//!
//! Does not use NEON itself; the C library of such a machine does.

use super::fixed::{Compiled, CopyBatch};
use super::{Run, portable, portable_and_sum};
use simd::variant::{Variant, everywhere};

/// Registers of a variant.
#[derive(Clone, Copy)]
pub(super) enum Set {
    Compiled,
}

impl Set {
    /// # Safety
    /// Has no condition; `unsafe` by the type of the other variants.
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
