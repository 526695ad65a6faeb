// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefetch without an instruction: the compiler's own hints are not stable.
//!
//! Does nothing.

/// Does nothing on this processor.
#[inline(always)]
pub fn prefetch<T>(_: &T) {}
