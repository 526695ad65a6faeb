// SPDX-License-Identifier: MIT OR Apache-2.0
//! Journal of a film, kept in its folder: its edition, and the hashes of finished segments.
//!
//! The first line has the edition, a keyed hash of all that determines the bytes: the source's size
//! and time, the options, the secret. A segment's line is written before the segment gets its name,
//! so a segment with a line and a file is done. After the last segment the names and sizes of all
//! files follow; a finished film is checked against them. The journal also has the boot id: after a
//! reboot only synced films are trusted.
//!
//! Costs about 75 bytes and a write a segment, and one write at the end. A torn last line has no
//! line feed and is dropped; a changed line makes a segment's hash wrong, which `verify` and
//! `unseal` detect.
//!
//! Sources: proc(5) (`sys/kernel/random/boot_id`).

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::dir_handle::DirHandle;
use crate::error::Error;
use crate::pending_file::PendingFile;
use crate::trust::{self, Writer};

/// Name of the journal in a film's folder; hidden, so never served.
pub(super) const NAME: &CStr = c".pagewire-film";
/// The same name as text.
pub(crate) const FILE: &str = match NAME.to_str() {
    Ok(name) => name,
    Err(_) => panic!("ASCII"),
};
/// Most bytes of a journal: five million segments.
const BYTES_MAX: u64 = 256 << 20;

/// A film's journal.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Journal {
    pub(super) edition: [u8; 32],
    /// Boot id of the writer; empty when synced.
    pub(super) boot: String,
    /// Numbers and hashes of finished segments.
    pub(super) done: Vec<(u64, [u8; 16])>,
    /// Names and sizes of all files of a finished film; empty in journals of an earlier version.
    pub(super) files: Vec<(String, u64)>,
}

impl Journal {
    /// Reads the journal in `folder`, which must be this user's; `None` if there is none, or if it
    /// is not a journal.
    ///
    /// # Errors
    /// The file is not trusted, or cannot be read.
    pub(super) fn read(folder: &DirHandle) -> Result<Option<Self>, Error> {
        Self::read_by(folder, Writer::User)
    }

    /// Reads the journal; with [`Writer::Anybody`] it may be another user's.
    ///
    /// # Errors
    /// The errors of [`Journal::read`].
    pub(super) fn read_by(folder: &DirHandle, writer: Writer) -> Result<Option<Self>, Error> {
        let text = trust::read(folder, NAME, writer, BYTES_MAX)?;
        Ok(text.and_then(|text| Self::parse(&String::from_utf8_lossy(&text))))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let mut head = lines.next()?.strip_prefix(HEAD)?.split(' ');
        let edition = blake3::Hash::from_hex(head.next()?).ok()?;
        let boot = head.next()?.to_owned();
        let lines: Vec<_> = lines.collect();
        let files = lines.iter().filter_map(|line| {
            let (bytes, name) = line.strip_prefix(FILE_LINE)?.split_once(' ')?;
            let is_below = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
            Some((is_below.then(|| name.to_owned())?, bytes.parse().ok()?))
        });
        let files = files.collect();
        let done = lines.iter().filter_map(|line| {
            let (index, check) = line.split_once(' ')?;
            let check = u128::from_str_radix(check, 16).ok().filter(|_| check.len() == 32)?;
            Some((index.parse().ok()?, check.to_be_bytes()))
        });
        Some(Self { edition: edition.into(), boot, done: done.collect(), files })
    }

    /// True when the edition is this one, and the files were synced or written in this boot.
    pub(super) fn is_of(&self, edition: &[u8; 32]) -> bool {
        self.edition == *edition && (self.boot.is_empty() || self.boot == boot_id())
    }

    /// Replaces the whole journal.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn write(&self, folder: &Arc<DirHandle>) -> Result<(), Error> {
        let edition = blake3::Hash::from_bytes(self.edition);
        let mut text = format!("{HEAD}{edition} {}\n", self.boot);
        for (index, check) in &self.done {
            text.push_str(&line(*index, check));
        }
        text.push_str(&lines_of(&self.files));
        let pending = PendingFile::create_below(folder, NAME.to_owned(), 0o600)?;
        let written = pending.file().write_all(text.as_bytes());
        written.map_err(Error::host("write", &folder.shown(NAME)))?;
        pending.commit(true)
    }

    /// Marks the journal in `folder`, if it has one, as synced.
    ///
    /// # Errors
    /// The errors of [`Journal::read`] and [`Journal::write`].
    pub(super) fn mark_synced(folder: &Arc<DirHandle>) -> Result<(), Error> {
        match Self::read(folder)? {
            Some(journal) if !journal.boot.is_empty() => {
                Self { boot: String::new(), ..journal }.write(folder)
            }
            _ => Ok(()),
        }
    }

    /// Opens the file, for lines to be added.
    ///
    /// # Errors
    /// The file does not exist.
    pub(super) fn open(folder: &DirHandle) -> Result<File, Error> {
        let flags = OFlags::WRONLY | OFlags::APPEND;
        trust::open(folder, NAME, flags, Writer::User, BYTES_MAX)?
            .ok_or_else(|| folder.error("open", NAME, Errno::NOENT))
    }

    /// Adds the files of a finished film in one write.
    pub(super) fn add_files(mut file: &File, files: &[(String, u64)]) -> io::Result<()> {
        file.write_all(lines_of(files).as_bytes())
    }

    /// Adds a segment's line in one write.
    pub(super) fn add(mut file: &File, index: u64, check: &[u8; 16]) -> io::Result<()> {
        file.write_all(line(index, check).as_bytes())
    }
}

fn line(index: u64, check: &[u8; 16]) -> String {
    format!("{index} {:032x}\n", u128::from_be_bytes(*check))
}

fn lines_of(files: &[(String, u64)]) -> String {
    files.iter().map(|(name, bytes)| format!("{FILE_LINE}{bytes} {name}\n")).collect()
}

/// Returns the boot id; empty if the kernel has none, and then all journals are trusted.
pub(super) fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

const HEAD: &str = "pagewire film 1 ";
/// Prefix of a file's line; earlier versions skip such lines.
const FILE_LINE: &str = "file ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_are_read_up_to_a_torn_line() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(DirHandle::open(place.path()).unwrap());
        let written = Journal {
            edition: [7; 32],
            boot: boot_id(),
            done: vec![(0, [1; 16])],
            files: Vec::new(),
        };
        written.write(&folder).unwrap();
        let file = Journal::open(&folder).unwrap();
        Journal::add(&file, 5, &[2; 16]).unwrap();
        Journal::add_files(&file, &[("00000.ts".to_owned(), 188)]).unwrap();
        (&file).write_all(b"file 7 ../up\nfile 7 .hidden\n6 00112233").unwrap();
        let read = Journal::read(&folder).unwrap().unwrap();
        assert_eq!(read.done, [(0, [1; 16]), (5, [2; 16])]);
        assert_eq!(read.files, [("00000.ts".to_owned(), 188)], "no name that leads out");
        assert!(read.is_of(&[7; 32]) && !read.is_of(&[8; 32]));
        let other = Journal { boot: "another boot".to_owned(), ..read.clone() };
        assert!(!other.is_of(&[7; 32]));
        assert!(Journal { boot: String::new(), ..read }.is_of(&[7; 32]), "it was synced");
        fs::write(folder.shown(NAME), "pagewire film 2 x y\n").unwrap();
        assert_eq!(Journal::read(&folder).unwrap(), None);
    }
}
