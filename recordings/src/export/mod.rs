// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a time out of a camera's recordings into one new file.
//!
//! The cut begins with the last fragment of MP4, or segment of a transport stream, at or before the
//! first moment with which play can start, or else with the first behind it, and ends behind the
//! last moment, with the fragment or segment in which it lies. Times in a file go by the camera's
//! clock from its start on. Files that follow each other are joined without a lost or doubled unit;
//! all but the last are copied to their ends. A time between files without media is left out of the
//! new file of MP4. In a file it stays: the last picture before it lasts.
//!
//! The new file has its name when it is complete, and replaces none.
//!
//! Costs a dozen reads at both ends of the time (a pass over the file, for a transport stream), and
//! for each fragment a read of its header, a write of it and a copy by the kernel.
//!
//! Sources: copy_file_range(2).
//! Does not join MP4 with different descriptions of tracks.

mod fragments;
mod new_file;
mod packets;
mod timeline;

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use media::DemuxError;
use media::store::open_regular;
use media::ticks_of;

use self::new_file::NewFile;
use crate::recording::{GAP_MIN, gaps_between};
use crate::{CameraFile, Error, RecordedTime};

/// A finished cut.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// From the first unit to the end of the last.
    pub range: RecordedTime,
    /// Size of the new file.
    pub bytes: u64,
    /// Recordings that it was cut from.
    pub files: usize,
    /// Parts of the time without media, which the new file leaves out.
    pub gaps: Vec<RecordedTime>,
}

/// Returns the indices of the recordings with a part in a time. One of another container that ends
/// within two seconds behind its begin is not among them: names tell their times to the nearest
/// second.
pub fn in_range(recordings: &[CameraFile], range: RecordedTime) -> Range<usize> {
    let Some(mut first) = recordings.iter().position(|one| one.is_in(range)) else { return 0..0 };
    let last = recordings.iter().rposition(|one| one.is_in(range)).unwrap_or(first);
    while first < last
        && ends_near(&recordings[first], range.from)
        && recordings[first].start.is_mp4 != recordings[first + 1].start.is_mp4
    {
        first += 1;
    }
    first..last + 1
}

/// True for a recording that ends within two seconds behind a moment.
fn ends_near(recording: &CameraFile, moment: Timestamp) -> bool {
    recording.to().duration_since(moment) <= GAP_MIN
}

