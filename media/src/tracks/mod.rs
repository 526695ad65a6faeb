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

use std::ops::Range;

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

    /// Chapters of the presentation: seconds of due time. The packets of a chapter are laid out at
    /// once.
    pub fn chapters(&self) -> u32 {
        // The duration is at most twice 2³¹ s.
        self.duration_ticks.div_ceil(CHAPTER_TICKS).min(u64::from(u32::MAX)) as u32
    }

    /// Returns the chapter that contains `ticks` of due time.
    pub fn chapter_at(&self, ticks: u64) -> u32 {
        (ticks / CHAPTER_TICKS).min(u64::from(self.chapters() - 1)) as u32
    }

    /// Numbers of a track's samples that are due in `chapter`; none past the end.
    pub fn chapter_samples(&self, track: usize, chapter: u32) -> Range<usize> {
        let track = &self.tracks[track];
        let first = |chapter: u32| self.first_due(track, u64::from(chapter) * CHAPTER_TICKS);
        let end = match chapter + 1 >= self.chapters() {
            true => track.samples.len(),
            false => first(chapter + 1),
        };
        first(chapter).min(end)..end
    }

    /// Returns the next chapter after `chapter` in which a sample of a track is due; `None` at the
    /// end.
    pub fn following_chapter(&self, track: usize, chapter: u32) -> Option<u32> {
        let track = &self.tracks[track];
        let next = self.first_due(track, (u64::from(chapter) + 1) * CHAPTER_TICKS);
        let sample = (next < track.samples.len()).then(|| track.samples.sample(next))?;
        // The last chapter holds all that is left.
        Some(self.chapter_at(self.due_ticks(track, &sample))).filter(|&found| found > chapter)
    }

    /// Due time of a sample of a track.
    pub fn due_ticks(&self, track: &Track, sample: &MediaSample) -> u64 {
        (track.decode_ticks(sample.decode) - self.due_origin).max(0) as u64
    }

    /// Due time of presentation time `ticks` if samples are presented when they are decoded: the
    /// time from which tracks other than that of pictures begin.
    pub fn due_of_presented(&self, ticks: i64) -> u64 {
        (ticks - self.due_origin).max(0) as u64
    }

    /// Presentation time after all samples that are due before `ticks`; with reordered pictures,
    /// later ones may be among those.
    pub fn presented_behind(&self, ticks: u64) -> i64 {
        let reordered = self.tracks.iter().map(|track| {
            scaled(track.samples.offset_max().into(), TICKS_PER_SECOND, track.samples.timescale())
        });
        self.presented_of_due(ticks).saturating_add(reordered.max().unwrap_or(0).max(0))
    }

    /// Number of the first sample of a track that is due at `ticks` or later.
    pub fn first_due(&self, track: &Track, ticks: u64) -> usize {
        track.samples.partition_point(|decode| {
            let due = track.decode_ticks(decode) - self.due_origin;
            due < ticks as i64
        })
    }

    /// Time by which the first sample of a track is presented before the title's start: sound that
    /// prepares a decoder.
    pub fn priming_ticks(&self) -> u64 {
        let first = |track: &Track| track.presented_ticks(&track.samples.sample(0));
        let earliest = self.tracks.iter().map(first).min().unwrap_or(0);
        earliest.min(0).unsigned_abs()
    }

    /// Returns the place at which play starts to show `presented_ticks`: the due time of the last
    /// random-access point of the pictures that is presented then or before, and its presentation
    /// time. Without pictures any sample is such a point.
    pub fn entry(&self, presented_ticks: u64) -> Entry {
        let track = self.leading_track();
        let wanted = i64::try_from(presented_ticks).unwrap_or(i64::MAX);
        let found = track.samples.last_start(|sample| track.presented_ticks(sample) <= wanted);
        let sample = track.samples.sample(found.unwrap_or(0));
        let due = self.due_ticks(track, &sample);
        let presented = track.presented_ticks(&sample).max(0) as u64;
        match presented_ticks {
            // The title's start is the start of every track.
            0 => Entry { due_ticks: 0, presented_ticks: 0 },
            _ => Entry { due_ticks: due, presented_ticks: presented },
        }
    }

    /// The first random-access point of the pictures due at `ticks` or later; none before the end.
    pub fn entry_from(&self, ticks: u64) -> Option<Entry> {
        let track = self.leading_track();
        let first = self.first_due(track, ticks);
        let sample = track.samples.sample(track.samples.start_from(first)?);
        let presented_ticks = track.presented_ticks(&sample).max(0) as u64;
        Some(Entry { due_ticks: self.due_ticks(track, &sample), presented_ticks })
    }

    /// Number of random-access points.
    pub fn entries(&self) -> usize {
        self.leading_track().samples.starts()
    }

    /// Returns the track whose random-access points are those of the presentation: the first of
    /// pictures, else the first.
    pub fn leading_track(&self) -> &Track {
        &self.tracks[self.leading_index()]
    }

    /// The index of that track.
    pub fn leading_index(&self) -> usize {
        let is_video = |track: &Track| track.codec.media() == TrackMedia::Video;
        self.tracks.iter().position(is_video).unwrap_or(0)
    }

    /// About how many packets of a track are due in a range of time, by the bytes of its samples.
    pub fn packets_between(&self, track: usize, due: Range<u64>) -> u64 {
        let track = &self.tracks[track];
        let numbers = self.first_due(track, due.start)..self.first_due(track, due.end);
        let packets = |sample: MediaSample| sample.bytes.div_ceil(PAYLOAD_BYTES_MAX as u32).max(1);
        track.samples.samples(numbers).map(|sample| u64::from(packets(sample))).sum()
    }

    /// The presentation time of a due time, for a sample that is presented when it is decoded.
    pub fn presented_of_due(&self, ticks: u64) -> i64 {
        i64::try_from(ticks).unwrap_or(i64::MAX).saturating_add(self.due_origin)
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
