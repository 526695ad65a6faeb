// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoder configuration records: the parameters of a codec as containers hold them.
//!
//! Matroska holds the same records as MP4, without the box around them. Each reader parses the
//! record's bytes and returns the codec, or the fault, in words that follow the name of the codec.
//!
//! Sources: ISO/IEC 14496-15 §5.3.3.1 (avcC), §8.3.3.1 (hvcC); AV1-ISOBMFF §2.3 (av1C); ISO/IEC
//! 14496-3 §1.6.2.1 (AudioSpecificConfig), §1.6.3.4 (rates).
//! Does not parse parameter sets.

use super::{AacConfig, Av1Config, Codec, H264Config, H265Config};

/// Reads an AVCDecoderConfigurationRecord.
pub(crate) fn avc(record: &[u8]) -> Result<Codec, &'static str> {
    let [1, profile, constraints, level, lengths, count, rest @ ..] = record else {
        return Err("its configuration record (avcC) is cut off or of another version");
    };
    let length_bytes = length_bytes(*lengths)?;
    let mut sets = Sets(rest);
    let cut_off = "the parameter sets of its configuration record (avcC) are cut off";
    let sequence_sets = sets.take(usize::from(count & 0x1f)).ok_or(cut_off)?;
    // Old writers omit the remaining fields.
    let count = sets.byte().unwrap_or(0);
    let picture_sets = sets.take(usize::from(count)).ok_or(cut_off)?;
    let profile = [*profile, *constraints, *level];
    Ok(Codec::H264(H264Config { length_bytes, profile, sequence_sets, picture_sets }))
}

/// Reads an HEVCDecoderConfigurationRecord.
pub(crate) fn hevc(record: &[u8]) -> Result<Codec, &'static str> {
    let Some((head, rest)) = record.split_first_chunk::<23>().filter(|(head, _)| head[0] == 1)
    else {
        return Err("its configuration record (hvcC) is cut off or of another version");
    };
    let mut config = H265Config {
        length_bytes: length_bytes(head[21])?,
        profile: head[1..13].try_into().expect("twelve bytes"),
        video_sets: Vec::new(),
        sequence_sets: Vec::new(),
        picture_sets: Vec::new(),
    };
    let mut sets = Sets(rest);
    for _ in 0..head[22] {
        let array = (|| {
            let unit_type = sets.byte()? & 0x3f;
            let count = sets.length()?;
            Some((unit_type, sets.take(count)?))
        })();
        let cut_off = "the parameter sets of its configuration record (hvcC) are cut off";
        match array.ok_or(cut_off)? {
            (32, sets) => config.video_sets.extend(sets),
            (33, sets) => config.sequence_sets.extend(sets),
            (34, sets) => config.picture_sets.extend(sets),
            // Supplemental information, which is also in the samples.
            _ => {}
        }
    }
    Ok(Codec::H265(config))
}

/// Reads an AV1CodecConfigurationRecord.
pub(crate) fn av1(record: &[u8]) -> Result<Codec, &'static str> {
    let [0x81, profile, depth, _, units @ ..] = record else {
        return Err("its configuration record (av1C) is cut off or of another version");
    };
    let bit_depth = match (depth & 0x40 != 0, depth & 0x20 != 0) {
        (false, _) => 8,
        (true, false) => 10,
        (true, true) => 12,
    };
    Ok(Codec::Av1(Av1Config {
        profile: profile >> 5,
        level: profile & 0x1f,
        is_high_tier: depth & 0x80 != 0,
        bit_depth,
        units: units.to_vec(),
    }))
}

/// Parses an AudioSpecificConfig; `channels` is the number in the container, for a configuration
/// that describes its channels by a list of elements.
pub(crate) fn aac(specific: &[u8], channels: u8) -> Result<Codec, &'static str> {
    let unknown = "no AudioSpecificConfig that is known";
    let mut bits = Bits { bytes: specific, at: 0 };
    let object_type = bits.object_type().ok_or(unknown)?;
    // Of the core codec, before spectral band replication (RFC 3640 §4.1).
    let rate_hz = bits.rate_hz().filter(|&rate_hz| rate_hz > 0).ok_or(unknown)?;
    let channels = match bits.take(4).ok_or(unknown)? {
        0 => channels,
        count @ 1..=6 => count as u8,
        7 | 12 | 14 => 8,
        11 => 7,
        13 => 24,
        _ => 0,
    };
    if !OBJECT_TYPES.contains(&object_type) || channels == 0 {
        return Err(unknown);
    }
    Ok(Codec::Aac(AacConfig { specific: specific.to_vec(), object_type, rate_hz, channels }))
}

/// Length bytes of NAL units from the two low bits of a record's field.
fn length_bytes(field: u8) -> Result<u8, &'static str> {
    match field & 3 {
        2 => Err("its NAL units have lengths of three bytes, which no format allows"),
        less_one => Ok(less_one + 1),
    }
}

/// Parameter sets, each after its length in two bytes.
struct Sets<'a>(&'a [u8]);

impl Sets<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn length(&mut self) -> Option<usize> {
        let (length, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(usize::from(u16::from_be_bytes(*length)))
    }

    /// Empty sets are left out.
    fn take(&mut self, count: usize) -> Option<Vec<Vec<u8>>> {
        let mut sets = Vec::new();
        for _ in 0..count {
            let length = self.length()?;
            let (set, rest) = self.0.split_at_checked(length)?;
            self.0 = rest;
            if !set.is_empty() {
                sets.push(set.to_vec());
            }
        }
        Some(sets)
    }
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> Option<u32> {
        let mut value = 0;
        for at in self.at..self.at + count {
            let byte = *self.bytes.get(at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - at % 8) & 1);
        }
        self.at += count;
        Some(value)
    }

    fn object_type(&mut self) -> Option<u8> {
        Some(match self.take(5)? {
            31 => 32 + self.take(6)? as u8,
            object_type => object_type as u8,
        })
    }

    fn rate_hz(&mut self) -> Option<u32> {
        match self.take(4)? {
            15 => self.take(24),
            index => RATES_HZ.get(index as usize).copied(),
        }
    }
}