/// Cuts a time out of a camera's recordings, which are in the order of their starts, into the new
/// file `output`. `progress` gets the bytes copied and those of all; it returns false to stop.
///
/// # Errors
/// Nothing was recorded in that time; `output` exists; the recordings cannot be joined or read; the
/// disk is full; stopped. No file is left.
pub fn export(
    recordings: &[CameraFile],
    range: RecordedTime,
    output: &Path,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Exported, Error> {
    let of_output = |source| Error::Host { path: output.to_owned(), source };
    if output.symlink_metadata().is_ok() {
        return Err(of_output(io::ErrorKind::AlreadyExists.into()));
    }
    let chosen = in_range(recordings, range);
    let is_mp4 = recordings.get(chosen.start).is_some_and(|first| first.start.is_mp4);
    let mut others = recordings[chosen.clone()].iter();
    if let Some(other) = others.find(|other| other.start.is_mp4 != is_mp4) {
        return Err(Error::Changed { path: other.path.clone(), at: other.from() });
    }
    let cut = match is_mp4 {
        true => fragments::cut(recordings, chosen, range)?,
        false => packets::cut(&recordings[chosen], range)?,
    };
    if cut.pieces.is_empty() {
        let before = recordings.iter().map(CameraFile::to).filter(|to| *to <= range.from).max();
        let after = recordings.iter().map(CameraFile::from).find(|from| *from >= range.to);
        return Err(Error::NothingRecorded { range, before, after });
    }
    let new = NewFile::create(output).map_err(of_output)?;
    let mut writing = Writing {
        file: new.file(),
        output,
        all: cut.bytes(),
        done: 0,
        spans: Vec::new(),
        progress,
    };
    writing.tell()?;
    writing.write(&cut.head)?;
    match is_mp4 {
        true => fragments::copy(&cut, &mut writing)?,
        false => packets::copy(&cut, &mut writing)?,
    }
    let spans = std::mem::take(&mut writing.spans);
    // Syncing a large file takes long.
    new.file().sync_data().map_err(of_output)?;
    writing.tell()?;
    let bytes = new.file().metadata().map_err(of_output)?.len();
    new.keep().map_err(of_output)?;
    let found = RecordedTime { from: spans[0].from, to: spans[spans.len() - 1].to };
    let is_growing = cut.pieces.iter().any(|piece| piece.recording.is_growing);
    // A file that grows has no end.
    let end = if is_growing { found.to } else { range.to };
    let [begin, end] = [range.from, end].map(|at| RecordedTime { from: at, to: at });
    let gaps = gaps_between([begin].into_iter().chain(spans).chain([end]));
    Ok(Exported { range: found, bytes, files: cut.pieces.len(), gaps })
}

/// The parts of files that are joined.
#[derive(Default)]
struct Cut {
    pieces: Vec<Piece>,
    /// Bytes before the first piece: descriptions or tables.
    head: Vec<u8>,
}

/// A part of a file.
struct Piece {
    recording: CameraFile,
    /// The file, for the first [`OPEN_MAX`] pieces: its recorder may delete it meanwhile.
    file: Option<File>,
    bytes: Range<u64>,
    /// Times of its media without a gap, from the start of the file.
    times: Vec<Range<Duration>>,
    /// Ticks from the start of the file at which the cut ends.
    until: u64,
}

impl Cut {
    fn bytes(&self) -> u64 {
        let pieces = self.pieces.iter().map(|piece| piece.bytes.end - piece.bytes.start);
        self.head.len() as u64 + pieces.sum::<u64>()
    }

    fn push(&mut self, mut piece: Piece) {
        // One that another follows is copied to its end: the clock of a camera may be fast.
        if let Some(before) = self.pieces.last_mut() {
            before.until = u64::MAX;
        }
        piece.file = piece.file.filter(|_| self.pieces.len() < OPEN_MAX);
        self.pieces.push(piece);
    }
}

impl Piece {
    fn path(&self) -> &Path {
        &self.recording.path
    }

    /// The file, opened again if it was closed.
    fn open(&self) -> Result<File, Error> {
        match &self.file {
            Some(file) => file.try_clone().map_err(|source| host(self.path(), source)),
            None => open(&self.recording).map(|(file, _)| file),
        }
    }

    /// A time of its media.
    fn span(&self, time: &Range<Duration>) -> RecordedTime {
        let at = |time| self.recording.from().saturating_add(time).unwrap_or(Timestamp::MAX);
        RecordedTime { from: at(time.start), to: at(time.end) }
    }
}

/// The moments of a time in a recording, in ticks from its start.
fn ticks_in(recording: &CameraFile, range: RecordedTime) -> Range<u64> {
    let ticks = |moment: Timestamp| {
        let since = moment.duration_since(recording.from());
        ticks_of(Duration::try_from(since).unwrap_or_default())
    };
    ticks(range.from)..ticks(range.to)
}

/// Opens a recording; returns its size.
fn open(recording: &CameraFile) -> Result<(File, u64), Error> {
    let opened = open_regular(&recording.path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (bytes, file) = opened.map_err(|source| host(&recording.path, source))?;
    Ok((file, bytes))
}

fn host(path: &Path, source: io::Error) -> Error {
    Error::Host { path: path.to_owned(), source }
}

/// The error of a recording that cannot be read.
fn unreadable(path: &Path) -> impl Fn(DemuxError) -> Error {
    move |error| match error {
        DemuxError::Unreadable(source) => host(path, source),
        source => Error::Unreadable { path: path.to_owned(), source },
    }
}

/// The file that is being written.
struct Writing<'a> {
    file: &'a File,
    output: &'a Path,
    all: u64,
    done: u64,
    /// Times of the media so far, one for each part without a gap.
    spans: Vec<RecordedTime>,
    progress: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl Writing<'_> {
    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|source| host(self.output, source))?;
        self.done += bytes.len() as u64;
        Ok(())
    }

    /// Appends bytes of a recording.
    fn copy(&mut self, mut from: &File, path: &Path, mut range: Range<u64>) -> Result<(), Error> {
        let failed = |source| {
            let (from, to) = (path.to_owned(), self.output.to_owned());
            Error::Copy { from, to, source }
        };
        from.seek(SeekFrom::Start(range.start)).map_err(failed)?;
        while range.start < range.end {
            let bytes = STEP_BYTES.min(range.end - range.start);
            let copied = io::copy(&mut from.take(bytes), &mut self.file).map_err(failed)?;
            if copied < bytes {
                return Err(host(path, io::ErrorKind::UnexpectedEof.into()));
            }
            range.start += bytes;
            self.done += bytes;
            self.tell()?;
        }
        Ok(())
    }

    fn tell(&mut self) -> Result<(), Error> {
        self.all = self.all.max(self.done);
        match (self.progress)(self.done, self.all) {
            true => Ok(()),
            false => Err(Error::Stopped),
        }
    }
}

/// Bytes between two looks at progress.
const STEP_BYTES: u64 = 64 << 20;
/// Files that are held open: a process may usually open 1,024.
const OPEN_MAX: usize = 512;
