// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writers of media files, which convert access units to the bytes of a file.
//!
//! Used for recordings of cameras and for `pagewire play --output`. A writer appends finished bytes
//! to a buffer; the caller appends these to a file in the same order. Each call appends whole MP4
//! fragments or transport stream packets. So a file that is still growing, or was cut off between
//! two calls, can be played.
//!
//! `input` checks the units of a track and derives their decoding times, `parameters` stores the
//! parameters that decoders need before the first unit; both are shared. `fmp4` writes MP4, with
//! `fmp4_track` for its tracks, `entries` for its sample descriptions, `movie_header` for the boxes
//! before the samples, `pcm_blocks` for the samples of PCM, with `g711` for companded ones, and
//! `file_split` for the ends of a recording's files; `transport` writes transport streams, with
//! `elementary` for the form of units in them.
//!
//! Memory: the units not yet written, at most [`HELD_BYTES_MAX`] and one unit; it is bounded by
//! time as well ([`FRAGMENT_S_MAX`]). Costs one copy of each unit into MP4 and two into transport
//! streams.
//!
//! Sources: ISO/IEC 14496-12, ISO/IEC 13818-1; the modules name those of the codecs.
//! Does not write files, align clocks of tracks, or repair losses.

mod elementary;
mod entries;
mod file_split;
mod fmp4;
mod fmp4_track;
mod g711;
mod input;
mod movie_header;
mod parameters;
mod pcm_blocks;
mod transport;

use std::path::Path;
use std::time::Duration;

pub(crate) use entries::describe;
pub use file_split::{FileRequest, GroupBytes, Rotation};
pub use fmp4::{FileStart, Fmp4Writer};
pub(crate) use movie_header::{
    OTHER_SAMPLE, SYNC_SAMPLE, TrackHeader, put as put_box, write_movie_header,
};
pub(crate) use parameters::needs_first_unit;
pub use pcm_blocks::stored as stored_pcm;
pub use transport::TsWriter;

use crate::tracks::{Codec, SAMPLE_BYTES_MAX};
use crate::{AccessUnit, MuxRefusal};

/// Largest unit in bytes: larger ones could not be served ([`SAMPLE_BYTES_MAX`]).
pub const UNIT_BYTES_MAX: usize = SAMPLE_BYTES_MAX as usize;

/// Bytes held by a writer above which it writes them without waiting further.
pub const HELD_BYTES_MAX: usize = 64 << 20;

/// Seconds of media after which a fragment ends even without a key frame.
pub const FRAGMENT_S_MAX: i64 = 2;

/// Most tracks of a file.
pub const TRACKS_MAX: usize = crate::tracks::TRACKS_MAX;

/// File formats that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriterKind {
    /// MP4 with movie fragments.
    FragmentedMp4,
    /// MPEG-2 transport stream.
    TransportStream,
}

impl WriterKind {
    /// Returns the format for the extension of a file name: `.mp4`, `.m4v`, `.m4a` or `.ts`, in
    /// either case.
    ///
    /// # Errors
    /// [`MuxRefusal::Name`] for any other extension.
    pub fn of_name(name: &Path) -> Result<WriterKind, MuxRefusal> {
        let end = name.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
        match end.as_deref() {
            Some("mp4" | "m4v" | "m4a") => Ok(WriterKind::FragmentedMp4),
            Some("ts") => Ok(WriterKind::TransportStream),
            _ => Err(MuxRefusal::Name { name: name.display().to_string() }),
        }
    }

    /// Name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            WriterKind::FragmentedMp4 => "fragmented MP4",
            WriterKind::TransportStream => "MPEG transport stream",
        }
    }
}

/// A writer of one of the formats.
#[derive(Debug)]
#[non_exhaustive]
pub enum MediaWriter {
    /// Writes fragmented MP4.
    Fmp4(Box<Fmp4Writer>),
    /// Writes a transport stream.
    Ts(Box<TsWriter>),
}

impl MediaWriter {
    /// Creates a writer of a file with these tracks, in this order.
    ///
    /// # Errors
    /// No tracks or more than [`TRACKS_MAX`]; a codec that the file format does not support.
    pub fn new(kind: WriterKind, tracks: &[Codec]) -> Result<MediaWriter, MuxRefusal> {
        Ok(match kind {
            WriterKind::FragmentedMp4 => MediaWriter::Fmp4(Box::new(Fmp4Writer::new(tracks)?)),
            WriterKind::TransportStream => MediaWriter::Ts(Box::new(TsWriter::new(tracks)?)),
        })
    }

    /// Creates a writer like [`MediaWriter::new`] that continues a transport stream at time `at`:
    /// its clock starts there, and it announces a discontinuity of its counters. A fragmented file
    /// still begins at zero.
    ///
    /// # Errors
    /// As [`MediaWriter::new`].
    pub fn behind(
        at: Duration,
        kind: WriterKind,
        tracks: &[Codec],
    ) -> Result<MediaWriter, MuxRefusal> {
        let mut writer = MediaWriter::new(kind, tracks)?;
        if let MediaWriter::Ts(writer) = &mut writer {
            writer.begin_behind(at);
        }
        Ok(writer)
    }

