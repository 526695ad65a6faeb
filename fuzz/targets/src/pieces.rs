// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts the bytes of a connection into pieces, as TCP may deliver them.
//!
//! TCP keeps no boundaries, so a reader must reach the same result for every division of its input.
//! One byte of the fuzzer selects the division; the pieces follow from it, so that a finding can be
//! repeated.
//!
//! Does not try all cuts of one input: many inputs together cover all kinds.

/// Longest input that is cut into single bytes.
const SINGLE_BYTES_MAX: usize = 512;

/// Returns pieces of pseudo-random lengths: single bytes for choice 0, longer ones for greater
/// choices and for long inputs, which would otherwise give too many pieces.
pub(crate) fn pieces(bytes: &[u8], choice: u8) -> Vec<&[u8]> {
    let mut state = u32::from(choice);
    let mut rest = bytes;
    let mut pieces = Vec::new();
    let length_max = usize::from(choice) + bytes.len() / SINGLE_BYTES_MAX + 1;
    while !rest.is_empty() {
        // Uses the generator of Numerical Recipes; only its high bits are random enough.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = (1 + (state >> 16) as usize % length_max).min(rest.len());
        let (piece, after) = rest.split_at(length);
        pieces.push(piece);
        rest = after;
    }
    pieces
}
