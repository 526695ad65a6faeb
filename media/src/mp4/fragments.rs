// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads movie fragments: the samples that a `moof` box adds to the tracks.
//!
//! A fragment has runs of samples. The runs are found first; then each is read, in slices, so a
//! fragment may be left between two samples.
//!
//! The place of a run depends on flags: at an offset from the fragment, or from a place of the
//! file, or after the run before it, which may be that of another track. So the sizes of runs of
//! omitted tracks are counted, too: from their number if all have one size.
//!
//! The last fragment of a truncated recording has samples that are missing in the file. Each track
//! ends before its first such sample, as in players; so the tracks end at different times.
//!
//! Sources: ISO/IEC 14496-12 §8.8.3.1 (sample flags), §8.8.7 (tfhd, places), §8.8.8 (trun), §8.8.12
//! (tfdt).
//! Ignores sidx and mfra, which only repeat where fragments lie.

use std::ops::Range;

use mp4_atom::{Tfdt, Tfhd, Trex};

use super::boxes::{FULL_BYTES, FileBox, Input, broken};
use super::movie::Movie;
use super::pcm_blocks::Joined;
use super::slices::Slices;
use crate::DemuxError;
use crate::tracks::MediaSample;

/// Runs of a fragment: a run for each second and track would be many.
const RUNS_MAX: usize = 1 << 16;

/// Most boxes after a fragment that are searched for its media: there are one or two.
pub(super) const BOXES_BEHIND_MAX: usize = 64;

/// Assumed bytes between a fragment and its first sample if no header gives them.
const PADDING_BYTES_MAX: u64 = 4096;

/// Flags of a run, and the fields of its samples.
const HAS_OFFSET: u32 = 0x1;
const HAS_FIRST_FLAGS: u32 = 0x4;
const HAS_DURATIONS: u32 = 0x100;
const HAS_SIZES: u32 = 0x200;
const HAS_FLAGS: u32 = 0x400;
const HAS_PRESENTATION: u32 = 0x800;

const LISTED: u32 = HAS_DURATIONS | HAS_SIZES | HAS_FLAGS | HAS_PRESENTATION;

/// Flags of a sample: not a sync sample, or one that depends on others.
pub(super) const IS_NO_START: u32 = 0x0101_0000;

/// A fragment that is being read.
#[derive(Debug)]
pub(super) struct Fragment {
    /// The runs that are left, the next one last.
    runs: Vec<Run>,
    reader: Option<RunReader>,
    /// Offset after the last run's samples; before the first run, that of the fragment.
    data_end: u64,
    /// Place from which the offsets of the track fragment count.
    base: u64,
    /// Offsets of the start and the end of the fragment.
    start: u64,
    end: u64,
    /// Missing bytes of the file in which samples were expected.
    cut: Option<Range<u64>>,
}

/// Place from which the runs of a track fragment count.
#[derive(Debug, Clone, Copy)]
enum Base {
    At(u64),
    /// After the track fragment before it, or at the fragment for the first one.
    Behind,
}

/// A run of samples.
#[derive(Debug, Clone, Copy)]
struct Run {
    found: FileBox,
    /// Index of the track; `None` if the file has no such track.
    track: Option<usize>,
    description: u32,
    defaults: SampleDefaults,
    /// Base of the track fragment, if this is its first run.
    base: Option<Base>,
    /// Decoding time of its first sample, if the fragment gives it.
    decode: Option<u64>,
}

/// Fields of a sample that a run does not list.
#[derive(Debug, Clone, Copy)]
struct SampleDefaults {
    duration: u32,
    bytes: u32,
    flags: u32,
}

