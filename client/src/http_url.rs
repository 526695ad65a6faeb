// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses an `http:` URL for a request, and resolves references against it.
//!
//! The download and the HLS client share it: a playlist names its segments by references relative
//! to its own address.
//!
//! Sources: RFC 3986 §3, §5.2 (resolution of references); RFC 9112 §3.2.
//! Does not read `https:`, user names or internationalised host names.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::connect::authority;

/// Parts of an `http:` URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UrlParts {
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query, as a request contains them.
    pub(super) path: String,
}

impl UrlParts {
    pub(super) fn parse(url: &str) -> Option<UrlParts> {
        let (scheme, rest) = url.split_once("://")?;
        let rest = rest.split('#').next()?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = match authority.strip_prefix('[') {
            Some(six) => six.split_once(']')?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if port.is_empty() => DEFAULT_PORT,
            None => return None,
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
        let known = scheme.eq_ignore_ascii_case("http");
        if !known || host.is_empty() || !host.chars().all(is_host) {
            return None;
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = format!("{slash}{}", utf8_percent_encode(path, ESCAPED));
        Some(UrlParts { host: host.to_owned(), port, path })
    }

    /// Resolves a reference in the document at this URL. None for a scheme other than `http:`, and
    /// for an invalid authority.
    pub(super) fn join(&self, reference: &str) -> Option<UrlParts> {
        let reference = reference.trim().split('#').next()?;
        if has_scheme(reference) {
            return UrlParts::parse(reference).map(UrlParts::without_dots);
        }
        if reference.starts_with("//") {
            return UrlParts::parse(&format!("http:{reference}")).map(UrlParts::without_dots);
        }
        let own_path = self.path.split('?').next().unwrap_or("/");
        let folder = &own_path[..=own_path.rfind('/').unwrap_or(0)];
        let path = match reference.chars().next() {
            None => return Some(self.clone()),
            Some('/') => reference.to_owned(),
            Some('?') => format!("{own_path}{reference}"),
            Some(_) => format!("{folder}{reference}"),
        };
        let path = utf8_percent_encode(&path, ESCAPED).to_string();
        Some(UrlParts { host: self.host.clone(), port: self.port, path }.without_dots())
    }

    /// True where the path, without a query, ends in this suffix, ignoring case.
    pub(super) fn path_ends_in(&self, suffix: &str) -> bool {
        let path = self.path.split('?').next().unwrap_or_default();
        let at = path.len().checked_sub(suffix.len());
        at.and_then(|at| path.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
    }

    /// `HOST` or `HOST:PORT` of the request.
    pub(super) fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    /// RFC 3986 §5.2.4.
    fn without_dots(mut self) -> UrlParts {
        let (path, query) = self.path.split_at(self.path.find('?').unwrap_or(self.path.len()));
        let mut kept: Vec<&str> = Vec::new();
        let mut ends_in_folder = false;
        for part in path.split('/').skip(1) {
            ends_in_folder = matches!(part, "." | "..");
            match part {
                "." => {}
                ".." => {
                    kept.pop();
                }
                part => kept.push(part),
            }
        }
        let slash = if ends_in_folder && !kept.is_empty() { "/" } else { "" };
        self.path = format!("/{}{slash}{query}", kept.join("/"));
        self
    }
}

impl fmt::Display for UrlParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

fn has_scheme(reference: &str) -> bool {
    let Some((scheme, _)) = reference.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// Characters that are not allowed in a request target. Existing escapes in a URL are kept.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'`');
const DEFAULT_PORT: u16 = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url_parts = |url: &str| UrlParts::parse(url).map(|p| (p.host, p.port, p.path));
        let some = |host: &str, port, path: &str| Some((host.to_owned(), port, path.to_owned()));
        assert_eq!(url_parts("http://h/a.ts"), some("h", 80, "/a.ts"));
        assert_eq!(url_parts("HTTP://127.0.0.1:8080"), some("127.0.0.1", 8080, "/"));
        assert_eq!(url_parts("http://[::1]:80/a b%20ü?q#f"), some("::1", 80, "/a%20b%20%C3%BC?q"));
        assert_eq!(url_parts("http://h?q"), some("h", 80, "/?q"));
        assert_eq!(url_parts("http://h/a\r\nX: y"), some("h", 80, "/a%0D%0AX:%20y"));
        for wrong in
            ["http:///a", "http://h:x/", "http://h:99999/", "https://h/", "h/a", "http://u@h/"]
        {
            assert_eq!(url_parts(wrong), None, "{wrong}");
        }
        assert_eq!(url_parts("http://[::1"), None);
        assert_eq!(url_parts("http://[::1]x/"), None);
    }

    #[test]
    fn references_are_resolved_as_the_rfc_does() {
        let base = UrlParts::parse("http://h:81/a/b/m.m3u8?t=1/2").unwrap();
        let joined = |reference: &str| base.join(reference).map(|url| url.to_string());
        let some = |url: &str| Some(url.to_owned());
        for (reference, url) in [
            ("s1.ts", "http://h:81/a/b/s1.ts"),
            ("./s1.ts?x=../y", "http://h:81/a/b/s1.ts?x=../y"),
            ("../s1.ts", "http://h:81/a/s1.ts"),
            ("../../../../s1.ts", "http://h:81/s1.ts"),
            ("..", "http://h:81/a/"),
            ("/s 1.ts", "http://h:81/s%201.ts"),
            ("?t=2", "http://h:81/a/b/m.m3u8?t=2"),
            ("", "http://h:81/a/b/m.m3u8?t=1/2"),
            ("#part", "http://h:81/a/b/m.m3u8?t=1/2"),
            ("//g/s.ts", "http://g:80/s.ts"),
            ("HTTP://g:82/x/../s.ts", "http://g:82/s.ts"),
            ("a%2F..%2fs:1.ts", "http://h:81/a/b/a%2F..%2fs:1.ts"),
        ] {
            assert_eq!(joined(reference), some(url), "{reference}");
        }
        for wrong in ["https://h/s.ts", "data:video/mp4;base64,AAAA", "file:///etc/passwd", "//"] {
            assert_eq!(joined(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_playlist_is_known_by_the_end_of_its_path() {
        let is_playlist = |url: &str| UrlParts::parse(url).unwrap().path_ends_in(".m3u8");
        assert!(is_playlist("http://h/a.m3u8") && is_playlist("http://h/a.M3U8?x#y"));
        assert!(!is_playlist("http://h/a.ts?b.m3u8") && !is_playlist("http://h/m3u8"));
        assert!(!is_playlist("http://h/\u{fc}\u{fc}"));
    }
}
