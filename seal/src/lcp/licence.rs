// SPDX-License-Identifier: MIT OR Apache-2.0
//! The licence document: issues it for a book, reads it and opens it.
//!
//! Sources: Readium LCP 1.0.4 §3 (members), §4 (user key, key check), §5 (signature); RFC 9562 §5.4
//! (random UUIDs). Does not read the book: a licence contains only its key and links.

use openssl::base64::{decode_block, encode_block};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use simd::cbc::Cbc;
use zeroize::Zeroizing;

use super::canonical::canonical;
use super::signature::{self, RootCertificates, Signer};
use super::{UserKey, date, deciphered, enciphered};
use crate::epub::{AES_256_CBC, BookFault};
use crate::error::Error;
use crate::key::random;

const BASIC_PROFILE: &str = "http://readium.org/lcp/basic-profile";
const SHA_256: &str = "http://www.w3.org/2001/04/xmlenc#sha256";
const LICENCE_BYTES_MAX: usize = 1 << 20;

/// Terms of every licence of a catalogue.
#[derive(Debug)]
pub struct Terms {
    /// URI of the issuer.
    pub provider: String,
    /// Hint that reminds readers of their passphrase.
    pub hint: String,
    /// URL of a page about the hint.
    pub hint_url: String,
    /// URL of the sealed book; `{name}` in it is replaced by the file's name.
    pub publication_url: String,
    /// Rights of the readers; `None` sets no limits.
    pub rights: Option<Rights>,
    /// Reader that the licence is for.
    pub user: Option<User>,
    /// Provider's key, which signs the licences.
    pub signer: Signer,
    /// Kernel that enciphers the keys.
    pub cbc: Cbc,
}

/// Limits on the use of a book; `None` means unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Number of pages that may be printed.
    pub print_pages: Option<u64>,
    /// Number of characters that may be copied.
    pub copy_characters: Option<u64>,
    /// Beginning of the right to read, in ISO 8601.
    pub start: Option<String>,
    /// End of the right to read, in ISO 8601.
    pub end: Option<String>,
}

/// A reader in the provider's records. Address and name are enciphered under the user key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Identifier at this provider.
    pub id: Option<String>,
    /// E-mail address.
    pub email: Option<String>,
    /// Name.
    pub name: Option<String>,
}

impl Terms {
    /// Checks the caller's terms before any book is touched. `option` returns the name of the
    /// option for a field of this type.
    ///
    /// # Errors
    /// [`Error::Option`]: not a URI, not a date, a control character (implementations differ on its
    /// canonical form).
    pub fn check(&self, option: impl Fn(&str) -> &'static str) -> Result<(), Error> {
        let wrong = |field: &str, found: &str, what: &str, cure: &str| Error::Option {
            option: option(field),
            found: format!("{found:?}: {what}"),
            cure: cure.into(),
        };
        for (field, uri) in [
            ("provider", &self.provider),
            ("hint_url", &self.hint_url),
            ("publication_url", &self.publication_url),
        ] {
            let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
            let is_scheme = scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
                && scheme
                    .chars()
                    .all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter));
            if !is_scheme || uri.contains(char::is_whitespace) {
                return Err(wrong(field, uri, "no URI", "write one such as https://example.org/"));
            }
        }
        let rights = self.rights.clone().unwrap_or_default();
        for (field, date) in [("start", &rights.start), ("end", &rights.end)] {
            if let Some(date) = date.as_ref().filter(|date| date::read(date).is_none()) {
                return Err(wrong(
                    field,
                    date,
                    "no date",
                    "write one such as 2026-11-21T10:00:00Z",
                ));
            }
        }
        let user = self.user.clone().unwrap_or_default();
        let texts = [
            ("provider", Some(&self.provider)),
            ("hint", Some(&self.hint)),
            ("hint_url", Some(&self.hint_url)),
            ("publication_url", Some(&self.publication_url)),
            ("user_id", user.id.as_ref()),
        ];
        for (field, text) in texts {
            if let Some(text) = text.filter(|text| text.contains(char::is_control)) {
                return Err(wrong(field, text, "a control character", "leave it out"));
            }
        }
        Ok(())
    }

    /// Issues a signed licence, in canonical form, for the book whose file is `name`.
    pub(crate) fn issue(
        &self,
        name: &str,
        content_key: &[u8; 32],
        user_key: &UserKey,
    ) -> Result<Vec<u8>, Error> {
        let key = user_key.key();
        let sealed = |plain: &[u8]| -> Result<String, Error> {
            Ok(encode_block(&enciphered(&self.cbc, &key, plain)?))
        };
        let id = uuid()?;
        let publication = self
            .publication_url
            .replace("{name}", &utf8_percent_encode(name, NON_ALPHANUMERIC).to_string());
        let mut licence = json!({
            "id": id,
            "issued": date::write(date::now()),
            "provider": self.provider,
            "encryption": {
                "profile": BASIC_PROFILE,
                "content_key": {
                    "algorithm": AES_256_CBC,
                    "encrypted_value": sealed(content_key)?,
                },
                "user_key": {
                    "algorithm": SHA_256,
                    "text_hint": self.hint,
                    "key_check": sealed(id.as_bytes())?,
                },
            },
            "links": [
                { "rel": "hint", "href": self.hint_url, "type": "text/html" },
                { "rel": "publication", "href": publication, "type": "application/epub+zip" },
            ],
        });
        if let Some(rights) = &self.rights {
            licence["rights"] = rights.object();
        }
        if let Some(user) = &self.user {
            licence["user"] = user.object(sealed)?;
        }
        licence["signature"] = self.signer.sign(&licence)?;
        Ok(canonical(&licence).into_bytes())
    }
}

