// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing the journal: lines are gathered and go out in one write.
//!
//! A write that fails (a full disk) is taken back to the last whole line, and the files whose lines
//! were in it are not done. One run at a time: the journal is locked while it is open.
//!
//! Costs one write a batch. Sources: flock(2); open(2) (`O_APPEND`).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::line::{self, ManifestLine, RunRecord};
use super::{
    BYTES_MAX, FILE, Manifest, ManifestDamage, ManifestHeader, ManifestRecord, VERSION, boot_id,
    read_from,
};
use crate::dir_handle::DirHandle;
use crate::error::{Error, FileFault};
use crate::key::{Purpose, Secret};
use crate::trust::{self, Writer};

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
    /// Opens the journal in `folder` and takes it for this run alone. Nothing is written. One that
    /// is there has to be this user's own regular file.
    ///
    /// # Errors
    /// [`ManifestDamage::Busy`]; what is under its name is not taken; the folder cannot be written.
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

    /// What earlier runs wrote; none when it is new.
    ///
    /// # Errors
    /// As [`super::read`].
    pub fn known(&self, folder: &DirHandle, secret: &Secret) -> Result<Option<Manifest>, Error> {
        let mut file = &self.file;
        file.rewind().map_err(Error::host("lseek", &self.path))?;
        read_from(file, folder, secret)
    }

    /// Begins a new journal: whatever was in it is gone.
    ///
    /// # Errors
    /// The disk is full, or refuses.
    pub fn begin(&mut self, header: &ManifestHeader, each: bool) -> Result<(), Error> {
        self.cut(0)?;
        self.push(&ManifestLine::Header(VERSION, header.clone()));
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
    pub fn push_file(&mut self, path: &OsStr, record: &ManifestRecord) {
        line::push_file(&mut self.buffer, &self.line_key, path, record);
    }

    /// Gathers the line of a file that could not take its place after all.
    pub fn push_undone(&mut self, path: &OsStr) {
        self.push(&ManifestLine::Undone(path.to_owned()));
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

    /// Cuts it off; what is written goes to its end.
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
            // Made since it was looked for.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(folder.error("open", FILE, errno)),
        }
    }
    Err(folder.error("open", FILE, Errno::EXIST))
}

/// Another run may make the journal at the same moment; one that comes and goes is nobody's.
const ATTEMPTS: usize = 4;
