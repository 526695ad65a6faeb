// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why a file or folder with one of this program's names is not accepted as its own.
//!
//! Does not test files (`trust` and `working_folder` do).

/// Reason why a name is not accepted as this program's own, with its cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Untrusted {
    /// The name is a symlink.
    #[error("a symlink under a name of this program's; it is not followed, remove it")]
    Link,
    /// The name is a pipe, a socket, a device, or a folder instead of a file.
    #[error("no regular file under a name of this program's; remove it")]
    NoFile,
    /// The name is a file instead of a folder.
    #[error("no folder under a name of this program's; remove it")]
    NoFolder,
    /// It belongs to another user.
    #[error("belongs to user {found}, and this run to user {user}; run as that user or remove it")]
    Owner {
        /// User ID of its owner.
        found: u32,
        /// User ID of this run.
        user: u32,
    },
    /// Other users can write to it.
    #[error("others can write to it (mode {mode:04o}); look at what is in it and remove it")]
    Writable {
        /// Its permission bits.
        mode: u32,
    },
    /// The file has other names (hard links).
    #[error("has {names} names (hard links); remove this one")]
    Names {
        /// Number of names.
        names: u64,
    },
    /// The file is longer than any that this program writes.
    #[error("{bytes} bytes; this program reads {limit_bytes} at most")]
    Large {
        /// Size of the file.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The folder has the name of a working folder but lacks the marker with that name.
    #[error("not a working folder that this program made under this name; it is left as it is")]
    Unmarked,
    /// The folder has a working folder's name of versions up to 0.1.
    #[error("a working folder's name of an earlier version; it is not used, remove it")]
    Earlier,
    /// Another folder took the working folder's name.
    #[error("another folder took this name during the run; see who else can write beside it")]
    Exchanged,
}
