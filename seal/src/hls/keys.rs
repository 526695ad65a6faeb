// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of segments: derived from one secret by film and number, so none has to be stored.
//!
//! The secret gives key `number` of film `name` at any time: to this run, a rerun, the server that
//! sends keys to players, `unseal`. For a server without the secret, the keys are written to a
//! folder instead ([`KeyFolder`]), a file of 16 bytes each, which any web server can deliver.
//! Random IVs are derived the same way: a rerun gives the same bytes.
//!
//! A name stands for one film: another film sealed later under the same name and secret has the
//! same keys, and with IVs by sequence number CBC would show how far the two begin alike. Where
//! that matters, use random IVs, which depend on the film's size and time as well.
//!
//! Costs one block of BLAKE3 a key. Sources: BLAKE3 paper §2.2 (`derive_key`, `keyed_hash`).
//! Does not guard keys in memory beyond overwriting them.

use std::ffi::CString;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use zeroize::Zeroizing;

use super::segment_cipher::KEY_BYTES;
use crate::dir_handle::DirHandle;
use crate::error::{Error, FileFault};
use crate::key::{Origin, Secret};
use crate::pending_file::PendingFile;
use crate::trust::{self, Writer};

/// Keys of all films under one secret.
pub struct Keys {
    /// Keys that segments' keys, IVs, hashes and editions are derived from.
    key: Zeroizing<[u8; 32]>,
    iv: Zeroizing<[u8; 32]>,
    check: Zeroizing<[u8; 32]>,
    edition: Zeroizing<[u8; 32]>,
    /// Origin of the secret, for messages.
    origin: Origin,
}

/// Keys are never shown.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    /// Derives the keys from `secret`.
    pub fn new(secret: &Secret) -> Self {
        let derive = |context| {
            let mut hasher = blake3::Hasher::new_derive_key(context);
            hasher.update(secret.bytes());
            Zeroizing::new(*hasher.finalize().as_bytes())
        };
        Self {
            key: derive(KEY_CONTEXT),
            iv: derive(IV_CONTEXT),
            check: derive(CHECK_CONTEXT),
            edition: derive(EDITION_CONTEXT),
            origin: secret.origin().clone(),
        }
    }

    /// Returns key `number`, counted from 0, of the film `name`.
    pub fn key(&self, name: &str, number: u64) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&number.to_le_bytes()).update(name.as_bytes());
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        hasher.finalize_xof().fill(key.as_mut());
        key
    }

    /// Returns a pseudorandom IV for segment `sequence` of the film `name` in this `edition`.
    pub(super) fn iv(&self, name: &str, edition: &[u8; 32], sequence: u64) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.iv);
        hasher.update(&sequence.to_le_bytes()).update(edition).update(name.as_bytes());
        let mut iv = [0; 16];
        hasher.finalize_xof().fill(&mut iv);
        iv
    }

    /// Returns the origin of the secret.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the key of the edition hashes.
    pub(super) fn edition(&self) -> &[u8; 32] {
        &self.edition
    }

    /// Returns the key of the content hashes of segments.
    pub(super) fn check(&self) -> &[u8; 32] {
        &self.check
    }
}

// A context is used for one purpose only, and never changed.
const KEY_CONTEXT: &str = "pagewire hls 2026-11-21 AES-128 keys of segments v1";
const IV_CONTEXT: &str = "pagewire hls 2026-11-21 initialisation vectors of segments v1";
const EDITION_CONTEXT: &str = "pagewire hls 2026-11-21 edition of a film v1";
const CHECK_CONTEXT: &str = "pagewire hls 2026-11-21 content hash of segments v1";

/// A folder of key files, `NAME/NUMBER.key`, of 16 bytes each.
#[derive(Debug, Clone)]
pub struct KeyFolder(PathBuf);

impl KeyFolder {
    /// Names the folder at `path`; it is made when the first key is written.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of key `number` of the film `name`.
    ///
    /// # Errors
    /// The name leads out of the folder: it comes from a playlist, which may be hostile.
    pub fn file(&self, name: &str, number: u64) -> Result<PathBuf, Error> {
        let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
        if name.is_empty() || !Path::new(name).components().all(is_name) {
            let fault = super::FilmFault::KeyName { name: name.to_owned() };
            return Err(Error::file(&self.0, fault.into()));
        }
        Ok(self.0.join(name).join(format!("{number}.key")))
    }

