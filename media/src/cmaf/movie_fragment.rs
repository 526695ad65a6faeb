// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes the boxes of a segment from the sample tables, and the ranges of the file that follow
//! them.
//!
//! The samples of each track form runs that are contiguous in the file. The runs of all tracks of
//! the segment, in file order, are joined into ranges: adjacent runs always, others if few bytes
//! are between them ([`HOLE_BYTES_MAX`], and in total [`WASTE_PART`] of the segment), since a range
//! costs a system call. Each run is a `trun` box with its own offset, so that a segment of
//! interleaved tracks is usually one range of the file.
//!
//! Costs 20 bytes a run and 4 to 16 a sample, and no copy of media.
//!
//! Sources: ISO/IEC 14496-12 §8.8.4 to §8.8.8 (moof to trun), §8.8.12 (tfdt), §8.1.1 (mdat).
//! Does not write `sidx` or `styp`: playlists say where segments are.

use std::io;
use std::ops::Range;

use super::common_encryption::{ProtectedBytes, SubsampleMaps, protect};
use super::{TrackSegments, base_media_decode_time, lead};
use crate::ReadAt;
use crate::mux::{OTHER_SAMPLE, SYNC_SAMPLE};
use crate::tracks::{MediaSample, Presentation, Track};

/// Largest part of a segment's bytes that is sent without belonging to a sample: 0.8 %.
const WASTE_PART: u64 = 128;

/// Longest hole that is sent: a longer one costs more time than the system call that it saves.
const HOLE_BYTES_MAX: u64 = 8 << 10;

/// Longest segment, which players hold in memory; offsets of a `trun` reach for 2 GiB.
pub(super) const SEGMENT_BYTES_MAX: u64 = 256 << 20;

/// Samples of a segment at most: half a megabyte of boxes.
pub(super) const SEGMENT_SAMPLES_MAX: usize = 1 << 15;

/// A segment of tracks: bytes to send first, then ranges of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentParts {
    /// `moof`, and the header of `mdat`.
    pub head: Vec<u8>,
    /// Ranges that `mdat` holds; none is empty.
    pub ranges: Vec<Range<u64>>,
}

impl SegmentParts {
    /// Bytes of the segment.
    pub fn bytes(&self) -> u64 {
        let media = self.ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        self.head.len() as u64 + media
    }
}

/// Samples of one track in a segment.
pub(super) struct FragmentTrack<'a> {
    pub(super) track: &'a Track,
    /// Index of the track in the presentation.
    pub(super) index: usize,
    /// Its samples; at least one.
    pub(super) samples: Vec<MediaSample>,
    /// Set for pictures that are encrypted.
    pub(super) maps: Option<SubsampleMaps>,
}

/// Samples that are contiguous in the file.
struct Run {
    /// Index of the track in the segment.
    track: usize,
    /// Samples of the track in the segment, by their place there.
    samples: Range<usize>,
    file: Range<u64>,
    /// Offset of its first byte after the header of `mdat`.
    offset: u64,
}

/// Returns the segment of these samples of tracks (index in the presentation).
pub(super) fn segment(
    plan: &TrackSegments,
    presentation: &Presentation,
    tracks: &[(usize, Range<usize>)],
    number: u32,
) -> SegmentParts {
    let fragments = tracks.iter().map(|&(index, ref samples)| {
        let track = &presentation.tracks()[index];
        let mut samples: Vec<MediaSample> = track.samples.samples(samples.clone()).collect();
        if plan.is_recording() {
            without_pause(&mut samples);
        }
        FragmentTrack { track, index, samples, maps: None }
    });
    segment_of(plan.origin_s, fragments.collect(), number)
}

/// Lets the last sample of a segment of a recording last no longer than the one before: whether it
/// lasts until a sample after a pause depends on how much is recorded.
pub(super) fn without_pause(samples: &mut [MediaSample]) {
    if let [.., before, last] = samples {
        last.duration = last.duration.min(before.duration);
    }
}

/// A segment whose media was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedSegment {
    /// `moof`, and the header of `mdat`.
    pub head: Vec<u8>,
    /// Content of `mdat`, clear.
    pub media: Vec<u8>,
    /// Bytes of it to encrypt.
    pub protected: Vec<ProtectedBytes>,
}

