// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be wrong with a publication, each fault with what to do about it.
//!
//! The publication itself is named by [`crate::Error::File`]; an entry of it is named here, its
//! control characters escaped, since names come from strangers and messages go to terminals.

use crate::lcp::SignatureFault;

/// What is wrong with a publication.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BookFault {
    /// No zip archive at all.
    #[error("is not a zip archive: {found}; give an EPUB")]
    NotZip {
        /// What was found instead.
        found: String,
    },
    /// A zip archive, but no publication.
    #[error("is not an EPUB: {found}; give an EPUB (OCF 3.3 §4.2)")]
    NotEpub {
        /// What was missed.
        found: String,
    },
    /// Somebody has protected it already.
    #[error("is protected already: it has {by}; give the publication before it was protected")]
    Protected {
        /// The file of the container that says so.
        by: &'static str,
    },
    /// Its fonts are obfuscated, which a second `encryption.xml` cannot be combined with.
    #[error(
        "has obfuscated fonts (META-INF/encryption.xml); \
         put the plain fonts in and take encryption.xml out"
    )]
    Obfuscated,
    /// It is to be unsealed and nobody has sealed it.
    #[error("is not protected: it has no {missing}; nothing to unseal")]
    Clear {
        /// The file of the container that should say how.
        missing: &'static str,
    },
    /// A name that would lead out of a folder, or that readers take differently.
    #[error("entry {name:?}: {found}; give an EPUB with plain relative names")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        found: &'static str,
    },
    /// Two entries of one name: which one a reader shows is anybody's guess.
    #[error("entry {name:?} is there twice; remove one")]
    Twice {
        /// The name.
        name: String,
    },
    /// More than is taken from a stranger.
    #[error("{what} {found}, over the limit of {limit}; not taken")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// What was declared.
        found: u64,
        /// What is taken.
        limit: u64,
    },
    /// An entry that would grow beyond measure.
    #[error("entry {name:?} would grow from {stored} to {bytes} bytes; taken for a zip bomb")]
    Bomb {
        /// The entry.
        name: String,
        /// Bytes in the archive.
        stored: u64,
        /// Bytes declared.
        bytes: u64,
    },
    /// An entry is not what the archive says it is.
    #[error("entry {name:?}: {found}; the archive is damaged, make it again")]
    Entry {
        /// The entry.
        name: String,
        /// What was found.
        found: String,
    },
    /// A document of the container that cannot be understood.
    #[error("{name}: {found}; the publication is damaged, make it again")]
    Document {
        /// The document.
        name: String,
        /// What was found.
        found: String,
    },
    /// It is protected by something else than the basic profile of LCP.
    #[error("{name}: {found}; only Readium LCP's basic profile is opened")]
    Foreign {
        /// The document that says so.
        name: String,
        /// What it asks for.
        found: String,
    },
    /// The licence is not for this passphrase.
    #[error("the passphrase does not open its licence; the hint is {hint:?}")]
    Passphrase {
        /// What the licence says to remind the reader.
        hint: String,
    },
    /// The licence's signature does not match or is not trusted.
    #[error("its licence: {0}; not trusted")]
    Signature(SignatureFault),
    /// The licence is not well-formed, or its key does not fit.
    #[error("its licence: {found}; not trusted")]
    Licence {
        /// What was found.
        found: String,
    },
    /// A book of the source has no sealed one.
    #[error("not in {folder}; seal it")]
    NotSealed {
        /// The folder of sealed books.
        folder: String,
    },
    /// A sealed book took the place of the one that was sealed there.
    #[error("is not what the folder's journal says was sealed; seal it again by force")]
    Exchanged,
    /// Decrypted, an entry is not what it was before it was sealed: a changed ciphertext, or the
    /// key of another book. One message for all of them.
    #[error("entry {name:?} cannot be decrypted; damaged, or sealed with another key")]
    Undecipherable {
        /// The entry.
        name: String,
    },
    /// An entry is not that of the source.
    #[error("entry {name:?} differs from the source: {found}")]
    Differs {
        /// The entry.
        name: String,
        /// How.
        found: String,
    },
}
