// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sample tables of a track in `moov`, read side by side.
//!
//! Sizes, places, durations, presentation offsets and random-access points are in separate tables,
//! each with an entry for a sample, a run of samples or a chunk. Each table is read once, from
//! front to back, a slice of 48 KiB at a time: 288 KiB for the track being read, for any length.
//!
//! Samples of PCM are often a frame each. Those of one chunk, size and duration are joined up to a
//! block, so their number costs nothing ([`super::pcm_blocks`]).
//!
//! Missing sizes and places are refused; in other tables the last entry applies to the rest
//! ([`super::odd_tables`]). Entries past the last sample are ignored, as by players.
//!
//! Sources: ISO/IEC 14496-12 §8.6.1 (stts, ctts), §8.6.2 (stss), §8.7.3 (stsz, stz2), §8.7.4
//! (stsc), §8.7.5 (stco, co64).

use super::boxes::{FULL_BYTES, FileBox, Input, broken, spelled};
use super::odd_tables::OddTables;
use super::pcm_blocks::Joined;
use super::slices::Slices;
use crate::DemuxError;
use crate::tracks::{MediaSample, SAMPLES_MAX, SampleFault};

/// Most consecutive empty runs or chunks, or decreasing entries of `stss`: editing programs write a
/// few, none writes millions.
const EMPTY_RUNS_MAX: u32 = 1024;

/// Places of a track's tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableBoxes {
    /// The sample table box, which holds the others.
    pub(super) table: FileBox,
    pub(super) sizes: Option<FileBox>,
    pub(super) compact_sizes: Option<FileBox>,
    pub(super) chunks: Option<FileBox>,
    pub(super) offsets: Option<FileBox>,
    pub(super) long_offsets: Option<FileBox>,
    pub(super) durations: Option<FileBox>,
    pub(super) presentation: Option<FileBox>,
    pub(super) starts: Option<FileBox>,
}

/// A sample and the number of its description, from 1 on.
pub(super) type Described = (MediaSample, u32);

/// Reads the samples of a track.
#[derive(Debug)]
pub(super) struct TableReader {
    sizes: Sizes,
    chunks: Chunks,
    durations: Runs,
    presentation: Option<Runs>,
    starts: Option<Starts>,
    /// How samples are joined, and most of them; only for PCM of one size.
    joined: Option<(Joined, u32)>,
    /// Number of the next sample.
    number: u32,
    /// Its time of decoding.
    decode: u64,
}

/// Reason why no table is read.
pub(super) enum NoTable {
    Error(DemuxError),
    /// There are too many samples, or they overlap.
    Sample(u32, SampleFault),
    /// The sizes of too many samples of PCM are listed.
    ListedFrames,
}

impl From<DemuxError> for NoTable {
    fn from(error: DemuxError) -> Self {
        NoTable::Error(error)
    }
}

impl TableReader {
    /// Opens the tables; `None` if they have no sample, as before fragments. `joined` returns how
    /// samples of a description are joined.
    pub(super) fn open(
        input: &Input<'_>,
        boxes: &TableBoxes,
        joined: impl Fn(u32) -> Option<Joined>,
    ) -> Result<Option<TableReader>, NoTable> {
        let mut sizes = match (boxes.sizes, boxes.compact_sizes) {
            (Some(found), _) => Sizes::open(input, found)?,
            (None, found) => Sizes::open_compact(input, boxes.table.needed(found, b"stsz")?)?,
        };
        if sizes.count == 0 {
            return Ok(None);
        }
        let chunks = Chunks::open(input, boxes)?;
        let joined = joined(chunks.rule_end.description);
        let is_pcm = joined.is_some();
        let joined = joined.filter(|_| sizes.constant > 0).map(|joined| {
            sizes.constant = joined.bytes_of(sizes.constant);
            (joined, joined.samples_max(sizes.constant))
        });
        if sizes.count > SAMPLES_MAX && is_pcm && joined.is_none() {
            return Err(NoTable::ListedFrames);
        }
        if sizes.count > SAMPLES_MAX && joined.is_none_or(|(_, most)| most == 1) {
            return Err(NoTable::Sample(SAMPLES_MAX, SampleFault::TooMany { limit: SAMPLES_MAX }));
        }
        // A constant size is the only entry whose count is not bounded by the size of the file.
        if u64::from(sizes.count) * u64::from(sizes.constant) > input.bytes() {
            let fits = input.bytes() / u64::from(sizes.constant);
            return Err(NoTable::Sample(fits as u32, SampleFault::Overlap));
        }
        let durations = boxes.table.needed(boxes.durations, b"stts")?;
        let durations = Runs::open(input, durations)?;
        let presentation = boxes.presentation.map(|found| Runs::open(input, found)).transpose()?;
        // Play can start with each frame of PCM.
        let starts = boxes.starts.filter(|_| !is_pcm);
        let starts = starts.map(|found| Starts::open(input, found)).transpose()?;
        let (number, decode) = (0, 0);
        Ok(Some(TableReader {
            sizes,
            chunks,
            durations,
            presentation,
            starts,
            joined,
            number,
            decode,
        }))
    }

