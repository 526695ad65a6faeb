// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fragments of MP4 of a transport stream while it is recorded or sent: each stream separately, cut
//! where [`GrowingSegments`](crate::GrowingSegments) cuts the file.
//!
//! Each segment is demultiplexed by itself when it is added ([`RecordedStreams`]), to know its
//! times, and again when its fragment is made. Its times are those of its PES packets, moved to one
//! timeline, on which the recording begins at [`GrowingFragments::ORIGIN_S`]. Frames of sound
//! follow those of the segment before as long as their times agree within 20 ms, so that rounding
//! to 90 kHz makes neither gap nor overlap.
//!
//! A new period begins where the times of the source are discontinuous, where the source is late by
//! a second or more, and where a stream appears or has parameters that its initialization section
//! lacks. Pictures before the first key frame of a period are dropped, and sound that ends before
//! it.
//!
//! Each programme of a channel has fragments of its own, which continue the timeline; the oldest
//! are dropped.
//!
//! Costs a pass over the packets of each segment; 100 bytes a segment and 48 bytes a fragment.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.7 (times of 33 bits); ISO/IEC 14496-12 §8.8.
//! Does not write descriptions or store media.

use std::io;
use std::ops::Range;

use crate::cmaf::{CopiedSegment, fragment, init_section};
use crate::growing_segments::GrowingSegment;
use crate::plan::PacketPlaces;
use crate::tracks::{Codec, H264Config, H265Config, language_code, scaled};
use crate::ts::{PartContext, PartTrack, RecordedPart, RecordedStreams, apart, copy_elementary};
use crate::{ReadAt, TICKS_PER_TIMESTAMP};

/// Units of 90 kHz.
const SECOND: i64 = 90_000;

/// Times further from those expected begin a period.
const APART_MAX: i64 = SECOND;

/// Parts of a second by which sound may differ from that before: as within a segment.
const TOLERANCE_PER_SECOND: i64 = 50;

/// Approximate bytes of boxes per fragment, and per sample.
const BOXES_BYTES: u64 = 200;
const SAMPLE_BOXES_BYTES: u64 = 16;

/// The fragments of a recording so far.
#[derive(Debug)]
pub struct GrowingFragments {
    /// Number of the first segment that was added and is not forgotten.
    first: usize,
    contexts: Vec<PartContext>,
    /// The fragments of each stream.
    fragments: Vec<Vec<GrowingFragment>>,
    periods: Vec<FragmentPeriod>,
    /// First time of the segment added last, and its place on the timeline.
    last: Option<(u64, i64)>,
    /// End of the media before all of them, as [`FragmentPeriod::start`].
    begins_after: i64,
}

/// A fragment: a stream in a segment. Times are on the timeline, in units of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowingFragment {
    /// Number of the segment.
    pub segment: usize,
    /// Start of presentation; of pictures not before the end of the fragment before.
    pub start: u64,
    /// End of presentation.
    pub end: u64,
    /// About its bytes.
    pub bytes: u64,
    /// True if it begins with a sample that needs no other.
    pub is_independent: bool,
    /// Units added to the times of the demultiplexer.
    moved: i64,
    /// Samples dropped at the start of the segment.
    skipped: u32,
}

/// Segments with one timeline and the same parameters.
#[derive(Debug)]
pub struct FragmentPeriod {
    /// Number of the first segment.
    pub first: usize,
    /// Start, in units of 90 kHz from that of the recording.
    pub start: u64,
    /// By stream; `None` if it is not in the period.
    pub tracks: Vec<Option<PeriodTrack>>,
    /// Time of the first segment by [`GrowingSegment::start`], and by how much the source was late.
    segment_start: i64,
    late: i64,
}

/// A stream in a period.
#[derive(Debug)]
pub struct PeriodTrack {
    /// Format of its samples.
    pub codec: Codec,
    /// Language (ISO 639-2, three letters).
    pub language: Option<[u8; 3]>,
    /// Units of time a second.
    pub timescale: u32,
    /// Its initialization section.
    pub init: Vec<u8>,
}

/// A fragment, and the data from which its bytes are generated.
#[derive(Debug)]
pub struct FragmentSource {
    fragment: GrowingFragment,
    stream: usize,
    context: PartContext,
    codec: Codec,
}

impl GrowingFragments {
    /// Time of the recording's beginning on the timeline: nothing is decoded before zero.
    pub const ORIGIN_S: u64 = 10;

    /// Creates the fragments of this number of `streams`, with the number of the first segment.
    pub fn new(streams: usize, first: usize) -> GrowingFragments {
        let fragments = (0..streams).map(|_| Vec::new()).collect();
        GrowingFragments {
            first,
            contexts: Vec::new(),
            fragments,
            periods: Vec::new(),
            last: None,
            begins_after: 0,
        }
    }

