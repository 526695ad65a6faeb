// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opener of sealed files of any form: deciphers piece by piece and in place.
//!
//! [`Opener`] opens the files of a folder; [`Opening`] is one file in progress. Pieces of a GCM
//! file are authentic one by one. Pieces of a CBC file may be anything until a hash of the whole is
//! compared, and must not be used before the last piece. A wrong key, a wrong padding and a damaged
//! file are one fault ([`SealedFileFault::Sealed`]): an attacker who could distinguish them could
//! decipher CBC without the key (Vaudenay, 2002). The padding is compared in constant time.
//!
//! Costs the cipher in place; keeps no piece.
//!
//! Sources: RFC 5652 §6.3 (padding); Vaudenay, "Security Flaws Induced by CBC Padding" (2002).
//! Does not read, write or hash.

use std::ops::Range;

use simd::cbc::{self, BLOCK_BYTES, Cbc};
use zeroize::Zeroizing;

pub use super::fault::SealedFileFault;
use super::{FolderForm, gcm};
use crate::error::Error;
use crate::key::Secret;

/// Bytes of a sealed file that are opened together: a segment of GCM, a slice of CBC.
pub const PIECE_BYTES: usize = gcm::SEGMENT_BYTES;

/// Opens the files of a folder.
pub struct Opener {
    form: &'static FolderForm,
    cipher: Cipher,
}

enum Cipher {
    Gcm(Zeroizing<[u8; gcm::KEY_BYTES]>),
    Cbc {
        key: Box<cbc::AesKey>,
        /// One IV for all files; without it, each file has its IV in front.
        iv: Option<[u8; BLOCK_BYTES]>,
        lanes: Cbc,
    },
}

impl Opener {
    /// Makes an opener for files of this form. `iv` is for CBC files without one in front.
    ///
    /// # Errors
    /// [`Error::Option`]: the key or the IV is not for this form.
    pub fn new(
        form: &'static FolderForm,
        iv: Option<[u8; BLOCK_BYTES]>,
        secret: &Secret,
        lanes: Cbc,
    ) -> Result<Self, Error> {
        form.takes(iv, secret)?;
        let cipher = if form.name == gcm::NAME {
            Cipher::Gcm(Zeroizing::new(*secret.exactly(form.name)?))
        } else {
            let key = cbc::AesKey::new(secret.bytes());
            let key = key.map_err(|_| secret.wrong_length(form.name, form.key_bytes))?;
            Cipher::Cbc { key: Box::new(key), iv, lanes }
        };
        Ok(Self { form, cipher })
    }

    /// Begins a file of `sealed_bytes`.
    ///
    /// # Errors
    /// No file of the form has this length.
    pub fn begin(&self, sealed_bytes: u64) -> Result<Opening<'_>, SealedFileFault> {
        check_length(self.form, self.prefix_bytes(), sealed_bytes)?;
        let state = State::New(&self.cipher);
        Ok(Opening { state, left_bytes: sealed_bytes })
    }

    fn prefix_bytes(&self) -> u64 {
        match &self.cipher {
            Cipher::Cbc { iv: None, .. } => BLOCK_BYTES as u64,
            _ => 0,
        }
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opener({})", self.form.name)
    }
}

/// Refuses a length that no file of a form has. `prefix_bytes`: bytes of an IV in front.
pub(super) fn check_length(
    form: &FolderForm,
    prefix_bytes: u64,
    found_bytes: u64,
) -> Result<(), SealedFileFault> {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let is_possible = match form.name {
        gcm::NAME => gcm::source_bytes(found_bytes).is_some(),
        _ => found_bytes >= prefix_bytes + BLOCK && found_bytes.is_multiple_of(BLOCK),
    };
    if is_possible { Ok(()) } else { Err(SealedFileFault::Length { found_bytes, form: form.name }) }
}

/// A sealed file in progress.
pub struct Opening<'a> {
    state: State<'a>,
    left_bytes: u64,
}