impl Fragment {
    /// The fragment at `found`, and the number of its boxes.
    pub(super) fn read(
        input: &Input<'_>,
        found: &FileBox,
        movie: &Movie,
    ) -> Result<(Fragment, usize), DemuxError> {
        let mut runs = Vec::new();
        let mut boxes = 0;
        boxes += found.children(input, |child| {
            if &child.code == b"traf" {
                boxes += track_runs(input, &child, found.start, movie, &mut runs)?;
            }
            Ok(())
        })?;
        runs.reverse();
        let (data_end, base) = (found.start, found.start);
        let (start, end) = (found.start, found.end);
        Ok((Fragment { runs, reader: None, data_end, base, start, end, cut: None }, boxes))
    }

    /// Continues reading, for at most `budget` samples, and subtracts them from it; true if all
    /// is read.
    pub(super) fn advance(
        &mut self,
        input: &Input<'_>,
        movie: &mut Movie,
        budget: &mut usize,
    ) -> Result<bool, DemuxError> {
        while *budget > 0 {
            let Some(reader) = &mut self.reader else {
                let Some(run) = self.runs.pop() else { return Ok(true) };
                *budget -= 1;
                self.enter(input, movie, run)?;
                continue;
            };
            let Some(track) = reader.track.filter(|track| movie.is_collected(*track)) else {
                let left = reader.left;
                let samples = left.min(u32::try_from(*budget).unwrap_or(u32::MAX));
                let listed = reader.skip(samples, input)?;
                if let Some(track) = reader.track {
                    movie.count_lacking(track, left - reader.left);
                }
                *budget -= listed as usize;
                movie.pass_over(listed, self.start)?;
                self.leave();
                continue;
            };
            // A sample may be the reason to leave the track out.
            while *budget > 0 && reader.left > 0 && movie.is_collected(track) {
                *budget -= 1;
                let sample = reader.next(input)?;
                if is_lacking(input, &sample, self.end, &mut self.cut)? {
                    movie.end_track(track);
                    continue;
                }
                movie.push(track, (sample, reader.description))?;
            }
            self.leave();
        }
        Ok(self.runs.is_empty() && self.reader.is_none())
    }

    fn enter(&mut self, input: &Input<'_>, movie: &Movie, run: Run) -> Result<(), DemuxError> {
        match run.base {
            Some(Base::At(base)) => self.base = base,
            Some(Base::Behind) => self.base = self.data_end,
            None => {}
        }
        // Without an offset, the first run of a track fragment starts at its base.
        let unplaced = if run.base.is_some() { self.base } else { self.data_end };
        let end = run.track.map_or(0, |track| movie.tracks[track].end());
        let decode = run.decode.unwrap_or(end);
        let mut reader = RunReader::open(input, &run, self.base, unplaced, decode)?;
        let joined = run.track.and_then(|track| movie.tracks[track].joined(run.description));
        if let Some(joined) = joined.filter(|_| reader.fields & LISTED == 0) {
            reader.join(&joined);
        }
        self.reader = Some(reader);
        self.leave();
        Ok(())
    }

    /// Closes a run without any samples left.
    fn leave(&mut self) {
        if let Some(reader) = self.reader.take_if(|reader| reader.left == 0) {
            self.data_end = reader.at;
        }
    }
}

/// True if the file lacks the end of the sample because it was truncated after the fragment, which
/// ends at `fragment_end`. Other samples outside of the file are faults.
fn is_lacking(
    input: &Input<'_>,
    sample: &MediaSample,
    fragment_end: u64,
    cut: &mut Option<Range<u64>>,
) -> Result<bool, DemuxError> {
    let end = sample.file_offset.saturating_add(sample.bytes.into());
    if end <= input.bytes() {
        return Ok(false);
    }
    if cut.is_none() {
        *cut = cut_off(input, sample.file_offset, fragment_end)?;
    }
    let is_there = |cut: &Range<u64>| cut.start <= sample.file_offset && end <= cut.end;
    Ok(cut.as_ref().is_some_and(is_there))
}

