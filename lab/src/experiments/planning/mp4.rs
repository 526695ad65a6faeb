// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the movie as MP4: its tables in `moov`, or in a `moof` a group of pictures.
//!
//! The bytes of samples are a hole in the file, so a movie of hours occupies the space of its
//! tables; a plan does not read them. Chunks and fragments hold a group of pictures and its sound.
//!
//! Sources: ISO/IEC 14496-12 §8 (boxes); ISO/IEC 14496-1 §7.2.6 (esds).
//! Does not write files that can be decoded.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;

use super::movie::{
    AAC_CONFIG, AVC_RECORD, FRAME_SAMPLES, GROUP_PICTURES, Kind, Movie, PICTURES_PER_SECOND,
    SOUND_RATE_HZ, delay_pictures,
};

/// A written file and the places of its samples.
pub(super) struct Written {
    pub(super) bytes: u64,
    /// Offsets of the samples of pictures and of sound.
    pub(super) places: [Vec<u64>; 2],
    /// Places of all samples, in order, neighbours joined.
    pub(super) media: Vec<Range<u64>>,
}

impl Written {
    pub(super) fn new() -> Written {
        Written { bytes: 0, places: Default::default(), media: Vec::new() }
    }

    /// Records a sample at `offset`; returns the offset behind it.
    pub(super) fn put(&mut self, kind: Kind, number: u64, offset: u64) -> u64 {
        let end = offset + u64::from(kind.unit(number).bytes);
        self.places[kind as usize].push(offset);
        match self.media.last_mut() {
            Some(last) if last.end == offset => last.end = end,
            _ => self.media.push(offset..end),
        }
        end
    }

    /// Records a group, its pictures and then its sound; returns the offset behind it.
    fn put_group(&mut self, group: u64, mut offset: u64) -> u64 {
        for kind in Kind::ALL {
            for number in Movie::group(kind, group) {
                offset = self.put(kind, number, offset);
            }
        }
        offset
    }
}

/// Writes `ftyp`, `mdat` and behind them `moov` with all tables.
pub(super) fn write_progressive(file: &File, movie: Movie) -> io::Result<Written> {
    let mut out = BufWriter::new(file);
    let mut written = Written::new();
    let begin = boxed(b"ftyp", &[b"isom\0\0\0\0"]);
    let media_from = begin.len() as u64 + LONG_HEADER_BYTES;
    let mut end = media_from;
    for group in 0..movie.groups {
        end = written.put_group(group, end);
    }
    out.write_all(&begin)?;
    // A size of 1 announces one of 64 bits.
    out.write_all(&words(&[1, u32::from_be_bytes(*b"mdat")]))?;
    out.write_all(&(end - begin.len() as u64).to_be_bytes())?;
    out.seek(SeekFrom::Start(end))?;
    let traks = Kind::ALL.map(|kind| kind.trak(&kind.tables(movie, &written.places)));
    let moov = boxed(b"moov", &[&mvhd(), &traks[0], &traks[1]]);
    out.write_all(&moov)?;
    out.flush()?;
    written.bytes = end + moov.len() as u64;
    Ok(written)
}

/// Writes `ftyp`, `moov` without samples, then `moof` and `mdat` for each group of pictures.
pub(super) fn write_fragmented(file: &File, movie: Movie) -> io::Result<Written> {
    let mut out = BufWriter::new(file);
    let mut written = Written::new();
    let traks = Kind::ALL.map(|kind| kind.trak(&no_tables()));
    let trex = Kind::ALL.map(|kind| boxed(b"trex", &[&words(&[0, kind.id(), 1, 0, 0, SYNC])]));
    let mvex = boxed(b"mvex", &[&trex[0], &trex[1]]);
    let moov = boxed(b"moov", &[&mvhd(), &traks[0], &traks[1], &mvex]);
    let begin = [boxed(b"ftyp", &[b"iso5\0\0\0\0"]), moov].concat();
    out.write_all(&begin)?;
    let mut at = begin.len() as u64;
    for group in 0..movie.groups {
        let media = Kind::ALL.map(|kind| Movie::group_bytes(kind, group));
        // The size of the boxes does not depend on the offsets in them.
        let head = moof(group, 0, media[0]).len() as u64 + HEADER_BYTES;
        out.write_all(&moof(group, head as u32, media[0]))?;
        out.write_all(&words(&[(HEADER_BYTES + media[0] + media[1]) as u32]))?;
        out.write_all(b"mdat")?;
        at = written.put_group(group, at + head);
        out.seek(SeekFrom::Start(at))?;
    }
    out.flush()?;
    drop(out);
    file.set_len(at)?;
    written.bytes = at;
    Ok(written)
}

