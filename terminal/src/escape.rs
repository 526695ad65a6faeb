// SPDX-License-Identifier: MIT OR Apache-2.0
//! Escapes untrusted text for a terminal and the log: characters that move the cursor, end a line
//! or change the writing direction are shown as their escapes and have no effect.
//!
//! File names, RTSP and HTTP answers, SDP and the headers of sealed files are untrusted. A name
//! such as `a\nERROR forged\u001b[2K` must not add a line to a log or hide one. The log writes its
//! fields through [`Escaping`], verbs print through [`Escaped`]. Costs one pass over the text of a
//! line.
//!
//! Sources: ECMA-48 §5 (C0, C1, CSI), Unicode 16 §23.2 (bidirectional ordering controls, U+2028 and
//! U+2029), UTR #36 §2.5 (bidirectional text spoofing), RFC 8259 §7 (escapes: `\u001b`).
//! Does not distinguish an escape from the same letters in a name: a backslash is not escaped.

use std::fmt::{self, Display, Write};
use std::ops::RangeInclusive;

/// One line of text; control characters are shown as RFC 8259 escapes.
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping { target: f, keeps_lines: false }, "{}", self.0)
    }
}

/// Text of several lines that this program has laid out. Line feeds stay, so untrusted text in it
/// must be escaped before. JSON keeps its meaning: it has other control characters only in strings.
pub struct EscapedLines<T>(pub T);

impl<T: Display> Display for EscapedLines<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping { target: f, keeps_lines: true }, "{}", self.0)
    }
}

/// A writer that escapes all text written to it.
pub struct Escaping<W> {
    /// Receives the escaped text.
    pub target: W,
    /// True to pass on line feeds unchanged.
    pub keeps_lines: bool,
}

impl<W: Write> Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        let is_foreign = |c: char| match self.keeps_lines {
            true => is_control(c) && c != '\n',
            false => is_control(c) || BYTES.contains(&c),
        };
        while let Some(at) = rest.find(is_foreign) {
            let (before, from) = rest.split_at(at);
            self.target.write_str(before)?;
            let control = from.chars().next().expect("one was found");
            match control {
                '\n' => self.target.write_str("\\n")?,
                '\r' => self.target.write_str("\\r")?,
                '\t' => self.target.write_str("\\t")?,
                byte if BYTES.contains(&byte) => {
                    write!(self.target, "\\x{:02X}", u32::from(byte) & 0xff)?;
                }
                control => write!(self.target, "\\u{:04x}", u32::from(control))?,
            }
            rest = &from[control.len_utf8()..];
        }
        self.target.write_str(rest)
    }
}

/// True for C0, DEL and C1; for line and paragraph separators; for directional marks, embeddings,
/// overrides and isolates. All are below U+10000.
fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Characters that represent bytes of names that are not UTF-8 (wire's `path_text`).
const BYTES: RangeInclusive<char> = '\u{10ff80}'..='\u{10ffff}';

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str =
        "a\n2026 ERROR b\r\u{1b}[2K\u{7f}\u{9b}1m\u{2028}\u{202e}st.b\u{2066}\t\0c";

    #[test]
    fn bytes_of_names_are_shown_as_bytes_in_one_line_and_stay_in_json() {
        let name = "caf\u{10ffe9}.ts";
        assert_eq!(Escaped(name).to_string(), "caf\\xE9.ts");
        assert_eq!(EscapedLines(name).to_string(), name);
    }

    #[test]
    fn every_control_character_becomes_its_escape_and_letters_stay() {
        let shown =
            "a\\n2026 ERROR b\\r\\u001b[2K\\u007f\\u009b1m\\u2028\\u202est.b\\u2066\\t\\u0000c";
        assert_eq!(Escaped(HOSTILE).to_string(), shown);
        assert_eq!(Escaped("Füße \\n 空 😀").to_string(), "Füße \\n 空 😀");
        assert_eq!(EscapedLines("a\n\u{1b}b\r\n").to_string(), "a\n\\u001bb\\r\n");
    }

    #[test]
    fn json_means_the_same_after_it() {
        let value = serde_json::json!({ "name": HOSTILE, "more": [HOSTILE, 1] });
        let pretty = serde_json::to_string_pretty(&value).expect("plain data");
        let shown = EscapedLines(&pretty).to_string();
        assert!(!shown.chars().any(|c| is_control(c) && c != '\n'), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
    }
}
