// SPDX-License-Identifier: MIT OR Apache-2.0
//! key_tokens: admission, the one function that decides about every request.
//!
//! HTTP calls it for the index, for files and for keys, RTSP for streams, before anything is
//! opened. It has two built-in policies: everything is open, or keys of sealed films need a token.
//! Every further check (signed addresses, a session with another server, addresses of peers)
//! belongs into [`Admission::decide`] only.
//!
//! Tokens are compared in a time that depends on their lengths alone.
//!
//! Sources: RFC 6750 (bearer tokens; §2.3 in the query, §3 the answer 401).
//! Does not confine requests to the served folder ([`crate::library::served_folder`] does) or count
//! wrong guesses: a token is random and has [`TOKEN_BYTES_MIN`] characters or more.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use wire::http::{Credentials, query_token};

use crate::error::Error;

/// Requested resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject<'a> {
    /// The index of all files.
    Index,
    /// A file, by its path in a request; not opened yet, so it need not exist.
    File(&'a str),
    /// A key of a sealed film.
    Key {
        /// Name of the film.
        film: &'a str,
        /// Number of the key.
        number: u64,
    },
    /// A stream over RTSP.
    Stream(&'a str),
}

/// The parts of a request that a decision needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) credentials: Option<&'a Credentials>,
    pub(crate) query: Option<&'a str>,
}

/// Result of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The request is admitted.
    Admitted,
    /// A token is needed (401); the one sent is wrong or missing.
    TokenNeeded {
        /// True when a token was sent.
        is_wrong: bool,
    },
}

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

    fn holds(&self, shown: &[u8]) -> bool {
        // Compares with all tokens, so that the time does not reveal which one matches.
        self.0.iter().fold(false, |found, token| found | is_equal(token, shown))
    }
}

/// True when the two are equal; takes a time that depends on their lengths alone.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |bits, (a, b)| std::hint::black_box(bits | (a ^ b)));
    a.len() == b.len() && differing == 0
}

/// Admission policy of a server.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    tokens: Option<KeyTokens>,
}

impl Admission {
    pub(crate) fn new(tokens: Option<KeyTokens>) -> Self {
        Self { tokens }
    }

    /// Decides about a request. Called for every request before anything is opened.
    pub(crate) fn decide(&self, asked: &Asked<'_>) -> Decision {
        match asked.subject {
            Subject::Index | Subject::File(_) | Subject::Stream(_) => Decision::Admitted,
            Subject::Key { .. } => {
                let Some(tokens) = &self.tokens else { return Decision::Admitted };
                let bearer = asked.credentials.and_then(Credentials::bearer);
                match bearer.or_else(|| asked.query.and_then(query_token)) {
                    Some(shown) if tokens.holds(shown) => Decision::Admitted,
                    shown => Decision::TokenNeeded { is_wrong: shown.is_some() },
                }
            }
        }
    }
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
    fn keys_take_a_token_and_nothing_else_does() {
        let admission = Admission::new(Some(tokens(&format!("# two\n{ONE}\n\n{TWO}\n")).unwrap()));
        let decide = |subject: Subject<'_>, query: Option<&str>| {
            admission.decide(&Asked { subject, credentials: None, query })
        };
        let key = Subject::Key { film: "a", number: 0 };
        for token in [ONE, TWO] {
            let query = format!("a=b&access_token={token}");
            assert_eq!(decide(key, Some(&query)), Decision::Admitted);
        }
        assert_eq!(decide(key, None), Decision::TokenNeeded { is_wrong: false });
        for wrong in ["", "0", &ONE[1..], &format!("{ONE}0"), "0123456789abcdef01234568"] {
            let query = format!("access_token={wrong}");
            assert_eq!(decide(key, Some(&query)), Decision::TokenNeeded { is_wrong: true });
        }
        for open in [Subject::Index, Subject::File("/a.ts"), Subject::Stream("/a.ts")] {
            assert_eq!(decide(open, None), Decision::Admitted);
        }
        let asked = Asked { subject: key, credentials: None, query: None };
        assert_eq!(Admission::new(None).decide(&asked), Decision::Admitted);
    }

    #[test]
    fn files_without_a_good_token_are_refused_and_no_token_is_shown() {
        for (text, said) in [
            ("", "no token"),
            ("# nothing\n", "no token"),
            ("short\n", "line 1: 5 characters"),
            ("0123456789abcdef 0123456789abcdef\n", "line 1: 33 characters"),
        ] {
            let error = tokens(text).unwrap_err();
            assert!(error.contains(said) && error.contains("--key-token-file"), "{error}");
            assert!(!error.contains("0123456789"), "{error}");
        }
        assert_eq!(format!("{:?}", tokens(ONE).unwrap()), "1 tokens");
        assert!(KeyTokens::read("--key-token-file", Path::new("/none")).is_err());
    }
}
