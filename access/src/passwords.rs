// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users of an htpasswd file, by Argon2id and bcrypt.
//!
//! Verifying takes some 20 ms of a core on purpose; the caller bounds how often. A name that is not
//! in the file takes as long as one that is.
//!
//! Sources: RFC 9106 (Argon2), OWASP's cheat sheet of password storage (19 MiB, two passes), the
//! PHC string format, htpasswd(1).
//! Refuses other hashes of htpasswd (MD5, SHA-1, crypt, plain text): they are guessed too fast.

use std::collections::HashMap;
use std::path::Path;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher, PasswordVerifier};

use crate::error::{Error, lines, text_of};

/// Users and the hashes of their passwords.
#[derive(Default)]
pub(crate) struct Passwords {
    hashes: HashMap<String, String>,
}

impl Passwords {
    pub(crate) fn read(path: &Path) -> Result<Passwords, Error> {
        let make = format!("make it: pagewire passwd {} NAME", path.display());
        let text = text_of(USERS, path, &make)?;
        let mut hashes = HashMap::new();
        for (line, entry) in lines(&text) {
            let refuse = |found: &str, cure: &str| Error::line(USERS, (path, line), found, cure);
            let Some((user, hash)) = entry.split_once(':').filter(|(user, _)| !user.is_empty())
            else {
                return Err(refuse("no USER:HASH", &make));
            };
            check_hash(hash).map_err(|found| {
                let cure =
                    format!("write the line anew: pagewire passwd {} {user}", path.display());
                refuse(&format!("{user}: {found}"), &cure)
            })?;
            if hashes.insert(user.to_owned(), hash.to_owned()).is_some() {
                return Err(refuse(&format!("{user} stands twice"), "leave one out"));
            }
        }
        if hashes.is_empty() {
            let found = format!("{}: no user", path.display());
            return Err(Error::option(USERS, found, make));
        }
        Ok(Passwords { hashes })
    }

    /// Returns the stored hash of a user.
    pub(crate) fn hash(&self, user: &str) -> Option<&str> {
        self.hashes.get(user).map(String::as_str)
    }
}

/// Checks that a hash can be verified at a bounded cost.
fn check_hash(hash: &str) -> Result<(), String> {
    if hash.starts_with("$argon2id$") {
        let parsed = PasswordHash::new(hash).map_err(|error| error.to_string())?;
        let params = argon2::Params::try_from(&parsed).map_err(|error| error.to_string())?;
        let is_bounded = params.m_cost() <= MEMORY_KIB_MAX
            && params.t_cost() <= PASSES_MAX
            && params.p_cost() <= LANES_MAX;
        return match is_bounded && parsed.hash.is_some() {
            true => Ok(()),
            false => Err("argon2id of more than 256 MiB, 16 passes or 16 lanes".to_owned()),
        };
    }
    if is_bcrypt(hash) {
        let parts: bcrypt::HashParts = hash.parse().map_err(|_| "a broken bcrypt hash")?;
        return match parts.get_cost() {
            0..=BCRYPT_COST_MAX => Ok(()),
            cost => Err(format!("bcrypt with cost {cost}, of {BCRYPT_COST_MAX} at most")),
        };
    }
    let kind = match hash {
        "" => "an empty hash",
        _ if hash.starts_with("$apr1$") || hash.starts_with("$1$") => "MD5",
        _ if hash.starts_with("{SHA}") => "SHA-1",
        _ if hash.starts_with("$5$") || hash.starts_with("$6$") => "crypt with SHA-2",
        _ if hash.starts_with("$argon2") => "Argon2 of another kind than argon2id",
        _ => "a hash of crypt, or plain text",
    };
    Err(format!("{kind}, which is not argon2id or bcrypt"))
}

fn is_bcrypt(hash: &str) -> bool {
    ["$2y$", "$2b$", "$2a$"].iter().any(|kind| hash.starts_with(kind))
}