/// Samples of an access unit by its AudioSpecificConfig: of the core codec.
pub(super) fn aac_unit_samples(specific: &[u8]) -> Option<u32> {
    let mut bits = Bits { bytes: specific, at: 0 };
    let mut object_type = bits.object_type()?;
    bits.rate_hz()?;
    bits.take(4)?;
    // Spectral band replication is signalled before the core codec.
    if matches!(object_type, 5 | 29) {
        bits.rate_hz()?;
        object_type = bits.object_type()?;
    }
    let [long, short] = match object_type {
        1..=4 | 6 | 17 | 19 => [1024, 960],
        23 | 39 => [512, 480],
        _ => return None,
    };
    Some(if bits.take(1)? == 0 { long } else { short })
}

/// Object types whose frames RFC 3640 sends as AAC-hbr: Main, LC, SSR, LTP, high efficiency (SBR)
/// and its second version, scalable, error resilient ones, low delay ones, and USAC (ISO/IEC
/// 14496-3 table 1.17).
const OBJECT_TYPES: [u8; 12] = [1, 2, 3, 4, 5, 6, 17, 19, 23, 29, 39, 42];

/// Sampling frequencies by index (ISO/IEC 14496-3 table 1.18).
pub(crate) const RATES_HZ: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_as_encoders_write_them_are_read() {
        let record =
            [1, 0x64, 0, 0x1f, 0xff, 0xe1, 0, 3, 0x67, 1, 2, 1, 0, 2, 0x68, 3, 0xfd, 0xf8, 0xf8, 0];
        let Ok(Codec::H264(config)) = avc(&record) else { panic!("not read") };
        assert_eq!((config.length_bytes, config.profile), (4, [0x64, 0, 0x1f]));
        assert_eq!(config.sequence_sets, [[0x67, 1, 2]]);
        assert_eq!(config.picture_sets, [[0x68, 3]]);
        for end in (0..11).chain(12..16) {
            assert!(avc(&record[..end]).is_err(), "{end}");
        }
        assert!(avc(&record[..11]).is_ok(), "without picture parameter sets");
        let mut head = [0; 23];
        (head[0], head[1], head[12], head[21], head[22]) = (1, 1, 93, 0x0f, 2);
        let sets = [[0x20, 0, 1, 0, 2, 0x40, 1], [0x21, 0, 1, 0, 2, 0x42, 1]].concat();
        let record = [&head[..], &sets].concat();
        let Ok(Codec::H265(config)) = hevc(&record) else { panic!("not read") };
        assert_eq!((config.length_bytes, config.profile[11]), (4, 93));
        assert_eq!(
            (config.video_sets, config.sequence_sets),
            (vec![vec![0x40, 1]], vec![vec![0x42, 1]])
        );
        for end in 0..record.len() {
            assert!(hevc(&record[..end]).is_err(), "{end}");
        }
        let Ok(codec) = av1(&[0x81, 0x04, 0x0c, 0, 0x0a, 0x0b]) else { panic!("not read") };
        assert_eq!(codec.name(), "av01.0.04M.08");
    }

    fn found(specific: &[u8]) -> Option<(u8, u32, u8)> {
        match aac(specific, 6) {
            Ok(Codec::Aac(config)) => Some((config.object_type, config.rate_hz, config.channels)),
            _ => None,
        }
    }

    #[test]
    fn audio_configurations_have_the_rate_of_their_core() {
        assert_eq!(found(&[0x12, 0x10]), Some((2, 44_100, 2)));
        // High-efficiency AAC: 24 kHz, doubled to 48 kHz by the decoder.
        assert_eq!(found(&[0x2b, 0x11, 0x88, 0x00]), Some((5, 24_000, 2)));
        assert_eq!(found(&[0xeb, 0x09, 0x88, 0x00]), Some((29, 24_000, 1)));
        // An explicit rate of 24 bits.
        assert_eq!(found(&[0x17, 0x80, 0x5d, 0xc0, 0x10]), Some((2, 48_000, 2)));
        // USAC, by the escaped object type 42.
        assert_eq!(found(&[0xf9, 0x46, 0x40]), Some((42, 48_000, 2)));
        assert_eq!(found(&[0x11, 0x80]), Some((2, 48_000, 6)), "the channels of the container");
    }

    #[test]
    fn units_have_the_samples_that_their_configuration_tells() {
        assert_eq!(aac_unit_samples(&[0x12, 0x10]), Some(1024));
        assert_eq!(aac_unit_samples(&[0x12, 0x14]), Some(960));
        // High-efficiency AAC: samples of the core are counted, as by the RTP clock.
        assert_eq!(aac_unit_samples(&[0x2b, 0x11, 0x88, 0x00]), Some(1024));
        assert_eq!(aac_unit_samples(&[0xf9, 0x46, 0x40]), None, "USAC");
        assert_eq!(aac_unit_samples(&[0x12]), None);
    }

    #[test]
    fn other_configurations_are_no_aac() {
        for specific in [&[][..], &[0x12], &[0x16, 0x80], &[0x17, 0x80, 0, 0, 0x10]] {
            assert_eq!(found(specific), None, "{specific:?}");
        }
        assert_eq!(found(&[0xf9, 0x02, 0x40]), None, "layer III of object type 40");
    }
}
