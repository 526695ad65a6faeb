// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a plan by reading a file once, slice by slice: all of a transport stream, the tables of an
//! MP4; and, once more, where the access units of a transport stream's elementary streams lie.
//!
//! A scan advances by [`SLICE_BYTES`] a call and can be suspended between two calls, so that many
//! scans share a few threads and none occupies a thread to its end. Before each slice the open file
//! is compared with its state at the beginning: a scan of a file being written ends at once. A
//! write(2) that is under way when a scan begins is waited for ([`await_writes`]).
//! Costs one read of the file, one `fstat` a slice and 1.3 MiB of memory. A short file is in the
//! page cache afterwards; of a long one only the beginning is, so that a scan of a library does not
//! evict what is being streamed.
//!
//! Sources: write(2), lseek(2) (SEEK_DATA).
//! Does not parse ([`media::ts::Scanner`] does) or schedule scans ([`super::scans`] does).

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use media::mp4::GrowingMp4;
use media::store::{modified_ns, random_identity};
use media::ts::Scanner;
use media::{AssetPlan, DemuxError, Demuxer, ElementaryDemuxer, PacketPlan, Refusal};
use rustix::fs::{Advice, SeekFrom, fadvise, seek};

use super::NoAsset;
use super::formats::is_transport_stream;
use super::recording_reader::RecordingReader;
use super::scans::OpenedFile;

/// State of a scan between slices.
pub(super) struct Progress {
    reader: Reader,
    offset: u64,
    /// True when the file had a name at the scan's beginning; some file systems count no links.
    was_linked: bool,
}

/// Reader of a file's bytes.
enum Reader {
    /// Not chosen yet: the file's first bytes decide.
    Unknown,
    TransportStream(Box<Scanner>),
    Tracks(Demuxer),
    /// Tracks of a recording.
    Recording(Box<GrowingMp4>),
    /// Elementary streams of a transport stream that has a plan.
    Elementary(Box<ElementaryDemuxer>),
}

/// Result of a slice.
pub(super) enum Slice {
    /// More bytes are to be read.
    Unfinished(Progress),
    Over(Box<Result<AssetPlan, NoAsset>>),
    /// So many bytes of a recording were read, all at the scan's beginning.
    Growing(RecordingReader, u64),
}

fn over(planned: Result<AssetPlan, NoAsset>) -> Slice {
    Slice::Over(Box::new(planned))
}

impl Progress {
    pub(super) fn new(opened: &OpenedFile) -> Progress {
        let file = &opened.file;
        // Only a hint, not needed for a correct plan. The kernel's read-ahead is as long as the
        // disk's setting, several MiB on some; without kernel preemption a pacer that wants this
        // core waits for all of it (50 ms were seen in a virtual machine).
        let _ = fadvise(file, 0, None, Advice::Random);
        let was_linked = file.metadata().is_ok_and(|now| now.nlink() > 0);
        let reader = match &opened.elementary {
            Some(stream) => Reader::Elementary(Box::new(ElementaryDemuxer::new(&stream.plan))),
            None => Reader::Unknown,
        };
        Progress { reader, offset: 0, was_linked }
    }

    /// True before the first slice.
    pub(super) fn is_new(&self) -> bool {
        self.offset == 0
    }

    /// Reads the next slice of a file: of a transport stream through `piece`, of tracks where their
    /// samples lie. Adds the bytes read to `done`. Returns early, `Unfinished`, when `is_given_up`
    /// is set before a piece.
    pub(super) fn advance(
        mut self,
        opened: &OpenedFile,
        piece: &mut Vec<u8>,
        done: &AtomicU64,
        is_given_up: impl Fn() -> bool,
    ) -> Slice {
        if self.is_new() {
            await_writes(&opened.file);
        }
        if !self.is_as_it_was(opened) {
            return over(Err(NoAsset::CHANGING));
        }
        if matches!(self.reader, Reader::Unknown) {
            self.reader = Reader::of(opened);
        }
        match self.reader {
            Reader::Tracks(demuxer) => {
                let progress = Progress { reader: Reader::Unknown, ..self };
                progress.advance_tracks(demuxer, opened, done, is_given_up)
            }
            Reader::Recording(reader) => {
                let progress = Progress { reader: Reader::Unknown, ..self };
                progress.advance_recording(reader, opened, done, is_given_up)
            }
            Reader::Elementary(demuxer) => {
                let progress = Progress { reader: Reader::Unknown, ..self };
                let plan = &opened.elementary.as_ref().expect("it chose this reader").plan;
                progress.advance_elementary((demuxer, plan), opened, done, is_given_up)
            }
            Reader::TransportStream(scanner) => {
                let progress = Progress { reader: Reader::Unknown, ..self };
                progress.advance_stream(scanner, opened, (piece, done), is_given_up)
            }
            Reader::Unknown => unreachable!("chosen above"),
        }
    }