    /// Creates the fragments of the next programme, which begins with the segment of number `first`
    /// and follows these on the timeline.
    pub fn followed_by(&self, streams: usize, first: usize) -> GrowingFragments {
        let begins_after = self.ended().unwrap_or(self.begins_after);
        GrowingFragments { begins_after, ..GrowingFragments::new(streams, first) }
    }

    /// Forgets the segments before this one.
    pub fn forget_before(&mut self, segment: usize) {
        let gone = segment.saturating_sub(self.first).min(self.contexts.len());
        self.contexts.drain(..gone);
        self.first += gone;
        for fragments in &mut self.fragments {
            let gone = fragments.partition_point(|one| one.segment < self.first);
            fragments.drain(..gone);
        }
        let begun = self.periods.partition_point(|period| period.first <= self.first);
        self.periods.drain(..begun.saturating_sub(1));
    }

    /// Number of the segment that is added next.
    pub fn next(&self) -> usize {
        self.first + self.contexts.len()
    }

    /// PIDs of the streams before that segment.
    pub fn pids(&self, streams: &RecordedStreams) -> Box<[u16]> {
        self.contexts.last().map_or_else(|| streams.pids(), |context| context.next_pids.clone())
    }

    /// Adds the next segment, in which `part` was found. `late` is the delay of the source against
    /// its own clock, in ticks.
    pub fn push(
        &mut self,
        streams: &RecordedStreams,
        part: RecordedPart,
        segment: &GrowingSegment,
        late: u64,
    ) {
        let number = self.next();
        let times = part.first_time.zip(leading_start(&part));
        if let Some((first_time, (begins, begins_with_key))) = times {
            let goes_on = self.last.map(|(before, base)| base + apart(first_time, before));
            let due = PartDue {
                begins: (segment.start / TICKS_PER_TIMESTAMP) as i64,
                late: (late / TICKS_PER_TIMESTAMP) as i64,
                is_break: segment.is_break,
            };
            let is_in_time = goes_on.is_some_and(|base| self.fits(base + begins, &due));
            let base = match goes_on.filter(|_| is_in_time) {
                Some(base) => base,
                None => origin(SECOND) + self.next_start(&due) - begins_with_key,
            };
            if !is_in_time || self.needs_period(streams, &part) {
                let start = base + begins_with_key - origin(SECOND);
                self.begin_period(streams, &part, &due, start);
            }
            self.last = Some((first_time, base));
            for (stream, track) in part.tracks.iter().enumerate() {
                if let Some(track) = track {
                    let is_video = streams.is_video(stream);
                    let found = self.fragment((stream, is_video), track, number, base);
                    self.fragments[stream].extend(found);
                }
            }
        }
        self.contexts.push(part.context);
    }

    /// True if the times continue those of the current period.
    fn fits(&self, begins: i64, due: &PartDue) -> bool {
        let Some(period) = self.periods.last() else { return false };
        let expected = origin(SECOND) + period.start as i64 + due.begins - period.segment_start;
        let is_late = due.late - period.late >= APART_MAX;
        !due.is_break && !is_late && (begins - expected).abs() <= APART_MAX
    }

    /// Returns the start of a period that begins with a segment: after all earlier media.
    fn next_start(&self, due: &PartDue) -> i64 {
        (due.begins + due.late).max(self.ended().unwrap_or(self.begins_after)).max(0)
    }

    /// End of the first stream so far; units of 90 kHz from the start of the recording.
    fn ended(&self) -> Option<i64> {
        let timescale = self.periods.last()?.tracks.first()?.as_ref()?.timescale;
        let last = self.fragments.first()?.last()?;
        Some(scaled(last.end as i64, SECOND as u64, timescale) - origin(SECOND))
    }

    /// True if the present period lacks a stream, or parameters of one.
    fn needs_period(&self, streams: &RecordedStreams, part: &RecordedPart) -> bool {
        let Some(period) = self.periods.last() else { return true };
        let mut tracks = part.tracks.iter().zip(&period.tracks).enumerate();
        tracks.any(|(stream, (found, known))| {
            let Some(found) = found.as_ref().filter(|found| found.codec.is_some()) else {
                return false;
            };
            match (found.codec.as_ref(), known) {
                (Some(codec), Some(known)) => !has_parameters(&known.codec, codec),
                _ => PeriodTrack::of(found, None, streams.language(stream)).is_some(),
            }
        })
    }

