// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recordings of a camera, found in its folder.
//!
//! Each file is compared with its row in the index by size and time of modification, and read where
//! they differ. A year of files of an hour (8,760) costs as many calls of stat(2) with an index,
//! and some reads a file without.
//!
//! Does not follow symbolic links.

use std::fs::{DirEntry, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use media::DemuxError;
use media::store::open_regular;

use crate::camera_files::{CameraFiles, FileStartName};
use crate::index::{self, Index, IndexRow};
use crate::length::length_of;
use crate::{CameraFile, Error, RecordedTime};

/// The recordings of a camera.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CameraListing {
    /// In the order of their starts.
    pub files: Vec<CameraFile>,
    /// Starts of those that cannot be read.
    pub unreadable: Vec<Timestamp>,
}

impl CameraListing {
    /// True if a recording that cannot be read may have a part in a time: it begins before the end,
    /// and the next behind the start.
    pub fn lacks_part_of(&self, range: RecordedTime) -> bool {
        let ends =
            |from: &Timestamp| self.files.iter().map(CameraFile::from).find(|next| next > from);
        let is_in = |from: &&Timestamp| {
            **from < range.to && ends(from).is_none_or(|ends| ends > range.from)
        };
        self.unreadable.iter().any(|from| is_in(&from))
    }
}

/// Lists the recordings of a camera; none if its folder is missing. `progress` gets the number of
/// files that were read, and of those that have to be.
///
/// # Errors
/// The folder cannot be read. A file that cannot be read is left out, with a warning in the log.
pub fn list(
    camera: &CameraFiles,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<CameraListing, Error> {
    let mut files = match files(camera) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(CameraListing::default());
        }
        Err(source) => return Err(Error::Host { path: camera.folder.clone(), source }),
    };
    files.sort_by_key(|file| file.start);
    let mut unreadable = Vec::new();
    let mut index = Index::read(camera, index::BYTES_MAX);
    let mut rows = index.as_ref().map(Index::rows).unwrap_or_default();
    let mut recordings = Vec::with_capacity(files.len());
    let mut unknown = Vec::new();
    for FoundFile { start, path, about } in files {
        let is_row = |name: &&str| rows.get(*name).is_some_and(|row| row.is_of(&about));
        match file_name(&path).filter(is_row).and_then(|name| rows.remove(name)) {
            Some(IndexRow { length, bytes, .. }) => {
                recordings.push(CameraFile { path, start, length, bytes, is_growing: false });
            }
            None => unknown.push((start, path)),
        }
    }
    let count = unknown.len();
    let mut found = Vec::new();
    for (read, (start, path)) in unknown.into_iter().enumerate() {
        progress(read, count);
        match read_file(&path, &start, true) {
            Ok(Some(measured)) => {
                let Measured { length, about, is_growing } = measured;
                if let Some(name) = file_name(&path).filter(|_| !is_growing) {
                    rows.remove(name);
                    found.push((name.to_owned(), IndexRow::new(&about, length)));
                }
                recordings.push(CameraFile { path, start, length, bytes: about.len(), is_growing });
            }
            // A file that was deleted in the meantime.
            Err(DemuxError::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("{}: left out: {error}", path.display());
                unreadable.push(start.began);
            }
        }
    }
    if let Some(index) = &mut index {
        // Rows that are left are of files that are gone or unreadable.
        index.update(&found, rows.keys());
    }
    recordings.sort_by_key(|recording| recording.start);
    // A file that has only begun has nothing to show.
    recordings.retain(|recording| !recording.length.is_zero());
    end_before_the_next(&mut recordings);
    Ok(CameraListing { files: recordings, unreadable })
}

/// Ends recordings when the next begins: the clock of a camera may be fast, and the last write to a
/// transport stream that was copied is no measure of its length.
fn end_before_the_next(recordings: &mut [CameraFile]) {
    for index in 1..recordings.len() {
        let next = recordings[index].from();
        let recording = &mut recordings[index - 1];
        let until_next = Duration::try_from(next.duration_since(recording.from()));
        if let Ok(until_next) = until_next
            && recording.length > until_next + OVERLAP_MAX
        {
            recording.length = until_next;
        }
    }
}

/// Adds a file that a recorder has completed to the index of its camera, which takes some reads of
/// the file. A failure is logged; the next [`list`] reads the file.
pub fn file_completed(camera: &CameraFiles, path: &Path) {
    let Some((start, name)) = camera.parse_path(path).zip(file_name(path)) else { return };
    match read_file(path, &start, false) {
        Ok(Some(Measured { length, about, is_growing: false })) => {
            if let Some(mut index) = Index::read(camera, index::QUICK_BYTES_MAX) {
                index.update(&[(name.to_owned(), IndexRow::new(&about, length))], [].iter());
            }
        }
        Ok(_) => {}
        Err(error) => tracing::debug!("{}: not in the index: {error}", path.display()),
    }
}

/// A regular file with a name of the camera.
#[derive(Debug)]
#[non_exhaustive]
pub struct FoundFile {
    /// Its start, as its name tells it.
    pub start: FileStartName,
    /// The file.
    pub path: PathBuf,
    /// Its size and times.
    pub about: Metadata,
}

/// Finds the files of a camera in its folder, in any order.
///
/// # Errors
/// The folder cannot be read.
pub fn files(camera: &CameraFiles) -> io::Result<Vec<FoundFile>> {
    let of_entry = |entry: DirEntry| {
        let start = camera.parse_name(entry.file_name().to_str()?)?;
        let path = entry.path();
        match entry.metadata() {
            Ok(about) if about.is_file() => Some(FoundFile { start, path, about }),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: left out: {error}", path.display());
                None
            }
            _ => None,
        }
    };
    let entries = std::fs::read_dir(&camera.folder)?;
    entries.filter_map(|entry| entry.map(of_entry).transpose()).collect()
}

/// The result of reading a file.
struct Measured {
    length: Duration,
    about: Metadata,
    is_growing: bool,
}

/// Reads the length of a file; `None` if it would take long and `may_scan` is false.
fn read_file(
    path: &Path,
    start: &FileStartName,
    may_scan: bool,
) -> Result<Option<Measured>, DemuxError> {
    let file: File = open_regular(path)?;
    // Asked first: a file that is complete does not change any more.
    let is_growing = paths::is_locked_to_write(&file).unwrap_or(false);
    let about = file.metadata()?;
    let length = length_of(&file, &about, start, may_scan)?;
    Ok(length.map(|length| Measured { length, about, is_growing }))
}

/// The name at the end of the path of a camera's file, which is text.
fn file_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// Time for which a recording may last when the next has begun.
const OVERLAP_MAX: Duration = Duration::from_secs(10);
