// SPDX-License-Identifier: MIT OR Apache-2.0
//! CBC through the `aes` crate: the oracle of the other variants, and the fallback without them.
//!
//! The crate uses the processor's instructions where it supports them and bit slices elsewhere,
//! without tables either way. Slices encrypt four blocks in the time of one, so neighbours with the
//! same key are encrypted together.
//!
//! Sources: NIST SP 800-38A §6.2.
//!
//! Does not put messages in order, or mix keys.

use core::ptr;

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256, Block as Words};

use super::{AesKey, BLOCK_BYTES, Block, Message};

/// Blocks that are encrypted together.
const LANES: usize = 16;

/// A key in the crate's form; wiped when dropped.
enum Cipher {
    Bits128(Aes128),
    Bits192(Aes192),
    Bits256(Aes256),
}

impl Cipher {
    fn new(key: &AesKey) -> Self {
        let bytes = key.bytes();
        let cipher = match key.bits() {
            128 => Aes128::new_from_slice(bytes).map(Self::Bits128),
            192 => Aes192::new_from_slice(bytes).map(Self::Bits192),
            _ => Aes256::new_from_slice(bytes).map(Self::Bits256),
        };
        cipher.expect("a key has the bytes of its size")
    }

    fn encrypt(&self, blocks: &mut [Words]) {
        match self {
            Self::Bits128(cipher) => cipher.encrypt_blocks(blocks),
            Self::Bits192(cipher) => cipher.encrypt_blocks(blocks),
            Self::Bits256(cipher) => cipher.encrypt_blocks(blocks),
        }
    }

    fn decrypt(&self, blocks: &mut [Words]) {
        match self {
            Self::Bits128(cipher) => cipher.decrypt_blocks(blocks),
            Self::Bits192(cipher) => cipher.decrypt_blocks(blocks),
            Self::Bits256(cipher) => cipher.decrypt_blocks(blocks),
        }
    }
}

fn xor(a: &Block, b: &Block) -> Block {
    (u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b)).to_ne_bytes()
}

/// # Safety
/// No guarantee is needed; the function has the type of the other variants.
pub(super) unsafe fn encrypt(messages: &mut [Message<'_>]) {
    for messages in messages.chunk_by_mut(|a, b| ptr::eq(a.key, b.key)) {
        let cipher = Cipher::new(messages[0].key);
        for lanes in messages.chunks_mut(LANES) {
            let longest = lanes.iter().map(|message| message.bytes.len()).max().unwrap_or(0);
            for at in (0..longest).step_by(BLOCK_BYTES) {
                step(&cipher, lanes, at);
            }
        }
    }
}

/// Encrypts the block at this place of each message that is long enough.
fn step(cipher: &Cipher, lanes: &mut [Message<'_>], at: usize) {
    let mut blocks = [Words::default(); LANES];
    let mut count = 0;
    for message in lanes.iter() {
        if let Some(block) = message.bytes[at.min(message.bytes.len())..].first_chunk() {
            blocks[count] = xor(block, message.iv).into();
            count += 1;
        }
    }
    cipher.encrypt(&mut blocks[..count]);
    let mut encrypted = blocks.iter();
    for message in lanes.iter_mut() {
        let end = message.bytes.len();
        if let Some(block) = message.bytes[at.min(end)..].first_chunk_mut::<BLOCK_BYTES>() {
            *block = (*encrypted.next().expect("as many as above")).into();
            *message.iv = *block;
        }
    }
}

/// # Safety
/// No guarantee is needed; the function has the type of the other variants.
pub(super) unsafe fn decrypt(key: &AesKey, iv: &mut Block, bytes: &mut [u8]) {
    let cipher = Cipher::new(key);
    for texts in bytes.as_chunks_mut::<BLOCK_BYTES>().0.chunks_mut(LANES) {
        let mut blocks = [Words::default(); LANES];
        for (block, text) in blocks.iter_mut().zip(texts.iter()) {
            *block = (*text).into();
        }
        cipher.decrypt(&mut blocks[..texts.len()]);
        for (text, block) in texts.iter_mut().zip(blocks) {
            let before = core::mem::replace(iv, *text);
            *text = xor(&block.into(), &before);
        }
    }
}
