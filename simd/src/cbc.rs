// SPDX-License-Identifier: MIT OR Apache-2.0
//! AES in CBC mode: many messages encrypted at once in lanes, one message decrypted in parallel.
//!
//! CBC encrypts a block after the block before it, so one message runs at the latency of the cipher
//! unit. Messages are independent of each other: 16 of them side by side run at its throughput.
//! AES-128 from OpenSSL 3.0, one message after the other: 1.43 GB/s. This kernel, messages of 16
//! KiB and of 1 MiB: one message 1.40; AES-NI 10.2 (8 lanes); VAES-256 15 to 18 and VAES-512 15 to
//! 18 (16 lanes), 9 to 13 with a key for each message; AES-256 seven tenths of it. Decryption:
//! 11.5, 22.7, 22.7 (AMD EPYC of the fourth generation, rustc 1.95).
//!
//! Constant in time: it uses no table, and only lengths decide branches and addresses. Copies of
//! round keys are wiped; those that the compiler keeps in registers or spills for a moment cannot
//! be.
//!
//! Sources: NIST SP 800-38A §6.2 (CBC); FIPS 197 (AES); Gueron, Krasnov, "Simultaneous hashing of
//! multiple messages", 2012 (independent messages in lanes), and Intel's Multi-Buffer Crypto, which
//! does it for ciphers.
//!
//! Does not pad, authenticate, or make IVs.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod decrypt;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod encrypt;
mod key;
mod known;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod panels;
mod portable;

use core::fmt;

pub use key::{AesKey, KeyLength};

use crate::variant::{self, Dropped, Variant, everywhere};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 16;

/// Messages that fill the lanes of the widest variants: with fewer of them in a call, and at its
/// end, lanes are empty.
pub const LANES: usize = 16;

/// Bytes of a message that a caller should pass in a call when it moves them itself, from a file or
/// to one: the data of all lanes, read, encrypted and about to be written, then stays in the
/// second-level cache. From memory to memory by copies, 16 messages in slices of 2 KiB: 3.2 GB/s;
/// 16 KiB: 4.1; 32 KiB: 4.4; 64 to 256 KiB: 4.4; 1 MiB: 3.8 (1 MiB of that cache).
pub const SLICE_BYTES: usize = 32 * 1024;

/// A block of the cipher.
type Block = [u8; BLOCK_BYTES];

/// A message, or a slice of one, to be encrypted in place.
pub struct Message<'a> {
    /// Key of the message.
    pub key: &'a AesKey,
    /// The chaining value: at first the IV. Left as the last ciphertext block, from which the next
    /// slice of the message continues.
    pub iv: &'a mut [u8; BLOCK_BYTES],
    /// Plaintext, then ciphertext: a multiple of [`BLOCK_BYTES`], or nothing.
    pub bytes: &'a mut [u8],
}

// The idea, for lanes l of messages with chaining values c, all keys of one size:
//
//     while a message is in a lane:
//         n = blocks that the shortest of them has left
//         for i in 0..n:
//             for all l at once:  c[l] = text[l][i] = AES(key[l], c[l] ^ text[l][i])
//         messages that end leave, the longest that wait enter
//
// Departures:
// 1. Up to eight lanes have a register each and read and write their message themselves. The
//    latency of a round, four cycles, is filled by eight registers where two start a cycle.
// 2. Wide registers hold a block of each of two or four lanes, and 16 lanes fill them. They do not
//    read messages but panels: eight blocks of all lanes, transposed, in the first-level cache.
//    While a panel is encrypted the next is read and the one before written. Messages that begin
//    at the same place of their page, as large allocations do, share a few sets of that cache; 16
//    of them push each other out at every block (4.7 GB/s), and cost little by panels (15 to 18).
// 3. A message that is alone is encrypted without lanes.
// 4. Decryption runs from the last block to the first (`decrypt`).

/// The two directions by one instruction set.
#[derive(Clone, Copy)]
struct Run {
    encrypt: unsafe fn(&mut [Message<'_>]),
    decrypt: unsafe fn(&AesKey, &mut Block, &mut [u8]),
}

const PORTABLE: Variant<Run> = Variant {
    name: "portable",
    is_here: everywhere,
    run: Run { encrypt: portable::encrypt, decrypt: portable::decrypt },
};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static VARIANTS: &[Variant<Run>] = &[PORTABLE];

#[cfg(target_arch = "aarch64")]
static VARIANTS: &[Variant<Run>] = &[
    PORTABLE,
    Variant {
        name: "armv8",
        is_here: || std::arch::is_aarch64_feature_detected!("aes"),
        run: Run { encrypt: arm::encrypt, decrypt: arm::decrypt },
    },
];

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

#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(target_arch = "x86_64")]
mod x86;

impl fmt::Debug for Message<'_> {
    /// Formats a message without its content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes with an {:?}", self.bytes.len(), self.key)
    }
}

/// A variant that this processor has.
#[derive(Clone, Copy)]
pub struct Cbc(&'static Variant<Run>);

impl Cbc {
    /// Returns the variants that this processor has, widest last.
    pub fn all() -> impl Iterator<Item = Self> {
        variant::here(VARIANTS).map(Self)
    }

    pub(crate) fn choose() -> (Self, Option<Dropped>) {
        let (chosen, dropped) = variant::choose("cbc", VARIANTS, |candidate| {
            known::answers(Self(candidate), Self(&VARIANTS[0]))
        });
        (Self(chosen), dropped)
    }

    /// Returns its instruction set.
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
        // SAFETY: a `Cbc` holds only variants that `variant::here` found here.
        unsafe { (self.0.run.encrypt)(messages) }
    }

    /// Decrypts a message, or a slice of one, in place. `iv` is left as the last ciphertext block.
    ///
    /// # Panics
    /// When `bytes` is no multiple of [`BLOCK_BYTES`].
    pub fn decrypt(&self, key: &AesKey, iv: &mut [u8; BLOCK_BYTES], bytes: &mut [u8]) {
        assert_whole_blocks(bytes);
        // SAFETY: as in `encrypt`.
        unsafe { (self.0.run.decrypt)(key, iv, bytes) }
    }
}

fn assert_whole_blocks(bytes: &[u8]) {
    assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "{} bytes are whole blocks", bytes.len());
}

impl fmt::Debug for Cbc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cbc by {}", self.name())
    }
}

#[cfg(test)]
mod tests;