    /// Reads where the next samples of tracks lie.
    fn advance_tracks(
        self,
        mut demuxer: Demuxer,
        opened: &OpenedFile,
        done: &AtomicU64,
        is_given_up: impl Fn() -> bool,
    ) -> Slice {
        if opened.is_growing {
            // Of other formats the tables come last, or the length does.
            return over(Err(NoAsset::CHANGING));
        }
        let begun = Instant::now();
        let mut left = SLICE_SAMPLES;
        while left > 0 && begun.elapsed() < SLICE_TIME && !is_given_up() {
            match demuxer.advance(&opened.file, PIECE_SAMPLES) {
                Ok(false) => left = left.saturating_sub(PIECE_SAMPLES),
                Ok(true) => {
                    let planned = demuxer.finish(random_identity).map(AssetPlan::from);
                    return over(planned.map_err(|refusal| refused(&refusal)));
                }
                Err(error) => return over(Err(not_demuxed(error))),
            }
        }
        // Not zero, or it would count as a new scan.
        let offset = demuxer.position().max(1);
        done.store(offset, Ordering::Relaxed);
        Slice::Unfinished(Progress { reader: Reader::Tracks(demuxer), offset, ..self })
    }

    /// Reads the next fragments of a recording.
    fn advance_recording(
        self,
        mut reader: Box<GrowingMp4>,
        opened: &OpenedFile,
        done: &AtomicU64,
        is_given_up: impl Fn() -> bool,
    ) -> Slice {
        let begun = Instant::now();
        let mut left = SLICE_SAMPLES;
        while left > 0 && begun.elapsed() < SLICE_TIME && !is_given_up() {
            match reader.advance(&opened.file, opened.key.bytes, PIECE_SAMPLES) {
                Ok(false) => left = left.saturating_sub(PIECE_SAMPLES),
                Ok(true) => {
                    let read = reader.position();
                    return Slice::Growing(RecordingReader::Tracks(reader), read);
                }
                Err(error) => return over(Err(not_demuxed(error))),
            }
        }
        // Not zero, or it would count as a new scan.
        let offset = reader.position().max(1);
        done.store(offset, Ordering::Relaxed);
        Slice::Unfinished(Progress { reader: Reader::Recording(reader), offset, ..self })
    }

    /// Reads where the next access units of elementary streams lie.
    fn advance_elementary(
        mut self,
        (mut demuxer, plan): (Box<ElementaryDemuxer>, &PacketPlan),
        opened: &OpenedFile,
        done: &AtomicU64,
        is_given_up: impl Fn() -> bool,
    ) -> Slice {
        let begin = self.offset;
        while self.offset < begin + SLICE_BYTES && !is_given_up() {
            let next = self.offset + PIECE_BYTES;
            paths::read_ahead(&opened.file, next..next + PIECE_BYTES);
            match demuxer.advance(plan, &opened.file, PIECE_BYTES / plan.stride()) {
                Ok(false) => {}
                Ok(true) => {
                    let found = demuxer.finish(random_identity).map(AssetPlan::from);
                    return over(found.map_err(|refusal| refused(&refusal)));
                }
                Err(error) => return over(Err(not_demuxed(error))),
            }
            // Not zero, or it would count as a new scan.
            self.offset = demuxer.position(plan).max(1);
            done.store(self.offset, Ordering::Relaxed);
        }
        self.release_pages(opened, begin..self.offset);
        Slice::Unfinished(Progress { reader: Reader::Elementary(demuxer), ..self })
    }

    /// Lets the kernel evict the bytes read of a long file; pages mapped by a session stay.
    fn release_pages(&self, opened: &OpenedFile, read: Range<u64>) {
        if opened.key.bytes > KEPT_BYTES && read.start >= SLICE_BYTES {
            let bytes = NonZeroU64::new(read.end - read.start);
            let _ = fadvise(&opened.file, read.start, bytes, Advice::DontNeed);
        }
    }

    fn advance_stream(
        mut self,
        mut scanner: Box<Scanner>,
        opened: &OpenedFile,
        (piece, done): (&mut Vec<u8>, &AtomicU64),
        is_given_up: impl Fn() -> bool,
    ) -> Slice {
        let (file, key) = (&opened.file, &opened.key);
        let unfinished = |progress, scanner| {
            Slice::Unfinished(Progress { reader: Reader::TransportStream(scanner), ..progress })
        };
        let finish = |scanner: Box<Scanner>| {
            let planned = scanner.finish(key.bytes, random_identity()).map(AssetPlan::from);
            over(planned.map_err(|refusal| refused(&of_any_format(refusal, &opened.name))))
        };
        let slice_end = key.bytes.min(self.offset + SLICE_BYTES);
        piece.resize(PIECE_BYTES as usize, 0);
        while self.offset < slice_end {
            if is_given_up() {
                return unfinished(self, scanner);
            }
            // The kernel reads the next piece while this one is parsed.
            let next = self.offset + PIECE_BYTES;
            paths::read_ahead(file, next..next + PIECE_BYTES);
            let wanted = (slice_end - self.offset).min(PIECE_BYTES) as usize;
            let read = match file.read_at(&mut piece[..wanted], self.offset) {
                Ok(0) => return over(Err(NoAsset::CHANGING)),
                Ok(read) => read,
                Err(error) => {
                    let found = format!("byte {}: {error}", self.offset);
                    return over(Err(NoAsset::Unreadable(found)));
                }
            };
            scanner.feed(&piece[..read]);
            self.offset += read as u64;
            done.store(self.offset, Ordering::Relaxed);
            if scanner.is_refused() {
                return finish(scanner);
            }
        }
        let slice = slice_end - SLICE_BYTES.min(slice_end);
        self.release_pages(opened, slice..slice + SLICE_BYTES);
        match self.offset == key.bytes {
            true if opened.is_growing => {
                Slice::Growing(RecordingReader::stream(scanner), key.bytes)
            }
            true => finish(scanner),
            false => unfinished(self, scanner),
        }
    }

