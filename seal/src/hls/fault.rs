// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of a film, its playlist, its segments or its keys, each with its cure.
//!
//! The file is named by [`crate::Error::File`].

use super::segment_cipher::KEY_BYTES;
use super::size_limits::{PARTS_MAX, TIMES_MAX};
use crate::plural::counted;

/// Fault of a film, its playlist or its segments, with its cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilmFault {
    /// The film cannot be cut into segments.
    #[error(transparent)]
    Refused(#[from] media::Refusal),
    /// The film has more programmes and sounds than are supported.
    #[error(
        "{} with more than {} parts to be made apart (programmes and further sounds); take out \
         what is wanted: ffmpeg -i FILE -map 0:p:NUMBER -c copy ONE.ts",
        counted(*.programmes, "programme"), PARTS_MAX
    )]
    Parts {
        /// Programmes found.
        programmes: u64,
    },
    /// Programmes that share tracks would take too much disk.
    #[error(
        "its {} (programmes and further sounds) would take {bytes} bytes or more, over {} times \
         the {source_bytes} that it has; take out what is wanted: ffmpeg -i FILE -map 0:p:NUMBER \
         -c copy ONE.ts",
        counted(*.parts, "part"), TIMES_MAX
    )]
    Multiplied {
        /// Bytes counted so far.
        bytes: u64,
        /// Bytes of the film.
        source_bytes: u64,
        /// Programmes and sounds with segments of their own.
        parts: u64,
    },
    /// Segments are so short that their files would take too much disk.
    #[error(
        "its {} would take {bytes} bytes of disk, over {} times the {source_bytes} that it has; \
         take a longer target duration, or make its clock anew: ffmpeg -i FILE -map 0 -c copy \
         NEW.ts",
        counted(*.segments, "segment"), TIMES_MAX
    )]
    Scattered {
        /// Bytes on disk, in whole blocks.
        bytes: u64,
        /// Bytes of the film.
        source_bytes: u64,
        /// Segments of the whole stream.
        segments: u64,
    },
    /// The name cannot stand in a URI.
    #[error("a name that is not UTF-8 cannot stand in a URI; rename it")]
    Name,
    /// A symbolic link, a pipe, a device.
    #[error("no regular file; links are not followed, name what it leads to")]
    NoFile,
    /// Two films would become the same folder.
    #[error("would become the folder {folder}, which {other} becomes or is in; rename one")]
    Clash {
        /// The folder, below the target.
        folder: String,
        /// The film that becomes the folder.
        other: String,
    },
    /// The existing folder was not made here.
    #[error("is there already and is no film sealed here; name another target")]
    NotOurs,
    /// A remark for the owner; not a failure.
    #[error("{0}")]
    Remark(String),
    /// An earlier version sealed the film, and no file is missing; not a failure.
    #[error("sealed by an earlier version, and whole; only force seals it anew")]
    EarlierVersion,
    /// Another segment of the film failed, and reported the cause.
    #[error("given up: another segment of it failed")]
    GivenUp,
    /// No film made here is at or below the path.
    #[error("no media.m3u8 of pagewire at or below it; name a film's folder or one above")]
    NoFilm,
    /// A file listed by the playlist or the journal is missing.
    #[error("missing from the sealed film; seal it again")]
    Missing,
    /// A film of the source has no folder.
    #[error("not in {sealed}; seal it")]
    NotSealed {
        /// The folder of sealed films.
        sealed: String,
    },
    /// The file is damaged, or not a media playlist written here.
    #[error("line {line}: not a whole media playlist of pagewire; name the media.m3u8 of a film")]
    Playlist {
        /// Line of the fault.
        line: u64,
    },
    /// A segment does not open, or differs from what was sealed. One message for all causes.
    #[error(
        "segment {index} does not open as what was sealed: a wrong key or a damaged file; give the \
         key that it was sealed with, or put the file back as it was"
    )]
    Segment {
        /// Number of the segment.
        index: u64,
    },
    /// The first segment does not open with its key.
    #[error(
        "was sealed with another key, or its first segment is damaged; give the key that it was \
         sealed with, or seal it again by force"
    )]
    OtherKey,
    /// The film is encrypted and no key was given.
    #[error("is encrypted; give its key or the folder of its keys")]
    KeyNeeded,
    /// The film's name leads out of the folder of keys.
    #[error(
        "the film's name {name:?} leads out of the folder of keys; its media.m3u8 was changed, put \
         it back as it was"
    )]
    KeyName {
        /// The name in the playlist.
        name: String,
    },
    /// The folder of keys lacks this key.
    #[error("no such key; name the folder into which sealing wrote the keys")]
    NoKey,
    /// A key file of a wrong length.
    #[error(
        "a key of {}; those of segments have {KEY_BYTES}: name the folder into which \
         sealing wrote the keys",
        counted(*.bytes, "byte")
    )]
    KeyBytes {
        /// Bytes of the file.
        bytes: u64,
    },
    /// The source differs from the sealed film.
    #[error("byte {offset}: the source and what was sealed of it differ")]
    Differs {
        /// The first byte that differs.
        offset: u64,
    },
}
