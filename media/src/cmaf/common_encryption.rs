// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments in the `cbcs` scheme of common encryption: selects the bytes to encrypt, and writes the
//! boxes that describe them.
//!
//! Of each slice of pictures the first 128 bytes (H.264) or 256 (H.265) stay clear, because
//! hardware decoders read slice headers; of the rest one block in ten is encrypted. Of a sample of
//! sound all whole blocks are encrypted. All messages start with the same initialization vector,
//! which the initialization section holds.
//!
//! Costs a look at the length of each NAL unit, and 6 bytes a slice in the segment.
//!
//! Sources: ISO/IEC 23001-7 §8.1 (pssh), §8.2 (tenc), §7.2 (senc), §9.5 (subsamples), §10.4 (cbcs);
//! ISO/IEC 14496-12 §8.12 (sinf), §8.7.8 and §8.7.9 (saiz, saio).
//! Does not encrypt, create keys, or read slice headers; AV1, whose tiles it would have to find, is
//! refused ([`is_protectable`]).

use std::io;
use std::ops::Range;

use super::movie_fragment::{BOX_BYTES, FULL_BOX_BYTES, FragmentTrack, box_head, full_box_head};
use crate::tracks::Codec;

/// Bytes of a slice that stay clear, including its header. Headers of x264 with 16 references and
/// weights have 33 bytes; those of x265 in 1080 rows 50, most of them two or three for each row of
/// blocks, which 4K has twice.
const CLEAR_BYTES_H264: usize = 128;
const CLEAR_BYTES_H265: usize = 256;

/// Encrypted blocks of pictures, and the clear blocks after them.
const PATTERN: (u8, u8) = (1, 9);

/// Bytes of a block of the cipher.
const BLOCK_BYTES: usize = 16;

/// Parameters that players need beside the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommonEncryption {
    /// Identifier of the key.
    pub key_id: [u8; 16],
    /// Initialization vector of every message.
    pub iv: [u8; 16],
}

/// Bytes of a segment's media that are one message of the cipher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedBytes {
    /// Their offsets: whole blocks.
    pub bytes: Range<usize>,
    /// Clear blocks after each encrypted one.
    pub clear_blocks: usize,
}

/// True for a codec whose samples can be encrypted.
pub(super) fn is_protectable(codec: &Codec) -> bool {
    !matches!(codec, Codec::Av1(_))
}

/// Subsamples of the samples of a track in a segment.
pub(super) struct SubsampleMaps {
    /// Number of subsamples of each sample.
    counts: Vec<u8>,
    /// Clear bytes, and the protected ones after them.
    subsamples: Vec<(u16, u32)>,
}

const SUBSAMPLE_BYTES: usize = 6;

/// Subsamples of a sample at most: their size is one byte.
const SUBSAMPLES_MAX: usize = (u8::MAX as usize - 2) / SUBSAMPLE_BYTES;

/// Finds the bytes to encrypt of a track whose samples are in `media`, appends them to `protected`,
/// and returns the maps that pictures need.
///
/// # Errors
/// A sample whose clear bytes cannot be described.
pub(super) fn protect(
    fragment: &FragmentTrack<'_>,
    media: &[u8],
    protected: &mut Vec<ProtectedBytes>,
) -> io::Result<Option<SubsampleMaps>> {
    let codec = &fragment.track.codec;
    let length_bytes = super::init_section::length_bytes(codec);
    let mut maps = SubsampleMaps { counts: Vec::new(), subsamples: Vec::new() };
    for sample in &fragment.samples {
        let start = sample.file_offset as usize;
        let bytes = &media[start..start + sample.bytes as usize];
        let Some(length_bytes) = length_bytes else {
            let whole = whole_blocks(bytes.len());
            if whole > 0 {
                protected.push(ProtectedBytes { bytes: start..start + whole, clear_blocks: 0 });
            }
            continue;
        };
        let mut slices = slices(codec, bytes, length_bytes.into());
        let map = loop {
            let map = subsamples(bytes.len(), &slices);
            if map.len() <= SUBSAMPLES_MAX {
                break map;
            }
            if slices.is_empty() {
                let found = "a sample has more clear bytes than its boxes can name, 2.7 MB";
                return Err(io::Error::new(io::ErrorKind::InvalidData, found));
            }
            drop_smallest(&mut slices, map.len() - SUBSAMPLES_MAX);
        };
        maps.counts.push(map.len() as u8);
        maps.subsamples.extend(map);
        protected.extend(slices.into_iter().map(|slice| ProtectedBytes {
            bytes: start + slice.start..start + slice.end,
            clear_blocks: PATTERN.1.into(),
        }));
    }
    Ok(length_bytes.map(|_| maps))
}

/// Leaves this many of the smallest slices clear.
fn drop_smallest(slices: &mut Vec<Range<usize>>, count: usize) {
    let mut by_size: Vec<usize> = (0..slices.len()).collect();
    by_size.sort_by_key(|&at| slices[at].len());
    by_size.truncate(count);
    by_size.sort_unstable();
    by_size.into_iter().rev().for_each(|at| _ = slices.remove(at));
}

