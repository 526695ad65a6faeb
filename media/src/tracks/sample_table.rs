// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sample table: place, size and times of each sample of a track.
//!
//! The table is the same for every container: a demuxer pushes samples in decoding order, and
//! neighbours that continue each other share a record. Costs 4 bytes a sample for its size; 8 more
//! if the presentation offset differs from that of the sample before (pictures with B-frames); 4
//! for each random-access point if not every sample is one; 16 for each row of adjacent samples in
//! the file and for each change of duration. An hour of 25 pictures a second with B-frames and of
//! AAC needs 1.8 MB. A sample is found by binary search; neighbours by one step each.
//!
//! Sources: ISO/IEC 14496-12 §8.6.1 (times), §8.6.2 (sync samples), §8.7 (places).
//! Does not read files (over 600 lines because a table and its builder share their fields).

use std::iter::FusedIterator;

/// A sample: an access unit of pictures, or a frame of sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaSample {
    /// Offset of its first byte in the file.
    pub file_offset: u64,
    /// Its size.
    pub bytes: u32,
    /// Time of decoding: media time, in units of the time scale.
    pub decode: u64,
    /// Time from decoding to presentation.
    pub offset: i32,
    /// Time until the next sample's decoding.
    pub duration: u32,
    /// True if decoding can start with it.
    pub is_start: bool,
}

/// Reason for not adding a sample to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleFault {
    /// It is not inside of the file.
    #[error("lies at {offset}, {bytes} bytes long, and the file has {file_bytes} bytes")]
    OutsideFile {
        /// Offset of its first byte.
        offset: u64,
        /// Its size.
        bytes: u32,
        /// Size of the file.
        file_bytes: u64,
    },
    /// It is larger than a sample that is sent.
    #[error("has {bytes} bytes: at most {limit} are streamed")]
    TooLarge {
        /// Its size.
        bytes: u32,
        /// Limit.
        limit: u32,
    },
    /// The samples have more bytes than the file: they overlap.
    #[error("overlaps others: the samples have more bytes than the file")]
    Overlap,
    /// There are too many of them.
    #[error("is one more than the {limit} that are streamed")]
    TooMany {
        /// Limit.
        limit: u32,
    },
    /// Too many within a second.
    #[error("is one more than the {limit} that are streamed of a second")]
    TooDense {
        /// Limit.
        limit: u32,
    },
    /// Too many bytes within a second.
    #[error("is of a second with more than the {limit} bytes that are streamed of one")]
    TooFast {
        /// Limit.
        limit: u64,
    },
    /// The tables of samples are too large: hardly one continues the one before it.
    #[error(
        "comes where the tables take {bytes} bytes of memory, and {limit} are allowed for a file \
         of this size"
    )]
    TableBytes {
        /// Bytes of the tables of all tracks.
        bytes: u64,
        /// Limit.
        limit: u64,
    },
    /// Its decoding time is before that of the sample before it, or exceeds the limit of times.
    #[error("is decoded at {decode}, before the sample before it or beyond all times")]
    Time {
        /// Time of decoding.
        decode: u64,
    },
}

/// Largest sample: a second of 128 Mb/s, and more than a key frame of any profile.
pub const SAMPLE_BYTES_MAX: u32 = 16 << 20;

/// Most samples: a hundred hours of sound, or more of pictures. The tables of that many need at
/// least 64 MB; [`table_bytes_max`] bounds them if they need more.
pub const SAMPLES_MAX: u32 = 1 << 24;

/// Most samples of a second: sound of 2.5 ms a frame has 400.
pub const SAMPLES_PER_SECOND_MAX: u32 = 4096;

/// Samples between two looks at the size of tables.
pub(crate) const TABLE_CHECK_SAMPLES: u32 = 1 << 12;

/// Least and most bytes of the tables of a file.
const TABLE_BYTES: (u64, u64) = (72 << 20, 256 << 20);

/// Bytes of a file for each of its tables.
const FILE_BYTES_PER_TABLE_BYTE: u64 = 16;

/// Most bytes of the tables of all tracks of a file: a sixteenth of it, but at least 72 MiB and at
/// most 256 MiB. A day of 25 pictures a second with B-frames and of AAC needs 48 MB in an MP4 and
/// 142 MB in Matroska, where no frame directly follows another, and is a file of 5 GB and more. A
/// malicious table needs 48 bytes a sample.
pub(crate) fn table_bytes_max(file_bytes: u64) -> u64 {
    (file_bytes / FILE_BYTES_PER_TABLE_BYTE).clamp(TABLE_BYTES.0, TABLE_BYTES.1)
}

