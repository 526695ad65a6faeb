// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sealed file taken apart: any form, from any reader, in the memory of one buffer.
//!
//! [`Opener`] is how the files of a folder are opened, [`Opening`] one file in progress. What a
//! [`Opening`] of GCM gives is authentic, piece by piece; what one of CBC gives may be anything
//! until a hash of the whole says otherwise, and nobody may look at it before the last piece. A
//! wrong key, a wrong padding and a damaged file are one fault ([`Closed::Sealed`]): who could
//! tell them apart could decipher CBC without the key (Vaudenay, 2002). The padding is compared in
//! constant time.
//!
//! Costs one read a buffer and the cipher in place.
//!
//! Sources: RFC 5652 §6.3 (padding); Vaudenay, "Security Flaws Induced by CBC Padding" (2002).
//! Does not do: open or write files, hash.

use std::io::{self, Read};

use simd::cbc::{self, BLOCK_BYTES, Cbc};
use zeroize::Zeroizing;

use super::gcm;
use crate::error::{Error, Fault};
use crate::key::Secret;

/// Why a sealed file does not open, or is not what it was. One enum for all forms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// No file of the form has this length.
    #[error(
        "{found_bytes} bytes, which no file of {form} has: cut off, or another form; copy it \
        again"
    )]
    Length {
        /// Bytes of the file.
        found_bytes: u64,
        /// The form.
        form: &'static str,
    },
    /// The manifest knows another length.
    #[error(
        "{found_bytes} bytes where {sealed_bytes} were sealed: cut off or grown; copy it again"
    )]
    Resized {
        /// Bytes of the file.
        found_bytes: u64,
        /// Bytes when it was sealed.
        sealed_bytes: u64,
    },
    /// It does not open, and no more is said.
    #[error("does not open: another key or form, or damaged; nothing of it was written")]
    Sealed,
    /// In the manifest or the source, and not in the folder.
    #[error("missing from the sealed folder; seal the source again")]
    Missing,
    /// In the folder, and not in the manifest or the source.
    #[error("was not sealed into this folder; take it out")]
    Extra,
    /// It opens, and is not what was sealed.
    #[error("opens to something else than what was sealed; seal the source again")]
    Other,
    /// It opens, and is not what the source is.
    #[error("differs from its source at byte {offset}; seal the source again")]
    Differs {
        /// The first byte of the source that is another.
        offset: u64,
    },
}

/// Why there is no next piece.
#[derive(Debug)]
pub enum Stop {
    /// The reader's.
    Read(io::Error),
    /// The file's.
    Closed(Closed),
    /// The file became shorter while it was read.
    Shrunk,
}

impl Stop {
    /// As an error about a file.
    pub fn error(self, path: &std::path::Path) -> Error {
        match self {
            Stop::Read(source) => Error::host("read", path)(source),
            Stop::Closed(closed) => Error::file(path, Fault::Sealed(closed)),
            Stop::Shrunk => Error::file(path, Fault::Changed),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Stop::Shrunk,
            _ => Stop::Read(error),
        }
    }
}

/// How the files of a folder are opened.
pub struct Opener {
    form: &'static str,
    cipher: Cipher,
}

enum Cipher {
    Gcm(Zeroizing<[u8; gcm::KEY_BYTES]>),
    Cbc {
        key: cbc::Key,
        /// Of all files; without it, in front of each.
        iv: Option<[u8; BLOCK_BYTES]>,
        lanes: Cbc,
    },
}

/// The forms of a folder: their names, and the bytes of their keys.
pub const FORMS: [(&str, usize); 4] =
    [("aes-256-cbc", 32), ("aes-192-cbc", 24), ("aes-128-cbc", 16), ("gcm", gcm::KEY_BYTES)];

/// The form of this name and its key, or what is wrong with either.
pub(super) fn form(
    form: &str,
    iv: Option<[u8; BLOCK_BYTES]>,
    secret: &Secret,
) -> Result<&'static str, Error> {
    let Some((name, key_bytes)) = FORMS.into_iter().find(|(name, _)| *name == form) else {
        let cure = format!("write one of {}", FORMS.map(|(name, _)| name).join(", "));
        let found = format!("{form}: no form of a folder");
        return Err(Error::Option { option: "--form", found, cure });
    };
    if name == "gcm" && iv.is_some() {
        let found = "gcm makes its own".to_owned();
        return Err(Error::Option { option: "--iv", found, cure: "leave it out".to_owned() });
    }
    if secret.bytes().len() != key_bytes {
        return Err(secret.wrong_length(name, key_bytes));
    }
    Ok(name)
}

