// SPDX-License-Identifier: MIT OR Apache-2.0
//! A presentation is a file whose tracks are sent as separate RTP streams (MP4 and the like).
//!
//! A demuxer reads the tables of a file once and creates its [`Presentation`]: for each track the
//! codec and a [`SampleTable`], which holds the place and the times of every sample. Sample bytes
//! are not read for that. The packets of a second of media ([`crate::payload::Layout`]) are laid
//! out when that second is first played, from pages that have to be in memory anyway, and are
//! shared by all sessions.
//!
//! Three timelines are used here. *Media time* is that of a track, in units of its time scale.
//! *Presentation time* is media time moved by the edit list: time zero is the title's start, and
//! samples that only prepare a decoder are before it. If all tracks begin a second or more after
//! the file's time zero, as in a part of a live recording, the title starts with them
//! ([`Presentation::file_origin_ticks`]). *Due time* is decoding time, moved so that the first
//! sample of all tracks is due at zero; it is never negative and in ticks of 27 MHz like all times
//! of the pacer.
//!
//! Memory: 4 bytes a sample, and 8 where presentation times are not in decoding order; more where
//! samples do not continue each other, within a bound of all tracks: see [`SampleTable`].
//!
//! Sources: ISO/IEC 14496-12 §8.6 (sample times, edit lists); RFC 3550 §5.1.
//! Does not read files or lay packets out.

mod codec;
mod display;
mod due_time;
mod encode;
mod label;
mod pcm;
pub(crate) mod reasons;
pub(crate) mod records;
mod sample_table;

pub use codec::{AacConfig, Av1Config, Codec, H264Config, H265Config, TrackMedia};
pub use display::{Display, PixelAspect, ShownPictures, Turn};
pub(crate) use encode::MAGIC;
pub use encode::{ELEMENTARY_FORMAT, PRESENTATION_FORMAT};
pub use label::TrackLabel;
pub(crate) use label::language_code;
pub use pcm::{PcmConfig, PcmForm};
pub use sample_table::{
    MediaSample, SAMPLE_BYTES_MAX, SAMPLES_MAX, SAMPLES_PER_SECOND_MAX, SampleFault, SampleTable,
    SampleTableBuilder, Samples,
};
pub(crate) use sample_table::{TABLE_CHECK_SAMPLES, check_table_bytes};

use crate::payload::PAYLOAD_BYTES_MAX;
use crate::plan::RtpIdentity;
use crate::{Refusal, TICKS_PER_SECOND};

/// Kinds of files that have tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Container {
    /// ISO base media file: MP4 or QuickTime.
    Mp4,
    /// ISO base media file of movie fragments.
    FragmentedMp4,
    /// Matroska or WebM.
    Matroska,
    /// Frames of MPEG audio (`.mp3`).
    MpegAudio,
    /// Frames of AAC with ADTS headers (`.aac`).
    Adts,
    /// RIFF/WAVE, RF64 or BW64 (`.wav`).
    Wav,
    /// MPEG-2 transport stream: its elementary streams, or its pictures in trick play. Sent whole,
    /// it has a [`crate::PacketPlan`].
    TransportStream,
}

impl Container {
    /// All kinds of files, first the kind that is one stream.
    pub const ALL: [Container; 7] = [
        Container::TransportStream,
        Container::Mp4,
        Container::FragmentedMp4,
        Container::Matroska,
        Container::MpegAudio,
        Container::Adts,
        Container::Wav,
    ];

    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Container::Mp4 => "MP4",
            Container::FragmentedMp4 => "fragmented MP4",
            Container::Matroska => "Matroska",
            Container::MpegAudio => "MPEG audio",
            Container::Adts => "ADTS",
            Container::Wav => "WAV",
            Container::TransportStream => "MPEG transport stream",
        }
    }
}

/// Most tracks of a presentation: a player cannot use more, and each costs a socket.
pub const TRACKS_MAX: usize = 16;

/// Most tracks examined in a file. Files of many languages and their subtitles have a few dozen.
pub(crate) const TRACKS_READ_MAX: usize = 256;

/// Tracks that are not sent and are named one by one; the others are counted.
const LEFT_OUT_NAMED_MAX: usize = 8;

/// Most bytes of the reasons that are named.
const LEFT_OUT_BYTES_MAX: usize = 1 << 10;

/// Bytes of a track's parameter sets: encoders write less than 1 KiB, and up to 4 KiB of pictures
/// with many picture parameter sets.
pub const PARAMETER_BYTES_MAX: usize = 4 << 10;

