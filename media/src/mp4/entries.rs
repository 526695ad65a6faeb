// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the codec of a track from the sample descriptions in its `stsd` box.
//!
//! An entry is read into memory; all entries together have at most 1 MiB. An entry that cannot be
//! streamed has a reason with a remedy in place of a codec.
//!
//! Sources: ISO/IEC 14496-12 §8.5.2, §12.1.3, §12.2.3; QuickTime File Format, "Sound Sample
//! Descriptions" (versions 1 and 2, `wave`); ISO/IEC 14496-14 §5.6 (esds) and the list of object
//! types at mp4ra.org; "Encapsulation of Opus in ISO Base Media File Format" §4.3; ETSI TS 102 366
//! annex F (dac3, dec3).
//! Does not read parameter sets, or samples.

use mp4_atom::{Ac3SpecificBox, Atom, Dops, Ec3SpecificBox, Esds};

use super::boxes::{FileBox, FourCode, Input, broken, spelled};
use super::pcm_entries::{PCM_CODES, pcm};
use crate::DemuxError;
use crate::text::{TextCoding, TtmlEntry};
use crate::tracks::reasons::{self, UnsentKind};
use crate::tracks::{Codec, Container, PixelAspect, TrackMedia, records};

const DESCRIPTIONS_BYTES_MAX: u64 = 1 << 20;

/// Descriptions of a track that are read: one is the rule.
const DESCRIPTIONS_MAX: usize = 16;

/// Bytes of an entry before its fields: size, type, reserved ones and the data reference.
const ENTRY_HEADER_BYTES: usize = 16;

/// Offset of the boxes in the body of an entry of pictures, and in one of sound.
const PICTURE_FIELDS: usize = 78;
const SOUND_FIELDS: usize = 28;

/// Fields that QuickTime's versions of an entry of sound have beyond those.
const SOUND_FIELDS_1: usize = 16;
const SOUND_FIELDS_2: usize = 36;

/// A sample description.
#[derive(Debug, Clone)]
pub(super) struct Description {
    pub(super) code: FourCode,
    /// The number of the data reference, from 1 on.
    pub(super) data_reference: u16,
    /// The codec, or why it is not streamed.
    pub(super) codec: Result<Codec, String>,
    /// Pixel aspect ratio, of pictures only; `None` if it is absent or unusable.
    pub(super) pixel_aspect: Option<PixelAspect>,
    /// Set for text that is read ([`crate::text`]).
    pub(super) text: Option<TextCoding>,
    /// The entry of TTML, or the reason for leaving the track out; `None` for other tracks.
    pub(super) ttml: Option<Result<TtmlEntry, String>>,
}

/// The descriptions of a track with this handler (ISO/IEC 14496-12 §8.4.3) and time scale.
pub(super) fn descriptions(
    input: &Input<'_>,
    found: &FileBox,
    about: (Option<FourCode>, u32),
) -> Result<Vec<Description>, DemuxError> {
    let body = found.read_body(input, DESCRIPTIONS_BYTES_MAX)?;
    let Some((&[.., a, b, c, d], mut rest)) = body.split_first_chunk::<8>() else {
        return Err(broken(found.start, "stsd without a number of entries"));
    };
    let count = u32::from_be_bytes([a, b, c, d]);
    let mut all = Vec::new();
    for number in 1..=count.min(DESCRIPTIONS_MAX as u32) {
        let entry = rest.first_chunk::<ENTRY_HEADER_BYTES>().and_then(|header| {
            let &[a, b, c, d, code @ .., _, _, _, _, _, _, e, f] = header;
            let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
            let (entry, behind) = rest.split_at_checked(bytes)?;
            let body = entry.get(8..).filter(|body| body.len() >= ENTRY_HEADER_BYTES - 8)?;
            Some((code, u16::from_be_bytes([e, f]), body, behind))
        });
        let Some((code, data_reference, body, behind)) = entry else {
            let what = format!("stsd whose entry {number} of {count} does not lie in it");
            return Err(broken(found.start, what));
        };
        let (codec, text) = (codec(code, about, body), TextCoding::of_entry(code));
        let ttml = (text == Some(TextCoding::Stpp)).then(|| TtmlEntry::of(body));
        let pixel_aspect = pixel_aspect(body);
        all.push(Description { code, data_reference, codec, pixel_aspect, text, ttml });
        rest = behind;
    }
    Ok(all)
}

/// The codec of an entry.
///
/// # Errors
/// The reason why the track is left out.
fn codec(
    code: FourCode,
    (handler, timescale): (Option<FourCode>, u32),
    body: &[u8],
) -> Result<Codec, String> {
    match &code {
        b"avc1" | b"avc3" => records::avc(picture_box(body, b"avcC")?).map_err(remux),
        b"hvc1" | b"hev1" => records::hevc(picture_box(body, b"hvcC")?).map_err(remux),
        b"av01" => records::av1(picture_box(body, b"av1C")?).map_err(remux),
        b"mp4a" => mpeg4_sound(&Sound::of(body)?),
        // The second is QuickTime's name for layer III, by its number in WAVE files.
        b".mp3" | b"ms\0\x55" => Ok(Codec::MpegAudio),
        b"Opus" => opus(Sound::of(body)?.config(b"dOps")?),
        b"ac-3" => ac3(&Sound::of(body)?),
        b"ec-3" => eac3(&Sound::of(body)?),
        // The same type is that of pictures that are not compressed.
        b"raw " if handler == Some(*b"vide") => Err(UnsentKind::Pictures.reason(KIND)),
        code if PCM_CODES.contains(code) => pcm(code, &Sound::of(body)?, timescale),
        _ => Err(unsent_kind(code, handler).reason(KIND)),
    }
}

