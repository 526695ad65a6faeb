// SPDX-License-Identifier: MIT OR Apache-2.0
//! Films opened by a second implementation, OpenSSL, and compared with their sources or hashes.
//!
//! A sealed film cannot be verified by the code that sealed it: a mistake in the lanes would be
//! undone by the same mistake. Costs a read, OpenSSL's decryption and the hash; nothing is written.
//!
//! Does not decipher (`openssl_opener` does) or play films. The tests run a player.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::OFlags;

use super::film_journal::Journal;
use super::film_part::is_part;
use super::key_source::SegmentKeySource;
use super::playlist::PLAYLIST_BYTES_MAX;
use super::seal_run::{self, Selection};
use super::unseal_film::{self, FilmWork, SealedFilm, Sink, find};
use super::{FilmFault, completeness};
use crate::dir_handle::DirHandle;
use crate::engine::{self, SealOutcome, SealProgress, Settings};
use crate::error::Error;
use crate::target_path::c_string;
use crate::trust::{self, Writer};

/// Opens the films at or below `sealed`, and those of their sounds and programmes that have
/// segments of their own. With `source`, a file for one film and a folder for several, each film
/// must be its source byte for byte.
///
/// # Errors
/// There is no film.
pub fn verify(
    sealed: &Path,
    source: Option<&Path>,
    keys: &SegmentKeySource,
    settings: &Settings,
    seen: &SealProgress,
) -> Result<SealOutcome, Error> {
    let (mut works, mut failed) = (Vec::new(), Vec::new());
    let films = find(sealed)?;
    let passed_over = match source.filter(|source| source.is_dir()) {
        Some(source) => unsealed(sealed, source, &films, &mut failed)?,
        None => Vec::new(),
    };
    for film in films {
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
            cipher: unseal_film::Cipher::OpenSsl,
            bytes: film.bytes,
        };
        works.extend(
            parts(&film.folder, &mut failed)?.into_iter().map(|id| work(id, Sink::Nothing)),
        );
        works.push(work(String::new(), sink));
    }
    seen.failed.fetch_add(failed.len() as u64, Ordering::Relaxed);
    let mut outcome = engine::run(works, settings, seen);
    outcome.failed.extend(failed);
    outcome.passed_over = passed_over;
    Ok(outcome)
}

/// Adds films of `source` without a folder among `films` to `failed`; returns files passed over.
fn unsealed(
    sealed: &Path,
    source: &Path,
    films: &[SealedFilm],
    failed: &mut Vec<Error>,
) -> Result<Vec<Error>, Error> {
    let Selection { found, errors, passed_over } = seal_run::find(source)?;
    failed.extend(errors);
    let there: HashSet<&Path> = films.iter().filter_map(|film| film.below.as_deref()).collect();
    if there.is_empty() {
        return Ok(passed_over);
    }
    for film in found.iter().filter(|film| !there.contains(Path::new(&film.name))) {
        let sealed = sealed.display().to_string();
        failed.push(Error::file(&film.source, FilmFault::NotSealed { sealed }.into()));
    }
    Ok(passed_over)
}

/// Returns the parts of a film that have media playlists of their own, or had them. Adds missing
/// multivariant playlists to `failed`.
fn parts(folder: &Path, failed: &mut Vec<Error>) -> Result<BTreeSet<String>, Error> {
    let root = DirHandle::open(folder)?;
    let journal = Journal::read_by(&root, Writer::Anybody).ok().flatten();
    let entries = fs::read_dir(folder).map_err(Error::host("open", folder))?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let names: Vec<_> =
        names.collect::<std::io::Result<_>>().map_err(Error::host("getdents", folder))?;
    let ids = names.iter().filter_map(|name| name.to_str()?.strip_suffix(".m3u8"));
    let mut parts: BTreeSet<_> = ids.filter(|id| is_part(id)).map(str::to_owned).collect();
    for name in completeness::playlists(&root, journal.as_ref()) {
        match completeness::media_id(&name) {
            Some("") => {}
            Some(id) => drop(parts.insert(id.to_owned())),
            None => failed.extend(is_there(&root, &name).err()),
        }
    }
    Ok(parts)
}

/// Checks that a multivariant playlist can be opened.
fn is_there(root: &DirHandle, name: &str) -> Result<(), Error> {
    let name = c_string(name.as_ref())?;
    let missing = || Error::file(&root.shown(&name), FilmFault::Missing.into());
    let flags = OFlags::RDONLY;
    trust::open(root, &name, flags, Writer::Anybody, PLAYLIST_BYTES_MAX)?.ok_or_else(missing)?;
    Ok(())
}

/// Returns the source of the folder of this name: the first existing file with a known extension.
fn source_of(name: &Path) -> std::path::PathBuf {
    let with = |extension: &str| {
        let mut path = name.as_os_str().to_owned();
        path.push(".");
        path.push(extension);
        std::path::PathBuf::from(path)
    };
    let known = seal_run::EXTENSIONS.iter().map(|extension| with(extension));
    known.clone().find(|path| path.is_file()).unwrap_or_else(|| with("ts"))
}
