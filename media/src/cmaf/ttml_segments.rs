// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of a track of TTML, at the borders of the film's segments.
//!
//! A segment has each stored document whose sample is shown within its borders; a document is in
//! every segment that its sample overlaps, with the part of its duration within the segment.
//! Documents are sent unchanged, since their times are those of the file, like the times of the
//! samples, even if the film starts later than at zero ([`TtmlSegments::origin`]). Time before the
//! first sample gets a document without text, and so does a segment after the last sample.
//!
//! Costs: a pass over the samples for the plan; for a segment two searches among them, 100 bytes
//! and 8 a sample, and no copy of documents.
//!
//! Sources: ISO/IEC 14496-30 §5.3 (timing); ISO/IEC 14496-12 §8.8.4 to §8.8.8 (moof to trun),
//! §8.8.12 (tfdt: a sample lasts until the next).
//! Does not read documents, or move their times.

use std::ops::Range;

use super::movie_fragment::{BOX_BYTES, FULL_BOX_BYTES, SegmentParts, box_head, full_box_head};
use super::ttml_init::{TRACK_ID, init_section};
use super::{TrackSegments, peak_and_mean};
use crate::TICKS_PER_SECOND;
use crate::text::TtmlTrack;
use crate::tracks::{MediaSample, Presentation, scaled};

/// Bytes of a document: an hour of subtitles has 100 KB.
const DOCUMENT_BYTES_MAX: u32 = 4 << 20;

/// Documents of a segment, and their bytes, which players hold in memory.
const SEGMENT_DOCUMENTS_MAX: usize = 4096;
const SEGMENT_BYTES_MAX: u64 = 32 << 20;

/// A document without text.
const NO_TEXT: &[u8] = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
    <tt xmlns=\"http://www.w3.org/ns/ttml\" xml:lang=\"\"/>\n";

/// Reason why a track of TTML has no segments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoTtmlSegments {
    /// Its samples are not presented in the order and at the times of decoding.
    #[error("its samples have presentation offsets")]
    Offsets,
    /// A document is too large.
    #[error("a document of {bytes} bytes, over {limit}")]
    Document {
        /// Its bytes.
        bytes: u32,
        /// Limit.
        limit: u32,
    },
    /// Too many documents, or too many bytes of them, are shown within one segment.
    #[error("{documents} documents of {bytes} bytes in a segment")]
    Segment {
        /// Number of documents.
        documents: usize,
        /// Bytes of them.
        bytes: u64,
    },
    /// A segment is longer than the largest duration of a fragment.
    #[error("a segment of {units} units of its time scale")]
    Duration {
        /// Duration of the segment.
        units: u64,
    },
    /// The film has no segments.
    #[error("the film has no segments")]
    NoFilm,
}

/// A track of TTML, cut like its film.
#[derive(Debug)]
pub struct TtmlSegments {
    track: TtmlTrack,
    /// Start of each segment in units of the time scale, and the end of the last.
    borders: Vec<u64>,
    /// Peak and mean bit rate.
    rates: (u64, u64),
}

/// A sample of a segment: its bytes in the file, if it is one of the file.
struct Shown {
    duration: u64,
    file: Option<Range<u64>>,
}

impl TtmlSegments {
    /// Cuts a track at the times of a film's first rendition. The first segment begins with it, and
    /// the last ends with the film or the track.
    ///
    /// # Errors
    /// The reason why the track is left out.
    pub fn of(
        track: TtmlTrack,
        presentation: &Presentation,
        plan: &TrackSegments,
    ) -> Result<TtmlSegments, NoTtmlSegments> {
        let samples = &track.samples;
        if (samples.offset_min(), samples.offset_max()) != (0, 0) {
            return Err(NoTtmlSegments::Offsets);
        }
        let all = samples.samples(0..samples.len());
        let largest = all.map(|sample| sample.bytes).max().unwrap_or(0);
        if largest > DOCUMENT_BYTES_MAX {
            let limit = DOCUMENT_BYTES_MAX;
            return Err(NoTtmlSegments::Document { bytes: largest, limit });
        }
        let film = plan.renditions().first().ok_or(NoTtmlSegments::NoFilm)?;
        let origin = i64::try_from(presentation.file_origin_ticks()).unwrap_or(i64::MAX);
        let units = |ticks: i64| {
            let ticks = ticks.saturating_add(origin);
            let units = scaled(ticks, samples.timescale().into(), TICKS_PER_SECOND as u32);
            u64::try_from(units).unwrap_or(0)
        };
        let end = i64::try_from(presentation.presented_end_ticks()).unwrap_or(i64::MAX);
        let mut borders = vec![units(0)];
        borders.extend(film.segments().iter().skip(1).map(|segment| units(segment.start)));
        borders.push(units(end).max(track_end(&track)));
        // Decreasing times give a segment without duration.
        for at in 1..borders.len() {
            borders[at] = borders[at].max(borders[at - 1]);
        }
        let mut segments = TtmlSegments { track, borders, rates: (0, 0) };
        let mut sizes = Vec::with_capacity(segments.len());
        for number in 0..segments.len() {
            sizes.push((segments.checked(number)?, segments.ticks(number)));
        }
        segments.rates = peak_and_mean(sizes.into_iter());
        Ok(segments)
    }

