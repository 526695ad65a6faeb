// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rendition: the tracks of one playlist, and its segments.
//!
//! Sources: RFC 8216 §4.3.2.1 (EXTINF), §4.3.4.2 (BANDWIDTH);
//! ISO/IEC 23009-1 §5.3.9.6 (SegmentTimeline).
//! Does not write playlists.

use std::io;
use std::ops::Range;

use super::movie_fragment::{
    CopiedSegment, ReadSamples, SEGMENT_BYTES_MAX, SEGMENT_SAMPLES_MAX, SegmentParts,
    copied_segment, segment, without_pause,
};
use super::{NoSegments, TrackSegments, cuts};
use crate::TICKS_PER_SECOND;
use crate::tracks::{MediaSample, Presentation, Track, scaled};

const TICKS: u32 = TICKS_PER_SECOND as u32;

/// Ranges of a segment in the mean, and their mean length, from which on it is better copied: a
/// `sendfile` over loopback costs as much as a copy of 8 KB.
const RANGES_MAX: u64 = 4;
const RANGE_BYTES_MIN: u64 = 8 << 10;

/// Time without media in a recording that is no part of a segment.
const GAP_TICKS: i64 = TICKS_PER_SECOND as i64;

/// Approximate bytes of boxes per sample.
const SAMPLE_BOXES_BYTES: u64 = 16;

/// A segment in a playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenditionSegment {
    /// Start on the timeline of presentation, in ticks.
    pub start: i64,
    /// Duration in ticks.
    pub ticks: u64,
    /// Bytes; 0 where a recording has no media of the tracks.
    pub bytes: u64,
    /// True if play can start with it.
    pub is_independent: bool,
}

/// Returns the bit rate per second of this many bytes in this many ticks.
pub fn bits_per_second(bytes: u64, ticks: u64) -> u64 {
    let bits = u128::from(bytes) * 8 * u128::from(TICKS_PER_SECOND);
    u64::try_from(bits / u128::from(ticks.max(1))).unwrap_or(u64::MAX)
}

/// Peak and mean bit rate of segments with these bytes and ticks: the highest rate of one segment,
/// and the rate of all.
pub fn peak_and_mean(segments: impl Iterator<Item = (u64, u64)>) -> (u64, u64) {
    let (mut all_bytes, mut all_ticks, mut peak) = (0, 0, 0);
    for (bytes, ticks) in segments {
        all_bytes += bytes;
        all_ticks += ticks;
        // A rest at the end is short, and no rate of the file.
        if ticks >= TICKS_PER_SECOND {
            peak = bits_per_second(bytes, ticks).max(peak);
        }
    }
    let mean = bits_per_second(all_bytes, all_ticks);
    (peak.max(mean), mean)
}

/// Tracks that are sent together, and their segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendition {
    tracks: Vec<usize>,
    /// Number of the first cut of each segment, and the number of cuts at the end.
    cuts: Vec<u32>,
    segments: Vec<RenditionSegment>,
    /// True if segments consist of many small ranges of the file.
    is_scattered: bool,
}

/// A segment in a timeline of MPEG-DASH, in units of the first track's time scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentTimes {
    /// Number of the segment.
    pub number: usize,
    /// Time of presentation, moved by [`TrackSegments::origin_s`].
    pub start: u64,
    /// Time until the next segment, or until a gap.
    pub duration: u64,
}

