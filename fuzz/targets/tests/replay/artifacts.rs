// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves the running input in a file, so that it survives a crash of the process.
//!
//! One file is overwritten for each input: a file for each needed a second per thousand inputs on a
//! busy ext4, this needs a few hundredths.
//!
//! Does not sync: the page cache survives the process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;

/// The file `running-PID` in the folder of a target's artifacts.
pub(crate) struct RunningInput {
    folder: PathBuf,
    path: PathBuf,
    file: File,
}

impl RunningInput {
    /// Creates the folder, if need be, and the file.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("running-{}", process::id()));
        let file = File::create(&path)?;
        Ok(Self { folder: folder.to_owned(), path, file })
    }

    /// Replaces the content of the file.
    pub(crate) fn write(&self, input: &[u8]) -> io::Result<()> {
        self.file.write_all_at(input, 0)?;
        self.file.set_len(input.len() as u64)
    }

    /// Saves the input under a name of its own. Returns the new path.
    pub(crate) fn keep(self, name: &str) -> io::Result<PathBuf> {
        let kept = self.folder.join(name);
        fs::rename(&self.path, &kept)?;
        Ok(kept)
    }

    /// Removes the file after the last input has passed.
    pub(crate) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}
