// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repeatable random numbers: an attack that succeeds once must succeed again.
//!
//! Sources: Marsaglia, "Xorshift RNGs" (2003), the 64-bit variant with shifts 13, 7, 17.

/// A sequence that is determined by its seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // The high half: the low bits of an xorshift are its weakest.
        (self.next() >> 32) as usize % bound
    }

    /// Flips one bit.
    pub(crate) fn flip(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len());
        bytes[at] ^= 1 << self.below(8);
    }

    /// Changes `bytes` in one to four places: flips, removes, doubles, inserts or cuts.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(16)).min(bytes.len());
            match self.below(6) {
                0 => self.flip(bytes),
                1 => bytes[at] = self.next() as u8,
                2 => drop(bytes.drain(at..end)),
                3 => {
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                4 => {
                    let odd: [&[u8]; 8] =
                        [b"\0", b"\r\n", b"%", b"-1", b"99999999999999999999", b":", b"\xff", b" "];
                    let piece = odd[self.below(odd.len())];
                    bytes.splice(at..at, piece.iter().copied());
                }
                _ => bytes.truncate(at),
            }
        }
    }
}
