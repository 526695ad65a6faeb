// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages to encrypt, and the encryption by each member.
//!
//! Keys are expanded and contexts made once for every member, as in a program with many messages;
//! the timed part is the work on messages and, where it is not kept, setting the IV.
//!
//! Sources: EVP_EncryptInit(3) (a context keeps its key when only the IV is given).
//! Does not measure time.

use aes::cipher::{
    BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit, block_padding::NoPadding,
};
use aes::{Aes128, Aes192, Aes256};
use openssl::cipher::{Cipher, CipherRef};
use openssl::cipher_ctx::CipherCtx;
use openssl::symm::{Crypter, Mode};
use simd::Cbc;
use simd::cbc::{AesKey, BLOCK_BYTES, Message};

use super::Case;

/// Implementation that encrypts.
pub(super) enum Method {
    OpenSsl,
    CbcCrate,
    Ours(Cbc),
}

impl Method {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Method::OpenSsl => "openssl",
            Method::CbcCrate => "cbc crate",
            Method::Ours(cbc) => cbc.name(),
        }
    }
}

/// A key in the form of the `cbc` crate.
enum Expanded {
    Bits128(Box<Aes128>),
    Bits192(Box<Aes192>),
    Bits256(Box<Aes256>),
}

/// Messages, and the keys and contexts of each member.
pub(super) struct Work {
    case: Case,
    /// One key, or one for each message; the three below likewise.
    raw_keys: Vec<Vec<u8>>,
    keys: Vec<AesKey>,
    expanded: Vec<Expanded>,
    contexts: Vec<CipherCtx>,
    ivs: Vec<[u8; BLOCK_BYTES]>,
    /// Texts, each followed by a spare block, which OpenSSL requires.
    texts: Vec<Vec<u8>>,
    /// Results of each message that the first `verify` expects.
    expected: Vec<Vec<u8>>,
}

impl Work {
    pub(super) fn new(case: &Case) -> Work {
        let keys = if case.own_keys { case.messages } else { 1 };
        let raw_keys: Vec<Vec<u8>> = (0..keys).map(|n| pattern(n, case.key_bytes)).collect();
        let text = |n| [pattern(n + KEYS_MAX, case.bytes), vec![0; 2 * BLOCK_BYTES]].concat();
        let mut work = Work {
            case: *case,
            keys: raw_keys.iter().map(|key| AesKey::new(key).expect("a size of AES")).collect(),
            expanded: raw_keys.iter().map(|key| Expanded::new(key)).collect(),
            contexts: raw_keys.iter().map(|key| context(case, key)).collect(),
            raw_keys,
            ivs: vec![[0; BLOCK_BYTES]; case.messages],
            texts: (0..case.messages).map(text).collect(),
            expected: Vec::new(),
        };
        work.start();
        let each = work.texts.iter().zip(&work.ivs).enumerate();
        work.expected = each
            .map(|(n, (text, iv))| by_openssl(case, &work.raw_keys[n % keys], iv, text))
            .collect();
        work
    }

    /// Resets texts and IVs to their first state.
    fn start(&mut self) {
        for (n, (text, iv)) in self.texts.iter_mut().zip(&mut self.ivs).enumerate() {
            *iv = [n as u8 + 1; BLOCK_BYTES];
            text[..self.case.bytes].copy_from_slice(&pattern(n + KEYS_MAX, self.case.bytes));
        }
    }

    /// Compares a member's result with that of OpenSSL's one-shot interface; returns the
    /// difference.
    pub(super) fn verify(&mut self, method: &Method) -> Result<(), String> {
        self.start();
        self.run(method);
        for (n, (text, expected)) in self.texts.iter().zip(&self.expected).enumerate() {
            let mut pairs = text.iter().zip(expected);
            if let Some(at) = pairs.position(|(found, wanted)| found != wanted) {
                return Err(format!("message {n} differs from OpenSSL's from byte {at} on"));
            }
        }
        Ok(())
    }

    /// Encrypts or decrypts all messages in place.
    pub(super) fn run(&mut self, method: &Method) {
        match (method, self.case.decrypts) {
            (Method::OpenSsl, _) => self.by_evp(),
            (Method::CbcCrate, _) => self.by_crate(),
            (Method::Ours(cbc), true) => self.decrypt(*cbc),
            (Method::Ours(cbc), false) => self.encrypt(*cbc),
        }
    }

    fn encrypt(&mut self, cbc: Cbc) {
        let (bytes, keys) = (self.case.bytes, &self.keys);
        let each = self.texts.iter_mut().zip(&mut self.ivs).enumerate();
        let mut messages: Vec<Message<'_>> = each
            .map(|(n, (text, iv))| Message {
                key: &keys[n % keys.len()],
                iv,
                bytes: &mut text[..bytes],
            })
            .collect();
        cbc.encrypt(&mut messages);
    }

