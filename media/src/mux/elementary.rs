// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts units of a codec to their form in the elementary streams of a transport stream.
//!
//! H.264 and H.265: NAL units after start codes (Annex B), preceded by an access unit delimiter; a
//! key frame without parameter sets is preceded by the last ones seen. AAC: ADTS. Opus: a control
//! header before each packet. MPEG audio and Dolby Digital: frames unchanged.
//!
//! Sources: ISO/IEC 13818-1 table 2-34 (stream types), §2.6.8 (registration), §2.14.1 (delimiters);
//! ISO/IEC 14496-3 §1.A.2.2 (ADTS), §1.6.2.1; "Encapsulation of Opus in MPEG Transport Stream" §4
//! (Xiph, OpusTS); ATSC A/52 annexes A and G (Dolby Digital).
//! Does not remove NAL units that a camera inserts.

use super::parameters::{NalKind, Parameters, nal_kind, nal_units};
use crate::bits::Bits;
use crate::frames::mpeg_audio_rate_hz;
use crate::tracks::records::RATES_HZ;
use crate::tracks::{AacConfig, Codec};

/// A track as the programme map table describes it.
#[derive(Debug)]
pub(super) struct Elementary {
    form: Form,
    /// stream_id of its PES packets.
    pub(super) stream_id: u8,
    /// Descriptors in the programme map table.
    pub(super) descriptors: Vec<u8>,
}

/// Form of the units.
#[derive(Debug)]
enum Form {
    H264,
    H265,
    Adts(AdtsFields),
    MpegAudio,
    Opus,
    Ac3,
    Eac3,
}

/// Fields of ADTS headers that are constant for a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AdtsFields {
    /// Object type minus one.
    profile: u8,
    rate_index: u8,
    channels: u8,
}

/// Most bytes of a frame of sound: the length of a PES packet has 16 bits and includes the headers.
const FRAME_BYTES_MAX: usize = 60_000;

/// Most bytes of an AAC frame: the length in an ADTS header has 13 bits and includes the header.
const AAC_BYTES_MAX: usize = (1 << 13) - 1 - ADTS_BYTES;

const ADTS_BYTES: usize = 7;

const VIDEO_STREAM: u8 = 0xe0;
const AUDIO_STREAM: u8 = 0xc0;
const PRIVATE_STREAM_1: u8 = 0xbd;

impl Elementary {
    /// Returns the form in which a codec is carried.
    ///
    /// # Errors
    /// The reason for which the codec cannot be carried.
    pub(super) fn of(codec: &Codec) -> Result<Elementary, &'static str> {
        let (form, stream_id, descriptors) = match codec {
            Codec::H264(_) => (Form::H264, VIDEO_STREAM, Vec::new()),
            Codec::H265(_) => (Form::H265, VIDEO_STREAM, Vec::new()),
            Codec::Aac(config) => (Form::Adts(adts_fields(config)?), AUDIO_STREAM, Vec::new()),
            Codec::MpegAudio => (Form::MpegAudio, AUDIO_STREAM, Vec::new()),
            Codec::Opus { channels } => (Form::Opus, PRIVATE_STREAM_1, opus_descriptors(*channels)),
            Codec::Ac3 { .. } => (Form::Ac3, PRIVATE_STREAM_1, registration(b"AC-3")),
            Codec::Eac3 { .. } => (Form::Eac3, PRIVATE_STREAM_1, registration(b"EAC3")),
            Codec::Av1(_) => {
                return Err("no standard for it there that players read; write an MP4 (.mp4)");
            }
            Codec::Pcm(_) => return Err(super::NO_PCM),
            Codec::Mp2t => return Err("a transport stream is no track of one"),
        };
        Ok(Elementary { form, stream_id, descriptors })
    }

    /// Returns the stream_type; depends on the first frame if the codec does not determine it.
    pub(super) fn stream_type(&self, parameters: &Parameters) -> u8 {
        match (&self.form, parameters) {
            (Form::H264, _) => 0x1b,
            (Form::H265, _) => 0x24,
            (Form::Adts(_), _) => 0x0f,
            // Rates below 32 kHz are MPEG-2 audio.
            (Form::MpegAudio, Parameters::Frame(Some(frame))) => {
                if mpeg_audio_rate_hz(frame).is_some_and(|rate_hz| rate_hz < 32_000) {
                    4
                } else {
                    3
                }
            }
            (Form::MpegAudio, _) => 3,
            (Form::Opus, _) => 0x06,
            (Form::Ac3, _) => 0x81,
            (Form::Eac3, _) => 0x87,
        }
    }

    /// Most bytes of a unit of sound; pictures have no limit here.
    pub(super) fn bytes_max(&self) -> usize {
        match self.form {
            Form::H264 | Form::H265 => usize::MAX,
            Form::Adts(_) => AAC_BYTES_MAX,
            _ => FRAME_BYTES_MAX,
        }
    }

    /// Converts a unit to its form in the stream. NAL units with wrong lengths were refused before.
    pub(super) fn form(&self, unit: Vec<u8>, is_start: bool, parameters: &Parameters) -> Vec<u8> {
        match &self.form {
            Form::H264 | Form::H265 => pictures(&unit, is_start, parameters),
            Form::Adts(fields) => [&adts_header(*fields, unit.len())[..], &unit].concat(),
            Form::Opus => [opus_header(unit.len()), unit].concat(),
            Form::MpegAudio | Form::Ac3 | Form::Eac3 => unit,
        }
    }
}

