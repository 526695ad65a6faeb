// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of the experiment: the film of each, and the playlist whose segments are requested.
//!
//! Does not measure.

use super::films::Film;

/// One kind of answer.
pub(super) struct Part {
    /// Name, for `--part` and the rows.
    pub(super) name: &'static str,
    /// Description of the answers.
    pub(super) answers: &'static str,
    pub(super) film: Film,
    pub(super) media: Media,
    /// Name of the playlist below the film's identity.
    pub(super) playlist: &'static str,
}

/// Content of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    /// Segments of pictures and sound.
    Together,
    Pictures,
    Sound,
    /// Byte ranges of a transport stream.
    Stream,
    /// The playlist itself.
    Playlist,
}

impl Media {
    /// Returns the tracks of a segment, by their index in the film; none except for MP4 segments.
    pub(super) fn tracks(self) -> Option<&'static [usize]> {
        match self {
            Media::Together => Some(&[0, 1]),
            Media::Pictures => Some(&[0]),
            Media::Sound => Some(&[1]),
            Media::Stream | Media::Playlist => None,
        }
    }
}

/// All parts.
pub(super) static PARTS: &[Part] = &[
    Part {
        name: "together",
        answers: "fMP4 segments of 6 s with pictures and sound",
        film: Film::Mp4,
        media: Media::Together,
        playlist: "1-2.m3u8",
    },
    Part {
        name: "pictures",
        answers: "fMP4 segments of 6 s of the same film with pictures alone",
        film: Film::Mp4,
        media: Media::Pictures,
        playlist: "1.m3u8",
    },
    Part {
        name: "sound",
        answers: "fMP4 segments of 6 s of the same film with sound alone",
        film: Film::Mp4,
        media: Media::Sound,
        playlist: "2.m3u8",
    },
    Part {
        name: "stream",
        answers: "segments of 6 s of a transport stream; of pagewire byte ranges of it",
        film: Film::Ts,
        media: Media::Stream,
        playlist: "ts.m3u8",
    },
    Part {
        name: "playlist",
        answers: "the media playlist of a film of two hours, of nginx as a file",
        film: Film::Long,
        media: Media::Playlist,
        playlist: "1-2.m3u8",
    },
];
