// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes the codecs of tracks: the parameters that a demuxer finds for each, and its name.
//!
//! A name has the form of RFC 6381; a client decides by it whether it can play the file. The
//! parameters are those that the session description and the packets need.
//!
//! Sources: RFC 6381 §3; ISO/IEC 14496-15 §5.3.3 (avcC), §8.3.3 (hvcC), annex E (names of HEVC);
//! AV1-ISOBMFF §5 (av1C, names of AV1); ISO/IEC 14496-3 §1.6.2 (AudioSpecificConfig); the RTP
//! payload formats named in [`crate::payload`].
//! Does not parse configuration boxes (the demuxers do).

use super::pcm::PcmConfig;
use super::records;

/// Pictures or sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackMedia {
    /// Pictures.
    Video,
    /// Sound.
    Audio,
}

/// Format of a track's samples.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// H.264 (RFC 6184).
    H264(H264Config),
    /// H.265 (RFC 7798).
    H265(H265Config),
    /// AV1.
    Av1(Av1Config),
    /// AAC (RFC 3640).
    Aac(AacConfig),
    /// MPEG-1 and MPEG-2 audio, layers I to III (RFC 2250 §3.5).
    MpegAudio,
    /// Opus (RFC 7587).
    Opus {
        /// Channels: 1 or 2.
        channels: u8,
    },
    /// AC-3 (RFC 4184).
    Ac3 {
        /// Samples a second.
        rate_hz: u32,
        /// Channels, the low-frequency one included.
        channels: u8,
    },
    /// Enhanced AC-3 (RFC 4598).
    Eac3 {
        /// Samples a second.
        rate_hz: u32,
        /// Channels, the low-frequency one included.
        channels: u8,
    },
    /// PCM (RFC 3551, RFC 3190).
    Pcm(PcmConfig),
    /// Pictures of a transport stream, sent as one (MP2T, RFC 2250 §2): only for trick play, not a
    /// track of a file.
    Mp2t,
}

impl Codec {
    /// Bytes of the parameters that a session description carries.
    pub fn parameter_bytes(&self) -> usize {
        let sets = |sets: &[Vec<u8>]| sets.iter().map(Vec::len).sum::<usize>();
        match self {
            Codec::H264(config) => sets(&config.sequence_sets) + sets(&config.picture_sets),
            Codec::H265(config) => {
                let H265Config { video_sets, sequence_sets, picture_sets, .. } = config;
                sets(video_sets) + sets(sequence_sets) + sets(picture_sets)
            }
            Codec::Av1(config) => config.units.len(),
            Codec::Aac(config) => config.specific.len(),
            Codec::MpegAudio
            | Codec::Opus { .. }
            | Codec::Ac3 { .. }
            | Codec::Eac3 { .. }
            | Codec::Pcm(_)
            | Codec::Mp2t => 0,
        }
    }
}

/// Parameters of an H.264 track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct H264Config {
    /// Bytes of the length before each NAL unit: 1, 2 or 4.
    pub length_bytes: u8,
    /// profile_idc, constraint flags, level_idc.
    pub profile: [u8; 3],
    /// Sequence parameter sets, each a NAL unit; empty if they are only in the samples (avc3).
    pub sequence_sets: Vec<Vec<u8>>,
    /// Picture parameter sets, each a NAL unit.
    pub picture_sets: Vec<Vec<u8>>,
}

/// Parameters of an H.265 track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct H265Config {
    /// Bytes of the length before each NAL unit: 1, 2 or 4.
    pub length_bytes: u8,
    /// The twelve bytes of general_profile_space to general_level_idc (ISO/IEC 14496-15 §8.3.3.1).
    pub profile: [u8; 12],
    /// Video parameter sets, each a NAL unit; empty if they are only in the samples (hev1).
    pub video_sets: Vec<Vec<u8>>,
    /// Sequence parameter sets.
    pub sequence_sets: Vec<Vec<u8>>,
    /// Picture parameter sets.
    pub picture_sets: Vec<Vec<u8>>,
}

/// Parameters of an AV1 track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Av1Config {
    /// seq_profile.
    pub profile: u8,
    /// seq_level_idx_0.
    pub level: u8,
    /// True for the high tier.
    pub is_high_tier: bool,
    /// Bits of a colour component: 8, 10 or 12.
    pub bit_depth: u8,
    /// The open bitstream units of the configuration record: a sequence header, or none.
    pub units: Vec<u8>,
}

/// Parameters of an AAC track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AacConfig {
    /// AudioSpecificConfig, unchanged.
    pub specific: Vec<u8>,
    /// Audio object type: 2 for AAC-LC, 5 for SBR (high efficiency), 29 for its second version.
    pub object_type: u8,
    /// Samples a second, of the core codec: the RTP clock rate.
    pub rate_hz: u32,
    /// Channels.
    pub channels: u8,
}