    /// Continues in another file at these limits: see [`Fmp4Writer::rotate`]. A transport stream is
    /// cut by the caller, between two packets.
    pub fn rotate(&mut self, limits: Rotation) {
        match self {
            MediaWriter::Fmp4(writer) => writer.rotate(limits),
            MediaWriter::Ts(_) => {}
        }
    }

    /// Removes and returns the files that have begun: see [`Fmp4Writer::take_file_starts`].
    pub fn take_file_starts(&mut self) -> Vec<FileStart> {
        match self {
            MediaWriter::Fmp4(writer) => writer.take_file_starts(),
            MediaWriter::Ts(_) => Vec::new(),
        }
    }

    /// Sets the languages of the tracks (ISO 639-2). Call it before the first unit.
    pub fn set_languages(&mut self, languages: &[Option<[u8; 3]>]) {
        match self {
            MediaWriter::Fmp4(writer) => writer.set_languages(languages),
            MediaWriter::Ts(writer) => writer.set_languages(languages),
        }
    }

    /// Adds the next unit of a track, in decoding order, and appends the finished bytes to `out`.
    /// The caller passes units of different tracks roughly in the order of their times.
    ///
    /// # Errors
    /// The unit is dropped; the writer stays usable.
    pub fn push(
        &mut self,
        track: usize,
        unit: AccessUnit,
        out: &mut Vec<u8>,
    ) -> Result<(), MuxRefusal> {
        match self {
            MediaWriter::Fmp4(writer) => writer.push(track, unit, out),
            MediaWriter::Ts(writer) => writer.push(track, unit, out),
        }
    }

    /// Appends all units whose times are known, including those held for the rest of a fragment or
    /// for another track. For a source that pauses.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        match self {
            MediaWriter::Fmp4(writer) => writer.flush(out),
            MediaWriter::Ts(writer) => writer.flush(out),
        }
    }

    /// Appends all units still held and ends the file.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.end(out);
    }

    /// Appends all units still held; no other may follow.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        match self {
            MediaWriter::Fmp4(writer) => writer.end(out),
            MediaWriter::Ts(writer) => writer.end(out),
        }
    }

    /// True if the bytes appended so far form a playable file: it has its tables and at least one
    /// unit, and ends with a whole fragment or packet.
    pub fn ends_whole(&self) -> bool {
        match self {
            MediaWriter::Fmp4(writer) => writer.ends_whole(),
            MediaWriter::Ts(writer) => writer.ends_whole(),
        }
    }
}

/// Reason to refuse PCM in a transport stream.
const NO_PCM: &str =
    "it has no place for PCM; a name that ends in .mp4 keeps it (--output NAME.mp4)";

/// Most channels of PCM: files need no layout of two.
const PCM_CHANNELS_MAX: u8 = 2;

/// Rates of PCM, in hertz: those that can be served.
const PCM_RATES_HZ: std::ops::RangeInclusive<u32> = 8_000..=192_000;

/// Checks the number of tracks, and that each codec can be a track of a file.
fn check_tracks(kind: WriterKind, tracks: &[Codec]) -> Result<(), MuxRefusal> {
    if !(1..=TRACKS_MAX).contains(&tracks.len()) {
        let (kind, found, limit) = (kind.name(), tracks.len(), TRACKS_MAX);
        return Err(MuxRefusal::TrackCount { kind, found, limit });
    }
    for (track, codec) in tracks.iter().enumerate() {
        let reason = match codec {
            Codec::Mp2t => {
                "a transport stream is no track of a file; write its packets as they are"
            }
            Codec::Pcm(_) if kind == WriterKind::TransportStream => NO_PCM,
            Codec::Pcm(config) if config.channels > PCM_CHANNELS_MAX => {
                "MP4 needs the place of each of more than two channels of PCM, and RTP does not \
                 name it; have the sender use two, or record it with ffmpeg (ffmpeg -i URL OUT.wav)"
            }
            Codec::Pcm(config) if !PCM_RATES_HZ.contains(&config.rate_hz) => {
                "players know no PCM of such a rate; have the sender use one of 8 to 192 kHz"
            }
            _ => continue,
        };
        return Err(refused(kind, track, codec, reason));
    }
    Ok(())
}

