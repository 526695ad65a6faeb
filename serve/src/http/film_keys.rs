// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of sealed films, served to players at `/keys/NAME/NUMBER.key`.
//!
//! Keys come from a folder of key files, which is never the served one nor below it, or are derived
//! on request from a secret held by the caller that starts the server, for films in the served
//! folder. Costs an open, and a read or a hash; a player requests 16 bytes a film and minute.
//!
//! Sources: RFC 8216 §4.3.2.4 (the key is 16 octets), §6.3.6 (obtaining it).
//! Does not admit clients ([`crate::admission`] does) or derive keys (the caller does).

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Setting};
use crate::library::served_folder::Folder;
use crate::segment_key::{KEY_BYTES, KEY_PATH_PREFIX, KeyMaker, SAMPLE_KEY, key_id};
use crate::web;

/// Playlist that `seal hls` writes for each film.
const PLAYLIST: &str = "media.m3u8";

/// Source of keys.
#[derive(Clone)]
#[non_exhaustive]
pub enum KeySource {
    /// Files `NAME/NUMBER.key` of 16 bytes below this folder.
    Folder(PathBuf),
    /// Function that makes key `number` of the film `name`.
    Made(Arc<KeyMaker>),
}

impl KeySource {
    /// True where both give the same keys: one folder, or equal secrets.
    pub(crate) fn gives_the_same(&self, other: &KeySource) -> bool {
        match (self, other) {
            (KeySource::Folder(one), KeySource::Folder(other)) => one == other,
            // Keys are derived from the secret: two that differ agree on no film.
            (KeySource::Made(one), KeySource::Made(other)) => one(PROBE, 0) == other(PROBE, 0),
            _ => false,
        }
    }
}

/// Name of a film whose key distinguishes secrets; no file has this name.
const PROBE: &str = "/";

/// Shows the source, never a key.
impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeySource::Folder(path) => write!(f, "keys in {}", path.display()),
            KeySource::Made(_) => f.write_str("keys made from a secret"),
        }
    }
}

/// An opened source of keys.
pub(crate) enum FilmKeys {
    Folder(Folder),
    /// Makes keys for films of the served folder only.
    Made(Arc<KeyMaker>, Folder),
}

impl FilmKeys {
    /// Opens a source for a server of the folder `served`.
    ///
    /// # Errors
    /// [`Error::Setting`]: the folder cannot be read, or its keys would be served as files.
    pub(crate) fn open(source: &KeySource, served: &Path) -> Result<FilmKeys, Error> {
        let path = match source {
            KeySource::Made(make) => {
                return Ok(FilmKeys::Made(make.clone(), Folder::open(served)?));
            }
            KeySource::Folder(path) => path,
        };
        let refuse = |found: String, cure: &str| Error::Setting {
            setting: Setting::Keys,
            found: format!("{}: {found}", path.display()),
            cure: cure.to_owned(),
        };
        let folder = Folder::open(path).map_err(|error| {
            let found = match &error {
                Error::Folder { source, .. } => match source.kind() {
                    ErrorKind::NotFound => "no such folder".to_owned(),
                    ErrorKind::NotADirectory => "a file, no folder".to_owned(),
                    _ => source.to_string(),
                },
                other => other.to_string(),
            };
            refuse(found, "name the folder of keys that sealing wrote")
        })?;
        if folder.path().starts_with(served) || served.starts_with(folder.path()) {
            let found = format!("in or above the served folder {}", served.display());
            return Err(refuse(found, "move the keys where no file is served from"));
        }
        Ok(FilmKeys::Folder(folder))
    }

    /// Returns a licence of clear key for the samples of these films; `None` if one has no key. May
    /// block on a disk.
    pub(crate) fn licence(&self, films: &[String]) -> Option<Vec<u8>> {
        let FilmKeys::Made(make, _) = self else { return None };
        let key = |film: &String| Some((key_id(&**make, film), self.key(film, SAMPLE_KEY)?));
        let keys: Vec<_> = films.iter().map(key).collect::<Option<_>>()?;
        (!keys.is_empty()).then(|| web::clear_key::licence(&keys))
    }

    /// Returns key `number` of a film, `None` if there is none. May block on a disk.
    pub(crate) fn key(&self, film: &str, number: u64) -> Option<[u8; KEY_BYTES]> {
        match self {
            FilmKeys::Made(make, served) => {
                // Only films in the served folder have keys. A film has a folder; its further audio
                // tracks and programmes have playlists in it.
                let is_there = |playlist: String| served.file(&playlist).is_ok();
                let is_published =
                    is_there(format!("{film}/{PLAYLIST}")) || is_there(format!("{film}.m3u8"));
                // Segments that the server makes of a file have keys below its name.
                let is_file = || {
                    let found = web::address::identity_of(film);
                    found.is_some_and(|(file, _)| served.file(file).is_ok())
                };
                (is_published || is_file()).then(|| make(film, number))
            }
            FilmKeys::Folder(folder) => {
                let name = format!("{film}/{number}.key");
                let (mut file, metadata) = folder.file(&name).ok()?;
                if metadata.len() != KEY_BYTES as u64 {
                    tracing::error!("{name}: {} bytes, no key of {KEY_BYTES}", metadata.len());
                    return None;
                }
                let mut key = [0; KEY_BYTES];
                file.read_exact(&mut key).ok()?;
                Some(key)
            }
        }
    }
}

