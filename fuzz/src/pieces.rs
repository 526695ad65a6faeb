// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a connection's bytes into the pieces in which they may arrive.
//!
//! TCP keeps no boundaries, so a reader must come to the same result however its input is cut. The
//! fuzzer chooses the cut with one byte; the pieces follow from it, and a finding can be repeated.
//!
//! Does not try all cuts of an input: over many inputs, all kinds occur.

/// An input longer than this is no longer cut into single bytes.
const SINGLE_BYTES_MAX: usize = 512;

/// The pieces, of pseudo-random lengths: single bytes for 0, longer for greater choices, and for
/// long inputs, of which there would be too many.
pub(crate) fn pieces(bytes: &[u8], choice: u8) -> Vec<&[u8]> {
    let mut state = u32::from(choice);
    let mut rest = bytes;
    let mut pieces = Vec::new();
    let length_max = usize::from(choice) + bytes.len() / SINGLE_BYTES_MAX + 1;
    while !rest.is_empty() {
        // Numerical Recipes' generator; its high bits are the good ones.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = (1 + (state >> 16) as usize % length_max).min(rest.len());
        let (piece, after) = rest.split_at(length);
        pieces.push(piece);
        rest = after;
    }
    pieces
}
