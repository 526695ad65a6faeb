// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of AC-3 and Enhanced AC-3 frames.
//!
//! Sources: ETSI TS 102 366 §4.3.1, §4.4.1 and table 4.13 (AC-3), annex E §E.1.2.2 and §E.1.3.1
//! (Enhanced AC-3).
//! Does not accept frames at reduced sampling rates, or with swapped bytes in each word.

use super::{Frame, HEADER_BYTES};
use crate::tracks::Codec;

/// Sampling frequencies by fscod.
const RATES_HZ: [u32; 3] = [48_000, 44_100, 32_000];
/// Kilobits a second by frmsizecod / 2.
const KILOBITS: [u32; 19] =
    [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640];
/// Full channels by acmod.
const CHANNELS: [u8; 8] = [2, 1, 2, 3, 3, 4, 4, 5];
/// Blocks of a frame by numblkscod.
const BLOCKS: [u32; 4] = [1, 2, 3, 6];
/// Samples of a block.
const BLOCK_SAMPLES: u32 = 256;

pub(crate) fn parse(header: &[u8; HEADER_BYTES]) -> Option<Frame> {
    let [0x0b, 0x77, second, third, fourth, fifth, ..] = *header else { return None };
    // bsid is at the same place in both.
    match fifth >> 3 {
        0..=8 => ac3(fourth, [header[6], header[7]]),
        11..=16 => enhanced(second, third, fourth),
        _ => None,
    }
}

fn ac3(sizes: u8, [mode, more]: [u8; 2]) -> Option<Frame> {
    let rate_hz = *RATES_HZ.get(usize::from(sizes >> 6))?;
    let kilobits = *KILOBITS.get(usize::from(sizes >> 1 & 31))?;
    // 1536 samples a frame, in words of 16 bits; an odd code has one word more at 44.1 kHz.
    let mut words = 96_000 * kilobits / rate_hz;
    if rate_hz == 44_100 {
        words += u32::from(sizes & 1);
    }
    let mode = u16::from_be_bytes([mode, more]);
    let channels = mode >> 13;
    // Two bits each: centre mix, surround mix, Dolby Surround.
    let levels = [channels & 1 != 0 && channels != 1, channels & 4 != 0, channels == 2];
    let skipped = 2 * levels.into_iter().filter(|&there| there).count();
    let has_low = mode >> (12 - skipped) & 1 != 0;
    let channels = CHANNELS[usize::from(channels)] + u8::from(has_low);
    let codec = Codec::Ac3 { rate_hz, channels };
    Some(Frame { bytes: 2 * words, skipped: 0, rate_hz, duration: 6 * BLOCK_SAMPLES, codec })
}

fn enhanced(second: u8, third: u8, fourth: u8) -> Option<Frame> {
    let (kind, substream) = (second >> 6, second >> 3 & 7);
    let bytes = 2 * (u32::from(second & 7) << 8 | u32::from(third)) + 2;
    let rate_hz = *RATES_HZ.get(usize::from(fourth >> 6))?;
    let samples = BLOCKS[usize::from(fourth >> 4 & 3)] * BLOCK_SAMPLES;
    let channels = CHANNELS[usize::from(fourth >> 1 & 7)] + (fourth & 1);
    // A dependent substream adds channels to the frame before, and one of another number is a
    // programme beside it; 3 is reserved.
    let duration = match kind {
        0 | 2 if substream == 0 => samples,
        0..=2 => 0,
        _ => return None,
    };
    let codec = Codec::Eac3 { rate_hz, channels };
    (bytes >= HEADER_BYTES as u32).then_some(Frame { bytes, skipped: 0, rate_hz, duration, codec })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(header: [u8; HEADER_BYTES]) -> Option<(u32, u32, Codec)> {
        parse(&header).map(|frame| (frame.bytes, frame.duration, frame.codec))
    }

    /// Headers as ffmpeg 5.1 writes them.
    #[test]
    fn headers_of_encoders_tell_size_rate_and_channels() {
        let stereo = [0x0b, 0x77, 0x41, 0xd0, 0x14, 0x40, 0x43, 0xe1, 0x06, 0xf5];
        let codec = Codec::Ac3 { rate_hz: 48_000, channels: 2 };
        assert_eq!(parsed(stereo), Some((768, 1536, codec)), "192 kb/s");
        let codec = Codec::Ac3 { rate_hz: 44_100, channels: 2 };
        let mut other = stereo;
        other[4] = 0x54;
        assert_eq!(parsed(other), Some((834, 1536, codec.clone())), "192 kb/s at 44.1 kHz");
        other[4] = 0x55;
        assert_eq!(parsed(other), Some((836, 1536, codec)), "with a word more");
        let surround = [0x0b, 0x77, 0x0d, 0xce, 0x1e, 0x40, 0xeb, 0xf8, 0x40, 0x3e];
        let codec = Codec::Ac3 { rate_hz: 48_000, channels: 6 };
        assert_eq!(parsed(surround), Some((1792, 1536, codec)), "448 kb/s");
    }

    #[test]
    fn dependent_substreams_have_no_time_of_their_own() {
        let main = [0x0b, 0x77, 0x03, 0xce, 0x3f, 0x87, 0xc0, 0x00, 0x20, 0x80];
        let codec = Codec::Eac3 { rate_hz: 48_000, channels: 6 };
        assert_eq!(parsed(main), Some((1950, 1536, codec.clone())));
        let mut dependent = main;
        dependent[2] = 0x43;
        assert_eq!(parsed(dependent), Some((1950, 0, codec)));
    }

    #[test]
    fn reserved_values_are_no_frames() {
        let good = [0x0b, 0x77, 0, 0, 0x14, 0x40, 0x43, 0xe1, 0, 0];
        assert!(parsed(good).is_some());
        for (at, value) in [(0, 0x0c), (1, 0x76), (4, 0xc0), (4, 0x3e), (5, 0x48), (5, 0x88)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(parsed(bad), None, "byte {at} = {value:#x}");
        }
        let short = [0x0b, 0x77, 0x00, 0x01, 0x3f, 0x87, 0, 0, 0, 0];
        assert_eq!(parsed(short), None, "an enhanced frame of four bytes");
    }
}
