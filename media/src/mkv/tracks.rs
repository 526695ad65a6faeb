// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks of a Matroska file: their data, and the conversion of their frames to tables.
//!
//! Sources: RFC 9559 §5.1.4 (Tracks), §5.1.4.1.31 (ContentEncodings); Matroska codec
//! specifications (codec identifiers and their private data).
//! Does not read blocks.

use std::io;

use super::{NAME, ebml};
use crate::Refusal;
use crate::plan::RtpIdentity;
use crate::random_access;
use crate::read_at::ReadAt;
use crate::reorder::{HELD_MAX, Reorder};
use crate::tracks::reasons::{self, UnsentKind};
use crate::tracks::records;
use crate::tracks::{
    Codec, Container, Display, LeftOut, MediaSample, PixelAspect, SampleFault, SampleTableBuilder,
    TRACKS_MAX, TRACKS_READ_MAX, Track, TrackLabel, TrackMedia,
};

/// A track whose frames are collected.
#[derive(Debug)]
pub(super) struct MkvTrack {
    number: u64,
    id: u32,
    codec: Codec,
    language: Option<[u8; 3]>,
    label: TrackLabel,
    display: Display,
    /// Nanoseconds of the file's unit of time.
    scale_ns: u64,
    /// Units of this track's media time a second.
    timescale: u32,
    /// Length of a frame in these units, if known.
    frame_units: Option<i64>,
    /// Time of the next frame, if it follows the last without a gap.
    next: i64,
    /// Delay subtracted from presentation times, in units.
    delay: i64,
    reorder: Reorder<Frame>,
    /// The frame before, until the time of its end is known.
    last: Option<MediaSample>,
    /// Largest excess of a decoding time over the presentation time.
    lead: i64,
    table: SampleTableBuilder,
    frames: usize,
    /// Random-access points that were found in the pictures, as no block is marked as one.
    starts_found: u32,
}

/// Place and kind of a frame.
#[derive(Debug, Clone, Copy)]
struct Frame {
    file_offset: u64,
    bytes: u32,
    is_key: bool,
}

/// Tracks that are collected, and the others.
///
/// # Errors
/// There are too many of either.
pub(super) fn read(
    content: &[u8],
    scale_ns: u64,
    file_bytes: u64,
) -> Result<(Vec<MkvTrack>, Vec<LeftOut>), Refusal> {
    let too_many = |found| {
        let limit = TRACKS_MAX;
        Err(Refusal::TooManyTracks { container: NAME, found, limit })
    };
    let entries = || ebml::children(content).filter(|(id, _)| *id == TRACK_ENTRY);
    let found = entries().count();
    if found > TRACKS_READ_MAX {
        return too_many(found);
    }
    let (mut tracks, mut left_out) = (Vec::new(), Vec::new());
    for (_, entry) in entries() {
        let entry = Entry::read(entry);
        let id = u32::try_from(entry.number).unwrap_or(u32::MAX);
        match entry.codec() {
            Ok(codec) => tracks.push(MkvTrack::new(&entry, id, codec, scale_ns, file_bytes)),
            Err(reason) => {
                let reason = format!("track {id} ({}): {reason}", entry.codec_id);
                left_out.push(LeftOut { id, reason });
            }
        }
    }
    // The check is before any block is read: the track of each block is searched for.
    match tracks.len() {
        0..=TRACKS_MAX => Ok((tracks, left_out)),
        found => too_many(found),
    }
}

/// Fields of a TrackEntry.
#[derive(Default)]
pub(super) struct Entry<'a> {
    pub(super) number: u64,
    pub(super) codec_id: &'a str,
    pub(super) label: TrackLabel,
    /// Language by RFC 5646.
    pub(super) language_tag: &'a [u8],
    pub(super) is_forced: bool,
    private: &'a [u8],
    frame_ns: Option<u64>,
    delay_ns: u64,
    pub(super) language: Option<[u8; 3]>,
    rate_hz: f64,
    channels: u64,
    pixel_aspect: Option<PixelAspect>,
    pub(super) is_encoded: bool,
}

