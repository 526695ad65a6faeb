// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the known key closest to a misspelt one.
//!
//! Sources: Wagner and Fischer, "The String-to-String Correction Problem" (1974). Returns nothing
//! where no key is close.

/// Returns the known word with the fewest insertions, deletions, replacements and swaps of
/// neighbours; returns none where more than a third of the word would change.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(WORD_CHARS_MAX).collect();
    let distances = known.iter().map(|known| {
        let letters: Vec<char> = known.chars().collect();
        (distance(&word, &letters), *known)
    });
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    let is_close = distance <= word.len().max(known.len()).div_ceil(3);
    let is_part = known.len() >= 3 && word.len() >= 3 && {
        let word: String = word.iter().collect();
        known.starts_with(&word) || word.starts_with(known)
    };
    (is_close || is_part).then_some(known)
}

/// Number of edits that turn `a` into `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, letter) in a.iter().enumerate() {
        let mut next = vec![at + 1];
        for (column, other) in b.iter().enumerate() {
            let replaced = row[column] + usize::from(letter != other);
            let mut edits = replaced.min(row[column + 1] + 1).min(next[column] + 1);
            if at > 0 && column > 0 && a[at - 1] == *other && *letter == b[column - 1] {
                edits = edits.min(before[column - 1] + 1);
            }
            next.push(edits);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

/// Longer words are compared by this prefix, so that a long key costs no time.
const WORD_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_keys_find_their_word() {
        let known = ["title", "time_zone", "time_shift_s", "ttl", "send", "source"];
        for (word, expected) in [
            ("titel", Some("title")),
            ("tll", Some("ttl")),
            ("Send", Some("send")),
            ("sends", Some("send")),
            ("timezone", Some("time_zone")),
            ("time_shift", Some("time_shift_s")),
            ("bandwidth", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), expected, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 16), &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
