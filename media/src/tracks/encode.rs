// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes a presentation as bytes for the cache folder, and decodes it.
//!
//! Tables are stored as differences: a video sample needs about three bytes, an audio sample two.
//! Decoded tables are pushed through [`SampleTableBuilder`] and [`Presentation::assemble`] again,
//! so a stored presentation has passed every check of a file's own tables.
//!
//! The elementary streams of a transport stream are stored beside its packet plan, in an envelope
//! of their own, so that one cannot be mistaken for the other.
//!
//! Does not write or check the envelope itself ([`crate::stored`] does).

use super::{
    AacConfig, Av1Config, Codec, Container, Display, H264Config, H265Config, LeftOut, MediaSample,
    PcmConfig, PcmForm, PixelAspect, Presentation, SECONDS_MAX, SampleTable, SampleTableBuilder,
    TRACKS_MAX, Track, TrackLabel, Turn,
};
use crate::plan::{PlanKey, RtpIdentity};
use crate::stored::{Envelope, PlanReader, PlanWriter, contradiction};
use crate::{PlanFault, TICKS_PER_SECOND};

/// Number of the format; to be increased with every change of it, and of a demuxer's result.
pub const PRESENTATION_FORMAT: u32 = 8;

pub(crate) const MAGIC: [u8; 8] = *b"pwtrack\n";

const ENVELOPE: Envelope = Envelope { magic: MAGIC, format: PRESENTATION_FORMAT };

/// Number of the format of elementary streams; to be increased with every change of it, and of the
/// result of [`crate::ElementaryDemuxer`].
pub const ELEMENTARY_FORMAT: u32 = 6;

const ELEMENTARY: Envelope = Envelope { magic: *b"pwelems\n", format: ELEMENTARY_FORMAT };

impl Presentation {
    /// Encodes the presentation; the bytes are valid only for the file with this key.
    pub fn encode(&self, key: &PlanKey) -> Vec<u8> {
        let envelope = match self.container {
            Container::TransportStream => ELEMENTARY,
            _ => ENVELOPE,
        };
        envelope.seal(key, |out| {
            out.number(self.container.number());
            out.number(self.file_bytes);
            out.number(self.file_origin_ticks);
            out.number(self.tracks.len() as u64);
            self.tracks.iter().for_each(|track| write_track(track, out));
            out.number(self.left_out.len() as u64);
            for track in &self.left_out {
                out.number(track.id.into());
                out.bytes(track.reason.as_bytes());
            }
            out.number(self.warnings.len() as u64);
            self.warnings.iter().for_each(|warning| out.bytes(warning.as_bytes()));
        })
    }

    /// Decodes the presentation of the file with this key, as written by [`encode`](Self::encode).
    pub fn decode(bytes: &[u8], key: &PlanKey) -> Result<Self, PlanFault> {
        let is_file = |container: &Container| *container != Container::TransportStream;
        Self::read(ENVELOPE, is_file, bytes, key)
    }

    /// Decodes the elementary streams of the transport stream with this key, as written by
    /// [`encode`](Self::encode).
    pub fn decode_elementary(bytes: &[u8], key: &PlanKey) -> Result<Self, PlanFault> {
        let is_stream = |container: &Container| *container == Container::TransportStream;
        Self::read(ELEMENTARY, is_stream, bytes, key)
    }

    fn read(
        envelope: Envelope,
        is_wanted: impl Fn(&Container) -> bool,
        bytes: &[u8],
        key: &PlanKey,
    ) -> Result<Self, PlanFault> {
        let parts = envelope.open(bytes, key, |body| {
            let container = Container::numbered(body.number()?).filter(&is_wanted)?;
            let file_bytes = body.number()?;
            let file_origin_ticks = body.number()?;
            let tracks = body.items(1, |body| read_track(body, file_bytes))?;
            let left_out = body.items(2, |body| {
                let id = u32::try_from(body.number()?).ok()?;
                Some(LeftOut { id, reason: read_text(body)? })
            })?;
            let warnings = body.items(1, read_text)?;
            Some(((container, file_bytes), file_origin_ticks, tracks, left_out, warnings))
        })?;
        let ((container, file_bytes), file_origin_ticks, tracks, left_out, warnings) = parts;
        if file_bytes != key.bytes {
            return Err(contradiction("file size"));
        }
        if tracks.len() > TRACKS_MAX {
            return Err(contradiction("number of tracks"));
        }
        let assembled = Presentation::assemble(container, file_bytes, tracks, left_out)
            .map_err(|_| contradiction("tracks"))?;
        // The stored tracks already begin at the title's start, so this value is stored beside
        // them.
        if file_origin_ticks > SECONDS_MAX * TICKS_PER_SECOND {
            return Err(contradiction("time of the title's start"));
        }
        Ok(Presentation { file_origin_ticks, warnings, ..assembled })
    }
}

impl Container {
    const fn number(self) -> u64 {
        match self {
            Container::Mp4 => 0,
            Container::FragmentedMp4 => 1,
            Container::Matroska => 2,
            Container::MpegAudio => 3,
            Container::Adts => 4,
            Container::TransportStream => 5,
            Container::Wav => 6,
        }
    }

