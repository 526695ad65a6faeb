// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demuxer of Matroska and WebM: finds the tracks of a file and the places of their frames.
//!
//! Such a file has no table of its frames: their places are in the headers of blocks throughout the
//! file. The demuxer steps from header to header and reads some kilobytes around each; the frames
//! themselves are not parsed. Costs a read a block, about a microsecond each from the page cache.
//!
//! A block has a presentation time and no decoding time. Decoding times are the presentation times
//! in ascending order: the frame decoded n-th is due at the n-th presentation time, moved earlier
//! by a constant so that no frame is late. Times are rounded to the file's scale, mostly
//! milliseconds; those of sound are made exact again from the length of a frame.
//!
//! A file that was cut off, as a killed recorder leaves it, has the whole frames of its last
//! cluster, and a warning.
//!
//! Sources: RFC 9559 (Matroska); RFC 8794 (EBML); WebM container guidelines.
//! Does not decompress tracks, play encrypted ones or read cues. Does not follow linked segments.

mod blocks;
mod ebml;
mod text_tracks;
mod tracks;

use crate::plan::RtpIdentity;
use crate::read_at::ReadAt;
use crate::tracks::reasons::{NO_SAMPLES, NO_START};
use crate::tracks::{Container, LeftOut, Presentation, TABLE_CHECK_SAMPLES, check_table_bytes};
use crate::{DemuxError, Refusal};
use ebml::{Element, NoElement, Window};
use text_tracks::MkvText;
pub(crate) use text_tracks::{text_blocks, text_tracks};
use tracks::MkvTrack;

/// True if a file that begins so is Matroska or WebM.
pub fn is_mkv(beginning: &[u8]) -> bool {
    beginning.starts_with(&EBML.to_be_bytes())
}

/// Reads through a file, some blocks per call.
#[derive(Debug)]
pub struct MkvDemuxer {
    file_bytes: u64,
    /// Offset of the next element.
    at: u64,
    /// Ends of the current segment and cluster; the end of the file if theirs is unknown.
    segment_end: Option<u64>,
    cluster_end: Option<u64>,
    cluster_time: i64,
    /// Nanoseconds of a unit of time.
    scale_ns: u64,
    tracks: Vec<MkvTrack>,
    left_out: Vec<LeftOut>,
    /// Set if only the blocks of a text track are searched for.
    text: Option<MkvText>,
    has_tracks: bool,
    /// End, by its size, of the element that extends furthest past the file's end; 0 if none does.
    lacking_end: u64,
    /// Place where reading ended before the end, and the finding there.
    stop: Option<(u64, &'static str)>,
    /// Start of another file after the segment.
    next_file: Option<u64>,
    /// Track and sample from which random-access points are searched for, at the end.
    starts_from: (usize, usize),
}

impl MkvDemuxer {
    /// A demuxer for a file of this size.
    pub fn new(file_bytes: u64) -> MkvDemuxer {
        MkvDemuxer {
            file_bytes,
            at: 0,
            segment_end: None,
            cluster_end: None,
            cluster_time: 0,
            scale_ns: 1_000_000,
            tracks: Vec::new(),
            left_out: Vec::new(),
            text: None,
            has_tracks: false,
            lacking_end: 0,
            stop: None,
            next_file: None,
            starts_from: (0, 0),
        }
    }

    /// Reads about `samples` further frames; true if all of the file is read.
    ///
    /// # Errors
    /// The file is not of this kind, or cannot be read.
    pub fn advance(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        samples: usize,
    ) -> Result<bool, DemuxError> {
        let window = Window::new(file, self.file_bytes);
        let mut left = samples.max(1);
        let mut unchecked = 0;
        while left > 0 {
            if self.at >= self.segment_end.unwrap_or(self.file_bytes) {
                if self.starts_from == (0, 0) {
                    self.look_behind(file)?;
                }
                return self.find_starts(file, left);
            }
            match self.step(&window) {
                Ok(work) => {
                    left = left.saturating_sub(work);
                    unchecked += work;
                }
                // The last element of a recording that was cut off.
                Err(StepEnd::CutOff(what)) => {
                    self.stop = Some((self.at, what));
                    self.at = self.file_bytes;
                    return self.find_starts(file, left);
                }
                Err(StepEnd::Error(error)) => return Err(error),
            }
            if unchecked >= TABLE_CHECK_SAMPLES as usize || left == 0 {
                unchecked = 0;
                self.check_tables()?;
            }
        }
        Ok(false)
    }

