// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the journal; lines are gathered and go out in one write.
//!
//! When a write fails (a full disk), the journal is cut back to its last whole line, and the files
//! whose lines were in the failed write are not done. Only one run at a time: the journal is locked
//! while it is open.
//!
//! Costs one write a batch. Sources: flock(2); open(2) (`O_APPEND`).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::damage::ManifestDamage;
use super::format::{BYTES_MAX, FILE, VERSION};
use super::line::{self, ManifestLine, RunRecord};
use super::{Manifest, ManifestHeader, ManifestRecord, boot_id, read_from};
use crate::dir_handle::DirHandle;
use crate::error::{Error, FileFault};
use crate::key::{Purpose, Secret};
use crate::trust::{self, Writer};

/// The journal of a run. Dropping it closes the file; written lines stay, gathered lines are lost.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    line_key: Zeroizing<[u8; 32]>,
    buffer: Vec<u8>,
    /// Offset of the end of the last whole line.
    bytes: u64,
}

impl Journal {
    /// Opens the journal in `folder`, or makes it, and locks it for this run. Writes nothing. An
    /// existing journal must be a regular file of this user.
    ///
    /// # Errors
    /// [`ManifestDamage::Busy`]; a file that is not accepted has its name; the folder cannot be
    /// written.
    pub fn open(folder: &DirHandle, secret: &Secret) -> Result<Self, Error> {
        let path = folder.shown(FILE);
        let file = open(folder)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::file(&path, FileFault::Manifest(ManifestDamage::Busy)));
            }
            Err(errno) => return Err(Error::host("flock", &path)(errno.into())),
        }
        let line_key = secret.derive(Purpose::Line);
        Ok(Self { file, path, line_key, buffer: Vec::new(), bytes: 0 })
    }

    /// Returns the records of earlier runs; `None` when the journal is new.
    ///
    /// # Errors
    /// Errors of [`super::read`].
    pub fn known(&self, folder: &DirHandle, secret: &Secret) -> Result<Option<Manifest>, Error> {
        let mut file = &self.file;
        file.rewind().map_err(Error::host("lseek", &self.path))?;
        read_from(file, folder, secret)
    }

    /// Begins a new journal and discards all earlier lines.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub fn begin(&mut self, header: &ManifestHeader, each: bool) -> Result<(), Error> {
        self.cut(0)?;
        self.push(&ManifestLine::Header(VERSION, header.clone()));
        self.run(each)
    }

    /// Cuts the journal to `good_bytes` and begins a run after them.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub fn resume(&mut self, good_bytes: u64, each: bool) -> Result<(), Error> {
        self.cut(good_bytes)?;
        self.run(each)
    }

    /// Gathers the line of a file that is about to be renamed to its final name.
    pub fn push_file(&mut self, path: &OsStr, record: &ManifestRecord) {
        line::push_file(&mut self.buffer, &self.line_key, path, record);
    }

    /// Gathers the line of a file whose rename failed after its [`push_file`](Self::push_file)
    /// line.
    pub fn push_undone(&mut self, path: &OsStr) {
        self.push(&ManifestLine::Undone(path.to_owned()));
    }

    /// Writes the gathered lines.
    ///
    /// # Errors
    /// The disk is full or fails: none of the gathered lines is in the journal.
    pub fn write(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.file.write_all(&self.buffer);
        let bytes = self.buffer.len() as u64;
        self.buffer.clear();
        match written {
            Ok(()) => self.bytes += bytes,
            Err(error) => {
                self.cut(self.bytes)?;
                return Err(Error::host("write", &self.path)(error));
            }
        }
        Ok(())
    }

    /// Syncs the written lines to the disk.
    ///
    /// # Errors
    /// The sync fails.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(Error::host("fdatasync", &self.path))
    }

    /// Writes the line that all sealed files have reached the disk, and syncs the journal.
    ///
    /// # Errors
    /// The write or the sync fails.
    pub fn synced(&mut self) -> Result<(), Error> {
        self.push(&ManifestLine::Synced);
        self.write()?;
        self.sync()
    }

    fn run(&mut self, each: bool) -> Result<(), Error> {
        self.push(&ManifestLine::Run(RunRecord { boot: boot_id(), each }));
        self.write()
    }

    fn push(&mut self, line: &ManifestLine) {
        line::push(&mut self.buffer, &self.line_key, line);
    }

    /// Cuts the file to `bytes`; `O_APPEND` puts later writes there.
    fn cut(&mut self, bytes: u64) -> Result<(), Error> {
        self.bytes = bytes;
        self.file.set_len(bytes).map_err(Error::host("ftruncate", &self.path))
    }
}

/// Opens the journal of `folder`, or makes it.
fn open(folder: &DirHandle) -> Result<File, Error> {
    let flags = OFlags::RDWR | OFlags::APPEND;
    for _ in 0..ATTEMPTS {
        if let Some(file) = trust::open(folder, FILE, flags, Writer::User, BYTES_MAX)? {
            return Ok(file);
        }
        let new = flags | OFlags::CREATE | OFlags::EXCL;
        match folder.open_below(FILE, new, Mode::from_raw_mode(0o644)) {
            Ok(file) => return Ok(file.into()),
            // Another run has made it since the look-up.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(folder.error("open", FILE, errno)),
        }
    }
    Err(folder.error("open", FILE, Errno::EXIST))
}

/// Most attempts to open or make the journal: another run may make or remove it in between.
const ATTEMPTS: usize = 4;