    /// Bytes of a segment, which is within all limits.
    fn checked(&self, number: usize) -> Result<u64, NoTtmlSegments> {
        let numbers = self.numbers(number);
        let documents = numbers.len();
        if documents > SEGMENT_DOCUMENTS_MAX {
            let bytes = self.track.samples.samples(numbers).map(|one| u64::from(one.bytes)).sum();
            return Err(NoTtmlSegments::Segment { documents, bytes });
        }
        let units = self.borders[number + 1] - self.borders[number];
        if units > u32::MAX.into() {
            return Err(NoTtmlSegments::Duration { units });
        }
        let shown = self.shown(number);
        let bytes = shown.iter().map(Shown::bytes).sum();
        if bytes > SEGMENT_BYTES_MAX {
            return Err(NoTtmlSegments::Segment { documents, bytes });
        }
        Ok((HEAD_BYTES + SAMPLE_BYTES * shown.len()) as u64 + bytes)
    }

    /// Number of segments, the same as that of the film.
    #[expect(clippy::len_without_is_empty, reason = "a film has at least one segment")]
    pub fn len(&self) -> usize {
        self.borders.len() - 1
    }

    /// Value of `codecs` (RFC 6381): `stpp`, with the profile if the file declares it.
    pub fn codecs(&self) -> &'static str {
        self.track.entry.codecs
    }

    /// True if the file declares a text profile of IMSC for its documents.
    pub fn is_imsc(&self) -> bool {
        self.track.entry.is_imsc()
    }

    /// Units of time a second.
    pub fn timescale(&self) -> u32 {
        self.track.samples.timescale()
    }

    /// Peak and mean bit rate of its segments; at least 1.
    pub fn bits_per_second(&self) -> (u64, u64) {
        let (peak, mean) = self.rates;
        (peak.max(1), mean.max(1))
    }

    /// Time at which the film begins, in units of the time scale.
    pub fn origin(&self) -> u64 {
        self.borders[0]
    }

    /// Start and duration of each segment in units of the time scale: times of the file.
    pub fn timeline(&self) -> Vec<(u64, u64)> {
        self.borders.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect()
    }

    /// Memory of the track.
    pub fn memory_bytes(&self) -> usize {
        let samples = self.track.samples.memory_bytes() as usize;
        let borders = self.borders.capacity() * size_of::<u64>();
        size_of::<TtmlSegments>() + samples + borders + self.track.entry.bytes.capacity()
    }

    /// Returns the initialization section.
    pub fn init_section(&self) -> Vec<u8> {
        init_section(&self.track)
    }

    /// Returns a segment, ready to send; `None` past the last.
    pub fn parts(&self, number: usize) -> Option<SegmentParts> {
        if number >= self.len() {
            return None;
        }
        let shown = self.shown(number);
        let bytes: u64 = shown.iter().map(Shown::bytes).sum();
        let mut head = Vec::with_capacity(HEAD_BYTES + SAMPLE_BYTES * shown.len() + NO_TEXT.len());
        write_head(&mut head, (number as u32 + 1, self.borders[number]), &shown, bytes);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for one in shown {
            match (one.file, ranges.last_mut()) {
                // A document without text precedes all others.
                (None, _) => head.extend_from_slice(NO_TEXT),
                (Some(file), Some(last)) if last.end == file.start => last.end = file.end,
                (Some(file), _) if !file.is_empty() => ranges.push(file),
                _ => {}
            }
        }
        Some(SegmentParts { head, ranges })
    }

    /// Duration of a segment, in ticks.
    fn ticks(&self, number: usize) -> u64 {
        let units = self.borders[number + 1] - self.borders[number];
        let ticks = u128::from(units) * u128::from(TICKS_PER_SECOND);
        u64::try_from(ticks / u128::from(self.timescale())).unwrap_or(u64::MAX)
    }

    /// Time at which a sample that is decoded at this time is shown.
    fn shown_at(&self, decode: u64) -> u64 {
        presented(&self.track, decode)
    }

    /// Samples that may overlap a segment.
    fn numbers(&self, number: usize) -> Range<usize> {
        let (start, end) = (self.borders[number], self.borders[number + 1]);
        let samples = &self.track.samples;
        let first = samples.partition_point(|decode| self.shown_at(decode) <= start);
        let last = samples.partition_point(|decode| self.shown_at(decode) < end);
        let first = first.saturating_sub(1);
        first..last.max(first)
    }

    /// Returns the samples of a segment, at least one: those of the file that overlap it, preceded
    /// by a document without text if there is time before the first.
    fn shown(&self, number: usize) -> Vec<Shown> {
        let (start, end) = (self.borders[number], self.borders[number + 1]);
        let numbers = self.numbers(number);
        let samples = &self.track.samples;
        let next = samples.samples(numbers.start + 1..samples.len()).map(|next| next.decode);
        let ends = next.chain([samples.end()]);
        let mut all: Vec<Shown> = Vec::with_capacity(numbers.len() + 1);
        for (sample, until) in samples.samples(numbers).zip(ends) {
            let from = self.shown_at(sample.decode).max(start);
            let until = self.shown_at(until).min(end);
            if from >= until {
                continue;
            }
            if all.is_empty() && from > start {
                all.push(Shown { duration: from - start, file: None });
            }
            all.push(Shown { duration: until - from, file: Some(place(&sample)) });
        }
        if all.is_empty() {
            all.push(Shown { duration: end - start, file: None });
        }
        all
    }
}