impl Rights {
    fn object(&self) -> Value {
        let mut members = Map::new();
        let mut add = |name: &str, value: Option<Value>| {
            members.extend(value.map(|value| (name.to_owned(), value)));
        };
        add("print", self.print_pages.map(Value::from));
        add("copy", self.copy_characters.map(Value::from));
        add("start", self.start.clone().map(Value::from));
        add("end", self.end.clone().map(Value::from));
        Value::Object(members)
    }
}

impl User {
    fn object(&self, sealed: impl Fn(&[u8]) -> Result<String, Error>) -> Result<Value, Error> {
        let mut members = Map::new();
        members.extend(self.id.clone().map(|id| ("id".to_owned(), Value::from(id))));
        let mut names = Vec::new();
        for (name, value) in [("email", &self.email), ("name", &self.name)] {
            if let Some(value) = value {
                members.insert(name.to_owned(), Value::from(sealed(value.as_bytes())?));
                names.push(name);
            }
        }
        if !names.is_empty() {
            members.insert("encrypted".to_owned(), Value::from(names));
        }
        Ok(Value::Object(members))
    }
}

/// A licence that was read and is not verified yet.
#[derive(Debug)]
pub struct Licence {
    document: Value,
    /// Identifier of the licence.
    pub id: String,
    /// Hint that reminds the reader of the passphrase.
    pub hint: String,
    /// IV and ciphertext of the content key.
    pub(crate) content_key: Vec<u8>,
    /// IV and ciphertext of the identifier.
    pub(crate) key_check: Vec<u8>,
}

impl Licence {
    /// Reads a licence of the basic profile.
    ///
    /// # Errors
    /// [`BookFault::Foreign`]: another profile; [`BookFault::Licence`]: not a licence.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self, BookFault> {
        let wrong = |found: &str| BookFault::Licence { found: found.into() };
        if bytes.len() > LICENCE_BYTES_MAX {
            return Err(wrong("over 1 MiB"));
        }
        let document: Value = serde_json::from_slice(bytes).map_err(|_| wrong("no JSON"))?;
        let text = |pointer: &str| -> Result<&str, BookFault> {
            document
                .pointer(pointer)
                .and_then(Value::as_str)
                .ok_or_else(|| wrong(&format!("no text at {pointer}")))
        };
        let decoded = |pointer: &str| -> Result<Vec<u8>, BookFault> {
            decode_block(text(pointer)?).map_err(|_| wrong(&format!("no Base64 at {pointer}")))
        };
        for (pointer, known) in [
            ("/encryption/profile", BASIC_PROFILE),
            ("/encryption/content_key/algorithm", AES_256_CBC),
            ("/encryption/user_key/algorithm", SHA_256),
        ] {
            let found = text(pointer)?;
            if found != known {
                let found = format!("{pointer} is {found:?}");
                return Err(BookFault::Foreign { name: name.into(), found });
            }
        }
        Ok(Self {
            id: text("/id")?.into(),
            hint: text("/encryption/user_key/text_hint")?.into(),
            content_key: decoded("/encryption/content_key/encrypted_value")?,
            key_check: decoded("/encryption/user_key/key_check")?,
            document,
        })
    }

    /// Verifies the signature; with `roots`, also that one of them signed the certificate.
    ///
    /// # Errors
    /// [`BookFault::Signature`]: changed after it was signed, or not signed by a given root.
    pub fn verify(&self, roots: Option<&RootCertificates>) -> Result<(), BookFault> {
        signature::verify(&self.document, roots).map_err(BookFault::Signature)
    }

    /// Deciphers the key of the publication.
    ///
    /// # Errors
    /// [`BookFault::Passphrase`]: this user key does not open the licence.
    pub(crate) fn open(
        &self,
        user_key: &UserKey,
        cbc: &Cbc,
    ) -> Result<Zeroizing<[u8; 32]>, BookFault> {
        let key = user_key.key();
        let check = deciphered(cbc, &key, &self.key_check);
        if check.is_none_or(|check| check.as_slice() != self.id.as_bytes()) {
            return Err(self.mismatch());
        }
        deciphered(cbc, &key, &self.content_key)
            .and_then(|bytes| bytes.as_slice().try_into().ok())
            .map(Zeroizing::new)
            .ok_or_else(|| BookFault::Licence { found: "no key of 32 bytes inside".into() })
    }

    /// Returns the error for a wrong passphrase.
    pub(crate) fn mismatch(&self) -> BookFault {
        BookFault::Passphrase { hint: self.hint.clone() }
    }
}

/// Returns a random UUID.
fn uuid() -> Result<String, Error> {
    let mut bytes = [0; 16];
    random(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    Ok(text)
}
