// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of a publication, each with its cure.
//!
//! The publication itself is named by [`crate::Error::File`]; an entry of it is named here, its
//! control characters escaped: names may be hostile, and messages go to terminals.

use crate::lcp::SignatureFault;

/// Fault of a publication.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BookFault {
    /// Not a zip archive.
    #[error("is not a zip archive: {found}; give an EPUB")]
    NotZip {
        /// Description of what was found instead.
        found: String,
    },
    /// A zip archive, but not a publication.
    #[error("is not an EPUB: {found}; give an EPUB (OCF 3.3 §4.2)")]
    NotEpub {
        /// Description of what is missing.
        found: String,
    },
    /// The publication is protected already.
    #[error("is protected already: it has {by}; give the publication before it was protected")]
    Protected {
        /// The file of the container that protects it.
        by: &'static str,
    },
    /// The publication is to be unsealed and is not sealed.
    #[error("is not protected: it has no {missing}; nothing to unseal")]
    Clear {
        /// The file of the container that is missing.
        missing: &'static str,
    },
    /// A name that leads out of the folder, or that readers interpret differently.
    #[error("entry {name:?}: {found}; give an EPUB with plain relative names")]
    Name {
        /// The name.
        name: String,
        /// Fault of the name.
        found: &'static str,
    },
    /// Two entries of one name: readers differ in which one they show.
    #[error("entry {name:?} is there twice; remove one")]
    Twice {
        /// The name.
        name: String,
    },
    /// More than the limit for untrusted input.
    #[error("{what} {found}, over the limit of {limit}; not taken")]
    Limit {
        /// Name of the limited quantity.
        what: &'static str,
        /// Declared value.
        found: u64,
        /// Largest value accepted.
        limit: u64,
    },
    /// An entry that would grow beyond the limit.
    #[error("entry {name:?} would grow from {stored} to {bytes} bytes; taken for a zip bomb")]
    Bomb {
        /// The entry.
        name: String,
        /// Bytes in the archive.
        stored: u64,
        /// Bytes declared.
        bytes: u64,
    },
    /// An entry differs from what the archive declares.
    #[error("entry {name:?}: {found}; the archive is damaged, make it again")]
    Entry {
        /// The entry.
        name: String,
        /// Description of the difference.
        found: String,
    },
    /// A document of the container that cannot be parsed.
    #[error("{name}: {found}; the publication is damaged, make it again")]
    Document {
        /// The document.
        name: String,
        /// Description of the fault.
        found: String,
    },
    /// The protection is not the basic profile of LCP.
    #[error("{name}: {found}; only Readium LCP's basic profile is opened")]
    Foreign {
        /// The document that declares it.
        name: String,
        /// The protection that it declares.
        found: String,
    },
    /// The licence is for another passphrase.
    #[error("the passphrase does not open its licence; the hint is {hint:?}")]
    Passphrase {
        /// The licence's hint for the reader.
        hint: String,
    },
    /// The licence's signature does not match or is not trusted.
    #[error("its licence: {0}; not trusted")]
    Signature(SignatureFault),
    /// The licence is not well-formed, or its key does not fit.
    #[error("its licence: {found}; not trusted")]
    Licence {
        /// Description of the fault.
        found: String,
    },
    /// A book of the source has no sealed book.
    #[error("not in {folder}; seal it")]
    NotSealed {
        /// The folder of sealed books.
        folder: String,
    },
    /// A sealed book differs from the one in the journal.
    #[error("is not what the folder's journal says was sealed; seal it again by force")]
    Exchanged,
    /// A deciphered entry differs from the original: a changed ciphertext, or the key of another
    /// book. One message for all causes.
    #[error("entry {name:?} cannot be decrypted; damaged, or sealed with another key")]
    Undecipherable {
        /// The entry.
        name: String,
    },
    /// An entry differs from that of the source.
    #[error("entry {name:?} differs from the source: {found}")]
    Differs {
        /// The entry.
        name: String,
        /// Description of the difference.
        found: String,
    },
}
