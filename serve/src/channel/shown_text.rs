// SPDX-License-Identifier: MIT OR Apache-2.0
//! Titles and file names as text of one line that hides nothing.
//!
//! A file name may hold line feeds, escape sequences and marks that turn the direction of writing.
//! In a playlist a line feed begins an entry of its own. Settings with such characters are refused;
//! names of files, which the operator may not have written, are shown with the characters replaced.
//! Costs one pass over the text.
//!
//! Sources: Unicode 16 §23.2 (bidirectional ordering controls, U+2028, U+2029) and §23.8
//! (specials); UTR #36 §2.5; XML 1.0 §2.2 (characters that no document may have).
//! Does not escape for XML or SDP: their writers do.

use wire::http::shown_path;

/// True for control characters, separators of lines and paragraphs, marks of direction,
/// byte-order marks and noncharacters.
pub(crate) fn is_hidden_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(letter, '\u{fdd0}'..='\u{fdef}' | '\u{fff9}'..='\u{fffb}')
        || u32::from(letter) & 0xfffe == 0xfffe
}

/// Returns `text` in one line of at most `chars_max` characters; each hidden control becomes a
/// space.
pub(crate) fn one_line(text: &str, chars_max: usize) -> String {
    let shown = |letter| if is_hidden_control(letter) { ' ' } else { letter };
    let text = shown_path(text);
    text.chars().take(chars_max).map(shown).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_become_spaces_and_letters_stay() {
        let hostile = "a\r\n#EXTINF:-1,b\u{1b}[2K\u{7f}\u{9b}\u{2028}\u{202e}c\u{2066}\u{feff}";
        assert_eq!(one_line(hostile, 100), "a  #EXTINF:-1,b [2K    c");
        assert_eq!(one_line("Zoë \"]]>\" & <i> 日本", 100), "Zoë \"]]>\" & <i> 日本");
        assert_eq!(one_line("abcdef", 3), "abc");
        assert_eq!(one_line("caf\u{10ffe9}\u{10fffe}", 9), "caf\u{fffd}\u{fffd}");
        assert_eq!(one_line("\u{fffe}\u{1ffff}\n", 9), "");
    }
}