impl Rendition {
    /// Cuts these tracks; of a recording so many segments of a shorter one are `known`.
    ///
    /// # Errors
    /// A segment would be too large.
    pub(super) fn of(
        presentation: &Presentation,
        plan: &TrackSegments,
        tracks: Vec<usize>,
        known: Option<(&Rendition, usize)>,
    ) -> Result<Rendition, NoSegments> {
        let id = presentation.tracks()[tracks[0]].id;
        let has_samples = |cut: usize| {
            let cuts = cut..cut + 1;
            tracks.iter().any(|&track| !plan.cuts.samples(presentation, track, &cuts).is_empty())
        };
        // A cut at which the rendition has no sample extends the previous segment, unless that one
        // may be in a playlist already.
        let is_cut = |&cut: &usize| plan.is_recording() || has_samples(cut);
        let mut cuts: Vec<u32> =
            (0..plan.cuts.len()).filter(is_cut).map(|cut| cut as u32).collect();
        cuts.push(plan.cuts.len() as u32);
        let mut rendition = Rendition { tracks, cuts, segments: Vec::new(), is_scattered: false };
        let first = known.map_or(0, |(_, count)| count);
        for number in first..rendition.cuts.len() - 1 {
            let tracks = rendition.samples(presentation, plan, number).unwrap_or_default();
            let samples: usize = tracks.iter().map(|(_, samples)| samples.len()).sum();
            if samples > SEGMENT_SAMPLES_MAX {
                return Err(NoSegments::TooManySamples { track: id, number, samples });
            }
        }
        let mut all_ranges = 0;
        let segments = (first..rendition.cuts.len() - 1).map(|number| {
            let (bytes, ranges) = rendition.size(presentation, plan, number);
            all_ranges += ranges;
            let (start, end) = match plan.is_recording() {
                true => rendition.recorded_times(presentation, plan, number),
                false => rendition.times(presentation, plan, number),
            };
            RenditionSegment {
                start,
                ticks: u64::try_from(end - start).unwrap_or(0),
                bytes,
                is_independent: !rendition.has_leading(plan)
                    || plan.cuts.is_independent(rendition.cuts[number] as usize),
            }
        });
        let new: Vec<RenditionSegment> = segments.collect();
        rendition.is_scattered = match known {
            Some((known, _)) => known.is_scattered,
            None => is_scattered(&new, all_ranges),
        };
        let known = known.map_or(&[][..], |(known, count)| &known.segments[..count]);
        rendition.segments = [known, &new].concat();
        let too_large = new.iter().find(|one| one.bytes > SEGMENT_BYTES_MAX);
        match too_large {
            None => Ok(rendition),
            Some(&RenditionSegment { start, ticks, bytes, .. }) => {
                let seconds = |ticks: i64| ticks.div_euclid(i64::from(TICKS));
                let end = start.saturating_add_unsigned(ticks);
                let (from_s, to_s) = (seconds(start), seconds(end));
                Err(NoSegments::TooManyBytes { track: id, from_s, to_s, bytes })
            }
        }
    }

    /// Its tracks, by their index in the presentation.
    pub fn tracks(&self) -> &[usize] {
        &self.tracks
    }

    /// Its segments.
    pub fn segments(&self) -> &[RenditionSegment] {
        &self.segments
    }

    /// True if play can start with every segment.
    pub fn is_independent(&self) -> bool {
        self.segments.iter().all(|segment| segment.is_independent)
    }

    /// Peak and mean bit rate of its segments.
    pub fn bits_per_second(&self) -> (u64, u64) {
        peak_and_mean(self.segments.iter().map(|segment| (segment.bytes, segment.ticks)))
    }

    /// Longest duration of a segment, in whole seconds as a playlist rounds it; at least 1.
    pub(super) fn target_s(&self) -> u64 {
        let rounded = |ticks: u64| (ticks + TICKS_PER_SECOND / 2) / TICKS_PER_SECOND;
        self.segments.iter().map(|segment| rounded(segment.ticks)).max().unwrap_or(0).max(1)
    }

    /// A segment, ready to send; none past the last.
    pub fn parts(
        &self,
        presentation: &Presentation,
        plan: &TrackSegments,
        number: usize,
    ) -> Option<SegmentParts> {
        let samples = self.samples(presentation, plan, number)?;
        Some(segment(plan, presentation, &samples, number as u32 + 1))
    }

    /// Returns a segment whose samples are copied by `read`: samples that are not stored in the
    /// form of segments, or that are to be encrypted. `None` after the last segment.
    ///
    /// # Errors
    /// Errors of `read`; a sample that cannot be encrypted.
    pub fn copied(
        &self,
        presentation: &Presentation,
        plan: &TrackSegments,
        number: usize,
        is_protected: bool,
        read: &mut ReadSamples<'_>,
    ) -> io::Result<Option<CopiedSegment>> {
        let Some(tracks) = self.samples(presentation, plan, number) else { return Ok(None) };
        let tracks = (tracks, number as u32 + 1);
        copied_segment(plan, presentation, tracks, is_protected, read).map(Some)
    }

