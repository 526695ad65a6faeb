// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opener of sealed segments by OpenSSL, without any code that sealed them.
//!
//! Costs two copies more than the lanes: OpenSSL's cipher copies from one buffer into another, and
//! the bytes are copied back.
//!
//! Sources: EVP_DecryptUpdate(3), EVP_DecryptFinal_ex(3): OpenSSL checks the padding too.
//! Does not use the lanes, or hash what it opens.

use openssl::symm::{Cipher, Crypter, Mode};

use super::segment_cipher::KEY_BYTES;
use crate::error::Error;

/// A segment being decrypted by OpenSSL.
pub(super) struct OpenSsl(Crypter);

impl OpenSsl {
    pub(super) fn new(key: &[u8; KEY_BYTES], iv: &[u8; 16]) -> Result<Self, Error> {
        let crypter = Crypter::new(Cipher::aes_128_cbc(), Mode::Decrypt, key, Some(iv));
        crypter.map(Self).map_err(refused)
    }

    /// Decrypts the first `bytes` of `buffer`, which has room for a block more; returns the bytes
    /// decrypted. `None`: the padding is wrong.
    pub(super) fn open(
        &mut self,
        buffer: &mut [u8],
        bytes: usize,
        is_last: bool,
    ) -> Result<Option<usize>, Error> {
        let mut opened = vec![0; bytes + 32];
        let mut count = self.0.update(&buffer[..bytes], &mut opened).map_err(refused)?;
        if is_last {
            match self.0.finalize(&mut opened[count..]) {
                Ok(more) => count += more,
                Err(_) => return Ok(None),
            }
        }
        buffer[..count].copy_from_slice(&opened[..count]);
        Ok(Some(count))
    }
}

fn refused(error: openssl::error::ErrorStack) -> Error {
    Error::host("EVP_DecryptUpdate", "aes-128-cbc".as_ref())(std::io::Error::other(error))
}