/// Returns the fragment of a group whose samples lie `head` bytes behind its start.
fn moof(group: u64, head: u32, picture_bytes: u64) -> Vec<u8> {
    let mfhd = boxed(b"mfhd", &[&words(&[0, group as u32 + 1])]);
    let trafs = Kind::ALL.map(|kind| {
        let numbers = Movie::group(kind, group);
        let count = (numbers.end - numbers.start) as u32;
        let tfhd = words(&[DEFAULT_BASE_IS_MOOF | DEFAULT_DURATION, kind.id(), kind.duration()]);
        let decode = numbers.start * u64::from(kind.duration());
        let tfdt = [words(&[1 << 24]), decode.to_be_bytes().to_vec()].concat();
        let (fields, offset) = match kind {
            Kind::Pictures => (OFFSET | SIZES | FLAGS | PRESENTATION, head),
            Kind::Sound => (OFFSET | SIZES, head + picture_bytes as u32),
        };
        let mut trun = words(&[fields, count, offset]);
        for number in numbers {
            let unit = kind.unit(number);
            trun.extend(unit.bytes.to_be_bytes());
            if kind == Kind::Pictures {
                let flags = if unit.is_start { SYNC } else { NO_SYNC };
                trun.extend(words(&[flags, delay_pictures(number) * kind.duration()]));
            }
        }
        let boxes = [(b"tfhd", tfhd), (b"tfdt", tfdt), (b"trun", trun)];
        boxed(b"traf", &boxes.map(|(code, body)| boxed(code, &[&body])).each_ref().map(|b| &b[..]))
    });
    boxed(b"moof", &[&mfhd, &trafs[0], &trafs[1]])
}

impl Kind {
    fn id(self) -> u32 {
        self as u32 + 1
    }

    /// Units of media time a second.
    fn timescale(self) -> u32 {
        match self {
            Kind::Pictures => (PICTURES_PER_SECOND * 512) as u32,
            Kind::Sound => SOUND_RATE_HZ as u32,
        }
    }

    /// Duration of a sample.
    fn duration(self) -> u32 {
        match self {
            Kind::Pictures => 512,
            Kind::Sound => FRAME_SAMPLES as u32,
        }
    }

    /// Returns `trak` with these boxes of `stbl` behind its description.
    fn trak(self, tables: &[u8]) -> Vec<u8> {
        let tkhd = [words(&[7, 0, 0, self.id()]), vec![0; 68]].concat();
        // The language is undetermined.
        let mdhd = [words(&[0, 0, 0, self.timescale(), 0]), vec![0x55, 0xc4, 0, 0]].concat();
        let handler: &[u8; 4] = if self == Kind::Pictures { b"vide" } else { b"soun" };
        let hdlr = [&[0; 8], handler.as_slice(), &[0; 13]].concat();
        let stsd = boxed(b"stsd", &[&words(&[0, 1]), &self.description()]);
        let stbl = boxed(b"stbl", &[&stsd, tables]);
        let minf = boxed(b"minf", &[&stbl]);
        let mdia = boxed(b"mdia", &[&boxed(b"mdhd", &[&mdhd]), &boxed(b"hdlr", &[&hdlr]), &minf]);
        boxed(b"trak", &[&boxed(b"tkhd", &[&tkhd]), &mdia])
    }

