// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads PCM in sample descriptions: form of the samples, rate and channels, or the reason for
//! leaving the track out.
//!
//! The entry of ISO/IEC 23003-5 (`ipcm`) has the form in a box. QuickTime has an entry for each
//! form, and one whose fields have it (`lpcm`).
//!
//! A rate over 65,535 Hz does not fit the field of an entry: writers put 0 there, or the lower
//! bits. The rate then is the time scale of the track, in which a frame has one unit.
//!
//! Sources: ISO/IEC 23003-5 §5 (ipcm, fpcm, pcmC); ISO/IEC 14496-12 §12.2.3 (srat); QuickTime File
//! Format, "Sound Sample Descriptions", "Sound Media" (`enda`), Core Audio's `CoreAudioTypes.h`
//! (flags of `lpcm`).
//! Does not read channel layouts, which RTP cannot signal.

use super::boxes::FourCode;
use super::entries::{KIND, REMUX, Sound};
use crate::tracks::reasons;
use crate::tracks::{Codec, PcmConfig, PcmForm, TrackMedia};

/// Types of entries that are PCM.
pub(super) const PCM_CODES: [FourCode; 13] = [
    *b"ipcm", *b"fpcm", *b"sowt", *b"twos", *b"in24", *b"in32", *b"fl32", *b"fl64", *b"raw ",
    *b"lpcm", *b"alaw", *b"ulaw", *b"NONE",
];

/// Flag of `pcmC`.
const IS_LITTLE_ENDIAN: u8 = 1;

/// Flags of `lpcm`.
const IS_FLOAT: u32 = 1;
const IS_BIG_ENDIAN: u32 = 2;
const IS_SIGNED: u32 = 4;

/// Limits of a stream, the same as of WAV files.
const CHANNELS_MAX: u32 = 8;
const RATES_HZ: std::ops::RangeInclusive<u32> = 8000..=192_000;

/// Form of samples of whole bytes.
#[derive(Debug, Clone, Copy)]
enum Samples {
    Signed { bits: u32, is_big_endian: bool },
    Unsigned { bits: u32 },
    Float,
    Companded(PcmForm),
}

/// The PCM of an entry of this type, in a track with this time scale.
///
/// # Errors
/// The reason why the track is left out.
pub(super) fn pcm(code: &FourCode, sound: &Sound<'_>, timescale: u32) -> Result<Codec, String> {
    let form = form(samples(code, sound)?)?;
    let rate_hz = rate_hz(sound, timescale);
    match sound.channels {
        0 => return Err(format!("PCM of no channel; {REMUX}")),
        1..=CHANNELS_MAX => {}
        channels => {
            return Err(format!(
                "PCM of {channels} channels, and {CHANNELS_MAX} are streamed; mix them down \
                 (ffmpeg -i IN -map 0 -dn -c copy -c:s srt -c:a aac -ac 2 OUT.mkv)"
            ));
        }
    }
    if !RATES_HZ.contains(&rate_hz) {
        let (low, high) = RATES_HZ.into_inner();
        let cure = encode_anew();
        return Err(format!("PCM of {rate_hz} Hz, and {low} to {high} Hz are streamed; {cure}"));
    }
    Ok(Codec::Pcm(PcmConfig { form, rate_hz, channels: sound.channels as u8 }))
}

fn samples(code: &FourCode, sound: &Sound<'_>) -> Result<Samples, String> {
    let signed = |bits: u32, is_big_endian| Samples::Signed { bits, is_big_endian };
    Ok(match code {
        b"ipcm" => {
            let (flags, bits) = pcm_config(sound)?;
            signed(bits.into(), flags & IS_LITTLE_ENDIAN == 0)
        }
        b"sowt" => signed(sound.bits.into(), false),
        b"twos" => signed(sound.bits.into(), true),
        b"in24" => signed(24, !is_little_endian(sound)),
        b"in32" => signed(32, !is_little_endian(sound)),
        b"raw " | b"NONE" if sound.bits <= 8 => Samples::Unsigned { bits: sound.bits.into() },
        b"raw " | b"NONE" => signed(sound.bits.into(), true),
        b"lpcm" => lpcm(sound)?,
        b"alaw" => Samples::Companded(PcmForm::ALaw),
        b"ulaw" => Samples::Companded(PcmForm::MuLaw),
        _ => Samples::Float,
    })
}

fn form(samples: Samples) -> Result<PcmForm, String> {
    let found = match samples {
        Samples::Signed { bits: 16, is_big_endian: false } => return Ok(PcmForm::L16),
        Samples::Signed { bits: 16, is_big_endian: true } => return Ok(PcmForm::L16BigEndian),
        Samples::Signed { bits: 24, is_big_endian: false } => return Ok(PcmForm::L24),
        Samples::Signed { bits: 24, is_big_endian: true } => return Ok(PcmForm::L24BigEndian),
        Samples::Unsigned { bits: 8 } => return Ok(PcmForm::L8),
        Samples::Companded(form) => return Ok(form),
        Samples::Signed { bits: 8, .. } => "signed samples of 8 bits".to_owned(),
        Samples::Signed { bits, .. } | Samples::Unsigned { bits } => format!("{bits}-bit samples"),
        Samples::Float => "floating-point samples".to_owned(),
    };
    Err(format!(
        "PCM of {found}, and RTP has unsigned ones of 8 bits, and signed ones of 16 and 24; {}",
        encode_anew()
    ))
}

/// Flags and bits of a sample, of the first `pcmC` box.
fn pcm_config(sound: &Sound<'_>) -> Result<(u8, u8), String> {
    match sound.config(b"pcmC")? {
        [0, _, _, _, flags, bits, ..] => Ok((*flags, *bits)),
        body => Err(format!(
            "a pcmC box of {} bytes, or not of version 0, in its sample description; {REMUX}",
            body.len()
        )),
    }
}

/// Form by the fields of version 2: bits, flags and bytes of a frame, behind a constant.
fn lpcm(sound: &Sound<'_>) -> Result<Samples, String> {
    let Some([_, bits, flags, frame_bytes, _]) = sound.fields_2 else {
        let version = sound.version;
        return Err(format!("PCM in an entry (lpcm) of version {version}, not 2; {REMUX}"));
    };
    if u64::from(frame_bytes) * 8 != u64::from(bits) * u64::from(sound.channels) {
        let channels = sound.channels;
        let cure = encode_anew();
        return Err(format!(
            "PCM of {channels} channels of {bits} bits in frames of {frame_bytes} bytes; {cure}"
        ));
    }
    Ok(match (flags & IS_FLOAT, flags & IS_SIGNED) {
        (0, 0) => Samples::Unsigned { bits },
        (0, _) => Samples::Signed { bits, is_big_endian: flags & IS_BIG_ENDIAN != 0 },
        _ => Samples::Float,
    })
}

/// True if a box in the entry names the order of bytes that is not QuickTime's own.
fn is_little_endian(sound: &Sound<'_>) -> bool {
    matches!(sound.config(b"enda"), Ok([_, 1, ..]))
}

fn rate_hz(sound: &Sound<'_>, timescale: u32) -> u32 {
    if sound.version == 2 {
        return sound.rate_hz;
    }
    if let Ok([_, _, _, _, a, b, c, d, ..]) = sound.config(b"srat") {
        return u32::from_be_bytes([*a, *b, *c, *d]);
    }
    match sound.rate_hz {
        rate_hz if rate_hz == 0 || rate_hz == timescale & 0xffff => timescale,
        rate_hz => rate_hz,
    }
}

fn encode_anew() -> String {
    reasons::encode_anew(TrackMedia::Audio, KIND)
}