    fn decrypt(&mut self, cbc: Cbc) {
        for (n, (text, iv)) in self.texts.iter_mut().zip(&mut self.ivs).enumerate() {
            let key = &self.keys[n % self.keys.len()];
            cbc.decrypt(key, iv, &mut text[..self.case.bytes]);
        }
    }

    fn by_evp(&mut self) {
        let keys = self.contexts.len();
        for (n, (text, iv)) in self.texts.iter_mut().zip(&self.ivs).enumerate() {
            let context = &mut self.contexts[n % keys];
            let done = match self.case.decrypts {
                true => context.decrypt_init(None, None, Some(iv)),
                false => context.encrypt_init(None, None, Some(iv)),
            };
            let done = done.and_then(|()| context.cipher_update_inplace(text, self.case.bytes));
            done.expect("a context that took its key takes an IV and whole blocks");
        }
    }

    fn by_crate(&mut self) {
        let keys = self.expanded.len();
        for (n, (text, iv)) in self.texts.iter_mut().zip(&self.ivs).enumerate() {
            let text = &mut text[..self.case.bytes];
            match &self.expanded[n % keys] {
                Expanded::Bits128(key) => with_crate(&**key, iv, text, self.case.decrypts),
                Expanded::Bits192(key) => with_crate(&**key, iv, text, self.case.decrypts),
                Expanded::Bits256(key) => with_crate(&**key, iv, text, self.case.decrypts),
            }
        }
    }

    /// Corrupts OpenSSL's expected result.
    #[cfg(test)]
    pub(super) fn spoil(&mut self) {
        self.expected[0][0] ^= 1;
    }
}

impl Expanded {
    fn new(key: &[u8]) -> Expanded {
        const SIZE: &str = "a key has the bytes of its size";
        match key.len() {
            16 => Expanded::Bits128(Box::new(Aes128::new_from_slice(key).expect(SIZE))),
            24 => Expanded::Bits192(Box::new(Aes192::new_from_slice(key).expect(SIZE))),
            _ => Expanded::Bits256(Box::new(Aes256::new_from_slice(key).expect(SIZE))),
        }
    }
}

fn with_crate<'a, C>(key: &'a C, iv: &[u8; BLOCK_BYTES], text: &mut [u8], decrypts: bool)
where
    cbc::Encryptor<&'a C>: BlockModeEncrypt + InnerIvInit<Inner = &'a C>,
    cbc::Decryptor<&'a C>: BlockModeDecrypt + InnerIvInit<Inner = &'a C>,
    &'a C: aes::cipher::BlockCipherEncrypt + aes::cipher::BlockCipherDecrypt,
{
    const WHOLE: &str = "whole blocks need no padding";
    let bytes = text.len();
    if decrypts {
        let cipher = cbc::Decryptor::inner_iv_slice_init(key, iv).expect("an IV of a block");
        cipher.decrypt_padded::<NoPadding>(text).expect(WHOLE);
    } else {
        let cipher = cbc::Encryptor::inner_iv_slice_init(key, iv).expect("an IV of a block");
        cipher.encrypt_padded::<NoPadding>(text, bytes).expect(WHOLE);
    }
}

/// Makes a context with its key.
fn context(case: &Case, key: &[u8]) -> CipherCtx {
    let cipher: &CipherRef = match case.key_bytes {
        16 => Cipher::aes_128_cbc(),
        24 => Cipher::aes_192_cbc(),
        _ => Cipher::aes_256_cbc(),
    };
    let make = || {
        let mut context = CipherCtx::new()?;
        match case.decrypts {
            true => context.decrypt_init(Some(cipher), Some(key), None)?,
            false => context.encrypt_init(Some(cipher), Some(key), None)?,
        }
        context.set_padding(false);
        Ok::<_, openssl::error::ErrorStack>(context)
    };
    make().expect("OpenSSL has AES-CBC")
}

/// Returns the expected result.
fn by_openssl(case: &Case, key: &[u8], iv: &[u8], text: &[u8]) -> Vec<u8> {
    let cipher = match case.key_bytes {
        16 => openssl::symm::Cipher::aes_128_cbc(),
        24 => openssl::symm::Cipher::aes_192_cbc(),
        _ => openssl::symm::Cipher::aes_256_cbc(),
    };
    let mode = if case.decrypts { Mode::Decrypt } else { Mode::Encrypt };
    let mut out = vec![0; case.bytes + BLOCK_BYTES];
    let mut crypter = Crypter::new(cipher, mode, key, Some(iv)).expect("OpenSSL has AES-CBC");
    crypter.pad(false);
    let bytes = crypter.update(&text[..case.bytes], &mut out).expect("whole blocks");
    assert_eq!(bytes, case.bytes, "without padding nothing is held back");
    out.truncate(bytes);
    out
}

/// Returns bytes that differ from message to message and from key to key.
fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// First seed of the texts; keys have smaller seeds.
const KEYS_MAX: usize = 1 << 16;