    /// Closes the tracks, and examines at most `budget` samples of video tracks whose blocks mark
    /// no random-access point; true if all is done.
    fn find_starts(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        mut budget: usize,
    ) -> Result<bool, DemuxError> {
        let (index, next) = &mut self.starts_from;
        while let Some(track) = self.tracks.get_mut(*index) {
            let id = track.id();
            track.close().map_err(|(sample, fault)| {
                DemuxError::from(Refusal::Sample { container: NAME, track: id, sample, fault })
            })?;
            if budget == 0 || !track.find_starts(file, next, &mut budget)? {
                return Ok(false);
            }
            (*index, *next) = (*index + 1, 0);
        }
        Ok(true)
    }

    /// Checks the memory of all tables.
    fn check_tables(&self) -> Result<(), Refusal> {
        let bytes = self.tracks.iter().map(MkvTrack::table_bytes).sum();
        check_table_bytes(bytes, self.file_bytes).map_err(|fault| {
            let last = self.tracks.iter().max_by_key(|track| track.table_bytes());
            let (track, sample) = last.map_or((0, 0), |track| (track.id(), track.frames()));
            Refusal::Sample { container: NAME, track, sample, fault }
        })
    }

    /// Offset of the next element.
    pub fn position(&self) -> u64 {
        self.at.min(self.file_bytes)
    }

    /// Reads one element; returns the number of elements and frames that were read, or bytes that
    /// cost as much.
    fn step<F: ReadAt + ?Sized>(&mut self, window: &Window<'_, F>) -> Result<usize, StepEnd> {
        if self.cluster_end.is_some_and(|end| self.at >= end) {
            self.cluster_end = None;
        }
        let element = match self.next_element(window) {
            Ok(element) => element,
            Err(NoElement::Broken { what, .. }) if self.has_frames() => {
                return Err(StepEnd::CutOff(what));
            }
            Err(error) => return Err(error.into()),
        };
        let end = element.end;
        let mut work = 1;
        if matches!(element.id, EBML | INFO | TRACKS) {
            let bytes = end.map_or(0, |end| end - element.body).min(TRACKS_BYTES_MAX);
            work += bytes as usize / BYTES_PER_FRAME;
        }
        match element.id {
            EBML => self.check_type(window, &element)?,
            SEGMENT => {
                self.segment_end = Some(end.unwrap_or(self.file_bytes));
                self.at = element.body;
                return Ok(work);
            }
            INFO => self.read_info(&window.content(&element, INFO_BYTES_MAX)?),
            TRACKS if !self.has_tracks => {
                let content = window.content(&element, TRACKS_BYTES_MAX)?;
                if let Some(text) = &mut self.text {
                    text.read_tracks(&content);
                    (self.at, self.has_tracks) = (element.body + content.len() as u64, true);
                    return Ok(work);
                }
                let read = tracks::read(&content, self.scale_ns, self.file_bytes);
                let (tracks, left_out) = read.map_err(DemuxError::from)?;
                (self.tracks, self.left_out, self.has_tracks) = (tracks, left_out, true);
            }
            CLUSTER => {
                self.cluster_end = Some(end.unwrap_or(self.file_bytes));
                self.at = element.body;
                return Ok(work);
            }
            TIMESTAMP => {
                let content = window.content(&element, 8)?;
                let time = ebml::unsigned(&content).and_then(|time| i64::try_from(time).ok());
                // A time that does not fit becomes one that is refused with its first sample.
                self.cluster_time = time.unwrap_or(i64::MAX / 2);
            }
            // Text has durations, which these have not.
            SIMPLE_BLOCK if self.text.is_some() => {}
            SIMPLE_BLOCK => {
                let end = end.ok_or_else(|| broken(element.offset, "a block of unknown size"))?;
                work += self.read_block(window, element.body..end, None)?;
            }
            BLOCK_GROUP => {
                let end = end.ok_or_else(|| broken(element.offset, "a block of unknown size"))?;
                work += self.read_group(window, element.body..end)?;
            }
            _ => {}
        }
        // Only segments and clusters may have an unknown size (RFC 9559 §5).
        self.at = end.ok_or_else(|| broken(element.offset, "an element of unknown size"))?;
        Ok(work)
    }

    /// Returns the next element. If it is truncated, elements inside the segment or a cluster are
    /// still read as far as they extend; others are broken.
    fn next_element<F: ReadAt + ?Sized>(
        &mut self,
        window: &Window<'_, F>,
    ) -> Result<Element, NoElement> {
        let mut element = window.header(self.at)?;
        if let Some(end) = element.end.filter(|&end| end > self.file_bytes) {
            self.lacking_end = self.lacking_end.max(end);
            if matches!(element.id, SEGMENT | CLUSTER) {
                element.end = Some(self.file_bytes);
            }
        }
        element.within(self.file_bytes)
    }