/// The kind of an entry that is not streamed: by its type, or else by the track's handler.
fn unsent_kind(code: FourCode, handler: Option<FourCode>) -> UnsentKind {
    match &code {
        b"encv" | b"enca" | b"enct" | b"drmi" | b"drms" => UnsentKind::Encrypted,
        b"tx3g" | b"text" | b"sbtl" | b"subt" | b"wvtt" | b"stpp" | b"c608" | b"c708" => {
            UnsentKind::Text
        }
        b"mp4s" => UnsentKind::Bitmaps,
        b"tmcd" | b"rtp " | b"srtp" | b"fdp " | b"mett" | b"metx" | b"mebx" | b"urim" | b"camm"
        | b"gpmd" | b"evte" => UnsentKind::Data,
        _ => match handler.as_ref() {
            Some(b"vide") => UnsentKind::Pictures,
            Some(b"soun") => UnsentKind::Sound,
            Some(b"subt" | b"text" | b"sbtl" | b"clcp") => UnsentKind::Text,
            Some(b"subp") => UnsentKind::Bitmaps,
            Some(b"meta" | b"tmcd" | b"hint") => UnsentKind::Data,
            _ => UnsentKind::Unknown,
        },
    }
}

/// Returns the body of the first box of this type among `boxes`, which are read up to the first
/// invalid one.
fn find<'a>(mut boxes: &'a [u8], wanted: &FourCode) -> Option<&'a [u8]> {
    loop {
        let &[a, b, c, d, ref code @ ..] = boxes.first_chunk::<8>()?;
        let bytes = match u32::from_be_bytes([a, b, c, d]) as usize {
            0 => boxes.len(),
            bytes => bytes,
        };
        let (found, behind) = boxes.split_at_checked(bytes)?;
        let body = found.get(8..)?;
        if code == wanted {
            return Some(body);
        }
        boxes = behind;
    }
}

fn missing(wanted: &FourCode) -> String {
    format!("no {} box in its sample description; {REMUX}", spelled(*wanted))
}

/// The body of a box in an entry of pictures.
fn picture_box<'a>(body: &'a [u8], wanted: &FourCode) -> Result<&'a [u8], String> {
    body.get(PICTURE_FIELDS..).and_then(|boxes| find(boxes, wanted)).ok_or_else(|| missing(wanted))
}

/// Returns the pixel aspect ratio in an entry of pictures (§12.1.4.3); without meaning in other
/// entries.
fn pixel_aspect(body: &[u8]) -> Option<PixelAspect> {
    let found = find(body.get(PICTURE_FIELDS..)?, b"pasp")?;
    let &[a, b, c, d, e, f, g, h] = found.first_chunk::<8>()?;
    let [width, height] = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
    PixelAspect::new(width.into(), height.into())
}

/// A configuration box.
fn decoded<T: Atom>(body: &[u8]) -> Result<T, String> {
    T::decode_body(&mut &*body).map_err(|error| {
        format!("a broken {} box in its sample description: {error}; {REMUX}", T::KIND)
    })
}

/// A fault with its remedy.
fn remux(fault: impl std::fmt::Display) -> String {
    format!("{fault}; {REMUX}")
}

pub(super) const KIND: Container = Container::Mp4;
pub(super) const REMUX: &str = reasons::remux(KIND);

/// An entry of sound.
pub(super) struct Sound<'a> {
    pub(super) version: u16,
    pub(super) channels: u32,
    /// Bits of a sample of one channel, by the field of version 0.
    pub(super) bits: u16,
    pub(super) rate_hz: u32,
    /// Fields of version 2 after the channels.
    pub(super) fields_2: Option<[u32; 5]>,
    /// Boxes after its fields, and the other offset at which they may begin.
    boxes: [&'a [u8]; 2],
}

