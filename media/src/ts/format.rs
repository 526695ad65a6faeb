// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the format of an elementary stream: RFC 6381 name, picture size and rate, channels.
//!
//! A player needs these values in a playlist before it has any media. The first sequence or frame
//! header of the stream contains them, so only that is parsed; nothing is decoded.
//!
//! Sources: RFC 6381 §3.3; ISO/IEC 14496-10 §7.3.2.1.1 and annex E (H.264), 23008-2 §7.3.2.2 and
//! 14496-15 annex E.3 (H.265 and its name), 13818-2 §6.2.2 (MPEG-2 video), 14496-2 §6.2.2, 14496-3
//! §1.A.2.2 (ADTS) and §1.7.2 (LOAS), 11172-3 §2.4.1.3 (MPEG audio), ETSI TS 102 366 §4.3, annex E
//! (Dolby); for object types mp4ra.org.
//! Does not read the picture rate of H.265, which lies behind fields that need a parser of their
//! own; it is computed from presentation times ([`super::survey`]).

use crate::bits::{Bits, without_emulation};
use crate::byte_stream::start_codes;
use crate::frames::{FrameParser, parse_adts, parse_dolby, parse_mpeg_audio};
use crate::sequence::{SequenceSet, believable};
use crate::tracks::{Display, PixelAspect, ShownPictures};

/// Coding of an elementary stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coding {
    /// MPEG-1 or MPEG-2 video.
    Mpeg2Video,
    /// MPEG-4 part 2.
    Mpeg4Video,
    /// H.264.
    H264,
    /// H.265, HEVC.
    H265,
    /// Another video codec.
    OtherVideo,
    /// MPEG-1 or MPEG-2 audio: layers 1 (MP1), 2 (MP2) and 3 (MP3).
    MpegAudio,
    /// AAC with ADTS headers.
    Aac,
    /// AAC with LOAS headers.
    AacLatm,
    /// Dolby Digital.
    Ac3,
    /// Dolby Digital Plus.
    Eac3,
    /// Another audio codec.
    OtherAudio,
    /// Subtitles, metadata, anything that is neither video nor audio.
    Data,
}

impl Coding {
    /// Returns the coding of a stream of this type with these PMT descriptors.
    pub fn of(stream_type: u8, descriptors: &[u8]) -> Self {
        match stream_type {
            0x01 | 0x02 => Coding::Mpeg2Video,
            0x10 => Coding::Mpeg4Video,
            0x1b => Coding::H264,
            0x24 => Coding::H265,
            0x1e..=0x21 | 0x28..=0x2b | 0x32..=0x35 | 0x42 | 0xd2..=0xd4 | 0xea => {
                Coding::OtherVideo
            }
            0x03 | 0x04 => Coding::MpegAudio,
            0x0f => Coding::Aac,
            0x11 => Coding::AacLatm,
            0x81 => Coding::Ac3,
            0x84 | 0x87 => Coding::Eac3,
            0x1c | 0x80 | 0x82 | 0x83 | 0x85 | 0xa1 | 0xa2 => Coding::OtherAudio,
            // Private data is identified by its descriptors.
            0x06 => tags(descriptors).find_map(private).unwrap_or(Coding::Data),
            _ => Coding::Data,
        }
    }

    /// True for video.
    pub fn is_video(self) -> bool {
        use Coding::{H264, H265, Mpeg2Video, Mpeg4Video, OtherVideo};
        matches!(self, H264 | H265 | Mpeg2Video | Mpeg4Video | OtherVideo)
    }

    /// True for audio.
    pub fn is_audio(self) -> bool {
        self.is_media() && !self.is_video()
    }

    /// True for video and audio.
    pub(super) fn is_media(self) -> bool {
        self != Coding::Data
    }

    /// Returns the parser of its frame headers, if each header contains the distance to the next.
    pub(super) fn frame_parser(self) -> Option<FrameParser> {
        match self {
            Coding::Aac => Some(parse_adts),
            Coding::MpegAudio => Some(parse_mpeg_audio),
            Coding::Ac3 | Coding::Eac3 => Some(parse_dolby),
            _ => None,
        }
    }
}

/// Identifies the coding by a DVB descriptor (ETSI EN 300 468 §6.1) or a registration descriptor
/// (ISO/IEC 13818-1 §2.6.8).
fn private((tag, content): (u8, &[u8])) -> Option<Coding> {
    match (tag, content) {
        (0x6a, _) => Some(Coding::Ac3),
        (0x7a, _) => Some(Coding::Eac3),
        (0x7b, _) => Some(Coding::OtherAudio),
        (0x7c, _) => Some(Coding::Aac),
        (0x05, b"Opus") => Some(Coding::OtherAudio),
        _ => None,
    }
}