fn refused(kind: WriterKind, track: usize, codec: &Codec, reason: &'static str) -> MuxRefusal {
    MuxRefusal::Codec { track, codec: codec.name(), kind: kind.name(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracks::{PcmConfig, PcmForm};

    #[test]
    fn the_end_of_a_name_tells_the_kind_of_file() {
        let kind = |name: &str| WriterKind::of_name(Path::new(name));
        for name in ["a.mp4", "b/camera.1.M4V", "sound.m4a"] {
            assert_eq!(kind(name), Ok(WriterKind::FragmentedMp4), "{name}");
        }
        assert_eq!(kind("a.TS"), Ok(WriterKind::TransportStream));
        for name in ["a.mkv", "mp4", ".ts", "a.", ""] {
            let refusal = kind(name).unwrap_err();
            assert_eq!(refusal, MuxRefusal::Name { name: name.to_owned() });
        }
    }

    #[test]
    fn tracks_that_no_file_holds_are_refused_with_a_reason() {
        for kind in [WriterKind::FragmentedMp4, WriterKind::TransportStream] {
            let new = |tracks: &[Codec]| MediaWriter::new(kind, tracks).unwrap_err();
            assert!(matches!(new(&[]), MuxRefusal::TrackCount { found: 0, .. }));
            let many = vec![Codec::MpegAudio; TRACKS_MAX + 1];
            assert!(matches!(new(&many), MuxRefusal::TrackCount { found: 17, .. }));
            let refusal = new(&[Codec::MpegAudio, Codec::Mp2t]);
            assert!(matches!(refusal, MuxRefusal::Codec { track: 1, .. }), "{refusal}");
        }
    }

    #[test]
    fn pcm_needs_an_mp4_and_at_most_two_channels() {
        let new = |kind, form, channels| {
            let codec = Codec::Pcm(PcmConfig { form, rate_hz: 8000, channels });
            MediaWriter::new(kind, &[codec]).map_err(|refusal| refusal.to_string())
        };
        for form in PcmForm::ALL {
            for channels in [1, 2] {
                assert!(new(WriterKind::FragmentedMp4, form, channels).is_ok(), "{form:?}");
            }
            let refusal = new(WriterKind::FragmentedMp4, form, 3).unwrap_err();
            assert!(
                refusal.contains("in fragmented MP4: MP4 needs the place of each"),
                "{refusal}"
            );
        }
        let refusal = new(WriterKind::TransportStream, PcmForm::ALaw, 1).unwrap_err();
        let expected = "track 0 (PCMA) in MPEG transport stream: it has no place for PCM; a name \
                        that ends in .mp4 keeps it (--output NAME.mp4)";
        assert_eq!(refusal, expected);
    }

    /// Writes one second of Opus.
    fn second(mut writer: MediaWriter) -> Vec<u8> {
        let mut out = Vec::new();
        for number in 0..50 {
            let (time, bytes) = (960 * number, vec![0xfc; 80]);
            writer
                .push(0, AccessUnit { time, bytes, is_start: true, is_after_loss: false }, &mut out)
                .unwrap();
        }
        writer.finish(&mut out);
        out
    }

    #[test]
    fn languages_are_in_both_kinds_of_file() {
        let tracks = [Codec::Opus { channels: 2 }];
        // MP4 packs three letters, minus 0x60 each, into 15 bits; a transport stream has an ISO 639
        // descriptor.
        let kinds = [
            (WriterKind::FragmentedMp4, &[0x10, 0xb5, 0, 0][..]),
            (WriterKind::TransportStream, &[0x0a, 4, b'd', b'e', b'u', 0]),
        ];
        for (kind, expected) in kinds {
            let has = |out: &[u8]| out.windows(expected.len()).any(|bytes| bytes == expected);
            let mut writer = MediaWriter::new(kind, &tracks).unwrap();
            assert!(!has(&second(writer)), "{}", kind.name());
            writer = MediaWriter::new(kind, &tracks).unwrap();
            writer.set_languages(&[Some(*b"deu")]);
            assert!(has(&second(writer)), "{}", kind.name());
        }
    }

    /// The recording of a camera that reconnects continues in the same file.
    #[test]
    fn a_part_behind_another_goes_on_with_its_clock() {
        let kind = WriterKind::TransportStream;
        let tracks = [Codec::Opus { channels: 2 }];
        let first = second(MediaWriter::new(kind, &tracks).unwrap());
        let at = Duration::from_secs(5);
        let behind = second(MediaWriter::behind(at, kind, &tracks).unwrap());
        let errors = |bytes: &[u8]| {
            let mut monitor = crate::ts::Monitor::new();
            monitor.feed(bytes, Duration::ZERO);
            monitor.counts().continuity_errors
        };
        assert_eq!(errors(&[&first[..], &behind].concat()), 0);
        assert!(errors(&[&first[..], &first].concat()) > 0);
        // Base of the first clock reference, in units of 90 kHz.
        let clock = |bytes: &[u8]| {
            let has_clock = |packet: &&[u8]| packet[3] & 0x20 != 0 && packet[5] & 0x10 != 0;
            let packet = bytes.chunks(crate::TS_PACKET_BYTES).find(has_clock).expect("a clock");
            let base = u64::from_be_bytes(packet[4..12].try_into().expect("eight bytes"));
            base >> 15 & ((1 << 33) - 1)
        };
        assert_eq!(clock(&behind) - clock(&first), 5 * 90_000);
    }
}
