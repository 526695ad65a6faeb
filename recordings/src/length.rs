// SPDX-License-Identifier: MIT OR Apache-2.0
//! Length of a recorded file, found from its two ends.
//!
//! Of MP4 it is the end of the last whole fragment: some reads of 256 KiB, or one of each fragment
//! where the last write contradicts it. Of a transport stream it is the time between the clock
//! references at its ends, if the last write agrees with it. If not, the camera was absent for a
//! while, or the file was copied, and the whole file is read: a clock without breaks tells the
//! length, otherwise the last write does, but not a time at which the next file had begun
//! ([`crate::list`]).
//!
//! Does not change files.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime};

use media::mp4::{FileFragment, FragmentedFile};
use media::store::random_identity;
use media::{DemuxError, Scanner, duration_of};

use crate::camera_files::FileStartName;

/// Largest difference between the clock of a stream and that of this machine in a file, with the
/// time until its last bytes were written.
const APART_MAX: Duration = Duration::from_secs(10);

/// A camera's clock may be off by this part.
const DRIFT: u32 = 64;

const SCAN_BYTES: usize = 1 << 20;

/// stat(2): `st_blocks` counts in these.
const BLOCK_BYTES: u64 = 512;
/// Bytes of a file that may be on no block of the disk, such as some that are not yet written.
const SPARSE_BYTES_MAX: u64 = 1 << 30;

/// Returns the length of a file's media; zero if it has none yet. A file that would have to be read
/// as a whole is `None` unless `may_scan`.
///
/// # Errors
/// The file cannot be read, or is no recording.
pub(crate) fn length_of(
    file: &File,
    about: &Metadata,
    start: &FileStartName,
    may_scan: bool,
) -> Result<Option<Duration>, DemuxError> {
    let began = SystemTime::from(start.began);
    let written = about.modified().ok().and_then(|modified| modified.duration_since(began).ok());
    let agrees = |length: &Duration| {
        written.is_some_and(|written| length.abs_diff(written) <= APART_MAX + written / DRIFT)
    };
    let is_possible = |length: &Duration| {
        written.is_some_and(|written| *length <= written + APART_MAX + written / DRIFT)
    };
    if start.is_mp4 {
        if about.len() == 0 {
            return Ok(Some(Duration::ZERO));
        }
        let fragments = FragmentedFile::open(file, about.len())?;
        let length = |last: &Option<FileFragment>| {
            duration_of(last.as_ref().map_or(0, |last| fragments.end_ticks(last)))
        };
        let last = fragments.last()?;
        let found = length(&last);
        // Of a file that was copied, the last write is late.
        let ends_file = last.is_some_and(|last| last.file.end == about.len());
        return match agrees(&found) || ends_file && is_possible(&found) {
            true => Ok(Some(found)),
            false if !may_scan => Ok(None),
            // Media of a hostile camera may look like the end.
            false => Ok(Some(length(&fragments.last_of_all()?))),
        };
    }
    let clock = media::clock_span(file, about.len())?.map(duration_of);
    match clock {
        Some(clock) if agrees(&clock) => Ok(Some(clock)),
        None if about.len() < SCAN_BYTES as u64 => Ok(Some(Duration::ZERO)),
        _ if !may_scan => Ok(None),
        _ => scanned(file, about.len(), written).map(Some),
    }
}

fn scanned(file: &File, bytes: u64, written: Option<Duration>) -> Result<Duration, DemuxError> {
    let plan = scan(file, bytes)?.finish(bytes, random_identity())?;
    let played = duration_of(plan.duration_ticks());
    let has_breaks = plan.discontinuities() > 0;
    Ok(written.filter(|written| has_breaks && *written > played).unwrap_or(played))
}

/// Reads a transport stream of `bytes` bytes.
pub(crate) fn scan(file: &File, bytes: u64) -> Result<Scanner, DemuxError> {
    let is_sparse = |about: Metadata| about.blocks() * BLOCK_BYTES + SPARSE_BYTES_MAX < bytes;
    if file.metadata().is_ok_and(is_sparse) {
        let fault = io::Error::new(io::ErrorKind::InvalidData, "it has a hole");
        return Err(DemuxError::Unreadable(fault));
    }
    let mut scanner = Scanner::new();
    let mut buffer = vec![0; SCAN_BYTES];
    let mut at = 0;
    while at < bytes && !scanner.is_refused() {
        let piece = &mut buffer[..SCAN_BYTES.min((bytes - at) as usize)];
        file.read_exact_at(piece, at)?;
        scanner.feed(piece);
        at += piece.len() as u64;
    }
    Ok(scanner)
}
