// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times at which the tracks of a file are cut into segments.
//!
//! The pictures determine the cuts: a cut is made before a key frame, at the last one that keeps
//! the segment within the target duration as rounded in a playlist, else at the next one. If there
//! is none within [`KEY_FRAME_WAIT_S`], a cut is made at a picture that needs others before it: a
//! player that seeks there shows pictures only from the next key frame on, but continuous play is
//! unaffected. After the last picture, and in files of sound alone, a segment lasts the target
//! duration. All other tracks are cut at the sample that is decoded first from the same time on.
//!
//! Costs one pass over the samples of the pictures; 12 bytes a segment.
//!
//! Sources: RFC 8216 §3 (independent segments), §4.3.3.1 (rounding of durations).
//! Does not examine samples: the file's marks of key frames are trusted.

use std::ops::Range;

use crate::TICKS_PER_SECOND;
use crate::tracks::{Presentation, Track, TrackMedia, scaled};

/// Longest time without a key frame that becomes one long segment; players hold whole segments.
pub(super) const KEY_FRAME_WAIT_S: u64 = 60;

/// Most segments of a file: two days of six seconds each. A file with more is not cut.
pub(super) const CUTS_MAX: usize = 1 << 15;

/// The cuts of a file; at least one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cuts {
    /// Index of the track that decides.
    pub(super) leading: usize,
    /// Start of each segment on the presentation timeline, in ticks; the first start is that of the
    /// first sample of the leading track.
    starts: Vec<i64>,
    /// Number of the first sample of the leading track in each segment.
    samples: Vec<u32>,
    /// Segments that do not begin with a key frame, in order.
    dependent: Vec<u32>,
    /// End of presentation, in ticks.
    pub(super) end: i64,
    /// Number of the first sample of each track of the presentation, one segment after the other;
    /// only of a recording that is still written.
    firsts: Vec<u32>,
    /// Tracks of the presentation; 0 for a whole file.
    tracks: usize,
    /// Cuts that no longer recording changes; at least one there.
    pub(super) final_cuts: usize,
}

impl Cuts {
    /// Cuts a presentation by its track `leading`, into segments of `target_s` seconds; `first` is
    /// the time at which the first of all tracks begins. `None` if there are too many.
    pub(super) fn of(
        presentation: &Presentation,
        leading: usize,
        target_s: u64,
        first: i64,
    ) -> Option<Cuts> {
        let track = &presentation.tracks()[leading];
        let target = (target_s * TICKS_PER_SECOND) as i64;
        let mut cuts = Cuts {
            leading,
            starts: Vec::new(),
            samples: Vec::new(),
            dependent: Vec::new(),
            end: i64::try_from(presentation.presented_end_ticks()).unwrap_or(i64::MAX),
            firsts: Vec::new(),
            tracks: 0,
            final_cuts: 0,
        };
        if track.codec.media() == TrackMedia::Video {
            cuts.cut_at_key_frames(track, target);
            // Sound that lasts longer than the pictures is cut after their end.
            cuts.cut_sound(track, target, presented_end(track));
        } else {
            cuts.push(0, track.presented_ticks(&track.samples.sample(0)), true);
            cuts.cut_sound(track, target, i64::MIN);
        }
        cuts.cut_before(first, target);
        (cuts.starts.len() < CUTS_MAX).then_some(cuts)
    }

    /// Cuts media that begins long before the leading track every `target`.
    fn cut_before(&mut self, first: i64, target: i64) {
        let begin = self.starts[0];
        let count = usize::try_from((begin - first) / target).unwrap_or(0).min(CUTS_MAX);
        let before = (0..count as i64).map(|number| first + number * target);
        self.starts.splice(0..0, before);
        self.samples.splice(0..0, std::iter::repeat_n(0, count));
        self.dependent.iter_mut().for_each(|number| *number += count as u32);
    }

    /// Cuts every `target` from `from` on.
    fn cut_sound(&mut self, track: &Track, target: i64, from: i64) {
        let mut at = self.begin() + target;
        while at + target / 2 < self.end && self.starts.len() < CUTS_MAX {
            if at >= from {
                self.push(first_decoded(track, at), at, true);
            }
            at += target;
        }
    }

    /// Cuts before key frames of the pictures.
    fn cut_at_key_frames(&mut self, track: &Track, target: i64) {
        let longest = target + TICKS_PER_SECOND as i64 / 2;
        let wait = (KEY_FRAME_WAIT_S * TICKS_PER_SECOND) as i64;
        let samples = &track.samples;
        let first = samples.sample(0);
        self.push(0, track.presented_ticks(&first), first.is_start);
        // The last key frame within the longest segment.
        let mut last: Option<(usize, i64)> = None;
        let keys = samples.samples(1..samples.len()).zip(1..).filter(|(sample, _)| sample.is_start);
        let keys = keys.map(|(sample, number)| (Some(number), track.presented_ticks(&sample)));
        for (number, at) in keys.chain([(None, presented_end(track))]) {
            loop {
                let lasts = at.saturating_sub(self.begin());
                if lasts < longest || self.starts.len() == CUTS_MAX {
                    // No cut is made where times decrease.
                    last = number.map(|number| (number, at)).filter(|_| lasts > 0).or(last);
                    break;
                }
                match (last.take(), number) {
                    (Some((number, at)), _) => self.push(number, at, true),
                    (None, Some(number)) if lasts <= wait => self.push(number, at, true),
                    (None, None) if lasts <= wait => break,
                    (None, _) => self.cut_without_key_frames(track, target, at),
                }
            }
        }
    }

