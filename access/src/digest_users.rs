// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users of an htdigest file, whose lines hold H(user:realm:password).
//!
//! Such a hash is equivalent to the password for HTTP Digest and RTSP Digest, and is fast to guess:
//! only the server may be able to read the file.
//!
//! Sources: RFC 7616 §3.4.2 (A1), htdigest(1).
//! Does not answer challenges (`digest` does).

use std::collections::HashMap;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use md5::{Digest as _, Md5};

use crate::error::{Error, lines, text_of};
use crate::passwords::check_user;

/// Hash function of Digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DigestHash {
    Sha256,
    Md5,
}

impl DigestHash {
    /// Name in challenges.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DigestHash::Sha256 => "SHA-256",
            DigestHash::Md5 => "MD5",
        }
    }

    /// Hash in hexadecimal digits.
    pub(crate) fn hex(self, text: &[u8]) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            DigestHash::Sha256 => hex(digest(&SHA256, text).as_ref()),
            DigestHash::Md5 => hex(&Md5::digest(text)),
        }
    }
}

/// Users by hash function, with their H(A1).
#[derive(Default)]
pub(crate) struct DigestUsers {
    hashes: HashMap<(DigestHash, String), String>,
}

impl DigestUsers {
    /// Reads the lines of this realm.
    pub(crate) fn read(path: &Path, realm: &str, allows_md5: bool) -> Result<DigestUsers, Error> {
        let make = format!("make it: pagewire passwd --digest {} NAME", path.display());
        let text = text_of(DIGEST_USERS, path, &make)?;
        let mut hashes = HashMap::new();
        for (line, entry) in lines(&text) {
            let refuse =
                |found: &str, cure: &str| Error::line(DIGEST_USERS, (path, line), found, cure);
            let fields: Vec<&str> = entry.split(':').collect();
            let &[user, of, hash] = &fields[..] else {
                return Err(refuse("no USER:REALM:HASH", &make));
            };
            if of != realm {
                let cure = format!("write --realm {of:?}, or make the line anew for this realm");
                return Err(refuse(&format!("{user}: realm {of:?}, not {realm:?}"), &cure));
            }
            let is_hex = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            let kind = match hash.len() {
                64 if is_hex => DigestHash::Sha256,
                32 if is_hex && allows_md5 => DigestHash::Md5,
                32 if is_hex => {
                    let cure = "write --digest-md5 for players that know no other, or make the \
                        line anew: pagewire passwd --digest";
                    return Err(refuse(&format!("{user}: a hash of MD5"), cure));
                }
                _ => return Err(refuse(&format!("{user}: no hash of SHA-256 or MD5"), &make)),
            };
            let hash = hash.to_ascii_lowercase();
            if hashes.insert((kind, user.to_owned()), hash).is_some() {
                return Err(refuse(&format!("{user} stands twice"), "leave one out"));
            }
        }
        if hashes.is_empty() {
            let found = format!("{}: no user", path.display());
            return Err(Error::option(DIGEST_USERS, found, make));
        }
        Ok(DigestUsers { hashes })
    }

    /// Hash functions that some user has, the strongest first.
    pub(crate) fn kinds(&self) -> Vec<DigestHash> {
        let kinds = [DigestHash::Sha256, DigestHash::Md5];
        kinds
            .into_iter()
            .filter(|kind| self.hashes.keys().any(|(found, _)| found == kind))
            .collect()
    }

    /// Returns the stored hash of a user, of the strongest kind.
    pub(crate) fn any_hash(&self, user: &str) -> Option<&str> {
        [DigestHash::Sha256, DigestHash::Md5].into_iter().find_map(|kind| self.hash(kind, user))
    }

    /// Returns H(A1) of a user.
    pub(crate) fn hash(&self, kind: DigestHash, user: &str) -> Option<&str> {
        self.hashes.get(&(kind, user.to_owned())).map(String::as_str)
    }
}

/// Returns the line of an htdigest file for a user: with SHA-256, or with MD5 for players that
/// support nothing else.
///
/// # Errors
/// A name or a realm that a line cannot hold.
pub fn htdigest_line(
    user: &str,
    realm: &str,
    password: &[u8],
    with_md5: bool,
) -> Result<String, Error> {
    check_user(user)?;
    check_realm(realm)?;
    let kind = if with_md5 { DigestHash::Md5 } else { DigestHash::Sha256 };
    let mut text = format!("{user}:{realm}:").into_bytes();
    text.extend_from_slice(password);
    Ok(format!("{user}:{realm}:{}", kind.hex(&text)))
}

/// Checks a realm: it stands in quotes in challenges, and between colons in files.
pub(crate) fn check_realm(realm: &str) -> Result<(), Error> {
    let is_realm = !realm.is_empty()
        && realm.len() <= 128
        && realm.chars().all(|letter| !letter.is_control() && !":\"\\".contains(letter));
    if is_realm {
        return Ok(());
    }
    let cure = "write 1 to 128 characters without : \" and \\";
    Err(Error::option("--realm", format!("{realm:?}"), cure))
}

const DIGEST_USERS: &str = "--digest-users";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passwords::tests::file;

    #[test]
    fn lines_are_those_of_htdigest() {
        // RFC 2617 §3.5: Mufasa, "Circle Of Life".
        let line = htdigest_line("Mufasa", "testrealm@host.com", b"Circle Of Life", true).unwrap();
        assert_eq!(line, "Mufasa:testrealm@host.com:939e7578ed9e3c518a452acee763bce9");
        let long = htdigest_line("Mufasa", "r", b"x", false).unwrap();
        let (_folder, path) = file(&format!("{long}\n"));
        let users = DigestUsers::read(&path, "r", false).unwrap();
        assert_eq!(users.kinds(), [DigestHash::Sha256]);
        assert!(users.hash(DigestHash::Sha256, "Mufasa").is_some());
        assert!(users.hash(DigestHash::Md5, "Mufasa").is_none());
        let refused = DigestUsers::read(&path, "other", false).err().unwrap().to_string();
        assert!(refused.contains(":1: ") && refused.contains("--realm"), "{refused}");
        let (_folder, path) = file(&format!("{line}\n"));
        let refused = DigestUsers::read(&path, "testrealm@host.com", false).err().unwrap();
        assert!(refused.to_string().contains("--digest-md5"), "{refused}");
        assert!(DigestUsers::read(&path, "testrealm@host.com", true).is_ok());
    }
}