    /// The tracks, with the numbers of their samples in a segment; none past the last.
    pub(super) fn samples(
        &self,
        presentation: &Presentation,
        plan: &TrackSegments,
        number: usize,
    ) -> Option<Vec<(usize, Range<usize>)>> {
        let cuts = *self.cuts.get(number)? as usize..*self.cuts.get(number + 1)? as usize;
        let samples = |&track: &usize| (track, plan.cuts.samples(presentation, track, &cuts));
        let samples: Vec<_> = self.tracks.iter().map(samples).collect();
        // A recording has segments without any.
        samples.iter().any(|(_, numbers)| !numbers.is_empty()).then_some(samples)
    }

    /// Bytes of a segment, an estimate if they are copied, and its ranges of the file.
    fn size(&self, presentation: &Presentation, plan: &TrackSegments, number: usize) -> (u64, u64) {
        if !plan.is_copied {
            let parts = self.parts(presentation, plan, number);
            return parts.map_or((0, 0), |parts| (parts.bytes(), parts.ranges.len() as u64));
        }
        let tracks = self.samples(presentation, plan, number).unwrap_or_default();
        let bytes = tracks.into_iter().map(|(index, numbers)| {
            let samples = presentation.tracks()[index].samples.samples(numbers);
            samples.map(|sample| SAMPLE_BOXES_BYTES + u64::from(sample.bytes)).sum::<u64>()
        });
        (bytes.sum(), 0)
    }

    /// True if segments consist of many small ranges of the file, as does sound between pictures: a
    /// system call for each costs more than a copy of all, made once.
    pub fn is_scattered(&self) -> bool {
        self.is_scattered
    }

    /// Returns the times of some segments of a recording, those without media left out. Times of
    /// the other segments have no influence on them.
    pub fn recorded_timeline(
        &self,
        presentation: &Presentation,
        plan: &TrackSegments,
        numbers: Range<usize>,
    ) -> Vec<SegmentTimes> {
        let track = &presentation.tracks()[self.tracks[0]];
        let timescale = track.samples.timescale();
        let origin = i64::try_from(plan.origin_s * u64::from(timescale)).unwrap_or(i64::MAX);
        let moved = |units: i64| u64::try_from(units.saturating_add(origin)).unwrap_or(0);
        let of_segment = |number: usize| {
            let samples = self.samples(presentation, plan, number)?.swap_remove(0).1;
            let first = track.samples.samples(samples.clone()).next()?;
            let end = recorded_end(track, samples);
            Some((number, moved(track.presented(&first)), moved(end)))
        };
        let found: Vec<_> = numbers.filter_map(of_segment).collect();
        let next = found.iter().skip(1).map(Some).chain([None]);
        let times = found.iter().zip(next).map(|(&(number, start, end), next)| {
            // Reordered pictures may be shown behind the first one of the next segment.
            let until = next.map(|&(_, next, _)| next);
            let is_near = |next: &u64| next.abs_diff(end) < u64::from(timescale);
            let end = until.filter(is_near).unwrap_or(end);
            SegmentTimes { number, start, duration: end.saturating_sub(start) }
        });
        times.collect()
    }