    fn numbered(number: u64) -> Option<Container> {
        Container::ALL.into_iter().find(|container| container.number() == number)
    }
}

fn read_text(body: &mut PlanReader<'_>) -> Option<String> {
    String::from_utf8(body.bytes()?.to_vec()).ok()
}

fn write_track(track: &Track, out: &mut PlanWriter) {
    out.number(track.id.into());
    write_codec(&track.codec, out);
    out.bytes(track.language.as_ref().map_or(&[], |language| &language[..]));
    write_label(&track.label, out);
    write_display(track.display, out);
    out.signed(track.shift);
    track.identity.write(out);
    write_samples(&track.samples, out);
}

fn read_track(body: &mut PlanReader<'_>, file_bytes: u64) -> Option<Track> {
    let id = u32::try_from(body.number()?).ok()?;
    let codec = read_codec(body)?;
    let language = body.bytes()?.try_into().ok();
    let label = read_label(body)?;
    let display = read_display(body)?;
    let shift = body.signed()?;
    let identity = RtpIdentity::read(body)?;
    let samples = read_samples(body, file_bytes)?;
    Some(Track { id, codec, language, label, display, samples, shift, identity })
}

/// The name, empty if there is none, and the uses in three bits.
fn write_label(label: &TrackLabel, out: &mut PlanWriter) {
    out.bytes(label.name.as_deref().unwrap_or_default().as_bytes());
    let uses = [label.is_default, label.is_commentary, label.is_description];
    out.number(uses.iter().rev().fold(0, |bits, &is_so| bits << 1 | u64::from(is_so)));
}

fn read_label(body: &mut PlanReader<'_>) -> Option<TrackLabel> {
    let name = TrackLabel::name_of(body.bytes()?);
    let bits = Some(body.number()?).filter(|&bits| bits < 8)?;
    let [is_default, is_commentary, is_description] = [0, 1, 2].map(|bit| bits >> bit & 1 != 0);
    Some(TrackLabel { name, is_default, is_commentary, is_description })
}

/// The four signs of the rotation or mirroring, each plus one; then the pixel aspect ratio, two
/// zeros if there is none.
fn write_display(display: Display, out: &mut PlanWriter) {
    out.0.extend(display.turn.signs().map(|sign| (sign + 1) as u8));
    let (width, height) = display.pixel_aspect.map_or((0, 0), PixelAspect::numbers);
    out.number(width.into());
    out.number(height.into());
}

fn read_display(body: &mut PlanReader<'_>) -> Option<Display> {
    let signs: [u8; 4] = body.array()?;
    let turn = Turn::of_signs(signs.map(|sign| i32::from(sign) - 1))?;
    let pixel_aspect = match (body.number()?, body.number()?) {
        (0, 0) => None,
        (width, height) => Some(PixelAspect::new(width, height)?),
    };
    Some(Display { turn, pixel_aspect })
}

fn write_codec(codec: &Codec, out: &mut PlanWriter) {
    let sets = |sets: &[Vec<u8>], out: &mut PlanWriter| {
        out.number(sets.len() as u64);
        sets.iter().for_each(|set| out.bytes(set));
    };
    match codec {
        Codec::H264(config) => {
            out.number(1);
            out.number(config.length_bytes.into());
            out.0.extend(config.profile);
            sets(&config.sequence_sets, out);
            sets(&config.picture_sets, out);
        }
        Codec::H265(config) => {
            out.number(2);
            out.number(config.length_bytes.into());
            out.0.extend(config.profile);
            sets(&config.video_sets, out);
            sets(&config.sequence_sets, out);
            sets(&config.picture_sets, out);
        }
        Codec::Av1(config) => {
            out.number(3);
            let tier = u8::from(config.is_high_tier);
            out.0.extend([config.profile, config.level, tier, config.bit_depth]);
            out.bytes(&config.units);
        }
        Codec::Aac(config) => {
            out.number(4);
            out.bytes(&config.specific);
            out.0.extend([config.object_type, config.channels]);
            out.number(config.rate_hz.into());
        }
        Codec::MpegAudio => out.number(5),
        Codec::Opus { channels } => {
            out.number(6);
            out.number((*channels).into());
        }
        Codec::Ac3 { rate_hz, channels } => {
            out.number(7);
            out.number((*rate_hz).into());
            out.number((*channels).into());
        }
        Codec::Eac3 { rate_hz, channels } => {
            out.number(8);
            out.number((*rate_hz).into());
            out.number((*channels).into());
        }
        Codec::Pcm(PcmConfig { form, rate_hz, channels }) => {
            out.number(9);
            out.number(form_number(*form));
            out.number((*rate_hz).into());
            out.number((*channels).into());
        }
        // Not read as a codec: presentations of trick play are not stored.
        Codec::Mp2t => out.number(0),
    }
}