/// A key that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedKey<'a> {
    pub(crate) film: &'a str,
    pub(crate) number: u64,
    /// True for a licence of clear key, false for the octets of the key.
    pub(crate) is_licence: bool,
}

/// Parses a path below [`KEY_PATH_PREFIX`]; `None` if it names no key.
pub(crate) fn named(path: &str) -> Option<NamedKey<'_>> {
    let (film, file) = path.strip_prefix(KEY_PATH_PREFIX)?.rsplit_once('/')?;
    let (digits, extension) = file.split_once('.')?;
    let is_licence = match extension {
        "key" => false,
        web::clear_key::LICENCE => true,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    // Each key has one path, so a policy for that path cannot be evaded by another spelling.
    let is_canonical = number.to_string() == digits;
    let is_name = |part: &str| !part.is_empty() && !part.starts_with('.');
    (is_canonical && film.split('/').all(is_name)).then_some(NamedKey { film, number, is_licence })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_the_same_by_their_keys() {
        let made = |secret: u8| KeySource::Made(Arc::new(move |_, _| [secret; KEY_BYTES]));
        let folder = |name: &str| KeySource::Folder(name.into());
        assert!(made(1).gives_the_same(&made(1)) && folder("a").gives_the_same(&folder("a")));
        assert!(!made(1).gives_the_same(&made(2)) && !made(1).gives_the_same(&folder("a")));
        assert!(!folder("a").gives_the_same(&folder("b")));
    }

    #[test]
    fn a_key_has_one_path() {
        let key = |film, number, is_licence| Some(NamedKey { film, number, is_licence });
        assert_eq!(named("/keys/film/0.key"), key("film", 0, false));
        assert_eq!(named("/keys/film/0.jwk"), key("film", 0, true));
        assert_eq!(named("/keys/a/b c/12.key"), key("a/b c", 12, false));
        for path in [
            "/keys/0.key",
            "/keys//0.key",
            "/keys/a//0.key",
            "/keys/a/../0.key",
            "/keys/a/.hidden/0.key",
            "/keys/a/00.key",
            "/keys/a/+1.key",
            "/keys/a/-1.key",
            "/keys/a/1",
            "/keys/a/.key",
            "/keys/a/99999999999999999999.key",
            "/other/a/0.key",
        ] {
            assert_eq!(named(path), None, "{path}");
        }
    }

    #[test]
    fn keys_in_the_served_folder_are_refused() {
        let top = tempfile::tempdir().unwrap();
        let top_path = top.path().canonicalize().unwrap();
        let (served, keys) = (top_path.join("served"), top_path.join("keys"));
        std::fs::create_dir_all(served.join("keys")).unwrap();
        std::fs::create_dir_all(keys.join("film")).unwrap();
        std::fs::write(keys.join("film/0.key"), [7; 16]).unwrap();
        std::fs::write(keys.join("film/1.key"), [7; 17]).unwrap();
        for bad in [&served, &served.join("keys"), &top_path, &top_path.join("none")] {
            let refused = FilmKeys::open(&KeySource::Folder(bad.clone()), &served).err();
            let error = refused.expect("refused");
            assert!(
                error.is_caller() && error.to_string().starts_with("keys of sealed films: "),
                "{error}"
            );
        }
        let open = FilmKeys::open(&KeySource::Folder(keys), &served).unwrap();
        assert_eq!(open.key("film", 0), Some([7; 16]));
        for (film, number) in [("film", 1), ("film", 2), ("none", 0), ("../served", 0)] {
            assert_eq!(open.key(film, number), None);
        }
        let made = KeySource::Made(Arc::new(|_, number| [number as u8; 16]));
        std::fs::create_dir(served.join("film")).unwrap();
        std::fs::write(served.join("film").join(PLAYLIST), "#EXTM3U\n").unwrap();
        let open = FilmKeys::open(&made, &served).unwrap();
        assert_eq!((open.key("film", 3), open.key("none", 3)), (Some([3; 16]), None));
        assert_eq!(open.key("film/audio-258", 1), None);
        std::fs::write(served.join("film/audio-258.m3u8"), "#EXTM3U\n").unwrap();
        assert_eq!(open.key("film/audio-258", 1), Some([1; 16]));
        assert_eq!(format!("{made:?}"), "keys made from a secret");
    }
}
