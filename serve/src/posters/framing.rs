// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats on the pipes to and from a decoder: IVF in, JPEG files one behind the other out.
//!
//! IVF is the smallest format that gives each coded picture a time: a header of 32 bytes, and 12
//! bytes before each picture. The times count the pictures, so one that cannot be decoded leaves a
//! gap, which the decoder fills.
//!
//! Sources: libavformat/ivfdec.c; ITU-T T.81 annex B (markers of JPEG).
//! Does not look into pictures.

use media::key_pictures::PictureCoding;

/// Returns the header of a file of pictures, one a second.
pub(super) fn ivf_header(coding: PictureCoding) -> Vec<u8> {
    let mut header = b"DKIF\0\0\x20\0".to_vec();
    header.extend(match coding {
        PictureCoding::Mpeg2 => b"mpg2",
        PictureCoding::Av1 => b"AV01",
        // H.265 has no code of its own: the decoder is named beside.
        _ => b"H264",
    });
    // Width and height, which are in the pictures, too; rate and scale; number of pictures, unused.
    header.extend([16, 0, 16, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    header
}

/// Returns the header of a picture, whose time is its `number`.
pub(super) fn ivf_picture_header(number: u64, bytes: usize) -> [u8; 12] {
    let mut header = [0; 12];
    header[..4].copy_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
    header[4..].copy_from_slice(&number.to_le_bytes());
    header
}

/// Splits JPEG files that lie one behind the other; bytes after the last whole one are dropped.
pub(super) fn jpegs(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(jpeg) = Jpeg::read(bytes) {
        let (file, rest) = bytes.split_at(jpeg.bytes);
        found.push(file.to_vec());
        bytes = rest;
    }
    found
}

/// Fields of a JPEG file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Jpeg {
    pub(super) bytes: usize,
    pub(super) width: u16,
    pub(super) height: u16,
}

impl Jpeg {
    /// Reads the file that begins here; `None` where it is cut off, or none.
    pub(super) fn read(bytes: &[u8]) -> Option<Jpeg> {
        let mut at = bytes.starts_with(&START).then_some(START.len())?;
        let mut size = None;
        loop {
            // Segments have their length, entropy-coded data ends with a marker.
            let &[0xff, marker] = bytes.get(at..at + 2)?.first_chunk()? else { return None };
            at += 2;
            match marker {
                END => {
                    let (width, height) = size?;
                    return Some(Jpeg { bytes: at, width, height });
                }
                0xff => at -= 1,
                0x01 | 0xd0..=0xd7 => {}
                _ => {
                    let segment = bytes.get(at..)?;
                    let length = usize::from(u16::from_be_bytes(*segment.first_chunk()?));
                    let segment = segment.get(2..length)?;
                    if let (0xc0..=0xc2, &[_, a, b, c, d, ..]) = (marker, segment) {
                        size = Some((u16::from_be_bytes([c, d]), u16::from_be_bytes([a, b])));
                    }
                    at += length;
                    if marker == SCAN {
                        at += data_bytes(bytes.get(at..)?)?;
                    }
                }
            }
        }
    }
}

/// Bytes of entropy-coded data, up to the next marker.
fn data_bytes(bytes: &[u8]) -> Option<usize> {
    let is_marker = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0 | 0xd0..=0xd7 | 0xff);
    bytes.windows(2).position(is_marker)
}

const START: [u8; 2] = [0xff, 0xd8];
const END: u8 = 0xd9;
const SCAN: u8 = 0xda;

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of 16 × 8 pixels with a marker in its data, and one that looks like an end in a
    /// comment.
    fn jpeg() -> Vec<u8> {
        let comment = [0xff, 0xfe, 0, 4, 0xff, END];
        let frame = [0xff, 0xc0, 0, 11, 8, 0, 8, 0, 16, 1, 1, 0x11, 0];
        let scan = [0xff, SCAN, 0, 8, 1, 1, 0, 0, 63, 0, 1, 0xff, 0, 2, 0xff, 0xd0, 3];
        [&START[..], &comment, &frame, &scan, &[0xff, END]].concat()
    }

    #[test]
    fn files_are_split_at_their_ends() {
        let one = jpeg();
        let found = Jpeg { bytes: one.len(), width: 16, height: 8 };
        assert_eq!(Jpeg::read(&one), Some(found));
        assert_eq!(jpegs(&[&one[..], &one, &one[..20]].concat()), [&one[..], &one]);
        for end in 0..one.len() {
            assert_eq!(Jpeg::read(&one[..end]), None, "{end}");
        }
        assert!(jpegs(b"no picture").is_empty());
    }

    #[test]
    fn headers_of_ivf_have_their_lengths() {
        assert_eq!(ivf_header(PictureCoding::H264).len(), 32);
        assert_eq!(ivf_picture_header(3, 258), [2, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    }
}
