// SPDX-License-Identifier: MIT OR Apache-2.0
//! Due time of a presentation: the chapters in which packets are laid out, and the places where
//! play can start.
//!
//! Costs a binary search in the sample table for each look-up.
//!
//! Sources: ISO/IEC 14496-12 §8.6 (sample times).
//! Does not lay packets out.

use std::ops::Range;

use super::{
    CHAPTER_TICKS, Entry, MediaSample, PAYLOAD_BYTES_MAX, Presentation, Track, TrackMedia, scaled,
};
use crate::TICKS_PER_SECOND;

impl Presentation {
    /// Chapters of the presentation: seconds of due time. The packets of a chapter are laid out at
    /// once.
    pub fn chapters(&self) -> u32 {
        // The duration is at most twice 2³¹ s.
        self.duration_ticks.div_ceil(CHAPTER_TICKS).min(u64::from(u32::MAX)) as u32
    }

    /// Due time of the last sample of a track. Later samples of a recording are due later; they may
    /// overlap the end of this one.
    pub fn last_due_ticks(&self, track: &Track) -> u64 {
        (track.decode_ticks(track.samples.last_decode()) - self.due_origin).max(0) as u64
    }

    /// Returns the due time before which a longer presentation of the same recording has no other
    /// samples of the tracks that are not silent (by number), a multiple of a chapter.
    pub(crate) fn settled_ticks(&self, is_silent: impl Fn(u32) -> bool) -> u64 {
        let heard = self.tracks.iter().filter(|track| !is_silent(track.id));
        let settled = heard.map(|track| self.last_due_ticks(track)).min().unwrap_or(0);
        settled / CHAPTER_TICKS * CHAPTER_TICKS
    }

    /// Returns the chapter that contains `ticks` of due time.
    pub fn chapter_at(&self, ticks: u64) -> u32 {
        (ticks / CHAPTER_TICKS).min(u64::from(self.chapters() - 1)) as u32
    }

    /// Numbers of a track's samples that are due in `chapter`; none past the end.
    pub fn chapter_samples(&self, track: usize, chapter: u32) -> Range<usize> {
        let track = &self.tracks[track];
        let first = |chapter: u32| self.first_due(track, u64::from(chapter) * CHAPTER_TICKS);
        let end = match chapter + 1 >= self.chapters() {
            true => track.samples.len(),
            false => first(chapter + 1),
        };
        first(chapter).min(end)..end
    }

    /// Returns the next chapter after `chapter` in which a sample of a track is due; `None` at the
    /// end.
    pub fn following_chapter(&self, track: usize, chapter: u32) -> Option<u32> {
        let track = &self.tracks[track];
        let next = self.first_due(track, (u64::from(chapter) + 1) * CHAPTER_TICKS);
        let sample = (next < track.samples.len()).then(|| track.samples.sample(next))?;
        // The last chapter holds all that is left.
        Some(self.chapter_at(self.due_ticks(track, &sample))).filter(|&found| found > chapter)
    }

    /// Due time of a sample of a track.
    pub fn due_ticks(&self, track: &Track, sample: &MediaSample) -> u64 {
        (track.decode_ticks(sample.decode) - self.due_origin).max(0) as u64
    }

    /// Due time of presentation time `ticks` if samples are presented when they are decoded: the
    /// time from which tracks other than that of pictures begin.
    pub fn due_of_presented(&self, ticks: i64) -> u64 {
        (ticks - self.due_origin).max(0) as u64
    }

    /// Presentation time after all samples that are due before `ticks`; with reordered pictures,
    /// later ones may be among those.
    pub fn presented_behind(&self, ticks: u64) -> i64 {
        let reordered = self.tracks.iter().map(|track| {
            scaled(track.samples.offset_max().into(), TICKS_PER_SECOND, track.samples.timescale())
        });
        self.presented_of_due(ticks).saturating_add(reordered.max().unwrap_or(0).max(0))
    }

    /// Number of the first sample of a track that is due at `ticks` or later.
    pub fn first_due(&self, track: &Track, ticks: u64) -> usize {
        track.samples.partition_point(|decode| {
            let due = track.decode_ticks(decode) - self.due_origin;
            due < ticks as i64
        })
    }

    /// Time by which the first sample of a track is presented before the title's start: sound that
    /// prepares a decoder.
    pub fn priming_ticks(&self) -> u64 {
        let first = |track: &Track| track.presented_ticks(&track.samples.sample(0));
        let earliest = self.tracks.iter().map(first).min().unwrap_or(0);
        earliest.min(0).unsigned_abs()
    }

    /// Returns the place at which play starts to show `presented_ticks`: the due time of the last
    /// random-access point of the pictures that is presented then or before, and its presentation
    /// time. Without pictures any sample is such a point.
    pub fn entry(&self, presented_ticks: u64) -> Entry {
        let track = self.leading_track();
        let wanted = i64::try_from(presented_ticks).unwrap_or(i64::MAX);
        let found = track.samples.last_start(|sample| track.presented_ticks(sample) <= wanted);
        let sample = track.samples.sample(found.unwrap_or(0));
        let due = self.due_ticks(track, &sample);
        let presented = track.presented_ticks(&sample).max(0) as u64;
        match presented_ticks {
            // The title's start is the start of every track.
            0 => Entry { due_ticks: 0, presented_ticks: 0 },
            _ => Entry { due_ticks: due, presented_ticks: presented },
        }
    }

    /// The first random-access point of the pictures due at `ticks` or later; none before the end.
    pub fn entry_from(&self, ticks: u64) -> Option<Entry> {
        let track = self.leading_track();
        let first = self.first_due(track, ticks);
        let sample = track.samples.sample(track.samples.start_from(first)?);
        let presented_ticks = track.presented_ticks(&sample).max(0) as u64;
        Some(Entry { due_ticks: self.due_ticks(track, &sample), presented_ticks })
    }

    /// Number of random-access points.
    pub fn entries(&self) -> usize {
        self.leading_track().samples.starts()
    }

    /// Returns the track whose random-access points are those of the presentation: the first of
    /// pictures, else the first.
    pub fn leading_track(&self) -> &Track {
        &self.tracks[self.leading_index()]
    }

    /// The index of that track.
    pub fn leading_index(&self) -> usize {
        let is_video = |track: &Track| track.codec.media() == TrackMedia::Video;
        self.tracks.iter().position(is_video).unwrap_or(0)
    }

    /// About how many packets of a track are due in a range of time, by the bytes of its samples.
    pub fn packets_between(&self, track: usize, due: Range<u64>) -> u64 {
        let track = &self.tracks[track];
        let numbers = self.first_due(track, due.start)..self.first_due(track, due.end);
        let packets = |sample: MediaSample| sample.bytes.div_ceil(PAYLOAD_BYTES_MAX as u32).max(1);
        track.samples.samples(numbers).map(|sample| u64::from(packets(sample))).sum()
    }

    /// The presentation time of a due time, for a sample that is presented when it is decoded.
    pub fn presented_of_due(&self, ticks: u64) -> i64 {
        i64::try_from(ticks).unwrap_or(i64::MAX).saturating_add(self.due_origin)
    }
}
