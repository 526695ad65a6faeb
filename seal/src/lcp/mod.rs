// SPDX-License-Identifier: MIT OR Apache-2.0
//! Licences of Readium LCP, basic profile: each lets one passphrase open one publication.
//!
//! A publication has a random content key. Its licence contains that key enciphered under the user
//! key, which is the hash of a passphrase, and is signed by the provider. A reading system needs
//! the passphrase and no server's permission.
//!
//! The basic profile is open and meant for tests and for libraries that run their own reading
//! systems: its user key is a plain SHA-256, so a passphrase that can be guessed is no protection.
//! The production profiles add a hash with a secret that only EDRLab distributes; they are not
//! implemented here.
//!
//! Sources: Readium LCP 1.0.4 (ISO/IEC 23078-2); RFC 8785 is close to its canonical form but not
//! the same. Does not talk to a licence or status server and does not read revocation lists.

mod canonical;
mod date;
mod fault;
mod licence;
mod provider;
mod signature;

use std::fmt;

use openssl::sha::sha256;
use simd::cbc::{AesKey, Cbc};
use zeroize::Zeroizing;

pub use fault::SignatureFault;
pub use licence::{Licence, Rights, Terms, User};
pub use provider::{Algorithm, CertificateNames, TestProvider};
pub use signature::{RootCertificates, Signer};

use crate::error::Error;
use crate::key::passphrase::Passphrase;
use crate::key::random;

/// SHA-256 of a passphrase: opens licences. It is overwritten when dropped, and never shown.
#[derive(Clone)]
pub struct UserKey(Zeroizing<[u8; 32]>);

impl UserKey {
    /// Hashes the passphrase as it is: nothing is trimmed or normalised (LCP 1.0.4 §4.2).
    ///
    /// # Errors
    /// [`Error::Option`]: the passphrase is not UTF-8, which reading systems could not type.
    pub fn new(passphrase: &Passphrase) -> Result<Self, Error> {
        if std::str::from_utf8(passphrase.bytes()).is_err() {
            let cure = "write it in UTF-8 (LCP 1.0.4 §4.2)";
            return Err(passphrase.origin().error("a passphrase that is not UTF-8", cure));
        }
        Ok(Self(Zeroizing::new(sha256(passphrase.bytes()))))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the AES key for the lanes.
    pub(crate) fn key(&self) -> AesKey {
        AesKey::new(self.0.as_slice()).expect("32 bytes")
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserKey")
    }
}

/// Returns a random IV and the ciphertext of `plain`, padded: the layout of all encrypted values in
/// LCP.
pub(crate) fn enciphered(
    cbc: &Cbc,
    key: &AesKey,
    plain: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut iv = [0; 16];
    random(&mut iv)?;
    let padding = 16 - plain.len() % 16;
    // All bytes are allocated at once: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(vec![padding as u8; 16 + plain.len() + padding]);
    bytes[..16].copy_from_slice(&iv);
    bytes[16..16 + plain.len()].copy_from_slice(plain);
    let mut messages = [simd::cbc::Message { key, iv: &mut iv, bytes: &mut bytes[16..] }];
    cbc.encrypt(&mut messages);
    Ok(bytes)
}

/// Returns the plain bytes of the output of [`enciphered`], or `None`. Only the last byte of the
/// padding is checked: W3C XML Encryption §5.2 leaves the others open.
pub(crate) fn deciphered(cbc: &Cbc, key: &AesKey, bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (iv, blocks) = bytes.split_first_chunk::<16>()?;
    if blocks.is_empty() || blocks.len() % 16 != 0 {
        return None;
    }
    let (mut iv, mut plain) = (*iv, Zeroizing::new(blocks.to_vec()));
    cbc.decrypt(key, &mut iv, &mut plain);
    let padding = usize::from(*plain.last()?);
    let length = plain.len().checked_sub(padding).filter(|_| (1..=16).contains(&padding))?;
    plain.truncate(length);
    Some(plain)
}