    /// True when the open file still has a name and the size and time of its key; a growing file
    /// may have more.
    fn is_as_it_was(&self, opened: &OpenedFile) -> bool {
        let key = &opened.key;
        opened.file.metadata().is_ok_and(|now| {
            let is_linked = now.nlink() > 0 || !self.was_linked;
            let is_same = now.len() == key.bytes && modified_ns(&now) == key.modified_ns;
            is_linked && (is_same || opened.is_growing && now.len() >= key.bytes)
        })
    }
}

impl Reader {
    /// Chooses by the file's first bytes; an unknown format is read as a transport stream, and
    /// refused as none.
    fn of(opened: &OpenedFile) -> Reader {
        match Demuxer::of(&opened.file, opened.key.bytes) {
            Some(Demuxer::Mp4(_)) if opened.is_growing => Reader::Recording(Box::default()),
            Some(demuxer) => Reader::Tracks(demuxer),
            None => Reader::TransportStream(Box::new(Scanner::new())),
        }
    }
}

/// Waits until a write(2) to the file that is under way has ended.
///
/// It sets the file's time at its beginning, so a concurrent scan would find content that is half
/// old under the time of the new content. File systems hold the inode's lock while they write. A
/// look for data waits for it on ext4, Btrfs, tmpfs and overlayfs, a read on XFS. No wait is needed
/// for later writes, which set another time. Writes through a mapping have no such lock.
fn await_writes(file: &File) {
    // Only the wait matters: the results and errors are discarded.
    let _ = seek(file, SeekFrom::Data(0));
    let _ = file.read_at(&mut [0], 0);
}

/// Returns the refusal of a file that is read as a transport stream because its first bytes are
/// those of no other format.
fn of_any_format(refusal: Refusal, name: &str) -> Refusal {
    match refusal {
        Refusal::NotTransportStream { searched_bytes } => Refusal::UnknownFormat { searched_bytes },
        Refusal::TooShort { bytes } if !is_transport_stream(name) => {
            Refusal::UnknownFormat { searched_bytes: bytes }
        }
        refusal => refusal,
    }
}

fn not_demuxed(error: DemuxError) -> NoAsset {
    match error {
        DemuxError::Refused(refusal) => refused(&refusal),
        // It has become shorter.
        DemuxError::Unreadable(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            NoAsset::CHANGING
        }
        error => NoAsset::Unreadable(error.to_string()),
    }
}

fn refused(refusal: &Refusal) -> NoAsset {
    NoAsset::Refused(refusal.to_string())
}

/// Samples of a turn, and between two looks at whether the scan was given up.
const SLICE_SAMPLES: usize = 32 * PIECE_SAMPLES;
const PIECE_SAMPLES: usize = 4096;
/// Time of a turn, where samples cost more than usual.
const SLICE_TIME: Duration = Duration::from_millis(10);
/// Bytes of a read and of read-ahead; larger was not measurably faster.
const PIECE_BYTES: u64 = 256 << 10;
/// Bytes of a longer file left in the page cache: its beginning, where most plays start.
const KEPT_BYTES: u64 = 64 << 20;
/// Bytes of a turn: some 16 ms from the page cache, after which a shorter scan may run.
const SLICE_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the plan of a file that was written in place by one long call was that of zeros,
    /// and was kept: the file had the same time before and after.
    #[test]
    fn write_that_is_under_way_is_waited_for() {
        const BYTES: usize = 64 << 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film");
        let writer = File::create(&path).unwrap();
        writer.set_len(BYTES as u64).unwrap();
        let reader = File::open(&path).unwrap();
        let byte_at = |at: usize| {
            let mut byte = [0];
            reader.read_exact_at(&mut byte, at as u64).unwrap();
            byte[0]
        };
        let content = vec![1; BYTES];
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(writer.write_at(&content, 0).unwrap(), BYTES, "one call"));
            while byte_at(0) == 0 {
                std::thread::yield_now();
            }
            await_writes(&reader);
            assert_eq!(byte_at(BYTES - 1), 1, "the rest was still being written");
        });
    }
}
