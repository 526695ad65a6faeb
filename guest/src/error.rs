// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors that end the run: a bad command line, a missing facility, a refused call, or a wrong
//! result.
//!
//! Each error is printed as one `guest: not ok` line and ends the run: the guest has no user who
//! could react.

use std::io;

/// Error of the guest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// An unknown word on the command line.
    #[error("word {word}: not known; write one of: {known}")]
    Word {
        /// The word.
        word: String,
        /// Known words.
        known: String,
    },
    /// A setting with a value that cannot be used.
    #[error("setting {key}={value}: {need}")]
    Setting {
        /// Name of the setting.
        key: String,
        /// Value found.
        value: String,
        /// Value to write instead.
        need: String,
    },
    /// A fact about this machine.
    #[error("{what}: {found}; {cure}")]
    Unavailable {
        /// Job or workload that needs the facility.
        what: String,
        /// Fact that was found.
        found: String,
        /// Remedy for the user.
        cure: &'static str,
    },
    /// A call was refused.
    #[error("{call} {object}: {source}")]
    Host {
        /// System call or operation.
        call: &'static str,
        /// Object of the call.
        object: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Bytes or counts that differ from the expected ones.
    #[error("{what}: expected {expected}, found {found}")]
    Wrong {
        /// Subject of the comparison.
        what: String,
        /// Expected value.
        expected: String,
        /// Value found.
        found: String,
    },
}

impl Error {
    /// Returns a function for `map_err` that adds a call and its object.
    pub(crate) fn host<S: Into<io::Error>>(
        call: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(S) -> Error {
        let object = object.into();
        move |source| Error::Host { call, object, source: source.into() }
    }
}

/// Returns an error when two figures differ.
pub(crate) fn same(what: &str, expected: u64, found: u64) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (expected.to_string(), found.to_string());
    Err(Error::Wrong { what: what.to_owned(), expected, found })
}

/// Returns an error that names the first byte in which two buffers differ.
pub(crate) fn same_bytes(what: &str, expected: &[u8], found: &[u8]) -> Result<(), Error> {
    same(&format!("{what}: length"), expected.len() as u64, found.len() as u64)?;
    let Some(at) = expected.iter().zip(found).position(|(expected, found)| expected != found)
    else {
        return Ok(());
    };
    same(&format!("{what}: byte {at}"), expected[at].into(), found[at].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_differs_is_named() {
        assert!(same_bytes("a", b"abc", b"abc").is_ok());
        let error = same_bytes("read", b"abcd", b"abxy").expect_err("two bytes differ");
        assert_eq!(error.to_string(), "read: byte 2: expected 99, found 120");
        let error = same_bytes("read", b"abcd", b"ab").expect_err("two bytes are missing");
        assert_eq!(error.to_string(), "read: length: expected 4, found 2");
    }
}
