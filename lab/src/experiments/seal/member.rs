// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways to seal a folder that are compared, one file and one line each, the study's first.
//!
//! All encrypt with AES-128 in CBC mode under the study's key. What differs is what is compared:
//! how files meet cores, how blocks meet the cipher unit, and what is done for safety.
//!
//! Sources: the study, section 4.4 (key and IV).
//! Does not do: measure; a member is timed from outside.

use std::path::Path;

use seal::engine::Stages;

use super::{lanes, per_file, published};
use measure::Error;

/// A way to seal a folder.
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// What its outputs look like.
    pub(super) layout: Layout,
    /// Seals a folder of files into one that is not there yet, with so many threads.
    pub(super) run: fn(source: &Path, target: &Path, threads: usize) -> Result<Account, Error>,
}

/// Where a member's workers spent their time, as far as it keeps an account.
pub(super) type Account = Option<Stages>;

/// What an output looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Ciphertext under the study's IV.
    Body,
    /// A random IV, then the ciphertext.
    IvBody,
    /// The source itself.
    Clear,
}

impl Layout {
    /// Bytes of the output for so many of the source.
    pub(super) fn sealed_bytes(self, bytes: u64) -> u64 {
        let block = IV.len() as u64;
        let body = bytes / block * block + block;
        match self {
            Layout::Body => body,
            Layout::IvBody => block + body,
            Layout::Clear => bytes,
        }
    }
}

/// All of them; others are compared with the first.
pub(super) static MEMBERS: &[&Member] = &[&published::MEMBER, &per_file::MEMBER, &lanes::MEMBER];

/// The study's key.
pub(super) const KEY: [u8; 16] = *b"1234567890123456";
/// The study's IV.
pub(super) const IV: [u8; 16] = *b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_padded_to_the_next_block() {
        let bodies = [0, 15, 16, 17].map(|bytes| Layout::Body.sealed_bytes(bytes));
        assert_eq!(bodies, [16, 16, 32, 32]);
        assert_eq!(Layout::IvBody.sealed_bytes(16), 48);
    }
}
