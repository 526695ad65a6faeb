// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the access units of an H.264 or H.265 elementary stream, and its first parameter sets.
//!
//! A PES packet with a presentation time begins an access unit, at its first start code; one
//! without a time continues the previous unit. Only the bytes up to the first slice of each unit
//! are examined, which shows if play can start with it; the rest is counted. A unit therefore costs
//! no memory, whatever its size.
//!
//! Sources: ISO/IEC 14496-10 annex B, §7.3.1, table 7-1; ISO/IEC 23008-2 annex B, table 7-1;
//! ISO/IEC 13818-1 §2.14.1, §2.17.1 (access units in PES packets).
//! Does not split a PES packet that holds several pictures: they form one sample, as they share one
//! time.

use super::time_bases::{SECOND, TimeBases, apart};
use crate::bits::without_emulation;
use crate::random_access::AccessReader;
use crate::tracks::{
    Codec, H264Config, H265Config, MediaSample, SampleFault, SampleTable, SampleTableBuilder,
};
use crate::ts::pes_times::PesTimes;

/// The pictures of one elementary stream so far.
#[derive(Debug)]
pub(super) struct Pictures {
    is_h265: bool,
    table: SampleTableBuilder,
    /// Bytes of the elementary stream so far.
    passed: u64,
    /// Number of zeros directly before, and the position of the first of them.
    zeros: u32,
    zeros_at: Place,
    /// True if the next byte is the header of a NAL unit.
    is_header: bool,
    /// Times of a PES packet whose access unit has not begun.
    pending: Option<UnitStart>,
    current: Option<Unit>,
    /// The current parameter set.
    set: Option<Vec<u8>>,
    sets: Vec<Vec<u8>>,
    /// True if further parameter sets are ignored.
    has_all_sets: bool,
}

/// A position in the file and in the elementary stream.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    file_offset: u64,
    passed: u64,
}

/// Properties of an access unit from its PES packet.
#[derive(Debug, Clone, Copy)]
struct UnitStart {
    presented: u64,
    decoded: u64,
    /// True if the multiplexer signals that play can start here.
    is_indicated: bool,
}

/// The current access unit.
#[derive(Debug)]
struct Unit {
    at: Place,
    decode: i64,
    offset: i32,
    is_start: bool,
    /// Decides at the first slice if play can start here.
    access: AccessReader,
}

impl Pictures {
    pub(super) fn new(is_h265: bool, file_bytes: u64) -> Pictures {
        Pictures {
            is_h265,
            table: SampleTableBuilder::new(SECOND as u32, file_bytes),
            passed: 0,
            zeros: 0,
            zeros_at: Place::default(),
            is_header: false,
            pending: None,
            current: None,
            set: None,
            sets: Vec::new(),
            has_all_sets: false,
        }
    }

    /// Begins a PES packet.
    pub(super) fn begin(&mut self, times: PesTimes, is_indicated: bool) {
        if let PesTimes::Some(presented, decoded) = times {
            let decoded = decoded.unwrap_or(presented);
            self.pending = Some(UnitStart { presented, decoded, is_indicated });
            (self.zeros, self.is_header) = (0, false);
        }
    }

    /// Handles missing packets: no start code may span the gap.
    pub(super) fn lose(&mut self) {
        (self.zeros, self.is_header, self.set) = (0, false, None);
    }

