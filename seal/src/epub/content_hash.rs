// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hash of what is in a sealed book, for the journal: what a verifier without the source
//! compares with.
//!
//! Of each entry in order its name, a zero byte, and its bytes inside the cipher (deflated, if they
//! are), and at the end of each its length. Keyed: a plain hash would tell whether a known book is
//! sealed here.
//!
//! Source: the BLAKE3 paper §2.2 (`keyed_hash`).

use crate::engine::stage::{SealStage, enter};

/// The hash as far as it has got.
#[derive(Debug)]
pub(super) struct Content {
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Content {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { hasher: blake3::Hasher::new_keyed(key), bytes: 0 }
    }

    /// The next entry.
    pub(super) fn begin(&mut self, name: &str) {
        self.hasher.update(&self.bytes.to_le_bytes());
        self.hasher.update(name.as_bytes());
        self.hasher.update(&[0]);
        self.bytes = 0;
    }

    /// More bytes of it.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        enter(SealStage::Hash);
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    pub(super) fn end(mut self) -> [u8; 32] {
        self.hasher.update(&self.bytes.to_le_bytes());
        self.hasher.finalize().into()
    }
}
