// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists the payload formats: each codec's name for messages, its name in session descriptions, and
//! the specification of its packets.
//!
//! A codec without a member does not compile: [`Codec::payload_format`] names one for each. The
//! table of formats in docs/formats.md is generated from this list, and its test asks the demuxers
//! for each.

use crate::tracks::{Codec, PcmForm};

/// How a codec is sent over RTP.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PayloadFormat {
    /// The codec's name for people.
    pub codec: &'static str,
    /// The encoding name in a session description (RFC 8866 §6.6).
    pub encoding: &'static str,
    /// The specification.
    pub source: &'static str,
}

/// All payload formats.
pub static PAYLOAD_FORMATS: [PayloadFormat; 14] = [
    PayloadFormat { codec: "MPEG-TS", encoding: "MP2T", source: "RFC 2250 §2" },
    PayloadFormat { codec: "H.264", encoding: "H264", source: "RFC 6184" },
    PayloadFormat { codec: "H.265", encoding: "H265", source: "RFC 7798" },
    PayloadFormat {
        codec: "AV1",
        encoding: "AV1",
        source: "RTP Payload Format For AV1 of the Alliance for Open Media",
    },
    PayloadFormat { codec: "AAC", encoding: "mpeg4-generic", source: "RFC 3640" },
    PayloadFormat { codec: "MPEG audio", encoding: "MPA", source: "RFC 2250 §3.5" },
    PayloadFormat { codec: "Opus", encoding: "opus", source: "RFC 7587" },
    PayloadFormat { codec: "AC-3", encoding: "ac3", source: "RFC 4184" },
    PayloadFormat { codec: "E-AC-3", encoding: "eac3", source: "RFC 4598" },
    PayloadFormat { codec: "8-bit PCM", encoding: "L8", source: "RFC 3551 §4.5.10" },
    PayloadFormat { codec: "16-bit PCM", encoding: "L16", source: "RFC 3551 §4.5.11" },
    PayloadFormat { codec: "24-bit PCM", encoding: "L24", source: "RFC 3190 §4" },
    PayloadFormat { codec: "A-law", encoding: "PCMA", source: "RFC 3551 §4.5.14" },
    PayloadFormat { codec: "mu-law", encoding: "PCMU", source: "RFC 3551 §4.5.14" },
];

impl Codec {
    /// Its payload format.
    pub fn payload_format(&self) -> &'static PayloadFormat {
        let index = match self {
            Codec::Mp2t => 0,
            Codec::H264(_) => 1,
            Codec::H265(_) => 2,
            Codec::Av1(_) => 3,
            Codec::Aac(_) => 4,
            Codec::MpegAudio => 5,
            Codec::Opus { .. } => 6,
            Codec::Ac3 { .. } => 7,
            Codec::Eac3 { .. } => 8,
            Codec::Pcm(config) => match config.form {
                PcmForm::L8 => 9,
                PcmForm::L16 | PcmForm::L16BigEndian => 10,
                PcmForm::L24 | PcmForm::L24BigEndian => 11,
                PcmForm::ALaw => 12,
                PcmForm::MuLaw => 13,
            },
        };
        &PAYLOAD_FORMATS[index]
    }
}
