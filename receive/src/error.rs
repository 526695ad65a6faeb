// SPDX-License-Identifier: MIT OR Apache-2.0
//! What keeps a recording from beginning, or ends one of its streams: a caller's wrong option, a
//! host's refusal. What a sender does wrong is counted and never becomes an [`Error`].

use std::io;

/// Why a recording did not start, or a stream of it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: an option that cannot be taken.
    #[error("{option}: {found}; {cure}")]
    Option {
        /// The option as written on the command line.
        option: &'static str,
        /// What was found.
        found: String,
        /// What to write.
        cure: String,
    },
    /// Host: a system call failed.
    #[error("{call} {object}: {source}")]
    Host {
        /// The call.
        call: &'static str,
        /// On what.
        object: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Host: no way to receive can be used for these ports.
    #[error("receiving: {0}")]
    Path(String),
}

impl Error {
    /// True when the command line is at fault (exit status 2).
    pub fn is_caller(&self) -> bool {
        matches!(self, Error::Option { .. })
    }
}