/// Returns the segment of these samples of tracks, with its media; `is_protected` if the media is
/// to be encrypted. `read` is that of [`super::Rendition::copied`].
pub(super) fn copied_segment(
    plan: &TrackSegments,
    presentation: &Presentation,
    (tracks, number): (Vec<(usize, Range<usize>)>, u32),
    is_protected: bool,
    read: &mut ReadSamples<'_>,
) -> io::Result<CopiedSegment> {
    let (mut media, mut fragments, mut protected) = (Vec::new(), Vec::new(), Vec::new());
    for (index, samples) in tracks {
        let mut samples = read(index, samples, &mut media)?;
        if plan.is_recording() {
            without_pause(&mut samples);
        }
        let track = &presentation.tracks()[index];
        let mut fragment = FragmentTrack { track, index, samples, maps: None };
        if is_protected && !fragment.samples.is_empty() {
            fragment.maps = protect(&fragment, &media, &mut protected)?;
        }
        fragments.push(fragment);
    }
    let parts = segment_of(plan.origin_s, fragments, number);
    debug_assert!(parts.ranges.len() <= 1, "samples lie side by side");
    Ok(CopiedSegment { head: parts.head, media, protected })
}

/// Appends samples (numbers) of a track (index in the presentation) to the bytes, and returns them
/// with their offsets there.
pub type ReadSamples<'a> =
    dyn FnMut(usize, Range<usize>, &mut Vec<u8>) -> io::Result<Vec<MediaSample>> + 'a;

/// Appends samples (numbers) of a track of a file to `media`, and returns them with their offsets
/// there. Adjacent samples are read at once.
///
/// # Errors
/// `file` cannot be read.
pub fn copy_samples(
    track: &Track,
    numbers: Range<usize>,
    file: &(impl ReadAt + ?Sized),
    media: &mut Vec<u8>,
) -> io::Result<Vec<MediaSample>> {
    let mut samples: Vec<MediaSample> = track.samples.samples(numbers).collect();
    let mut run = 0..0;
    let read = |run: &Range<u64>, media: &mut Vec<u8>| {
        let from = media.len();
        media.resize(from + (run.end - run.start) as usize, 0);
        file.read_exact_at(&mut media[from..], run.start)
    };
    for sample in &mut samples {
        if sample.file_offset != run.end {
            read(&run, media)?;
            run = sample.file_offset..sample.file_offset;
        }
        run.end += u64::from(sample.bytes);
        let before_run = media.len() as u64;
        sample.file_offset = before_run + (run.end - run.start) - u64::from(sample.bytes);
    }
    read(&run, media)?;
    Ok(samples)
}

/// Returns the segment of these samples of the first track of a presentation, whose offsets are
/// those in `media`; decoding times are those of the segment.
pub fn fragment(
    presentation: &Presentation,
    samples: Vec<MediaSample>,
    media: Vec<u8>,
    number: u32,
) -> CopiedSegment {
    let track = &presentation.tracks()[0];
    let fragments = vec![FragmentTrack { track, index: 0, samples, maps: None }];
    let parts = segment_of(0, fragments, number);
    CopiedSegment { head: parts.head, media, protected: Vec::new() }
}

/// Returns the segment of these samples, whose offsets are those in the file that is sent. Its
/// times are later than presentation times by `origin_s`.
fn segment_of(origin_s: u64, mut tracks: Vec<FragmentTrack<'_>>, number: u32) -> SegmentParts {
    tracks.retain(|fragment| !fragment.samples.is_empty());
    let mut runs = runs(&tracks);
    let ranges = placed(&mut runs);
    let media = ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    SegmentParts { head: head(origin_s, &tracks, &runs, media, number), ranges }
}

