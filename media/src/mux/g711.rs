// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes A-law and mu-law: a table of 256 samples of 16 bits for each law.
//!
//! A byte has a sign, a segment of three bits and a step of four bits within the segment. The steps
//! of a segment are twice as large as those of the segment below, and a byte stands for the middle
//! of its step. The samples of 13 bits (A-law) and 14 bits (mu-law) fill the upper bits of 16, so
//! that both laws are as loud as linear PCM. Costs two tables of 512 bytes, computed by the
//! compiler, and one look-up a sample.
//!
//! Sources: ITU-T G.711 (11/1988) §3 and tables 1a to 2b.
//! Does not encode.

/// Samples of A-law by their bytes.
pub(super) const A_LAW: [i16; 256] = table(true);

/// Samples of mu-law by their bytes.
pub(super) const MU_LAW: [i16; 256] = table(false);

const fn table(is_a_law: bool) -> [i16; 256] {
    let mut samples = [0; 256];
    let mut byte = 0;
    while byte < samples.len() {
        samples[byte] = if is_a_law { a_law(byte as u8) } else { mu_law(byte as u8) };
        byte += 1;
    }
    samples
}

/// Returns the segment and the step of a byte.
const fn fields(byte: u8) -> (i16, i16) {
    ((byte >> 4 & 7) as i16, (byte & 15) as i16)
}

/// The even bits are sent inverted; a set sign bit is a positive sample. Segments 0 and 1 have
/// steps of the same size.
const fn a_law(byte: u8) -> i16 {
    let byte = byte ^ 0x55;
    let (segment, step) = fields(byte);
    let middle = step * 16 + 8;
    let size = if segment == 0 { middle } else { (middle + 256) << (segment - 1) };
    if byte & 0x80 != 0 { size } else { -size }
}

/// All bits are sent inverted; a set sign bit is then a negative sample. The segments are shifted
/// by a bias, with which each begins at a power of two.
const fn mu_law(byte: u8) -> i16 {
    const BIAS: i16 = 33 * 4;
    let byte = !byte;
    let (segment, step) = fields(byte);
    let size = ((step * 8 + BIAS) << segment) - BIAS;
    if byte & 0x80 != 0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables 1a and 2a: the decoder output at the last step of each segment, from the loudest
    /// down, where 4096 (A-law) and 8192 (mu-law) are full scale.
    #[test]
    fn segments_have_the_values_of_the_standard() {
        let a_law = [4032, 2016, 1008, 504, 252, 126, 63, 31];
        for (index, value) in a_law.into_iter().enumerate() {
            let byte = (0xff - 0x10 * index as u8) ^ 0x55;
            assert_eq!(A_LAW[usize::from(byte)], 8 * value, "{byte:#04x}");
            assert_eq!(A_LAW[usize::from(byte ^ 0x80)], -8 * value, "{byte:#04x}");
        }
        let mu_law = [8031, 3999, 1983, 975, 471, 219, 93, 30];
        for (index, value) in mu_law.into_iter().enumerate() {
            let byte = 0x80 + 0x10 * index as u8;
            assert_eq!(MU_LAW[usize::from(byte)], 4 * value, "{byte:#04x}");
            assert_eq!(MU_LAW[usize::from(byte & 0x7f)], -4 * value, "{byte:#04x}");
        }
        // The quietest samples: A-law has no zero.
        assert_eq!([0xd5, 0x55].map(|byte| A_LAW[byte]), [8, -8]);
        assert_eq!([0xff, 0x7f].map(|byte| MU_LAW[byte]), [0, 0]);
    }

    /// Decoded by ffmpeg 5.1.9 (`-f alaw`, `-f mulaw`): each 17th byte, and the sum of all.
    #[test]
    fn all_bytes_are_decoded_as_by_ffmpeg() {
        let a_law = [
            -5504, -2624, -24064, -11520, -280, -8, -1248, -592, 7552, 3648, 32256, 15616, 408,
            136, 1760, 848,
        ];
        let mu_law = [
            -32124, -15484, -7420, -3516, -1628, -716, -276, -64, 23932, 11388, 5372, 2492, 1116,
            460, 148, 0,
        ];
        for (at, samples) in a_law.into_iter().zip(mu_law).enumerate() {
            assert_eq!((A_LAW[17 * at], MU_LAW[17 * at]), samples, "{:#04x}", 17 * at);
        }
        assert_eq!(sum(&A_LAW), 0x693a_40ca_62a3_d2a5);
        assert_eq!(sum(&MU_LAW), 0xb91e_65d6_8481_a1a8);
    }

    /// FNV-1a of the samples in the little-endian byte order.
    fn sum(samples: &[i16; 256]) -> u64 {
        let bytes = samples.iter().flat_map(|sample| sample.to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}
