// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists the reasons for not sending a track, each with its remedy, in the same words for every
//! container.
//!
//! A command changes what is at fault and copies everything else. It writes Matroska, which holds
//! nearly every codec: ffmpeg copies no PCM and no FLAC into MP4, and no VP9 into QuickTime. Text
//! subtitles of an MP4 have no codec in Matroska and become SubRip; its time codes are dropped.
//!
//! Does not examine tracks.

use super::{Container, TrackMedia};

/// Kinds of tracks that are not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnsentKind {
    Pictures,
    Sound,
    /// Subtitles as text, or chapters.
    Text,
    /// Subtitles as pictures.
    Bitmaps,
    /// Time codes, positions, fonts and the like.
    Data,
    Encrypted,
    Unknown,
}

impl UnsentKind {
    /// Reason for not sending a track of this kind, with its remedy.
    pub(crate) fn reason(self, container: Container) -> String {
        match self {
            UnsentKind::Pictures => {
                let cure = encode_anew(TrackMedia::Video, container);
                format!("pictures of a codec that is not streamed; {cure}")
            }
            UnsentKind::Sound => {
                let cure = encode_anew(TrackMedia::Audio, container);
                format!("sound of a codec that is not streamed; {cure}")
            }
            UnsentKind::Text => "subtitles or chapters, which are not sent; burn subtitles into \
                                 the pictures (ffmpeg -i IN -vf subtitles=IN OUT.mp4)"
                .to_owned(),
            UnsentKind::Bitmaps => "subtitles, which are not sent; burn them into the pictures \
                                    (ffmpeg -i IN -filter_complex [0:v][0:s]overlay OUT.mp4)"
                .to_owned(),
            UnsentKind::Data => "neither pictures nor sound; nothing is lost without it".to_owned(),
            UnsentKind::Encrypted => "encrypted; decrypt it first".to_owned(),
            UnsentKind::Unknown => "a codec that is not streamed; encode it anew (ffmpeg -i IN \
                                    -c:v libx264 -c:a aac OUT.mp4)"
                .to_owned(),
        }
    }
}

/// Remedy for a track whose codec, or its parameters, are at fault.
pub(crate) fn encode_anew(media: TrackMedia, container: Container) -> String {
    let (what, codec) = match media {
        TrackMedia::Video => ("them", "-c:v libx264"),
        TrackMedia::Audio => ("it", "-c:a aac"),
    };
    let copy = match container {
        Container::Matroska => "-map 0 -c copy",
        _ => "-map 0 -dn -c copy -c:s srt",
    };
    format!("encode {what} anew (ffmpeg -i IN {copy} {codec} OUT.mkv)")
}

/// Remedy for a track whose container describes it wrongly.
pub(crate) const fn remux(container: Container) -> &'static str {
    match container {
        Container::Matroska => "remux it (ffmpeg -i IN -map 0 -c copy OUT.mkv)",
        _ => "remux it (ffmpeg -i IN -map 0 -c copy OUT.mp4)",
    }
}

/// Reason of Opus with more channels than a stream has (RFC 7587 §2).
pub(crate) fn opus_channels(channels: u64, container: Container) -> String {
    let cure = encode_anew(TrackMedia::Audio, container);
    format!("Opus of {channels} channels, where RFC 7587 has 1 or 2; {cure}")
}

/// Reason of a track without samples.
pub(crate) const NO_SAMPLES: &str = "no samples";

/// Reason of a track in which play cannot start.
pub(crate) const NO_START: &str = "no random-access point; encode it with key frames (ffmpeg -i \
                                   IN -c:v libx264 -g 50 OUT.mp4)";