/// Time of the file at which a sample that is decoded at this time is shown; not below zero.
fn presented(track: &TtmlTrack, decode: u64) -> u64 {
    u64::try_from(i128::from(decode) + i128::from(track.shift)).unwrap_or(0)
}

/// End of the last sample's presentation.
fn track_end(track: &TtmlTrack) -> u64 {
    presented(track, track.samples.end())
}

fn place(sample: &MediaSample) -> Range<u64> {
    sample.file_offset..sample.file_offset + u64::from(sample.bytes)
}

impl Shown {
    fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(NO_TEXT.len() as u64, |file| file.end - file.start)
    }
}

/// Flags of `tfhd` and `trun` (§8.8.7, §8.8.8): offsets from `moof`; an offset for all samples, and
/// duration and size of each.
const DEFAULT_BASE_IS_MOOF: u32 = 0x02_0000;
const TRUN_FLAGS: u32 = 0x01 | 0x100 | 0x200;

const MFHD_BYTES: usize = FULL_BOX_BYTES + 4;
const TFHD_BYTES: usize = FULL_BOX_BYTES + 4;
const TFDT_BYTES: usize = FULL_BOX_BYTES + 8;
const TRUN_HEAD_BYTES: usize = FULL_BOX_BYTES + 8;
const SAMPLE_BYTES: usize = 8;

/// Bytes before the media of a segment without samples.
const HEAD_BYTES: usize =
    BOX_BYTES * 2 + MFHD_BYTES + TFHD_BYTES + TFDT_BYTES + TRUN_HEAD_BYTES + BOX_BYTES;

