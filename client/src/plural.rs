// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts with their nouns, for messages and tables.

/// Returns `1 session` or `3 sessions`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("{count} {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_alone_has_the_singular() {
        let sessions = |count| counted(count, "session", "sessions");
        assert_eq!([0, 1, 2].map(sessions), ["0 sessions", "1 session", "2 sessions"]);
    }
}
