// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys: where they come from, what is derived from them, and that none is ever shown.
//!
//! A [`Secret`] is 16, 24 or 32 bytes that are overwritten when it is dropped. It remembers the
//! option it came from, so that a message can say whose fault it is and needs none of its bytes.
//! A key comes from a file ([`file`]), from an environment variable, from a passphrase
//! ([`passphrase`]), or is made at random. Other keys are derived from it, one for each
//! [`Purpose`], by BLAKE3's key derivation: a hash of a file's content that is kept beside the
//! ciphertext tells nothing about the key, nor, to whoever has not the key, about the content.
//!
//! Costs one block of BLAKE3 a derivation.
//!
//! Sources: BLAKE3 paper §2.2 (`derive_key`, `keyed_hash`); RFC 9106 (Argon2).
//! Does not do: ask a person for a passphrase, print warnings; the command line does. Does not
//! keep pages from being swapped out.

pub mod file;
pub mod passphrase;

use std::fmt;

use zeroize::Zeroizing;

use crate::error::{Error, counted};

/// Lengths that AES takes.
pub const KEY_BYTES: [usize; 3] = [16, 24, 32];

/// Where a key or a passphrase came from: an option, and what it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// As written on the command line, or what else a reader knows it by.
    pub option: &'static str,
    /// The file or the variable that it names; empty when it names none. Never a secret.
    pub name: String,
}

impl Origin {
    /// An option that names `name`.
    pub fn new(option: &'static str, name: impl Into<String>) -> Self {
        Self { option, name: name.into() }
    }

    /// A caller's error about it.
    pub fn error(&self, found: &str, cure: impl Into<String>) -> Error {
        let found = match self.name.as_str() {
            "" => found.to_owned(),
            name => format!("{name}: {found}"),
        };
        Error::Option { option: self.option, found, cure: cure.into() }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => f.write_str(self.option),
            name => write!(f, "{} {name}", self.option),
        }
    }
}

/// What a derived key is for. Each has its own, so that none says anything about another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Noticing a wrong key before it does anything.
    Check,
    /// The hash of a source's content that a manifest keeps.
    Content,
    /// The check of a manifest's line.
    Line,
}

impl Purpose {
    /// BLAKE3's context strings: never the same for two purposes, never changed.
    fn context(self) -> &'static str {
        match self {
            Purpose::Check => "pagewire seal 2026-11-21 whether a key is the right one v1",
            Purpose::Content => "pagewire seal 2026-11-21 content hash of a source file v1",
            Purpose::Line => "pagewire seal 2026-11-21 check of a manifest line v1",
        }
    }
}

/// A key. Its bytes are overwritten when it is dropped, and shown by nothing.
#[derive(Clone)]
pub struct Secret {
    bytes: Zeroizing<Vec<u8>>,
    origin: Origin,
}

impl Secret {
    /// A key of these bytes.
    ///
    /// # Errors
    /// [`Error::Option`]: not 16, 24 or 32 of them.
    pub fn new(bytes: Zeroizing<Vec<u8>>, origin: Origin) -> Result<Self, Error> {
        if KEY_BYTES.contains(&bytes.len()) {
            return Ok(Self { bytes, origin });
        }
        Err(origin.error(
            &format!("a key of {}", counted(bytes.len() as u64, "byte")),
            "write one of 16, 24 or 32 bytes: 32, 48 or 64 hex digits",
        ))
    }

