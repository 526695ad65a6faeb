// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloaders lay out the RTP packets of a track; one file per codec.
//!
//! A payloader converts the samples of a chapter to records of header bytes and file ranges
//! ([`Layout`]). It reads only the few bytes that show where units of a sample begin (length
//! prefixes of NAL units, headers of open bitstream units); compressed sound is laid out from the
//! sample table alone. PCM whose byte order differs from that of RTP is read whole.
//!
//! Sources: RFC 6184, 7798, 3640, 2250, 7587, 4184, 4598, 3551, 3190; RTP Payload Format For AV1
//! (AOM).
//! Does not send bytes.

mod aac;
pub(crate) mod av1;
mod formats;
mod fragments;
pub mod layout;
mod nal;
mod pcm;
mod sound;

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use wire::mp2t;
use wire::sdp::RtpFormat;

pub use formats::{PAYLOAD_FORMATS, PayloadFormat};
pub use fragments::Fragments;
pub use layout::{
    FilePiece, Layout, LayoutWriter, PACKET_BYTES_MAX, PAYLOAD_BYTES_MAX, PacketRow, RtpValues,
    UnitTimes,
};

use crate::TICKS_PER_SECOND;
use crate::read_at::ReadAt;
use crate::tracks::{Codec, H264Config, MediaSample, Presentation, TrackMedia};
use layout::PIECES_MAX;
use nal::NalFormat;
use sound::FrameFormat;

/// A sample with the times of its packets.
pub(crate) struct TimedSample {
    pub(crate) sample: MediaSample,
    pub(crate) times: UnitTimes,
}

impl TimedSample {
    fn piece(&self) -> FilePiece {
        FilePiece { file_offset: self.sample.file_offset, bytes: self.sample.bytes }
    }
}

/// Returns the number of first samples of sound that share a packet: as many as fit after
/// `head_bytes`, each with `each_bytes` of header, in at most [`SHARED_TICKS_MAX`]; at least one. A
/// receiver assumes that each begins one usual duration (`usual_ticks`) after the one before, so a
/// sample of another duration is the last.
fn shared(
    samples: &[TimedSample],
    (head_bytes, each_bytes): (usize, usize),
    usual_ticks: u64,
) -> usize {
    let begins = samples[0].times.due_ticks;
    let (mut bytes, mut is_usual) = (head_bytes, true);
    let fits = |one: &&TimedSample| {
        let duration = one.times.duration_ticks;
        bytes += each_bytes + one.sample.bytes as usize;
        let ends = one.times.due_ticks + duration;
        bytes <= PAYLOAD_BYTES_MAX
            && ends - begins <= SHARED_TICKS_MAX
            && std::mem::replace(&mut is_usual, duration.abs_diff(usual_ticks) <= ROUNDED_TICKS)
    };
    samples.iter().take(PIECES_MAX).take_while(fits).count().max(1)
}

/// The duration that most samples of sound have.
fn usual_ticks(samples: &[TimedSample]) -> u64 {
    let mut durations: Vec<_> = samples.iter().map(|one| one.times.duration_ticks).collect();
    let middle = durations.len() / 2;
    match durations.is_empty() {
        true => 0,
        false => *durations.select_nth_unstable(middle).1,
    }
}

/// Largest difference between equal durations after their times were rounded to milliseconds, as in
/// Matroska.
const ROUNDED_TICKS: u64 = TICKS_PER_SECOND / 500;

/// Sound in a packet, a tenth of a second: it never waits long for its last frame's time.
const SHARED_TICKS_MAX: u64 = TICKS_PER_SECOND / 10;

/// Lays out the packets of track number `track` in a chapter. Parts of samples that are broken are
/// left out and counted ([`Layout::faults`]). The elementary streams of a transport stream are laid
/// out by [`crate::ts::lay_out_elementary`].
///
/// # Errors
/// `file` cannot be read.
pub fn lay_out(
    presentation: &Presentation,
    track: usize,
    chapter: u32,
    file: &(impl ReadAt + ?Sized),
) -> io::Result<Layout> {
    let samples = timed_samples(presentation, track, chapter);
    let mut writer = writer_for(presentation, track);
    lay_out_samples(&presentation.tracks()[track].codec, &samples, file, &mut writer)?;
    Ok(writer.finish())
}

/// Creates a writer with the track's share of the limits of a chapter: tracks of pictures share
/// with each other, and so do those of sound, as many tracks may refer to the same bytes.
pub(crate) fn writer_for(presentation: &Presentation, track: usize) -> LayoutWriter {
    let media = presentation.tracks()[track].codec.media();
    let alike = presentation.tracks().iter().filter(|other| other.codec.media() == media);
    LayoutWriter::shared_by(alike.count())
}

/// The samples of a track that are due in a chapter, without empty ones.
pub(crate) fn timed_samples(
    presentation: &Presentation,
    track: usize,
    chapter: u32,
) -> Vec<TimedSample> {
    let numbers = presentation.chapter_samples(track, chapter);
    let about = &presentation.tracks()[track];
    let timescale = u64::from(about.samples.timescale());
    let timed = |sample: MediaSample| TimedSample {
        sample,
        times: UnitTimes {
            due_ticks: presentation.due_ticks(about, &sample),
            duration_ticks: u64::from(sample.duration) * TICKS_PER_SECOND / timescale,
            timestamp: about.rtp_units(about.presented(&sample)),
            is_start: sample.is_start,
        },
    };
    about.samples.samples(numbers).filter(|sample| sample.bytes > 0).map(timed).collect()
}

