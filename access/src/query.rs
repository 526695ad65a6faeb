// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credentials in the query of an address, and their way into the addresses that a playlist lists.
//!
//! A player requests the addresses of a playlist as they are written: the query of the playlist's
//! own address is not part of a relative address in it (RFC 3986 §5.2.2). So the credentials are
//! appended to each. They are not verified before, so their length is bounded: a playlist has
//! thousands of addresses.
//!
//! Sources: RFC 3986 §3.4, RFC 6750 §2.3.
//! Does not verify anything; does not parse playlists.

use std::borrow::Cow;

/// Parameters that are credentials.
pub(crate) const NAMES: [&str; 6] =
    ["access_token", "expires", "key", "prefix", "address", "signature"];

/// Returns the value of a parameter, not decoded; `None` where it occurs twice or not at all.
pub(crate) fn value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let mut found = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, first) = found.find(|(key, _)| *key == name)?;
    found.all(|(key, _)| key != name).then_some(first)
}

/// Returns the credentials of a query as it was sent; `None` with neither a token nor a signature,
/// and where they are longer than those of an issuer: then a player has to send credentials itself.
///
/// The text goes into playlists, so it holds nothing but unreserved characters and escapes.
pub fn carried(query: &str) -> Option<String> {
    let has = |name: &str| value(query, name).is_some_and(|value| !value.is_empty());
    if !has("access_token") && !has("signature") {
        return None;
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%+:=/".contains(&byte);
    let is_credential = |pair: &&str| {
        let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
        NAMES.contains(&name) && pair.bytes().all(is_plain)
    };
    let pairs: Vec<&str> = query.split('&').filter(is_credential).collect();
    let text = pairs.join("&");
    (!text.is_empty() && text.len() <= CARRIED_BYTES_MAX).then_some(text)
}

/// Returns a query without the token and the signature; [`carried`] returns `None` for the result.
pub fn without_credentials(query: &str) -> String {
    let is_other = |pair: &&str| {
        let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
        name != "access_token" && name != "signature"
    };
    query.split('&').filter(is_other).collect::<Vec<_>>().join("&")
}

/// Returns an address with these parameters appended.
pub fn with_query<'a>(address: &'a str, query: &str) -> Cow<'a, str> {
    let separator = if address.contains('?') { '&' } else { '?' };
    match address.split_once('#') {
        Some((before, fragment)) => format!("{before}{separator}{query}#{fragment}").into(),
        None => format!("{address}{separator}{query}").into(),
    }
}

/// A token that a key of 4096 bits signs has 700 characters of signature; the rest is for a list of
/// paths, for which 2048 would be little.
const CARRIED_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_alone_are_carried() {
        let query = "_HLS_msn=3&expires=12&key=a&signature=x-_y&es";
        assert_eq!(carried(query).as_deref(), Some("expires=12&key=a&signature=x-_y"));
        assert_eq!(carried("access_token=a.b-c").as_deref(), Some("access_token=a.b-c"));
        for none in ["", "key=a", "expires=12", "signature=", "limit=3"] {
            assert_eq!(carried(none), None, "{none}");
        }
        let forged = "access_token=a\"b&signature=x&prefix=%0a#EXT";
        assert_eq!(carried(forged).as_deref(), Some("signature=x"));
        assert_eq!(with_query("a.m4s", "s=1"), "a.m4s?s=1");
        assert_eq!(with_query("a.jpg?x#xywh=1", "s=1"), "a.jpg?x&s=1#xywh=1");
    }

    #[test]
    fn long_credentials_are_not_carried() {
        let token = |bytes: usize| format!("access_token={}", "a".repeat(bytes - 13));
        assert!(carried(&token(CARRIED_BYTES_MAX)).is_some());
        assert_eq!(carried(&token(CARRIED_BYTES_MAX + 1)), None);
        let padding = "&key=".repeat(CARRIED_BYTES_MAX / 5);
        assert_eq!(carried(&format!("signature=x{padding}")), None, "as a whole");
    }

    #[test]
    fn query_without_credentials_is_carried_no_more() {
        let query = "_HLS_msn=3&access_token=a&signature=x&v=2&signature";
        assert_eq!(without_credentials(query), "_HLS_msn=3&v=2");
        assert_eq!(carried(&without_credentials(query)), None);
    }

    #[test]
    fn parameter_that_stands_twice_is_none() {
        assert_eq!(value("a=1&b=2", "b"), Some("2"));
        assert_eq!(value("a=1&a=2", "a"), None);
        assert_eq!(value("xa=1", "a"), None);
    }
}
