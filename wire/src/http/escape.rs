// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text from file names and requests, made harmless for HTML and for a URL's path.
//!
//! Sources: HTML §13.3 (escaping a string) and OWASP's rule for attribute values; RFC 3986 §2.3
//! (unreserved characters).

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::path_text::bytes_of;

/// Escapes `text` for use as HTML text or inside a quoted attribute; borrowed if nothing changes.
pub fn escape_html(text: &str) -> Cow<'_, str> {
    let Some(first) = text.find(['&', '<', '>', '"', '\'']) else {
        return Cow::Borrowed(text);
    };
    let mut escaped = String::with_capacity(text.len() + 16);
    escaped.push_str(&text[..first]);
    for character in text[first..].chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// Escapes a path for use in a URL: everything but `/` and the unreserved characters is
/// percent-encoded, so the result is also harmless in HTML and in a header field; it encodes the
/// bytes of a [`path_text`](super::path_text()).
pub fn escape_path(path: &str) -> String {
    percent_encode(&bytes_of(path), OUTSIDE_PATH).to_string()
}

/// Everything but ALPHA, DIGIT, `-`, `.`, `_`, `~` (RFC 3986 §2.3) and the segments' `/`.
const OUTSIDE_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_has_no_markup_left() {
        assert_eq!(escape_html("a<script>\"'&b"), "a&lt;script&gt;&quot;&#39;&amp;b");
        assert!(matches!(escape_html("plain ä"), Cow::Borrowed("plain ä")));
    }

    #[test]
    fn path_keeps_segments_and_nothing_special() {
        assert_eq!(escape_path("/a b/ä?#%\r\n:.ts"), "/a%20b/%C3%A4%3F%23%25%0D%0A%3A.ts");
        assert_eq!(escape_path("/plain-1_2~3.ts"), "/plain-1_2~3.ts");
        assert_eq!(escape_path("/caf\u{10ffe9}.ts"), "/caf%E9.ts");
    }
}
