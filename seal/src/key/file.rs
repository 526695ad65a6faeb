// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys in files: hex digits as `openssl rand -hex 32` writes them, or the bytes themselves.
//!
//! A file of 16, 24 or 32 bytes is the key itself, unless all its bytes are hex digits: 32 digits
//! are a key of 16 bytes, and 16 or 24 digits, half a key, are an error (a random key of 16 bytes
//! is all hex digits once in 10^17). All other files are hex.
//!
//! A key file with permissions for others causes a warning ([`Exposed`]), not an error: a
//! container's secrets often have them. Costs an open, an fstat and a read; the buffer is
//! overwritten afterwards.
//!
//! Does not print the warning.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{KEY_BYTES, Origin, Secret};
use crate::error::Error;

/// Most bytes of a key file: a key or a passphrase and space around it.
pub const FILE_BYTES_MAX: usize = 4096;

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// A key file with permissions for users other than its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// Path of the key file.
    pub path: PathBuf,
    /// Its permission bits.
    pub mode: u32,
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(f, "{path}: others may touch this key (mode {:04o}); chmod 600 {path}", self.mode)
    }
}

/// Reads the key in a file. `option` is the option that names the file.
///
/// # Errors
/// [`Error::Option`]: the file cannot be read, or holds no key.
pub fn key(option: &'static str, path: &Path) -> Result<(Secret, Option<Exposed>), Error> {
    let (bytes, exposed) = read(option, path)?;
    let origin = Origin::new(option, path.display().to_string());
    let is_hex = bytes.iter().all(u8::is_ascii_hexdigit);
    let secret = if KEY_BYTES.contains(&bytes.len()) && !is_hex {
        Secret::new(bytes, origin)?
    } else {
        Secret::from_hex(&bytes, origin)?
    };
    Ok((secret, exposed))
}

/// Reads a small file; also returns [`Exposed`] when it has permissions for others.
pub(super) fn read(
    option: &'static str,
    path: &Path,
) -> Result<(Zeroizing<Vec<u8>>, Option<Exposed>), Error> {
    let origin = Origin::new(option, path.display().to_string());
    let unreadable = |error: std::io::Error| {
        let shown = path.display();
        let cure = match error.kind() {
            ErrorKind::NotFound if option.contains("passphrase") => {
                format!("name one that is there, or write the passphrase into it: cat > {shown}")
            }
            ErrorKind::NotFound if option.contains("key-file") => format!(
                "name one that is there; a new key is made by: openssl rand -hex 32 > {shown}; \
                 chmod 600 {shown}"
            ),
            ErrorKind::NotFound => "name one that is there".to_owned(),
            _ => "name a file that you can read".to_owned(),
        };
        origin.error(&error.to_string(), cure)
    };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(origin.error("a folder", "name the file in it"));
    }
    // All bytes are allocated at once: a vector that grows leaves copies behind that nothing
    // overwrites.
    let mut bytes = Zeroizing::new(vec![0; FILE_BYTES_MAX + 1]);
    let mut length = 0;
    while length < bytes.len() {
        match (&file).read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    if length > FILE_BYTES_MAX {
        let found = format!("more than {FILE_BYTES_MAX} bytes");
        return Err(origin.error(&found, "name a file that holds nothing else"));
    }
    bytes.truncate(length);
    // Permissions of a pipe (`<(pass show key)`) mean nothing.
    let mode = metadata.mode() & 0o7777;
    let is_exposed = metadata.is_file() && mode & OTHERS != 0;
    Ok((bytes, is_exposed.then(|| Exposed { path: path.to_owned(), mode })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn written(bytes: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("book.key");
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn read_key(bytes: &[u8]) -> Result<Vec<u8>, String> {
        let (_folder, path) = written(bytes, 0o600);
        key("--key-file", &path)
            .map(|(secret, _)| secret.bytes().to_vec())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn raw_bytes_and_hex_are_told_apart() {
        for length in KEY_BYTES {
            assert_eq!(read_key(&vec![0xF1; length]), Ok(vec![0xF1; length]));
            let hex = "f1".repeat(length);
            assert_eq!(read_key(hex.as_bytes()), Ok(vec![0xF1; length]));
            assert_eq!(read_key(format!("{hex}\r\n").as_bytes()), Ok(vec![0xF1; length]));
        }
        // Half a key in hex has the length of a raw key and is refused.
        for digits in [16, 24] {
            let error = read_key("a".repeat(digits).as_bytes()).unwrap_err();
            assert!(error.contains(&format!("book.key: {digits} hex digits; write 32")), "{error}");
        }
    }

    #[test]
    fn what_holds_no_key_is_named() {
        let at = "byte 3 is not a hex digit";
        for (bytes, expected) in [
            (&b""[..], "0 hex digits"),
            (b"abc?".as_slice(), at),
            (&[0xF1; 33], "byte 0 is not a hex digit"),
            (&[b'a'; FILE_BYTES_MAX], "4096 hex digits"),
            (&[b'a'; FILE_BYTES_MAX + 1], "more than 4096 bytes"),
        ] {
            let error = read_key(bytes).unwrap_err();
            assert!(error.starts_with("--key-file: ") && error.contains(expected), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let error = key("--key-file", folder.path()).unwrap_err();
        assert!(error.to_string().contains("a folder; name the file"), "{error}");
        let error = key("--key-file", &folder.path().join("none")).unwrap_err();
        assert!(error.is_caller() && error.to_string().contains("No such file"), "{error}");
        assert!(
            error.to_string().contains("; a new key is made by: openssl rand -hex 32 > "),
            "{error}"
        );
        let error = read("--passphrase-file", &folder.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("write the passphrase into it"), "{error}");
    }

    #[test]
    fn a_file_that_others_may_touch_is_reported() {
        for (mode, is_exposed) in
            [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o620, true)]
        {
            let (_folder, path) = written(&[9; 32], mode);
            let (_, exposed) = key("--key-file", &path).unwrap();
            assert_eq!(exposed.is_some(), is_exposed, "{mode:o}");
            if let Some(exposed) = exposed {
                assert!(exposed.to_string().contains(&format!("(mode {mode:04o}); chmod 600")));
            }
        }
    }
}