const fn whole_blocks(bytes: usize) -> usize {
    bytes / BLOCK_BYTES * BLOCK_BYTES
}

/// The bytes of a sample's slices that are protected. A length that leads out of the sample ends
/// them.
fn slices(codec: &Codec, sample: &[u8], length_bytes: usize) -> Vec<Range<usize>> {
    let (mut slices, mut at) = (Vec::new(), 0);
    while let Some(length) = sample.get(at..at + length_bytes) {
        let length = length.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
        let start = at + length_bytes;
        at = start + length;
        let Some(&first) = sample.get(start).filter(|_| length > 0 && at <= sample.len()) else {
            break;
        };
        let (is_slice, clear) = match codec {
            // ITU-T H.264 table 7-1: slices, and their partitions of data.
            Codec::H264(_) => ((1..=5).contains(&(first & 0x1f)), CLEAR_BYTES_H264),
            // ITU-T H.265 table 7-1: all types of slices.
            _ => ((first >> 1) & 0x3f < 32, CLEAR_BYTES_H265),
        };
        let bytes = whole_blocks(length.saturating_sub(clear));
        if is_slice && bytes > 0 {
            slices.push(start + clear..start + clear + bytes);
        }
    }
    slices
}

/// Returns the subsamples of a sample of this many bytes.
fn subsamples(sample_bytes: usize, slices: &[Range<usize>]) -> Vec<(u16, u32)> {
    let mut map = Vec::with_capacity(slices.len() + 1);
    let mut put = |mut clear: usize, protected: usize| {
        while clear > usize::from(u16::MAX) {
            map.push((u16::MAX, 0));
            clear -= usize::from(u16::MAX);
        }
        if clear + protected > 0 {
            map.push((clear as u16, protected as u32));
        }
    };
    let mut at = 0;
    for slice in slices {
        put(slice.start - at, slice.len());
        at = slice.end;
    }
    put(sample_bytes - at, 0);
    map
}

impl SubsampleMaps {
    fn sample_bytes(count: u8) -> usize {
        2 + SUBSAMPLE_BYTES * usize::from(count)
    }

    fn senc_bytes(&self) -> usize {
        let samples = self.counts.iter().map(|&count| Self::sample_bytes(count));
        FULL_BOX_BYTES + 4 + samples.sum::<usize>()
    }

    fn saiz_bytes(&self) -> usize {
        FULL_BOX_BYTES + 5 + self.counts.len()
    }

    /// Bytes of the boxes.
    pub(super) fn bytes(&self) -> usize {
        self.saiz_bytes() + SAIO_BYTES + self.senc_bytes()
    }

    /// Appends the boxes to a `traf` of the `moof` that begins with `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        full_box_head(out, self.saiz_bytes(), b"saiz", 0, 0);
        // No size that all have.
        out.push(0);
        out.extend((self.counts.len() as u32).to_be_bytes());
        out.extend(self.counts.iter().map(|&count| Self::sample_bytes(count) as u8));
        full_box_head(out, SAIO_BYTES, b"saio", 0, 0);
        out.extend(1_u32.to_be_bytes());
        let first = out.len() + 4 + FULL_BOX_BYTES + 4;
        out.extend((first as u32).to_be_bytes());
        full_box_head(out, self.senc_bytes(), b"senc", 0, HAS_SUBSAMPLES);
        out.extend((self.counts.len() as u32).to_be_bytes());
        let mut rest = &self.subsamples[..];
        for &count in &self.counts {
            let (own, behind) = rest.split_at(count.into());
            rest = behind;
            out.extend(u16::from(count).to_be_bytes());
            for (clear, protected) in own {
                out.extend(clear.to_be_bytes());
                out.extend(protected.to_be_bytes());
            }
        }
    }
}

const SAIO_BYTES: usize = FULL_BOX_BYTES + 8;
/// Flag of `senc`.
const HAS_SUBSAMPLES: u32 = 2;

/// System of the `pssh` box that holds identifiers of keys and nothing else.
const COMMON_SYSTEM: [u8; 16] = [
    0x10, 0x77, 0xef, 0xec, 0xc0, 0xb2, 0x4d, 0x02, 0xac, 0xe3, 0x3c, 0x1e, 0x52, 0xe2, 0xfb, 0x4b,
];

/// Path of boxes from `moov` to sample descriptions.
const CONTAINERS: [&[u8; 4]; 5] = [b"moov", b"trak", b"mdia", b"minf", b"stbl"];

impl CommonEncryption {
    /// Appends the `pssh` box with the identifier of the key, and no data.
    fn put_pssh(&self, out: &mut Vec<u8>) {
        full_box_head(out, FULL_BOX_BYTES + 16 + 4 + 16 + 4, b"pssh", 1, 0);
        out.extend(COMMON_SYSTEM);
        out.extend(1_u32.to_be_bytes());
        out.extend(self.key_id);
        out.extend(0_u32.to_be_bytes());
    }