    /// Writes a key that only its owner can read. An existing equal key stays.
    ///
    /// # Errors
    /// Another key exists, or the file cannot be written.
    pub(super) fn keep(
        &self,
        name: &str,
        number: u64,
        key: &[u8; KEY_BYTES],
        replace: bool,
    ) -> Result<(), Error> {
        let path = self.file(name, number)?;
        let folder = path.parent().expect("a name is in front of it");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(Error::host("mkdir", folder))?;
        let root = Arc::new(DirHandle::open(folder)?);
        let file = file_name(number);
        match trust::read(&root, &file, Writer::Anybody, FILE_BYTES_MAX)? {
            Some(known) if known == key => return Ok(()),
            Some(_) if !replace => return Err(Error::file(&path, FileFault::Exists)),
            _ => {}
        }
        let pending = PendingFile::create_below(&root, file, 0o600)?;
        pending.file().write_all(key).map_err(Error::host("write", &path))?;
        pending.commit(replace)
    }

    /// Reads a key.
    ///
    /// # Errors
    /// The file does not exist, or is not 16 bytes.
    pub(super) fn read(
        &self,
        name: &str,
        number: u64,
    ) -> Result<Zeroizing<[u8; KEY_BYTES]>, Error> {
        let path = self.file(name, number)?;
        let none = || Error::file(&path, super::FilmFault::NoKey.into());
        let folder = path.parent().expect("a name is in front of it");
        let folder = DirHandle::open(folder).map_err(|error| match error {
            Error::Host { source, .. } if source.kind() == ErrorKind::NotFound => none(),
            Error::Host { call, source, .. } => Error::host(call, &path)(source),
            error => error,
        })?;
        let file = file_name(number);
        let bytes = trust::read(&folder, &file, Writer::Anybody, FILE_BYTES_MAX)?;
        let bytes = bytes.ok_or_else(none)?;
        let bytes = Zeroizing::new(bytes);
        match <[u8; KEY_BYTES]>::try_from(bytes.as_slice()) {
            Ok(key) => Ok(Zeroizing::new(key)),
            Err(_) => {
                let fault = super::FilmFault::KeyBytes { bytes: bytes.len() as u64 };
                Err(Error::file(&path, fault.into()))
            }
        }
    }
}

fn file_name(number: u64) -> CString {
    CString::new(format!("{number}.key")).expect("digits have no NUL")
}

/// Most bytes of a key file that are read. A key has 16; the error of a longer file has its length.
const FILE_BYTES_MAX: u64 = 4096;

/// Address of keys for players: a URI with `{name}` and `{number}` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUri(String);

impl KeyUri {
    /// Path on the server that delivers the playlist; `pagewire serve` has keys there.
    pub const USUAL: &'static str = "/keys/{name}/{number}.key";

    /// Parses a template.
    ///
    /// # Errors
    /// [`Error::Option`]: a character that a playlist cannot hold, or an unknown name in braces.
    pub fn parse(template: &str) -> Result<Self, Error> {
        let refuse = |found: String, cure: &str| Error::Option {
            option: "key_uri",
            found,
            cure: cure.to_owned(),
        };
        let is_bad = |letter: char| letter.is_control() || letter == '"' || letter == ' ';
        if let Some(at) = template.find(is_bad) {
            let cure = "no quotes, spaces or control characters can stand in a URI";
            return Err(refuse(format!("byte {at}"), cure));
        }
        let rest = template.replace("{name}", "").replace("{number}", "");
        if rest.contains(['{', '}']) || rest.is_empty() {
            let cure = "write a URI with {name} and {number}, and no other braces";
            return Err(refuse(template.to_owned(), cure));
        }
        for wanted in ["{name}", "{number}"] {
            if !template.contains(wanted) {
                let found = format!("{template}, without {wanted}");
                return Err(refuse(found, "each key needs a URI of its own"));
            }
        }
        Ok(Self(template.to_owned()))
    }

