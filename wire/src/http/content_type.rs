// SPDX-License-Identifier: MIT OR Apache-2.0
//! Media type of a file, by the extension of its name.
//!
//! `mime_guess` maps the registered types. The list here has priority: it holds the formats of this
//! server, and the few extensions that public tables map wrongly for a media server (`.ts` is a
//! transport stream here, never TypeScript).
//!
//! Sources: the IANA media type registry, RFC 3555 (video/MP2T), RFC 8216 §4 (m3u8), RFC 9559
//! §12.3 (video/matroska), Readium LCP 1.0 §3 (lcpl).
//!
//! Does not read files: a wrong name gives a wrong type, and `nosniff` keeps it harmless.

/// The media type for `path`, `application/octet-stream` for an unknown extension.
pub fn content_type(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    let Some((_, extension)) = name.rsplit_once('.') else {
        return UNKNOWN;
    };
    if let Some((_, kind)) = OURS.iter().find(|(ours, _)| ours.eq_ignore_ascii_case(extension)) {
        return kind;
    }
    mime_guess::from_ext(extension).first_raw().unwrap_or(UNKNOWN)
}

const UNKNOWN: &str = "application/octet-stream";

/// Extension and type: those that `mime_guess` lacks or maps to an unregistered or uncommon type,
/// and those that are requested most often.
const OURS: &[(&str, &str)] = &[
    ("mp4", "video/mp4"),
    ("ts", "video/mp2t"),
    ("m2ts", "video/mp2t"),
    ("mts", "video/mp2t"),
    ("m2t", "video/mp2t"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/mp4"),
    ("m4a", "audio/mp4"),
    ("m4b", "audio/mp4"),
    ("mkv", "video/matroska"),
    ("mka", "audio/matroska"),
    ("cbz", "application/vnd.comicbook+zip"),
    ("lcpl", "application/vnd.readium.lcp.license.v1.0+json"),
    ("lcpdf", "application/pdf+lcp"),
    ("lcpa", "application/audiobook+lcp"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_and_publications_have_their_registered_types() {
        for (name, kind) in [
            ("/films/a.ts", "video/mp2t"),
            ("/films/A.TS", "video/mp2t"),
            ("00001.m2ts", "video/mp2t"),
            ("live/index.m3u8", "application/vnd.apple.mpegurl"),
            ("a.mp4", "video/mp4"),
            ("a.m4s", "video/iso.segment"),
            ("a.webm", "video/webm"),
            ("a.mpd", "application/dash+xml"),
            ("book.epub", "application/epub+zip"),
            ("a.pdf", "application/pdf"),
            ("a.mp3", "audio/mpeg"),
            ("a.vtt", "text/vtt"),
            ("a.html", "text/html"),
            ("a.tar.gz", "application/gzip"),
        ] {
            assert_eq!(content_type(name), kind, "{name}");
        }
    }

    #[test]
    fn names_that_tell_nothing_are_octets() {
        for name in ["", "/", "README", "/dir.ts/file", "a.", "a.no-such-extension"] {
            assert_eq!(content_type(name), UNKNOWN, "{name}");
        }
    }
}
