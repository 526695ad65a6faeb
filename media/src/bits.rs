// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bits of parameter sets and frame headers, read from the highest on.
//!
//! Reading past the end returns `None`, so a truncated header has no fields rather than wrong ones.
//!
//! Sources: ISO/IEC 14496-10 §7.3.1 (emulation prevention), §9.1 (Exp-Golomb codes).
//! Does not read backwards, or more than 32 bits at once.

/// Bits still to be read.
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next `count` bits, at most 32, as a number.
    pub(crate) fn take(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            let byte = *self.bytes.get(self.at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        self.take(1).map(|bit| bit == 1)
    }

    pub(crate) fn skip(&mut self, count: usize) {
        self.at += count;
    }

    /// An unsigned Exp-Golomb code.
    pub(crate) fn golomb(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        Some((1u32 << zeros) - 1 + self.take(zeros)?)
    }

    /// A signed Exp-Golomb code.
    pub(crate) fn signed_golomb(&mut self) -> Option<i32> {
        let code = i64::from(self.golomb()?);
        let magnitude = (code + 1) / 2;
        i32::try_from(if code % 2 == 1 { magnitude } else { -magnitude }).ok()
    }
}

/// Returns the bytes of a NAL unit without emulation prevention bytes.
pub(crate) fn without_emulation(bytes: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(bytes.len());
    let mut zeros = 0;
    for &byte in bytes {
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        clean.push(byte);
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golomb_codes_are_those_of_the_standard() {
        // 1, 010, 011, 00100, 00101 are 0 to 4 (table 9-2).
        let bytes = [0b1010_0110, 0b0100_0010, 0b1000_0000];
        let mut bits = Bits::new(&bytes);
        assert_eq!([(); 5].map(|()| bits.golomb()), [0, 1, 2, 3, 4].map(Some));
        let mut bits = Bits::new(&bytes);
        assert_eq!([(); 5].map(|()| bits.signed_golomb()), [0, 1, -1, 2, -2].map(Some));
        assert_eq!(Bits::new(&[0; 9]).golomb(), None);
        assert_eq!(Bits::new(&[0xff]).take(9), None);
    }

    #[test]
    fn emulation_prevention_is_taken_out() {
        assert_eq!(without_emulation(&[0, 0, 3, 1, 3, 0, 0, 3, 0, 0, 3]), [0, 0, 1, 3, 0, 0, 0, 0]);
    }
}
