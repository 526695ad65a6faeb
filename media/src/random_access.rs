// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random access points of H.264 and H.265: the one definition of them.
//!
//! Decoding can begin with an access unit that
//!
//! - refreshes the decoder (an IDR picture of H.264; any IRAP picture of H.265: IDR, BLA, CRA),
//! - announces recovery (SEI recovery_point: open groups of pictures, gradual refresh), or
//! - repeats the sequence parameter set of H.264 before an intra picture, as broadcasters do
//!   without an announcement. A set before any other picture means nothing: cameras repeat it with
//!   each.
//!
//! The first slice decides. Bytes are passed one by one, so that a reader of start codes and one of
//! whole NAL units share it; bytes after the first ones of a slice, and after the headers of
//! messages, are skipped.
//!
//! Sources: ISO/IEC 14496-10 §7.3.2.3.1 (sei_message), §7.3.3 (slice_type), table 7-1, §D.2.8
//! (recovery point); ISO/IEC 23008-2 table 7-1, §7.3.5, §D.3.8.
//! Does not check that a gradual refresh is complete at the announced picture.

use crate::bits::Bits;
use crate::tracks::{Codec, MediaSample, SampleTableBuilder, TrackMedia};

/// Reads one access unit.
#[derive(Debug, Clone)]
pub(crate) struct AccessReader {
    is_h265: bool,
    part: NalPart,
    has_sequence_set: bool,
    has_recovery: bool,
    verdict: Option<bool>,
}

/// Part of a NAL unit to which the next byte belongs.
#[derive(Debug, Clone)]
enum NalPart {
    Header,
    /// The second byte of a header of H.265, before supplemental information.
    HeaderEnd,
    Slice {
        head: [u8; SLICE_BYTES],
        count: usize,
    },
    Messages(Messages),
    Ignored,
}

impl AccessReader {
    /// Returns a reader at the start of an access unit.
    pub(crate) fn new(is_h265: bool) -> AccessReader {
        AccessReader {
            is_h265,
            part: NalPart::Ignored,
            has_sequence_set: false,
            has_recovery: false,
            verdict: None,
        }
    }

    /// True if decoding can begin with an access unit of these NAL units.
    pub(crate) fn is_point<'a>(is_h265: bool, nals: impl Iterator<Item = &'a [u8]>) -> bool {
        let mut reader = AccessReader::new(is_h265);
        for nal in nals {
            reader.begin_nal();
            for &byte in nal {
                reader.take(byte);
                if matches!(reader.part, NalPart::Ignored) {
                    break;
                }
            }
            if let Some(verdict) = reader.verdict {
                return verdict;
            }
        }
        false
    }

    /// The next byte is the first of a NAL unit.
    pub(crate) fn begin_nal(&mut self) {
        self.part = NalPart::Header;
    }

    /// True if decoding can begin with the access unit; `None` before its first slice was read.
    pub(crate) fn verdict(&self) -> Option<bool> {
        self.verdict
    }

    /// Consumes the next byte.
    pub(crate) fn take(&mut self, byte: u8) {
        match &mut self.part {
            NalPart::Ignored => {}
            NalPart::Header => self.part = self.after_header(byte),
            NalPart::HeaderEnd => self.part = NalPart::Messages(Messages::default()),
            NalPart::Slice { head, count } => {
                head[*count] = byte;
                *count += 1;
                let is_full = *count == SLICE_BYTES;
                let found = slice_head(&head[..*count]);
                if found.is_some() || is_full {
                    self.decide(found.is_some_and(|(_, is_intra)| is_intra));
                }
            }
            NalPart::Messages(messages) => {
                if messages.take(byte) == Some(RECOVERY_POINT) {
                    self.has_recovery = true;
                    self.part = NalPart::Ignored;
                }
            }
        }
    }

    fn after_header(&mut self, byte: u8) -> NalPart {
        match (self.is_h265, if self.is_h265 { byte >> 1 & 0x3f } else { byte & 0x1f }) {
            (false, 7) => self.has_sequence_set = true,
            (false, 6) => return NalPart::Messages(Messages::default()),
            (true, 39) => return NalPart::HeaderEnd,
            // An intra picture after a set; other slices are classified by their type alone.
            (false, 1 | 2) if self.has_sequence_set && !self.has_recovery => {
                return NalPart::Slice { head: [0; SLICE_BYTES], count: 0 };
            }
            (false, 5) | (true, 16..=23) => self.decide(true),
            (false, 1..5) | (true, 0..32) => self.decide(self.has_recovery),
            _ => {}
        }
        NalPart::Ignored
    }

    fn decide(&mut self, is_point: bool) {
        self.verdict.get_or_insert(is_point);
        self.part = NalPart::Ignored;
    }
}

