// SPDX-License-Identifier: MIT OR Apache-2.0
//! A number from a name that is the same on every server and in every release.
//!
//! It seeds shuffles and identifies descriptions. The standard library's hasher promises no value.
//!
//! Sources: Fowler, Noll and Vo, FNV-1a of 64 bits (draft-eastlake-fnv-17 §2).
//! Does not resist an opponent who looks for two names with one hash.

/// FNV-1a of 64 bits.
pub(super) fn name_hash(name: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_authors() {
        // Vectors of FNV's own test suite.
        assert_eq!(name_hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(name_hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(name_hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
