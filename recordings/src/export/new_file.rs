// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file that a cut is written to. It has no name until it is complete, so that nothing is left
//! of a program that is killed, and then gets one that no other file has.
//!
//! Sources: open(2) (`O_TMPFILE`), linkat(2), proc_pid_fd(5).
//! Does not replace files.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use media::store::UnfinishedFile;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};

/// A file without a name.
pub(super) enum NewFile {
    Nameless {
        file: File,
        path: PathBuf,
    },
    /// On file systems that have none: under another name, which a killed program leaves.
    Unfinished(UnfinishedFile),
}

impl NewFile {
    /// Makes the file that will be `path`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn create(path: &Path) -> io::Result<NewFile> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        // As File::create; the umask applies.
        let mode = Mode::from_raw_mode(0o666);
        match rustix::fs::open(folder.unwrap_or(Path::new(".")), flags, mode) {
            Ok(file) if Path::new(SELF_FD).exists() => {
                Ok(NewFile::Nameless { file: file.into(), path: path.to_owned() })
            }
            _ => UnfinishedFile::create(path).map(NewFile::Unfinished),
        }
    }

    pub(super) fn file(&self) -> &File {
        match self {
            NewFile::Nameless { file, .. } => file,
            NewFile::Unfinished(unfinished) => &unfinished.file,
        }
    }

    /// Gives the file, which was synced, its name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`]; the folder cannot be written.
    pub(super) fn keep(self) -> io::Result<()> {
        match self {
            NewFile::Nameless { file, path } => {
                let open = format!("{SELF_FD}/{}", file.as_raw_fd());
                Ok(linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
            }
            NewFile::Unfinished(mut unfinished) => unfinished.keep_new_unsynced(),
        }
    }
}

const SELF_FD: &str = "/proc/self/fd";
