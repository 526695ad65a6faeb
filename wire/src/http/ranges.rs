// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects byte ranges of a file by the Range field.
//!
//! A set of ranges can request a file many times over, or each of its bytes in a part of its own.
//! So overlapping ranges are always merged (an answer is never longer than the file, part headers
//! aside), many ranges are also merged across gaps that cost less than a part header, and a set of
//! more than [`RANGES_MAX`] is ignored, which answers with the whole file. A few ranges are
//! answered one by one in the requested order, since simple clients rely on that.
//!
//! Sources: RFC 9110 §14.1.1, §14.1.2 (grammar), §14.2 (Range), §15.3.7.2 (merging and order of
//! parts), §17.15 (denial of service).

/// The bytes from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteRange {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl ByteRange {
    pub(super) fn bytes(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Bytes of a file that a Range field selects.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RangeSelection {
    /// Another unit, a broken set or too large a set: the field is ignored.
    Whole,
    /// Ranges that do not overlap, in the requested order; at least one.
    Ranges(Vec<ByteRange>),
    /// No range overlaps the file.
    Unsatisfiable,
}

/// Reads `field` for a file of `bytes`.
pub(super) fn select(field: &[u8], bytes: u64) -> RangeSelection {
    match parse(field, bytes) {
        None => RangeSelection::Whole,
        Some(RangeSet { spans, .. }) if !spans.is_empty() => RangeSelection::Ranges(merged(spans)),
        // A suffix of an empty file is the empty file, for which there is no Content-Range.
        Some(RangeSet { empty_suffix: true, .. }) => RangeSelection::Whole,
        Some(_) => RangeSelection::Unsatisfiable,
    }
}

/// A valid set of ranges.
struct RangeSet {
    /// The satisfiable ones.
    spans: Vec<ByteRange>,
    /// A suffix of an empty file was among them.
    empty_suffix: bool,
}

/// The set in `field`; none if the unit is not bytes, the set is broken or has too many ranges.
fn parse(field: &[u8], bytes: u64) -> Option<RangeSet> {
    let equals = field.iter().position(|&byte| byte == b'=')?;
    let (unit, list) = (&field[..equals], &field[equals + 1..]);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut set = RangeSet { spans: Vec::new(), empty_suffix: false };
    let mut count = 0;
    for spec in list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        if spec.is_empty() {
            continue;
        }
        count += 1;
        if count > RANGES_MAX {
            return None;
        }
        let dash = spec.iter().position(|&byte| byte == b'-')?;
        match (number(&spec[..dash])?, number(&spec[dash + 1..])?) {
            (None, None) => return None,
            (None, Some(0)) => {}
            (None, Some(_)) if bytes == 0 => set.empty_suffix = true,
            (None, Some(suffix)) => {
                set.spans.push(ByteRange { first: bytes.saturating_sub(suffix), last: bytes - 1 });
            }
            (Some(first), Some(last)) if last < first => return None,
            (Some(first), _) if first >= bytes => {}
            (Some(first), last) => {
                let last = last.unwrap_or(u64::MAX).min(bytes - 1);
                set.spans.push(ByteRange { first, last });
            }
        }
    }
    (count > 0).then_some(set)
}

/// Parses a position: the inner option is `None` if it is omitted, the outer one if it is not a
/// number. More than 64 bits are past the end of any file, and so is the largest number.
fn number(digits: &[u8]) -> Option<Option<u64>> {
    if digits.is_empty() {
        return Some(None);
    }
    let mut value = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    }
    Some(Some(value))
}

/// Merges ranges that overlap, and those that nearly touch if there are many. A merged range has
/// the place of its first member.
fn merged(spans: Vec<ByteRange>) -> Vec<ByteRange> {
    if spans.len() == 1 {
        return spans;
    }
    let gap_bytes = if spans.len() > RANGES_FEW { GAP_BYTES_MAX } else { 0 };
    let mut by_first: Vec<(usize, ByteRange)> = spans.into_iter().enumerate().collect();
    by_first.sort_unstable_by_key(|(place, span)| (span.first, *place));
    let mut groups: Vec<(usize, ByteRange)> = Vec::with_capacity(by_first.len());
    for (place, span) in by_first {
        match groups.last_mut() {
            // With no gap allowed only a shared byte joins two ranges: `last` is included.
            Some((first_place, group)) if span.first <= group.last.saturating_add(gap_bytes) => {
                group.last = group.last.max(span.last);
                *first_place = place.min(*first_place);
            }
            _ => groups.push((place, span)),
        }
    }
    groups.sort_unstable_by_key(|(place, _)| *place);
    groups.into_iter().map(|(_, span)| span).collect()
}

