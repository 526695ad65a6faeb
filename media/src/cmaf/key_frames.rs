// SPDX-License-Identifier: MIT OR Apache-2.0
//! Key frames as segments of one sample, for players that show pictures while the viewer scrubs.
//!
//! Sources: RFC 8216 §4.3.3.6 (EXT-X-I-FRAMES-ONLY).
//! Does not decode: the file's marks of key frames are trusted.

use std::io;
use std::ops::Range;

use super::movie_fragment::{CopiedSegment, ReadSamples, SegmentParts, copied_segment, segment};
use super::{TrackSegments, cuts};
use crate::TICKS_PER_SECOND;
use crate::tracks::{Presentation, TrackMedia};

/// Least distance of the key frames in the list.
const APART_TICKS: i64 = TICKS_PER_SECOND as i64;

/// Key frames of a list at most, nine hours; a file that has more has no list.
const KEY_FRAMES_MAX: usize = 1 << 15;

/// A key frame in a playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyFrame {
    /// Time until the next in the list, in ticks.
    pub ticks: u64,
    /// Bytes of its segment.
    pub bytes: u64,
    /// Number of its sample.
    sample: u32,
}

impl TrackSegments {
    /// Index of the track of pictures in the presentation.
    pub fn pictures(&self, presentation: &Presentation) -> Option<usize> {
        let leading = self.cuts.leading;
        let is_video = presentation.tracks()[leading].codec.media() == TrackMedia::Video;
        is_video.then_some(leading)
    }

    /// Lists the key frames, at least a second apart; `None` for a file without pictures.
    pub(super) fn find_key_frames(&self, presentation: &Presentation) -> Vec<KeyFrame> {
        let Some(index) = self.pictures(presentation) else { return Vec::new() };
        let track = &presentation.tracks()[index];
        let mut found: Vec<(u32, i64)> = Vec::new();
        for (sample, number) in track.samples.samples(0..track.samples.len()).zip(0..) {
            let at = track.presented_ticks(&sample);
            if sample.is_start && found.last().is_none_or(|&(_, last)| at - last >= APART_TICKS) {
                found.push((number, at));
                if found.len() > KEY_FRAMES_MAX {
                    return Vec::new();
                }
            }
        }
        let ends = found.iter().skip(1).map(|&(_, at)| at).chain([cuts::presented_end(track)]);
        let key_frame = |(&(sample, at), end): (&(u32, i64), i64)| {
            let samples = sample as usize..sample as usize + 1;
            let bytes = segment(self, presentation, &[(index, samples)], 1).bytes();
            KeyFrame { ticks: u64::try_from(end - at).unwrap_or(0), bytes, sample }
        };
        found.iter().zip(ends).map(key_frame).collect()
    }

    /// Returns the key frames, in order; `None` if samples are copied.
    pub fn key_frames(&self) -> &[KeyFrame] {
        &self.key_frames
    }

    /// The segment of a key frame, ready to send; none past the last.
    pub fn key_frame_parts(
        &self,
        presentation: &Presentation,
        number: usize,
    ) -> Option<SegmentParts> {
        let samples = self.key_frame_samples(presentation, number)?;
        Some(segment(self, presentation, &[samples], number as u32 + 1))
    }

    /// Returns the key frames, copied by `read`.
    ///
    /// # Errors
    /// As of [`super::Rendition::copied`].
    pub fn copied_key_frame(
        &self,
        presentation: &Presentation,
        number: usize,
        is_protected: bool,
        read: &mut ReadSamples<'_>,
    ) -> io::Result<Option<CopiedSegment>> {
        let Some(samples) = self.key_frame_samples(presentation, number) else { return Ok(None) };
        let tracks = (vec![samples], number as u32 + 1);
        copied_segment(self, presentation, tracks, is_protected, read).map(Some)
    }

    fn key_frame_samples(
        &self,
        presentation: &Presentation,
        number: usize,
    ) -> Option<(usize, Range<usize>)> {
        let sample = self.key_frames.get(number)?.sample as usize;
        Some((self.pictures(presentation)?, sample..sample + 1))
    }
}
