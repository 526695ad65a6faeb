// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credentials of a query, written behind the addresses of a playlist or an MPD, so that players
//! send them with each segment, key and subtitle.
//!
//! A playlist is kept once for all clients; the addresses of a client's copy are made as it is
//! sent: one pass over the text, only for requests with such a query. The copy has
//! [`COPY_BYTES_MAX`] at most: the query is not verified where other credentials opened the path,
//! and is repeated behind each of thousands of addresses. A text that would be longer is sent
//! unchanged: its player may send credentials itself.
//!
//! Addresses of other servers stay as they are: a signature is valid for this server only. Where
//! players and this file may read an address differently, it counts as one of another server.
//!
//! Sources: RFC 8216 §4.1 (URI lines), §4.2 (quoted attributes), §4.3.2 of its second edition
//! (variables), ISO/IEC 23009-1 §5.6 (BaseURL), WHATWG URL (backslashes, white space).
//! Does not verify credentials ([`crate::admission`] does).

use access::with_query;

/// Form of a text with addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressedText {
    Playlist,
    /// WebVTT whose cues are addresses.
    Thumbnails,
    Manifest,
}

/// Credentials, and the server that they are for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried<'a> {
    pub(super) query: &'a str,
    /// Host and port that the client uses for this server.
    pub(super) host: Option<&'a str>,
}

/// Returns a text whose addresses have this query, too; `None` where it would be too long.
pub(super) fn with_credentials(
    form: AddressedText,
    text: &str,
    carried: Carried<'_>,
) -> Option<String> {
    let mut copy = Copied(String::with_capacity(text.len() + text.len() / 2));
    match form {
        AddressedText::Playlist => in_playlist(text, carried.query, &mut copy)?,
        AddressedText::Thumbnails => in_thumbnails(text, carried.query, &mut copy)?,
        AddressedText::Manifest => in_manifest(text, carried, &mut copy)?,
    }
    Some(copy.0)
}

/// Text of bounded length.
struct Copied(String);

impl Copied {
    /// Adds a part; `None` where there is no room for it.
    fn push(&mut self, part: &str) -> Option<()> {
        if self.0.len() + part.len() > COPY_BYTES_MAX {
            return None;
        }
        self.0.push_str(part);
        Some(())
    }
}

fn in_playlist(text: &str, query: &str, copy: &mut Copied) -> Option<()> {
    for line in text.split_inclusive('\n') {
        let address = line.trim_end();
        let end = &line[address.len()..];
        match address.strip_prefix('#') {
            Some(_) => push_attributes(copy, address, query)?,
            None if address.is_empty() || is_elsewhere(address) => copy.push(address)?,
            None => copy.push(&with_query(address, query))?,
        }
        copy.push(end)?;
    }
    Some(())
}

/// Writes a tag with the query behind the address of its attribute URI.
fn push_attributes(copy: &mut Copied, tag: &str, query: &str) -> Option<()> {
    // Every second part is within quotes, which a quoted text cannot hold itself.
    let mut before = "";
    for (index, part) in tag.split('"').enumerate() {
        if index > 0 {
            copy.push("\"")?;
        }
        let is_quoted = index % 2 == 1;
        // The name of another attribute may end like this one (X-URI).
        let is_address = is_quoted && URI.iter().any(|end| before.ends_with(end));
        match is_address && !is_elsewhere(part) {
            true => copy.push(&with_query(part, query))?,
            false => copy.push(part)?,
        }
        before = part;
    }
    Some(())
}

fn in_thumbnails(text: &str, query: &str, copy: &mut Copied) -> Option<()> {
    for line in text.split_inclusive('\n') {
        match line.contains("#xywh=") && !is_elsewhere(line.trim_end()) {
            true => copy.push(&with_query(line, query))?,
            false => copy.push(line)?,
        }
    }
    Some(())
}

fn in_manifest(text: &str, carried: Carried<'_>, copy: &mut Copied) -> Option<()> {
    let query = carried.query.replace('&', "&amp;");
    let mut rest = text;
    loop {
        let places = ADDRESSES
            .iter()
            .filter_map(|(before, end)| rest.find(before).map(|at| (at + before.len(), *end)));
        let Some((begin, end)) = places.min_by_key(|(begin, _)| *begin) else { break };
        let length = rest[begin..].find(end).unwrap_or(rest.len() - begin);
        let address = &rest[begin..begin + length];
        copy.push(&rest[..begin])?;
        // Licences of this server are named with its scheme and host. A reference to a character
        // may stand for a slash or a colon.
        let is_licence = end == LICENCE_END && is_of_host(address, carried.host);
        match (is_elsewhere(address) && !is_licence) || address.contains("&#") {
            true => copy.push(address)?,
            false => copy.push(&with_query(address, &query))?,
        }
        rest = &rest[begin + length..];
    }
    copy.push(rest)
}

/// True for an address with a scheme or a host of its own, and for one in which players might find
/// another host than is found here.
fn is_elsewhere(address: &str) -> bool {
    let scheme = address.split(['/', '?', '#']).next().unwrap_or_default();
    address.starts_with("//")
        || scheme.contains(':')
        || address.starts_with(char::is_whitespace)
        || address.contains(|letter: char| letter == '\\' || letter.is_control())
        || address.contains("{$")
}

/// True for an address over HTTP of this very host.
fn is_of_host(address: &str, host: Option<&str>) -> bool {
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
    let behind = rest.zip(host).and_then(|(rest, host)| rest.strip_prefix(host));
    behind.is_some_and(|path| path.starts_with('/') && !path.contains('\\'))
}