fn read_codec(body: &mut PlanReader<'_>) -> Option<Codec> {
    let small = |body: &mut PlanReader<'_>| u8::try_from(body.number()?).ok();
    let length = |body: &mut PlanReader<'_>| small(body).filter(|bytes| matches!(bytes, 1 | 2 | 4));
    let rate = |body: &mut PlanReader<'_>| {
        u32::try_from(body.number()?).ok().filter(|rate_hz| *rate_hz > 0)
    };
    let sets = |body: &mut PlanReader<'_>| body.items(1, |body| Some(body.bytes()?.to_vec()));
    Some(match body.number()? {
        1 => Codec::H264(H264Config {
            length_bytes: length(body)?,
            profile: body.array()?,
            sequence_sets: sets(body)?,
            picture_sets: sets(body)?,
        }),
        2 => Codec::H265(H265Config {
            length_bytes: length(body)?,
            profile: body.array()?,
            video_sets: sets(body)?,
            sequence_sets: sets(body)?,
            picture_sets: sets(body)?,
        }),
        3 => {
            let [profile, level, tier, bit_depth] = body.array()?;
            let units = body.bytes()?.to_vec();
            Codec::Av1(Av1Config { profile, level, is_high_tier: tier != 0, bit_depth, units })
        }
        4 => {
            let specific = body.bytes()?.to_vec();
            let [object_type, channels] = body.array()?;
            Codec::Aac(AacConfig { specific, object_type, rate_hz: rate(body)?, channels })
        }
        5 => Codec::MpegAudio,
        6 => Codec::Opus { channels: small(body)? },
        7 => Codec::Ac3 { rate_hz: rate(body)?, channels: small(body)? },
        8 => Codec::Eac3 { rate_hz: rate(body)?, channels: small(body)? },
        9 => {
            let number = body.number()?;
            Codec::Pcm(PcmConfig {
                form: PcmForm::ALL.into_iter().find(|form| form_number(*form) == number)?,
                rate_hz: rate(body)?,
                channels: small(body).filter(|channels| *channels > 0)?,
            })
        }
        _ => return None,
    })
}

const fn form_number(form: PcmForm) -> u64 {
    match form {
        PcmForm::L8 => 0,
        PcmForm::L16 => 1,
        PcmForm::L24 => 2,
        PcmForm::ALaw => 3,
        PcmForm::MuLaw => 4,
        PcmForm::L16BigEndian => 5,
        PcmForm::L24BigEndian => 6,
    }
}

/// Each sample is a size and flags, followed by the fields that the flags name: the file offset if
/// the bytes do not follow those of the sample before, the decode time and duration if either is
/// irregular, the presentation offset if it differs. All fields except the duration are relative to
/// the sample before.
fn write_samples(samples: &SampleTable, out: &mut PlanWriter) {
    out.number(samples.timescale().into());
    out.number(samples.len() as u64);
    let mut before = FIRST;
    for sample in samples.samples(0..samples.len()) {
        let moved = sample.file_offset != before.file_offset + u64::from(before.bytes);
        let paced = sample.duration != before.duration
            || sample.decode != before.decode + u64::from(before.duration);
        let offset = sample.offset != before.offset;
        let flags = u64::from(sample.is_start)
            | u64::from(moved) << 1
            | u64::from(paced) << 2
            | u64::from(offset) << 3;
        out.number(u64::from(sample.bytes) << 4 | flags);
        if moved {
            out.signed(sample.file_offset as i64 - before.file_offset as i64);
        }
        if paced {
            out.number(sample.decode - before.decode);
            out.number(sample.duration.into());
        }
        if offset {
            out.signed(i64::from(sample.offset) - i64::from(before.offset));
        }
        before = sample;
    }
}

fn read_samples(body: &mut PlanReader<'_>, file_bytes: u64) -> Option<SampleTable> {
    let timescale = u32::try_from(body.number()?).ok().filter(|timescale| *timescale > 0)?;
    let mut table = SampleTableBuilder::new(timescale, file_bytes);
    let mut before = FIRST;
    body.items(1, |body| {
        let number = body.number()?;
        let mut sample = MediaSample {
            file_offset: before.file_offset.checked_add(before.bytes.into())?,
            bytes: u32::try_from(number >> 4).ok()?,
            decode: before.decode.checked_add(before.duration.into())?,
            is_start: number & 1 != 0,
            ..before
        };
        if number & 2 != 0 {
            let offset = i64::try_from(before.file_offset).ok()?.checked_add(body.signed()?)?;
            sample.file_offset = u64::try_from(offset).ok()?;
        }
        if number & 4 != 0 {
            sample.decode = before.decode.checked_add(body.number()?)?;
            sample.duration = u32::try_from(body.number()?).ok()?;
        }
        if number & 8 != 0 {
            let offset = i64::from(before.offset).checked_add(body.signed()?)?;
            sample.offset = i32::try_from(offset).ok()?;
        }
        table.push(sample).ok()?;
        before = sample;
        Some(())
    })?;
    table.finish()
}

/// Values with which the first sample is compared.
const FIRST: MediaSample =
    MediaSample { file_offset: 0, bytes: 0, decode: 0, offset: 0, duration: 0, is_start: false };
