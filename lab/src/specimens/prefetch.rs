// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefetch: a hint that memory will be used soon.
//!
//! A receive loop can name its next memory: the descriptors of the next burst and the heads of
//! their buffers. The hint costs one instruction, also where the line is in the cache already.
//!
//! Sources: Intel's intrinsics guide (PREFETCHT0); DPDK's `rte_prefetch0`, for its use.
//!
//! Does nothing on processors other than x86-64.

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(not(target_arch = "x86_64"))]
pub use elsewhere::prefetch;
#[cfg(target_arch = "x86_64")]
pub use x86::prefetch;