enum State<'a> {
    New(&'a Cipher),
    Gcm(gcm::GcmSegments),
    Cbc { key: &'a cbc::AesKey, iv: [u8; BLOCK_BYTES], lanes: Cbc },
}

impl Opening<'_> {
    /// Returns the bytes of the next piece for [`Opening::open`], at most [`PIECE_BYTES`]. 0: end
    /// of the file.
    pub fn next_bytes(&self) -> usize {
        self.left_bytes.min(PIECE_BYTES as u64) as usize
    }

    /// Deciphers the next [`Opening::next_bytes`] of the file in place and returns the range that
    /// is the source's. Not called again after a fault.
    ///
    /// # Errors
    /// [`SealedFileFault::Sealed`]; the bytes in `piece` are invalid.
    ///
    /// # Panics
    /// `piece` has another length.
    pub fn open(&mut self, piece: &mut [u8]) -> Result<Range<usize>, SealedFileFault> {
        assert_eq!(piece.len(), self.next_bytes(), "the next piece");
        self.left_bytes -= piece.len() as u64;
        let is_last = self.left_bytes == 0;
        let front = self.start(piece).ok_or(SealedFileFault::Sealed)?;
        let sealed = &mut piece[front..];
        let bytes = match &mut self.state {
            State::Gcm(segments) => segments.open(sealed, is_last),
            State::Cbc { key, iv, lanes } => {
                lanes.decrypt(key, iv, sealed);
                if is_last { unpadded(sealed) } else { Some(sealed.len()) }
            }
            State::New(_) => unreachable!("started"),
        };
        bytes.map(|bytes| front..front + bytes).ok_or(SealedFileFault::Sealed)
    }

    /// Returns the fault of a file that opened and differs from the sealed content. For CBC it is
    /// the fault of a wrong padding: that may be the cause.
    pub fn other(&self) -> SealedFileFault {
        match self.state {
            State::Gcm(_) => SealedFileFault::Other,
            State::New(_) | State::Cbc { .. } => SealedFileFault::Sealed,
        }
    }

    /// Reads the header or IV in front of the first piece; returns its length in bytes.
    fn start(&mut self, piece: &[u8]) -> Option<usize> {
        let State::New(cipher) = self.state else { return Some(0) };
        let (state, front) = match cipher {
            Cipher::Gcm(key) => {
                let header = piece.first_chunk()?;
                (State::Gcm(gcm::GcmSegments::new(key, header)?), header.len())
            }
            Cipher::Cbc { key, iv: Some(iv), lanes } => {
                (State::Cbc { key, iv: *iv, lanes: *lanes }, 0)
            }
            Cipher::Cbc { key, iv: None, lanes } => {
                let iv = *piece.first_chunk()?;
                (State::Cbc { key, iv, lanes: *lanes }, iv.len())
            }
        };
        self.state = state;
        Some(front)
    }
}

/// Returns the length without padding. Constant time, except that a wrong padding gives `None`.
fn unpadded(bytes: &[u8]) -> Option<usize> {
    let block: &[u8; BLOCK_BYTES] = bytes.last_chunk()?;
    let padding = block[BLOCK_BYTES - 1];
    let mut wrong = u8::from(padding == 0) | u8::from(usize::from(padding) > BLOCK_BYTES);
    for (at, byte) in (1..).zip(block.iter().rev()) {
        let is_padding = u8::from(at <= padding);
        wrong |= is_padding.wrapping_neg() & (byte ^ padding);
    }
    (std::hint::black_box(wrong) == 0).then(|| bytes.len() - usize::from(padding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_right_or_not_whatever_is_in_front_of_it() {
        for padding in 0..=255u8 {
            let mut bytes = [0xEE; 32];
            let count = usize::from(padding).min(16);
            bytes[32 - count..].fill(padding);
            let right = (1..=16).contains(&padding);
            assert_eq!(unpadded(&bytes), right.then(|| 32 - count), "{padding}");
            // Any byte of the padding changed.
            for at in 1..count {
                let mut bytes = bytes;
                bytes[32 - 1 - at] ^= 1;
                assert_eq!(unpadded(&bytes), None, "{padding} at {at}");
            }
        }
        assert_eq!(unpadded(&[]), None);
    }
}