    /// Cuts every `target` until a segment that ends at `end` is short enough.
    fn cut_without_key_frames(&mut self, track: &Track, target: i64, end: i64) {
        let longest = target + TICKS_PER_SECOND as i64 / 2;
        while end - self.begin() >= longest && self.starts.len() < CUTS_MAX {
            let from = self.begin() + target;
            self.push(first_decoded(track, from), from, false);
        }
    }

    /// Begins the cuts of a recording with so many tracks.
    pub(super) fn begin_recording(first: i64, tracks: usize) -> Cuts {
        Cuts {
            leading: 0,
            starts: vec![first],
            samples: Vec::new(),
            dependent: Vec::new(),
            end: first,
            firsts: vec![0; tracks],
            tracks,
            final_cuts: 1,
        }
    }

    /// Returns the cuts that are final; tracks that have begun since have no sample before them.
    pub(super) fn only_final(&self, tracks: usize) -> Cuts {
        let count = self.final_cuts;
        let firsts = &self.firsts[..count * self.tracks];
        let firsts = match tracks == self.tracks {
            true => firsts.to_vec(),
            false => {
                let widened = |firsts: &[u32]| {
                    let firsts = firsts.iter().copied().chain(std::iter::repeat(0));
                    firsts.take(tracks).collect::<Vec<u32>>()
                };
                firsts.chunks(self.tracks).flat_map(widened).collect()
            }
        };
        let before = |cut: &&u32| **cut < count as u32;
        Cuts {
            leading: self.leading,
            starts: self.starts[..count].to_vec(),
            samples: Vec::new(),
            dependent: self.dependent.iter().take_while(before).copied().collect(),
            end: self.end,
            firsts,
            tracks,
            final_cuts: count,
        }
    }

    /// Adds a cut of a recording, with the first sample of each track behind it.
    pub(super) fn push_growing(
        &mut self,
        start: i64,
        firsts: impl Iterator<Item = u32>,
        is_independent: bool,
    ) {
        if !is_independent {
            self.dependent.push(self.starts.len() as u32);
        }
        self.starts.push(start);
        self.firsts.extend(firsts);
    }

    /// Numbers of the first samples in the last segment of a recording.
    pub(super) fn last_firsts(&self) -> Vec<u32> {
        self.firsts[self.firsts.len() - self.tracks..].to_vec()
    }

    pub(super) fn starts(&self) -> &[i64] {
        &self.starts
    }

    /// Start of the last segment.
    pub(super) fn begin(&self) -> i64 {
        self.starts[self.starts.len() - 1]
    }

    fn push(&mut self, sample: usize, start: i64, is_independent: bool) {
        if !is_independent {
            self.dependent.push(self.starts.len() as u32);
        }
        self.starts.push(start);
        self.samples.push(sample as u32);
    }

    /// Number of segments.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns the start of a segment, in presentation ticks; for the number after the last
    /// segment, the end.
    pub(super) fn start(&self, segment: usize) -> i64 {
        self.starts.get(segment).copied().unwrap_or(self.end)
    }

    /// True if play can start with a segment.
    pub(super) fn is_independent(&self, segment: usize) -> bool {
        self.dependent.binary_search(&(segment as u32)).is_err()
    }

    /// Samples of a track from one cut to another.
    pub(super) fn samples(
        &self,
        presentation: &Presentation,
        track: usize,
        segments: &Range<usize>,
    ) -> Range<usize> {
        let about = &presentation.tracks()[track];
        let first = |segment: usize| match segment {
            0 => 0,
            _ if segment >= self.len() => about.samples.len(),
            _ if self.tracks > 0 => self.firsts[segment * self.tracks + track] as usize,
            _ if track == self.leading => self.samples[segment] as usize,
            _ => first_decoded(about, self.starts[segment]),
        };
        first(segments.start)..first(segments.end).max(first(segments.start))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let numbers = self.samples.capacity() + self.dependent.capacity() + self.firsts.capacity();
        self.starts.capacity() * size_of::<i64>() + numbers * size_of::<u32>()
    }
}

/// Number of the first sample that is decoded at `ticks` of presentation or later.
pub(super) fn first_decoded(track: &Track, ticks: i64) -> usize {
    track.samples.partition_point(|decode| media_ticks(track, decode) < ticks)
}

/// A time of decoding on the timeline of presentation, in ticks.
pub(super) fn media_ticks(track: &Track, decode: u64) -> i64 {
    let decode = (decode as i64).saturating_add(track.shift);
    scaled(decode, TICKS_PER_SECOND, track.samples.timescale())
}

/// End of presentation of a track, in ticks.
pub(super) fn presented_end(track: &Track) -> i64 {
    let end = track.samples.presented_end().saturating_add(track.shift);
    scaled(end, TICKS_PER_SECOND, track.samples.timescale())
}