/// Marks the random-access points among the samples of a track from `next` on, at most `budget` of
/// them, if it is one of pictures without any; adds their number to `found`. `read` reads from an
/// offset of the file on. True at the track's end.
///
/// # Errors
/// Errors of `read`.
pub(crate) fn find_starts<E>(
    (codec, samples): (&Codec, &mut SampleTableBuilder),
    (next, found): (&mut usize, &mut u32),
    budget: &mut usize,
    read: impl Fn(&mut [u8], u64) -> Result<(), E>,
) -> Result<bool, E> {
    let is_marked = |samples: &SampleTableBuilder| samples.so_far().starts() > 0;
    let is_video = codec.media() == TrackMedia::Video;
    if !is_video || samples.is_empty() || *next == 0 && is_marked(samples) {
        return Ok(true);
    }
    let numbers = *next..next.saturating_add(*budget);
    let some: Vec<MediaSample> = samples.so_far().samples(numbers).collect();
    for sample in &some {
        let read = |bytes: &mut [u8], at: u64| read(bytes, sample.file_offset + at);
        if is_point_of_file(codec, sample.bytes, read)? {
            samples.mark_start(*next);
            *found += 1;
        }
        *next += 1;
    }
    *budget -= some.len();
    Ok(*next == samples.len())
}

/// True if decoding can begin with a sample of a file of this many bytes, which `read` reads from
/// an offset on; NAL units follow their lengths. A temporal unit of AV1 is a point if it starts
/// with a sequence header. Costs a read a NAL unit up to the first slice.
///
/// # Errors
/// Errors of `read`.
fn is_point_of_file<E>(
    codec: &Codec,
    bytes: u32,
    read: impl Fn(&mut [u8], u64) -> Result<(), E>,
) -> Result<bool, E> {
    let (is_h265, length_bytes) = match codec {
        Codec::H264(config) => (false, usize::from(config.length_bytes)),
        Codec::H265(config) => (true, usize::from(config.length_bytes)),
        Codec::Av1(_) => {
            let mut head = [0; 3];
            let head = &mut head[..bytes.min(3) as usize];
            read(head, 0)?;
            // After a temporal delimiter, which has no content.
            let first = head.strip_prefix(&[0x12, 0]).unwrap_or(head).first();
            return Ok(first.is_some_and(|header| header >> 3 & 15 == AV1_SEQUENCE_HEADER));
        }
        _ => return Ok(false),
    };
    let mut reader = AccessReader::new(is_h265);
    let (bytes, mut at) = (u64::from(bytes), 0);
    let mut unit = [0; UNIT_BYTES_READ];
    for _ in 0..UNITS_MAX {
        let there = (bytes - at).min(UNIT_BYTES_READ as u64) as usize;
        if there <= length_bytes {
            break;
        }
        read(&mut unit[..there], at)?;
        let (length, nal) = unit[..there].split_at(length_bytes);
        let length = length.iter().fold(0, |length, &byte| length << 8 | u64::from(byte));
        reader.begin_nal();
        nal.iter()
            .take(usize::try_from(length).unwrap_or(usize::MAX))
            .for_each(|&b| reader.take(b));
        if let Some(verdict) = reader.verdict() {
            return Ok(verdict);
        }
        at += length_bytes as u64 + length;
        if at >= bytes {
            break;
        }
    }
    Ok(false)
}

/// Returns first_mb_in_slice of a slice of H.264, read from after its NAL header, and true for an I
/// slice; `None` if it is truncated.
pub(crate) fn slice_head(head: &[u8]) -> Option<(u32, bool)> {
    let bits = &mut Bits::new(head);
    let (first, kind) = (bits.golomb()?, bits.golomb()?);
    Some((first, kind % 5 == INTRA))
}

/// Headers of the messages of a NAL unit of supplemental information.
#[derive(Debug, Clone, Default)]
struct Messages {
    /// Number of zeros just before: a byte of three after two of them is an emulation prevention
    /// byte.
    zeros: u32,
    /// Sum of the bytes of the type or size that is being read.
    sum: u32,
    is_size: bool,
    /// Bytes of a message still to be stepped over.
    skip: u32,
}

