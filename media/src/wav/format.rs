// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `fmt ` chunk of a WAV file: form of the samples, rate and channels, or why they are not
//! sent.
//!
//! Sources: "Multimedia Programming Interface and Data Specifications 1.0" (WAVE); Microsoft,
//! "Multiple Channel Audio Data and WAVE Files" (WAVEFORMATEXTENSIBLE), mmreg.h (format tags).
//! Does not read the channel mask, which RTP cannot signal, or the number of valid bits: all bits
//! of a sample are sent.

use super::broken;
use crate::Refusal;
use crate::tracks::{PcmConfig, PcmForm};

/// Bytes of the chunk that are read.
pub(super) const FIELDS_BYTES: usize = 40;

/// Bytes of the shortest chunk: without bits per sample it is not PCM.
const FIELDS_BYTES_MIN: usize = 16;

const PCM: u16 = 1;
const A_LAW: u16 = 6;
const MU_LAW: u16 = 7;
const EXTENSIBLE: u16 = 0xfffe;

/// Bytes after the tag in the identifier (GUID) of a format that has a tag.
const TAGGED: [u8; 14] = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71];

/// Tags of other formats, with their common names.
const OTHERS: &[(u16, &str)] = &[
    (0x0002, "ADPCM"),
    (0x0003, "floating-point samples"),
    (0x0011, "IMA ADPCM"),
    (0x0031, "GSM 6.10"),
    (0x0040, "G.721 ADPCM"),
    (0x0050, "MPEG audio"),
    (0x0055, "MP3"),
    (0x00ff, "AAC"),
    (0x0161, "Windows Media audio"),
    (0x2000, "AC-3"),
];

const CHANNELS_MAX: u16 = 8;
const RATES_HZ: std::ops::RangeInclusive<u32> = 8000..=192_000;

/// Parses the chunk, of which these are the first [`FIELDS_BYTES`]; it begins at offset `at`.
pub(super) fn parse(fields: &[u8], at: u64) -> Result<PcmConfig, Refusal> {
    if fields.len() < FIELDS_BYTES_MIN {
        let what = format!("its fmt chunk has {} bytes, not {FIELDS_BYTES_MIN}", fields.len());
        return Err(broken(at, what));
    }
    let short = |at: usize| u16::from_le_bytes([fields[at], fields[at + 1]]);
    let (channels, block_bytes, bits) = (short(2), short(12), short(14));
    let rate_hz = u32::from_le_bytes([fields[4], fields[5], fields[6], fields[7]]);
    let form = form(fields, short(0), bits)?;
    if channels == 0 {
        return Err(broken(at, "no channels"));
    }
    if channels > CHANNELS_MAX {
        return Err(Refusal::WavSound {
            found: format!("{channels} channels"),
            reason: "8 are streamed",
            cure: "mix them down (ffmpeg -i IN -ac 2 OUT.wav)",
        });
    }
    if rate_hz == 0 {
        return Err(broken(at, "a rate of 0 Hz"));
    }
    if !RATES_HZ.contains(&rate_hz) {
        return Err(Refusal::WavSound {
            found: format!("{rate_hz} Hz"),
            reason: "8000 to 192000 Hz are streamed",
            cure: "resample it (ffmpeg -i IN -ar 48000 OUT.wav)",
        });
    }
    let config = PcmConfig { form, rate_hz, channels: channels as u8 };
    let frame_bytes = config.frame_bytes();
    if u32::from(block_bytes) != frame_bytes {
        let needed = format!("{channels} channels of {bits} bits have {frame_bytes}");
        return Err(broken(at, format!("frames of {block_bytes} bytes, and {needed}")));
    }
    Ok(config)
}

fn form(fields: &[u8], tag: u16, bits: u16) -> Result<PcmForm, Refusal> {
    let tag = match tag {
        EXTENSIBLE => match fields.get(24..FIELDS_BYTES) {
            Some([low, high, rest @ ..]) if *rest == TAGGED => u16::from_le_bytes([*low, *high]),
            _ => return Err(unsent("an extended format of its own")),
        },
        tag => tag,
    };
    match (tag, bits) {
        // Fewer bits than a sample has bytes for are its upper ones.
        (PCM, 1..=8) => Ok(PcmForm::L8),
        (PCM, 9..=16) => Ok(PcmForm::L16),
        (PCM, 17..=24) => Ok(PcmForm::L24),
        (PCM, bits) => Err(unsent(format!("{bits}-bit samples"))),
        (A_LAW, 8) => Ok(PcmForm::ALaw),
        (MU_LAW, 8) => Ok(PcmForm::MuLaw),
        (A_LAW | MU_LAW, bits) => Err(unsent(format!("companded samples of {bits} bits"))),
        (tag, _) => match OTHERS.iter().find(|(other, _)| *other == tag) {
            Some((_, name)) => Err(unsent(*name)),
            None => Err(unsent(format!("format {tag:#06x}"))),
        },
    }
}

fn unsent(found: impl Into<String>) -> Refusal {
    Refusal::WavSound {
        found: found.into(),
        reason: "PCM of 8, 16 and 24 bits, A-law and mu-law are streamed",
        cure: "convert it (ffmpeg -i IN -c:a pcm_s24le OUT.wav)",
    }
}
