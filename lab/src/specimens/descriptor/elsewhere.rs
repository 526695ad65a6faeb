// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a record on processors other than x86-64.
//!
//! Does not use vectors.

use super::{Flags, Metadata};

/// Writes a record from its two quad words.
#[inline(always)]
pub(super) fn write(packet: &mut Metadata, [front, back]: [u64; 2]) {
    *packet = Metadata {
        second_vlan: front as u16,
        vlan: (front >> 16) as u16,
        hash: (front >> 32) as u32,
        length: back as u32,
        flags: Flags((back >> 32) as u16),
        errors: (back >> 48) as u8,
        kind: (back >> 56) as u8,
    };
}