impl Sound<'_> {
    fn of(body: &[u8]) -> Result<Sound<'_>, String> {
        let short = || format!("a sample description of {} bytes; {REMUX}", body.len());
        let (fields, boxes) = body.split_first_chunk::<SOUND_FIELDS>().ok_or_else(short)?;
        let version = u16::from_be_bytes([fields[8], fields[9]]);
        let mut channels = u32::from(u16::from_be_bytes([fields[16], fields[17]]));
        let bits = u16::from_be_bytes([fields[18], fields[19]]);
        // 16.16 fixed point: 16 bits before the point and 16 after it.
        let mut rate_hz = u32::from(u16::from_be_bytes([fields[24], fields[25]]));
        let more = match version {
            1 => SOUND_FIELDS_1,
            2 => SOUND_FIELDS_2,
            _ => 0,
        };
        if let Some(&[_, _, _, _, rate @ .., a, b, c, d]) =
            boxes.first_chunk::<16>().filter(|_| version == 2)
        {
            rate_hz = f64::from_be_bytes(rate) as u32;
            channels = u32::from_be_bytes([a, b, c, d]);
        }
        let fields_2 = boxes.get(16..SOUND_FIELDS_2).filter(|_| version == 2).map(|fields| {
            let word = |at: usize| [fields[at], fields[at + 1], fields[at + 2], fields[at + 3]];
            [0, 4, 8, 12, 16].map(|at| u32::from_be_bytes(word(at)))
        });
        let quicktime = boxes.get(more..).unwrap_or_default();
        // Version 1 of ISO/IEC 14496-12 §12.2.3 has no more fields than version 0.
        Ok(Sound { version, channels, bits, rate_hz, fields_2, boxes: [quicktime, boxes] })
    }

    fn channels(&self) -> u8 {
        self.channels.min(u8::MAX.into()) as u8
    }

    /// Returns the body of a box in the entry, or in the box in which QuickTime encloses boxes for
    /// a decoder.
    pub(super) fn config(&self, wanted: &FourCode) -> Result<&[u8], String> {
        let places = self.boxes.iter().flat_map(|&boxes| {
            [find(boxes, wanted), find(boxes, b"wave").and_then(|wave| find(wave, wanted))]
        });
        places.flatten().next().ok_or_else(|| missing(wanted))
    }

    /// Returns the rate of the codec, or that of the entry if the codec gives none.
    fn rate(&self, rate_hz: Option<u32>) -> Result<u32, String> {
        let rate_hz = rate_hz.unwrap_or(self.rate_hz);
        if rate_hz == 0 {
            return Err(format!("sound of 0 samples a second; {REMUX}"));
        }
        Ok(rate_hz)
    }
}

/// Object types: mp4ra.org, "Object types".
fn mpeg4_sound(sound: &Sound<'_>) -> Result<Codec, String> {
    let record = sound.config(b"esds")?;
    let config = decoded::<Esds>(record)?.es_desc.dec_config;
    match config.object_type_indication {
        // MPEG-4, and MPEG-2 AAC in its three profiles.
        0x40 | 0x66..=0x68 => {
            let specific = config.dec_specific.map(|specific| specific.raw).unwrap_or_default();
            let encode_anew = || reasons::encode_anew(TrackMedia::Audio, KIND);
            records::aac(&specific, sound.channels())
                .map_err(|fault| format!("AAC: {fault}; {}", encode_anew()))
        }
        0x69 | 0x6b => Ok(Codec::MpegAudio),
        0xa5 => Ok(Codec::Ac3 { rate_hz: sound.rate(None)?, channels: sound.channels() }),
        0xa6 => Ok(Codec::Eac3 { rate_hz: sound.rate(None)?, channels: sound.channels() }),
        other => Err(format!("object type 0x{other:02x}: {}", UnsentKind::Sound.reason(KIND))),
    }
}

fn opus(record: &[u8]) -> Result<Codec, String> {
    let config: Dops = decoded(record)?;
    let channels = config.output_channel_count;
    // RFC 7587 §2: streams of one or two channels; family 1 describes the same for these.
    if !matches!(channels, 1 | 2) {
        return Err(reasons::opus_channels(channels.into(), KIND));
    }
    Ok(Codec::Opus { channels })
}

/// Channels by audio coding mode, ETSI TS 102 366 table 4.3; in mode 0 they are two programmes.
const CHANNELS: [u8; 8] = [2, 1, 2, 3, 3, 4, 4, 5];

/// Sampling rates by `fscod`, ETSI TS 102 366 table 4.1. The fourth is half of one of them, and the
/// box does not say of which.
const RATES_HZ: [u32; 3] = [48_000, 44_100, 32_000];

fn ac3(sound: &Sound<'_>) -> Result<Codec, String> {
    let config: Ac3SpecificBox = decoded(sound.config(b"dac3")?)?;
    let rate_hz = sound.rate(RATES_HZ.get(usize::from(config.fscod)).copied())?;
    let channels = CHANNELS[usize::from(config.acmod & 7)] + u8::from(config.lfeon);
    Ok(Codec::Ac3 { rate_hz, channels })
}

/// Every decoder plays the first independent substream.
fn eac3(sound: &Sound<'_>) -> Result<Codec, String> {
    let config: Ec3SpecificBox = decoded(sound.config(b"dec3")?)?;
    let first = config.substreams.first().ok_or_else(|| missing(b"dec3"))?;
    let rate_hz = sound.rate(RATES_HZ.get(usize::from(first.fscod)).copied())?;
    let channels = CHANNELS[usize::from(first.acmod & 7)] + u8::from(first.lfeon);
    Ok(Codec::Eac3 { rate_hz, channels })
}