/// Verifies a password; `None` for the hash takes the time of a user that exists. Blocks for tens
/// of milliseconds.
pub(crate) fn is_password(password: &[u8], hash: Option<&str>) -> bool {
    match hash {
        Some(hash) if is_bcrypt(hash) => {
            bcrypt::non_truncating_verify(password, hash).unwrap_or(false)
        }
        Some(hash) => PasswordHash::new(hash)
            .is_ok_and(|parsed| Argon2::default().verify_password(password, &parsed).is_ok()),
        None => {
            let mut made = [0; 32];
            let _ = Argon2::default().hash_password_into(password, &[0; 16], &mut made);
            // Keeps the compiler from removing the computation.
            std::hint::black_box(made);
            false
        }
    }
}

/// Returns the line of an htpasswd file for a user.
///
/// # Errors
/// A name with a colon or a control character; a password that is empty.
pub fn htpasswd_line(user: &str, password: &[u8]) -> Result<String, Error> {
    check_user(user)?;
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        let found = format!("a password of {} bytes", password.len());
        let cure = format!("write 1 to {PASSWORD_BYTES_MAX}");
        return Err(Error::option("passwd", found, cure));
    }
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).expect("the kernel has random bits once it runs");
    let hash = Argon2::default()
        .hash_password_with_salt(password, &salt)
        .expect("the default parameters and a salt of 16 bytes are valid");
    Ok(format!("{user}:{hash}"))
}

/// Checks a user's name.
pub(crate) fn check_user(user: &str) -> Result<(), Error> {
    let is_name = !user.is_empty()
        && user.len() <= 255
        && !user.starts_with('#')
        && user.trim() == user
        && !user.chars().any(|letter| letter == ':' || letter.is_control());
    if is_name {
        return Ok(());
    }
    let cure = "write a name without : and control characters, that does not begin with #";
    Err(Error::option("passwd", format!("user {user:?}"), cure))
}

const USERS: &str = "--users";
const MEMORY_KIB_MAX: u32 = 256 << 10;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;
/// A second of a core.
const BCRYPT_COST_MAX: u32 = 14;
/// Longer ones would only cost memory.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn lines_are_made_and_verified() {
        let line = htpasswd_line("anna", b"correct horse").unwrap();
        // Cost 4, made with htpasswd -nbB -C 4.
        let bcrypt = "ben:".to_owned() + &bcrypt::hash("secret", 4).unwrap();
        let (_folder, path) = file(&format!("# users\n\n{line}\n{bcrypt}\n"));
        let users = Passwords::read(&path).unwrap();
        assert!(is_password(b"correct horse", users.hash("anna")));
        assert!(!is_password(b"correct hors", users.hash("anna")));
        assert!(is_password(b"secret", users.hash("ben")));
        assert!(!is_password(b"Secret", users.hash("ben")));
        assert!(!is_password(&[b'x'; 100], users.hash("ben")), "bcrypt would cut it at 72 bytes");
        assert!(!is_password(b"secret", users.hash("carl")));
    }

    #[test]
    fn weak_and_endless_hashes_are_refused_by_line() {
        for (line, expected) in [
            ("anna:$apr1$abcdefgh$0123456789012345678901", "MD5"),
            ("anna:{SHA}2jmj7l5rSw0yVb/vlWAYkK/YBwk=", "SHA-1"),
            ("anna:rl0uE3V0pmkPc", "crypt, or plain"),
            ("anna:$6$salt$hash", "SHA-2"),
            ("anna:$argon2i$v=19$m=16,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo", "another kind"),
            ("anna:$argon2id$v=19$m=4194304,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo", "256 MiB"),
            ("anna:$2y$31$abcdefghijklmnopqrstuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu", "bcrypt"),
            ("anna:", "empty"),
            ("anna", "no USER:HASH"),
            (":x", "no USER:HASH"),
        ] {
            let (_folder, path) = file(&format!("# a comment\n{line}\n"));
            let error = Passwords::read(&path).err().expect(line).to_string();
            assert!(error.contains(expected) && error.contains(":2: "), "{error}");
            assert!(error.contains("pagewire passwd") && !error.contains("2jmj7"), "{error}");
        }
        assert!(htpasswd_line("a:b", b"x").is_err() && htpasswd_line("a", b"").is_err());
    }
}
