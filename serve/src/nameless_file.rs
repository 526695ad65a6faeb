// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that no folder lists. What is kept in them goes with the process, however it ends.
//!
//! Sources: open(2) (`O_TMPFILE`), memfd_create(2).

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags};

/// Makes a file on the disk of a folder, or in memory under a name for who looks at the process.
///
/// # Errors
/// The folder cannot be written, its file system has no files without names, or no descriptor is
/// left.
pub(crate) fn nameless_file(name: &str, folder: Option<&Path>) -> io::Result<File> {
    let file = match folder {
        Some(folder) => {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?
        }
        None => rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?,
    };
    Ok(file.into())
}
