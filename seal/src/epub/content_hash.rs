// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hash of a sealed book's content, for the journal; a verifier without the source compares with
//! it.
//!
//! The hash covers of each entry, in order, its name, a zero byte, its bytes inside the cipher
//! (deflated, if they are), and their length. It is keyed: a plain hash would reveal that a known
//! book is sealed here.
//!
//! Source: the BLAKE3 paper §2.2 (`keyed_hash`).

use crate::engine::stage::{SealStage, enter};

/// Hash in progress.
#[derive(Debug)]
pub(super) struct Content {
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Content {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { hasher: blake3::Hasher::new_keyed(key), bytes: 0 }
    }

    /// Begins the next entry.
    pub(super) fn begin(&mut self, name: &str) {
        self.hasher.update(&self.bytes.to_le_bytes());
        self.hasher.update(name.as_bytes());
        self.hasher.update(&[0]);
        self.bytes = 0;
    }

    /// Adds bytes of the entry.
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
