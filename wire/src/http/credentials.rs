// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the credentials of a client: the Authorization field, and a bearer token in it or in the
//! query.
//!
//! Sources: RFC 9110 §11.6.2 (Authorization), RFC 6750 §2.1 (Bearer), §2.3 (`access_token`).
//! Does not check the token.

/// The value of an Authorization field. It is a secret and shown by nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(Vec<u8>);

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    pub(crate) fn new(value: &[u8]) -> Self {
        Self(value.to_vec())
    }

    /// The field is repeated: neither value can be trusted.
    pub(super) fn spoil(&mut self) {
        self.0.clear();
    }

    /// Value of the field; empty if it was repeated.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The token, if the scheme is Bearer.
    pub fn bearer(&self) -> Option<&[u8]> {
        let (scheme, token) = self.0.split_at_checked(SCHEME.len())?;
        let is_bearer = scheme.eq_ignore_ascii_case(SCHEME);
        is_bearer.then_some(token.trim_ascii()).filter(|token| !token.is_empty())
    }
}

/// The token in a query; the first if there are several. It is not unescaped: tokens of RFC 6750
/// need none.
pub fn query_token(query: &str) -> Option<&[u8]> {
    query.split('&').find_map(|pair| pair.strip_prefix(PARAMETER)).map(str::as_bytes)
}

/// Text of a quoted string without its escapes (RFC 9110 §5.6.4).
pub fn unquoted(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut letters = raw.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => text.extend(letters.next()),
            _ => text.push(letter),
        }
    }
    text
}

const SCHEME: &[u8] = b"Bearer ";
const PARAMETER: &str = "access_token=";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_tokens_are_found_and_nothing_else() {
        let bearer = |value: &str| Credentials::new(value.as_bytes()).bearer().map(<[u8]>::to_vec);
        assert_eq!(bearer("Bearer abc~/+="), Some(b"abc~/+=".to_vec()));
        assert_eq!(bearer("bEARER  abc "), Some(b"abc".to_vec()));
        for other in ["", "Bearer", "Bearer ", "Basic abc", "Bearerabc"] {
            assert_eq!(bearer(other), None, "{other}");
        }
        assert_eq!(format!("{:?}", Credentials::new(b"Bearer abc")), "Credentials");
    }

    #[test]
    fn escapes_of_quoted_strings_are_removed() {
        for (raw, text) in [("a", "a"), (r#"a\"b\\ü"#, "a\"b\\ü"), (r"\\\", "\\"), ("", "")] {
            assert_eq!(unquoted(raw), text, "{raw}");
        }
    }

    #[test]
    fn tokens_stand_in_queries() {
        assert_eq!(query_token("a=b&access_token=xyz&access_token=w"), Some(&b"xyz"[..]));
        assert_eq!(query_token("xaccess_token=xyz"), None);
        assert_eq!(query_token(""), None);
    }
}
