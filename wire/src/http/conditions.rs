// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evaluates the conditional fields of a request for a file.
//!
//! Values are stored verbatim, a repeated field joined by a comma (RFC 9110 §5.3), and parsed only
//! once the file is known. A value that breaks the grammar then never matches, which errs on the
//! safe side each time: If-Match refuses, If-None-Match sends the whole, If-Range sends the whole,
//! and dates are ignored, as §13.1.3 and §13.1.4 demand.
//!
//! Sources: RFC 9110 §8.8 (validators), §13.1 (the fields), §13.2.2 (their precedence).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The conditional fields and Range of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    if_match: Option<Vec<u8>>,
    if_none_match: Option<Vec<u8>>,
    if_modified_since: Option<Vec<u8>>,
    if_unmodified_since: Option<Vec<u8>>,
    if_range: Option<Vec<u8>>,
    range: Option<Vec<u8>>,
}

/// Validators of the selected representation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Validators<'a> {
    /// As sent: quoted, with `W/` before it if it is weak.
    pub(super) etag: &'a str,
    /// Time as sent, in whole seconds; `None` if an HTTP-date cannot express it.
    pub(super) last_modified: Option<SystemTime>,
    /// The date is a strong validator (RFC 9110 §8.8.2.2).
    pub(super) date_is_strong: bool,
}

/// The outcome of the preconditions of a GET or HEAD.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PreconditionResult<'a> {
    /// Send the representation, or this Range field's part of it.
    Send { range: Option<&'a [u8]> },
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

impl Conditions {
    /// Stores a field if it is one of these.
    pub(super) fn note(&mut self, name: &str, value: &[u8]) {
        let slot = match name.len() {
            5 if name.eq_ignore_ascii_case("range") => &mut self.range,
            8 if name.eq_ignore_ascii_case("if-match") => &mut self.if_match,
            8 if name.eq_ignore_ascii_case("if-range") => &mut self.if_range,
            13 if name.eq_ignore_ascii_case("if-none-match") => &mut self.if_none_match,
            17 if name.eq_ignore_ascii_case("if-modified-since") => &mut self.if_modified_since,
            19 if name.eq_ignore_ascii_case("if-unmodified-since") => &mut self.if_unmodified_since,
            _ => return,
        };
        match slot {
            None => *slot = Some(value.to_vec()),
            Some(earlier) => {
                earlier.extend_from_slice(b", ");
                earlier.extend_from_slice(value);
            }
        }
    }

    /// RFC 9110 §13.2.2, step by step, for GET (`is_get`) or HEAD of a file that exists.
    pub(super) fn evaluate(
        &self,
        is_get: bool,
        selected: &Validators<'_>,
    ) -> PreconditionResult<'_> {
        let modified_since = |field: &Option<Vec<u8>>| {
            let date = http_date(field.as_deref()?)?;
            Some(selected.last_modified? > date)
        };
        if let Some(list) = &self.if_match {
            if !names(list, |tag| tag.matches_strongly(selected.etag)) {
                return PreconditionResult::Failed;
            }
        } else if modified_since(&self.if_unmodified_since) == Some(true) {
            return PreconditionResult::Failed;
        }
        if let Some(list) = &self.if_none_match {
            if names(list, |tag| tag.matches_weakly(selected.etag)) {
                return PreconditionResult::NotModified;
            }
        } else if modified_since(&self.if_modified_since) == Some(false) {
            return PreconditionResult::NotModified;
        }
        // Range is defined for GET alone (RFC 9110 §14.2).
        let range = self.range.as_deref().filter(|_| is_get && self.allows_range(selected));
        PreconditionResult::Send { range }
    }

    /// If-Range (RFC 9110 §13.1.5): a strong entity tag or a strong date, matched exactly.
    fn allows_range(&self, selected: &Validators<'_>) -> bool {
        let Some(field) = &self.if_range else {
            return true;
        };
        let mut tags = EntityTags { rest: field };
        if let Some(tag) = tags.next() {
            return tags.at_end() && tag.matches_strongly(selected.etag);
        }
        selected.date_is_strong
            && selected.last_modified.is_some()
            && http_date(field) == selected.last_modified
    }
}

/// True if an If-Match or If-None-Match list names the representation: `*` names every one.
fn names(list: &[u8], matches: impl Fn(EntityTag<'_>) -> bool) -> bool {
    list.trim_ascii() == b"*" || EntityTags { rest: list }.any(matches)
}

/// An entity tag: `opaque` with its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntityTag<'a> {
    weak: bool,
    opaque: &'a [u8],
}

impl EntityTag<'_> {
    /// RFC 9110 §8.8.3.2: both strong and equal. A weak `etag` begins with `W/` and so never is.
    fn matches_strongly(self, etag: &str) -> bool {
        !self.weak && self.opaque == etag.as_bytes()
    }

    /// RFC 9110 §8.8.3.2: equal, weak or not.
    fn matches_weakly(self, etag: &str) -> bool {
        self.opaque == etag.strip_prefix("W/").unwrap_or(etag).as_bytes()
    }
}