/// Most bytes of the parameter sets of all tracks: 32 KiB of a session description in base64, 48
/// KiB in the hexadecimal digits of AAC, and clients read 64 KiB.
const ALL_PARAMETER_BYTES_MAX: usize = 24 << 10;

/// Time without a sample after which a track of a recording is silent: two fragments.
pub(crate) const SILENT_TICKS: u64 = 4 * TICKS_PER_SECOND;

/// Seconds of a presentation: the ticks of as many fit a quarter of a u64, and RTP's sequence of
/// seconds a u32.
const SECONDS_MAX: u64 = 1 << 31;

/// A track of a presentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// Its number in the file.
    pub id: u32,
    /// Format of its samples.
    pub codec: Codec,
    /// Language (ISO 639-2, three letters); `None` if the file names none.
    pub language: Option<[u8; 3]>,
    /// Name and uses by which viewers choose it.
    pub label: TrackLabel,
    /// How its pictures are shown.
    pub display: Display,
    /// Its samples, in decoding order; at least one.
    pub samples: SampleTable,
    /// Shift of media time by the edit list, and to the title's start, in units of the time scale.
    pub shift: i64,
    /// SSRC and first values of its RTP stream.
    pub identity: RtpIdentity,
}

impl Track {
    /// Creates a track without further data: no language, name, shift or rotation.
    pub fn new(id: u32, codec: Codec, samples: SampleTable, identity: RtpIdentity) -> Track {
        let (language, label, display) = Default::default();
        Track { id, codec, language, label, display, samples, shift: 0, identity }
    }

    /// Presentation time of a sample, in units of the time scale; negative before the title's
    /// start.
    pub fn presented(&self, sample: &MediaSample) -> i64 {
        sample.decode as i64 + i64::from(sample.offset) + self.shift
    }

    /// Presentation time of a sample in ticks of 27 MHz.
    pub fn presented_ticks(&self, sample: &MediaSample) -> i64 {
        scaled(self.presented(sample), TICKS_PER_SECOND, self.samples.timescale())
    }

    /// The time of decoding, in ticks of 27 MHz, on the timeline of presentation.
    fn decode_ticks(&self, decode: u64) -> i64 {
        scaled(decode as i64 + self.shift, TICKS_PER_SECOND, self.samples.timescale())
    }

    /// Its language (ISO 639-2); `None` if unknown or undetermined.
    pub fn language_name(&self) -> Option<String> {
        language_code(self.language)
    }

    /// The RTP timestamp of a presentation time in ticks; wraps.
    pub fn timestamp(&self, presented_ticks: i64) -> u32 {
        let rate = u64::from(self.codec.clock_rate_hz());
        let units = scaled(presented_ticks, rate, TICKS_PER_SECOND as u32);
        self.identity.first_timestamp.wrapping_add(units as u32)
    }

    /// The RTP timestamp of a presentation time (units of the time scale), counted from the
    /// title's start in units of the RTP clock; it wraps.
    pub fn rtp_units(&self, presented: i64) -> u32 {
        let rate = u64::from(self.codec.clock_rate_hz());
        scaled(presented, rate, self.samples.timescale()) as u32
    }
}

/// The tracks of a file, and the timelines that they share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presentation {
    container: Container,
    file_bytes: u64,
    tracks: Vec<Track>,
    /// Tracks that are not sent, with the reason.
    left_out: Vec<LeftOut>,
    /// Findings about the file, with their remedies.
    warnings: Vec<String>,
    /// Earliest time of decoding, on the timeline of presentation: due time zero.
    due_origin: i64,
    duration_ticks: u64,
    presented_end_ticks: u64,
    file_origin_ticks: u64,
}

/// A track that is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its number in the file.
    pub id: u32,
    /// Reason for not sending it, with its number and the remedy.
    pub reason: String,
}

impl LeftOut {
    /// Returns the reasons of the first of these tracks, and in the last element the number of the
    /// others. A file may have hundreds, too many to read.
    pub fn summary(left_out: &[LeftOut]) -> Vec<String> {
        let mut bytes = 0;
        let fits = |track: &&LeftOut| {
            bytes += track.reason.len();
            bytes <= LEFT_OUT_BYTES_MAX
        };
        let named = left_out.iter().take(LEFT_OUT_NAMED_MAX).take_while(fits);
        let mut reasons: Vec<_> = named.map(|track| track.reason.clone()).collect();
        match left_out.len() - reasons.len() {
            0 => {}
            more if reasons.is_empty() => reasons.push(format!("{more} tracks")),
            more => reasons.push(format!("and {more} more")),
        }
        reasons
    }
}