/// Iterates over tag and content of each descriptor (ISO/IEC 13818-1 §2.6).
pub(super) fn tags(mut descriptors: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[tag, bytes], rest) = descriptors.split_first_chunk()?;
        let (content, rest) = rest.split_at_checked(usize::from(bytes))?;
        descriptors = rest;
        Some((tag, content))
    })
}

/// Format from the headers of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrackFormat {
    /// Its name in the CODECS attribute.
    pub codec: String,
    /// Width and height of the picture.
    pub size: Option<(u32, u32)>,
    /// Pixel aspect ratio; none if the headers contain none.
    pub pixel_aspect: Option<PixelAspect>,
    /// Pictures in 1,000 seconds.
    pub rate_millihertz: Option<u32>,
    /// Number of audio channels.
    pub channels: Option<u32>,
}

impl TrackFormat {
    fn of(codec: String) -> Self {
        Self { codec, ..Self::default() }
    }

    /// Returns width and height of the displayed picture, in square pixels.
    pub fn resolution(&self) -> Option<(u32, u32)> {
        let shown = ShownPictures::new(self.size?, self.pixel_aspect, Display::default());
        Some(shown.resolution())
    }
}

/// Parses the format from the payload of a PES packet, if it contains a header.
pub(super) fn format(coding: Coding, unit: &[u8]) -> Option<TrackFormat> {
    match coding {
        Coding::H264 => nal_units(unit).find(|nal| nal[0] & 0x1f == 7).and_then(h264),
        Coding::H265 => nal_units(unit).find(|nal| nal[0] >> 1 & 0x3f == 33).and_then(h265),
        Coding::Mpeg2Video => mpeg2(unit),
        Coding::Mpeg4Video => after(unit, 0xb0)
            .and_then(|rest| Some(TrackFormat::of(format!("mp4v.20.{}", rest.first()?)))),
        Coding::MpegAudio => mpeg_audio(unit),
        Coding::Aac => adts(unit),
        Coding::AacLatm => loas(unit),
        Coding::Ac3 => ac3(unit),
        Coding::Eac3 => eac3(unit),
        Coding::OtherVideo | Coding::OtherAudio | Coding::Data => None,
    }
}

/// Iterates over the NAL units that begin in `unit`, each up to the end of `unit`; none of them is
/// empty.
fn nal_units(unit: &[u8]) -> impl Iterator<Item = &[u8]> {
    start_codes(unit).map(|at| &unit[at..]).filter(|nal| !nal.is_empty())
}

/// Returns the bytes after the first start code `code`.
fn after(unit: &[u8], code: u8) -> Option<&[u8]> {
    let at = unit.windows(4).position(|bytes| bytes == [0, 0, 1, code])?;
    Some(&unit[at + 4..])
}

fn h264(nal: &[u8]) -> Option<TrackFormat> {
    let &[_, profile, constraints, level, ..] = nal else { return None };
    let mut format = TrackFormat::of(format!("avc1.{profile:02x}{constraints:02x}{level:02x}"));
    // The name is complete even if the set is truncated.
    if let Some(sequence) = SequenceSet::h264(nal) {
        (format.size, format.rate_millihertz) = (Some(sequence.size), sequence.rate_millihertz);
        format.pixel_aspect = sequence.pixel_aspect;
    }
    Some(format)
}

fn h265(nal: &[u8]) -> Option<TrackFormat> {
    let head = without_emulation(nal.get(2..)?);
    let &[_, profile, a, b, c, d, ref constraints @ .., level] = head.first_chunk::<13>()?;
    let compatible = u32::from_be_bytes([a, b, c, d]).reverse_bits();
    let used = constraints.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
    let space = ["", "A", "B", "C"][usize::from(profile >> 6)];
    let tier = if profile & 0x20 == 0 { "L" } else { "H" };
    let mut codec = format!("hvc1.{space}{}.{compatible:X}.{tier}{level}", profile & 0x1f);
    for byte in &constraints[..used] {
        codec.push_str(&format!(".{byte:X}"));
    }
    let mut format = TrackFormat::of(codec);
    format.size = SequenceSet::h265(nal).map(|sequence| sequence.size);
    Some(format)
}

/// Pictures in 1,000 seconds by frame_rate_code (ISO/IEC 13818-2 table 6-4).
const MPEG2_RATES: [u64; 9] = [0, 23_976, 24_000, 25_000, 29_970, 30_000, 50_000, 59_940, 60_000];