/// A day of segments of three seconds has 30,000 addresses: room for 500 bytes with each.
const COPY_BYTES_MAX: usize = 16 << 20;
const URI: [&str; 2] = [":URI=", ",URI="];
/// Text before each address of an MPD that is made here, and the text behind it.
const ADDRESSES: [(&str, &str); 4] = [
    (" initialization=\"", "\""),
    (" media=\"", "\""),
    ("<BaseURL>", "</BaseURL>"),
    ("Lic_type=\"EME-1.0\">", LICENCE_END),
];
const LICENCE_END: &str = "</dashif:Laurl>";

#[cfg(test)]
mod tests {
    use super::*;

    fn with(form: AddressedText, text: &str, query: &str) -> String {
        with_credentials(form, text, Carried { query, host: Some("h") }).expect("it is short")
    }

    #[test]
    fn every_address_of_a_playlist_has_the_query() {
        let text = "#EXTM3U\r\n#EXT-X-KEY:METHOD=AES-128,URI=\"/keys/a/0.key\",IV=0x0\n\
            #EXT-X-MEDIA:NAME=\"x,URI=\",X-URI=\"no\",URI=\"~I/2.m3u8?k=1\"\n\
            #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\"\n\n~I/1.m3u8\n\
            https://other.example/a.ts\n//other.example/b.ts\nlast.ts";
        let expected = "#EXTM3U\r\n#EXT-X-KEY:METHOD=AES-128,URI=\"/keys/a/0.key?s=1&e=2\",IV=0x0\n\
            #EXT-X-MEDIA:NAME=\"x,URI=\",X-URI=\"no\",URI=\"~I/2.m3u8?k=1&s=1&e=2\"\n\
            #EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\"\n\n~I/1.m3u8?s=1&e=2\n\
            https://other.example/a.ts\n//other.example/b.ts\nlast.ts?s=1&e=2";
        assert_eq!(with(AddressedText::Playlist, text, "s=1&e=2"), expected);
    }

    #[test]
    fn every_thumbnail_has_the_query_before_its_place() {
        let text = "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nthumbnails-0.jpg#xywh=0,0,160,90\n";
        let expected = "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\n\
            thumbnails-0.jpg?s=1&e=2#xywh=0,0,160,90\n";
        assert_eq!(with(AddressedText::Thumbnails, text, "s=1&e=2"), expected);
    }

    #[test]
    fn every_address_of_a_manifest_has_the_query() {
        let text = "<BaseURL>~I/s3.vtt</BaseURL><SegmentTemplate startNumber=\"0\" \
            initialization=\"~I/1/init.mp4\" media=\"~I/1/$Number$.m4s\"/>\
            <dashif:Laurl Lic_type=\"EME-1.0\">http://h/keys/a/0.jwk</dashif:Laurl>";
        let expected = "<BaseURL>~I/s3.vtt?s=1&amp;e=2</BaseURL><SegmentTemplate \
            startNumber=\"0\" initialization=\"~I/1/init.mp4?s=1&amp;e=2\" \
            media=\"~I/1/$Number$.m4s?s=1&amp;e=2\"/><dashif:Laurl Lic_type=\"EME-1.0\">\
            http://h/keys/a/0.jwk?s=1&amp;e=2</dashif:Laurl>";
        assert_eq!(with(AddressedText::Manifest, text, "s=1&e=2"), expected);
    }

    #[test]
    fn addresses_that_may_be_read_as_those_of_others_have_no_query() {
        for address in
            ["\\\\other/a.ts", "/\\other/a.ts", " //other/a.ts", "{$host}/a.ts", "/\t/other/a.ts"]
        {
            assert_eq!(with(AddressedText::Playlist, address, "s=1"), address);
            let tag = format!("#EXT-X-MAP:URI=\"{address}\"");
            assert_eq!(with(AddressedText::Playlist, &tag, "s=1"), tag);
        }
        for manifest in [
            "<BaseURL>https://other/</BaseURL>",
            "<BaseURL>/&#47;other/</BaseURL>",
            "<BaseURL>\n//other/</BaseURL>",
        ] {
            assert_eq!(with(AddressedText::Manifest, manifest, "s=1"), manifest);
        }
    }

    #[test]
    fn licence_server_of_others_has_no_query() {
        let text =
            |address: &str| format!("<dashif:Laurl Lic_type=\"EME-1.0\">{address}</dashif:Laurl>");
        for other in ["https://other/l", "http://h.other/l", "http://h@other/l", "http://h"] {
            assert_eq!(with(AddressedText::Manifest, &text(other), "s=1"), text(other));
        }
        for own in ["https://h/l", "/l"] {
            let expected = text(&format!("{own}?s=1"));
            assert_eq!(with(AddressedText::Manifest, &text(own), "s=1"), expected);
        }
    }

    #[test]
    fn copies_that_would_be_too_long_are_not_made() {
        let text = "a.ts\n".repeat(COPY_BYTES_MAX / 4096);
        let copied = |bytes: usize| {
            let query = "s".repeat(bytes);
            with_credentials(AddressedText::Playlist, &text, Carried { query: &query, host: None })
        };
        assert!(copied(4000).is_some_and(|copy| copy.len() <= COPY_BYTES_MAX));
        assert_eq!(copied(4096), None);
        let text = "<BaseURL>a</BaseURL>".repeat(COPY_BYTES_MAX / 4096);
        let carried = Carried { query: &"s".repeat(4096), host: None };
        assert_eq!(with_credentials(AddressedText::Manifest, &text, carried), None);
    }
}