    /// Returns the next sample, or the next ones of PCM as one; `None` after the last.
    pub(super) fn next(&mut self, input: &Input<'_>) -> Result<Option<Described>, DemuxError> {
        let left = self.sizes.count - self.number;
        if left == 0 {
            return Ok(None);
        }
        self.chunks.begin(input)?;
        self.durations.begin(input, self.number)?;
        if self.durations.ended == Some(0) {
            let Runs { found, .. } = self.durations;
            return Err(broken(found.start, format!("{} without a sample", spelled(found.code))));
        }
        if let Some(runs) = &mut self.presentation {
            runs.begin(input, self.number)?;
        }
        let joined = self.joined_samples().min(left);
        let bytes = self.sizes.next(input, self.number)? * joined;
        let (file_offset, description) = self.chunks.pass(joined, bytes);
        let duration = self.durations.pass(joined) * joined;
        // A table of version 0 has unsigned offsets, and QuickTime wrote negative ones into it.
        let offset = self.presentation.as_mut().map_or(0, |runs| runs.pass(joined) as i32);
        let is_start = match &mut self.starts {
            Some(starts) => starts.next(input, self.number)?,
            None => true,
        };
        let decode = self.decode;
        self.number += joined;
        self.decode = decode.saturating_add(duration.into());
        let sample = MediaSample { file_offset, bytes, decode, offset, duration, is_start };
        Ok(Some((sample, description)))
    }

    /// Number of the next samples that are joined: they are in one chunk, without a gap; at least
    /// 1.
    fn joined_samples(&self) -> u32 {
        let is_gapless =
            |joined: &Joined| joined.is_gapless(self.sizes.constant, self.durations.value);
        match &self.joined {
            Some((joined, most)) if is_gapless(joined) => {
                let offsets = self.presentation.as_ref().map_or(u32::MAX, Runs::left);
                self.chunks.left.min(self.durations.left()).min(offsets).min(*most)
            }
            _ => 1,
        }
    }

    /// The findings about the tables, as far as they were read.
    pub(super) fn into_odd(self) -> OddTables {
        let TableReader { durations, presentation, starts, chunks, .. } = self;
        let lists = [Some(durations), presentation.filter(|list| list.ended != Some(0))];
        let ended = lists.into_iter().flatten();
        OddTables {
            ended: ended.filter_map(|list| Some((list.found.code, list.ended?))).collect(),
            first_chunk: Some(chunks.begins).filter(|&first| first != 1),
            starts_back: starts.map_or(0, |starts| starts.back),
            ..OddTables::default()
        }
    }
}

/// Sizes of the samples.
#[derive(Debug)]
struct Sizes {
    count: u32,
    /// Size of each sample; zero if they are listed.
    constant: u32,
    /// Bits of a listed size.
    bits: u8,
    listed: Slices,
    /// The byte of which the last four bits are the next size.
    half: u8,
}