impl<'a> Entry<'a> {
    pub(super) fn read(content: &'a [u8]) -> Entry<'a> {
        let label = TrackLabel { is_default: true, ..TrackLabel::default() };
        let mut entry = Entry { label, rate_hz: 8000.0, channels: 1, ..Entry::default() };
        for (id, value) in ebml::children(content) {
            let number = || ebml::unsigned(value).unwrap_or(0);
            match id {
                TRACK_NUMBER => entry.number = number(),
                CODEC_ID => {
                    entry.codec_id = text(&value[..value.len().min(CODEC_ID_BYTES_MAX)]);
                }
                CODEC_PRIVATE => entry.private = value,
                DEFAULT_DURATION => {
                    entry.frame_ns = Some(number()).filter(|ns| (1..=SECOND_NS).contains(ns));
                }
                CODEC_DELAY => entry.delay_ns = number(),
                NAME_OF_TRACK => entry.label.name = TrackLabel::name_of(value),
                LANGUAGE_TAG => entry.language_tag = value,
                FLAG_FORCED => entry.is_forced = number() == 1,
                FLAG_DEFAULT => entry.label.is_default = number() == 1,
                FLAG_COMMENTARY => entry.label.is_commentary = number() == 1,
                FLAG_VISUAL_IMPAIRED => entry.label.is_description = number() == 1,
                LANGUAGE => entry.language = value.try_into().ok(),
                CONTENT_ENCODINGS => entry.is_encoded = true,
                VIDEO => entry.pixel_aspect = pixel_aspect(value),
                AUDIO => {
                    for (id, value) in ebml::children(value) {
                        match id {
                            SAMPLING_FREQUENCY => {
                                entry.rate_hz = ebml::float(value).unwrap_or(entry.rate_hz);
                            }
                            CHANNELS => entry.channels = ebml::unsigned(value).unwrap_or(1),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        entry
    }

    /// The codec, or why the track is not sent.
    fn codec(&self) -> Result<Codec, String> {
        if self.is_encoded {
            return Err(
                "compressed or encrypted by the container: its frames are not in the file \
                        as they are sent; remux it without (mkvmerge -o OUT.mkv --compression \
                        -1:none IN)"
                    .to_owned(),
            );
        }
        let rate_hz = self.rate_hz as u32;
        let channels = self.channels.clamp(1, 8) as u8;
        let is_rate = (1..=192_000).contains(&rate_hz);
        let rated = |codec| match is_rate {
            true => Ok(codec),
            false => {
                let cure = reasons::encode_anew(TrackMedia::Audio, KIND);
                Err(format!("a sampling frequency that no sound has; {cure}"))
            }
        };
        let remux = |fault| format!("{fault}; {}", reasons::remux(KIND));
        match self.codec_id {
            "V_MPEG4/ISO/AVC" => records::avc(self.private).map_err(remux),
            "V_MPEGH/ISO/HEVC" => records::hevc(self.private).map_err(remux),
            "V_AV1" => records::av1(self.private).map_err(remux),
            "A_AAC" => records::aac(self.private, channels).map_err(|fault| {
                format!("{fault}; {}", reasons::encode_anew(TrackMedia::Audio, KIND))
            }),
            "A_MPEG/L3" | "A_MPEG/L2" | "A_MPEG/L1" => rated(Codec::MpegAudio),
            "A_OPUS" if channels <= 2 => Ok(Codec::Opus { channels }),
            "A_OPUS" => Err(reasons::opus_channels(self.channels, KIND)),
            "A_AC3" => rated(Codec::Ac3 { rate_hz, channels }),
            "A_EAC3" => rated(Codec::Eac3 { rate_hz, channels }),
            _ => Err(self.unsent_kind().reason(KIND)),
        }
    }

    /// The kind of a track by its codec's prefix (Matroska codec specifications §3.1).
    fn unsent_kind(&self) -> UnsentKind {
        match self.codec_id {
            "S_HDMV/PGS" | "S_VOBSUB" | "S_DVBSUB" => UnsentKind::Bitmaps,
            // Codecs of WebM.
            id if id.starts_with("S_") || id.starts_with("D_WEBVTT/") => UnsentKind::Text,
            id if id.starts_with("V_") => UnsentKind::Pictures,
            id if id.starts_with("A_") => UnsentKind::Sound,
            id if id.starts_with("B_") || id.starts_with("D_") => UnsentKind::Data,
            _ => UnsentKind::Unknown,
        }
    }
}

impl MkvTrack {
    fn new(entry: &Entry<'_>, id: u32, codec: Codec, scale_ns: u64, file_bytes: u64) -> MkvTrack {
        let is_video = codec.media() == TrackMedia::Video;
        let timescale = match &codec {
            // Sound is counted in its samples, so that the length of a frame is a whole number.
            Codec::Aac(config) => config.rate_hz,
            Codec::MpegAudio => entry.rate_hz as u32,
            Codec::Ac3 { rate_hz, .. } | Codec::Eac3 { rate_hz, .. } => *rate_hz,
            Codec::Opus { .. } => 48_000,
            _ => 90_000,
        };
        let units = |ns: u64| (u128::from(ns) * u128::from(timescale) / 1_000_000_000) as i64;
        let frame_units = match &codec {
            // Of low delay a frame is half as long or shorter.
            Codec::Aac(config) if !matches!(config.object_type, 23 | 39) => Some(1024),
            Codec::MpegAudio if timescale >= 32_000 => Some(1152),
            Codec::MpegAudio => Some(576),
            Codec::Ac3 { .. } => Some(1536),
            _ => entry.frame_ns.map(units).filter(|_| !is_video),
        };
        MkvTrack {
            number: entry.number,
            id,
            codec,
            language: entry.language,
            label: entry.label.clone(),
            display: Display { pixel_aspect: entry.pixel_aspect, ..Display::default() },
            scale_ns,
            timescale,
            frame_units,
            next: 0,
            delay: units(entry.delay_ns.min(SECOND_NS)),
            reorder: Reorder::new(if is_video { HELD_MAX } else { 0 }),
            last: None,
            lead: 0,
            table: SampleTableBuilder::new(timescale, file_bytes),
            frames: 0,
            starts_found: 0,
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Name of its codec.
    pub(super) fn codec_name(&self) -> String {
        self.codec.name()
    }

    /// Number of frames so far.
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    /// Memory of its table.
    pub(super) fn table_bytes(&self) -> u64 {
        self.table.table_bytes()
    }

    /// Adds a frame, presented at `time` in the file's units; without one it follows the last.
    pub(super) fn push(
        &mut self,
        (file_offset, bytes): (u64, u32),
        time: Option<i64>,
        is_key: bool,
    ) -> Result<(), SampleFault> {
        let presented = match time {
            None => self.next,
            Some(time) => {
                let ns = i128::from(time) * i128::from(self.scale_ns);
                let units = ns * i128::from(self.timescale) / i128::from(SECOND_NS);
                let units = i64::try_from(units).unwrap_or(TIME_MAX).clamp(-TIME_MAX, TIME_MAX);
                // Rounding of the file's times is undone where frames follow each other.
                let rounding = i128::from(self.scale_ns) * 2 * i128::from(self.timescale);
                let rounding = (rounding / i128::from(SECOND_NS)) as i64;
                let follows = self.frame_units.is_some()
                    && self.frames > 0
                    && (units - self.next).abs() <= rounding;
                if follows { self.next } else { units }
            }
        };
        self.next = presented + self.frame_units.unwrap_or(0);
        self.frames += 1;
        let frame = Frame { file_offset, bytes, is_key };
        match self.reorder.push(frame, presented) {
            Some(decoded) => self.enter(decoded),
            None => Ok(()),
        }
    }

    /// Adds a frame with known times to the table; the frame before it ends then.
    fn enter(&mut self, (frame, decode, presented): (Frame, i64, i64)) -> Result<(), SampleFault> {
        self.lead = self.lead.max(decode - presented);
        let time = (decode + BIAS).max(0) as u64;
        let offset = i32::try_from(presented - decode)
            .ok()
            .filter(|offset| (-OFFSET_MAX..=OFFSET_MAX).contains(offset))
            .ok_or(SampleFault::Time { decode: time })?;
        let sample = MediaSample {
            file_offset: frame.file_offset,
            bytes: frame.bytes,
            decode: time,
            offset,
            duration: 0,
            is_start: frame.is_key,
        };
        match self.last.replace(sample) {
            Some(last) => {
                let duration = u32::try_from(time - last.decode).unwrap_or(u32::MAX);
                self.table.push(MediaSample { duration, ..last })
            }
            None => Ok(()),
        }
    }

    /// Enters the frames that are held back at the end. The error names the frame.
    pub(super) fn close(&mut self) -> Result<(), (usize, SampleFault)> {
        while let Some(decoded) = self.reorder.pop() {
            let at = self.table.len();
            self.enter(decoded).map_err(|fault| (at, fault))?;
        }
        if let Some(last) = self.last.take() {
            let at = self.table.len();
            let known = self.frame_units.and_then(|units| u32::try_from(units).ok());
            let duration = known.unwrap_or_else(|| self.table.last_duration());
            self.table.push(MediaSample { duration, ..last }).map_err(|fault| (at, fault))?;
        }
        Ok(())
    }

    /// Looks for random-access points in the pictures of a closed track without any, as
    /// [`random_access::find_starts`] does.
    pub(super) fn find_starts(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        next: &mut usize,
        budget: &mut usize,
    ) -> io::Result<bool> {
        let read = |bytes: &mut [u8], at: u64| file.read_exact_at(bytes, at);
        let track = (&self.codec, &mut self.table);
        random_access::find_starts(track, (next, &mut self.starts_found), budget, read)
    }

    /// Warning for a track whose random-access points had to be searched for.
    pub(super) fn unmarked(&self) -> Option<String> {
        let (id, count) = (self.id, self.starts_found);
        (count > 0).then(|| {
            format!(
                "track {id}: no block is marked as a key frame, and {count} random-access points \
                 were found in the pictures; make the file anew (ffmpeg -i IN -map 0 -c copy \
                 OUT.mkv)"
            )
        })
    }

    /// The track, which is closed; none without a frame with which play can start.
    pub(super) fn finish(self, identity: RtpIdentity) -> Option<Track> {
        let mut samples = self.table.finish()?;
        // All frames are decoded earlier by this, so that none is decoded after it is presented.
        let lead = i32::try_from(self.lead).expect("no frame's is larger than OFFSET_MAX");
        samples.present_later(lead);
        let shift = -BIAS - i64::from(lead) - self.delay;
        let Self { id, codec, language, label, display, .. } = self;
        Some(Track { id, codec, language, label, display, samples, shift, identity })
    }
}

/// Derives the pixel aspect ratio from the sizes of pictures in pixels and as displayed, which need
/// not be in pixels (RFC 9559 §5.1.4.1.28.8 to .14); `None` if one of them is missing.
fn pixel_aspect(video: &[u8]) -> Option<PixelAspect> {
    let number = |wanted: u32| {
        let found = ebml::children(video).find(|(id, _)| *id == wanted);
        found.and_then(|(_, value)| ebml::unsigned(value))
    };
    let shown = (number(DISPLAY_WIDTH)?, number(DISPLAY_HEIGHT)?);
    if number(DISPLAY_UNIT) == Some(UNKNOWN_UNIT) {
        return None;
    }
    let cropped = |of: u32, less: [u32; 2]| {
        let cut = less.map(|side| number(side).unwrap_or(0));
        number(of)?.checked_sub(cut[0])?.checked_sub(cut[1])
    };
    let width = cropped(PIXEL_WIDTH, [PIXEL_CROP_LEFT, PIXEL_CROP_RIGHT])?;
    let height = cropped(PIXEL_HEIGHT, [PIXEL_CROP_TOP, PIXEL_CROP_BOTTOM])?;
    PixelAspect::new(shown.0.checked_mul(height)?, shown.1.checked_mul(width)?)
}

/// Returns the printable start of a string, which may be padded with zeros.
fn text(value: &[u8]) -> &str {
    let end = value.iter().position(|&byte| !byte.is_ascii_graphic()).unwrap_or(value.len());
    std::str::from_utf8(&value[..end]).expect("printable ASCII")
}

const KIND: Container = Container::Matroska;
const SECOND_NS: u64 = 1_000_000_000;
/// Bytes of a codec's identifier that are read: the longest that is registered has 24.
const CODEC_ID_BYTES_MAX: usize = 64;
/// Latest time in units of a track: two thousand years at 48 kHz.
const TIME_MAX: i64 = 1 << 52;
/// Most by which times of presentation and of decoding differ, hours of any time scale: twice as
/// much fits an i32.
const OFFSET_MAX: i32 = (1 << 30) - 1;
/// Added to decoding times, which may be negative in a file but not in a table.
const BIAS: i64 = 1 << 32;

pub(super) const TRACK_ENTRY: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const CODEC_ID: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63a2;
const CODEC_DELAY: u32 = 0x56aa;
const DEFAULT_DURATION: u32 = 0x23_e383;
const LANGUAGE: u32 = 0x22_b59c;
const LANGUAGE_TAG: u32 = 0x22_b59d;
const NAME_OF_TRACK: u32 = 0x536e;
const FLAG_FORCED: u32 = 0x55aa;
const FLAG_DEFAULT: u32 = 0x88;
const FLAG_VISUAL_IMPAIRED: u32 = 0x55ac;
const FLAG_COMMENTARY: u32 = 0x55af;
const CONTENT_ENCODINGS: u32 = 0x6d80;
const VIDEO: u32 = 0xe0;
const PIXEL_WIDTH: u32 = 0xb0;
const PIXEL_HEIGHT: u32 = 0xba;
const PIXEL_CROP_BOTTOM: u32 = 0x54aa;
const PIXEL_CROP_TOP: u32 = 0x54bb;
const PIXEL_CROP_LEFT: u32 = 0x54cc;
const PIXEL_CROP_RIGHT: u32 = 0x54dd;
const DISPLAY_WIDTH: u32 = 0x54b0;
const DISPLAY_HEIGHT: u32 = 0x54ba;
const DISPLAY_UNIT: u32 = 0x54b2;
/// Value of DisplayUnit.
const UNKNOWN_UNIT: u64 = 4;
const AUDIO: u32 = 0xe1;
const SAMPLING_FREQUENCY: u32 = 0xb5;
const CHANNELS: u32 = 0x9f;