    /// Consumes the next bytes of the elementary stream, which lie at `file_offset`.
    ///
    /// # Errors
    /// A previous unit cannot be sent.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        file_offset: u64,
        bases: &mut TimeBases,
    ) -> Result<(), SampleFault> {
        for (index, &byte) in bytes.iter().enumerate() {
            let is_looked_at = self.pending.is_some()
                || self.set.is_some()
                || self.current.as_ref().is_some_and(|unit| unit.access.verdict().is_none());
            if !is_looked_at {
                (self.zeros, self.is_header) = (0, false);
                break;
            }
            if let Some(set) = self.set.as_mut().filter(|set| set.len() < SET_BYTES_MAX) {
                set.push(byte);
            }
            let begins = std::mem::take(&mut self.is_header);
            if begins {
                self.take_set_header(byte);
            }
            if let Some(unit) = &mut self.current {
                if begins {
                    unit.access.begin_nal();
                }
                unit.access.take(byte);
            }
            match byte {
                0 => {
                    if self.zeros == 0 {
                        let here = index as u64;
                        let passed = self.passed + here;
                        self.zeros_at = Place { file_offset: file_offset + here, passed };
                    }
                    self.zeros += 1;
                }
                1 if self.zeros >= 2 => {
                    self.take_start_code(bases)?;
                    (self.zeros, self.is_header) = (0, true);
                }
                _ => self.zeros = 0,
            }
        }
        self.passed += bytes.len() as u64;
        Ok(())
    }

    /// Handles a complete start code, at whose first byte the previous unit may end.
    fn take_start_code(&mut self, bases: &mut TimeBases) -> Result<(), SampleFault> {
        if let Some(mut set) = self.set.take().filter(|set| set.len() < SET_BYTES_MAX) {
            // The start code is not part of the set, nor are zeros before it.
            set.pop();
            set.truncate(set.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
            if self.sets.len() < SETS_MAX && !self.sets.contains(&set) {
                self.sets.push(set);
            }
        }
        let Some(start) = self.pending.take() else { return Ok(()) };
        let ahead = apart(start.presented, start.decoded);
        let ahead = if ahead.abs() > AHEAD_MAX { 0 } else { ahead };
        let last = self.current.as_ref().map(|unit| unit.decode);
        // The picture before a gap has a long duration, the next one does not.
        let duration = i64::from(self.table.last_duration()).min(SECOND / 2);
        let expected = last.map(|last| last + duration);
        let placed = bases.place(start.decoded, ahead, expected);
        let decode = placed.max(last.unwrap_or(0));
        let offset = ahead + placed - decode;
        self.end_unit(decode)?;
        self.current = Some(Unit {
            at: self.zeros_at,
            decode,
            offset: offset as i32,
            is_start: start.is_indicated,
            access: AccessReader::new(self.is_h265),
        });
        Ok(())
    }

    /// Appends the current unit, which lasts until `end`; the next one begins with the last zeros.
    fn end_unit(&mut self, end: i64) -> Result<(), SampleFault> {
        let Some(unit) = self.current.take() else { return Ok(()) };
        let bytes = self.zeros_at.passed - unit.at.passed;
        self.table.push(MediaSample {
            file_offset: unit.at.file_offset,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            decode: unit.decode as u64,
            offset: unit.offset,
            duration: u32::try_from(end - unit.decode).unwrap_or(u32::MAX),
            is_start: unit.is_start || unit.access.verdict() == Some(true),
        })
    }

    fn take_set_header(&mut self, header: u8) {
        let is_set = match self.is_h265 {
            true => (32..=34).contains(&(header >> 1 & 0x3f)),
            false => matches!(header & 0x1f, 7 | 8),
        };
        let is_wanted = self.sets.len() < SETS_MAX && self.table.len() < SETS_SAMPLES;
        if is_set && is_wanted && !self.has_all_sets {
            self.set = Some(vec![header]);
        }
    }

    /// Returns codec and samples.
    ///
    /// # Errors
    /// The reason why the track is left out.
    pub(super) fn finish(mut self) -> Result<(Codec, SampleTable), PicturesFault> {
        self.end_last().map_err(|fault| PicturesFault::Sample(self.table.len(), fault))?;
        let codec = codec(self.is_h265, &self.sets).ok_or(PicturesFault::NoSets)?;
        let samples = self.table.finish().ok_or(PicturesFault::NoStart)?;
        Ok((codec, samples))
    }

    /// Returns the samples of a part of a stream, and the codec if the part contains its parameter
    /// sets; none without samples.
    pub(super) fn finish_part(mut self) -> Option<(Option<Codec>, SampleTable)> {
        self.end_last().ok()?;
        let samples = self.table.finish_part()?;
        Some((codec(self.is_h265, &self.sets), samples))
    }

    /// Ends the current unit at the end of the stream.
    fn end_last(&mut self) -> Result<(), SampleFault> {
        let duration = i64::from(self.table.last_duration());
        let Some(unit) = &self.current else { return Ok(()) };
        let end = unit.decode + if duration > 0 { duration } else { SECOND / 25 };
        self.zeros_at.passed = self.passed;
        self.end_unit(end)
    }

    /// Ignores all further parameter sets.
    pub(super) fn end_sets(&mut self) {
        self.has_all_sets = true;
    }

    /// Returns the file offset of the current unit.
    pub(super) fn begun(&self) -> Option<u64> {
        self.current.as_ref().map(|unit| unit.at.file_offset)
    }

    /// Returns the number of samples so far.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}

/// Reason why pictures are not sent.
#[derive(Debug)]
pub(super) enum PicturesFault {
    Sample(usize, SampleFault),
    NoSets,
    NoStart,
}

/// Returns the codec described by parameter sets.
fn codec(is_h265: bool, sets: &[Vec<u8>]) -> Option<Codec> {
    let of_type = |wanted: u8| -> Vec<Vec<u8>> {
        let unit_type = |set: &Vec<u8>| if is_h265 { set[0] >> 1 & 0x3f } else { set[0] & 0x1f };
        sets.iter().filter(|set| !set.is_empty() && unit_type(set) == wanted).cloned().collect()
    };
    if !is_h265 {
        let (sequence_sets, picture_sets) = (of_type(7), of_type(8));
        let profile = *sequence_sets.first()?.get(1..)?.first_chunk()?;
        let length_bytes = LENGTH_BYTES;
        return Some(Codec::H264(H264Config {
            length_bytes,
            profile,
            sequence_sets,
            picture_sets,
        }));
    }
    let (video_sets, sequence_sets, picture_sets) = (of_type(32), of_type(33), of_type(34));
    // The profile follows the header and a byte of identifiers (ISO/IEC 23008-2 §7.3.2.2).
    let profile = *without_emulation(sequence_sets.first()?).get(3..)?.first_chunk()?;
    let length_bytes = LENGTH_BYTES;
    Some(Codec::H265(H265Config { length_bytes, profile, video_sets, sequence_sets, picture_sets }))
}

/// Size of the lengths that replace start codes.
pub(super) const LENGTH_BYTES: u8 = 4;

/// Largest parameter set in the description of the codec; larger ones are only sent with the
/// pictures.
const SET_BYTES_MAX: usize = 1024;

/// Parameter sets in the description of the codec: a stream has a few.
const SETS_MAX: usize = 16;

/// Access units that are searched for parameter sets: several minutes.
const SETS_SAMPLES: usize = 1 << 14;

/// Largest time from decoding to presentation; more is an error of the file.
const AHEAD_MAX: i64 = 10 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE: [u8; 6] = [0x67, 0x64, 0, 0x1f, 0xac, 1];

    /// Feeds PES packets of pictures 40 ms apart, cut into pieces of `piece` bytes; the offset in
    /// the file is that in the stream plus 1000.
    fn fed(packets: &[(bool, Vec<u8>)], piece: usize) -> Pictures {
        let mut pictures = Pictures::new(false, 1 << 20);
        let mut bases = TimeBases::default();
        let mut passed = 0;
        for (number, (has_time, bytes)) in packets.iter().enumerate() {
            if *has_time {
                let time = 3600 * number as u64;
                pictures.begin(PesTimes::Some(time + 7200, Some(time)), false);
            } else {
                pictures.begin(PesTimes::None, false);
            }
            for piece in bytes.chunks(piece) {
                pictures.take(piece, 1000 + passed, &mut bases).unwrap();
                passed += piece.len() as u64;
            }
        }
        pictures
    }

    fn samples(pictures: Pictures) -> Vec<MediaSample> {
        let (_, table) = pictures.finish().unwrap();
        table.samples(0..table.len()).collect()
    }

    fn key_frame() -> Vec<u8> {
        let sets = [&[0, 0, 0, 1][..], &SEQUENCE, &[0, 0, 0, 1, 0x68, 9, 0, 0, 0, 1, 0x65, 7, 7]];
        [&[0, 0, 0, 1, 9, 0xf0][..], &sets.concat()].concat()
    }

    fn other() -> Vec<u8> {
        vec![0, 0, 0, 1, 9, 0xf0, 0, 0, 0, 1, 0x41, 5, 0, 0, 1, 0x41, 6]
    }

    #[test]
    fn a_unit_begins_with_its_pes_packet_however_that_is_cut() {
        let packets = [(true, key_frame()), (true, other()), (true, other()), (true, key_frame())];
        let sizes = packets.clone().map(|(_, bytes)| bytes.len());
        for piece in 1..40 {
            let found = samples(fed(&packets, piece));
            let bytes: Vec<_> = found.iter().map(|sample| sample.bytes as usize).collect();
            assert_eq!(bytes, sizes, "{piece}");
            let starts: Vec<_> = found.iter().map(|sample| sample.is_start).collect();
            assert_eq!(starts, [true, false, false, true]);
            assert_eq!(found[1].file_offset, 1000 + sizes[0] as u64);
            assert!(found.iter().all(|s| (s.offset, s.duration) == (7200, 3600)), "{found:?}");
        }
    }

    #[test]
    fn bytes_before_a_start_code_and_packets_without_a_time_belong_to_the_unit_before() {
        let mut late = vec![0xaa, 0, 0xbb];
        late.extend(other());
        let packets = [(true, key_frame()), (false, other()), (true, late), (true, other())];
        let found = samples(fed(&packets, 7));
        let bytes: Vec<_> = found.iter().map(|sample| sample.bytes as usize).collect();
        let all = key_frame().len() + other().len() + 3;
        assert_eq!(bytes, [all, other().len(), other().len()]);
        assert_eq!(found[0].duration, 7200, "the packet without a time has that of the other");
    }

    #[test]
    fn parameter_sets_are_found_once_and_without_the_zeros_behind() {
        let mut again = key_frame();
        again.splice(4..4, [0; 3]);
        let pictures = fed(&[(true, key_frame()), (true, again), (true, other())], 5);
        let Ok((Codec::H264(config), _)) = pictures.finish() else { panic!("no codec") };
        assert_eq!(config.sequence_sets, [SEQUENCE]);
        assert_eq!(config.picture_sets, [[0x68, 9]]);
        assert_eq!((config.length_bytes, config.profile), (4, [0x64, 0, 0x1f]));
    }

    #[test]
    fn streams_without_what_a_decoder_needs_have_a_reason() {
        let bare = fed(&[(true, other()), (true, other())], 9).finish();
        assert!(matches!(bare, Err(PicturesFault::NoSets)), "{bare:?}");
        let mut sets = key_frame();
        sets.truncate(sets.len() - 7);
        let pictures = fed(&[(false, sets), (true, other()), (true, other())], 9);
        assert!(matches!(pictures.finish(), Err(PicturesFault::NoSets)), "before any unit");
        let empty = Pictures::new(true, 1000).finish();
        assert!(matches!(empty, Err(PicturesFault::NoSets)));
    }

    #[test]
    fn a_unit_without_an_end_costs_no_memory_and_is_a_fault() {
        let mut pictures = Pictures::new(false, 1 << 30);
        let mut bases = TimeBases::default();
        pictures.begin(PesTimes::Some(0, None), false);
        pictures.take(&key_frame(), 0, &mut bases).unwrap();
        let mebibyte = vec![0; 1 << 20];
        for number in 0..50_u64 {
            pictures.take(&mebibyte, 1000 + (number << 20), &mut bases).unwrap();
        }
        pictures.begin(PesTimes::Some(3600, None), false);
        let outcome = pictures.take(&other(), 60 << 20, &mut bases);
        assert!(matches!(outcome, Err(SampleFault::TooLarge { bytes, .. }) if bytes > 50 << 20));
    }
}