fn mpeg2(unit: &[u8]) -> Option<TrackFormat> {
    let sequence = after(unit, 0xb3)?;
    let bits = &mut Bits::new(sequence);
    let (mut width, mut height) = (bits.take(12)?, bits.take(12)?);
    bits.skip(4);
    let mut rate = *MPEG2_RATES.get(bits.take(4)? as usize)?;
    // Without a sequence extension the stream is MPEG-1.
    let mut codec = "mp4v.6A".to_owned();
    let extension =
        after(sequence, 0xb5).filter(|bytes| bytes.first().is_some_and(|b| b >> 4 == 1));
    if let Some(extension) = extension {
        let bits = &mut Bits::new(extension);
        bits.skip(4);
        let profile = bits.take(8)?;
        codec = match (profile & 0x80 != 0, profile >> 4 & 7) {
            (true, _) => "mp4v.65",
            (_, 1) => "mp4v.64",
            (_, 2) => "mp4v.63",
            (_, 3) => "mp4v.62",
            (_, 5) => "mp4v.60",
            _ => "mp4v.61",
        }
        .to_owned();
        bits.skip(3);
        width |= bits.take(2)? << 12;
        height |= bits.take(2)? << 12;
        bits.skip(12 + 1 + 8 + 1);
        let (more, fewer) = (u64::from(bits.take(2)?), u64::from(bits.take(5)?));
        rate = rate * (more + 1) / (fewer + 1);
    }
    let (size, rate) = (Some((width, height)), believable(rate));
    Some(TrackFormat { size, rate_millihertz: rate, ..TrackFormat::of(codec) })
}

fn mpeg_audio(unit: &[u8]) -> Option<TrackFormat> {
    let &[0xff, second, _, fourth, ..] = unit else { return None };
    if second & 0xe0 != 0xe0 || second & 6 == 0 {
        return None;
    }
    // Layer 3 is coded 01, layer 2 is 10, layer 1 is 11; their object types are 34, 33 and 32.
    let codec = format!("mp4a.40.{}", 35 - (second >> 1 & 3));
    let channels = Some(if fourth >> 6 == 3 { 1 } else { 2 });
    Some(TrackFormat { channels, ..TrackFormat::of(codec) })
}

fn adts(unit: &[u8]) -> Option<TrackFormat> {
    let &[0xff, second, third, fourth, ..] = unit else { return None };
    if second & 0xf6 != 0xf0 {
        return None;
    }
    let codec = format!("mp4a.40.{}", (third >> 6) + 1);
    Some(TrackFormat {
        channels: aac_channels(third << 2 & 4 | fourth >> 6),
        ..TrackFormat::of(codec)
    })
}

/// Returns the number of channels by channelConfiguration (ISO/IEC 14496-3 table 1.19); for 0 it is
/// coded elsewhere.
fn aac_channels(configuration: u8) -> Option<u32> {
    match configuration {
        1..=6 => Some(configuration.into()),
        7 => Some(8),
        _ => None,
    }
}

fn loas(unit: &[u8]) -> Option<TrackFormat> {
    let bits = &mut Bits::new(unit);
    const SYNC: u32 = 0x2b7;
    if bits.take(11)? != SYNC {
        return None;
    }
    bits.skip(13);
    // The configuration is in another frame, or has audioMuxVersion 1, which is not broadcast.
    if bits.flag()? || bits.flag()? {
        return None;
    }
    bits.skip(1 + 6 + 4 + 3);
    let object = bits.take(5)?;
    if bits.take(4)? == 15 {
        bits.skip(24);
    }
    let channels = aac_channels(bits.take(4)? as u8);
    Some(TrackFormat { channels, ..TrackFormat::of(format!("mp4a.40.{object}")) })
}

/// Full-bandwidth channels by acmod (ETSI TS 102 366 table 4.3).
const DOLBY_CHANNELS: [u32; 8] = [2, 1, 2, 3, 3, 4, 4, 5];

fn ac3(unit: &[u8]) -> Option<TrackFormat> {
    let &[0x0b, 0x77, _, _, _, _, ..] = unit else { return None };
    let bits = &mut Bits::new(&unit[6..]);
    let mode = bits.take(3)?;
    let levels = [mode & 1 != 0 && mode != 1, mode & 4 != 0, mode == 2];
    bits.skip(2 * levels.into_iter().filter(|&there| there).count());
    let channels = DOLBY_CHANNELS[mode as usize] + bits.take(1)?;
    Some(TrackFormat { channels: Some(channels), ..TrackFormat::of("ac-3".to_owned()) })
}