/// Converts a picture: writes a delimiter, parameter sets, and the NAL units.
fn pictures(unit: &[u8], is_start: bool, parameters: &Parameters) -> Vec<u8> {
    const START_CODE: [u8; 4] = [0, 0, 0, 1];
    let mut out = Vec::with_capacity(unit.len() + 64);
    let Parameters::Sets { is_h265, sets, .. } = parameters else { return out };
    let nals = nal_units(unit).unwrap_or_default();
    // Slices of any type may follow.
    let delimiter: &[u8] = if *is_h265 { &[0x46, 0x01, 0x50] } else { &[0x09, 0xf0] };
    let mut put = |nal: &[u8]| {
        out.extend(START_CODE);
        out.extend(nal);
    };
    put(delimiter);
    let has_sets = nals.iter().any(|nal| nal_kind(*is_h265, nal) == NalKind::SequenceSet);
    if is_start && !has_sets {
        sets.all().for_each(&mut put);
    }
    let others = nals.iter().filter(|nal| nal_kind(*is_h265, nal) != NalKind::Delimiter);
    others.for_each(|nal| put(nal));
    out
}

/// Returns the ADTS header fields of a codec. A decoder detects spectral band replication itself,
/// so the header gives the rate of the core codec.
fn adts_fields(config: &AacConfig) -> Result<AdtsFields, &'static str> {
    const NONE: &str = "its AudioSpecificConfig has no form in ADTS; write an MP4 (.mp4, .m4a)";
    let fields = || -> Option<AdtsFields> {
        let bits = &mut Bits::new(&config.specific);
        let rate = |bits: &mut Bits<'_>| match bits.take(4)? {
            15 => bits.take(24),
            index => RATES_HZ.get(index as usize).copied(),
        };
        let mut object_type = bits.take(5)?;
        let rate_hz = rate(bits)?;
        let channels = bits.take(4)? as u8;
        if matches!(object_type, 5 | 29) {
            rate(bits)?;
            object_type = bits.take(5)?;
        }
        let rate_index = RATES_HZ.iter().position(|&known| known == rate_hz)? as u8;
        let is_known = (1..=4).contains(&object_type) && (1..=7).contains(&channels);
        is_known.then_some(AdtsFields { profile: object_type as u8 - 1, rate_index, channels })
    };
    fields().ok_or(NONE)
}

/// Returns the header of an ADTS frame with `bytes` bytes of payload, without a checksum.
fn adts_header(fields: AdtsFields, bytes: usize) -> [u8; ADTS_BYTES] {
    let AdtsFields { profile, rate_index, channels } = fields;
    let length = (bytes + ADTS_BYTES) as u16;
    [
        0xff,
        // ID of MPEG-4, no checksum.
        0xf1,
        profile << 6 | rate_index << 2 | channels >> 2,
        channels << 6 | (length >> 11) as u8,
        (length >> 3) as u8,
        // Buffer fullness of all ones means a variable rate; one block.
        (length << 5) as u8 | 0x1f,
        0xfc,
    ]
}

