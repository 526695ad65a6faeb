// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compared ways to seal a folder, one file and one line each, the paper's first.
//!
//! All encrypt with AES-128 in CBC mode under the key of the file-encryption paper. They differ in
//! the distribution of files to cores, the use of the cipher unit, and the safety measures.
//!
//! Sources: the file-encryption paper, section 4.4 (key and IV).
//! Does not measure; a member is timed from outside.

use std::path::Path;

use seal::engine::Stages;

use super::{lanes, per_file, published};
use measure::Error;

/// A way to seal a folder.
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// Layout of its outputs.
    pub(super) layout: Layout,
    /// Seals a folder of files into a new folder with `threads` threads.
    pub(super) run: fn(source: &Path, target: &Path, threads: usize) -> Result<Account, Error>,
}

/// Time by stage of a member's workers, where the member records it.
pub(super) type Account = Option<Stages>;

/// Layout of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Ciphertext under the paper's IV.
    Body,
    /// A random IV, then the ciphertext.
    IvBody,
    /// Unchanged source.
    Clear,
}

impl Layout {
    /// Returns the bytes of the output for a source of `bytes` bytes.
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

/// All members; the others are compared with the first.
pub(super) static MEMBERS: &[&Member] = &[&published::MEMBER, &per_file::MEMBER, &lanes::MEMBER];

/// Key of the file-encryption paper.
pub(super) const KEY: [u8; 16] = *b"1234567890123456";
/// IV of the file-encryption paper.
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
