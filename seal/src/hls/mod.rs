// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP Live Streaming: transport streams as folders of segments, each enciphered on its own.
//!
//! A film becomes a folder with `master.m3u8`, `media.m3u8` and its segments. Each segment is a
//! message with a key and an IV of its own, so one film alone fills the lanes of all cores. The
//! folder is made under a hidden name and takes its own, by one rename, when the last segment is
//! there: whoever looks finds no film or the whole one. What is done of it is kept in a journal
//! in the folder ([`film_journal`]), so a run that was killed is gone on with, and bytes are the
//! same.
//!
//! Costs: a film is read twice, once to find where play can start and once to be enciphered, the
//! second time from the page cache where it fits. Films are scanned while others are sealed, one a
//! core and [`AHEAD_SEGMENTS`] ahead, and a segment takes about 150 bytes until its film is done.
//!
//! Further sounds and the programmes of a stream that has several have segments of their own beside
//! those of the whole stream (`titles`, `part`), so a player takes what it can play, and `unseal`
//! makes the source again whatever that was.
//!
//! Sources: RFC 8216 (HLS) §3.2, §4.3, §5.2 (AES-128: CBC, PKCS#7, the whole segment).
//! Does not do: move packets, transcode, join several films into one multivariant playlist,
//! SAMPLE-AES, protection of the playlists themselves.

mod compatibility;
mod completeness;
mod film;
mod film_journal;
mod film_part;
mod hls_target;
mod keys;
mod multivariant;
mod playlist;
mod scan;
mod seal_run;
mod segment_work;
mod size_limits;
mod unseal_film;
mod verify_film;

use std::num::NonZeroU64;

pub use compatibility::{Compatibility, fit};
pub(crate) use film_journal::FILE as JOURNAL;
pub use keys::{KEY_BYTES, KeyFolder, KeyUri, Keys};
pub use playlist::{MASTER, MEDIA};
pub use seal_run::{HlsProgress, seal};
pub use unseal_film::{SegmentKeySource, cut_off, unseal};
pub use verify_film::verify;

use crate::error::{FileFault, counted};
pub use crate::folder::Durability;

/// How to make folders of films.
#[derive(Debug)]
pub struct HlsOptions {
    /// Seconds a segment shall last at most.
    pub target_s: u64,
    /// None: the segments stay clear.
    pub protection: Option<Protection>,
    /// A film's folder that is there already, and was made here, is replaced.
    pub force: bool,
    /// When what was written is made to last.
    pub sync: Durability,
}

/// How segments are enciphered.
#[derive(Debug)]
pub struct Protection {
    /// Where the keys come from.
    pub keys: Keys,
    /// Where players find them.
    pub uri: KeyUri,
    /// A new key every so many segments; none: one a film.
    pub rotation: Option<NonZeroU64>,
    /// An IV for each segment in the playlist; else it is the segment's number.
    pub has_random_iv: bool,
    /// Where keys are written as well, for a server that has no secret.
    pub folder: Option<KeyFolder>,
}

/// What is wrong with a film, its playlist or its segments, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilmFault {
    /// It cannot be cut into segments.
    #[error(transparent)]
    Refused(#[from] media::Refusal),
    /// It has more programmes and sounds than are looked at.
    #[error(
        "{} with more than {} parts to be made apart (programmes and further sounds); take out \
         what is wanted: ffmpeg -i FILE -map 0:p:NUMBER -c copy ONE.ts",
        counted(*.programmes, "programme"), size_limits::PARTS_MAX
    )]
    Parts {
        /// Programmes that were found.
        programmes: u64,
    },
    /// Programmes that share tracks would fill the disk.
    #[error(
        "its {} (programmes and further sounds) would take {bytes} bytes or more, over {} times \
         the {source_bytes} that it has; take out what is wanted: ffmpeg -i FILE -map 0:p:NUMBER \
         -c copy ONE.ts",
        counted(*.parts, "part"), size_limits::TIMES_MAX
    )]
    Multiplied {
        /// What was counted so far.
        bytes: u64,
        /// Of the film.
        source_bytes: u64,
        /// Programmes and sounds with segments of their own.
        parts: u64,
    },
    /// Segments so short that their files would fill the disk.
    #[error(
        "its {} would take {bytes} bytes of disk, over {} times the {source_bytes} that it has; \
         take a longer target duration, or make its clock anew: ffmpeg -i FILE -map 0 -c copy \
         NEW.ts",
        counted(*.segments, "segment"), size_limits::TIMES_MAX
    )]
    Scattered {
        /// In whole blocks.
        bytes: u64,
        /// Of the film.
        source_bytes: u64,
        /// Of the stream as it is.
        segments: u64,
    },
    /// The name has to stand in URIs.
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
        /// The film that becomes it.
        other: String,
    },
    /// What is at the folder's name was not made here.
    #[error("is there already and is no film sealed here; name another target")]
    NotOurs,
    /// What its owner has to know, and that is no failure.
    #[error("{0}")]
    Remark(String),
    /// An earlier version sealed it, and nothing of it is missing; no failure.
    #[error("sealed by an earlier version, and whole; only force seals it anew")]
    EarlierVersion,
    /// Another segment of the film failed, and said why.
    #[error("given up: another segment of it failed")]
    GivenUp,
    /// Nothing at or below it was made here.
    #[error("no media.m3u8 of pagewire at or below it; name a film's folder or one above")]
    NoFilm,
    /// A file that its playlist or journal lists.
    #[error("missing from the sealed film; seal it again")]
    Missing,
    /// A film of the source has no folder.
    #[error("not in {sealed}; seal it")]
    NotSealed {
        /// The folder of sealed films.
        sealed: String,
    },
    /// Not a media playlist that was written here, or a damaged one.
    #[error("line {line}: not a whole media playlist of pagewire; name the media.m3u8 of a film")]
    Playlist {
        /// Where that was noticed.
        line: u64,
    },
    /// A segment does not open, or not as what was sealed. One message whatever the cause.
    #[error(
        "segment {index} does not open as what was sealed: a wrong key or a damaged file; give the \
         key that it was sealed with, or put the file back as it was"
    )]
    Segment {
        /// Its number.
        index: u64,
    },
    /// Its first segment does not open by the key that is made for it.
    #[error(
        "was sealed with another key, or its first segment is damaged; give the key that it was \
         sealed with, or seal it again by force"
    )]
    OtherKey,
    /// The film is encrypted and no key was given.
    #[error("is encrypted; give its key or the folder of its keys")]
    KeyNeeded,
    /// A film's name that is none.
    #[error(
        "the film's name {name:?} leads out of the folder of keys; its media.m3u8 was changed, put \
         it back as it was"
    )]
    KeyName {
        /// As its playlist has it.
        name: String,
    },
    /// No such key in the folder of keys.
    #[error("no such key; name the folder into which sealing wrote the keys")]
    NoKey,
    /// A key file of a wrong length.
    #[error(
        "a key of {}; those of segments have {KEY_BYTES}: name the folder into which \
         sealing wrote the keys",
        counted(*.bytes, "byte")
    )]
    KeyBytes {
        /// What was found.
        bytes: u64,
    },
    /// The film is not what it was when it was sealed.
    #[error("byte {offset}: the source and what was sealed of it differ")]
    Differs {
        /// The first byte that differs.
        offset: u64,
    },
}

impl From<FilmFault> for FileFault {
    fn from(fault: FilmFault) -> Self {
        FileFault::Stream(Box::new(fault))
    }
}

/// Segments that are ready to be enciphered while others are.
const AHEAD_SEGMENTS: usize = 4096;