/// Returns the control header of opus_access_unit: 11 bits of prefix, no trimming, and the size.
fn opus_header(mut bytes: usize) -> Vec<u8> {
    let mut header = vec![0x7f, 0xe0];
    while bytes >= 0xff {
        header.push(0xff);
        bytes -= 0xff;
    }
    header.push(bytes as u8);
    header
}

fn registration(name: &[u8; 4]) -> Vec<u8> {
    [&[0x05, 4], &name[..]].concat()
}

/// Returns the registration descriptor and the extension descriptor with the channel configuration,
/// which is the number of channels.
fn opus_descriptors(channels: u8) -> Vec<u8> {
    [&registration(b"Opus")[..], &[0x7f, 2, 0x80, channels]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aac(specific: &[u8]) -> Result<AdtsFields, &'static str> {
        let (object_type, rate_hz, channels) = (2, 44_100, 2);
        let specific = specific.to_vec();
        adts_fields(&AacConfig { specific, object_type, rate_hz, channels })
    }

    #[test]
    fn adts_tells_the_core_of_a_configuration() {
        let fields = aac(&[0x12, 0x10]).unwrap();
        assert_eq!(fields, AdtsFields { profile: 1, rate_index: 4, channels: 2 });
        // Written by ffmpeg before a frame of 0x173 bytes including the header.
        let header = [0xff, 0xf1, 0x50, 0x80, 0x2e, 0x7f, 0xfc];
        assert_eq!(adts_header(fields, 0x173 - 7), header);
        // High-efficiency AAC: 24 kHz, doubled by the decoder, with AAC-LC inside.
        let fields = aac(&[0x2b, 0x11, 0x88, 0x00]).unwrap();
        assert_eq!(fields, AdtsFields { profile: 1, rate_index: 6, channels: 2 });
        // An explicit rate of 24 bits that also has an index.
        let fields = aac(&[0x17, 0x80, 0x5d, 0xc0, 0x10]).unwrap();
        assert_eq!((fields.rate_index, fields.channels), (3, 2));
        // USAC; channels defined by a list of elements; truncated configurations.
        for specific in [&[0xf9, 0x46, 0x40][..], &[0x11, 0x80], &[0x12], &[]] {
            assert!(aac(specific).is_err(), "{specific:?}");
        }
    }

    #[test]
    fn sizes_of_opus_packets_are_sums_of_bytes() {
        assert_eq!(opus_header(3), [0x7f, 0xe0, 3]);
        assert_eq!(opus_header(255), [0x7f, 0xe0, 0xff, 0]);
        assert_eq!(opus_header(600), [0x7f, 0xe0, 0xff, 0xff, 90]);
    }

    #[test]
    fn key_frames_have_delimiter_and_parameter_sets_in_front() {
        let parameters = Parameters::of(&Codec::H264(crate::tracks::H264Config {
            length_bytes: 4,
            profile: [0x42, 0xc0, 0x0d],
            sequence_sets: vec![vec![0x67, 1]],
            picture_sets: vec![vec![0x68, 2]],
        }));
        let written = |unit: &[u8], is_start| pictures(unit, is_start, &parameters);
        let key = [0, 0, 0, 2, 0x65, 3];
        let expected = [
            &[0, 0, 0, 1, 0x09, 0xf0][..],
            &[0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x68, 2],
            &[0, 0, 0, 1, 0x65, 3],
        ];
        assert_eq!(written(&key, true), expected.concat());
        assert_eq!(written(&key, false), [expected[0], expected[2]].concat());
        // A unit's own sets are not repeated, and neither is its delimiter.
        let own = [0, 0, 0, 2, 0x09, 0x10, 0, 0, 0, 2, 0x67, 9, 0, 0, 0, 2, 0x65, 3];
        let expected = [expected[0], &[0, 0, 0, 1, 0x67, 9], expected[2]];
        assert_eq!(written(&own, true), expected.concat());
    }
}
