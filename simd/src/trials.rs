// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test inputs of every kernel: lengths that matter, and bytes without a pattern.
//!
//! Sources: transport stream packets have 188 bytes, and a datagram holds seven of them; 1,500 and
//! 9,000 are the usual MTUs.
//!
//! Does not compare; each kernel's tests do.

/// Lengths beyond those around a register's width.
pub(crate) const LENGTHS: &[usize] = &[
    188, 376, 564, 752, 940, 1128, 1315, 1316, 1317, 1472, 1500, 4095, 4096, 4097, 8972, 9000,
    65_507,
];

/// Returns bytes without a pattern that a mistake could repeat, the same in every run.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}
