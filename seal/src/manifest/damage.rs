// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damage of a journal of sealed files, each kind with its cure.

use super::format::VERSION;

/// Damage of a journal, and its cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestDamage {
    /// The first line is no header of this program, or is damaged.
    #[error("the first line is no header of a sealed folder; seal into another folder")]
    Header,
    /// The header's check is wrong under the right key.
    #[error("the first line was changed after it was written; seal into another folder")]
    Changed,
    /// The header has another format version.
    #[error("version {0}, this program knows {VERSION}; take the program of that version")]
    Version(u32),
    /// Another run has locked the journal.
    #[error("another run is at work on this folder; wait until it has ended")]
    Busy,
}