/// The runs of each track in decoding order.
fn runs(tracks: &[FragmentTrack<'_>]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, fragment) in tracks.iter().enumerate() {
        let mut open: Option<Run> = None;
        for (number, sample) in fragment.samples.iter().enumerate() {
            let end = sample.file_offset + u64::from(sample.bytes);
            match &mut open {
                Some(run) if run.file.end == sample.file_offset => {
                    run.file.end = end;
                    run.samples.end = number + 1;
                }
                _ => {
                    let file = sample.file_offset..end;
                    let run = Run { track: index, samples: number..number + 1, file, offset: 0 };
                    runs.extend(open.replace(run));
                }
            }
        }
        runs.extend(open);
    }
    runs
}

/// Joins the runs into ranges of the file and sets the offset of each run in them.
fn placed(runs: &mut [Run]) -> Vec<Range<u64>> {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|&at| runs[at].file.start);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let (mut before, mut wasted) = (0, 0);
    let most = runs.iter().map(|run| run.file.end - run.file.start).sum::<u64>() / WASTE_PART;
    for at in order {
        let run = &mut runs[at];
        if run.file.is_empty() {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if run.file.start <= last.end + HOLE_BYTES_MAX.min(most - wasted) => {
                wasted += run.file.start.saturating_sub(last.end);
                last.end = last.end.max(run.file.end);
            }
            last => {
                before += last.map_or(0, |last| last.end - last.start);
                ranges.push(run.file.clone());
            }
        }
        let last = ranges.last().expect("a range was pushed or extended");
        run.offset = before + (run.file.start - last.start);
    }
    ranges
}

pub(super) const BOX_BYTES: usize = 8;
pub(super) const FULL_BOX_BYTES: usize = 12;

/// Flags of `tfhd` and `trun` (§8.8.7, §8.8.8).
const DEFAULT_BASE_IS_MOOF: u32 = 0x02_0000;
const DEFAULT_DURATION: u32 = 0x08;
const DEFAULT_FLAGS: u32 = 0x20;
const DATA_OFFSET: u32 = 0x01;
const SAMPLE_DURATION: u32 = 0x100;
const SAMPLE_SIZE: u32 = 0x200;
const SAMPLE_FLAGS: u32 = 0x400;
const SAMPLE_OFFSET: u32 = 0x800;

/// Fields that the samples of a track in a segment share.
struct TrackForm {
    duration: Option<u32>,
    flags: Option<u32>,
    has_offsets: bool,
    /// Time units by which samples are decoded before the decoding times in the file.
    lead: i64,
}

impl TrackForm {
    fn of(fragment: &FragmentTrack<'_>) -> TrackForm {
        let first = fragment.samples[0];
        let lead = lead(fragment.track);
        let mut form = TrackForm {
            duration: Some(first.duration),
            flags: Some(flags(&first)),
            has_offsets: i64::from(first.offset) + lead != 0,
            lead,
        };
        for sample in &fragment.samples {
            form.duration = form.duration.filter(|&duration| duration == sample.duration);
            form.flags = form.flags.filter(|&shared| shared == flags(sample));
            form.has_offsets |= i64::from(sample.offset) + lead != 0;
        }
        form
    }

    fn sample_bytes(&self) -> usize {
        let fields = [self.duration.is_none(), true, self.flags.is_none(), self.has_offsets];
        4 * fields.into_iter().filter(|&there| there).count()
    }

    fn trun_flags(&self) -> u32 {
        let mut flags = DATA_OFFSET | SAMPLE_SIZE;
        flags |= if self.duration.is_none() { SAMPLE_DURATION } else { 0 };
        flags |= if self.flags.is_none() { SAMPLE_FLAGS } else { 0 };
        flags | if self.has_offsets { SAMPLE_OFFSET } else { 0 }
    }

    fn tfhd_bytes(&self) -> usize {
        let fields = [self.duration.is_some(), self.flags.is_some()];
        FULL_BOX_BYTES + 4 + 4 * fields.into_iter().filter(|&there| there).count()
    }
}

fn flags(sample: &MediaSample) -> u32 {
    if sample.is_start { SYNC_SAMPLE } else { OTHER_SAMPLE }
}

const TFDT_BYTES: usize = FULL_BOX_BYTES + 8;
const TRUN_HEAD_BYTES: usize = FULL_BOX_BYTES + 8;

