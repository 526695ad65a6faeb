// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opener of sealed files by OpenSSL, without any code that sealed them.
//!
//! The second implementation of every form of a folder: its own parser of the format, its own key
//! derivation (HMAC), its own cipher. An error is missed only when both implementations make it.
//!
//! Costs one copy more than [`super::opener`]: OpenSSL's cipher copies from one buffer into
//! another.
//! Sources: EVP_EncryptInit(3); RFC 5869 §2 (HKDF). The forms are described in [`super::gcm`],
//! `cbc`.
//! Uses neither the lanes nor the library that seals.

use openssl::cipher::{Cipher, CipherRef};
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use zeroize::Zeroizing;

use super::FolderForm;
use super::fault::SealedFileFault;
use super::opener::check_length;
use crate::error::Error;
use crate::key::Secret;

const BLOCK_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// Bytes of a sealed file that are opened together: a segment of GCM, a slice of CBC.
const PIECE_BYTES: usize = 32 * 1024;
/// Bytes of a deciphered piece at most, and of a block that OpenSSL had kept back.
pub const SOURCE_BYTES: usize = PIECE_BYTES + 2 * BLOCK_BYTES;

/// Opens the files of a folder with OpenSSL.
pub struct OpensslOpener {
    form: &'static FolderForm,
    key: Secret,
    iv: Option<[u8; BLOCK_BYTES]>,
}

impl OpensslOpener {
    /// Works as [`super::opener::Opener::new`].
    ///
    /// # Errors
    /// The errors of that function.
    pub fn new(
        form: &'static FolderForm,
        iv: Option<[u8; BLOCK_BYTES]>,
        secret: &Secret,
    ) -> Result<Self, Error> {
        form.takes(iv, secret)?;
        Ok(Self { form, key: secret.clone(), iv })
    }

    /// Works as [`super::opener::Opener::begin`].
    ///
    /// # Errors
    /// The errors of that function.
    pub fn begin(&self, sealed_bytes: u64) -> Result<OpensslOpening<'_>, SealedFileFault> {
        let prefix_bytes = match (self.form.name, self.iv) {
            ("gcm", _) | (_, Some(_)) => 0,
            (_, None) => BLOCK_BYTES as u64,
        };
        check_length(self.form, prefix_bytes, sealed_bytes)?;
        let context = CipherCtx::new().map_err(refused)?;
        Ok(OpensslOpening {
            opener: self,
            context,
            nonce: None,
            number: 0,
            left_bytes: sealed_bytes,
        })
    }

    /// Sets the cipher up from the header or IV in front of a file; returns its length in bytes
    /// and, for GCM, the front of the nonces.
    fn start(&self, context: &mut CipherCtx, piece: &[u8]) -> Result<Start, SealedFileFault> {
        let key = self.key.bytes();
        if self.form.name == "gcm" {
            let Some((&[length], rest)) = piece.split_first_chunk() else {
                return Err(SealedFileFault::Sealed);
            };
            let Some((salt, rest)) = rest.split_first_chunk::<32>() else {
                return Err(SealedFileFault::Sealed);
            };
            let front = 1 + salt.len() + 7;
            if usize::from(length) != front || rest.len() < 7 {
                return Err(SealedFileFault::Sealed);
            }
            let derived = derived(key, salt).map_err(refused)?;
            let cipher = Cipher::aes_256_gcm();
            context.decrypt_init(Some(cipher), Some(&*derived), None).map_err(refused)?;
            let mut nonce = [0; 12];
            nonce[..7].copy_from_slice(&rest[..7]);
            return Ok(Start { front, nonce: Some(nonce) });
        }
        let (iv, front) = match self.iv {
            Some(given) => (given, 0),
            None => (*piece.first_chunk().ok_or(SealedFileFault::Sealed)?, BLOCK_BYTES),
        };
        context.decrypt_init(Some(cbc(key)), Some(key), Some(&iv)).map_err(refused)?;
        Ok(Start { front, nonce: None })
    }
}

struct Start {
    front: usize,
    nonce: Option<[u8; 12]>,
}

impl std::fmt::Debug for OpensslOpener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpensslOpener({} by OpenSSL)", self.form.name)
    }
}

/// A sealed file in progress.
pub struct OpensslOpening<'a> {
    opener: &'a OpensslOpener,
    context: CipherCtx,
    /// Nonce of a GCM file; `None` for CBC.
    nonce: Option<[u8; 12]>,
    /// Number of the next piece.
    number: u64,
    left_bytes: u64,
}

impl OpensslOpening<'_> {
    /// Works as [`super::opener::Opening::next_bytes`].
    pub fn next_bytes(&self) -> usize {
        self.left_bytes.min(PIECE_BYTES as u64) as usize
    }

    /// Works as [`super::opener::Opening::other`].
    pub fn other(&self) -> SealedFileFault {
        if self.nonce.is_some() { SealedFileFault::Other } else { SealedFileFault::Sealed }
    }

    /// Deciphers the next piece into `source`; returns the deciphered bytes.
    ///
    /// # Errors
    /// [`SealedFileFault::Sealed`]; the bytes in `source` are invalid.
    pub fn open(
        &mut self,
        piece: &[u8],
        source: &mut [u8; SOURCE_BYTES],
    ) -> Result<usize, SealedFileFault> {
        self.left_bytes =
            self.left_bytes.checked_sub(piece.len() as u64).ok_or(SealedFileFault::Sealed)?;
        let is_last = self.left_bytes == 0;
        let mut sealed = piece;
        if self.number == 0 {
            let start = self.opener.start(&mut self.context, piece)?;
            self.nonce = start.nonce;
            sealed = &piece[start.front..];
        }
        let number = u32::try_from(self.number).ok().filter(|_| self.nonce.is_some());
        self.number += 1;
        let context = &mut self.context;
        let opened = match (&mut self.nonce, number) {
            (None, _) => decipher(context, sealed, is_last, source),
            (Some(_), None) => return Err(SealedFileFault::Sealed),
            (Some(nonce), Some(number)) => {
                nonce[7..11].copy_from_slice(&number.to_be_bytes());
                nonce[11] = is_last.into();
                let Some((text, tag)) = sealed.split_last_chunk::<TAG_BYTES>() else {
                    return Err(SealedFileFault::Sealed);
                };
                context
                    .decrypt_init(None, None, Some(nonce))
                    .and_then(|()| context.set_tag(tag))
                    .and_then(|()| decipher(context, text, true, source))
            }
        };
        opened.map_err(refused)
    }
}

fn decipher(
    context: &mut CipherCtx,
    bytes: &[u8],
    is_last: bool,
    source: &mut [u8],
) -> Result<usize, ErrorStack> {
    let mut deciphered = context.cipher_update(bytes, Some(source))?;
    if is_last {
        deciphered += context.cipher_final(&mut source[deciphered..])?;
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

/// Derives a key with HKDF-SHA-256, without info, from one hash.
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

/// Drops OpenSSL's reason, which must not be revealed ([`SealedFileFault::Sealed`]).
fn refused(_: ErrorStack) -> SealedFileFault {
    SealedFileFault::Sealed
}