/// Checks that the tables of a file, of this many bytes, are not too large.
pub(crate) fn check_table_bytes(bytes: u64, file_bytes: u64) -> Result<(), SampleFault> {
    let limit = table_bytes_max(file_bytes);
    match bytes <= limit {
        true => Ok(()),
        false => Err(SampleFault::TableBytes { bytes, limit }),
    }
}

/// Samples of a row: their sizes are added up to find one of them.
const ROW_SAMPLES_MAX: u32 = 1024;

/// Most bytes of a second: they are in memory together. 537 Mb/s.
const SECOND_BYTES_MAX: u64 = 64 << 20;

/// Latest time of decoding, in units of any time scale.
const TIME_MAX: u64 = 1 << 62;

/// Samples that are adjacent in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) first: u32,
    pub(super) file_offset: u64,
}

/// Samples of one duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) first: u32,
    pub(super) duration: u32,
    pub(super) decode: u64,
}

/// Samples of one presentation offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset {
    pub(super) first: u32,
    pub(super) offset: i32,
}

/// The samples of a track; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleTable {
    pub(super) timescale: u32,
    pub(super) sizes: Vec<u32>,
    pub(super) rows: Vec<Row>,
    pub(super) paces: Vec<Pace>,
    pub(super) offsets: Vec<Offset>,
    /// Numbers of the random-access points; `None` if every sample is one.
    pub(super) starts: Option<Vec<u32>>,
    pub(super) bytes: u64,
    pub(super) presented_end: i64,
    /// Smallest and largest presentation offset.
    offset_range: (i32, i32),
}

impl SampleTable {
    /// Units of media time a second; at least 1.
    pub fn timescale(&self) -> u32 {
        self.timescale
    }

    /// Number of samples.
    #[expect(clippy::len_without_is_empty, reason = "a table has at least one sample")]
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Bytes of all samples.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory of the table.
    pub fn memory_bytes(&self) -> u64 {
        fn of<T>(entries: &Vec<T>) -> usize {
            entries.capacity() * size_of::<T>()
        }
        let starts = self.starts.as_ref().map_or(0, of);
        let all = of(&self.sizes) + of(&self.rows) + of(&self.paces) + of(&self.offsets) + starts;
        (size_of::<SampleTable>() + all) as u64
    }

    /// Memory of its entries, without the reserve for growth.
    fn entry_bytes(&self) -> u64 {
        let starts = self.starts.as_ref().map_or(0, |starts| size_of_val(&starts[..]));
        let parts = size_of_val(&self.sizes[..])
            + size_of_val(&self.rows[..])
            + size_of_val(&self.paces[..])
            + size_of_val(&self.offsets[..]);
        (parts + starts) as u64
    }

    /// Time at which the last sample's duration ends.
    pub fn end(&self) -> u64 {
        let last = self.paces[self.paces.len() - 1];
        let samples = self.sizes.len() as u64 - u64::from(last.first);
        last.decode + samples * u64::from(last.duration)
    }

    /// Time of decoding of the last sample.
    pub fn last_decode(&self) -> u64 {
        self.end() - u64::from(self.paces[self.paces.len() - 1].duration)
    }

    /// The latest end of a sample's presentation, before edits.
    pub fn presented_end(&self) -> i64 {
        self.presented_end
    }

    /// The largest presentation offset.
    pub fn offset_max(&self) -> i32 {
        self.offset_range.1
    }

    /// The smallest presentation offset.
    pub fn offset_min(&self) -> i32 {
        self.offset_range.0
    }

    /// Number of random-access points.
    pub fn starts(&self) -> usize {
        self.starts.as_ref().map_or(self.sizes.len(), Vec::len)
    }

    /// Returns a sample. Panics if there is no such sample.
    pub fn sample(&self, number: usize) -> MediaSample {
        self.samples(number..number + 1).next().expect("the sample is there")
    }