impl Sizes {
    fn open(input: &Input<'_>, found: FileBox) -> Result<Sizes, DemuxError> {
        let [_, _, _, _, a, b, c, d, count @ ..] = found.fields::<12>(input)?;
        let (constant, count) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(count));
        let listed = if constant == 0 { count } else { 0 };
        let listed = Slices::of(&found, FULL_BYTES + 8, u64::from(listed) * 4, listed)?;
        Ok(Sizes { count, constant, bits: 32, listed, half: 0 })
    }

    fn open_compact(input: &Input<'_>, found: FileBox) -> Result<Sizes, DemuxError> {
        let [_, _, _, _, _, _, _, bits, count @ ..] = found.fields::<12>(input)?;
        let count = u32::from_be_bytes(count);
        if !matches!(bits, 4 | 8 | 16) {
            return Err(broken(found.start, format!("stz2 with sizes of {bits} bits")));
        }
        let bytes = (u64::from(count) * u64::from(bits)).div_ceil(8);
        let listed = Slices::of(&found, FULL_BYTES + 8, bytes, count)?;
        Ok(Sizes { count, constant: 0, bits, listed, half: 0 })
    }

    fn next(&mut self, input: &Input<'_>, number: u32) -> Result<u32, DemuxError> {
        if self.constant != 0 {
            return Ok(self.constant);
        }
        Ok(match self.bits {
            32 => u32::from_be_bytes(self.listed.entry(input)?),
            16 => u16::from_be_bytes(self.listed.entry(input)?).into(),
            8 => u8::from_be_bytes(self.listed.entry(input)?).into(),
            _ if number.is_multiple_of(2) => {
                [self.half] = self.listed.entry(input)?;
                u32::from(self.half >> 4)
            }
            _ => u32::from(self.half & 0x0f),
        })
    }
}

/// Entries that each represent a number of samples.
#[derive(Debug)]
struct Runs {
    found: FileBox,
    entries: Slices,
    /// Samples left of the entry that was read last.
    left: u32,
    /// Value of the last run with a sample; 0 before the first.
    value: u32,
    /// Number of the first sample after the last run.
    ended: Option<u32>,
}

impl Runs {
    fn open(input: &Input<'_>, found: FileBox) -> Result<Runs, DemuxError> {
        Ok(Runs {
            found,
            entries: Slices::counted(input, &found, 8)?,
            left: 0,
            value: 0,
            ended: None,
        })
    }

    /// Finds the run of sample `number`; after the last run, its value remains.
    #[inline]
    fn begin(&mut self, input: &Input<'_>, number: u32) -> Result<(), DemuxError> {
        let mut empty = 0;
        while self.left == 0 {
            if self.entries.is_empty() {
                self.ended.get_or_insert(number);
                return Ok(());
            }
            if empty > EMPTY_RUNS_MAX {
                let what = format!("{} with runs of no sample", spelled(self.found.code));
                return Err(broken(self.found.start, what));
            }
            let [a, b, c, d, value @ ..] = self.entries.entry::<8>(input)?;
            self.left = u32::from_be_bytes([a, b, c, d]);
            if self.left > 0 {
                self.value = u32::from_be_bytes(value);
            }
            empty += 1;
        }
        Ok(())
    }

    /// Number of the next samples that have the same value; at least 1.
    fn left(&self) -> u32 {
        if self.ended.is_some() { u32::MAX } else { self.left }
    }

    /// Returns the value of the next samples, and passes them. The caller has found their run.
    #[inline]
    fn pass(&mut self, samples: u32) -> u32 {
        self.left = self.left.saturating_sub(samples);
        self.value
    }
}

/// Numbers of the random-access points.
#[derive(Debug)]
struct Starts {
    found: FileBox,
    entries: Slices,
    /// Number of the next one, from 1 on; 0 after the last.
    next: u32,
    /// Entries that do not increase.
    back: u32,
}

impl Starts {
    fn open(input: &Input<'_>, found: FileBox) -> Result<Starts, DemuxError> {
        let entries = Slices::counted(input, &found, 4)?;
        let mut starts = Starts { found, entries, next: 0, back: 0 };
        starts.advance(input)?;
        Ok(starts)
    }

    fn advance(&mut self, input: &Input<'_>) -> Result<(), DemuxError> {
        let before = std::mem::take(&mut self.next);
        while !self.entries.is_empty() {
            let next = u32::from_be_bytes(self.entries.entry(input)?);
            if next > before {
                self.next = next;
                break;
            }
            self.back += 1;
            if self.back > EMPTY_RUNS_MAX {
                let what = format!("stss with sample {next} behind sample {before}");
                return Err(broken(self.found.start, what));
            }
        }
        Ok(())
    }

    /// True if sample `number` is one.
    fn next(&mut self, input: &Input<'_>, number: u32) -> Result<bool, DemuxError> {
        let is_start = self.next == number + 1;
        if is_start {
            self.advance(input)?;
        }
        Ok(is_start)
    }
}

