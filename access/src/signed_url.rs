// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses that open one path, or all below one, until a time.
//!
//! | parameter | holds |
//! |---|---|
//! | `expires` | seconds since 1970 |
//! | `key` | name of the key in the file of keys |
//! | `prefix` | path below which all is open; without it the path alone |
//! | `address` | address of the only client that may use it |
//! | `signature` | HMAC-SHA-256 of the lines below, in base64url without padding |
//!
//! Signed are the lines `pagewire-url-1`, key, expires, address (or empty), and `path:` or
//! `prefix:` with the path in its shortest spelling. Several keys may be in use, so that one can be
//! replaced: the first of the file signs. Costs a MAC for each request: 1.4 us (tests/cost.rs).
//!
//! Sources: RFC 2104, RFC 4868 (HMAC-SHA-256), RFC 4648 §5.
//! Does not revoke one address: remove its key from the file.

use std::net::IpAddr;
use std::path::Path;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;
use wire::http::{decoded_path, escape_path};

use crate::error::{Error, lines, text_of};
use crate::paths::{canonical, is_below};
use crate::query::value;

/// Keys that sign addresses.
pub struct UrlKeys(Vec<(String, hmac::Key)>);

/// Hides the keys.
impl std::fmt::Debug for UrlKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

/// Terms of a signed address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedUrl {
    /// Path below the server, decoded.
    pub path: String,
    /// True when all below the path is open, too.
    pub is_prefix: bool,
    /// Seconds since 1970.
    pub expires_s: u64,
    /// The only client that may use it.
    pub address: Option<IpAddr>,
}

/// Result of verifying a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignatureState {
    /// The query has no signature.
    Missing,
    Right,
    Wrong(&'static str),
}

impl UrlKeys {
    /// Reads a file of keys: a name and a secret of 32 characters or more on each line.
    ///
    /// # Errors
    /// The file cannot be read, or has a line that is no key.
    pub fn read(option: &'static str, path: &Path) -> Result<UrlKeys, Error> {
        let make = format!(
            "make it, a name and a secret a line: echo \"1 $(openssl rand -hex 32)\" > {}",
            path.display()
        );
        let text = text_of(option, path, &make)?;
        let mut keys: Vec<(String, hmac::Key)> = Vec::new();
        for (line, entry) in lines(&text) {
            let refuse = |found: &str, cure: &str| Error::line(option, (path, line), found, cure);
            let fields: Vec<&str> = entry.split_whitespace().collect();
            let &[name, secret] = &fields[..] else {
                return Err(refuse("no NAME SECRET", &make));
            };
            let is_name = name.len() <= 32
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            if !is_name {
                return Err(refuse("name", "write letters, digits and -_. , 32 at most"));
            }
            if secret.len() < SECRET_BYTES_MIN {
                let found = format!("{name}: a secret of {} characters", secret.len());
                return Err(refuse(&found, "write 32 or more: openssl rand -hex 32"));
            }
            if keys.iter().any(|(known, _)| known == name) {
                return Err(refuse(&format!("{name} stands twice"), "leave one out"));
            }
            keys.push((name.to_owned(), hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())));
        }
        match keys.is_empty() {
            true => Err(Error::option(option, format!("{}: no key", path.display()), make)),
            false => Ok(UrlKeys(keys)),
        }
    }

    /// Returns the query of a signed address; `None` for a path with `..`.
    pub fn sign(&self, url: &SignedUrl) -> Option<String> {
        let path = canonical(&url.path)?;
        let (name, key) = self.0.first()?;
        let address = url.address.map(|address| address.to_canonical().to_string());
        let address = address.as_deref();
        let expires = url.expires_s.to_string();
        let tag = sign(key, (name, &expires, address.unwrap_or_default()), (&path, url.is_prefix));
        let mut query = format!("expires={expires}&key={name}");
        if url.is_prefix {
            query.push_str(&format!("&prefix=/{}", escape_path(&path)));
        }
        if let Some(address) = address {
            query.push_str(&format!("&address={address}"));
        }
        query.push_str(&format!("&signature={}", URL_SAFE_NO_PAD.encode(tag)));
        Some(query)
    }

    /// Returns the state of a query for a request; `path` is in its shortest spelling.
    pub(crate) fn state(
        &self,
        query: &str,
        (path, address): (&str, IpAddr),
        now_s: u64,
    ) -> SignatureState {
        if !query.contains("signature=") {
            return SignatureState::Missing;
        }
        self.checked(query, (path, address), now_s)
            .map_or_else(SignatureState::Wrong, |()| SignatureState::Right)
    }

    fn checked(
        &self,
        query: &str,
        (path, address): (&str, IpAddr),
        now_s: u64,
    ) -> Result<(), &'static str> {
        let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        // A parameter that occurs twice has no value.
        let optional = |name| match value(query, name) {
            None if has(name) => Err(MALFORMED),
            found => Ok(found),
        };
        let needed = |name| optional(name)?.ok_or(MALFORMED);
        let (name, expires) = (needed("key")?, needed("expires")?);
        let given = URL_SAFE_NO_PAD.decode(needed("signature")?).map_err(|_| MALFORMED)?;
        let only = optional("address")?;
        let prefix = optional("prefix")?;
        let decoded = prefix.map(decoded_path);
        let signed = match &decoded {
            Some(prefix) => canonical(prefix).ok_or(MALFORMED)?,
            None => path.into(),
        };
        let key = self.0.iter().find(|(known, _)| known == name);
        let (_, key) = key.ok_or("the signature is of an unknown key")?;
        let only = only.map(|only| percent_decode_str(only).decode_utf8_lossy());
        let only = only.as_deref().unwrap_or_default();
        let message = message((name, expires, only), (&signed, decoded.is_some()));
        hmac::verify(key, message.as_bytes(), &given)
            .map_err(|_| "the signature is not of this address")?;
        // The signature is valid, so the following terms are the signer's.
        let expires: u64 = expires.parse().map_err(|_| MALFORMED)?;
        if expires <= now_s {
            return Err("the signed address has expired");
        }
        let is_other = |only: &str| only.parse().ok() != Some(address.to_canonical());
        if !only.is_empty() && is_other(only) {
            return Err("the signed address is for another client");
        }
        match is_below(path, &signed) {
            true => Ok(()),
            false => Err("the signed address is for another path"),
        }
    }
}

