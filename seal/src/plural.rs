// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes counts with their nouns, for messages.

/// Returns a count with its noun, such as `1 file` and `2 files`.
pub fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_counted_without_an_s() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "file")), ["0 files", "1 file", "2 files"]);
    }
}
