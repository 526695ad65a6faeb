// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks of TTML in MP4 (`stpp`): their sample entries.
//!
//! A sample is a document, which is sent unchanged. Its times are those of the track's
//! presentation: media time, moved by the edit list. It is shown during its sample only.
//!
//! Costs a pass over an entry of at most 16 KiB.
//!
//! Sources: ISO/IEC 14496-30 §5.2 (samples), §5.3 (timing), §5.4 (entry); ISO/IEC 14496-12 §12.3.3
//! (`mime`); TTML Media Type Definition and Profile Registry §5 (processor profiles); RFC 6381.
//! Does not read documents, or pass on their images and fonts.

use crate::tracks::SampleTable;

/// Bytes of an entry: a few URIs.
const ENTRY_BYTES_MAX: usize = 16 << 10;

/// Bytes before the strings of an entry's body: reserved ones and the data reference.
const FIELDS_BYTES: usize = 8;

/// Parts of the namespaces of TTML: TTML 1 and 2, its draft, and SMPTE-TT, which extends it.
const NAMESPACES: [&str; 3] = ["/ns/ttml", "/ttaf1", "smpte-tt"];

/// Value of `codecs` if no profile is known.
const NO_PROFILE: &str = "stpp";

/// Text profiles of IMSC 1.0.1, 1.1 and 1.2: designator, short name, and the value of `codecs`.
const TEXT_PROFILES: [(&str, &str, &str); 3] = [
    ("http://www.w3.org/ns/ttml/profile/imsc1/text", "im1t", "stpp.ttml.im1t"),
    ("http://www.w3.org/ns/ttml/profile/imsc1.1/text", "im2t", "stpp.ttml.im2t"),
    ("http://www.w3.org/ns/ttml/profile/imsc1.2/text", "im3t", "stpp.ttml.im3t"),
];

/// Values for image profiles.
const IMAGE_PROFILES: [(&str, &str); 2] = [
    ("http://www.w3.org/ns/ttml/profile/imsc1/image", "im1i"),
    ("http://www.w3.org/ns/ttml/profile/imsc1.1/image", "im2i"),
];

/// A track of TTML.
#[derive(Debug)]
pub struct TtmlTrack {
    /// Language (ISO 639-2).
    pub(crate) language: Option<[u8; 3]>,
    pub(crate) entry: TtmlEntry,
    pub(crate) samples: SampleTable,
    /// Shift of media time by the edit list, in units of the time scale.
    pub(crate) shift: i64,
}

/// Tracks of TTML by number, each with its samples or with the reason why it is left out.
pub type FoundTtmlTracks = Vec<(u32, Result<TtmlTrack, String>)>;

/// A sample entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TtmlEntry {
    /// The box of the file, with its data reference changed to the first.
    pub(crate) bytes: Vec<u8>,
    /// Value of `codecs`: `stpp` if the entry names no profile.
    pub(crate) codecs: &'static str,
}

impl TtmlEntry {
    /// The entry of this body, which begins with the reserved bytes.
    ///
    /// # Errors
    /// The reason why the track is left out.
    pub(crate) fn of(body: &[u8]) -> Result<TtmlEntry, String> {
        if body.len() > ENTRY_BYTES_MAX {
            return Err(format!("a sample description of {} bytes", body.len()));
        }
        let strings = body.get(FIELDS_BYTES..).unwrap_or_default();
        let Some((namespaces, schemas, resources, boxes)) = strings_of(strings) else {
            return Err("a sample description without its three strings".to_owned());
        };
        if !NAMESPACES.iter().any(|part| namespaces.contains(part)) {
            return Err("XML that is not TTML".to_owned());
        }
        // They are subsamples, which players of text do not show.
        if !resources.trim().is_empty() {
            return Err(format!("resources beside its text: {}", resources.escape_default()));
        }
        let named = |uri: &str| [&namespaces, &schemas].into_iter().any(|uris| has(uris, uri));
        let profiles = boxes_codecs(boxes);
        let has_short = |short: &str| profiles.split(['|', '+', '.']).any(|one| one == short);
        if IMAGE_PROFILES.iter().any(|(uri, short)| named(uri) || has_short(short)) {
            return Err("subtitles that are pictures (IMSC image profile)".to_owned());
        }
        let profile = TEXT_PROFILES.iter().find(|(uri, short, _)| named(uri) || has_short(short));
        let codecs = profile.map_or(NO_PROFILE, |(_, _, codecs)| codecs);
        let mut bytes = Vec::with_capacity(8 + body.len());
        bytes.extend((8 + body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(b"stpp");
        bytes.extend_from_slice(body);
        // The number of the data reference ends the fields.
        bytes[8 + FIELDS_BYTES - 2..8 + FIELDS_BYTES].copy_from_slice(&[0, 1]);
        Ok(TtmlEntry { bytes, codecs })
    }

    /// True if the entry names a text profile of IMSC.
    pub(crate) fn is_imsc(&self) -> bool {
        self.codecs != NO_PROFILE
    }
}

/// True if a URI is in a list separated by spaces.
fn has(uris: &str, uri: &str) -> bool {
    uris.split_ascii_whitespace().any(|one| one == uri)
}

/// Namespaces, locations of schemas and types of resources, and the boxes after them.
fn strings_of(bytes: &[u8]) -> Option<(String, String, String, &[u8])> {
    let (namespaces, rest) = string(bytes)?;
    let (schemas, rest) = string(rest)?;
    let (resources, boxes) = string(rest)?;
    Some((namespaces, schemas, resources, boxes))
}

/// A string that a zero byte ends.
fn string(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), &bytes[end + 1..]))
}

