// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sealed file taken apart by OpenSSL: nothing of what sealed it has a part in this.
//!
//! The second implementation of every form of a folder: its own reading of the format, its own key
//! derivation (HMAC), its own cipher. What both agree on is right, or twice wrong the same way.
//!
//! Costs a copy more than [`super::open`]: OpenSSL's cipher goes from one buffer into another.
//! Sources: EVP_EncryptInit(3); RFC 5869 §2 (HKDF). What the forms are: [`super::gcm`], `cbc`.
//! Does not do: use the lanes, or the library that seals.

use std::io::Read;

use openssl::cipher::{Cipher, CipherRef};
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use zeroize::Zeroizing;

use super::open::{Closed, Piece, Stop, check_length, form};
use crate::error::Error;
use crate::key::Secret;

const BLOCK_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
const SEGMENT_BYTES: u64 = 32 * 1024;
const HEADER_BYTES: u64 = 40;

/// How the files of a folder are opened, by OpenSSL.
pub struct Opener {
    form: &'static str,
    key: Secret,
    iv: Option<[u8; BLOCK_BYTES]>,
}

impl Opener {
    /// As [`super::open::Opener::new`].
    ///
    /// # Errors
    /// As there.
    pub fn new(form: &str, iv: Option<[u8; BLOCK_BYTES]>, secret: &Secret) -> Result<Self, Error> {
        Ok(Self { form: self::form(form, iv, secret)?, key: secret.clone(), iv })
    }

    /// As [`super::open::Opener::begin`].
    ///
    /// # Errors
    /// As there.
    pub fn begin(&self, source: &mut impl Read, sealed_bytes: u64) -> Result<Opening, Stop> {
        let has_prefix = self.form != "gcm" && self.iv.is_none();
        let prefix_bytes = if has_prefix { BLOCK_BYTES as u64 } else { 0 };
        check_length(self.form, prefix_bytes, sealed_bytes).map_err(Stop::Closed)?;
        let key = self.key.bytes();
        let mut context = CipherCtx::new().map_err(refused)?;
        if self.form == "gcm" {
            let mut header = [0; HEADER_BYTES as usize];
            source.read_exact(&mut header)?;
            if u64::from(header[0]) != HEADER_BYTES {
                return Err(Stop::Closed(Closed::Sealed));
            }
            let derived = derived(key, &header[1..33]).map_err(refused)?;
            let cipher = Cipher::aes_256_gcm();
            context.decrypt_init(Some(cipher), Some(&*derived), None).map_err(refused)?;
            let mut nonce = [0; 12];
            nonce[..7].copy_from_slice(&header[33..]);
            let left_bytes = sealed_bytes - HEADER_BYTES;
            let segments = Some(Segments { nonce, next: 0 });
            return Ok(Opening { context, segments, left_bytes, read: Vec::new() });
        }
        let mut iv = [0; BLOCK_BYTES];
        match self.iv {
            Some(given) => iv = given,
            None => source.read_exact(&mut iv)?,
        }
        context.decrypt_init(Some(cbc(key)), Some(key), Some(&iv)).map_err(refused)?;
        let left_bytes = sealed_bytes - prefix_bytes;
        Ok(Opening { context, segments: None, left_bytes, read: Vec::new() })
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opener({} by OpenSSL)", self.form)
    }
}

/// A sealed file in progress.
pub struct Opening {
    context: CipherCtx,
    /// For CBC there are none.
    segments: Option<Segments>,
    left_bytes: u64,
    read: Vec<u8>,
}

struct Segments {
    nonce: [u8; 12],
    next: u32,
}

impl Opening {
    /// As [`super::open::Opening::next`], for any buffer that holds a segment and a block more.
    ///
    /// # Errors
    /// As there.
    pub fn next(&mut self, source: &mut impl Read, buffer: &mut [u8]) -> Result<Piece, Stop> {
        let most = match &self.segments {
            Some(Segments { next: 0, .. }) => SEGMENT_BYTES - HEADER_BYTES,
            _ => SEGMENT_BYTES,
        };
        let sealed_bytes = self.left_bytes.min(most) as usize;
        self.read.resize(SEGMENT_BYTES as usize, 0);
        source.read_exact(&mut self.read[..sealed_bytes])?;
        self.left_bytes -= sealed_bytes as u64;
        let is_last = self.left_bytes == 0;
        let bytes = match &mut self.segments {
            Some(segments) => {
                let segment = &self.read[..sealed_bytes];
                segments.open(&mut self.context, segment, is_last, buffer)
            }
            None => decipher(&mut self.context, &self.read[..sealed_bytes], is_last, buffer),
        };
        let bytes = bytes.map_err(refused)?;
        Ok(Piece { bytes, sealed_bytes, is_last })
    }
}

impl Segments {
    fn open(
        &mut self,
        context: &mut CipherCtx,
        segment: &[u8],
        is_last: bool,
        buffer: &mut [u8],
    ) -> Result<usize, ErrorStack> {
        self.nonce[7..11].copy_from_slice(&self.next.to_be_bytes());
        self.nonce[11] = is_last.into();
        // A file has as many as its length allows, which was checked: the number never wraps.
        self.next = self.next.wrapping_add(1);
        let (text, tag) = segment.split_at(segment.len() - TAG_BYTES);
        context.decrypt_init(None, None, Some(&self.nonce))?;
        context.set_tag(tag)?;
        decipher(context, text, true, buffer)
    }
}

fn decipher(
    context: &mut CipherCtx,
    bytes: &[u8],
    is_last: bool,
    buffer: &mut [u8],
) -> Result<usize, ErrorStack> {
    let mut deciphered = context.cipher_update(bytes, Some(buffer))?;
    if is_last {
        deciphered += context.cipher_final(&mut buffer[deciphered..])?;
    }
    Ok(deciphered)
}

fn cbc(key: &[u8]) -> &'static CipherRef {
    match key.len() {
        16 => Cipher::aes_128_cbc(),
        24 => Cipher::aes_192_cbc(),
        _ => Cipher::aes_256_cbc(),
    }
}

/// HKDF-SHA-256 without info, of one hash.
fn derived(key: &[u8], salt: &[u8]) -> Result<Zeroizing<[u8; 32]>, ErrorStack> {
    let hmac = |key: &[u8], text: &[u8]| {
        let mut made = Zeroizing::new([0; 32]);
        let key = PKey::hmac(key)?;
        let mut signer = Signer::new(MessageDigest::sha256(), &key)?;
        signer.sign_oneshot(made.as_mut(), text)?;
        Ok::<_, ErrorStack>(made)
    };
    hmac(hmac(salt, key)?.as_ref(), &[1])
}

/// OpenSSL says why; nobody shall know ([`Closed::Sealed`]).
fn refused(_: ErrorStack) -> Stop {
    Stop::Closed(Closed::Sealed)
}