/// Returns the media after a fragment, which ends at `fragment_end`, if the file ends within it;
/// `first` is the place of the first sample that is not in the file.
fn cut_off(
    input: &Input<'_>,
    first: u64,
    fragment_end: u64,
) -> Result<Option<Range<u64>>, DemuxError> {
    let mut next = fragment_end;
    for _ in 0..BOXES_BEHIND_MAX {
        let found = match FileBox::outermost_header(input, next) {
            Ok(found) => found,
            Err(DemuxError::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(found) = found else {
            // Even the header is truncated; the first sample follows it, or follows some padding.
            let padding = first.checked_sub(next);
            let is_first = padding.is_some_and(|bytes| bytes <= PADDING_BYTES_MAX);
            return Ok(is_first.then_some(first..u64::MAX));
        };
        match &found.code {
            b"mdat" if found.end > input.bytes() => return Ok(Some(found.body..found.end)),
            // An earlier fragment has all of its media.
            b"moof" => return Ok(None),
            _ => next = found.end,
        }
    }
    Ok(None)
}

/// Adds the runs of a track fragment of the fragment at `start` to `runs`; returns the number of
/// boxes.
fn track_runs(
    input: &Input<'_>,
    found: &FileBox,
    start: u64,
    movie: &Movie,
    runs: &mut Vec<Run>,
) -> Result<usize, DemuxError> {
    let [header, time] = found.find(input, [b"tfhd", b"tfdt"])?;
    let header: Tfhd = found.needed(header, b"tfhd")?.decode(input)?;
    let time = time.map(|time| time.decode::<Tfdt>(input)).transpose()?;
    let mut decode = time.map(|time| time.base_media_decode_time);
    let general = movie.defaults.iter().find(|general| general.track_id == header.track_id);
    let general = general.cloned().unwrap_or(Trex {
        track_id: header.track_id,
        default_sample_description_index: 1,
        default_sample_duration: 0,
        default_sample_size: 0,
        default_sample_flags: 0,
    });
    let defaults = SampleDefaults {
        duration: header.default_sample_duration.unwrap_or(general.default_sample_duration),
        bytes: header.default_sample_size.unwrap_or(general.default_sample_size),
        flags: header.default_sample_flags.unwrap_or(general.default_sample_flags),
    };
    let description =
        header.sample_description_index.unwrap_or(general.default_sample_description_index);
    let track = movie.tracks.iter().position(|track| track.id == header.track_id);
    let mut base = Some(match header.base_data_offset {
        Some(offset) => Base::At(offset),
        None if header.default_base_is_moof => Base::At(start),
        None => Base::Behind,
    });
    found.children(input, |child| {
        if &child.code != b"trun" {
            return Ok(());
        }
        if runs.len() >= RUNS_MAX {
            return Err(broken(start, format!("moof of more than {RUNS_MAX} runs")));
        }
        let (base, decode) = (base.take(), decode.take());
        runs.push(Run { found: child, track, description, defaults, base, decode });
        Ok(())
    })
}

/// Reads the samples of a run.
#[derive(Debug)]
struct RunReader {
    track: Option<usize>,
    description: u32,
    entries: Slices,
    /// Flags that name the fields of an entry.
    fields: u32,
    first_flags: Option<u32>,
    defaults: SampleDefaults,
    /// Most samples that are joined: 1 but for PCM.
    joined_max: u32,
    /// Samples left.
    left: u32,
    /// Place and time of decoding of the next.
    at: u64,
    decode: u64,
}

impl RunReader {
    /// Opens a run whose offset counts from `base`, and which starts at `unplaced` if it has none.
    fn open(
        input: &Input<'_>,
        run: &Run,
        base: u64,
        unplaced: u64,
        decode: u64,
    ) -> Result<RunReader, DemuxError> {
        let found = &run.found;
        let [_, a, b, c, d, e, f, g] = found.fields::<8>(input)?;
        let (fields, count) = (u32::from_be_bytes([0, a, b, c]), u32::from_be_bytes([d, e, f, g]));
        let optional = [HAS_OFFSET, HAS_FIRST_FLAGS].map(|flag| fields & flag != 0);
        let mut head = Slices::of(found, FULL_BYTES + 4, 4 * count_of(optional), 0)?;
        let at = match optional[0] {
            true => {
                let offset = i32::from_be_bytes(head.entry(input)?);
                base.checked_add_signed(offset.into()).ok_or_else(|| {
                    broken(found.start, format!("trun at {offset} from byte {base}"))
                })?
            }
            false => unplaced,
        };
        let first_flags = match optional[1] {
            true => Some(u32::from_be_bytes(head.entry(input)?)),
            false => None,
        };
        let listed = [HAS_DURATIONS, HAS_SIZES, HAS_FLAGS, HAS_PRESENTATION];
        let entry_bytes = 4 * count_of(listed.map(|flag| fields & flag != 0));
        let skipped = FULL_BYTES + 4 + 4 * count_of(optional);
        let entries = Slices::of(found, skipped, u64::from(count) * entry_bytes, count)?;
        if fields & HAS_SIZES == 0 {
            // Only the bytes of the samples, which must be in the file, bound their number.
            let bytes = run.defaults.bytes;
            let is_in_file = u64::from(count) * u64::from(bytes) <= input.bytes();
            if count > 0 && (bytes == 0 || !is_in_file) {
                let what = format!("trun of {count} samples of {bytes} bytes");
                return Err(broken(found.start, what));
            }
        }
        let (track, description, defaults) = (run.track, run.description, run.defaults);
        let left = count;
        let reader = RunReader {
            track,
            description,
            entries,
            fields,
            first_flags,
            defaults,
            joined_max: 1,
            left,
            at,
            decode,
        };
        Ok(reader)
    }

    /// Joins samples of PCM, of which none has a field of its own.
    fn join(&mut self, joined: &Joined) {
        let SampleDefaults { bytes, duration, .. } = self.defaults;
        if joined.is_gapless(bytes, duration) {
            self.joined_max = joined.samples_max(bytes);
        }
    }

    /// Skips samples, as many as there are, to find the place of those after them: all at once if
    /// none of their sizes is listed. Returns the number of samples that were read.
    fn skip(&mut self, samples: u32, input: &Input<'_>) -> Result<u32, DemuxError> {
        if self.fields & HAS_SIZES == 0 {
            let bytes = u64::from(self.left) * u64::from(self.defaults.bytes);
            (self.at, self.left) = (self.at.saturating_add(bytes), 0);
            return Ok(0);
        }
        for _ in 0..samples {
            self.next(input)?;
        }
        Ok(samples)
    }

    /// Returns the next sample, or the next ones of PCM as one. The caller ensures that there is
    /// one.
    fn next(&mut self, input: &Input<'_>) -> Result<MediaSample, DemuxError> {
        let entries = &mut self.entries;
        let mut field = |flag: u32, default: u32| match self.fields & flag {
            0 => Ok::<_, DemuxError>(default),
            _ => Ok(u32::from_be_bytes(entries.entry(input)?)),
        };
        let duration = field(HAS_DURATIONS, self.defaults.duration)?;
        let bytes = field(HAS_SIZES, self.defaults.bytes)?;
        let flags = field(HAS_FLAGS, self.defaults.flags)?;
        // Version 0 has unsigned offsets; values that are negative as signed ones have no valid
        // use.
        let offset = field(HAS_PRESENTATION, 0)? as i32;
        let flags = self.first_flags.take().unwrap_or(flags);
        let joined = self.joined_max.min(self.left);
        let (bytes, duration) = (bytes * joined, duration * joined);
        let (file_offset, decode) = (self.at, self.decode);
        self.at = file_offset.saturating_add(bytes.into());
        self.decode = decode.saturating_add(duration.into());
        self.left -= joined;
        let is_start = flags & IS_NO_START == 0;
        Ok(MediaSample { file_offset, bytes, decode, offset, duration, is_start })
    }
}

/// Number of fields present.
fn count_of<const COUNT: usize>(fields: [bool; COUNT]) -> u64 {
    fields.into_iter().filter(|&is_there| is_there).count() as u64
}
