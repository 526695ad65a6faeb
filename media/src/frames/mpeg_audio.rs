// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of MPEG audio frames, of layers I to III.
//!
//! Sources: ISO/IEC 11172-3 §2.4.2.3, ISO/IEC 13818-3 §2.4.2.3 (lower rates); the Xing and Info
//! tags as LAME writes them.
//! Does not read frames of free format, whose headers give no size.

use super::{Frame, HEADER_BYTES};
use crate::DemuxError;
use crate::read_at::ReadAt;
use crate::tracks::Codec;

/// Kilobits a second by layer and index: layers I, II and III of MPEG-1, I of MPEG-2, II and III
/// of MPEG-2.
const KILOBITS: [[u32; 15]; 5] = [
    [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];
/// Samples a second of MPEG-1; MPEG-2 has half of them, MPEG-2.5 a quarter.
const RATES_HZ: [u32; 3] = [44_100, 48_000, 32_000];

pub(crate) fn parse(header: &[u8; HEADER_BYTES]) -> Option<Frame> {
    let [0xff, second, third, ..] = *header else { return None };
    let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
    if second >> 5 != 7 || version == 1 || layer == 0 {
        return None;
    }
    let divisor = match version {
        3 => 1,
        2 => 2,
        _ => 4,
    };
    let rate_hz = RATES_HZ.get(usize::from(third >> 2 & 3))? / divisor;
    let table = match (divisor, layer) {
        (1, 3) => 0,
        (1, 2) => 1,
        (1, _) => 2,
        (_, 3) => 3,
        _ => 4,
    };
    // 0 is free format.
    let kilobits = *KILOBITS[table].get(usize::from(third >> 4)).filter(|&&rate| rate > 0)?;
    let padding = u32::from(third >> 1 & 1);
    let (bytes, duration) = match layer {
        3 => ((12_000 * kilobits / rate_hz + padding) * 4, 384),
        1 if divisor > 1 => (72_000 * kilobits / rate_hz + padding, 576),
        _ => (144_000 * kilobits / rate_hz + padding, 1152),
    };
    Some(Frame { bytes, skipped: 0, rate_hz, duration, codec: Codec::MpegAudio })
}

/// True if the frame at `offset` holds a table of contents and no sound.
pub(super) fn is_info(file: &(impl ReadAt + ?Sized), offset: u64) -> Result<bool, DemuxError> {
    // After the header and the side information, which has one of three lengths in layer III.
    let mut bytes = [0; 40];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let names = [13, 21, 36].map(|at| &bytes[at..at + 4]);
    Ok(names.iter().any(|name| matches!(*name, b"Xing" | b"Info")))
}
