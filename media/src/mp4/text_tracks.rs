// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks of text in an ISO base media file: their list, and the samples of one.
//!
//! They are not part of the file's presentation. The list costs the reads of `moov`'s boxes; the
//! samples cost those of the tables of one track, or of all tracks of TTML, and of all fragments if
//! the file has some.
//!
//! Sources: ISO/IEC 14496-30 (`wvtt`, `stpp`), 3GPP TS 26.245 (`tx3g`).
//! Does not read texts.

use super::Mp4Demuxer;
use super::boxes::with_input;
use super::movie::{Collected, TextSamples};
use crate::text::{FoundTtmlTracks, TextTrack};
use crate::{DemuxError, ReadAt};

/// Samples that are read at a time.
const STEP_SAMPLES: usize = 1 << 16;

/// The tracks of text.
pub(crate) fn text_tracks(
    file: &(impl ReadAt + ?Sized),
    file_bytes: u64,
) -> Result<Vec<TextTrack>, DemuxError> {
    // No track has the number 0 (ISO/IEC 14496-12 §8.3.2.3).
    let mut demuxer = Mp4Demuxer::collecting(Collected::Text(0), file_bytes);
    with_input(file, file_bytes, |input| {
        while demuxer.movie.is_none() {
            demuxer.next_box(input)?;
        }
        Ok(())
    })
    .map(|()| demuxer.movie.map_or_else(Vec::new, |movie| movie.text_tracks()))
}

/// The tracks of TTML.
pub(crate) fn ttml_tracks(
    file: &(impl ReadAt + ?Sized),
    file_bytes: u64,
) -> Result<FoundTtmlTracks, DemuxError> {
    let mut demuxer = Mp4Demuxer::collecting(Collected::Ttml, file_bytes);
    while !demuxer.advance(file, STEP_SAMPLES)? {}
    Ok(demuxer.movie.map_or_else(Vec::new, |movie| movie.finish_ttml()))
}

/// Returns the samples of a text track with cues, or the reason for having none; `None` if there is
/// no such track.
pub(crate) fn text_samples(
    file: &(impl ReadAt + ?Sized),
    file_bytes: u64,
    id: u32,
) -> Result<Option<Result<TextSamples, String>>, DemuxError> {
    let mut demuxer = Mp4Demuxer::collecting(Collected::Text(id), file_bytes);
    while !demuxer.advance(file, STEP_SAMPLES)? {}
    Ok(demuxer.movie.and_then(|movie| movie.finish_text(id)))
}