    /// Returns the URI of key `number` of the film `name`.
    pub fn of(&self, name: &str, number: u64) -> String {
        self.0.replace("{number}", &number.to_string()).replace("{name}", &escape(name))
    }
}

/// Escapes a name for a URI: all but letters, digits, `-._~` and `/` as percent and hex (RFC 3986
/// §2.1).
pub(super) fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Reverses [`escape`]; `None` for text that `escape` cannot have made.
pub(super) fn unescape(escaped: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(byte: u8) -> Keys {
        let bytes = Zeroizing::new(vec![byte; 32]);
        Keys::new(&Secret::new(bytes, Origin::new("--key-file", "x")).unwrap())
    }

    #[test]
    fn every_secret_film_and_number_has_its_own_key() {
        let mut seen = std::collections::HashSet::new();
        for byte in [1, 2] {
            for name in ["a", "b", "a/b"] {
                for number in [0, 1, 256] {
                    assert!(seen.insert(*keys(byte).key(name, number)));
                    assert_eq!(keys(byte).key(name, number), keys(byte).key(name, number));
                    assert!(seen.insert(keys(byte).iv(name, &[0; 32], number)));
                    assert!(seen.insert(keys(byte).iv(name, &[1; 32], number)));
                }
            }
        }
        assert_eq!(format!("{:?}", keys(1)), "Keys");
    }

    #[test]
    fn templates_that_cannot_be_uris_are_refused() {
        let uri = KeyUri::parse("https://k.example/{name}?n={number}").unwrap();
        assert_eq!(uri.of("a b/ü", 7), "https://k.example/a%20b/%C3%BC?n=7");
        assert!(KeyUri::parse(KeyUri::USUAL).is_ok());
        for bad in
            ["", "keys", "{name}", "{number}", "{name}{number}{x}", "\"{name}{number}", "a\n"]
        {
            let error = KeyUri::parse(bad).unwrap_err();
            assert!(error.is_caller(), "{error}");
        }
    }

    #[test]
    fn names_come_back_from_uris() {
        for name in ["a", "a b", "ü/\"%\n", "100%"] {
            assert_eq!(unescape(&escape(name)).as_deref(), Some(name));
        }
        for bad in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(unescape(bad), None, "{bad}");
        }
    }

    #[test]
    fn key_files_are_their_owners_and_never_replaced_by_another() {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyFolder::new(folder.path().join("keys"));
        keys.keep("a/b", 3, &[7; 16], false).unwrap();
        keys.keep("a/b", 3, &[7; 16], false).unwrap();
        let mode = fs::metadata(keys.file("a/b", 3).unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let refused = keys.keep("a/b", 3, &[8; 16], false).unwrap_err();
        assert!(matches!(refused, Error::File { fault: FileFault::Exists, .. }));
        assert_eq!(*keys.read("a/b", 3).unwrap(), [7; 16]);
        keys.keep("a/b", 3, &[8; 16], true).unwrap();
        assert_eq!(*keys.read("a/b", 3).unwrap(), [8; 16]);
        assert!(keys.read("a/b", 4).is_err());
        fs::write(keys.file("a/b", 5).unwrap(), "short").unwrap();
        assert!(keys.read("a/b", 5).unwrap_err().to_string().contains("5 bytes"));
    }

    #[test]
    fn names_of_playlists_lead_to_no_file_outside_the_folder() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("0.key"), [7; 16]).unwrap();
        let keys = KeyFolder::new(place.path().join("keys"));
        keys.keep("film", 0, &[8; 16], false).unwrap();
        let above = place.path().display().to_string();
        for name in ["..", "../", "film/../..", "./..", "", "/", &above, "../keys/film"] {
            let error = keys.read(name, 0).unwrap_err().to_string();
            assert!(error.contains("leads out of"), "{name}: {error}");
            assert!(keys.keep(name, 0, &[9; 16], true).is_err(), "{name}");
        }
        assert_eq!(*keys.read("film", 0).unwrap(), [8; 16]);
        let error = keys.read("film", 1).unwrap_err().to_string();
        assert!(error.contains("1.key") && error.contains("name the folder"), "{error}");
    }
}
