// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protection of libraries: enciphers folders, publications and streams file by file.
//!
//! CBC is serial within a message, so a single file runs at the latency of the AES unit. Many files
//! at once run at its throughput: the [`engine`] keeps as many messages in the lanes of a core as
//! there are, with any keys and lengths. A form of protection (such as [`folder`]) defines the
//! messages: a [`engine::Work`] that opens a [`engine::WorkStream`].
//!
//! Costs of each byte of a file: one copy from the page cache into a slice that stays in the
//! second-level cache, the cipher in place, one copy into the page cache of the target.
//!
//! Does not implement the cipher (crate `simd` and well-kept libraries do) and does not use the
//! network.
#![forbid(unsafe_code)]

mod dir_handle;
pub mod engine;
pub mod epub;
mod error;
pub mod folder;
pub mod folder_walk;
mod form_conflict;
pub mod hls;
pub mod key;
pub mod lcp;
pub mod manifest;
mod pending_file;
mod plural;
mod target_path;
mod trust;
mod untrusted;
mod working_folder;

pub use error::{Error, FileFault};
pub use pending_file::PendingFile;
pub use plural::counted;
pub use target_path::TargetPath;
pub use untrusted::Untrusted;