    fn has_frames(&self) -> bool {
        let is_text = self.text.is_some() && self.has_tracks;
        is_text || self.tracks.iter().any(|track| track.frames() > 0)
    }

    fn check_type<F: ReadAt + ?Sized>(
        &self,
        window: &Window<'_, F>,
        element: &Element,
    ) -> Result<(), StepEnd> {
        let content = window.content(element, INFO_BYTES_MAX)?;
        let of_type = ebml::children(&content).find(|(id, _)| *id == DOC_TYPE);
        match of_type.map(|(_, name)| name) {
            Some(b"matroska" | b"webm") => Ok(()),
            _ => Err(broken(element.offset, "a document that is neither Matroska nor WebM").into()),
        }
    }

    fn read_info(&mut self, content: &[u8]) {
        for (id, value) in ebml::children(content) {
            if id == TIMESTAMP_SCALE
                && let Some(scale_ns @ 1..=SCALE_NS_MAX) = ebml::unsigned(value)
            {
                self.scale_ns = scale_ns;
            }
        }
    }

    /// Reads a block with the data about it; returns the number of elements and frames. It is a
    /// random-access point if it refers to no other.
    fn read_group<F: ReadAt + ?Sized>(
        &mut self,
        window: &Window<'_, F>,
        content: std::ops::Range<u64>,
    ) -> Result<usize, StepEnd> {
        let (mut at, mut block, mut is_key) = (content.start, None, true);
        let mut duration = None;
        let mut elements = 0;
        while at < content.end {
            elements += 1;
            if elements > GROUP_ELEMENTS_MAX {
                return Err(broken(content.start, "a BlockGroup of too many elements").into());
            }
            let element = window.element(at, content.end)?;
            let end = element.end.ok_or_else(|| broken(at, "an element of unknown size"))?;
            match element.id {
                BLOCK => block = Some(element.body..end),
                REFERENCE_BLOCK => is_key = false,
                BLOCK_DURATION if self.text.is_some() => {
                    duration = ebml::unsigned(&window.content(&element, 8)?);
                }
                _ => {}
            }
            at = end;
        }
        match block {
            Some(block) if self.text.is_some() => {
                self.read_text(window, block, duration)?;
                Ok(elements)
            }
            Some(block) => Ok(elements + self.read_block(window, block, Some(is_key))?),
            None => Ok(elements),
        }
    }

    /// Reads the head of a block that may be text.
    fn read_text<F: ReadAt + ?Sized>(
        &mut self,
        window: &Window<'_, F>,
        content: std::ops::Range<u64>,
        duration: Option<u64>,
    ) -> Result<(), StepEnd> {
        let start = content.start;
        let block = blocks::read(window, start, content.end)?;
        let Some(text) = self.text.as_mut().filter(|text| text.is_of(block.track)) else {
            return Ok(());
        };
        let time = self.cluster_time.saturating_add(block.time.into());
        let is_taken = text.push(&block.frames, (time, duration), self.scale_ns);
        is_taken.then_some(()).ok_or_else(|| broken(start, "too many blocks of text").into())
    }

    /// Reads a block; returns the number of frames beyond the first.
    fn read_block<F: ReadAt + ?Sized>(
        &mut self,
        window: &Window<'_, F>,
        content: std::ops::Range<u64>,
        is_key: Option<bool>,
    ) -> Result<usize, StepEnd> {
        let block = blocks::read(window, content.start, content.end)?;
        let track = self.tracks.iter_mut().find(|track| track.number() == block.track);
        let Some(track) = track else { return Ok(block.frames.len() - 1) };
        let time = self.cluster_time.saturating_add(block.time.into());
        let is_key = is_key.unwrap_or(block.is_key);
        for (index, &(file_offset, bytes)) in block.frames.iter().enumerate() {
            // Frames of a lace follow the first by the length of a frame.
            let time = (index == 0).then_some(time);
            track.push((file_offset, bytes), time, is_key).map_err(|fault| {
                let (track, sample) = (track.id(), track.frames());
                DemuxError::from(Refusal::Sample { container: NAME, track, sample, fault })
            })?;
        }
        Ok(block.frames.len() - 1)
    }

