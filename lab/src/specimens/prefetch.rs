// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hint that memory will be wanted soon.
//!
//! A receive loop knows what it touches next: the descriptors of the next burst, the heads of the
//! buffers they are for. The hint costs one instruction; where the line was there already, that is
//! all it does.
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
