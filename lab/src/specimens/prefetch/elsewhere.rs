// SPDX-License-Identifier: MIT OR Apache-2.0
//! No instruction: the compiler's own hints are not stable.
//!
//! Does nothing.

/// Nothing, on this processor.
#[inline(always)]
pub fn prefetch<T>(_: &T) {}
