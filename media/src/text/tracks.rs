// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text tracks of MP4 and Matroska files: their list, and the cues of one.
//!
//! They are not part of a file's plan: they are searched for in the file on request. Costs of a
//! list: some reads of the file's header. Costs of the cues: those of finding the samples (the
//! tables of one track of MP4, the headers of all blocks of Matroska) and a read for each text.
//!
//! Sources: those of [`super::track_samples`].
//! Does not decompress blocks (ContentEncodings).

use super::track::{TextCoding, TextTrack};
use super::track_samples::Joined;
use super::{CUE_BYTES_MAX, CueList, FoundTtmlTracks, TEXT_BYTES_MAX, TextFault};
use crate::mkv::{self, is_mkv};
use crate::mp4::{self, is_mp4};
use crate::{DemuxError, ReadAt, TICKS_PER_SECOND};

/// Text tracks of a file that are listed: films have some thirty languages.
const TRACKS_LISTED_MAX: usize = 64;

/// Bytes that identify the kind of a file.
const BEGINNING_BYTES: u64 = 8;

/// Reason for the absence of cues of a track.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoCues {
    /// The file is broken, or cannot be read.
    #[error("{0}")]
    File(#[from] DemuxError),
    /// The texts are too many.
    #[error("{0}")]
    Text(#[from] TextFault),
    /// The track cannot be read, or has no samples.
    #[error("{0}")]
    Track(String),
    /// The file has no such track.
    #[error("no track of text of this number")]
    NoTrack,
}

/// Returns the text tracks of a file, the first 64; none for a file of another kind.
///
/// # Errors
/// The file is broken, or cannot be read.
pub fn text_tracks(
    file: &(impl ReadAt + ?Sized),
    file_bytes: u64,
) -> Result<Vec<TextTrack>, DemuxError> {
    let mut tracks = match FileKind::of(file, file_bytes)? {
        Some(FileKind::Mp4) => mp4::text_tracks(file, file_bytes)?,
        Some(FileKind::Matroska) => mkv::text_tracks(file, file_bytes)?,
        None => Vec::new(),
    };
    tracks.truncate(TRACKS_LISTED_MAX);
    Ok(tracks)
}

/// The tracks of TTML of a file.
///
/// # Errors
/// The file is broken, or cannot be read.
pub fn ttml_tracks(
    file: &(impl ReadAt + ?Sized),
    file_bytes: u64,
) -> Result<FoundTtmlTracks, DemuxError> {
    match FileKind::of(file, file_bytes)? {
        Some(FileKind::Mp4) => mp4::ttml_tracks(file, file_bytes),
        Some(FileKind::Matroska) | None => Ok(Vec::new()),
    }
}

/// The cues of a text track of a file whose time `origin_ticks` is the title's start
/// ([`crate::Presentation::file_origin_ticks`]).
///
/// # Errors
/// The file has no such track with cues, the texts are too many, or the file cannot be read.
pub fn text_cues(
    file: &(impl ReadAt + ?Sized),
    file_bytes: u64,
    id: u32,
    origin_ticks: u64,
) -> Result<CueList, NoCues> {
    let origin_ms = origin_ticks / (TICKS_PER_SECOND / 1000);
    let mut texts = Texts { file, bytes: 0, origin_ms, joined: Joined::default() };
    match FileKind::of(file, file_bytes)? {
        Some(FileKind::Mp4) => {
            let Some(found) = mp4::text_samples(file, file_bytes, id)? else {
                return Err(NoCues::NoTrack);
            };
            let found = found.map_err(NoCues::Track)?;
            let timescale = i128::from(found.samples.timescale());
            let ms = |units: i128| u64::try_from(units * 1000 / timescale).unwrap_or(0);
            for sample in found.samples.samples(0..found.samples.len()) {
                let start =
                    i128::from(sample.decode) + i128::from(sample.offset) + i128::from(found.shift);
                let times = (ms(start), ms(start + i128::from(sample.duration)));
                texts.push(found.coding, (sample.file_offset, sample.bytes), times)?;
            }
        }
        Some(FileKind::Matroska) => {
            let Some((coding, blocks)) = mkv::text_blocks(file, file_bytes, id)? else {
                return Err(NoCues::NoTrack);
            };
            for block in blocks {
                let place = (block.file_offset, block.bytes);
                texts.push(coding, place, (block.start_ms, block.end_ms))?;
            }
        }
        None => return Err(NoCues::NoTrack),
    }
    Ok(texts.joined.finish()?)
}

enum FileKind {
    Mp4,
    Matroska,
}

impl FileKind {
    fn of(file: &(impl ReadAt + ?Sized), file_bytes: u64) -> Result<Option<FileKind>, DemuxError> {
        let mut beginning = vec![0; file_bytes.min(BEGINNING_BYTES) as usize];
        file.read_exact_at(&mut beginning, 0)?;
        Ok(match &beginning[..] {
            bytes if is_mp4(bytes) => Some(FileKind::Mp4),
            bytes if is_mkv(bytes) => Some(FileKind::Matroska),
            _ => None,
        })
    }
}

/// Texts of a track, collected while they are read.
struct Texts<'a, F: ?Sized> {
    file: &'a F,
    bytes: usize,
    origin_ms: u64,
    joined: Joined,
}

impl<F: ReadAt + ?Sized> Texts<'_, F> {
    fn push(
        &mut self,
        coding: TextCoding,
        (file_offset, bytes): (u64, u32),
        (start_ms, end_ms): (u64, u64),
    ) -> Result<(), NoCues> {
        // Longer texts are not meant to be read on a screen.
        let mut sample = vec![0; bytes.min(CUE_BYTES_MAX as u32) as usize];
        self.bytes += sample.len();
        if self.bytes > TEXT_BYTES_MAX {
            let (bytes, limit) = (self.bytes as u64, TEXT_BYTES_MAX as u64);
            return Err(TextFault::TooLarge { bytes, limit }.into());
        }
        self.file.read_exact_at(&mut sample, file_offset).map_err(DemuxError::from)?;
        let moved = |ms: u64| ms.saturating_sub(self.origin_ms);
        Ok(self.joined.push((moved(start_ms), moved(end_ms)), coding.texts(&sample))?)
    }
}
