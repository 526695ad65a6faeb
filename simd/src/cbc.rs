// SPDX-License-Identifier: MIT OR Apache-2.0
//! AES in CBC mode: many messages encrypted at once in lanes, one message decrypted in parallel.
//!
//! CBC encrypts a block after the block before, so one message runs at the latency of the cipher
//! unit. Messages have nothing to do with each other, so many run at its throughput: a message
//! enters a lane, and when it ends the next one enters.
//!
//! Sources: NIST SP 800-38A §6.2 (CBC); FIPS 197 (AES).
//!
//! What it does not do: pad, authenticate, or make IVs.

mod blocks;
mod key;
mod lanes;
mod portable;

pub use key::{Key, KeyLength};

use crate::variant::{self, Dropped, Variant, everywhere};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 16;

/// A block of the cipher.
type Block = [u8; BLOCK_BYTES];

/// A message, or a slice of one, to be encrypted in place.
#[derive(Debug)]
pub struct Message<'a> {
    /// Its key.
    pub key: &'a Key,
    /// The chaining value: at first the IV. Left as the last ciphertext block, so that the next
    /// slice of the message goes on from it.
    pub iv: &'a mut [u8; BLOCK_BYTES],
    /// Plaintext, then ciphertext: a multiple of [`BLOCK_BYTES`], or nothing.
    pub bytes: &'a mut [u8],
}

/// The two directions by one instruction set.
#[derive(Clone, Copy)]
struct Run {
    encrypt: unsafe fn(&mut [Message<'_>]),
    decrypt: unsafe fn(&Key, &mut Block, &mut [u8]),
}

const PORTABLE: Variant<Run> = Variant {
    name: "portable",
    is_here: everywhere,
    run: Run { encrypt: portable::encrypt, decrypt: portable::decrypt },
};

#[cfg(not(target_arch = "x86_64"))]
static VARIANTS: &[Variant<Run>] = &[PORTABLE];

#[cfg(target_arch = "x86_64")]
static VARIANTS: &[Variant<Run>] = &[
    PORTABLE,
    Variant {
        name: "aes-ni",
        is_here: || is_x86_feature_detected!("aes"),
        run: Run { encrypt: x86::encrypt_aes_ni, decrypt: x86::decrypt_aes_ni },
    },
    Variant {
        name: "vaes256",
        is_here: || {
            is_x86_feature_detected!("aes")
                && is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("vaes")
        },
        run: Run { encrypt: x86::encrypt_vaes256, decrypt: x86::decrypt_vaes256 },
    },
    Variant {
        name: "vaes512",
        is_here: || {
            is_x86_feature_detected!("aes")
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("vaes")
        },
        run: Run { encrypt: x86::encrypt_vaes512, decrypt: x86::decrypt_vaes512 },
    },
];

#[cfg(target_arch = "x86_64")]
mod x86;

/// A variant that this processor has.
#[derive(Clone, Copy)]
pub struct Cbc(&'static Variant<Run>);

impl Cbc {
    /// All that are here, widest last.
    pub fn all() -> impl Iterator<Item = Self> {
        variant::here(VARIANTS).map(Self)
    }

    pub(crate) fn choose() -> (Self, Option<Dropped>) {
        let (chosen, dropped) =
            variant::choose("cbc", VARIANTS, |candidate| Self(candidate).is_right());
        (Self(chosen), dropped)
    }

    /// Its instruction set.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Encrypts all messages in place: any number of them, of any lengths, each with a key, a key
    /// size and an IV of its own.
    ///
    /// # Panics
    /// When the bytes of a message are no multiple of [`BLOCK_BYTES`].
    pub fn encrypt(&self, messages: &mut [Message<'_>]) {
        for message in messages.iter() {
            assert_whole_blocks(message.bytes);
        }
        // SAFETY: a `Cbc` is made of variants alone that `variant::here` found here.
        unsafe { (self.0.run.encrypt)(messages) }
    }

    /// Decrypts a message, or a slice of one, in place. `iv` is left as the last ciphertext block.
    ///
    /// # Panics
    /// When `bytes` is no multiple of [`BLOCK_BYTES`].
    pub fn decrypt(&self, key: &Key, iv: &mut [u8; BLOCK_BYTES], bytes: &mut [u8]) {
        assert_whole_blocks(bytes);
        // SAFETY: as in `encrypt`.
        unsafe { (self.0.run.decrypt)(key, iv, bytes) }
    }

    /// Whether it gives the known answers.
    fn is_right(self) -> bool {
        let noise: [u8; 16 * 41] = core::array::from_fn(|n| (n * n / 3 + 200) as u8);
        [16, 24, 32].into_iter().all(|key_bytes| {
            let key = Key::new(&noise[..key_bytes]).expect("a length that AES has");
            let (mut known, mut known_iv) = (noise, [7; 16]);
            // SAFETY: the portable variant needs nothing.
            unsafe {
                portable::encrypt(&mut [Message {
                    key: &key,
                    iv: &mut known_iv,
                    bytes: &mut known,
                }]);
            }
            let mut bytes = [noise; 17];
            let mut ivs = [[7; 16]; 17];
            let mut pairs = bytes.iter_mut().zip(&mut ivs);
            let mut messages: [Message<'_>; 17] = core::array::from_fn(|_| {
                let (bytes, iv) = pairs.next().expect("as many");
                Message { key: &key, iv, bytes }
            });
            self.encrypt(&mut messages);
            let mut iv = [7; 16];
            let right = bytes.iter().all(|bytes| *bytes == known) && ivs == [known_iv; 17];
            self.decrypt(&key, &mut iv, &mut bytes[0]);
            right && bytes[0] == noise && iv == known_iv
        })
    }
}

fn assert_whole_blocks(bytes: &[u8]) {
    assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "{} bytes are whole blocks", bytes.len());
}

impl core::fmt::Debug for Cbc {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "cbc by {}", self.name())
    }
}

#[cfg(test)]
mod tests;
