// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the Authorization field: Basic, Bearer and Digest.
//!
//! Sources: RFC 9110 §11.4, RFC 7617 §2, RFC 6750 §2.1, RFC 7616 §3.4, RFC 2617 §3.2.2.
//! Does not verify anything.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use wire::http::unquoted;
use zeroize::Zeroizing;

/// Credentials of one request.
pub(crate) enum Authorization<'a> {
    Basic { user: String, password: Zeroizing<Vec<u8>> },
    Bearer(&'a str),
    Digest(DigestFields<'a>),
}

/// Fields of a digest response, unquoted.
#[derive(Default, Debug)]
pub(crate) struct DigestFields<'a> {
    pub(crate) user: String,
    pub(crate) realm: String,
    pub(crate) nonce: &'a str,
    pub(crate) uri: String,
    pub(crate) response: &'a str,
    pub(crate) algorithm: Option<&'a str>,
    pub(crate) qop: Option<&'a str>,
    pub(crate) count: Option<&'a str>,
    pub(crate) client_nonce: Option<String>,
}

/// Parses the value of an Authorization field; `None` for an unknown scheme or a malformed value.
pub(crate) fn parse(value: &[u8]) -> Option<Authorization<'_>> {
    let text = str::from_utf8(value).ok().filter(|text| text.len() <= BYTES_MAX)?.trim();
    let (scheme, rest) = text.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("basic") {
        let decoded = STANDARD.decode(rest).or_else(|_| STANDARD_NO_PAD.decode(rest)).ok()?;
        let decoded = Zeroizing::new(decoded);
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        let user = str::from_utf8(&decoded[..colon]).ok()?.to_owned();
        let password = Zeroizing::new(decoded[colon + 1..].to_vec());
        return Some(Authorization::Basic { user, password });
    }
    if scheme.eq_ignore_ascii_case("bearer") {
        return (!rest.is_empty()).then_some(Authorization::Bearer(rest));
    }
    scheme.eq_ignore_ascii_case("digest").then(|| digest(rest)).flatten().map(Authorization::Digest)
}

/// Parses `name=value` pairs, where values may be quoted. A duplicate name makes the whole field
/// invalid, and so do more than [`FIELDS_MAX`] pairs, since each name is compared with those before
/// it.
fn digest(mut rest: &str) -> Option<DigestFields<'_>> {
    let mut fields = DigestFields::default();
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let (name, behind) = rest.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        let behind = behind.trim_start();
        let (raw, after) = match behind.strip_prefix('"') {
            Some(quoted) => {
                let end = quote_end(quoted)?;
                (&quoted[..end], quoted[end + 1..].trim_start())
            }
            None => {
                let end = behind.find(',').unwrap_or(behind.len());
                (behind[..end].trim(), &behind[end..])
            }
        };
        rest = match after.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if after.is_empty() => "",
            None => return None,
        };
        if seen.contains(&name) || seen.len() == FIELDS_MAX {
            return None;
        }
        match name.as_str() {
            "username" => fields.user = unquoted(raw),
            "realm" => fields.realm = unquoted(raw),
            "nonce" => fields.nonce = raw,
            "uri" => fields.uri = unquoted(raw),
            "response" => fields.response = raw,
            "algorithm" => fields.algorithm = Some(raw),
            "qop" => fields.qop = Some(raw),
            "nc" => fields.count = Some(raw),
            "cnonce" => fields.client_nonce = Some(unquoted(raw)),
            _ => {}
        }
        seen.push(name);
    }
    let is_whole = [fields.user.as_str(), fields.nonce, &fields.uri, fields.response];
    is_whole.iter().all(|field| !field.is_empty()).then_some(fields)
}

/// Index of the quote that ends a quoted string.
fn quote_end(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

/// Longer values are no credentials of a player.
const BYTES_MAX: usize = 8 << 10;
/// RFC 7616 §3.4 has eleven.
const FIELDS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_told_apart() {
        let Some(Authorization::Basic { user, password }) =
            parse(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
        else {
            panic!("RFC 7617 §2");
        };
        assert_eq!((user.as_str(), &password[..]), ("Aladdin", &b"open sesame"[..]));
        assert!(matches!(parse(b"bEARER abc"), Some(Authorization::Bearer("abc"))));
        for wrong in [&b""[..], b"Basic", b"Basic !!", b"Basic QQ==", b"Bearer ", b"NTLM abc"] {
            assert!(parse(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn digest_fields_are_unquoted_and_stand_once() {
        let text = br#"Digest username="a\"b", realm="x, y" ,nonce="n", uri="/a?b=c",
            algorithm=MD5, nc=00000001, cnonce="c", qop=auth, response="r""#;
        let flat: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'\n').collect();
        let Some(Authorization::Digest(fields)) = parse(&flat) else { panic!("it is read") };
        assert_eq!((fields.user.as_str(), fields.realm.as_str()), ("a\"b", "x, y"));
        assert_eq!((fields.uri.as_str(), fields.count), ("/a?b=c", Some("00000001")));
        for wrong in [
            r#"Digest username="a", username="b", nonce="n", uri="/", response="r""#,
            r#"Digest username="a", nonce="n", uri="/""#,
            r#"Digest username="a" nonce="n", uri="/", response="r""#,
            r#"Digest username="a"#,
        ] {
            assert!(parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn digest_of_too_many_fields_is_refused() {
        let value = |further: usize| {
            let known = "Digest username=\"a\", nonce=\"n\", uri=\"/\", response=\"r\"";
            let further: String = (0..further).map(|number| format!(", x{number}=1")).collect();
            known.to_owned() + &further
        };
        assert!(parse(value(FIELDS_MAX - 4).as_bytes()).is_some());
        assert!(parse(value(FIELDS_MAX - 3).as_bytes()).is_none());
    }
}