    /// A key written as hex digits, space around them left out.
    ///
    /// # Errors
    /// [`Error::Option`]: not hex, with the offset of what is not, or of a wrong length.
    pub fn from_hex(text: &[u8], origin: Origin) -> Result<Self, Error> {
        let front = text.len() - text.trim_ascii_start().len();
        let digits = text.trim_ascii();
        if let Some(at) = digits.iter().position(|byte| !byte.is_ascii_hexdigit()) {
            return Err(origin.error(
                &format!("byte {} is not a hex digit", front + at),
                "write 32, 48 or 64 hex digits",
            ));
        }
        if !KEY_BYTES.map(|bytes| bytes * 2).contains(&digits.len()) {
            return Err(origin.error(
                &counted(digits.len() as u64, "hex digit"),
                "write 32, 48 or 64, for a key of 16, 24 or 32 bytes",
            ));
        }
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => digit - b'0',
            _ => (digit | 0x20) - b'a' + 10,
        };
        let bytes = digits.chunks_exact(2).map(|two| nibble(two[0]) << 4 | nibble(two[1]));
        Self::new(Zeroizing::new(bytes.collect()), origin)
    }

    /// The key in an environment variable, as hex. `option` is the one that names the variable.
    ///
    /// # Errors
    /// [`Error::Option`]: no such variable, or as [`Secret::from_hex`].
    pub fn from_environment(option: &'static str, variable: &str) -> Result<Self, Error> {
        Self::from_hex(environment(option, variable)?.as_slice(), Origin::new(option, variable))
    }

    /// A new key of `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Host`]: the kernel gives no random bytes.
    ///
    /// # Panics
    /// `bytes` is not 16, 24 or 32.
    pub fn random(bytes: usize) -> Result<Self, Error> {
        assert!(KEY_BYTES.contains(&bytes), "a length that AES takes");
        let mut key = Zeroizing::new(vec![0; bytes]);
        random(&mut key)?;
        Ok(Self { bytes: key, origin: Origin::new("a key made here", "") })
    }

    /// Its bytes, for a cipher.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where it came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Its bytes when they are `N`; `form` is what takes no others.
    ///
    /// # Errors
    /// [`Error::Option`]: it has another length.
    pub fn exactly<const N: usize>(&self, form: &str) -> Result<&[u8; N], Error> {
        self.bytes.as_slice().try_into().map_err(|_| self.wrong_length(form, N))
    }

    /// Says that a form takes another length.
    pub fn wrong_length(&self, form: &str, needed_bytes: usize) -> Error {
        self.origin.error(
            &format!("a key of {} bytes; {form} takes {needed_bytes}", self.bytes.len()),
            format!("write one of {} hex digits, or take another form", needed_bytes * 2),
        )
    }

    /// The key for a purpose: 32 bytes that depend on all of this key.
    pub fn derive(&self, purpose: Purpose) -> Zeroizing<[u8; 32]> {
        let mut hasher = blake3::Hasher::new_derive_key(purpose.context());
        hasher.update(&self.bytes);
        let mut derived = Zeroizing::new([0; 32]);
        hasher.finalize_xof().fill(derived.as_mut());
        derived
    }

    /// What is kept beside ciphertext so that a wrong key is noticed before it does anything.
    /// `salt` is random and kept with it: two folders under one key do not show that they are.
    pub fn check(&self, salt: &[u8]) -> [u8; 32] {
        self.check_hash(salt).into()
    }

    /// Whether this is the key that `check` was made with. In constant time.
    pub fn matches(&self, salt: &[u8], check: &[u8; 32]) -> bool {
        self.check_hash(salt) == blake3::Hash::from_bytes(*check)
    }

    /// Says that it is not the key with which `what` was sealed.
    pub fn mismatch(&self, what: &str) -> Error {
        self.origin.error(
            &format!("not the key or passphrase that {what} was sealed with"),
            "give that one; nothing was touched",
        )
    }

    fn check_hash(&self, salt: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.derive(Purpose::Check), salt)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes from {})", self.bytes.len(), self.origin)
    }
}

/// Fills `bytes` from the kernel's generator.
///
/// # Errors
/// [`Error::Host`]: it gives none.
pub fn random(bytes: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bytes).map_err(|error| {
        Error::host("getrandom", "random bytes".as_ref())(std::io::Error::other(error))
    })
}

