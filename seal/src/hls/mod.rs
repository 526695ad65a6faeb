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
mod disk_size;
mod fault;
mod film;
mod film_journal;
mod film_part;
mod hls_target;
mod key_source;
mod keys;
mod multivariant;
mod openssl_opener;
mod playlist;
mod scan;
mod seal_run;
mod segment_cipher;
mod segment_work;
mod size_limits;
mod unseal_film;
mod verify_film;

use std::num::NonZeroU64;

pub use compatibility::{Compatibility, fit};
pub use fault::FilmFault;
pub(crate) use film_journal::FILE as JOURNAL;
pub use key_source::SegmentKeySource;
pub use keys::{KeyFolder, KeyUri, Keys};
pub use playlist::{MASTER, MEDIA};
pub use seal_run::{HlsProgress, seal};
pub use segment_cipher::KEY_BYTES;
pub use unseal_film::{cut_off, unseal};
pub use verify_film::verify;

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

/// Most segments that wait, scanned, while others are enciphered.
const AHEAD_SEGMENTS: usize = 4096;
