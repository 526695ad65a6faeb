// SPDX-License-Identifier: MIT OR Apache-2.0
//! No instruction: the compiler's own hints are not stable.
//!
//! What it does not do: anything.

/// Nothing, on this processor.
#[inline(always)]
pub fn prefetch<T>(_: &T) {}