/// What an environment variable holds.
fn environment(option: &'static str, variable: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    use std::os::unix::ffi::OsStringExt;
    // A name with these in it makes std panic on some systems, and none can be set.
    let value = match variable {
        "" => None,
        _ if variable.contains(['=', '\0']) => None,
        _ => std::env::var_os(variable),
    };
    let value = value.ok_or_else(|| {
        let cure = "set it, or name the one that is set";
        Origin::new(option, variable).error("no such environment variable", cure)
    })?;
    Ok(Zeroizing::new(value.into_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &[u8] = b"000102030405060708090a0B0c0D0e0f";

    fn origin() -> Origin {
        Origin::new("--key-env", "BOOK_KEY")
    }

    #[test]
    fn hex_of_every_length_aes_takes_is_a_key() {
        for bytes in KEY_BYTES {
            let text = format!(" {}\n", "5a".repeat(bytes));
            let secret = Secret::from_hex(text.as_bytes(), origin()).unwrap();
            assert_eq!(secret.bytes(), vec![0x5a; bytes]);
        }
        let secret = Secret::from_hex(HEX, origin()).unwrap();
        assert_eq!(secret.bytes(), (0..16).collect::<Vec<u8>>());
    }

    #[test]
    fn what_is_not_a_key_is_named_by_origin_and_offset_and_never_shown() {
        let error = |text: &[u8]| {
            let error = Secret::from_hex(text, origin()).unwrap_err();
            assert!(error.is_caller());
            error.to_string()
        };
        assert_eq!(
            error(b"  0011zz33445566778899aabbccddeeff"),
            "--key-env: BOOK_KEY: byte 6 is not a hex digit; write 32, 48 or 64 hex digits"
        );
        for digits in [0, 1, 30, 31, 33, 34, 62, 66, 128] {
            let text = "c".repeat(digits as usize);
            let (error, digits) = (error(text.as_bytes()), counted(digits, "hex digit"));
            assert!(error.contains(&format!("{digits}; write 32")), "{error}");
            assert!(!error.contains("ccc"), "{error}");
        }
        let short = Secret::new(Zeroizing::new(vec![7; 15]), origin()).unwrap_err();
        assert!(short.to_string().contains("a key of 15 bytes"), "{short}");
    }

    #[test]
    fn nothing_shows_the_bytes() {
        let secret = Secret::from_hex(HEX, origin()).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(16 bytes from --key-env BOOK_KEY)");
        let error = secret.exactly::<32>("gcm").unwrap_err().to_string();
        assert!(error.contains("a key of 16 bytes; gcm takes 32"), "{error}");
        assert!(!error.contains("000102"), "{error}");
        assert_eq!(secret.exactly::<16>("aes-128-cbc").unwrap()[..2], [0, 1]);
    }

    #[test]
    fn each_purpose_and_each_key_has_a_key_of_its_own() {
        let one = Secret::new(Zeroizing::new(vec![1; 16]), origin()).unwrap();
        let two = Secret::new(Zeroizing::new(vec![1; 24]), origin()).unwrap();
        let mut seen = std::collections::HashSet::new();
        for secret in [&one, &two] {
            for purpose in [Purpose::Check, Purpose::Content, Purpose::Line] {
                assert!(seen.insert(*secret.derive(purpose)));
                assert_eq!(secret.derive(purpose), secret.derive(purpose));
            }
        }
    }

    #[test]
    fn a_check_matches_its_key_and_its_salt_alone() {
        let one = Secret::random(32).unwrap();
        let two = Secret::random(32).unwrap();
        let check = one.check(b"salt");
        assert!(one.matches(b"salt", &check));
        assert!(!one.matches(b"sale", &check));
        assert!(!two.matches(b"salt", &check));
        assert!(two.mismatch("library").to_string().contains("that library was sealed with; give"));
    }

    #[test]
    fn a_variable_that_is_not_there_is_named() {
        for variable in ["PAGEWIRE_TEST_NO_SUCH_VARIABLE", "", "A=B", "A\0B"] {
            let error = Secret::from_environment("--key-env", variable).unwrap_err();
            assert!(error.is_caller());
            assert!(error.to_string().contains("no such environment variable"), "{error}");
        }
        // Set by the shell that runs the test in every host there is, and not hex.
        if std::env::var_os("PATH").is_some() {
            let error = Secret::from_environment("--key-env", "PATH").unwrap_err();
            assert!(error.to_string().contains("PATH: byte 0 is not a hex digit"), "{error}");
        }
    }
}