impl Presentation {
    /// Creates a presentation of these tracks.
    ///
    /// # Errors
    /// No track can be sent, or their times exceed the limits of a plan.
    pub fn assemble(
        container: Container,
        file_bytes: u64,
        tracks: Vec<Track>,
        left_out: Vec<LeftOut>,
    ) -> Result<Presentation, Refusal> {
        let name = container.name();
        let (tracks, left_out) = with_short_parameters(container, tracks, left_out);
        if tracks.is_empty() {
            let reasons = match left_out.is_empty() {
                true => "it has none".to_owned(),
                false => LeftOut::summary(&left_out).join("; "),
            };
            return Err(Refusal::NoTrack { container: name, reasons });
        }
        if tracks.len() > TRACKS_MAX {
            let (found, limit) = (tracks.len(), TRACKS_MAX);
            return Err(Refusal::TooManyTracks { container: name, found, limit });
        }
        let mut table_bytes = 0;
        for Track { id, samples, .. } in &tracks {
            table_bytes += samples.memory_bytes();
            check_table_bytes(table_bytes, file_bytes).map_err(|fault| {
                let sample = samples.len() - 1;
                Refusal::Sample { container: name, track: *id, sample, fault }
            })?;
        }
        let limit = (SECONDS_MAX * TICKS_PER_SECOND) as i64;
        let is_far = |Track { samples, shift, .. }: &Track| {
            let limit = i128::from(samples.timescale()) * i128::from(SECONDS_MAX);
            let moved = |time: u64| (i128::from(time) + i128::from(*shift)).abs();
            moved(samples.sample(0).decode) > limit || moved(samples.end()) > limit
        };
        if tracks.iter().any(is_far) {
            return Err(Refusal::TooLong { container: name, limit_s: SECONDS_MAX });
        }
        let mut due_origin = i64::MAX;
        let (mut due_end, mut presented_end) = (i64::MIN, i64::MIN);
        for track in &tracks {
            let samples = &track.samples;
            due_origin = due_origin.min(track.decode_ticks(samples.sample(0).decode));
            due_end = due_end.max(track.decode_ticks(samples.end()));
            let end = samples.presented_end() + track.shift;
            presented_end = presented_end.max(scaled(end, TICKS_PER_SECOND, samples.timescale()));
        }
        assert!(due_origin.abs() <= limit && due_end.abs() <= limit, "checked above");
        let duration_ticks = (due_end - due_origin).max(1) as u64;
        let presented_end_ticks = presented_end.max(1) as u64;
        Ok(Presentation {
            container,
            file_bytes,
            tracks,
            left_out,
            warnings: Vec::new(),
            due_origin,
            duration_ticks,
            presented_end_ticks,
            file_origin_ticks: 0,
        })
    }

    /// Moves the presentation of a file to the title's start if its times begin a second or more
    /// after zero. The distance is whole in the time scale of each track, so that the tracks stay
    /// aligned.
    ///
    /// # Errors
    /// None in practice: the times were valid in a presentation before.
    pub(crate) fn moved_to_start(mut self) -> Result<Presentation, Refusal> {
        let scales = self.tracks.iter().map(|track| track.samples.timescale());
        let common = scales.fold(0, gcd);
        let start = title_start(&self.tracks, common).unwrap_or(0);
        if start < i64::from(common) {
            return Ok(self);
        }
        for track in &mut self.tracks {
            track.shift -= start * i64::from(track.samples.timescale() / common);
        }
        let file_origin_ticks = scaled(start, TICKS_PER_SECOND, common).unsigned_abs();
        let Presentation { container, file_bytes, tracks, left_out, warnings, .. } = self;
        let moved = Presentation::assemble(container, file_bytes, tracks, left_out)?;
        Ok(Presentation { warnings, file_origin_ticks, ..moved })
    }

    /// The presentation with these warnings; those before are replaced.
    #[must_use]
    pub fn with_warnings(self, warnings: Vec<String>) -> Presentation {
        Presentation { warnings, ..self }
    }

    /// Lets `change` reorder the tracks or give them other identities.
    pub(crate) fn with_tracks(
        mut self,
        change: impl FnOnce(&mut [Track]) -> Result<(), Refusal>,
    ) -> Result<Presentation, Refusal> {
        change(&mut self.tracks)?;
        Ok(self)
    }

    /// The kind of file.
    pub fn container(&self) -> Container {
        self.container
    }

