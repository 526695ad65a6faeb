// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of a sealed file, each with its cure: one enum for all forms.
//!
//! Does not distinguish a wrong key from a wrong padding or a damaged file (`opener` gives the
//! reason).

use crate::plural::counted;

/// Reason why a sealed file does not open, or differs from its original. One enum for all forms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealedFileFault {
    /// No file of the form has this length.
    #[error(
        "{}, which no file of {form} has: cut off, or another form; copy it again",
        counted(*.found_bytes, "byte")
    )]
    Length {
        /// Bytes of the file.
        found_bytes: u64,
        /// The form.
        form: &'static str,
    },
    /// The manifest has another length.
    #[error(
        "{} where {sealed_bytes} were sealed: cut off or grown; copy it again",
        counted(*.found_bytes, "byte")
    )]
    Resized {
        /// Bytes of the file.
        found_bytes: u64,
        /// Bytes when it was sealed.
        sealed_bytes: u64,
    },
    /// Too long to be sealed in this form.
    #[error("{source_bytes} bytes: more than the segments of gcm hold; take another form")]
    TooLong {
        /// Bytes of the source.
        source_bytes: u64,
    },
    /// The file does not open; the cause is not reported.
    #[error(
        "does not open: another key or form, or damaged; take it from a copy, or seal it again"
    )]
    Sealed,
    /// The file is in the manifest or the source, and not in the folder.
    #[error("missing from the sealed folder; seal the source again")]
    Missing,
    /// The file is in the folder, and not in the manifest or the source.
    #[error("was not sealed into this folder; take it out")]
    Extra,
    /// The file opens, and differs from the sealed content.
    #[error("opens to something else than what was sealed; seal the source again")]
    Other,
    /// The file opens, and differs from its source.
    #[error("differs from its source at byte {offset}; seal the source again")]
    Differs {
        /// Offset of the first byte that differs.
        offset: u64,
    },
}
