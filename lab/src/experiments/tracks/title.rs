// SPDX-License-Identifier: MIT OR Apache-2.0
//! Titles of the experiment: fragmented MP4 with H.264 at a given rate, with AAC or without.
//!
//! Pictures are NAL units of filler with the sizes of a real encoder's: 25 a second, a key frame
//! every two seconds that is six times as long as the others, whose lengths vary by a half. A
//! server reads their lengths and sends their bytes, so no decoder is needed to judge it.
//!
//! Sources: ISO/IEC 14496-15 §5.3 (samples), RFC 6184 (NAL units); `media::mux`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use media::AccessUnit;
use media::mux::Fmp4Writer;
use media::tracks::{AacConfig, Codec, H264Config};

/// Counts of the written data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Written {
    pub(super) pictures: u64,
    pub(super) sounds: u64,
}

/// Writes `seconds` of pictures at `bits_per_second` to `path`, beside them sound if `has_sound`.
pub(super) fn write(
    path: &Path,
    bits_per_second: u64,
    seconds: u64,
    has_sound: bool,
) -> io::Result<Written> {
    let mut codecs = vec![h264()];
    codecs.extend(has_sound.then(aac));
    let mut writer = Fmp4Writer::new(&codecs).map_err(io::Error::other)?;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut ready, mut written) = (Vec::new(), Written::default());
    let video_bits = bits_per_second - if has_sound { SOUND_BITS_PER_SECOND } else { 0 };
    let mut sizes = Sizes::new(video_bits);
    for picture in 0..seconds * PICTURES_PER_SECOND {
        let unit = AccessUnit {
            time: (picture * PICTURE_TICKS) as i64,
            bytes: sizes.picture(picture),
            is_start: picture.is_multiple_of(GROUP),
            is_after_loss: false,
        };
        writer.push(0, unit, &mut ready).map_err(io::Error::other)?;
        written.pictures += 1;
        let until = (picture + 1) * u64::from(SOUND_RATE_HZ) / PICTURES_PER_SECOND;
        while has_sound && written.sounds * SOUND_SAMPLES < until {
            let unit = AccessUnit {
                time: (written.sounds * SOUND_SAMPLES) as i64,
                bytes: vec![0x21; SOUND_BYTES],
                is_start: true,
                is_after_loss: false,
            };
            writer.push(1, unit, &mut ready).map_err(io::Error::other)?;
            written.sounds += 1;
        }
        file.write_all(&ready)?;
        ready.clear();
    }
    writer.finish(&mut ready);
    file.write_all(&ready)?;
    file.flush()?;
    Ok(written)
}

/// Lengths of pictures, the same in every run.
struct Sizes {
    /// Mean length of a picture that is no key frame.
    mean_bytes: u64,
    state: u64,
}

impl Sizes {
    fn new(bits_per_second: u64) -> Sizes {
        let group_bytes = bits_per_second / 8 * GROUP / PICTURES_PER_SECOND;
        Sizes { mean_bytes: group_bytes / (GROUP - 1 + KEY_TIMES), state: 1 }
    }

    /// One NAL unit behind its length.
    fn picture(&mut self, picture: u64) -> Vec<u8> {
        // Knuth's multiplier of MMIX: only the spread of the values matters.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let share = self.state >> 56;
        let (kind, bytes) = match picture % GROUP {
            0 => (IDR_SLICE, self.mean_bytes * KEY_TIMES),
            // From a half to one and a half.
            _ => (SLICE, self.mean_bytes / 2 + self.mean_bytes * share / 255),
        };
        let mut unit = vec![picture as u8 | 1; bytes as usize + LENGTH_BYTES];
        unit[..LENGTH_BYTES].copy_from_slice(&(bytes as u32).to_be_bytes());
        unit[LENGTH_BYTES..LENGTH_BYTES + 2].copy_from_slice(&[kind, FIRST_SLICE]);
        unit
    }
}

fn h264() -> Codec {
    Codec::H264(H264Config {
        length_bytes: LENGTH_BYTES as u8,
        profile: [SEQUENCE_SET[1], SEQUENCE_SET[2], SEQUENCE_SET[3]],
        sequence_sets: vec![SEQUENCE_SET.to_vec()],
        picture_sets: vec![PICTURE_SET.to_vec()],
    })
}

fn aac() -> Codec {
    Codec::Aac(AacConfig {
        // AAC-LC, 48 kHz, two channels (ISO/IEC 14496-3 §1.6.2).
        specific: vec![0x11, 0x90],
        object_type: 2,
        rate_hz: SOUND_RATE_HZ,
        channels: 2,
    })
}

/// Baseline, level 1.3, 322 × 178: a sequence parameter set as x264 writes it.
const SEQUENCE_SET: [u8; 24] = [
    0x67, 0x42, 0xc0, 0x0d, 0xd9, 0x01, 0x51, 0x9e, 0x22, 0x23, 0x01, 0x10, 0x00, 0x00, 0x03, 0x00,
    0x00, 0x03, 0x03, 0x20, 0xf1, 0x42, 0xa4, 0x80,
];
const PICTURE_SET: [u8; 4] = [0x68, 0xcb, 0x83, 0xcb];
/// NAL units with nal_ref_idc 3: a slice of an IDR picture, and of another.
const IDR_SLICE: u8 = 0x65;
const SLICE: u8 = 0x61;
/// The highest bit: first_mb_in_slice is 0, so a picture begins (ISO/IEC 14496-10 §7.3.3).
const FIRST_SLICE: u8 = 0x88;
const LENGTH_BYTES: usize = 4;

const PICTURES_PER_SECOND: u64 = 25;
/// Of the clock of 90 kHz.
const PICTURE_TICKS: u64 = 90_000 / PICTURES_PER_SECOND;
/// Pictures from one key frame to the next.
const GROUP: u64 = 50;
const KEY_TIMES: u64 = 6;

const SOUND_RATE_HZ: u32 = 48_000;
const SOUND_SAMPLES: u64 = 1024;
const SOUND_BITS_PER_SECOND: u64 = 128_000;
const SOUND_BYTES: usize = 341;

#[cfg(test)]
mod tests {
    use super::*;
    use media::Demuxer;
    use media::payload::lay_out;
    use media::plan::RtpIdentity;

    #[test]
    fn a_title_has_its_rate_and_its_packets_are_those_of_its_pictures() {
        for has_sound in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("title.mp4");
            let written = write(&path, 5_000_000, 20, has_sound).unwrap();
            let file = File::open(&path).unwrap();
            let file_bytes = file.metadata().unwrap().len();
            assert!((4_800_000..5_200_000).contains(&(file_bytes * 8 / 20)), "{file_bytes} bytes");
            let beginning = std::fs::read(&path).unwrap();
            let mut demuxer = Demuxer::of(&beginning, file_bytes).unwrap();
            while !demuxer.advance(&file, 1000).unwrap() {}
            let identity = RtpIdentity { ssrc: 1, first_sequence: 0, first_timestamp: 0 };
            let presentation = demuxer.finish(|| identity).unwrap();
            assert_eq!(presentation.tracks().len(), 1 + usize::from(has_sound));
            assert_eq!(presentation.tracks()[0].samples.len() as u64, written.pictures);
            let layouts = (0..20).map(|chapter| lay_out(&presentation, 0, chapter, &file).unwrap());
            let (packets, faults) = layouts.fold((0, 0), |(packets, faults), layout| {
                (packets + layout.packets(), faults + layout.faults())
            });
            assert_eq!(faults, 0);
            assert!((8_500..10_000).contains(&packets), "{packets} packets");
        }
    }
}