/// Ranges in one field; more are ignored. Players and PDF readers ask for a handful.
pub(super) const RANGES_MAX: usize = 100;
/// Largest number of ranges of which only overlapping ones are merged.
const RANGES_FEW: usize = 8;
/// About what a part's header costs (RFC 9110 §15.3.7.2).
const GAP_BYTES_MAX: u64 = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(field: &str, bytes: u64) -> Vec<(u64, u64)> {
        match select(field.as_bytes(), bytes) {
            RangeSelection::Ranges(spans) => {
                spans.iter().map(|span| (span.first, span.last)).collect()
            }
            other => panic!("{field} of {bytes}: {other:?}"),
        }
    }

    #[test]
    fn examples_of_rfc_9110_14_1_2() {
        assert_eq!(spans("bytes=0-499", 10000), [(0, 499)]);
        assert_eq!(spans("bytes=500-999", 10000), [(500, 999)]);
        assert_eq!(spans("bytes=-500", 10000), [(9500, 9999)]);
        assert_eq!(spans("bytes=9500-", 10000), [(9500, 9999)]);
        assert_eq!(spans("bytes=0-0,-1", 10000), [(0, 0), (9999, 9999)]);
        assert_eq!(
            spans("bytes= 0-999, 4500-5499, -1000", 10000),
            [(0, 999), (4500, 5499), (9000, 9999)]
        );
        assert_eq!(spans("bytes=500-700,601-999", 10000), [(500, 999)]);
    }

    #[test]
    fn ends_are_cut_to_the_file() {
        assert_eq!(spans("bytes=5-1000", 10), [(5, 9)]);
        assert_eq!(spans("bytes=-1000", 10), [(0, 9)]);
        assert_eq!(spans("Bytes=0-99999999999999999999999", 10), [(0, 9)]);
        assert_eq!(spans("bytes=-99999999999999999999999", 10), [(0, 9)]);
        assert_eq!(spans("bytes=9-9,10-,20-30", 10), [(9, 9)]);
        assert_eq!(spans("bytes=0-,,", u64::MAX), [(0, u64::MAX - 1)]);
    }

    #[test]
    fn nothing_in_the_file_is_unsatisfiable() {
        for (field, bytes) in [
            ("bytes=10-", 10),
            ("bytes=10-20,30-", 10),
            ("bytes=-0", 10),
            ("bytes=0-", 0),
            ("bytes=99999999999999999999999-", u64::MAX),
        ] {
            assert_eq!(select(field.as_bytes(), bytes), RangeSelection::Unsatisfiable, "{field}");
        }
    }

    #[test]
    fn what_is_no_set_of_byte_ranges_is_ignored() {
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=1",
            "bytes=5-4",
            "bytes=0-1,5-4",
            "bytes=1-2-3",
            "bytes=--1",
            "bytes=+1-2",
            "items=0-1",
            "bytes =0-1",
            "bytes=0 -1",
            "bytes=0-1;2-3",
            "bytes=0-1, bytes=2-3",
        ] {
            assert_eq!(select(field.as_bytes(), 10), RangeSelection::Whole, "{field}");
        }
        assert_eq!(select(b"bytes=-5", 0), RangeSelection::Whole);
    }

    #[test]
    fn a_few_ranges_stay_apart_unless_they_overlap() {
        assert_eq!(spans("bytes=0-9,10-19,30-39", 100), [(0, 9), (10, 19), (30, 39)]);
        assert_eq!(spans("bytes=30-39,0-9,35-50", 100), [(30, 50), (0, 9)]);
        assert_eq!(spans("bytes=30-39,60-69,0-9,5-35", 100), [(0, 39), (60, 69)]);
        assert_eq!(spans("bytes=90-,0-9,5-95", 100), [(0, 99)]);
        assert_eq!(spans("bytes=5-5,5-5,5-5", 100), [(5, 5)]);
    }

    #[test]
    fn many_ranges_merge_across_small_gaps() {
        let set: Vec<String> = (0..50).map(|n| format!("{0}-{0}", n * 2)).collect();
        assert_eq!(spans(&format!("bytes={}", set.join(",")), 1000), [(0, 98)]);
        let far: Vec<String> = (0..50).map(|n| format!("{0}-{0}", n * 100)).collect();
        assert_eq!(spans(&format!("bytes={}", far.join(",")), 10_000).len(), 50);
    }

    #[test]
    fn too_many_ranges_are_ignored() {
        let set = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert_eq!(spans(&set(RANGES_MAX), 10), [(0, 0)]);
        assert_eq!(select(set(RANGES_MAX + 1).as_bytes(), 10), RangeSelection::Whole);
    }
}