    fn description(self) -> Vec<u8> {
        let header = [0, 0, 0, 0, 0, 0, 0, 1];
        match self {
            Kind::Pictures => boxed(b"avc1", &[&header, &[0; 70], &boxed(b"avcC", &[&AVC_RECORD])]),
            Kind::Sound => {
                let fields = words(&[0, 0, 2 << 16 | 16, 0, (SOUND_RATE_HZ as u32) << 16]);
                let specific = [&[5, 2], &AAC_CONFIG[..]].concat();
                // DecoderConfigDescriptor: AAC, an audio stream, no buffer size and rates.
                let decoder = [&[4, 17, 0x40, 0x15], &[0; 11][..], &specific].concat();
                let stream = [&[3, 25, 0, 1, 0], &decoder[..], &[6, 1, 2]].concat();
                let esds = boxed(b"esds", &[&words(&[0]), &stream]);
                boxed(b"mp4a", &[&header, &fields, &esds])
            }
        }
    }

    /// Returns the tables of all samples, whose offsets are `places`.
    fn tables(self, movie: Movie, places: &[Vec<u64>; 2]) -> Vec<u8> {
        let count = movie.count(self);
        let sizes = (0..count).flat_map(|number| self.unit(number).bytes.to_be_bytes());
        let mut tables = [
            table(b"stts", 2, &[count as u32, self.duration()]),
            boxed(b"stsz", &[&words(&[0, 0, count as u32]), &sizes.collect::<Vec<u8>>()]),
            table(b"stsc", 3, &self.chunks(movie)),
        ]
        .concat();
        let firsts = (0..movie.groups).map(|group| Movie::before(self, group) as usize);
        let chunks: Vec<u8> =
            firsts.flat_map(|first| places[self as usize][first].to_be_bytes()).collect();
        tables.extend(boxed(b"co64", &[&words(&[0, movie.groups as u32]), &chunks]));
        if self == Kind::Pictures {
            let delays = (0..count).map(|number| delay_pictures(number) * self.duration());
            tables.extend(table(b"ctts", 2, &runs(delays)));
            let starts = (0..movie.groups as u32).map(|group| group * GROUP_PICTURES as u32 + 1);
            tables.extend(table(b"stss", 1, &starts.collect::<Vec<u32>>()));
        }
        tables
    }

    /// Returns the entries of `stsc`: first chunk, samples of each, description.
    fn chunks(self, movie: Movie) -> Vec<u32> {
        let mut entries = Vec::new();
        let mut last = 0;
        for group in 0..movie.groups {
            let numbers = Movie::group(self, group);
            let samples = (numbers.end - numbers.start) as u32;
            if samples != last {
                entries.extend([group as u32 + 1, samples, 1]);
                last = samples;
            }
        }
        entries
    }
}

/// Returns neighbours of one value as their number and the value.
fn runs(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut runs: Vec<u32> = Vec::new();
    for value in values {
        match runs.last_chunk_mut() {
            Some([count, last]) if *last == value => *count += 1,
            _ => runs.extend([1, value]),
        }
    }
    runs
}

fn no_tables() -> Vec<u8> {
    let empty = [(b"stts", 2), (b"stsc", 3), (b"stco", 1)];
    let mut tables = empty.map(|(code, entry_words)| table(code, entry_words, &[])).concat();
    tables.extend(boxed(b"stsz", &[&words(&[0, 0, 0])]));
    tables
}

fn mvhd() -> Vec<u8> {
    boxed(b"mvhd", &[&words(&[0, 0, 0, 1000, 0]), &[0; 80]])
}

fn boxed(code: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(HEADER_BYTES as u32 + body.len() as u32).to_be_bytes(), code.as_slice(), &body].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns a box of version and flags, a count, and entries of `entry_words` numbers.
fn table(code: &[u8; 4], entry_words: usize, entries: &[u32]) -> Vec<u8> {
    boxed(code, &[&words(&[0, (entries.len() / entry_words) as u32]), &words(entries)])
}

const HEADER_BYTES: u64 = 8;
const LONG_HEADER_BYTES: u64 = 16;
/// Flags of samples (§8.8.3.1): a sync sample, and none.
const SYNC: u32 = 0x0200_0000;
const NO_SYNC: u32 = 0x0101_0000;
/// Flags of `tfhd` (§8.8.7.1).
const DEFAULT_BASE_IS_MOOF: u32 = 0x02_0000;
const DEFAULT_DURATION: u32 = 0x8;
/// Flags of `trun` (§8.8.8.1): its fields.
const OFFSET: u32 = 0x1;
const SIZES: u32 = 0x200;
const FLAGS: u32 = 0x400;
const PRESENTATION: u32 = 0x800;