    /// Converts an initialization section ([`super::init_section`]) to one of encrypted tracks.
    pub(super) fn protected(&self, section: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(section.len() + 512);
        for (kind, content) in boxes(section) {
            if CONTAINERS.contains(&kind) {
                let mut content = self.protected(content);
                if kind == b"moov" {
                    self.put_pssh(&mut content);
                }
                put_box(&mut out, kind, &content);
            } else if kind == b"stsd" {
                let (head, entries) = content.split_at(8);
                let mut content = head.to_vec();
                boxes(entries).for_each(|entry| self.protect_entry(entry, &mut content));
                put_box(&mut out, kind, &content);
            } else {
                put_box(&mut out, kind, content);
            }
        }
        out
    }

    /// Appends a sample description as one of protected samples.
    fn protect_entry(&self, (kind, content): (&[u8; 4], &[u8]), out: &mut Vec<u8>) {
        let is_video = matches!(kind, b"avc1" | b"avc3" | b"hvc1" | b"hev1");
        let mut sinf = Vec::new();
        put_box(&mut sinf, b"frma", kind);
        full_box_head(&mut sinf, FULL_BOX_BYTES + 8, b"schm", 0, 0);
        sinf.extend(b"cbcs\0\x01\0\0");
        let mut tenc = Vec::new();
        full_box_head(&mut tenc, FULL_BOX_BYTES + 4 + 16 + 1 + 16, b"tenc", 1, 0);
        let pattern = if is_video { PATTERN.0 << 4 | PATTERN.1 } else { 0 };
        // The pattern; protected; no initialization vector of a sample, but one of all.
        tenc.extend([0, pattern, 1, 0]);
        tenc.extend(self.key_id);
        tenc.push(self.iv.len() as u8);
        tenc.extend(self.iv);
        put_box(&mut sinf, b"schi", &tenc);
        let mut content = content.to_vec();
        put_box(&mut content, b"sinf", &sinf);
        put_box(out, if is_video { b"encv" } else { b"enca" }, &content);
    }
}

/// Returns the boxes written here: kind and content.
fn boxes(bytes: &[u8]) -> impl Iterator<Item = (&[u8; 4], &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (size, behind) = rest.split_first_chunk::<4>()?;
        let kind = behind.first_chunk::<4>()?;
        let size = (u32::from_be_bytes(*size) as usize).clamp(BOX_BYTES, rest.len());
        let content = &rest[BOX_BYTES..size];
        rest = &rest[size..];
        Some((kind, content))
    })
}

fn put_box(out: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) {
    box_head(out, BOX_BYTES + content.len(), kind);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_sample_is_clear_or_protected() {
        let (lead, unit) = (CLEAR_BYTES_H264, |kind: u8, bytes: usize| {
            let mut unit = (bytes as u32).to_be_bytes().to_vec();
            unit.push(kind);
            unit.resize(4 + bytes, 0);
            unit
        });
        for (sizes, expected) in [
            (vec![(5, lead + 33)], vec![(4 + lead as u16, 32), (1, 0)]),
            (vec![(5, lead + 15)], vec![(4 + lead as u16 + 15, 0)]),
            // Parameters and messages stay clear.
            (vec![(7, 900), (1, lead + 16)], vec![(4 + 900 + 4 + lead as u16, 16)]),
            (
                vec![(6, 70_000), (1, lead + 16)],
                vec![(65_535, 0), ((4 + 70_000 + 4 + lead - 65_535) as u16, 16)],
            ),
            (vec![(9, 2)], vec![(6, 0)]),
        ] {
            let sample: Vec<u8> = sizes.iter().flat_map(|&(kind, size)| unit(kind, size)).collect();
            let codec = crate::cmaf::tests::h264();
            let found = slices(&codec, &sample, 4);
            assert_eq!(subsamples(sample.len(), &found), expected, "{sizes:?}");
        }
    }

    #[test]
    fn the_smallest_of_many_slices_stay_clear() {
        let mut slices: Vec<_> = (0..50).map(|at| at * 100..at * 100 + 32).collect();
        slices[7].end += 16;
        slices[0].end += 16;
        drop_smallest(&mut slices, 10);
        assert_eq!((slices.len(), &slices[0], &slices[1]), (40, &(0..48), &(700..748)));
        drop_smallest(&mut slices, 100);
        assert!(slices.is_empty());
    }

    #[test]
    fn a_length_that_leads_out_of_the_sample_ends_the_slices() {
        let codec = crate::cmaf::tests::h264();
        for sample in [&[0, 0, 1, 0, 5][..], &[0, 0, 0, 0], &[0, 0], &[]] {
            assert_eq!(slices(&codec, sample, 4), [], "{sample:?}");
        }
    }
}