    fn begin_period(
        &mut self,
        streams: &RecordedStreams,
        part: &RecordedPart,
        due: &PartDue,
        start: i64,
    ) {
        let before = self.periods.last();
        let tracks = part.tracks.iter().enumerate().map(|(stream, found)| {
            let known = before.and_then(|before| before.tracks[stream].as_ref());
            let codec = known.map(|known| known.codec.clone());
            PeriodTrack::of(found.as_ref()?, codec, streams.language(stream))
        });
        let tracks = tracks.collect();
        self.periods.push(FragmentPeriod {
            first: self.first + self.contexts.len(),
            start: start.max(0) as u64,
            tracks,
            segment_start: due.begins,
            late: due.late,
        });
    }

    /// Returns the fragment of a stream in the segment being added, whose times begin at `base`.
    fn fragment(
        &self,
        (stream, is_video): (usize, bool),
        track: &PartTrack,
        segment: usize,
        base: i64,
    ) -> Option<GrowingFragment> {
        let period = self.periods.last()?;
        period.tracks[stream].as_ref()?;
        let begins_period = period.first == segment;
        let timescale = i64::from(track.timescale);
        let mut moved = scaled(base, timescale as u64, SECOND as u32) - track.origin();
        let first = track.samples[0].decode as i64 + moved;
        let before = self.fragments[stream].last().filter(|one| one.segment >= period.first);
        if let Some(ended) = before.map(|before| before.end as i64).filter(|_| !is_video) {
            let is_near = (first - ended).abs() <= timescale / TOLERANCE_PER_SECOND;
            // Sound of a stream whose times decrease is not played over earlier sound.
            moved += if is_near || first < ended { ended - first } else { 0 };
        }
        let period_start =
            origin(timescale) + scaled(period.start as i64, timescale as u64, SECOND as u32);
        let is_early = |sample: &crate::MediaSample| {
            sample.decode as i64 + i64::from(sample.duration) + moved <= period_start
        };
        let skipped = match (begins_period, is_video) {
            (false, _) => 0,
            (true, true) => track.led_by(),
            (true, false) => track.samples.iter().take_while(|sample| is_early(sample)).count(),
        };
        let (start, end) = track.presented(skipped..track.samples.len())?;
        let (start, end) = (start + moved, end + moved);
        // Announced segments do not change: pictures that overlap the segment before start at its
        // end.
        let start = match before.filter(|_| is_video) {
            Some(before) => start.max(before.end as i64),
            None => start,
        };
        let is_behind = end > start && before.is_none_or(|before| start > before.start as i64);
        let media = track.samples[skipped..].iter().map(|sample| u64::from(sample.bytes));
        let samples = (track.samples.len() - skipped) as u64;
        is_behind.then_some(GrowingFragment {
            segment,
            start: u64::try_from(start).ok()?,
            end: u64::try_from(end).ok()?,
            bytes: BOXES_BYTES + samples * SAMPLE_BOXES_BYTES + media.sum::<u64>(),
            is_independent: track.samples[skipped].is_start,
            moved,
            skipped: skipped as u32,
        })
    }

    /// The periods, at least one as soon as there is a fragment.
    pub fn periods(&self) -> &[FragmentPeriod] {
        &self.periods
    }

    /// The fragments of a stream in these segments of a period (its number).
    pub fn in_period(
        &self,
        stream: usize,
        period: usize,
        segments: Range<usize>,
    ) -> &[GrowingFragment] {
        let end = self.periods.get(period + 1).map_or(usize::MAX, |next| next.first);
        let own = segments.start.max(self.periods[period].first)..segments.end.min(end);
        let all = &self.fragments[stream];
        let at = |segment: usize| all.partition_point(|one| one.segment < segment);
        let (from, until) = (at(own.start), at(own.end));
        &all[from..until.max(from)]
    }

    /// Number of the first segment that is not forgotten.
    pub fn first(&self) -> usize {
        self.first
    }

    /// The initialization section of a stream in the period that begins with segment `first`.
    pub fn init(&self, stream: usize, first: usize) -> Option<&[u8]> {
        let (_, period) = self.period(first)?;
        Some(&period.tracks.get(stream)?.as_ref()?.init)
    }

    /// Returns the fragment of a stream that starts at this time, in the period that begins with
    /// segment `first`, with its source data.
    pub fn find(&self, stream: usize, first: usize, start: u64) -> Option<FragmentSource> {
        let (number, period) = self.period(first)?;
        let codec = period.tracks.get(stream)?.as_ref()?.codec.clone();
        let own = self.in_period(stream, number, 0..usize::MAX);
        let fragment = own[own.binary_search_by_key(&start, |one| one.start).ok()?];
        let context = self.contexts[fragment.segment - self.first].clone();
        Some(FragmentSource { fragment, stream, context, codec })
    }

