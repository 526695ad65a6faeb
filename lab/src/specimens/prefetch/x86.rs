// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefetch instruction of x86-64.
//!
//! Does not fault: it is a hint, even for memory that may not be read.

use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Brings the line where `memory` begins into all caches.
#[inline(always)]
pub fn prefetch<T>(memory: &T) {
    // SAFETY: all of x86-64 has SSE; a prefetch reads nothing that the program sees.
    unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *memory).cast()) }
}