    /// Size of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The tracks that are sent, in the file's order; at least one.
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// The tracks that are not sent.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Findings about the file that a viewer notices although it is streamed, each one sentence
    /// with a remedy: the file is truncated at its end, or pictures have to be rotated. A few at
    /// most; empty for nearly every file.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Duration of sending, from the first sample's due time to the end of the last.
    pub fn duration_ticks(&self) -> u64 {
        self.duration_ticks
    }

    /// Presentation time of the end of the last sample, from the title's start.
    pub fn presented_end_ticks(&self) -> u64 {
        self.presented_end_ticks
    }

    /// Time of the title's start in the file's own timestamps and edit lists. Zero if a track
    /// begins within the first second: B-frames, and sound that begins later than pictures, cause
    /// that in nearly every file.
    pub fn file_origin_ticks(&self) -> u64 {
        self.file_origin_ticks
    }

    /// Names of the codecs (RFC 6381), separated by commas.
    pub fn codecs(&self) -> String {
        let names: Vec<_> = self.tracks.iter().map(|track| track.codec.name()).collect();
        names.join(",")
    }

    /// Bytes of all samples that are sent.
    pub fn sample_bytes(&self) -> u64 {
        self.tracks.iter().map(|track| track.samples.bytes()).sum()
    }

    /// Memory of the sample tables.
    pub fn memory_bytes(&self) -> u64 {
        self.tracks.iter().map(|track| track.samples.memory_bytes()).sum()
    }

    /// Average bitrate of all tracks without any headers; at least 1.
    pub fn bits_per_second(&self) -> u64 {
        self.bitrate(self.sample_bytes())
    }

    /// Average bitrate of a track without any headers; at least 1.
    pub fn track_bits_per_second(&self, track: usize) -> u64 {
        self.bitrate(self.tracks[track].samples.bytes())
    }

    fn bitrate(&self, bytes: u64) -> u64 {
        let bits = u128::from(bytes) * 8 * u128::from(TICKS_PER_SECOND);
        u64::try_from(bits / u128::from(self.duration_ticks)).unwrap_or(u64::MAX).max(1)
    }
}

/// Presentation time of the title's start, in whole units of a second: the start of the pictures,
/// or of sound that begins over a second before them. Sound that prepares a decoder is before the
/// title's start.
pub(crate) fn title_start(tracks: &[Track], units_per_second: u32) -> Option<i64> {
    let begins = |track: &Track| {
        let first = track.presented(&track.samples.sample(0));
        let units = i128::from(first) * i128::from(units_per_second);
        units.div_euclid(track.samples.timescale().into()) as i64
    };
    let earliest = tracks.iter().map(begins).min()?;
    let is_video = |track: &&Track| track.codec.media() == TrackMedia::Video;
    let pictures = tracks.iter().find(is_video).map(begins);
    let is_near = |&start: &i64| start - earliest <= units_per_second.into();
    Some(pictures.filter(is_near).unwrap_or(earliest))
}

/// Greatest common divisor; that of zero and a number is the number.
fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Omits tracks whose parameters would make a session description larger than clients read: each
/// track has a limit, and so have all together.
fn with_short_parameters(
    container: Container,
    tracks: Vec<Track>,
    mut left_out: Vec<LeftOut>,
) -> (Vec<Track>, Vec<LeftOut>) {
    let mut all = 0;
    let mut kept = Vec::with_capacity(tracks.len());
    for track in tracks {
        let (id, bytes) = (track.id, track.codec.parameter_bytes());
        if bytes <= PARAMETER_BYTES_MAX && all + bytes <= ALL_PARAMETER_BYTES_MAX {
            all += bytes;
            kept.push(track);
            continue;
        }
        let name = track.codec.name();
        let cure = reasons::encode_anew(track.codec.media(), container);
        let reason = format!(
            "track {id} ({name}): parameter sets of {bytes} bytes, and a session description has \
             {PARAMETER_BYTES_MAX} of a track and {ALL_PARAMETER_BYTES_MAX} of all; {cure}"
        );
        left_out.push(LeftOut { id, reason });
    }
    (kept, left_out)
}

/// A place where play can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Due time of its sample.
    pub due_ticks: u64,
    /// Presentation time, counted from the title's start.
    pub presented_ticks: u64,
}

/// A chapter is a second of due time.
pub const CHAPTER_TICKS: u64 = TICKS_PER_SECOND;

/// `value · numerator / denominator`, rounded to the nearest; the caller keeps the result within an
/// i64.
pub(crate) fn scaled(value: i64, numerator: u64, denominator: u32) -> i64 {
    let product = i128::from(value) * i128::from(numerator);
    let denominator = i128::from(denominator);
    let rounded = (product + denominator / 2).div_euclid(denominator);
    i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests;
