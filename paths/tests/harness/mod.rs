// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts shared by the contracts of sending and of receiving: skips, bytes, a pair of devices,
//! ports that can be closed, a tracer.
//!
//! Does not open members or compare datagrams; each contract has its own way.

#![allow(dead_code, reason = "every test program uses its part of it")]

pub(crate) mod network;
pub(crate) mod ports;
pub(crate) mod tracer;

pub(crate) use network::skip;

/// Returns bytes without a pattern that a mistake could repeat, the same in every run.
pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}
