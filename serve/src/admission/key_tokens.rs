// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file of tokens that open keys of sealed films.
//!
//! Tokens are compared in a time that depends on their lengths alone.
//!
//! Sources: RFC 6750 (bearer tokens; §2.3 in the query, §3 the answer 401).
//! Does not count wrong guesses: a token is random and has [`TOKEN_BYTES_MIN`] characters or more.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::error::Error;

/// Tokens that open keys. Without tokens keys are open.
#[derive(Clone, Default)]
pub struct KeyTokens(Vec<Vec<u8>>);

/// Hides the tokens.
impl std::fmt::Debug for KeyTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

impl KeyTokens {
    /// Reads a file of tokens, one a line; skips empty lines and those that begin with `#`. With
    /// several, one can be replaced while players still have the old.
    ///
    /// # Errors
    /// [`Error::Option`]: the file cannot be read, holds no token, or one that is too short.
    pub fn read(option: &'static str, path: &Path) -> Result<Self, Error> {
        let refuse = |found: String, cure: String| Error::Option {
            option,
            found: format!("{}: {found}", path.display()),
            cure,
        };
        let text = fs::read(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let cure =
                    format!("make one, a token a line: openssl rand -hex 32 > {}", path.display());
                refuse("no such file".to_owned(), cure)
            }
            ErrorKind::IsADirectory => {
                refuse("a folder".to_owned(), "name the file in it that has the tokens".to_owned())
            }
            _ => refuse(error.to_string(), "name a file that you can read".to_owned()),
        })?;
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            let token = line.trim_ascii();
            if token.is_empty() || token[0] == b'#' {
                continue;
            }
            let is_token =
                token.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte));
            if token.len() < TOKEN_BYTES_MIN || !is_token {
                let found = format!("line {number}: {} characters", token.len());
                let cure = format!(
                    "write {TOKEN_BYTES_MIN} or more of letters, digits and -._~+/= \
                     (openssl rand -hex 32)"
                );
                return Err(refuse(found, cure));
            }
            tokens.push(token.to_owned());
        }
        match tokens.is_empty() {
            true => {
                let cure = "write one a line (openssl rand -hex 32)";
                Err(refuse("no token".to_owned(), cure.to_owned()))
            }
            false => Ok(Self(tokens)),
        }
    }

    /// True when this is one of the tokens.
    pub(super) fn holds(&self, shown: &[u8]) -> bool {
        // Compares with all tokens, so that the time does not reveal which one matches.
        self.0.iter().fold(false, |found, token| found | is_equal(token, shown))
    }
}

/// True when the two are equal; takes a time that depends on their lengths alone.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |bits, (a, b)| std::hint::black_box(bits | (a ^ b)));
    a.len() == b.len() && differing == 0
}

/// Least characters of a token: 96 bits in hexadecimal, no fewer in any other encoding.
const TOKEN_BYTES_MIN: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef01234567";
    const TWO: &str = "fedcba9876543210fedcba98";

    fn tokens(text: &str) -> Result<KeyTokens, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        fs::write(&path, text).unwrap();
        KeyTokens::read("--key-token-file", &path).map_err(|error| error.to_string())
    }

    #[test]
    fn tokens_of_the_file_are_held_and_no_others() {
        let held = tokens(&format!("# two\n{ONE}\n\n{TWO}\n")).unwrap();
        assert!(held.holds(ONE.as_bytes()) && held.holds(TWO.as_bytes()));
        for wrong in ["", "0", &ONE[1..], &format!("{ONE}0"), "0123456789abcdef01234568"] {
            assert!(!held.holds(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn files_without_a_good_token_are_refused_and_no_token_is_shown() {
        for (text, expected) in [
            ("", "no token"),
            ("# nothing\n", "no token"),
            ("short\n", "line 1: 5 characters"),
            ("0123456789abcdef 0123456789abcdef\n", "line 1: 33 characters"),
        ] {
            let error = tokens(text).unwrap_err();
            assert!(error.contains(expected) && error.contains("--key-token-file"), "{error}");
            assert!(!error.contains("0123456789"), "{error}");
        }
        assert_eq!(format!("{:?}", tokens(ONE).unwrap()), "1 tokens");
        assert!(KeyTokens::read("--key-token-file", Path::new("/none")).is_err());
    }
}