/// The entity tags of a list, up to the first thing that is none.
struct EntityTags<'a> {
    rest: &'a [u8],
}

impl EntityTags<'_> {
    fn at_end(&self) -> bool {
        self.rest.trim_ascii().is_empty()
    }
}

impl<'a> Iterator for EntityTags<'a> {
    type Item = EntityTag<'a>;

    fn next(&mut self) -> Option<EntityTag<'a>> {
        let separators = self.rest.iter().take_while(|byte| b" \t,".contains(byte)).count();
        let list = &self.rest[separators..];
        let (weak, quoted) = match list.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, list),
        };
        let inside = quoted.strip_prefix(b"\"")?;
        let inside_bytes = inside.iter().take_while(|&&byte| is_etag_byte(byte)).count();
        if inside.get(inside_bytes) != Some(&b'"') {
            return None;
        }
        let (opaque, after) = quoted.split_at(inside_bytes + 2);
        let after = after.trim_ascii_start();
        if !matches!(after.first(), None | Some(b',')) {
            return None;
        }
        self.rest = after;
        Some(EntityTag { weak, opaque })
    }
}

/// etagc: anything visible but the quote, and obs-text (RFC 9110 §8.8.3).
fn is_etag_byte(byte: u8) -> bool {
    byte == 0x21 || (0x23..=0x7e).contains(&byte) || byte >= 0x80
}

/// An HTTP-date in any of its three forms (RFC 9110 §5.6.7).
fn http_date(field: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(str::from_utf8(field).ok()?.trim_ascii()).ok()
}

impl<'a> Validators<'a> {
    /// Validators of a file changed at `modified`, as seen at `now`.
    ///
    /// A date after `now` must not be sent and becomes `now` (RFC 9110 §8.8.2.1). A date in the
    /// second that is still running is weak, since the file may change again within it.
    pub(super) fn new(etag: &'a str, modified: SystemTime, now: SystemTime) -> Validators<'a> {
        let last_modified = whole_seconds(modified.min(now));
        let strong_from = last_modified.and_then(|sent| sent.checked_add(Duration::from_secs(1)));
        Validators {
            etag,
            last_modified,
            date_is_strong: strong_from.is_some_and(|from| from <= now),
        }
    }
}

/// `time` cut to the second, if an HTTP-date can say it: from 1970 to the end of 9999.
pub(super) fn whole_seconds(time: SystemTime) -> Option<SystemTime> {
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    if seconds > LAST_SECOND {
        return None;
    }
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// 9999-12-31 23:59:59 UTC.
pub(super) const LAST_SECOND: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(list: &str) -> Vec<(bool, &str)> {
        EntityTags { rest: list.as_bytes() }
            .map(|tag| (tag.weak, str::from_utf8(tag.opaque).unwrap()))
            .collect()
    }

    #[test]
    fn lists_of_entity_tags() {
        assert_eq!(tags(r#""a""#), [(false, r#""a""#)]);
        assert_eq!(
            tags(r#" , "a" ,W/"b",, "c,d" ,"#),
            [(false, r#""a""#), (true, r#""b""#), (false, r#""c,d""#)]
        );
        assert_eq!(tags(r#""""#), [(false, r#""""#)]);
    }

    #[test]
    fn lists_end_at_what_is_no_entity_tag() {
        for list in
            ["", " , ", "a", "\"a", "W/a", "w/\"a\"", "\"a b\"", "\"a\"x", "*", "\"a\" \"b\""]
        {
            assert_eq!(tags(list), [], "{list}");
        }
        assert_eq!(tags(r#""a", b, "c""#), [(false, r#""a""#)]);
    }

    #[test]
    fn comparison_table_of_rfc_9110_8_8_3_2() {
        let tag = |weak, opaque: &'static str| EntityTag { weak, opaque: opaque.as_bytes() };
        for (etag, other, strong, weak) in [
            (r#"W/"1""#, tag(true, r#""1""#), false, true),
            (r#"W/"1""#, tag(true, r#""2""#), false, false),
            (r#"W/"1""#, tag(false, r#""1""#), false, true),
            (r#""1""#, tag(false, r#""1""#), true, true),
        ] {
            assert_eq!(other.matches_strongly(etag), strong, "{etag}");
            assert_eq!(other.matches_weakly(etag), weak, "{etag}");
        }
    }

    #[test]
    fn dates_that_cannot_be_said_are_not() {
        let after = UNIX_EPOCH + Duration::from_secs(LAST_SECOND + 1);
        let before = UNIX_EPOCH - Duration::from_nanos(1);
        for modified in [after, before] {
            let validators = Validators::new("\"x\"", modified, after);
            assert_eq!((validators.last_modified, validators.date_is_strong), (None, false));
        }
    }
}
