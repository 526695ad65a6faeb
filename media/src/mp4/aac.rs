// SPDX-License-Identifier: MIT OR Apache-2.0
//! AudioSpecificConfig: object type, sampling rate and channels of an AAC track.
//!
//! Sources: ISO/IEC 14496-3 §1.6.2.1 (syntax), tables 1.17 (object types), 1.18 (rates), 1.19
//! (channels); RFC 3640 §4.1 (the clock rate is that of the core codec).
//! Does not look for the implicit signalling of HE-AAC, which only a decoder finds.

use crate::tracks::AacConfig;

const RATES_HZ: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];

/// Object types whose frames RFC 3640 sends as AAC-hbr: Main, LC, SSR, LTP, HE-AAC and its second
/// version, scalable, error resilient ones, low delay ones, and USAC.
const OBJECT_TYPES: [u8; 12] = [1, 2, 3, 4, 5, 6, 17, 19, 23, 29, 39, 42];

/// What a configuration tells. `channels` are those of the sample entry, for a configuration that
/// describes its channels by a list of elements. None where it is no AAC.
pub(super) fn config(specific: Vec<u8>, channels: u8) -> Option<AacConfig> {
    let mut bits = Bits { bytes: &specific, at: 0 };
    let object_type = bits.object_type()?;
    let rate_hz = bits.rate_hz()?;
    let configuration = bits.read(4)?;
    let channels = match configuration {
        0 => channels,
        1..=6 => configuration as u8,
        7 | 12 | 14 => 8,
        11 => 7,
        13 => 24,
        _ => return None,
    };
    let is_known = OBJECT_TYPES.contains(&object_type) && rate_hz > 0 && channels > 0;
    is_known.then_some(AacConfig { specific, object_type, rate_hz, channels })
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn read(&mut self, count: usize) -> Option<u32> {
        let mut number = 0;
        for at in self.at..self.at + count {
            let bit = self.bytes.get(at / 8)? >> (7 - at % 8) & 1;
            number = number << 1 | u32::from(bit);
        }
        self.at += count;
        Some(number)
    }

    fn object_type(&mut self) -> Option<u8> {
        Some(match self.read(5)? {
            31 => 32 + self.read(6)? as u8,
            object_type => object_type as u8,
        })
    }

    fn rate_hz(&mut self) -> Option<u32> {
        match self.read(4)? {
            15 => self.read(24),
            index => RATES_HZ.get(index as usize).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(specific: &[u8]) -> Option<(u8, u32, u8)> {
        let config = config(specific.to_vec(), 6)?;
        Some((config.object_type, config.rate_hz, config.channels))
    }

    #[test]
    fn configurations_have_the_rate_of_the_core() {
        assert_eq!(found(&[0x12, 0x10]), Some((2, 44_100, 2)));
        // HE-AAC: 24 kHz, doubled to 48 kHz by the decoder.
        assert_eq!(found(&[0x2b, 0x11, 0x88, 0x00]), Some((5, 24_000, 2)));
        assert_eq!(found(&[0xeb, 0x09, 0x88, 0x00]), Some((29, 24_000, 1)));
        // A rate of its own, 24 bits.
        assert_eq!(found(&[0x17, 0x80, 0x5d, 0xc0, 0x10]), Some((2, 48_000, 2)));
        // USAC, by the escaped object type 42.
        assert_eq!(found(&[0xf9, 0x46, 0x40]), Some((42, 48_000, 2)));
        assert_eq!(found(&[0x11, 0x80]), Some((2, 48_000, 6)), "the channels of the entry");
    }

    #[test]
    fn other_configurations_are_no_aac() {
        for specific in [&[][..], &[0x12], &[0x16, 0x80], &[0x17, 0x80, 0, 0, 0x10]] {
            assert_eq!(found(specific), None, "{specific:?}");
        }
        assert_eq!(found(&[0xf9, 0x02, 0x40]), None, "layer III of object type 40");
    }
}