/// Lays out samples of `file`.
pub(crate) fn lay_out_samples(
    codec: &Codec,
    samples: &[TimedSample],
    file: &(impl ReadAt + ?Sized),
    writer: &mut LayoutWriter,
) -> io::Result<()> {
    match codec {
        Codec::H264(config) => {
            let format = NalFormat::h264(config);
            pictures(samples, writer, |sample, out| format.lay_out(sample, file, out))?;
        }
        Codec::H265(config) => {
            let format = NalFormat::h265(config);
            pictures(samples, writer, |sample, out| format.lay_out(sample, file, out))?;
        }
        Codec::Av1(config) => {
            for TimedSample { sample, times } in samples {
                writer.unit(av1::at_once(*times));
                av1::lay_out(config, sample, file, writer)?;
            }
        }
        Codec::Aac(_) => aac::lay_out(samples, writer),
        Codec::MpegAudio => FrameFormat::MpegAudio.lay_out(samples, writer),
        Codec::Ac3 { .. } => FrameFormat::Ac3.lay_out(samples, writer),
        Codec::Eac3 { .. } => FrameFormat::Eac3.lay_out(samples, writer),
        Codec::Opus { .. } => FrameFormat::Opus.lay_out(samples, writer),
        Codec::Pcm(config) => pcm::lay_out(config, samples, file, writer)?,
        // Its samples are ranges in which a picture lies: `trick` finds it there.
        Codec::Mp2t => samples.iter().for_each(|_| writer.fault()),
    }
    Ok(())
}

/// Lays out samples of pictures, each a unit of its own.
fn pictures(
    samples: &[TimedSample],
    writer: &mut LayoutWriter,
    lay_out: impl Fn(&MediaSample, &mut LayoutWriter) -> io::Result<()>,
) -> io::Result<()> {
    for TimedSample { sample, times } in samples {
        writer.unit(*times);
        lay_out(sample, writer)?;
    }
    Ok(())
}

/// Format of a track in a session description; `payload_type` is used if the format has no static
/// one.
pub fn rtp_format(codec: &Codec, payload_type: u8) -> RtpFormat {
    let base = RtpFormat {
        is_video: codec.media() == TrackMedia::Video,
        payload_type,
        encoding: codec.payload_format().encoding,
        clock_rate_hz: codec.clock_rate_hz(),
        channels: None,
        parameters: Vec::new(),
    };
    match codec {
        Codec::H264(config) => RtpFormat { parameters: h264_parameters(config), ..base },
        Codec::H265(config) => {
            let set = |name, sets: &[Vec<u8>]| (name, list(sets.iter()));
            let parameters = vec![
                set("sprop-vps", &config.video_sets),
                set("sprop-sps", &config.sequence_sets),
                set("sprop-pps", &config.picture_sets),
            ];
            let parameters = parameters.into_iter().filter(|(_, value)| !value.is_empty());
            RtpFormat { parameters: parameters.collect(), ..base }
        }
        Codec::Aac(config) => {
            let hex = config.specific.iter().map(|byte| format!("{byte:02x}"));
            let mut parameters = vec![
                ("streamtype", "5".to_owned()),
                ("profile-level-id", "1".to_owned()),
                ("mode", "AAC-hbr".to_owned()),
                ("sizelength", "13".to_owned()),
                ("indexlength", "3".to_owned()),
                ("indexdeltalength", "3".to_owned()),
                ("config", hex.collect()),
            ];
            // Without it GStreamer uses the distance of the first two packets instead.
            let duration =
                config.unit_samples().map(|count| ("constantDuration", count.to_string()));
            parameters.extend(duration);
            let channels = Some(config.channels);
            RtpFormat { channels, parameters, ..base }
        }
        Codec::Av1(config) => {
            let parameters = vec![
                ("profile", config.profile.to_string()),
                ("level-idx", config.level.to_string()),
                ("tier", u8::from(config.is_high_tier).to_string()),
            ];
            RtpFormat { parameters, ..base }
        }
        // The one static type among these (RFC 3551 §6).
        Codec::MpegAudio => RtpFormat { payload_type: 14, ..base },
        Codec::Opus { channels } => {
            let parameters = vec![("sprop-stereo", u8::from(*channels == 2).to_string())];
            // Always two (RFC 7587 §7).
            RtpFormat { channels: Some(2), parameters, ..base }
        }
        Codec::Ac3 { channels, .. } => RtpFormat { channels: Some(*channels), ..base },
        Codec::Eac3 { channels, .. } => RtpFormat { channels: Some(*channels), ..base },
        // One channel is the default (RFC 8866 §6.6).
        Codec::Pcm(config) => {
            RtpFormat { channels: Some(config.channels).filter(|channels| *channels > 1), ..base }
        }
        Codec::Mp2t => RtpFormat { payload_type: mp2t::PAYLOAD_TYPE, ..base },
    }
}

fn h264_parameters(config: &H264Config) -> Vec<(&'static str, String)> {
    let [profile, constraints, level] = config.profile;
    let mut parameters = vec![
        ("packetization-mode", "1".to_owned()),
        ("profile-level-id", format!("{profile:02x}{constraints:02x}{level:02x}")),
    ];
    let sets = list(config.sequence_sets.iter().chain(&config.picture_sets));
    if !sets.is_empty() {
        parameters.push(("sprop-parameter-sets", sets));
    }
    parameters
}

/// Parameter sets in base64, separated by commas.
fn list<'a>(sets: impl Iterator<Item = &'a Vec<u8>>) -> String {
    sets.map(|set| STANDARD.encode(set)).collect::<Vec<_>>().join(",")
}