/// Writes `moof` of a segment with this number, from 1 on, and start, and the header of `mdat`.
fn write_head(out: &mut Vec<u8>, (number, start): (u32, u64), shown: &[Shown], bytes: u64) {
    let trun_bytes = TRUN_HEAD_BYTES + SAMPLE_BYTES * shown.len();
    let traf_bytes = BOX_BYTES + TFHD_BYTES + TFDT_BYTES + trun_bytes;
    let moof_bytes = BOX_BYTES + MFHD_BYTES + traf_bytes;
    box_head(out, moof_bytes, b"moof");
    full_box_head(out, MFHD_BYTES, b"mfhd", 0, 0);
    out.extend(number.to_be_bytes());
    box_head(out, traf_bytes, b"traf");
    full_box_head(out, TFHD_BYTES, b"tfhd", 0, DEFAULT_BASE_IS_MOOF);
    out.extend(TRACK_ID.to_be_bytes());
    full_box_head(out, TFDT_BYTES, b"tfdt", 1, 0);
    out.extend(start.to_be_bytes());
    full_box_head(out, trun_bytes, b"trun", 0, TRUN_FLAGS);
    out.extend((shown.len() as u32).to_be_bytes());
    out.extend(((moof_bytes + BOX_BYTES) as u32).to_be_bytes());
    for one in shown {
        // Checked when the plan was created.
        out.extend((one.duration as u32).to_be_bytes());
        out.extend((one.bytes() as u32).to_be_bytes());
    }
    box_head(out, BOX_BYTES + bytes as usize, b"mdat");
    debug_assert_eq!(out.len(), HEAD_BYTES + SAMPLE_BYTES * shown.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RtpIdentity;
    use crate::cmaf::TARGET_S;
    use crate::cmaf::tests::h264;
    use crate::text::{TtmlEntry, ttml_tracks};
    use crate::tracks::{Container, SampleTableBuilder, Track};

    const FILE_BYTES: u64 = 1 << 40;
    const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
    const ENTRY: &[u8] = b"\0\0\0\0\0\0\0\x01http://www.w3.org/ns/ttml\0\0\0";

    /// Pictures of 16 s, with a key frame every 2 s: segments of 6, 6 and 4 s.
    fn film() -> (Presentation, TrackSegments) {
        film_that_begins_at(0)
    }

    fn film_that_begins_at(begin_s: i64) -> (Presentation, TrackSegments) {
        let mut pictures = SampleTableBuilder::new(25, FILE_BYTES);
        for decode in 0..400 {
            let (file_offset, is_start) = (decode * 10, decode % 50 == 0);
            pictures
                .push(MediaSample {
                    file_offset,
                    bytes: 10,
                    decode,
                    offset: 0,
                    duration: 1,
                    is_start,
                })
                .unwrap();
        }
        let samples = pictures.finish().unwrap();
        let (codec, language) = (h264(), None);
        let track =
            Track { language, shift: begin_s * 25, ..Track::new(1, codec, samples, IDENTITY) };
        let film =
            Presentation::assemble(Container::Mp4, FILE_BYTES, vec![track], Vec::new()).unwrap();
        let film = film.moved_to_start().unwrap();
        let plan = TrackSegments::of(&film, TARGET_S).unwrap();
        (film, plan)
    }

    /// A track of samples of place, bytes, start and duration, a thousand units a second.
    fn track(samples: &[(u64, u32, u64, u32)], shift: i64) -> TtmlTrack {
        let mut table = SampleTableBuilder::new(1000, FILE_BYTES);
        for &(file_offset, bytes, decode, duration) in samples {
            let (offset, is_start) = (0, true);
            table
                .push(MediaSample { file_offset, bytes, decode, offset, duration, is_start })
                .unwrap();
        }
        let (samples, entry) = (table.finish().unwrap(), TtmlEntry::of(ENTRY).unwrap());
        TtmlTrack { language: Some(*b"fra"), entry, samples, shift }
    }

    fn segments(track: TtmlTrack) -> Result<TtmlSegments, NoTtmlSegments> {
        let (film, plan) = film();
        TtmlSegments::of(track, &film, &plan)
    }

    /// Durations of the samples of a segment, and whether they are documents of the file.
    fn shown(segments: &TtmlSegments, number: usize) -> Vec<(u64, bool)> {
        let shown = segments.shown(number).into_iter();
        shown.map(|one| (one.duration, one.file.is_some())).collect()
    }

    #[test]
    fn documents_are_in_every_segment_that_they_overlap() {
        let found = segments(track(
            &[(100, 50, 1000, 2000), (150, 60, 3000, 4000), (900, 70, 7000, 11_000)],
            0,
        ));
        let found = found.unwrap();
        assert_eq!(found.timeline(), [(0, 6000), (6000, 6000), (12_000, 6000)]);
        assert_eq!(shown(&found, 0), [(1000, false), (2000, true), (3000, true)]);
        assert_eq!(shown(&found, 1), [(1000, true), (5000, true)]);
        assert_eq!(shown(&found, 2), [(6000, true)], "as long as the track");
        // Neighbours in the file are one range.
        let ranges = |number: usize| found.parts(number).unwrap().ranges;
        assert_eq!(ranges(0)[..], [Range { start: 100, end: 210 }]);
        assert_eq!(ranges(1), [150..210, 900..970]);
        assert_eq!(found.parts(3), None);
        assert_eq!(found.codecs(), "stpp");
    }

    #[test]
    fn an_edit_list_moves_samples_and_time_before_zero_is_cut() {
        let samples = [(100, 50, 0, 1000), (150, 60, 1000, 4000), (210, 70, 5000, 1000)];
        let found = segments(track(&samples, -2000)).unwrap();
        assert_eq!(shown(&found, 0), [(3000, true), (1000, true)]);
        assert_eq!(found.parts(0).unwrap().ranges[..], [Range { start: 150, end: 280 }]);
        assert_eq!(shown(&found, 1), [(6000, false)]);
        let later = segments(track(&samples, 5500)).unwrap();
        assert_eq!(shown(&later, 0), [(5500, false), (500, true)]);
        assert_eq!(shown(&later, 1), [(500, true), (4000, true), (1000, true)]);
    }

    #[test]
    fn documents_of_a_film_that_begins_late_keep_their_times() {
        let documents = [(100, 50, 1000, 2000), (150, 60, 3000, 4000), (900, 70, 7000, 11_000)];
        let (film, plan) = film_that_begins_at(5000);
        assert_eq!(plan.renditions()[0].segments()[1].start, 6 * TICKS_PER_SECOND as i64);
        let late = TtmlSegments::of(track(&documents, 5_000_000), &film, &plan).unwrap();
        assert_eq!(late.origin(), 5_000_000);
        let starts: Vec<u64> = late.timeline().into_iter().map(|(start, _)| start).collect();
        assert_eq!(starts, [5_000_000, 5_006_000, 5_012_000]);
        let early = segments(track(&documents, 0)).unwrap();
        for number in 0..3 {
            assert_eq!(shown(&late, number), shown(&early, number));
        }
    }

    #[test]
    fn a_sample_before_a_gap_lasts_until_the_next() {
        let found = segments(track(&[(100, 50, 0, 1000), (150, 60, 8000, 1000)], 0)).unwrap();
        assert_eq!(shown(&found, 0), [(6000, true)]);
        assert_eq!(shown(&found, 1), [(2000, true), (1000, true)]);
        assert_eq!(shown(&found, 2), [(4000, false)]);
        let parts = found.parts(2).unwrap();
        assert!(parts.ranges.is_empty() && parts.head.ends_with(NO_TEXT));
    }

    #[test]
    fn sections_and_segments_are_a_file_with_the_documents() {
        let mut file = vec![0xff; 400];
        let places = [(40, 50, 1000, 2000), (90, 60, 3000, 4000), (300, 70, 7000, 9000)];
        for (place, bytes, ..) in places {
            file[place as usize..][..bytes as usize].fill(bytes as u8);
        }
        let found = segments(track(&places, 0)).unwrap();
        let mut out = found.init_section();
        let whole = out.len();
        for number in 0..found.len() {
            let parts = found.parts(number).unwrap();
            let before = out.len() as u64;
            out.extend_from_slice(&parts.head);
            for range in &parts.ranges {
                out.extend_from_slice(&file[range.start as usize..range.end as usize]);
            }
            assert_eq!(out.len() as u64 - before, parts.bytes());
            assert_eq!(parts.bytes(), found.checked(number).unwrap());
        }
        let mut read = ttml_tracks(&out[..], out.len() as u64).unwrap();
        let (id, read) = read.pop().unwrap();
        let read = read.unwrap();
        assert_eq!(
            (id, read.language, read.entry.bytes.len()),
            (1, Some(*b"fra"), 8 + ENTRY.len())
        );
        let mut documents = Vec::new();
        for sample in read.samples.samples(0..read.samples.len()) {
            let bytes = &out[sample.file_offset as usize..][..sample.bytes as usize];
            documents.push((sample.decode, sample.duration, bytes[0]));
        }
        let expected = [
            (0, 1000, b'<'),
            (1000, 2000, 50),
            (3000, 3000, 60),
            (6000, 1000, 60),
            (7000, 5000, 70),
            (12_000, 4000, 70),
        ];
        assert_eq!(documents, expected);
        assert!(ttml_tracks(&out[..whole], whole as u64).unwrap()[0].1.is_err(), "no sample");
    }

    #[test]
    fn tracks_beyond_limits_are_left_out() {
        let large = segments(track(&[(0, DOCUMENT_BYTES_MAX + 1, 0, 1000)], 0));
        assert!(matches!(large, Err(NoTtmlSegments::Document { .. })), "{large:?}");
        let many: Vec<_> = (0..5000).map(|at| (at, 1, at, 1)).collect();
        let dense = segments(track(&many, 0));
        assert!(matches!(dense, Err(NoTtmlSegments::Segment { documents: 5000, .. })), "{dense:?}");
        let heavy: Vec<_> = (0..9).map(|at| (at * (4 << 20), 4 << 20, at * 600, 600)).collect();
        let heavy = segments(track(&heavy, 0));
        assert!(matches!(heavy, Err(NoTtmlSegments::Segment { documents: 9, .. })), "{heavy:?}");
        let long = segments(track(&[(0, 1, 0, 1), (1, 1, 1 << 40, 1)], 0));
        assert!(matches!(long, Err(NoTtmlSegments::Duration { .. })), "{long:?}");
        let late = segments(track(&[(0, 1, 0, 1)], 1 << 60));
        assert!(matches!(late, Err(NoTtmlSegments::Duration { .. })), "{late:?}");
    }
}
