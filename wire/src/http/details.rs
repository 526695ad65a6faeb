// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects the fields of a request that only some answers need (origin fields of browsers,
//! cookies, and fields shown in logs), and its content.
//!
//! A reader stores them on request ([`super::RequestReader::with_details`]): the allocation and the
//! strings cost about 100 ns a request.
//!
//! Sources: RFC 9110 §10.1.3 (Referer), §10.1.5 (User-Agent), §12.5.1 (Accept); RFC 6265 §5.4
//! (Cookie); RFC 6454 §7 (Origin); W3C Fetch Metadata (Sec-Fetch-Site).
//! Does not judge them.

/// Further fields of a request. Bytes that are not UTF-8 became U+FFFD; control characters other
/// than tabs cannot be in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestDetails {
    /// User-Agent.
    pub user_agent: Option<String>,
    /// Referer.
    pub referer: Option<String>,
    /// Origin of the page that has made the request.
    pub origin: Option<String>,
    /// Sec-Fetch-Site: `same-origin`, `same-site`, `cross-site` or `none`.
    pub fetch_site: Option<String>,
    /// Content-Type of the request's content.
    pub content_type: Option<String>,
    /// Accept.
    pub accept: Option<String>,
    /// All Cookie fields, joined by `; `.
    pub cookies: Option<String>,
    /// Number of fields named X-Pagewire, which no form of another site can set.
    pub own_fields: u32,
    /// Content, if the reader stores it; empty if it was sent in chunks.
    pub content: Vec<u8>,
}

impl RequestDetails {
    /// Reads the fields of an HTTP/2 stream.
    pub fn of<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> RequestDetails {
        let mut details = RequestDetails::default();
        fields.for_each(|(name, value)| details.note(name, value));
        details
    }

    /// Returns the value of a cookie; the first if there are several of the name.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let pairs = self.cookies.as_deref()?.split(';');
        pairs
            .filter_map(|pair| pair.trim().split_once('='))
            .find(|pair| pair.0 == name)
            .map(|p| p.1)
    }

    /// Stores a field if it is one of these.
    pub(super) fn note(&mut self, name: &str, value: &[u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let target = if is("user-agent") {
            &mut self.user_agent
        } else if is("referer") {
            &mut self.referer
        } else if is("origin") {
            &mut self.origin
        } else if is("sec-fetch-site") {
            &mut self.fetch_site
        } else if is("content-type") {
            &mut self.content_type
        } else if is("accept") {
            &mut self.accept
        } else if is("cookie") {
            &mut self.cookies
        } else {
            self.own_fields += u32::from(is("x-pagewire"));
            return;
        };
        let value = String::from_utf8_lossy(value.trim_ascii());
        match target {
            // A list continues; of fields that are none, all values are seen.
            Some(earlier) => {
                earlier.push_str("; ");
                earlier.push_str(&value);
            }
            None => *target = Some(value.into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_kept_by_their_names() {
        let fields: [(&str, &[u8]); 6] = [
            ("User-AGENT", b"curl \xff"),
            ("Cookie", b"a=1; pagewire_admin=x=y"),
            ("cookie", b"b=2"),
            ("Origin", b"https://a"),
            ("Origin", b"https://b"),
            ("X-Pagewire", b"1"),
        ];
        let details = RequestDetails::of(fields.into_iter());
        assert_eq!(details.user_agent.as_deref(), Some("curl \u{fffd}"));
        assert_eq!(
            (details.cookie("pagewire_admin"), details.cookie("b")),
            (Some("x=y"), Some("2"))
        );
        assert_eq!((details.cookie("c"), details.cookie("")), (None, None));
        assert_eq!(details.origin.as_deref(), Some("https://a; https://b"), "neither of them");
        assert_eq!(details.own_fields, 1);
    }
}
