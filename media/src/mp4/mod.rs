// SPDX-License-Identifier: MIT OR Apache-2.0
//! ISO base media files (MP4, QuickTime): the demuxer, and the fragments of recordings
//! ([`FragmentedFile`]).
//!
//! An [`Mp4Demuxer`] creates the [`Presentation`] of a file from its `moov` and `moof` boxes;
//! sample bytes are read only if no table marks the samples with which play can start. Boxes of all
//! other types are skipped, wherever they are. Tables are read in slices, so the memory needed is
//! that of the sample tables it creates ([`crate::tracks::SampleTable`]) and 0.3 MB. Over 20
//! million samples a second on a core, from the page cache
//! (`a_million_samples_are_read_in_less_than_three_seconds`).
//!
//! Samples of PCM, which may be a frame each or a second, become blocks of about 20 ms
//! ([`pcm_blocks`]).
//!
//! A track that cannot be sent is omitted with its reason: a codec without a payload format here,
//! subtitles, encryption, samples in another file, more than one sample description, or an edit
//! list of more than one piece. A broken structure refuses the file, with the offset of the box;
//! faults that players accept are read with a warning ([`odd_tables`]). Of concatenated files the
//! first is read, with a warning; a second `ftyp` marks its end, unless it and its `moov` repeat
//! the first ones, as before each part of some recordings.
//!
//! Sources: ISO/IEC 14496-12 (boxes, tables, fragments, edit lists); ISO/IEC 14496-14 and -15, and
//! those named in the parts (codecs); QuickTime File Format.
//! Does not lay packets out.

mod boxes;
mod edits;
mod entries;
mod fragments;
mod growing;
mod movie;
mod odd_tables;
mod pcm_blocks;
mod pcm_entries;
mod recorded_fragments;
mod slices;
mod tables;
mod text_tracks;
mod track_boxes;

use crate::plan::RtpIdentity;
use crate::tracks::SAMPLES_MAX;
use crate::{Container, DemuxError, Presentation, ReadAt, Refusal};

pub use growing::GrowingMp4;
pub use recorded_fragments::{FileFragment, FragmentRun, FragmentedFile, FragmentedTrack};

use boxes::{CONTAINER, FileBox, FourCode, Input, broken, with_input};
use fragments::Fragment;
use movie::{Collected, Movie};
use tables::{NoTable, TableReader};
pub(crate) use text_tracks::{text_samples, text_tracks, ttml_tracks};

/// Boxes that are in no other: two for each fragment, and a file of 100 hours has fragments of a
/// tenth of a second at the shortest.
const OUTERMOST_MAX: u32 = 1 << 23;

/// Samples that are read in the time in which a box is found.
const SAMPLES_PER_BOX: usize = 16;

/// Boxes inside of which a fragmented file may end: those of fragments, and of an index at its end.
const CUT_BOXES: [&FourCode; 10] =
    [b"moof", b"mdat", b"styp", b"sidx", b"emsg", b"prft", b"mfra", b"free", b"skip", b"uuid"];

/// Largest index that is compared with a repeated one: the index of fragmented files has no tables.
const REPEATED_BYTES_MAX: u64 = 1 << 20;

/// Most boxes searched for the first of `moov` and `mdat`: a file has two or three before.
const BOXES_BEFORE_MEDIA_MAX: usize = 64;

/// Finding and remedy for a file that ends before its index, or within it. ffmpeg reads no such
/// file ("moov atom not found").
const NEVER_WRITTEN: &str = "it was never written, as of a recorder that was stopped or still \
                             runs, or it is cut off, and ffmpeg cannot remux such a file; copy it \
                             again, or let a repair tool rebuild the index by a whole file of the \
                             same camera (untrunc WHOLE.mp4 IN.mp4), or record it anew";

/// Finding and remedy for a single segment (ISO/IEC 14496-12 §8.16).
const WITHOUT_INITIALIZATION: &str = "a moof in front of moov, as of a segment by itself; put its \
                                      initialization segment in front (cat INIT.mp4 IN > OUT.mp4)";

fn no_index(what: &'static str) -> DemuxError {
    Refusal::NoIndex { container: CONTAINER, what }.into()
}