    /// Start and duration of each segment for an MPEG-DASH timeline: time of presentation, moved by
    /// [`TrackSegments::origin_s`], in units of the first track's time scale.
    pub fn timeline(&self, presentation: &Presentation, plan: &TrackSegments) -> Vec<(u64, u64)> {
        let track = &presentation.tracks()[self.tracks[0]];
        let timescale = track.samples.timescale();
        let origin = i64::try_from(plan.origin_s * u64::from(timescale)).unwrap_or(i64::MAX);
        let moved = |units: i64| u64::try_from(units.saturating_add(origin)).unwrap_or(0);
        let start = |number: usize| {
            let cuts = self.cuts[number] as usize..self.cuts[number + 1] as usize;
            let samples = plan.cuts.samples(presentation, self.tracks[0], &cuts);
            match samples.is_empty() {
                // Sound sent together with the pictures may last longer than these.
                true => scaled(self.segments[number].start, timescale.into(), TICKS),
                false => track.presented(&track.samples.sample(samples.start)),
            }
        };
        let mut starts: Vec<u64> = (0..self.segments.len()).map(|at| moved(start(at))).collect();
        starts.push(moved(scaled(self.end(presentation), timescale.into(), TICKS)));
        starts.windows(2).map(|pair| (pair[0], pair[1].saturating_sub(pair[0]))).collect()
    }

    /// True if the leading track, which determines the cuts, is among its tracks.
    fn has_leading(&self, plan: &TrackSegments) -> bool {
        self.tracks.contains(&plan.cuts.leading)
    }

    /// Start and end of a segment, in ticks of presentation.
    fn times(
        &self,
        presentation: &Presentation,
        plan: &TrackSegments,
        number: usize,
    ) -> (i64, i64) {
        let cut = |at: usize| self.cuts[at] as usize;
        let is_last = number + 2 == self.cuts.len();
        if self.has_leading(plan) {
            let end =
                if is_last { self.end(presentation) } else { plan.cuts.start(cut(number + 1)) };
            return (plan.cuts.start(cut(number)), end);
        }
        // Sound lasts as long as its samples, independently of the pictures.
        let index = self.tracks[0];
        let track = &presentation.tracks()[index];
        let first = |at: usize| {
            let samples = plan.cuts.samples(presentation, index, &(cut(at)..cut(at + 1)));
            cuts::media_ticks(track, track.samples.sample(samples.start).decode)
        };
        (first(number), if is_last { self.end(presentation) } else { first(number + 1) })
    }

    /// Start and end of a segment of a recording, in ticks of presentation: of its media, where no
    /// other follow closely.
    fn recorded_times(
        &self,
        presentation: &Presentation,
        plan: &TrackSegments,
        number: usize,
    ) -> (i64, i64) {
        let start = plan.cuts.start(number);
        let is_last = number + 2 == self.cuts.len();
        let end = if is_last { self.end(presentation) } else { plan.cuts.start(number + 1) };
        let Some(tracks) = self.samples(presentation, plan, number) else { return (start, end) };
        let ends = tracks.into_iter().filter(|(_, samples)| !samples.is_empty());
        let ends = ends.map(|(index, samples)| {
            let track = &presentation.tracks()[index];
            scaled(recorded_end(track, samples), TICKS_PER_SECOND, track.samples.timescale())
        });
        let media_end = ends.max().unwrap_or(end);
        match end - media_end > GAP_TICKS {
            true => (start, media_end.max(start)),
            false => (start, end.max(start)),
        }
    }

    /// End of presentation of its tracks, in ticks.
    fn end(&self, presentation: &Presentation) -> i64 {
        let tracks = self.tracks.iter().map(|&track| &presentation.tracks()[track]);
        tracks.map(cuts::presented_end).max().unwrap_or(0)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Rendition>()
            + self.tracks.capacity() * size_of::<usize>()
            + self.cuts.capacity() * size_of::<u32>()
            + self.segments.capacity() * size_of::<RenditionSegment>()
    }
}

/// True if so many ranges of the file are many, and small.
fn is_scattered(segments: &[RenditionSegment], ranges: u64) -> bool {
    let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    ranges > segments.len() as u64 * RANGES_MAX && bytes < ranges * RANGE_BYTES_MIN
}

/// End of presentation of samples of a recording, in units of the track.
fn recorded_end(track: &Track, samples: Range<usize>) -> i64 {
    let mut samples: Vec<MediaSample> = track.samples.samples(samples).collect();
    without_pause(&mut samples);
    let end = |sample: &MediaSample| track.presented(sample) + i64::from(sample.duration);
    samples.iter().map(end).max().unwrap_or(0)
}
