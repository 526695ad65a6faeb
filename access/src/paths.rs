// SPDX-License-Identifier: MIT OR Apache-2.0
//! One spelling for each path, so that no rule can be evaded by another one.
//!
//! Escapes are undone by `wire`, which has one text for each path, also for bytes that are no
//! UTF-8. Here empty components and `.` are dropped, as the served folder drops them; a path with
//! `..` has no spelling, since it is never opened. Costs no allocation for a path that is already
//! in its shortest spelling.
//!
//! Sources: RFC 3986 §5.2.4, §6.2.2.3.
//! Does not follow links: a link below an open folder opens what it leads to.

use std::borrow::Cow;

use wire::http::path_text;

/// Returns the shortest spelling of a path, without a slash at either end; `None` where it has
/// `..` or a NUL.
pub fn canonical(path: &str) -> Option<Cow<'_, str>> {
    let trimmed = path.trim_matches('/');
    if trimmed.contains('\0') || trimmed.split('/').any(|part| part == "..") {
        return None;
    }
    let is_plain = !trimmed.split('/').any(|part| part == "." || part.is_empty());
    if is_plain || trimmed.is_empty() {
        return Some(Cow::Borrowed(trimmed));
    }
    let parts = trimmed.split('/').filter(|part| !matches!(*part, "" | "."));
    Some(Cow::Owned(parts.collect::<Vec<_>>().join("/")))
}

/// Returns the shortest spelling of a path as people and programs write it, such as in a rule: its
/// characters are those of the name, never bytes of one.
pub(crate) fn canonical_of_written(path: &str) -> Option<String> {
    canonical(&path_text(path.as_bytes())).map(Cow::into_owned)
}

/// True when `path` is `prefix` or below it, by whole components; both in their shortest spelling.
pub(crate) fn is_below(path: &str, prefix: &str) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => prefix.is_empty() || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// Returns the first components of a path in its shortest spelling, `most` of them.
pub(crate) fn first_components(path: &str, most: usize) -> &str {
    let Some(slash) = most.checked_sub(1) else { return "" };
    path.match_indices('/').nth(slash).map_or(path, |(at, _)| &path[..at])
}

/// Returns a path and all folders above it, the longest first; the last is empty.
pub(crate) fn upwards(path: &str) -> impl Iterator<Item = &str> {
    let first = Some(path);
    std::iter::successors(first, |path| match path.rsplit_once('/') {
        Some((above, _)) => Some(above),
        None => (!path.is_empty()).then_some(""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_is_one_path() {
        for path in ["a/b.ts", "/a/b.ts", "//a//b.ts", "/./a/./b.ts/", "/a/b.ts/."] {
            assert_eq!(canonical(path).as_deref(), Some("a/b.ts"), "{path}");
        }
        for path in ["", "/", "//", "/.", "/./"] {
            assert_eq!(canonical(path).as_deref(), Some(""), "{path}");
        }
        for path in ["..", "/a/../b", "/..", "a/..", "a\0b"] {
            assert_eq!(canonical(path), None, "{path}");
        }
        assert_eq!(canonical("a..b/...").as_deref(), Some("a..b/..."));
    }

    /// A rule's character of the range that stands for bytes is that of a name, not the byte.
    #[test]
    fn a_written_path_has_the_spelling_of_requests() {
        for written in ["/films/./caf\u{e9}", "a\u{10ffe9}"] {
            let asked = path_text(written.as_bytes());
            assert_eq!(canonical_of_written(written).as_deref(), canonical(&asked).as_deref());
        }
        assert_ne!(canonical_of_written("a\u{10ffe9}").as_deref(), Some(&*path_text(b"a\xe9")));
        assert_eq!(canonical_of_written("a/../b"), None);
    }

    #[test]
    fn prefixes_are_whole_components() {
        assert!(is_below("a/b", "a") && is_below("a", "a") && is_below("a", ""));
        assert!(!is_below("ab", "a") && !is_below("a", "a/b"));
        assert_eq!(upwards("a/b/c").collect::<Vec<_>>(), ["a/b/c", "a/b", "a", ""]);
        assert_eq!(upwards("").collect::<Vec<_>>(), [""]);
        for (most, first) in [(0, ""), (1, "a"), (2, "a/b"), (3, "a/b/c"), (9, "a/b/c")] {
            assert_eq!(first_components("a/b/c", most), first);
        }
        assert_eq!(first_components("", 2), "");
    }
}
