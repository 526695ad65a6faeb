// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of a path that may have any bytes, as names of files have, and its bytes again.
//!
//! Names are bytes; nearly all are UTF-8 and are used unchanged. In other names each byte that is
//! not part of a character is written as one character, U+10FF00 plus the byte, from a private use
//! range of Unicode. Characters of that range in a name are encoded as bytes, too, so that two
//! names never have the same text and each text has one name: comparisons, look-ups and rules use
//! the text, and no other spelling of it opens the file. In URLs the bytes themselves are
//! percent-encoded.
//!
//! Costs a look at each byte; copies only names that are not plain UTF-8.
//!
//! Sources: Unicode 16 §23.5 (private-use characters); RFC 3986 §2.1, §2.5 (an address stands for
//! bytes); PEP 383, which does the same with lone surrogates, which Rust's text cannot have.
//! Does not normalize characters: names that differ in bytes are two names.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use percent_encoding::percent_decode_str;

/// Returns the text of a path.
pub fn path_text(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) if !has_bytes(text) => return Cow::Borrowed(text),
        _ => {}
    }
    let mut text = String::with_capacity(bytes.len() * 4);
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match BYTES.contains(&character) {
                true => text.extend(character.encode_utf8(&mut [0; 4]).bytes().map(letter)),
                false => text.push(character),
            }
        }
        text.extend(chunk.invalid().iter().copied().map(letter));
    }
    Cow::Owned(text)
}

/// Returns the bytes of a path; `None` of a text that no path has.
pub fn path_bytes(text: &str) -> Option<Cow<'_, [u8]>> {
    if !has_bytes(text) {
        return Some(Cow::Borrowed(text.as_bytes()));
    }
    let bytes = bytes_of(text);
    (path_text(&bytes) == text).then_some(Cow::Owned(bytes))
}

/// Undoes the escapes of a path or a name in a query.
pub fn decoded_path(escaped: &str) -> String {
    let bytes: Cow<'_, [u8]> = percent_decode_str(escaped).into();
    path_text(&bytes).into_owned()
}

/// Returns the text as people may see it: each byte that is not part of a character is U+FFFD.
pub fn shown_path(text: &str) -> Cow<'_, str> {
    match has_bytes(text) {
        true => Cow::Owned(text.replace(|letter| BYTES.contains(&letter), "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

/// Returns the bytes that a text encodes, also of a text that no path has.
pub(super) fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match BYTES.contains(&character) {
            // The lowest eight bits are the byte.
            true => bytes.push(u32::from(character) as u8),
            false => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

fn has_bytes(text: &str) -> bool {
    // No other byte begins a character of the last plane.
    text.bytes().any(|byte| byte == 0xf4) && text.chars().any(|letter| BYTES.contains(&letter))
}

/// The character of a byte beyond ASCII.
fn letter(byte: u8) -> char {
    char::from_u32(0x10_ff00 | u32::from(byte)).expect("below U+110000")
}

/// Characters that encode bytes.
const BYTES: RangeInclusive<char> = '\u{10ff80}'..='\u{10ffff}';

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_utf8_are_their_own_text() {
        for name in ["", "a/b.ts", "caf\u{e9}", "\u{10ff7f}", "\u{1f600}"] {
            assert!(matches!(path_text(name.as_bytes()), Cow::Borrowed(text) if text == name));
            assert!(matches!(path_bytes(name), Some(Cow::Borrowed(_))));
        }
    }

    #[test]
    fn bytes_of_other_names_are_characters_of_their_own() {
        assert_eq!(path_text(b"caf\xe9.ts"), "caf\u{10ffe9}.ts");
        assert_eq!(decoded_path("/caf%E9.ts"), "/caf\u{10ffe9}.ts");
        assert_eq!(decoded_path("/caf%C3%A9.ts"), "/caf\u{e9}.ts");
        assert_eq!(shown_path("caf\u{10ffe9}.ts"), "caf\u{fffd}.ts");
        // A character of the range is four bytes, so that it is no other name's text.
        let private = "\u{10ffe9}";
        assert_eq!(path_text(private.as_bytes()), "\u{10fff4}\u{10ff8f}\u{10ffbf}\u{10ffa9}");
        assert_eq!(path_bytes(private).as_deref(), Some(&b"\xe9"[..]));
        assert_eq!(decoded_path("%F4%8F%BF%A9"), path_text(private.as_bytes()));
    }

    #[test]
    fn text_that_no_path_has_is_refused() {
        // Bytes of a character that is written as itself.
        for text in ["\u{10ffc3}\u{10ffa9}", "a/\u{10ffe2}\u{10ff82}\u{10ffac}"] {
            assert_eq!(path_bytes(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_name_has_one_text_and_no_two_have_the_same(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let text = path_text(&bytes);
            let again = path_bytes(&text);
            prop_assert_eq!(again.as_deref(), Some(&bytes[..]));
        }

        #[test]
        fn text_stands_for_bytes_or_is_refused(text in "[a/\u{e9}\u{10ff7f}-\u{10ffff}]{0,16}") {
            if let Some(bytes) = path_bytes(&text) {
                prop_assert_eq!(&path_text(&bytes), &text);
            }
        }
    }
}