fn message(
    (name, expires, address): (&str, &str, &str),
    (path, is_prefix): (&str, bool),
) -> String {
    let kind = if is_prefix { "prefix" } else { "path" };
    format!("pagewire-url-1\n{name}\n{expires}\n{address}\n{kind}:{path}")
}

fn sign(key: &hmac::Key, terms: (&str, &str, &str), path: (&str, bool)) -> hmac::Tag {
    hmac::sign(key, message(terms, path).as_bytes())
}

const MALFORMED: &str = "the signed address is incomplete";
/// 128 bits in hexadecimal digits.
const SECRET_BYTES_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passwords::tests::file;

    const ONE: &str = "one 0123456789abcdef0123456789abcdef";
    const TWO: &str = "two fedcba9876543210fedcba9876543210";

    fn keys(text: &str) -> UrlKeys {
        let (_folder, path) = file(text);
        UrlKeys::read("--url-key-file", &path).unwrap()
    }

    fn url(path: &str, is_prefix: bool, address: Option<&str>) -> SignedUrl {
        let address = address.map(|address| address.parse().unwrap());
        SignedUrl { path: path.into(), is_prefix, expires_s: 1000, address }
    }

    fn is_right(keys: &UrlKeys, query: &str, path: &str, now_s: u64) -> bool {
        let client = "192.0.2.1".parse().unwrap();
        keys.state(query, (path, client), now_s) == SignatureState::Right
    }

    #[test]
    fn signed_addresses_open_their_path_until_they_expire() {
        let keys = keys(ONE);
        let query = keys.sign(&url("/a b/./c.mp4", false, None)).unwrap();
        assert!(is_right(&keys, &query, "a b/c.mp4", 999));
        assert!(is_right(&keys, &format!("x=1&{query}&es"), "a b/c.mp4", 999));
        assert!(!is_right(&keys, &query, "a b/c.mp4", 1000), "expired");
        assert!(!is_right(&keys, &query, "a b/c.mp4/master.m3u8", 999), "no prefix");
        assert!(!is_right(&keys, &query, "a b", 999));
        let below = keys.sign(&url("/a b", true, None)).unwrap();
        assert!(below.contains("prefix=/a%20b"), "{below}");
        assert!(is_right(&keys, &below, "a b/c.mp4/~1/2.m4s", 999));
        assert!(is_right(&keys, &below, "a b", 999));
        assert!(!is_right(&keys, &below, "a bc", 999) && !is_right(&keys, &below, "a", 999));
        assert!(keys.sign(&url("/../x", true, None)).is_none());
        assert_eq!(format!("{keys:?}"), "1 keys");
    }

    #[test]
    fn altered_addresses_are_refused() {
        let keys = keys(ONE);
        let query = keys.sign(&url("/films", true, Some("192.0.2.1"))).unwrap();
        assert!(is_right(&keys, &query, "films/a.ts", 999), "{query}");
        let other = "192.0.2.2".parse().unwrap();
        assert_ne!(keys.state(&query, ("films/a.ts", other), 999), SignatureState::Right);
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(keys.state(&query, ("films/a.ts", mapped), 999), SignatureState::Right);
        for altered in [
            query.replace("expires=1000", "expires=9999"),
            query.replace("prefix=/films", "prefix=/"),
            query.replace("prefix=/films", "prefix="),
            query.replace("&prefix=/films", ""),
            query.replace("&address=192.0.2.1", ""),
            query.replace("&address=192.0.2.1", "&address=192.0.2.2"),
            query.replace("key=one", "key=two"),
            query.replace("&signature=", "&signature=A"),
            query.split("&signature=").next().unwrap().to_owned() + "&signature=",
            format!("expires=9999&{query}"),
            format!("{query}&prefix=/"),
            format!("{query}&expires=9999"),
        ] {
            assert!(!is_right(&keys, &altered, "films/a.ts", 999), "{altered}");
        }
        let none = keys.state("expires=1000", ("films", other), 0);
        assert_eq!(none, SignatureState::Missing);
    }

    #[test]
    fn keys_are_replaced_one_by_one() {
        let (old, both) = (keys(ONE), keys(&format!("# new first\n{TWO}\n{ONE}\n")));
        let query = old.sign(&url("/a", false, None)).unwrap();
        assert!(is_right(&both, &query, "a", 0));
        let query = both.sign(&url("/a", false, None)).unwrap();
        assert!(query.contains("key=two") && !is_right(&old, &query, "a", 0));
        for (text, expected) in [
            ("one short", "5 characters"),
            ("one", "NAME SECRET"),
            ("a=b 0123456789abcdef0123456789abcdef", "name"),
            ("", "no key"),
            (&format!("{ONE}\n{ONE}") as &str, "twice"),
        ] {
            let (_folder, path) = file(text);
            let error = UrlKeys::read("--url-key-file", &path).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("0123456"), "{error}");
        }
    }
}
