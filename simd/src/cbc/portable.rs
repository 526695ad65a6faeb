// SPDX-License-Identifier: MIT OR Apache-2.0
//! CBC as the standard writes it down, a block after the other, through the `aes` crate.
//!
//! It is the oracle of the other variants as well as what is used where there is none. The crate
//! takes the processor's AES instructions where it has them and bit slices elsewhere, without
//! tables either way.
//!
//! Sources: NIST SP 800-38A §6.2.
//!
//! What it does not do: fill the lanes of bit slices; encryption uses one of four.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};

use super::{BLOCK_BYTES, Block, Key, Message};

/// A key as the crate has it; wiped when dropped.
enum Cipher {
    Bits128(Aes128),
    Bits192(Aes192),
    Bits256(Aes256),
}

impl Cipher {
    fn new(key: &Key) -> Self {
        let bytes = key.bytes();
        let cipher = match key.bits() {
            128 => Aes128::new_from_slice(bytes).map(Self::Bits128),
            192 => Aes192::new_from_slice(bytes).map(Self::Bits192),
            _ => Aes256::new_from_slice(bytes).map(Self::Bits256),
        };
        cipher.expect("a key has the bytes of its size")
    }

    fn encrypt(&self, block: &mut Block) {
        match self {
            Self::Bits128(cipher) => cipher.encrypt_block(block.into()),
            Self::Bits192(cipher) => cipher.encrypt_block(block.into()),
            Self::Bits256(cipher) => cipher.encrypt_block(block.into()),
        }
    }

    fn decrypt(&self, block: &mut Block) {
        match self {
            Self::Bits128(cipher) => cipher.decrypt_block(block.into()),
            Self::Bits192(cipher) => cipher.decrypt_block(block.into()),
            Self::Bits256(cipher) => cipher.decrypt_block(block.into()),
        }
    }
}

fn xor(block: &mut Block, other: &Block) {
    *block = (u128::from_ne_bytes(*block) ^ u128::from_ne_bytes(*other)).to_ne_bytes();
}

/// # Safety
/// None is needed; it has the type of the others.
pub(super) unsafe fn encrypt(messages: &mut [Message<'_>]) {
    for message in messages {
        let cipher = Cipher::new(message.key);
        for block in message.bytes.as_chunks_mut::<BLOCK_BYTES>().0 {
            xor(block, message.iv);
            cipher.encrypt(block);
            *message.iv = *block;
        }
    }
}

/// # Safety
/// None is needed; it has the type of the others.
pub(super) unsafe fn decrypt(key: &Key, iv: &mut Block, bytes: &mut [u8]) {
    let cipher = Cipher::new(key);
    for block in bytes.as_chunks_mut::<BLOCK_BYTES>().0 {
        let ciphertext = *block;
        cipher.decrypt(block);
        xor(block, iv);
        *iv = ciphertext;
    }
}
