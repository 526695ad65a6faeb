// SPDX-License-Identifier: MIT OR Apache-2.0
//! Films opened by a second implementation, OpenSSL, and compared with their sources or hashes.
//!
//! What sealed a film cannot vouch for itself: a mistake in the lanes would be undone by the same
//! mistake. Costs a read, OpenSSL's decryption and the hash; nothing is written.
//!
//! Sources: EVP_DecryptUpdate(3), EVP_DecryptFinal_ex(3): padding is looked at by OpenSSL too.
//! Does not do: play. A player is asked by the tests.

use std::fs;
use std::path::Path;

use openssl::symm::{Cipher, Crypter, Mode};

use super::keys::KEY_BYTES;
use super::part::is_part;
use super::unseal::{self, FilmWork, KeySource, Sink, find};
use crate::engine::{self, Outcome, Seen, Settings};
use crate::error::Error;

/// Opens the films at or below `sealed`, and their sounds and programmes that have segments of
/// their own. With `source`, a file for one film and a folder for
/// several, each has to be its source byte for byte.
///
/// # Errors
/// There is no film.
pub fn verify(
    sealed: &Path,
    source: Option<&Path>,
    keys: &KeySource,
    settings: &Settings,
    seen: &Seen,
) -> Result<Outcome, Error> {
    let mut works = Vec::new();
    for film in find(sealed)? {
        let sink = match (source, &film.below) {
            (None, _) => Sink::Nothing,
            (Some(source), None) => Sink::Compare(source.to_owned()),
            (Some(source), Some(below)) => Sink::Compare(source_of(&source.join(below))),
        };
        let work = |id, sink| FilmWork {
            folder: film.folder.clone(),
            id,
            keys,
            sink,
            cipher: unseal::Cipher::OpenSsl,
            bytes: film.bytes,
        };
        works.extend(parts(&film.folder)?.into_iter().map(|id| work(id, Sink::Nothing)));
        works.push(work(String::new(), sink));
    }
    Ok(engine::run(works, settings, seen))
}

/// The parts of a film that have playlists of their own beside the whole stream's.
fn parts(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::host("open", folder))?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let names: Vec<_> =
        names.collect::<std::io::Result<_>>().map_err(Error::host("getdents", folder))?;
    let ids = names.iter().filter_map(|name| name.to_str()?.strip_suffix(".m3u8"));
    Ok(ids.filter(|id| is_part(id)).map(str::to_owned).collect())
}

/// The source that became the folder of this name: the first there is with an ending of one.
fn source_of(name: &Path) -> std::path::PathBuf {
    let with = |extension: &str| {
        let mut path = name.as_os_str().to_owned();
        path.push(".");
        path.push(extension);
        std::path::PathBuf::from(path)
    };
    let known = super::run::EXTENSIONS.iter().map(|extension| with(extension));
    known.clone().find(|path| path.is_file()).unwrap_or_else(|| with("ts"))
}

/// A segment being decrypted by OpenSSL.
pub(super) struct OpenSsl(Crypter);

impl OpenSsl {
    pub(super) fn new(key: &[u8; KEY_BYTES], iv: &[u8; 16]) -> Result<Self, Error> {
        let crypter = Crypter::new(Cipher::aes_128_cbc(), Mode::Decrypt, key, Some(iv));
        crypter.map(Self).map_err(refused)
    }

    /// Decrypts the first `bytes` of `buffer`, which has room for a block more; how many there are
    /// then. None: the padding is wrong.
    pub(super) fn open(
        &mut self,
        buffer: &mut [u8],
        bytes: usize,
        is_last: bool,
    ) -> Result<Option<usize>, Error> {
        let mut opened = vec![0; bytes + 32];
        let mut count = self.0.update(&buffer[..bytes], &mut opened).map_err(refused)?;
        if is_last {
            match self.0.finalize(&mut opened[count..]) {
                Ok(more) => count += more,
                Err(_) => return Ok(None),
            }
        }
        buffer[..count].copy_from_slice(&opened[..count]);
        Ok(Some(count))
    }
}

fn refused(error: openssl::error::ErrorStack) -> Error {
    Error::host("EVP_DecryptUpdate", "aes-128-cbc".as_ref())(std::io::Error::other(error))
}