impl Messages {
    /// Consumes the next byte; returns the type of a message whose content begins after it.
    fn take(&mut self, byte: u8) -> Option<u32> {
        if self.zeros >= 2 && byte == 3 {
            self.zeros = 0;
            return None;
        }
        self.zeros = if byte == 0 { self.zeros + 1 } else { 0 };
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.sum = self.sum.saturating_add(byte.into());
        if byte == 0xff {
            return None;
        }
        let sum = std::mem::take(&mut self.sum);
        self.is_size = !self.is_size;
        if self.is_size {
            return Some(sum);
        }
        self.skip = sum;
        None
    }
}

/// first_mb_in_slice of the largest picture has 37 bits, and slice_type seven.
const SLICE_BYTES: usize = 6;

/// Bytes read of a NAL unit: messages before a recovery point are short, or few.
const UNIT_BYTES_READ: usize = 512;

/// Most NAL units before the first slice.
const UNITS_MAX: usize = 64;

/// obu_type of a sequence header (AV1 §6.2.2).
const AV1_SEQUENCE_HEADER: u8 = 1;

/// slice_type of an I slice, modulo 5 (table 7-6).
const INTRA: u32 = 2;

/// payloadType of a recovery point, in both codings.
const RECOVERY_POINT: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn h264(nals: &[&[u8]]) -> bool {
        AccessReader::is_point(false, nals.iter().copied())
    }

    fn h265(nals: &[&[u8]]) -> bool {
        AccessReader::is_point(true, nals.iter().copied())
    }

    const SET: &[u8] = &[0x67, 0x64, 0, 0x1f];
    /// Slices that begin a picture: of I (all slices), I, P (all slices), P; IDR.
    const ALL_INTRA: &[u8] = &[0x41, 0b1000_1000, 0];
    const SOME_INTRA: &[u8] = &[0x41, 0b1011_0000, 0];
    const ALL_PREDICTED: &[u8] = &[0x41, 0b1001_1000, 0];
    const PREDICTED: &[u8] = &[0x41, 0b1100_0000, 0];
    const IDR: &[u8] = &[0x65, 0b1000_1000];
    /// A message of 300 bytes, one with two zeros and an emulation prevention byte, the recovery
    /// point.
    fn recovery(header: &[u8]) -> Vec<u8> {
        let long = [&[5, 0xff, 45][..], &[7; 300]].concat();
        [header, &long, &[1, 3, 0, 0, 3, 6], &[6, 1, 0xc4, 0x80]].concat()
    }

    #[test]
    fn h264_begins_at_refresh_recovery_and_intra_pictures_with_their_set() {
        assert!(h264(&[IDR]) && h264(&[&[0x09, 0xf0], SET, &[0x68, 1], IDR]));
        assert!(h264(&[&recovery(&[0x06]), PREDICTED]));
        assert!(h264(&[SET, ALL_INTRA]) && h264(&[SET, &[0x68, 1], SOME_INTRA]));
        assert!(!h264(&[SET, ALL_PREDICTED]) && !h264(&[SET, PREDICTED]));
        assert!(!h264(&[ALL_INTRA]), "pictures behind it may refer to those before");
        assert!(!h264(&[&[0x06, 5, 3, 6, 1, 0xc4, 0x80], PREDICTED]), "a message with such bytes");
        assert!(!h264(&[SET, &[0x68, 1]]) && !h264(&[]), "no picture");
        assert!(!h264(&[PREDICTED, IDR]), "the first slice decides");
        assert!(!h264(&[SET, &[0x41]]) && !h264(&[&[0x06], &[]]), "cut off");
    }

    #[test]
    fn h265_begins_at_all_intra_random_access_pictures_and_recovery() {
        for kind in 0..32 {
            assert_eq!(h265(&[&[kind << 1, 1, 0x80]]), (16..=23).contains(&kind), "{kind}");
        }
        let messages = recovery(&[39 << 1, 1]);
        assert!(h265(&[&messages, &[2, 1, 0x80]]));
        let suffix = recovery(&[40 << 1, 1]);
        assert!(!h265(&[&suffix, &[2, 1, 0x80]]), "it belongs behind the slices");
    }

    #[test]
    fn bytes_one_by_one_give_the_verdict_at_the_first_slice() {
        let mut reader = AccessReader::new(false);
        for nal in [SET, &recovery(&[0x06])] {
            reader.begin_nal();
            nal.iter().for_each(|&byte| reader.take(byte));
            assert_eq!(reader.verdict(), None);
        }
        reader.begin_nal();
        reader.take(0x41);
        assert_eq!(reader.verdict(), Some(true));
    }
}
