// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses a block: its frames, by place and size.
//!
//! A block has a track number, a time relative to its cluster, flags, and one frame or, laced,
//! several. Costs one read of at most [`HEAD_BYTES`] a block.
//!
//! Sources: RFC 9559 §10 (block structure), §10.3 (lacing).
//! Does not read frames.

use super::ebml::{self, NoElement, Window};
use crate::read_at::ReadAt;

/// Head of a block, and the places of its frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) track: u64,
    /// Time relative to the cluster's.
    pub(super) time: i16,
    /// Bit 7 of a SimpleBlock's flags.
    pub(super) is_key: bool,
    /// Offset and size of each frame; at least one.
    pub(super) frames: Vec<(u64, u32)>,
}

/// Parses the header of a block whose content is `body..end`.
pub(super) fn read<F: ReadAt + ?Sized>(
    window: &Window<'_, F>,
    body: u64,
    end: u64,
) -> Result<Block, NoElement> {
    let broken = |what| NoElement::Broken { offset: body, what };
    let (bytes, count) = window.bytes::<HEAD_BYTES>(body)?;
    let head = &bytes[..count.min((end - body).min(HEAD_BYTES as u64) as usize)];
    let (track, track_bytes) = ebml::number(head).ok_or_else(|| broken("no track number"))?;
    let Some(&[high, low, flags]) = head.get(track_bytes..track_bytes + 3) else {
        return Err(broken("a block without time and flags"));
    };
    let rest = track_bytes + 3;
    let (sizes, used) = match flags >> 1 & 3 {
        0 => (Vec::new(), 0),
        lacing => laced(lacing, &head[rest..], end - body - rest as u64)
            .ok_or_else(|| broken("a lace whose sizes do not fit its block"))?,
    };
    let mut at = body + (rest + used) as u64;
    let mut frames = Vec::with_capacity(sizes.len() + 1);
    for size in sizes {
        frames.push((at, size));
        at += u64::from(size);
    }
    let last = end.checked_sub(at).and_then(|bytes| u32::try_from(bytes).ok());
    frames.push((at, last.ok_or_else(|| broken("a block larger than a frame can be"))?));
    Ok(Block { track, time: i16::from_be_bytes([high, low]), is_key: flags & 0x80 != 0, frames })
}

/// Returns the sizes of all frames of a lace except the last, which has the rest of the block, and
/// the bytes in which they are written; `None` if they are broken or do not fit `room` bytes.
fn laced(lacing: u8, bytes: &[u8], room: u64) -> Option<(Vec<u32>, usize)> {
    let frames = usize::from(*bytes.first()?) + 1;
    let mut at = 1;
    let mut sizes = Vec::with_capacity(frames - 1);
    match lacing {
        // Xiph: bytes of 255 add up until a smaller one.
        1 => {
            for _ in 1..frames {
                let mut size = 0;
                loop {
                    let byte = *bytes.get(at)?;
                    at += 1;
                    size += u32::from(byte);
                    if byte < u8::MAX {
                        break;
                    }
                }
                sizes.push(size);
            }
        }
        // Fixed: all frames have one size.
        2 => {
            let each = (room - 1) / frames as u64;
            let is_even = (room - 1).is_multiple_of(frames as u64);
            sizes.resize(frames - 1, u32::try_from(each).ok().filter(|_| is_even)?);
        }
        // EBML: the first size, then differences.
        _ => {
            let mut size = 0_i64;
            for frame in 1..frames {
                let (value, count) = ebml::number(bytes.get(at..)?)?;
                at += count;
                let bias = (1_i64 << (7 * count - 1)) - 1;
                size = match frame {
                    1 => i64::try_from(value).ok()?,
                    _ => size + i64::try_from(value).ok()? - bias,
                };
                sizes.push(u32::try_from(size).ok()?);
            }
        }
    }
    let sum: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
    (at as u64 + sum <= room).then_some((sizes, at))
}

/// Bytes of the longest head: a lace of 256 frames, each size in four bytes.
const HEAD_BYTES: usize = 1100;

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(content: &[u8]) -> Result<Block, NoElement> {
        let content = content.to_vec();
        let end = content.len() as u64;
        read(&Window::new(&content, end), 0, end)
    }

    fn sizes(content: &[u8]) -> Option<Vec<u32>> {
        let block = read_all(content).ok()?;
        let end = block.frames.last().map(|(at, size)| at + u64::from(*size));
        assert_eq!(end, Some(content.len() as u64), "the frames fill the block");
        Some(block.frames.iter().map(|frame| frame.1).collect())
    }

    #[test]
    fn a_block_of_one_frame_is_that_frame() {
        let block = read_all(&[0x81, 0xff, 0xfe, 0x80, 1, 2, 3]).unwrap();
        let expected = Block { track: 1, time: -2, is_key: true, frames: vec![(4, 3)] };
        assert_eq!(block, expected);
    }

    #[test]
    fn laces_of_each_kind_are_read() {
        // RFC 9559 §10.3.2: frames of 800, 500 and 1000 bytes by Xiph lacing.
        let head = [&[0x81, 0, 0, 0x02, 2][..], &[0xff, 0xff, 0xff, 0x23, 0xff, 0xf5]].concat();
        let block = [head, vec![0; 2300]].concat();
        assert_eq!(sizes(&block), Some(vec![800, 500, 1000]));
        // §10.3.3: parses the sizes of EBML lacing.
        let head = [0x81, 0, 0, 0x06, 2, 0x43, 0x20, 0x5e, 0xd3];
        let block = [&head[..], &[0; 2300]].concat();
        assert_eq!(sizes(&block), Some(vec![800, 500, 1000]));
        // §10.3.4: frames of one size.
        let block = [&[0x81, 0, 0, 0x04, 2][..], &[0; 2400]].concat();
        assert_eq!(sizes(&block), Some(vec![800, 800, 800]));
    }

    #[test]
    fn broken_laces_are_refused() {
        let cases: [&[u8]; 6] = [
            &[0x81, 0, 0],
            &[0x81, 0, 0, 0x02],
            &[0x81, 0, 0, 0x02, 9, 0xff],
            &[0x81, 0, 0, 0x02, 1, 7, 0, 0],
            &[0x81, 0, 0, 0x04, 2, 1, 2, 3, 4],
            &[0x81, 0, 0, 0x06, 2, 0x83, 0x80, 0, 0],
        ];
        for case in cases {
            assert!(read_all(case).is_err(), "{case:?}");
        }
    }
}