impl Opener {
    /// For files of this form. `iv` is for those of CBC that have none in front.
    ///
    /// # Errors
    /// [`Error::Option`]: no such form, or the key or the IV is not for it.
    pub fn new(
        form: &str,
        iv: Option<[u8; BLOCK_BYTES]>,
        secret: &Secret,
        lanes: Cbc,
    ) -> Result<Self, Error> {
        let form = self::form(form, iv, secret)?;
        let cipher = match form {
            "gcm" => Cipher::Gcm(Zeroizing::new(*secret.exactly(form)?)),
            _ => {
                let key = cbc::Key::new(secret.bytes());
                let key = key.map_err(|wrong| secret.wrong_length(form, wrong.found))?;
                Cipher::Cbc { key, iv, lanes }
            }
        };
        Ok(Self { form, cipher })
    }

    /// Begins a file of `sealed_bytes`: reads what is in front of its first piece.
    ///
    /// # Errors
    /// [`Stop`]: the reader's, or no file of the form is so long or begins so.
    pub fn begin(&self, source: &mut impl Read, sealed_bytes: u64) -> Result<Opening<'_>, Stop> {
        check_length(self.form, self.prefix_bytes(), sealed_bytes).map_err(Stop::Closed)?;
        let (front_bytes, state) = match &self.cipher {
            Cipher::Gcm(key) => {
                let mut header = [0; gcm::HEADER_BYTES];
                source.read_exact(&mut header)?;
                let segments = gcm::Segments::new(key, &header);
                let segments = segments.ok_or(Stop::Closed(Closed::Sealed))?;
                (header.len(), State::Gcm(segments))
            }
            Cipher::Cbc { key, iv: Some(iv), lanes } => {
                (0, State::Cbc { key, iv: *iv, lanes: *lanes })
            }
            Cipher::Cbc { key, iv: None, lanes } => {
                let mut iv = [0; BLOCK_BYTES];
                source.read_exact(&mut iv)?;
                (iv.len(), State::Cbc { key, iv, lanes: *lanes })
            }
        };
        Ok(Opening { state, left_bytes: sealed_bytes - front_bytes as u64 })
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
        write!(f, "Opener({})", self.form)
    }
}

/// Whether a file of a form can be so long. `prefix_bytes`: of an IV in front.
pub(super) fn check_length(
    form: &'static str,
    prefix_bytes: u64,
    found_bytes: u64,
) -> Result<(), Closed> {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let is_possible = match form {
        "gcm" => gcm::source_bytes(found_bytes).is_some(),
        _ => found_bytes >= prefix_bytes + BLOCK && found_bytes.is_multiple_of(BLOCK),
    };
    if is_possible { Ok(()) } else { Err(Closed::Length { found_bytes, form }) }
}

/// A sealed file in progress.
pub struct Opening<'a> {
    state: State<'a>,
    left_bytes: u64,
}

enum State<'a> {
    Gcm(gcm::Segments),
    Cbc { key: &'a cbc::Key, iv: [u8; BLOCK_BYTES], lanes: Cbc },
}

/// What a step gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the source, from the buffer's beginning.
    pub bytes: usize,
    /// Bytes of the sealed file that were taken for them.
    pub sealed_bytes: usize,
    /// It was the last.
    pub is_last: bool,
}

impl Opening<'_> {
    /// The next piece, into `buffer` from its beginning. Not called again after the last, or
    /// after a fault.
    ///
    /// # Errors
    /// [`Stop`]; what is in `buffer` is of no use.
    ///
    /// # Panics
    /// `buffer` is shorter than [`gcm::SEGMENT_BYTES`].
    pub fn next(&mut self, source: &mut impl Read, buffer: &mut [u8]) -> Result<Piece, Stop> {
        assert!(buffer.len() >= gcm::SEGMENT_BYTES, "a segment fits into the buffer");
        let most = match &self.state {
            State::Gcm(segments) => segments.next_bytes(),
            State::Cbc { .. } => buffer.len() / BLOCK_BYTES * BLOCK_BYTES,
        };
        let sealed_bytes = usize::try_from(self.left_bytes).map_or(most, |left| left.min(most));
        let buffer = &mut buffer[..sealed_bytes];
        source.read_exact(buffer)?;
        self.left_bytes -= sealed_bytes as u64;
        let is_last = self.left_bytes == 0;
        let bytes = match &mut self.state {
            State::Gcm(segments) => segments.open(buffer, is_last),
            State::Cbc { key, iv, lanes } => {
                lanes.decrypt(key, iv, buffer);
                if is_last { unpadded(buffer) } else { Some(buffer.len()) }
            }
        };
        let bytes = bytes.ok_or(Stop::Closed(Closed::Sealed))?;
        Ok(Piece { bytes, sealed_bytes, is_last })
    }
}

/// How many bytes are left without the padding, if it is right. In constant time but for that.
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
            // Any byte of it that is another.
            for at in 1..count {
                let mut bytes = bytes;
                bytes[32 - 1 - at] ^= 1;
                assert_eq!(unpadded(&bytes), None, "{padding} at {at}");
            }
        }
        assert_eq!(unpadded(&[]), None);
    }
}