    /// The presentation of the file; `identity` draws SSRC and first values of each track's stream.
    ///
    /// # Errors
    /// No track can be sent.
    pub fn finish(
        self,
        mut identity: impl FnMut() -> RtpIdentity,
    ) -> Result<Presentation, Refusal> {
        if !self.has_tracks {
            let what = "no tracks".to_owned();
            return Err(Refusal::Broken { container: NAME, offset: 0, what });
        }
        let unmarked = self.tracks.iter().filter_map(MkvTrack::unmarked);
        let warnings = self.cut_off().into_iter().chain(self.joined()).chain(unmarked).collect();
        let mut left_out = self.left_out;
        let mut tracks = Vec::new();
        for track in self.tracks {
            let (id, codec, frames) = (track.id(), track.codec_name(), track.frames());
            match track.finish(identity()) {
                Some(track) => tracks.push(track),
                None => {
                    let reason = if frames == 0 { NO_SAMPLES } else { NO_START };
                    let reason = format!("track {id} ({codec}): {reason}");
                    left_out.push(LeftOut { id, reason });
                }
            }
        }
        let found = Presentation::assemble(Container::Matroska, self.file_bytes, tracks, left_out)?;
        found.with_warnings(warnings).moved_to_start()
    }

    /// Checks if another file begins after the segment, as in the output of `cat a.mkv b.mkv`.
    fn look_behind(&mut self, file: &(impl ReadAt + ?Sized)) -> Result<(), DemuxError> {
        let mut id = [0; 4];
        let end =
            self.segment_end.filter(|end| end.saturating_add(id.len() as u64) <= self.file_bytes);
        if let Some(end) = end {
            file.read_exact_at(&mut id, end)?;
            self.next_file = (u32::from_be_bytes(id) == EBML).then_some(end);
        }
        Ok(())
    }

    /// Warning for concatenated files.
    fn joined(&self) -> Option<String> {
        let at = self.next_file?;
        Some(format!(
            "another file begins at byte {at}, and the last {} bytes are not streamed; join them \
             as films (mkvmerge -o OUT.mkv A.mkv + B.mkv)",
            self.file_bytes - at
        ))
    }

    /// The warning of a file that is not read or not there to its end.
    fn cut_off(&self) -> Option<String> {
        let lacking = self.lacking_end.saturating_sub(self.file_bytes);
        let from = self.stop.map_or(self.file_bytes, |(at, _)| at);
        let left = self.file_bytes.saturating_sub(from);
        let finding = match (lacking, self.stop) {
            (0, None) => return None,
            (0, Some((at, what))) => format!("not read to its end: {what} at byte {at}"),
            (1.., _) => format!("cut off: by its own sizes {lacking} bytes are missing at its end"),
        };
        Some(format!(
            "{finding}; the whole frames before are streamed, and its last {left} bytes are not; \
             copy it again, or make a whole file of what is there (ffmpeg -i IN -map 0 -c copy \
             OUT.mkv)"
        ))
    }
}

/// Reason for ending a step early.
enum StepEnd {
    /// The file ends within an element, or no element is there: the finding.
    CutOff(&'static str),
    Error(DemuxError),
}

impl From<DemuxError> for StepEnd {
    fn from(error: DemuxError) -> StepEnd {
        StepEnd::Error(error)
    }
}

impl From<NoElement> for DemuxError {
    fn from(error: NoElement) -> DemuxError {
        match error {
            NoElement::Broken { offset, what } => broken(offset, what),
            NoElement::Unreadable(error) => DemuxError::Unreadable(error),
        }
    }
}

impl From<NoElement> for StepEnd {
    fn from(error: NoElement) -> StepEnd {
        StepEnd::Error(error.into())
    }
}

fn broken(offset: u64, what: &str) -> DemuxError {
    Refusal::Broken { container: NAME, offset, what: what.to_owned() }.into()
}

const NAME: &str = Container::Matroska.name();

/// Largest description of the tracks: parameter sets and attached fonts are not in it.
const TRACKS_BYTES_MAX: u64 = 1 << 20;
const INFO_BYTES_MAX: u64 = 64 << 10;
/// Elements of a BlockGroup: RFC 9559 §5.1.3.5 names 18, of which references and additions repeat.
const GROUP_ELEMENTS_MAX: usize = 1 << 10;
/// Bytes of a description that cost about as much as a frame.
const BYTES_PER_FRAME: usize = 64;
/// A unit of a second: a larger one is not plausible.
const SCALE_NS_MAX: u64 = 1_000_000_000;

const EBML: u32 = 0x1a45_dfa3;
const DOC_TYPE: u32 = 0x4282;
const SEGMENT: u32 = 0x1853_8067;
const INFO: u32 = 0x1549_a966;
const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
const TRACKS: u32 = 0x1654_ae6b;
const CLUSTER: u32 = 0x1f43_b675;
const TIMESTAMP: u32 = 0xe7;
const SIMPLE_BLOCK: u32 = 0xa3;
const BLOCK_GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;
const BLOCK_DURATION: u32 = 0x9b;
const REFERENCE_BLOCK: u32 = 0xfb;

#[cfg(test)]
mod tests;