/// True if a file that begins so is an ISO base media file. Eight bytes suffice. Files before the
/// standard have no `ftyp` box and begin with another.
pub fn is_mp4(beginning: &[u8]) -> bool {
    let Some(&[a, b, c, d, ref code @ ..]) = beginning.first_chunk::<8>() else { return false };
    let bytes = u32::from_be_bytes([a, b, c, d]);
    match code {
        b"ftyp" | b"moov" | b"wide" | b"free" | b"skip" | b"pnot" => bytes == 1 || bytes >= 8,
        // Size 0: to the end of the file.
        b"mdat" => !(2..8).contains(&bytes),
        _ => false,
    }
}

/// True if the media of an ISO base media file precedes its `moov` box: a player that downloads the
/// file from its start can play only at the end. Reads the headers of boxes up to the first of
/// both.
///
/// # Errors
/// The structure is broken, or the file cannot be read.
pub fn is_index_behind_media(
    file: &(impl ReadAt + ?Sized),
    file_bytes: u64,
) -> Result<bool, DemuxError> {
    with_input(file, file_bytes, |input| {
        let mut next = 0;
        for _ in 0..BOXES_BEFORE_MEDIA_MAX {
            match FileBox::outermost(input, next)? {
                Some(found) if &found.code == b"moov" => return Ok(false),
                Some(found) if &found.code == b"mdat" && found.body_bytes() > 0 => {
                    return Ok(true);
                }
                Some(found) => next = found.end,
                None => break,
            }
        }
        Ok(false)
    })
}

/// Creates the presentation of an ISO base media file.
#[derive(Debug)]
pub struct Mp4Demuxer {
    file_bytes: u64,
    /// Offset of the next box that is in no other.
    next: u64,
    /// Number of those so far.
    outermost: u32,
    /// The `moov` box and its content.
    index: Option<FileBox>,
    movie: Option<Movie>,
    /// Start of a second `ftyp` box, while it is unknown if another film begins there; the same
    /// after a `moov` that repeats the first; and the start of another film.
    type_at: Option<u64>,
    repeated: Option<u64>,
    next_film: Option<u64>,
    collected: Collected,
    has_fragments: bool,
    /// Bytes that the file lacks of its last box.
    lacking_bytes: u64,
    /// True while the file is written: only whole fragments are read.
    is_growing: bool,
    work: Work,
}

/// The part of the file that is being read.
#[derive(Debug)]
enum Work {
    /// The boxes that are in no other.
    Outermost,
    /// The tables of a track, by its index; not opened yet if there is no reader.
    Tables(usize, Option<Box<TableReader>>),
    Fragment(Fragment),
    /// The samples of a track, by its index, from a number on, if its tables mark no random-access
    /// point.
    Starts(usize, usize),
    /// All is read.
    Done,
}

impl Mp4Demuxer {
    /// Returns a demuxer of a file with this size, at its start.
    pub fn new(file_bytes: u64) -> Mp4Demuxer {
        Mp4Demuxer::collecting(Collected::Sent, file_bytes)
    }

    fn collecting(collected: Collected, file_bytes: u64) -> Mp4Demuxer {
        Mp4Demuxer {
            file_bytes,
            next: 0,
            outermost: 0,
            index: None,
            movie: None,
            type_at: None,
            repeated: None,
            next_film: None,
            collected,
            has_fragments: false,
            lacking_bytes: 0,
            is_growing: false,
            work: Work::Outermost,
        }
    }

