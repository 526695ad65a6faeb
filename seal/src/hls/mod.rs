// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP Live Streaming: transport streams as folders of segments, each enciphered on its own.
//!
//! A film becomes a folder with `master.m3u8`, `media.m3u8` and its segments. Each segment is a
//! message with a key and an IV of its own, so one film alone fills the lanes of all cores. The
//! folder is made under a hidden name and renamed once, after the last segment: a reader finds no
//! film or the whole one. A journal in the folder ([`film_journal`]) lists finished segments, so
//! the next run continues a killed one and gives the same bytes.
//!
//! Costs: a film is read twice, once to find where play can start and once to be enciphered, the
//! second time from the page cache where it fits. Films are scanned while others are sealed, one a
//! core and [`AHEAD_SEGMENTS`] ahead, and a segment takes about 150 bytes until its film is done.
//!
//! Further sounds, and the programmes of a stream that has several, have segments of their own
//! beside those of the whole stream (`multivariant`, `film_part`). So a player chooses what it can
//! play, and `unseal` restores the source in every case.
//!
//! Sources: RFC 8216 (HLS) §3.2, §4.3, §5.2 (AES-128: CBC, PKCS#7, the whole segment).
//! Does not move packets, transcode, join several films into one multivariant playlist, support
//! SAMPLE-AES, or protect the playlists themselves.

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

/// Options of a sealing run over films.
#[derive(Debug)]
pub struct HlsOptions {
    /// Longest duration of a segment, in seconds.
    pub target_s: u64,
    /// `None`: the segments stay clear.
    pub protection: Option<Protection>,
    /// True: an existing film's folder that was made here is replaced.
    pub force: bool,
    /// When files reach the disk.
    pub sync: Durability,
}

/// Encryption of segments.
#[derive(Debug)]
pub struct Protection {
    /// Keys of the segments.
    pub keys: Keys,
    /// Address of the keys for players.
    pub uri: KeyUri,
    /// Segments a key; `None`: one key a film.
    pub rotation: Option<NonZeroU64>,
    /// True: the playlist has a random IV for each segment; false: the IV is the segment's number.
    pub has_random_iv: bool,
    /// Folder that keys are also written to, for a server without the secret.
    pub folder: Option<KeyFolder>,
}

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
        counted(*.programmes, "programme"), size_limits::PARTS_MAX
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
        counted(*.parts, "part"), size_limits::TIMES_MAX
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
        counted(*.segments, "segment"), size_limits::TIMES_MAX
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

impl From<FilmFault> for FileFault {
    fn from(fault: FilmFault) -> Self {
        FileFault::Stream(Box::new(fault))
    }
}

/// Most segments that wait, scanned, while others are enciphered.
const AHEAD_SEGMENTS: usize = 4096;
