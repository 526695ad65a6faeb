// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing the journal: lines are gathered and go out in one write.
//!
//! A write that fails (a full disk) is taken back to the last whole line, and the files whose lines
//! were in it are not done. One run at a time: the journal is locked while it is open.
//!
//! Costs one write a batch. Sources: flock(2); open(2) (`O_APPEND`).

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::line::{self, Line, Run};
use super::{Damage, Header, NAME, Record, VERSION, boot_id};
use crate::error::{Error, Fault};
use crate::key::{Purpose, Secret};

/// The journal of a run. Dropped, it is closed as it is: what was written stays.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    line_key: Zeroizing<[u8; 32]>,
    buffer: Vec<u8>,
    /// Where the last whole line ends.
    bytes: u64,
}

impl Journal {
    /// Opens the journal in `folder` and takes it for this run alone. Nothing is written.
    ///
    /// # Errors
    /// [`Damage::Busy`]; the folder cannot be written.
    pub fn open(folder: &Path, secret: &Secret) -> Result<Self, Error> {
        let path = folder.join(NAME);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o644)
            .open(&path)
            .map_err(Error::host("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::file(&path, Fault::Manifest(Damage::Busy)));
            }
            Err(errno) => return Err(Error::host("flock", &path)(errno.into())),
        }
        let line_key = secret.derive(Purpose::Line);
        Ok(Self { file, path, line_key, buffer: Vec::new(), bytes: 0 })
    }

    /// Begins a new journal: whatever was in it is gone.
    ///
    /// # Errors
    /// The disk is full, or refuses.
    pub fn begin(&mut self, header: &Header, each: bool) -> Result<(), Error> {
        self.cut(0)?;
        self.push(&Line::Header(VERSION, header.clone()));
        self.run(each)
    }

    /// Goes on after `good_bytes` of it.
    ///
    /// # Errors
    /// The disk is full, or refuses.
    pub fn resume(&mut self, good_bytes: u64, each: bool) -> Result<(), Error> {
        self.cut(good_bytes)?;
        self.run(each)
    }

    /// Gathers the line of a file that is about to take its place.
    pub fn push_file(&mut self, path: &OsStr, record: &Record) {
        line::push_file(&mut self.buffer, &self.line_key, path, record);
    }

    /// Gathers the line of a file that could not take its place after all.
    pub fn push_undone(&mut self, path: &OsStr) {
        self.push(&Line::Undone(path.to_owned()));
    }

    /// Writes what was gathered.
    ///
    /// # Errors
    /// The disk is full, or refuses: nothing of it is in the journal.
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

    /// What was written reaches the disk.
    ///
    /// # Errors
    /// It does not.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(Error::host("fdatasync", &self.path))
    }

    /// Says that all that was sealed has reached the disk, and that reaches it too.
    ///
    /// # Errors
    /// It does not.
    pub fn synced(&mut self) -> Result<(), Error> {
        self.push(&Line::Synced);
        self.write()?;
        self.sync()
    }

    fn run(&mut self, each: bool) -> Result<(), Error> {
        self.push(&Line::Run(Run { boot: boot_id(), each }));
        self.write()
    }

    fn push(&mut self, line: &Line) {
        line::push(&mut self.buffer, &self.line_key, line);
    }

    fn cut(&mut self, bytes: u64) -> Result<(), Error> {
        self.bytes = bytes;
        self.file.set_len(bytes).map_err(Error::host("ftruncate", &self.path))
    }
}