    /// True of a fragment that would be found if its segment were not forgotten.
    pub fn is_forgotten(&self, stream: usize, first: usize, start: u64) -> bool {
        let Some((number, _)) = self.period(first).filter(|_| stream < self.fragments.len()) else {
            return self.periods.first().is_some_and(|oldest| first < oldest.first);
        };
        let oldest = self.in_period(stream, number, 0..usize::MAX).first();
        first < self.first && oldest.is_none_or(|oldest| start < oldest.start)
    }

    /// Returns the period that begins with a segment, and its number. Numbers of segments are those
    /// of the file; those of periods depend on the first segment added.
    fn period(&self, first: usize) -> Option<(usize, &FragmentPeriod)> {
        let number = self.periods.binary_search_by_key(&first, |period| period.first).ok()?;
        Some((number, &self.periods[number]))
    }
}

impl FragmentSource {
    /// Times and size of the fragment.
    pub fn fragment(&self) -> &GrowingFragment {
        &self.fragment
    }

    /// Creates the fragment from this segment of the file.
    ///
    /// # Errors
    /// `file` cannot be read, or has changed.
    pub fn make<'p>(
        &self,
        streams: &RecordedStreams,
        places: impl Into<PacketPlaces<'p>>,
        segment: &GrowingSegment,
        file: &(impl ReadAt + ?Sized),
    ) -> io::Result<CopiedSegment> {
        let changed = || io::Error::other("the recording has other samples than when it was read");
        let (context, places) = (&self.context, places.into());
        let part = streams.part(places, (segment, &context.pids), context.limit, file)?;
        let mut tracks = part.tracks;
        let track = tracks.get_mut(self.stream).and_then(Option::take).ok_or_else(changed)?;
        let samples = self.fragment.skipped as usize..track.samples.len();
        let count = samples.len();
        let one = track.presentation(
            self.codec.clone(),
            None,
            self.fragment.moved,
            samples,
            places.file_bytes,
        );
        let one = one.ok_or_else(changed)?;
        let mut media = Vec::with_capacity(self.fragment.bytes as usize);
        let samples = copy_elementary(places, &one, (0, 0..count), file, &mut media)?;
        match samples.is_empty() {
            true => Err(changed()),
            false => Ok(fragment(&one, samples, media, self.fragment.segment as u32)),
        }
    }
}

impl PeriodTrack {
    /// Its language (ISO 639-2); `None` if unknown or undetermined.
    pub fn language_name(&self) -> Option<String> {
        language_code(self.language)
    }

    /// Returns the codec of these samples; `known` is their codec if they do not contain it. `None`
    /// if a decoder would lack parameters.
    fn of(found: &PartTrack, known: Option<Codec>, language: Option<[u8; 3]>) -> Option<Self> {
        let codec = found.codec.clone().or(known)?;
        let one = found.presentation(codec.clone(), language, 0, 0..1, u64::MAX)?;
        let first_unit = |_: usize, _: usize| Ok(found.first_unit.clone());
        let init = init_section(&one, &[0], None, first_unit).ok()?;
        Some(PeriodTrack { codec, language, timescale: found.timescale, init })
    }
}

/// When a segment is due.
struct PartDue {
    /// Time of its start, by [`GrowingSegment::start`], and by how much the source is late.
    begins: i64,
    late: i64,
    is_break: bool,
}

/// Time on the timeline at which the recording begins.
fn origin(timescale: i64) -> i64 {
    GrowingFragments::ORIGIN_S as i64 * timescale
}

/// Presentation of the first sample of the first stream that has one, and of its first with which
/// play can start; units of 90 kHz from the first time on.
fn leading_start(part: &RecordedPart) -> Option<(i64, i64)> {
    let track = part.tracks.iter().flatten().next()?;
    let at = |sample: usize| {
        let sample = &track.samples[sample];
        let presented = sample.decode as i64 + i64::from(sample.offset.max(0)) - track.origin();
        scaled(presented, SECOND as u64, track.timescale)
    };
    Some((at(0), at(track.led_by())))
}

/// True if a decoder with the parameters `known` can decode samples with those of `found`.
fn has_parameters(known: &Codec, found: &Codec) -> bool {
    let are_known = |known: &[Vec<u8>], found: &[Vec<u8>]| {
        let is_known = |set: &Vec<u8>| known.contains(set);
        found.iter().all(is_known)
    };
    match (known, found) {
        (Codec::H264(known), Codec::H264(found)) => {
            let sets = |config: &H264Config| {
                [config.sequence_sets.clone(), config.picture_sets.clone()].concat()
            };
            are_known(&sets(known), &sets(found))
        }
        (Codec::H265(known), Codec::H265(found)) => {
            let sets = |config: &H265Config| {
                let (video, sequence) = (config.video_sets.clone(), config.sequence_sets.clone());
                [video, sequence, config.picture_sets.clone()].concat()
            };
            are_known(&sets(known), &sets(found))
        }
        (known, found) => known == found,
    }
}
