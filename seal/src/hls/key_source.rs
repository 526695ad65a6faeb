// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source of the keys that open films: a secret, a folder of key files, or none.
//!
//! Does not read a film's playlist, which names its keys (`playlist` does).

use zeroize::Zeroizing;

use super::keys::{KeyFolder, Keys};
use super::playlist::Playlist;
use super::segment_cipher::KEY_BYTES;
use crate::error::Error;
use crate::key::Origin;

/// Source of the keys of films.
#[derive(Debug)]
pub enum SegmentKeySource {
    /// All keys from one secret. Hashes of segments are checked as well.
    Derived(Keys),
    /// Keys from files; without the secret only padding and size of segments can be checked.
    Folder(KeyFolder),
    /// The segments are clear.
    None,
}

impl SegmentKeySource {
    /// Returns the origin of the keys, for messages.
    pub(super) fn origin(&self) -> Option<Origin> {
        match self {
            SegmentKeySource::Derived(keys) => Some(keys.origin().clone()),
            SegmentKeySource::Folder(folder) => {
                Some(Origin::new("key_folder", folder.path().display().to_string()))
            }
            SegmentKeySource::None => None,
        }
    }

    /// Returns key `number` of the film in `playlist`; `None` when segments are clear.
    ///
    /// # Errors
    /// The folder of keys has no such key, or it cannot be read.
    pub(super) fn key(
        &self,
        playlist: &Playlist,
        number: u64,
    ) -> Result<Option<Zeroizing<[u8; KEY_BYTES]>>, Error> {
        match self {
            SegmentKeySource::Derived(keys) => Ok(Some(keys.key(&playlist.name, number))),
            SegmentKeySource::Folder(folder) => folder.read(&playlist.name, number).map(Some),
            SegmentKeySource::None => Ok(None),
        }
    }
}