    /// Continues reading, for about `samples` samples; true if all is read. Between calls only
    /// memory is held, so many files share a thread. The file must be the same in every call.
    ///
    /// # Errors
    /// The file cannot be streamed, or not be read. No further call is allowed then.
    pub fn advance(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        samples: usize,
    ) -> Result<bool, DemuxError> {
        let mut budget = samples.max(1);
        with_input(file, self.file_bytes, |input| {
            while budget > 0 {
                // The index of a file whose samples are all in it may come first.
                let is_index = matches!(self.work, Work::Tables(..));
                if self.is_growing && is_index && !self.is_fragmented() {
                    return Ok(true);
                }
                match &mut self.work {
                    Work::Done => return Ok(true),
                    Work::Outermost => {
                        if self.is_growing && !self.is_next_whole(input)? {
                            return Ok(true);
                        }
                        let boxes = self.next_box(input)?;
                        budget = budget.saturating_sub(boxes * SAMPLES_PER_BOX);
                    }
                    Work::Tables(..) => self.read_tables(input, &mut budget)?,
                    Work::Starts(..) => self.find_starts(input, &mut budget)?,
                    Work::Fragment(fragment) => {
                        let movie = self.movie.as_mut().expect("fragments come behind it");
                        match fragment.advance(input, movie, &mut budget) {
                            Ok(false) => {}
                            Ok(true) => (self.work, self.repeated) = (Work::Outermost, None),
                            // Its times restart.
                            Err(DemuxError::Refused(_)) if self.repeated.is_some() => {
                                self.end_at(self.repeated);
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
            Ok(matches!(self.work, Work::Done))
        })
    }

    fn is_fragmented(&self) -> bool {
        self.movie.as_ref().is_some_and(|movie| movie.is_fragmented)
    }

    /// Offset of the next box that is in no other.
    pub fn position(&self) -> u64 {
        self.next.min(self.file_bytes)
    }

    /// Looks at the next box that is in no other; returns the number of boxes that were found.
    fn next_box(&mut self, input: &Input<'_>) -> Result<usize, DemuxError> {
        let Some(found) = FileBox::outermost_header(input, self.next)? else {
            if self.movie.is_none() {
                return Err(no_index(NEVER_WRITTEN));
            }
            self.work = Work::Starts(0, 0);
            return Ok(1);
        };
        if found.end > self.file_bytes && self.type_at.is_some() {
            self.end_at(self.type_at);
            return Ok(1);
        }
        if found.end > self.file_bytes && self.is_cut_off(&found) {
            self.lacking_bytes = found.end - self.file_bytes;
            self.work = Work::Starts(0, 0);
            return Ok(1);
        }
        if found.end > self.file_bytes && self.movie.is_none() {
            return Err(no_index(NEVER_WRITTEN));
        }
        let found = found.within(self.file_bytes)?;
        self.next = found.end;
        self.outermost += 1;
        if self.outermost > OUTERMOST_MAX {
            return Err(broken(found.start, format!("more than {OUTERMOST_MAX} boxes")));
        }
        match (&found.code, &self.movie) {
            (b"ftyp", Some(movie)) if found.start > 0 => {
                match movie.is_fragmented {
                    true => self.type_at = Some(found.start),
                    false => self.end_at(Some(found.start)),
                }
                Ok(1)
            }
            // A second `moov` without an `ftyp` before it is skipped: it repeats the first, as
            // recorders that write both do.
            (b"moov", Some(_)) if self.type_at.is_some() => {
                match self.repeats(input, &found)? {
                    true => self.repeated = self.type_at.take(),
                    false => self.end_at(self.type_at),
                }
                Ok(1)
            }
            (b"moov", None) => {
                let movie = Movie::read(input, &found, self.collected)?;
                let tracks = movie.tracks.len();
                (self.index, self.movie) = (Some(found), Some(movie));
                self.work = Work::Tables(0, None);
                // About as many boxes as a track has.
                Ok(1 + 24 * tracks)
            }
            (b"moof", None) => Err(no_index(WITHOUT_INITIALIZATION)),
            (b"moof", Some(movie)) => {
                let (fragment, boxes) = Fragment::read(input, &found, movie)?;
                (self.has_fragments, self.type_at) = (true, None);
                self.work = Work::Fragment(fragment);
                Ok(1 + boxes)
            }
            _ => Ok(1),
        }
    }

    /// Ends the film where another one begins.
    fn end_at(&mut self, next_film: Option<u64>) {
        (self.next_film, self.work) = (next_film, Work::Starts(0, 0));
    }

    /// True if a `moov` box is the first again, byte for byte.
    fn repeats(&self, input: &Input<'_>, found: &FileBox) -> Result<bool, DemuxError> {
        let body = |found: &FileBox| -> Result<Vec<u8>, DemuxError> {
            let mut bytes = vec![0; found.body_bytes() as usize];
            input.read(&mut bytes, found.body)?;
            Ok(bytes)
        };
        let same = |first: &&FileBox| {
            first.body_bytes() == found.body_bytes() && found.body_bytes() <= REPEATED_BYTES_MAX
        };
        let Some(first) = self.index.as_ref().filter(same) else { return Ok(false) };
        Ok(body(first)? == body(found)?)
    }

    /// Warning for concatenated files.
    fn joined(&self) -> Option<String> {
        let at = self.next_film?;
        Some(format!(
            "another file begins at byte {at}, and the last {} bytes are not streamed; join them \
             as films (ffmpeg -f concat -i LIST.txt -c copy OUT.mp4; LIST.txt has a line file \
             'A.mp4' for each)",
            self.file_bytes - at
        ))
    }

    /// True if the file may end within this box: it belongs to a fragment, after some samples.
    fn is_cut_off(&self, found: &FileBox) -> bool {
        let is_known = CUT_BOXES.contains(&&found.code);
        let has_samples = |movie: &Movie| movie.is_fragmented && movie.has_samples();
        is_known && self.movie.as_ref().is_some_and(has_samples)
    }

    /// The warning of a file that was cut off.
    fn cut_off(&self) -> Option<String> {
        let lacking = self.movie.as_ref().map_or(0, |movie| movie.lacking_samples);
        let finding = match self.lacking_bytes {
            0 if lacking == 0 => return None,
            0 => "its last fragment has no media".to_owned(),
            bytes => format!("by its own sizes {bytes} bytes are missing at its end"),
        };
        let lost = match lacking {
            0 => "what comes before is streamed".to_owned(),
            samples => format!("{samples} samples of its last fragment are not streamed"),
        };
        Some(format!(
            "cut off: {finding}; {lost}; copy it again, or make a whole file of what is there \
             (ffmpeg -i IN -map 0 -c copy OUT.mp4)"
        ))
    }

    /// Reads the tables of the tracks in `moov`, for at most `budget` samples.
    fn read_tables(&mut self, input: &Input<'_>, budget: &mut usize) -> Result<(), DemuxError> {
        let Work::Tables(index, reader) = &mut self.work else { return Ok(()) };
        let movie = self.movie.as_mut().expect("tables are those of its tracks");
        let Some(track) = movie.tracks.get_mut(*index) else {
            self.work = Work::Outermost;
            return Ok(());
        };
        // Opening a reader costs one step of the budget; after the last step, the next call
        // continues with the samples.
        let is_new = reader.is_none();
        *budget -= usize::from(is_new);
        if is_new && !track.is_left_out() {
            let joined = |number| track.joined(number);
            *reader = match TableReader::open(input, &track.tables, joined) {
                Ok(opened) => opened.map(Box::new),
                Err(NoTable::Error(error)) => return Err(error),
                Err(NoTable::Sample(sample, fault)) => {
                    return Err(track.refuse(sample as usize, fault));
                }
                Err(NoTable::ListedFrames) => {
                    track.leave_out_listed(SAMPLES_MAX);
                    None
                }
            };
        }
        let mut is_read = reader.is_none();
        while let Some(tables) = reader.as_mut().filter(|_| *budget > 0) {
            let Some(sample) = tables.next(input)? else {
                is_read = true;
                break;
            };
            *budget -= 1;
            movie.push(*index, sample)?;
            if movie.tracks[*index].is_left_out() {
                is_read = true;
                break;
            }
        }
        if is_read {
            if let Some(reader) = reader.take() {
                movie.tracks[*index].odd = reader.into_odd();
            }
            *index += 1;
        }
        Ok(())
    }

    /// Looks for random-access points in the samples of tracks that have none by their tables.
    fn find_starts(&mut self, input: &Input<'_>, budget: &mut usize) -> Result<(), DemuxError> {
        let Work::Starts(index, next) = &mut self.work else { return Ok(()) };
        let movie = self.movie.as_mut().expect("without it there is an error");
        let Some(track) = movie.tracks.get_mut(*index) else {
            self.work = Work::Done;
            return Ok(());
        };
        if track.find_starts(input, next, budget)? {
            (*index, *next) = (*index + 1, 0);
        }
        Ok(())
    }

    /// The presentation; `identity` draws SSRC and first values for each track.
    ///
    /// # Errors
    /// No track can be sent, there are too many, or their times exceed the limits of a plan.
    ///
    /// # Panics
    /// [`advance`](Self::advance) has not returned true.
    pub fn finish(self, identity: impl FnMut() -> RtpIdentity) -> Result<Presentation, Refusal> {
        assert!(matches!(self.work, Work::Done), "the file is not read to its end");
        let (cut_off, joined) = (self.cut_off(), self.joined());
        let movie = self.movie.expect("a file without it is refused");
        let (tracks, left_out, turned) = movie.finish(identity);
        let container = if self.has_fragments { Container::FragmentedMp4 } else { Container::Mp4 };
        let found = Presentation::assemble(container, self.file_bytes, tracks, left_out)?;
        found
            .with_warnings(cut_off.into_iter().chain(joined).chain(turned).collect())
            .moved_to_start()
    }
}

#[cfg(test)]
mod tests;
