// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why the guest gives up: what was asked for, what the machine lacks, a call that was refused,
//! or an answer that is wrong.
//!
//! Each is printed as one `guest: not ok` line and ends the run; there is nobody in the guest who
//! could do something about it.

use std::io;

/// See the variants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A word of the command line that is none of ours.
    #[error("word {word}: not known; write one of: {known}")]
    Word {
        /// As it was found.
        word: String,
        /// What could have stood there.
        known: String,
    },
    /// A setting with a value that cannot be used.
    #[error("setting {key}={value}: {need}")]
    Setting {
        /// Its name.
        key: String,
        /// What was found.
        value: String,
        /// What to write.
        need: String,
    },
    /// A fact about this machine.
    #[error("{what}: {found}; {cure}")]
    Unavailable {
        /// What wanted it.
        what: String,
        /// What is missing.
        found: String,
        /// What to do.
        cure: &'static str,
    },
    /// A call was refused.
    #[error("{call} {object}: {source}")]
    Host {
        /// The system call, or what was being done.
        call: &'static str,
        /// On what.
        object: String,
        /// The reason.
        source: io::Error,
    },
    /// Bytes or counts that are not those that must come out.
    #[error("{what}: expected {expected}, found {found}")]
    Wrong {
        /// What was compared.
        what: String,
        /// What must be there.
        expected: String,
        /// What is there.
        found: String,
    },
}

impl Error {
    /// For `map_err`: a call, and what it was made on.
    pub(crate) fn host<S: Into<io::Error>>(
        call: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(S) -> Error {
        let object = object.into();
        move |source| Error::Host { call, object, source: source.into() }
    }
}

/// An error when two figures differ that must be the same.
pub(crate) fn same(what: &str, expected: u64, found: u64) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (expected.to_string(), found.to_string());
    Err(Error::Wrong { what: what.to_owned(), expected, found })
}

/// An error that names the first byte in which two buffers differ.
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