impl AacConfig {
    /// Samples of an access unit, of the core codec: units of the RTP clock. `None` if the
    /// configuration is of an unsupported form (ISO/IEC 14496-3 §4.4.1, frameLengthFlag).
    pub fn unit_samples(&self) -> Option<u32> {
        records::aac_unit_samples(&self.specific)
    }
}

impl Codec {
    /// Pictures or sound.
    pub const fn media(&self) -> TrackMedia {
        match self {
            Codec::H264(_) | Codec::H265(_) | Codec::Av1(_) | Codec::Mp2t => TrackMedia::Video,
            Codec::Aac(_)
            | Codec::MpegAudio
            | Codec::Opus { .. }
            | Codec::Ac3 { .. }
            | Codec::Eac3 { .. }
            | Codec::Pcm(_) => TrackMedia::Audio,
        }
    }

    /// RTP clock rate, in hertz, which its payload format fixes.
    pub const fn clock_rate_hz(&self) -> u32 {
        match self {
            Codec::H264(_) | Codec::H265(_) | Codec::Av1(_) | Codec::MpegAudio | Codec::Mp2t => {
                90_000
            }
            Codec::Aac(config) => config.rate_hz,
            Codec::Opus { .. } => 48_000,
            Codec::Ac3 { rate_hz, .. } | Codec::Eac3 { rate_hz, .. } => *rate_hz,
            Codec::Pcm(config) => config.rate_hz,
        }
    }

    /// True if RTP has the bytes of a sample in the other order than the file: a layout then holds
    /// them, and not ranges of the file.
    pub const fn is_swapped(&self) -> bool {
        matches!(self, Codec::Pcm(config) if config.form.is_swapped())
    }

    /// Its name in RFC 6381, which has none for PCM: that of RTP is used instead.
    pub fn name(&self) -> String {
        match self {
            Codec::H264(config) => {
                let [profile, constraints, level] = config.profile;
                format!("avc1.{profile:02x}{constraints:02x}{level:02x}")
            }
            Codec::H265(config) => config.name(),
            Codec::Av1(config) => {
                let tier = if config.is_high_tier { 'H' } else { 'M' };
                let Av1Config { profile, level, bit_depth, .. } = config;
                format!("av01.{profile}.{level:02}{tier}.{bit_depth:02}")
            }
            Codec::Aac(config) => format!("mp4a.40.{}", config.object_type),
            Codec::MpegAudio => "mp4a.6b".to_owned(),
            Codec::Opus { .. } => "opus".to_owned(),
            Codec::Ac3 { .. } => "ac-3".to_owned(),
            Codec::Eac3 { .. } => "ec-3".to_owned(),
            Codec::Pcm(_) => self.payload_format().encoding.to_owned(),
            Codec::Mp2t => "mp2t".to_owned(),
        }
    }
}

impl H265Config {
    /// ISO/IEC 14496-15 annex E.3: profile space and profile, compatibility flags in reverse order
    /// of bits, tier and level, constraint bytes up to the last that is not zero.
    fn name(&self) -> String {
        let [profile, flags @ .., level] = self.profile;
        let space = ["", "A", "B", "C"][usize::from(profile >> 6)];
        let tier = if profile & 0x20 == 0 { 'L' } else { 'H' };
        let [a, b, c, d, constraints @ ..] = flags;
        let compatible = u32::from_be_bytes([a, b, c, d]).reverse_bits();
        let mut name = format!("hvc1.{space}{}.{compatible:x}.{tier}{level}", profile & 0x1f);
        let used = constraints.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
        for byte in &constraints[..used] {
            name.push_str(&format!(".{byte:x}"));
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_have_the_names_that_browsers_ask_for() {
        let h264 = H264Config {
            length_bytes: 4,
            profile: [0x64, 0x00, 0x1f],
            sequence_sets: Vec::new(),
            picture_sets: Vec::new(),
        };
        assert_eq!(Codec::H264(h264).name(), "avc1.64001f");
        // The example of ISO/IEC 14496-15 annex E: main profile, level 3.1, progressive.
        let h265 = H265Config {
            length_bytes: 4,
            profile: [0x01, 0x60, 0, 0, 0, 0xb0, 0, 0, 0, 0, 0, 93],
            video_sets: Vec::new(),
            sequence_sets: Vec::new(),
            picture_sets: Vec::new(),
        };
        assert_eq!(Codec::H265(h265).name(), "hvc1.1.6.L93.b0");
        let av1 = Av1Config {
            profile: 0,
            level: 4,
            is_high_tier: false,
            bit_depth: 10,
            units: Vec::new(),
        };
        assert_eq!(Codec::Av1(av1).name(), "av01.0.04M.10");
        let aac =
            AacConfig { specific: vec![0x12, 0x10], object_type: 2, rate_hz: 44_100, channels: 2 };
        assert_eq!(Codec::Aac(aac).name(), "mp4a.40.2");
    }
}