/// Returns the parameter `codecs` of the `mime` box among `boxes`; empty if there is none.
fn boxes_codecs(mut boxes: &[u8]) -> String {
    while let Some(&[a, b, c, d, ref code @ ..]) = boxes.first_chunk::<8>() {
        let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        let Some((found, behind)) = boxes.split_at_checked(bytes) else { break };
        // Version and flags, then the type.
        let kind = found.get(12..).filter(|_| code == b"mime").and_then(string);
        if let Some((kind, _)) = kind {
            let value = kind.split(';').find_map(|one| one.trim().strip_prefix("codecs="));
            return value.unwrap_or_default().trim_matches('"').to_owned();
        }
        if bytes < 8 {
            break;
        }
        boxes = behind;
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTML: &str = "http://www.w3.org/ns/ttml";

    fn entry(strings: [&str; 3], boxes: &[u8]) -> Result<TtmlEntry, String> {
        let mut body = vec![0, 0, 0, 0, 0, 0, 0, 7];
        for string in strings {
            body.extend_from_slice(string.as_bytes());
            body.push(0);
        }
        body.extend_from_slice(boxes);
        TtmlEntry::of(&body)
    }

    fn mime(kind: &str) -> Vec<u8> {
        let bytes = (13 + kind.len() as u32).to_be_bytes();
        [&bytes[..], b"mime\0\0\0\0", kind.as_bytes(), &[0]].concat()
    }

    #[test]
    fn the_profile_is_that_of_a_schema_or_media_type() {
        let image = TEXT_PROFILES[0].0.replace("text", "image");
        let all = format!("{TTML}#styling {}", TEXT_PROFILES[1].0);
        for (strings, kind, codecs) in [
            ([TTML, "", ""], "", Some("stpp")),
            ([TTML, TEXT_PROFILES[0].0, ""], "", Some("stpp.ttml.im1t")),
            ([&all, "", ""], "", Some("stpp.ttml.im2t")),
            ([TTML, "", ""], "application/ttml+xml;codecs=im1t", Some("stpp.ttml.im1t")),
            ([TTML, "", ""], "a/b; codecs=\"etd1|im3t\"", Some("stpp.ttml.im3t")),
            ([TTML, "", ""], "application/ttml+xml;codecs=im1i", None),
            ([TTML, &image, ""], "", None),
            ([TTML, "", "image/png"], "", None),
            (["http://www.w3.org/1999/xhtml", "", ""], "", None),
        ] {
            let found = entry(strings, &mime(kind));
            assert_eq!(found.as_ref().ok().map(|one| one.codecs), codecs, "{found:?}");
        }
    }

    #[test]
    fn an_entry_is_kept_but_for_its_data_reference() {
        let found = entry([TTML, "", ""], b"\0\0\0\x0cbtrt1234").unwrap().bytes;
        assert_eq!(found[..16], *b"\0\0\0\x38stpp\0\0\0\0\0\0\0\x01");
        assert_eq!(found.len(), 0x38);
        assert!(found.ends_with(b"/ttml\0\0\0\0\0\0\x0cbtrt1234"));
    }

    #[test]
    fn broken_entries_are_left_out() {
        for body in [&b""[..], &[0; 8], b"\0\0\0\0\0\0\0\x01http://www.w3.org/ns/ttml\0\0"] {
            assert!(TtmlEntry::of(body).unwrap_err().contains("without its three strings"));
        }
        let long = "a".repeat(ENTRY_BYTES_MAX);
        assert!(entry([TTML, &long, ""], &[]).unwrap_err().contains("16420 bytes"));
        // Boxes of size zero, too large, and truncated.
        for boxes in [&b"\0\0\0\0mime"[..], b"\0\0\0\x07mime", b"\xff\xff\xff\xffmime", b"\0\0"] {
            assert_eq!(entry([TTML, "", ""], boxes).unwrap().codecs, "stpp");
        }
    }
}