    /// The samples `numbers`, those past the end left out.
    pub fn samples(&self, numbers: std::ops::Range<usize>) -> Samples<'_> {
        let end = numbers.end.min(self.sizes.len());
        let next = numbers.start.min(end);
        let number = next.min(self.sizes.len() - 1) as u32;
        let row = self.rows.partition_point(|row| row.first <= number) - 1;
        let before = &self.sizes[self.rows[row].first as usize..number as usize];
        let skipped: u64 = before.iter().map(|&bytes| u64::from(bytes)).sum();
        let pace = self.paces.partition_point(|pace| pace.first <= number) - 1;
        let offset = self.offsets.partition_point(|offset| offset.first <= number) - 1;
        let start = match &self.starts {
            Some(starts) => starts.partition_point(|&start| start < number),
            None => 0,
        };
        let file_offset = self.rows[row].file_offset + skipped;
        Samples { table: self, next, end, row, file_offset, pace, offset, start }
    }

    /// Number of samples whose time of decoding fulfils `is_before`, which no later one may if an
    /// earlier one does not.
    pub fn partition_point(&self, is_before: impl Fn(u64) -> bool) -> usize {
        let after = self.paces.partition_point(|pace| is_before(pace.decode));
        let Some(pace) = after.checked_sub(1).map(|at| self.paces[at]) else { return 0 };
        let end = self.paces.get(after).map_or(self.sizes.len() as u32, |next| next.first);
        let (mut low, mut high) = (1, u64::from(end - pace.first));
        while low < high {
            let middle = low + (high - low) / 2;
            match is_before(pace.decode + middle * u64::from(pace.duration)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        pace.first as usize + low as usize
    }

    /// Number of the last random-access point for which `fits` is true; points after one that does
    /// not fit do not fit either.
    pub fn last_start(&self, fits: impl Fn(&MediaSample) -> bool) -> Option<usize> {
        let (mut low, mut high) = (0, self.starts());
        while low < high {
            let middle = low + (high - low) / 2;
            match fits(&self.sample(self.start(middle))) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low.checked_sub(1).map(|at| self.start(at))
    }

    /// Number of the first random-access point from sample `number` on.
    pub fn start_from(&self, number: usize) -> Option<usize> {
        match &self.starts {
            None => (number < self.sizes.len()).then_some(number),
            Some(starts) => {
                let at = starts.partition_point(|&start| (start as usize) < number);
                starts.get(at).map(|&start| start as usize)
            }
        }
    }

    /// Presents every sample `units` later. The caller ensures that presentation offsets fit an
    /// i32.
    pub(crate) fn present_later(&mut self, units: i32) {
        for offset in &mut self.offsets {
            offset.offset += units;
        }
        self.presented_end += i64::from(units);
        self.offset_range = (self.offset_range.0 + units, self.offset_range.1 + units);
    }

    /// Number of the sample of a random-access point. Panics if there is no such point.
    pub fn start(&self, index: usize) -> usize {
        self.starts.as_ref().map_or(index, |starts| starts[index] as usize)
    }
}

/// Neighbouring samples, from [`SampleTable::samples`].
#[derive(Debug, Clone)]
pub struct Samples<'a> {
    table: &'a SampleTable,
    next: usize,
    end: usize,
    row: usize,
    file_offset: u64,
    pace: usize,
    offset: usize,
    /// Index of the first random-access point at or behind the next sample.
    start: usize,
}

impl Iterator for Samples<'_> {
    type Item = MediaSample;

    fn next(&mut self) -> Option<MediaSample> {
        if self.next == self.end {
            return None;
        }
        let (table, number) = (self.table, self.next as u32);
        if let Some(row) = table.rows.get(self.row + 1).filter(|row| row.first == number) {
            (self.row, self.file_offset) = (self.row + 1, row.file_offset);
        }
        if table.paces.get(self.pace + 1).is_some_and(|pace| pace.first == number) {
            self.pace += 1;
        }
        if table.offsets.get(self.offset + 1).is_some_and(|offset| offset.first == number) {
            self.offset += 1;
        }
        let is_start = match &table.starts {
            None => true,
            Some(starts) => starts.get(self.start) == Some(&number),
        };
        self.start += usize::from(is_start);
        let (pace, bytes) = (table.paces[self.pace], table.sizes[self.next]);
        let sample = MediaSample {
            file_offset: self.file_offset,
            bytes,
            decode: pace.decode + u64::from(number - pace.first) * u64::from(pace.duration),
            offset: table.offsets[self.offset].offset,
            duration: pace.duration,
            is_start,
        };
        self.next += 1;
        self.file_offset += u64::from(bytes);
        Some(sample)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl ExactSizeIterator for Samples<'_> {}
impl FusedIterator for Samples<'_> {}

/// Collects the samples of a track.
#[derive(Debug, Clone)]
pub struct SampleTableBuilder {
    table: SampleTable,
    file_bytes: u64,
    /// Offset behind the last sample.
    row_end: u64,
    /// Time of decoding behind the last sample.
    end: u64,
    /// The second of decoding that is counted, with its samples and their bytes.
    second: u64,
    in_second: u32,
    bytes_in_second: u64,
}

impl SampleTableBuilder {
    /// A table without samples, for a file of `file_bytes`. `timescale` is at least 1.
    pub fn new(timescale: u32, file_bytes: u64) -> SampleTableBuilder {
        assert!(timescale > 0, "the demuxer refuses a time scale of zero");
        let table = SampleTable {
            timescale,
            sizes: Vec::new(),
            rows: Vec::new(),
            paces: Vec::new(),
            offsets: Vec::new(),
            starts: None,
            bytes: 0,
            presented_end: i64::MIN,
            offset_range: (0, 0),
        };
        SampleTableBuilder {
            table,
            file_bytes,
            row_end: 0,
            end: 0,
            second: 0,
            in_second: 0,
            bytes_in_second: 0,
        }
    }

    /// Sets the size of a file that is still written.
    pub(crate) fn grow(&mut self, file_bytes: u64) {
        self.file_bytes = file_bytes;
    }

    /// Number of samples so far.
    pub fn len(&self) -> usize {
        self.table.sizes.len()
    }

    /// The samples so far.
    pub(crate) fn so_far(&self) -> &SampleTable {
        &self.table
    }

    /// Marks a sample as a random-access point, behind all that are marked.
    pub(crate) fn mark_start(&mut self, number: usize) {
        push(self.table.starts.get_or_insert_default(), number as u32);
    }

    /// Memory of the samples so far, and an eighth more in a long table.
    pub fn table_bytes(&self) -> u64 {
        self.table.entry_bytes()
    }

    /// True if there is no sample yet.
    pub fn is_empty(&self) -> bool {
        self.table.sizes.is_empty()
    }

    /// Duration of the last sample; 0 before the first.
    pub(crate) fn last_duration(&self) -> u32 {
        self.table.paces.last().map_or(0, |pace| pace.duration)
    }

    /// Time of decoding of a sample that follows the last without a gap.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Adds a sample. Its decoding time is not before that of the sample before it, which lasts
    /// until then.
    ///
    /// # Errors
    /// It is outside of the file, overlaps others, is too large, or is out of order.
    pub fn push(&mut self, sample: MediaSample) -> Result<(), SampleFault> {
        let MediaSample { file_offset, bytes, decode, offset, duration, is_start } = sample;
        self.check(&sample)?;
        let table = &mut self.table;
        let number = table.sizes.len() as u32;
        let is_long = table.rows.last().is_some_and(|row| number - row.first >= ROW_SAMPLES_MAX);
        if number == 0 || file_offset != self.row_end || is_long {
            push(&mut table.rows, Row { first: number, file_offset });
        }
        if decode != self.end && number > 0 {
            self.end_last_at(decode);
        }
        let table = &mut self.table;
        if table.paces.last().is_none_or(|pace| pace.duration != duration || decode != self.end) {
            push(&mut table.paces, Pace { first: number, duration, decode });
        }
        if table.offsets.last().is_none_or(|last| last.offset != offset) {
            push(&mut table.offsets, Offset { first: number, offset });
        }
        if !is_start && table.starts.is_none() {
            table.starts = Some((0..number).collect());
        }
        if let Some(starts) = table.starts.as_mut().filter(|_| is_start) {
            push(starts, number);
        }
        push(&mut table.sizes, bytes);
        table.bytes += u64::from(bytes);
        self.row_end = file_offset + u64::from(bytes);
        self.end = decode + u64::from(duration);
        Ok(())
    }

    fn check(&mut self, sample: &MediaSample) -> Result<(), SampleFault> {
        let MediaSample { file_offset: offset, bytes, decode, duration, .. } = *sample;
        let file_bytes = self.file_bytes;
        if offset.checked_add(u64::from(bytes)).is_none_or(|end| end > file_bytes) {
            return Err(SampleFault::OutsideFile { offset, bytes, file_bytes });
        }
        if bytes > SAMPLE_BYTES_MAX {
            return Err(SampleFault::TooLarge { bytes, limit: SAMPLE_BYTES_MAX });
        }
        if self.table.bytes + u64::from(bytes) > file_bytes {
            return Err(SampleFault::Overlap);
        }
        // Empty samples must not make a table larger than their file.
        let limit = u32::try_from(file_bytes).unwrap_or(u32::MAX).min(SAMPLES_MAX);
        if self.table.sizes.len() >= limit as usize {
            return Err(SampleFault::TooMany { limit });
        }
        if self.table.sizes.len().is_multiple_of(TABLE_CHECK_SAMPLES as usize) {
            check_table_bytes(self.table_bytes(), file_bytes)?;
        }
        if decode < self.last_decode() || decode.saturating_add(duration.into()) > TIME_MAX {
            return Err(SampleFault::Time { decode });
        }
        let second = decode / u64::from(self.table.timescale);
        if second != self.second {
            (self.second, self.in_second, self.bytes_in_second) = (second, 0, 0);
        }
        self.in_second += 1;
        self.bytes_in_second += u64::from(bytes);
        if self.in_second > SAMPLES_PER_SECOND_MAX {
            return Err(SampleFault::TooDense { limit: SAMPLES_PER_SECOND_MAX });
        }
        if self.bytes_in_second > SECOND_BYTES_MAX {
            return Err(SampleFault::TooFast { limit: SECOND_BYTES_MAX });
        }
        Ok(())
    }

    /// Time of decoding of the last sample; 0 before the first.
    pub(crate) fn last_decode(&self) -> u64 {
        let Some(pace) = self.table.paces.last() else { return 0 };
        let last = self.table.sizes.len() as u32 - 1;
        pace.decode + u64::from(last - pace.first) * u64::from(pace.duration)
    }

    /// Lets the last sample last until `decode`.
    fn end_last_at(&mut self, decode: u64) {
        let last = self.table.sizes.len() as u32 - 1;
        let begun = self.last_decode();
        let duration = u32::try_from(decode - begun).unwrap_or(u32::MAX);
        let pace = self.table.paces.last_mut().expect("there is a sample");
        match pace.first == last {
            true => pace.duration = duration,
            false => push(&mut self.table.paces, Pace { first: last, duration, decode: begun }),
        }
        self.end = begun + u64::from(duration);
    }

    /// The table; none without a sample, or without a random-access point.
    pub fn finish(self) -> Option<SampleTable> {
        self.finish_part().filter(|table| table.starts() > 0)
    }

    /// The table of a part of a stream, which may have no random-access point; none without a
    /// sample.
    pub(crate) fn finish_part(mut self) -> Option<SampleTable> {
        if self.is_empty() {
            return None;
        }
        // The next sample has set the duration of the one before it, which may now equal that of
        // earlier ones: the table must not depend on the order of these steps.
        self.table.paces.dedup_by(|next, before| {
            let samples = u64::from(next.first - before.first);
            next.duration == before.duration
                && next.decode == before.decode + samples * u64::from(before.duration)
        });
        let table = &mut self.table;
        // The same as if all were marked from the start.
        let samples = table.sizes.len();
        table.starts.take_if(|starts| starts.len() == samples);
        // A table stays in memory as long as its file is served, and grew by doubling.
        table.sizes.shrink_to_fit();
        table.rows.shrink_to_fit();
        table.paces.shrink_to_fit();
        table.offsets.shrink_to_fit();
        table.starts.iter_mut().for_each(Vec::shrink_to_fit);
        // Now that each sample lasts until the next.
        let end = |sample: MediaSample| {
            (sample.decode + u64::from(sample.duration)) as i64 + i64::from(sample.offset)
        };
        let samples = self.table.samples(0..self.table.len());
        self.table.presented_end = samples.map(end).max().unwrap_or(0);
        let offsets = || self.table.offsets.iter().map(|offset| offset.offset);
        self.table.offset_range = (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0));
        Some(self.table)
    }
}

/// Adds an element. A long list grows by an eighth instead of doubling: a file determines the size
/// of its tables.
#[inline]
fn push<T>(list: &mut Vec<T>, element: T) {
    if list.len() == list.capacity() && list.len() >= LONG_LIST {
        list.reserve_exact(list.len() / 8);
    }
    list.push(element);
}

const LONG_LIST: usize = 1 << 16;
