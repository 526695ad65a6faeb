// SPDX-License-Identifier: MIT OR Apache-2.0
//! Languages as files name them, by three letters of ISO 639-2, and as playlists and MPDs do.
//!
//! RFC 5646 has a code of two letters or one of three for a language, never both; other codes stay:
//! three letters are right for languages that have no code of two.
//!
//! Sources: RFC 5646 §2.2.1; ISO 639-2 (B codes and T codes).
//! Does not know regions or scripts: files do not name them.

/// Tag (RFC 5646) and English name of a language by its code in ISO 639-2, B codes included, by
/// that tag, or by that name in any case.
pub fn language_of(word: &str) -> Option<(&'static str, &'static str)> {
    let mut languages = LANGUAGES.iter();
    let found = languages.find(|(codes, tag, name)| {
        codes.contains(&word) || *tag == word || name.eq_ignore_ascii_case(word)
    })?;
    Some((found.1, found.2))
}

const LANGUAGES: &[(&[&str], &str, &str)] = &[
    (&["ara"], "ar", "Arabic"),
    (&["bul"], "bg", "Bulgarian"),
    (&["cat"], "ca", "Catalan"),
    (&["ces", "cze"], "cs", "Czech"),
    (&["cym", "wel"], "cy", "Welsh"),
    (&["dan"], "da", "Danish"),
    (&["deu", "ger"], "de", "German"),
    (&["ell", "gre"], "el", "Greek"),
    (&["eng"], "en", "English"),
    (&["est"], "et", "Estonian"),
    (&["eus", "baq"], "eu", "Basque"),
    (&["fas", "per"], "fa", "Persian"),
    (&["fin"], "fi", "Finnish"),
    (&["fra", "fre"], "fr", "French"),
    (&["gle"], "ga", "Irish"),
    (&["glg"], "gl", "Galician"),
    (&["heb"], "he", "Hebrew"),
    (&["hin"], "hi", "Hindi"),
    (&["hrv", "scr"], "hr", "Croatian"),
    (&["hun"], "hu", "Hungarian"),
    (&["ind"], "id", "Indonesian"),
    (&["isl", "ice"], "is", "Icelandic"),
    (&["ita"], "it", "Italian"),
    (&["jpn"], "ja", "Japanese"),
    (&["kor"], "ko", "Korean"),
    (&["lav"], "lv", "Latvian"),
    (&["lit"], "lt", "Lithuanian"),
    (&["nld", "dut"], "nl", "Dutch"),
    (&["nor"], "no", "Norwegian"),
    (&["pol"], "pl", "Polish"),
    (&["por"], "pt", "Portuguese"),
    (&["ron", "rum"], "ro", "Romanian"),
    (&["rus"], "ru", "Russian"),
    (&["slk", "slo"], "sk", "Slovak"),
    (&["slv"], "sl", "Slovene"),
    (&["spa"], "es", "Spanish"),
    (&["srp", "scc"], "sr", "Serbian"),
    (&["swe"], "sv", "Swedish"),
    (&["tha"], "th", "Thai"),
    (&["tur"], "tr", "Turkish"),
    (&["ukr"], "uk", "Ukrainian"),
    (&["vie"], "vi", "Vietnamese"),
    (&["zho", "chi"], "zh", "Chinese"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_codes_of_a_language_have_one_tag() {
        assert_eq!(language_of("ger"), Some(("de", "German")));
        assert_eq!(language_of("deu"), language_of("ger"));
        assert_eq!(language_of("gsw"), None);
        assert_eq!(language_of("GERMAN"), language_of("ger"));
        assert_eq!(language_of("de"), language_of("ger"));
    }
}
