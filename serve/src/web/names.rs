// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sounds and subtitles as playlists and MPDs name them for viewers.
//!
//! Sources: RFC 5646 (language tags); RFC 8216 §4.2 (quoted strings), §4.3.4.1 (NAME); XML 1.0 §2.2
//! (characters).

use media::language_of;
use media::tracks::Track;

/// A language in playlists and MPDs.
pub(super) struct Language {
    /// RFC 5646.
    pub(super) tag: String,
    /// English name; the code in the file where the language is unknown.
    pub(super) name: String,
}

/// Language of a track.
pub(super) fn language(track: &Track) -> Option<Language> {
    track.language_name().map(Language::of)
}

impl Language {
    /// Returns the language of a code (ISO 639-2) or tag (RFC 5646); an unknown one is its own
    /// name.
    pub(super) fn of(code: String) -> Language {
        match language_of(&code) {
            Some((tag, name)) => Language { tag: tag.to_owned(), name: name.to_owned() },
            None => Language { tag: code.clone(), name: code },
        }
    }
}

/// Returns a name as playlists and MPDs write it: without quotes, line ends and characters that XML
/// forbids (§2.2); `None` where nothing is left.
pub(super) fn shown_name(name: &str) -> Option<String> {
    let is_written = |one: &char| !one.is_control() && !matches!(one, '\u{fffe}' | '\u{ffff}');
    let kept = name.chars().filter(is_written);
    let kept = kept.map(|character| if character == '"' { '\'' } else { character });
    Some(kept.collect::<String>()).filter(|name| !name.trim().is_empty())
}

/// Returns a name that differs from all others: a number is appended where another has it, or
/// always.
pub(super) fn distinct(others: &[String], name: &str, is_numbered: bool) -> String {
    let plain = (!is_numbered).then(|| name.to_owned());
    let first = if is_numbered { 1 } else { 2 };
    let numbered = (first..).map(|number| format!("{name} {number}"));
    let mut names = plain.into_iter().chain(numbered);
    names.find(|name| !others.contains(name)).expect("numbers do not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_characters_that_end_or_break_their_text() {
        let shown = |name| shown_name(name);
        assert_eq!(shown("a\"\n\u{ffff}b\u{fffe}").as_deref(), Some("a'b"));
        assert_eq!((shown("\u{ffff}\r"), shown(" \t")), (None, None));
    }
}