fn eac3(unit: &[u8]) -> Option<TrackFormat> {
    let &[0x0b, 0x77, ..] = unit else { return None };
    let bits = &mut Bits::new(&unit[2..]);
    bits.skip(2 + 3 + 11 + 4);
    let mode = bits.take(3)?;
    let channels = DOLBY_CHANNELS[mode as usize] + bits.take(1)?;
    Some(TrackFormat { channels: Some(channels), ..TrackFormat::of("ec-3".to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns header bytes as an encoder wrote them, after a start code where the codec has one.
    fn header(prefix: &[u8], hex: &str) -> Vec<u8> {
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
        prefix.iter().copied().chain((0..hex.len()).step_by(2).map(digits)).collect()
    }

    const START: [u8; 4] = [0, 0, 0, 1];

    /// Headers written by ffmpeg 5.1 with x264 and x265, and the settings of the encoder.
    #[test]
    fn pictures_of_encoders_are_read() {
        for (coding, prefix, hex, codec, size, rate) in [
            (
                Coding::H264,
                &START[..],
                "6742c00cda05067e7c0440000003004000000c83c50aa8",
                "avc1.42c00c",
                (320, 180),
                Some(25_000),
            ),
            (
                Coding::H264,
                &START,
                "677a0028bcd94078044fcb808800001f4800075300f8b16cb0",
                "avc1.7a0028",
                (1920, 1080),
                Some(29_970),
            ),
            (
                Coding::H265,
                &START,
                "42010101600000030090000003000003003ca00a080c1f3e595952930bc05a02000003000200000300\
                 3210",
                "hvc1.1.6.L60.90",
                (320, 180),
                None,
            ),
            (
                Coding::H265,
                &START,
                "42010102200000030090000003000003007ba003c08010e4d96566924caf0168080000030008000003\
                 019040",
                "hvc1.2.4.L123.90",
                (1920, 1080),
                None,
            ),
            (
                Coding::Mpeg2Video,
                &[],
                "000001b31400b433ffffe018000001b5148a00010000",
                "mp4v.61",
                (320, 180),
                Some(25_000),
            ),
        ] {
            let bytes = header(prefix, &hex.replace(' ', ""));
            let found = format(coding, &bytes).expect(codec);
            assert_eq!(found.codec, codec);
            assert_eq!((found.size, found.rate_millihertz), (Some(size), rate), "{codec}");
            // A truncated header yields fewer fields, never different ones.
            for end in 0..bytes.len() {
                let cut = format(coding, &bytes[..end]).unwrap_or_else(|| found.clone());
                assert!(cut.size.is_none_or(|cut| cut == size), "{codec} {end}");
            }
        }
    }

    #[test]
    fn sounds_of_encoders_are_read() {
        for (coding, hex, codec, channels) in [
            (Coding::Aac, "fff15080", "mp4a.40.2", 2),
            (Coding::Aac, "fff15180", "mp4a.40.2", 6),
            (Coding::MpegAudio, "fffb9000", "mp4a.40.34", 2),
            (Coding::MpegAudio, "fffd90c0", "mp4a.40.33", 1),
            (Coding::Ac3, "0b770dce5e40ebf8403eff9d", "ac-3", 6),
            (Coding::Eac3, "0b7703ce7f87c0002080", "ec-3", 6),
            (Coding::AacLatm, "56e10a200012081fe7f81ef01002630b", "mp4a.40.2", 1),
        ] {
            let bytes = header(&[], hex);
            let found = format(coding, &bytes).expect(codec);
            assert_eq!((found.codec.as_str(), found.channels), (codec, Some(channels)), "{hex}");
            (0..bytes.len()).for_each(|end| drop(format(coding, &bytes[..end])));
        }
    }

    #[test]
    fn private_data_is_what_its_descriptors_say() {
        assert_eq!(Coding::of(0x06, &[0x0a, 4, b'd', b'e', b'u', 0, 0x6a, 1, 0]), Coding::Ac3);
        let opus = [0x05, 4, b'O', b'p', b'u', b's', 0x7f, 2, 0x80, 2];
        assert_eq!(Coding::of(0x06, &opus), Coding::OtherAudio);
        assert_eq!(Coding::of(0x06, &[0x59, 8, 0, 0, 0, 0, 0, 0, 0, 0]), Coding::Data);
        assert_eq!(Coding::of(0x06, &[0x6a, 200]), Coding::Data, "a descriptor that is cut off");
    }
}
