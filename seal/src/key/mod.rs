// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sealing keys: their sources, and the keys derived from them.
//!
//! A [`Secret`] is 16, 24 or 32 bytes that are overwritten when it is dropped and are never shown.
//! It records the option that it was read from, so that a message can name the option and needs
//! none of the bytes. A key comes from a file ([`file`]), from an environment variable, from a
//! passphrase ([`passphrase`]), or is made at random. BLAKE3's key derivation makes another key
//! from it for each [`Purpose`]: the hash of a file's content that is kept beside the ciphertext
//! reveals nothing about the key, and nothing about the content to a reader without the key.
//!
//! Costs one block of BLAKE3 a derivation.
//!
//! Sources: BLAKE3 paper §2.2 (`derive_key`, `keyed_hash`); RFC 9106 (Argon2). Does not ask for a
//! passphrase and prints no warnings: the command line does. Does not keep pages from being swapped
//! out.

pub mod file;
pub mod passphrase;

use std::fmt;

use zeroize::Zeroizing;

use crate::error::Error;
use crate::plural::counted;

/// Key lengths of AES, in bytes.
pub const KEY_BYTES: [usize; 3] = [16, 24, 32];

/// Origin of a key or a passphrase: an option and the file or variable that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The option as written on the command line, or another name familiar to the user.
    pub option: &'static str,
    /// Name of the file or the variable; empty when there is none. Never a secret.
    pub name: String,
}

impl Origin {
    /// Makes the origin of an option that names `name`.
    pub fn new(option: &'static str, name: impl Into<String>) -> Self {
        Self { option, name: name.into() }
    }

    /// Returns a caller's error about this option.
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

/// Use of a derived key. Each use has its own key, so that none reveals anything about another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reveals a wrong key before it is used.
    Check,
    /// Hashes a source's content, for the manifest.
    Content,
    /// Checks the lines of a manifest.
    Line,
}

impl Purpose {
    /// Returns BLAKE3's context string: different for each purpose and never changed.
    fn context(self) -> &'static str {
        match self {
            Purpose::Check => "pagewire seal 2026-11-21 whether a key is the right one v1",
            Purpose::Content => "pagewire seal 2026-11-21 content hash of a source file v1",
            Purpose::Line => "pagewire seal 2026-11-21 check of a manifest line v1",
        }
    }
}

/// A key. Its bytes are overwritten when it is dropped, and never shown.
#[derive(Clone)]
pub struct Secret {
    bytes: Zeroizing<Vec<u8>>,
    origin: Origin,
}

impl Secret {
    /// Makes a key of these bytes.
    ///
    /// # Errors
    /// [`Error::Option`]: their number is not 16, 24 or 32.
    pub fn new(bytes: Zeroizing<Vec<u8>>, origin: Origin) -> Result<Self, Error> {
        if KEY_BYTES.contains(&bytes.len()) {
            return Ok(Self { bytes, origin });
        }
        Err(origin.error(
            &format!("a key of {}", counted(bytes.len() as u64, "byte")),
            "write one of 16, 24 or 32 bytes: 32, 48 or 64 hex digits",
        ))
    }

    /// Parses a key written as hex digits; ignores white space around them.
    ///
    /// # Errors
    /// [`Error::Option`]: a byte is not a hex digit (named by its offset), or the length is wrong.
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

    /// Reads the hex key in an environment variable. `option` is the option that names the
    /// variable.
    ///
    /// # Errors
    /// [`Error::Option`]: the variable is not set; errors of [`Secret::from_hex`].
    pub fn from_environment(option: &'static str, variable: &str) -> Result<Self, Error> {
        Self::from_hex(environment(option, variable)?.as_slice(), Origin::new(option, variable))
    }

    /// Makes a random key of `bytes` bytes.
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

    /// Returns the bytes, for a cipher.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the option and the name from which the key was read.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the bytes when their number is `N`; `form` names the form that needs it.
    ///
    /// # Errors
    /// [`Error::Option`]: the key has another length.
    pub fn exactly<const N: usize>(&self, form: &str) -> Result<&[u8; N], Error> {
        self.bytes.as_slice().try_into().map_err(|_| self.wrong_length(form, N))
    }

    /// Returns the error that `form` requires a key of another length.
    pub fn wrong_length(&self, form: &str, needed_bytes: usize) -> Error {
        self.origin.error(
            &format!("a key of {} bytes; {form} takes {needed_bytes}", self.bytes.len()),
            format!("write one of {} hex digits, or take another form", needed_bytes * 2),
        )
    }

    /// Derives the key for a purpose: 32 bytes that depend on all bytes of this key.
    pub fn derive(&self, purpose: Purpose) -> Zeroizing<[u8; 32]> {
        let mut hasher = blake3::Hasher::new_derive_key(purpose.context());
        hasher.update(&self.bytes);
        let mut derived = Zeroizing::new([0; 32]);
        hasher.finalize_xof().fill(derived.as_mut());
        derived
    }

    /// Returns the check that is kept beside ciphertext and reveals a wrong key before it is used.
    /// `salt` is random and kept with it, so that two folders under one key have different checks.
    pub fn check(&self, salt: &[u8]) -> [u8; 32] {
        self.check_hash(salt).into()
    }

    /// Returns true when `check` was made with this key. Compares in constant time.
    pub fn matches(&self, salt: &[u8], check: &[u8; 32]) -> bool {
        self.check_hash(salt) == blake3::Hash::from_bytes(*check)
    }

    /// Returns the error that `what` was sealed with another key.
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

/// Fills `bytes` from the kernel's random generator.
///
/// # Errors
/// [`Error::Host`]: the generator fails.
pub fn random(bytes: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bytes).map_err(|error| {
        Error::host("getrandom", "random bytes".as_ref())(std::io::Error::other(error))
    })
}

/// Returns the value of an environment variable.
fn environment(option: &'static str, variable: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    use std::os::unix::ffi::OsStringExt;
    // A name with `=` or NUL makes std panic on some systems, and no such variable can be set.
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
        // PATH is set by the shell that runs the test, and it is not hex.
        if std::env::var_os("PATH").is_some() {
            let error = Secret::from_environment("--key-env", "PATH").unwrap_err();
            assert!(error.to_string().contains("PATH: byte 0 is not a hex digit"), "{error}");
        }
    }
}