/// `moof`, and the header of an `mdat` of `media` bytes; offsets are right in segments of up to
/// [`SEGMENT_BYTES_MAX`].
fn head(
    origin_s: u64,
    tracks: &[FragmentTrack<'_>],
    runs: &[Run],
    media: u64,
    number: u32,
) -> Vec<u8> {
    let forms: Vec<_> = tracks.iter().map(TrackForm::of).collect();
    let mut traf_bytes: Vec<usize> =
        forms.iter().map(|form| BOX_BYTES + form.tfhd_bytes() + TFDT_BYTES).collect();
    for run in runs {
        let samples = run.samples.len() * forms[run.track].sample_bytes();
        traf_bytes[run.track] += TRUN_HEAD_BYTES + samples;
    }
    for (bytes, fragment) in traf_bytes.iter_mut().zip(tracks) {
        *bytes += fragment.maps.as_ref().map_or(0, SubsampleMaps::bytes);
    }
    let moof_bytes = BOX_BYTES + FULL_BOX_BYTES + 4 + traf_bytes.iter().sum::<usize>();
    let mut out = Vec::with_capacity(moof_bytes + BOX_BYTES);
    box_head(&mut out, moof_bytes, b"moof");
    full_box_head(&mut out, FULL_BOX_BYTES + 4, b"mfhd", 0, 0);
    put(&mut out, number);
    let mut runs = runs.iter().peekable();
    for (at, fragment) in tracks.iter().enumerate() {
        let (form, track) = (&forms[at], fragment.track);
        box_head(&mut out, traf_bytes[at], b"traf");
        let mut tfhd_flags = DEFAULT_BASE_IS_MOOF;
        tfhd_flags |= if form.duration.is_some() { DEFAULT_DURATION } else { 0 };
        tfhd_flags |= if form.flags.is_some() { DEFAULT_FLAGS } else { 0 };
        full_box_head(&mut out, form.tfhd_bytes(), b"tfhd", 0, tfhd_flags);
        put(&mut out, TrackSegments::track_id(fragment.index));
        [form.duration, form.flags].into_iter().flatten().for_each(|field| put(&mut out, field));
        full_box_head(&mut out, TFDT_BYTES, b"tfdt", 1, 0);
        let first = fragment.samples[0].decode;
        out.extend(base_media_decode_time(origin_s, track, first).to_be_bytes());
        while let Some(run) = runs.next_if(|run| run.track == at) {
            let bytes = TRUN_HEAD_BYTES + run.samples.len() * form.sample_bytes();
            full_box_head(&mut out, bytes, b"trun", 1, form.trun_flags());
            put(&mut out, run.samples.len() as u32);
            put(&mut out, ((moof_bytes + BOX_BYTES) as u64 + run.offset) as u32);
            write_samples(&mut out, &fragment.samples[run.samples.clone()], form);
        }
        if let Some(maps) = &fragment.maps {
            maps.write(&mut out);
        }
    }
    box_head(&mut out, BOX_BYTES + media as usize, b"mdat");
    debug_assert_eq!(out.len(), moof_bytes + BOX_BYTES);
    out
}

fn write_samples(out: &mut Vec<u8>, samples: &[MediaSample], form: &TrackForm) {
    for sample in samples {
        if form.duration.is_none() {
            put(out, sample.duration);
        }
        put(out, sample.bytes);
        if form.flags.is_none() {
            put(out, flags(sample));
        }
        if form.has_offsets {
            let offset = i64::from(sample.offset) + form.lead;
            put(out, i32::try_from(offset).unwrap_or(i32::MAX) as u32);
        }
    }
}

fn put(out: &mut Vec<u8>, field: u32) {
    out.extend_from_slice(&field.to_be_bytes());
}

pub(super) fn box_head(out: &mut Vec<u8>, bytes: usize, kind: &[u8; 4]) {
    put(out, bytes as u32);
    out.extend_from_slice(kind);
}

pub(super) fn full_box_head(
    out: &mut Vec<u8>,
    bytes: usize,
    kind: &[u8; 4],
    version: u32,
    flags: u32,
) {
    box_head(out, bytes, kind);
    put(out, version << 24 | flags);
}
