// SPDX-License-Identifier: MIT OR Apache-2.0
//! Labels of tracks, by whose names and uses viewers choose one.
//!
//! Sources: ISO/IEC 14496-12 §8.3.2 (track_enabled), §8.10 (user data); QuickTime File Format
//! ("User Data Text", `name`); RFC 9559 §5.1.4.1.5 (FlagDefault) to §5.1.4.1.11 (FlagCommentary),
//! §5.1.4.1.18 (Name).
//! Does not make names unique.

/// Name and uses of a track, as far as its container gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrackLabel {
    /// Name for viewers: not empty, of at most 128 bytes, without control characters.
    pub name: Option<String>,
    /// True if it is played to viewers who chose none; several tracks may be.
    pub is_default: bool,
    /// True for a spoken commentary.
    pub is_commentary: bool,
    /// True for an audio description of the pictures.
    pub is_description: bool,
}

impl TrackLabel {
    /// A name as containers write it: UTF-8, which zeros may fill up.
    pub(crate) fn name_of(written: &[u8]) -> Option<String> {
        let written = &written[..written.len().min(NAME_BYTES_MAX)];
        let text = String::from_utf8_lossy(written);
        let mut name = String::new();
        for character in text.chars().filter(|one| !one.is_control()) {
            // The replacement of a truncated or invalid character is longer than the original
            // bytes.
            if name.len() + character.len_utf8() > NAME_BYTES_MAX {
                break;
            }
            name.push(character);
        }
        let name = name.trim();
        (!name.is_empty()).then(|| name.to_owned())
    }
}

/// Returns a language (ISO 639-2) as text; `None` if it is undetermined, or not a code.
pub(crate) fn language_code(language: Option<[u8; 3]>) -> Option<String> {
    let language = language.filter(|language| language != b"und")?;
    let is_code = language.iter().all(u8::is_ascii_lowercase);
    is_code.then(|| language.iter().map(|&byte| char::from(byte)).collect())
}

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_lines() {
        let name = |written: &[u8]| TrackLabel::name_of(written);
        assert_eq!(name(b" Director's \"cut\"\n\0\0").as_deref(), Some("Director's \"cut\""));
        assert_eq!((name(b""), name(b"\0\0"), name(b" \r\n ")), (None, None, None));
        assert_eq!(name(&[b'a'; 500]).map(|name| name.len()), Some(NAME_BYTES_MAX));
        let long = name("ä".repeat(100).as_bytes()).expect("letters");
        assert_eq!(long, "ä".repeat(64));
        assert!(name(&[0xff; 500]).is_some_and(|name| name.len() <= NAME_BYTES_MAX));
    }
}