/// Places of the chunks, and the samples in them.
#[derive(Debug)]
struct Chunks {
    /// The boxes of the chunks' samples and of their places.
    found: (FileBox, FileBox),
    rules: Slices,
    offsets: Slices,
    are_long: bool,
    /// Number of the next chunk, from 1 on.
    chunk: u32,
    /// The current rule, and the first chunk of the next rule; 0 if there is none.
    rule: ChunkRule,
    rule_end: ChunkRule,
    /// The first chunk by the first rule, which holds for chunk 1 in any case.
    begins: u32,
    /// Samples left in the chunk, and the place of the next.
    left: u32,
    at: u64,
}

/// Samples of each chunk from `first` on.
#[derive(Debug, Clone, Copy, Default)]
struct ChunkRule {
    first: u32,
    samples: u32,
    description: u32,
}

impl Chunks {
    fn open(input: &Input<'_>, boxes: &TableBoxes) -> Result<Chunks, DemuxError> {
        let of_samples = boxes.table.needed(boxes.chunks, b"stsc")?;
        let (places, are_long) = match boxes.long_offsets {
            Some(found) => (found, true),
            None => (boxes.table.needed(boxes.offsets, b"stco")?, false),
        };
        let rules = Slices::counted(input, &of_samples, 12)?;
        let offsets = Slices::counted(input, &places, if are_long { 8 } else { 4 })?;
        let mut chunks = Chunks {
            found: (of_samples, places),
            rules,
            offsets,
            are_long,
            chunk: 1,
            rule: ChunkRule::default(),
            rule_end: ChunkRule::default(),
            begins: 1,
            left: 0,
            at: 0,
        };
        chunks.read_rule(input)?;
        if chunks.rule_end.first == 0 {
            return Err(broken(of_samples.start, "stsc without an entry"));
        }
        Ok(chunks)
    }

    /// Reads the rule after the current one.
    fn read_rule(&mut self, input: &Input<'_>) -> Result<(), DemuxError> {
        self.rule = self.rule_end;
        self.rule_end = ChunkRule::default();
        if self.rules.is_empty() {
            return Ok(());
        }
        let [a, b, c, d, e, f, g, h, description @ ..] = self.rules.entry::<12>(input)?;
        let [mut first, samples] = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
        let place = self.found.0.start;
        if self.rule.first == 0 {
            self.begins = std::mem::replace(&mut first, 1);
        }
        if first <= self.rule.first {
            let what = format!("stsc with chunk {first} behind chunk {}", self.rule.first);
            return Err(broken(place, what));
        }
        let description = u32::from_be_bytes(description);
        self.rule_end = ChunkRule { first, samples, description };
        Ok(())
    }

    /// Finds the chunk of the next sample.
    #[inline]
    fn begin(&mut self, input: &Input<'_>) -> Result<(), DemuxError> {
        let mut empty = 0;
        while self.left == 0 {
            if empty > EMPTY_RUNS_MAX {
                let what = format!("stsc with no sample in chunk {}", self.chunk - 1);
                return Err(broken(self.found.0.start, what));
            }
            self.enter(input)?;
            empty += 1;
        }
        Ok(())
    }

    /// Returns place and description of the next samples, which have `bytes`, and passes them. The
    /// caller has found their chunk.
    #[inline]
    fn pass(&mut self, samples: u32, bytes: u32) -> (u64, u32) {
        self.left -= samples;
        let at = self.at;
        self.at = at.saturating_add(bytes.into());
        (at, self.rule.description)
    }

    /// Advances to the next chunk.
    fn enter(&mut self, input: &Input<'_>) -> Result<(), DemuxError> {
        if self.offsets.is_empty() {
            let (name, chunks) = (spelled(self.found.1.code), self.chunk - 1);
            let what = format!("{name} of {chunks} chunks, which are not all samples");
            return Err(broken(self.found.1.start, what));
        }
        if self.rule_end.first == self.chunk {
            self.read_rule(input)?;
        }
        self.at = match self.are_long {
            true => u64::from_be_bytes(self.offsets.entry(input)?),
            false => u32::from_be_bytes(self.offsets.entry(input)?).into(),
        };
        self.left = self.rule.samples;
        self.chunk = self.chunk.saturating_add(1);
        Ok(())
    }
}
