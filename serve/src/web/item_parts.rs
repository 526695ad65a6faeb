// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a playlist or segment, and the file ranges behind them.
//!
//! The bytes are shared by all answers that have them: an answer is no copy.
//!
//! Sources: RFC 9110 §14 (ranges).
//! Does not make them.

use std::ops::Range;

use bytes::Bytes;
use media::cmaf::SegmentParts;
use wire::http::Part;

/// Parts of an item as they are sent: bytes, then ranges of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ItemParts {
    /// A text, or the boxes and tables before the media.
    pub(super) head: Bytes,
    /// Ranges of the file; none is empty.
    pub(super) ranges: Vec<Range<u64>>,
}

impl ItemParts {
    /// Returns those of a text.
    pub(super) fn of_text(text: impl Into<Bytes>) -> ItemParts {
        ItemParts { head: text.into(), ranges: Vec::new() }
    }

    /// Returns those of a whole file.
    pub(super) fn of_file(bytes: u64) -> ItemParts {
        let whole = 0..bytes;
        ItemParts { head: Bytes::new(), ranges: vec![whole] }
    }

    /// Returns their length.
    pub(super) fn bytes(&self) -> u64 {
        let media = self.ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        self.head.len() as u64 + media
    }

    /// Puts these parts in the place of the requested ranges of the item.
    pub(super) fn placed(&self, asked: Vec<Part>) -> Vec<Part> {
        let mut placed = Vec::with_capacity(asked.len() + self.ranges.len());
        let head = self.head.len() as u64;
        for part in asked {
            let Part::File { offset, bytes } = part else {
                placed.push(part);
                continue;
            };
            let (mut at, end) = (offset, offset + bytes);
            if at < head {
                let until = end.min(head);
                placed.push(Part::Bytes(self.head.slice(at as usize..until as usize)));
                at = until;
            }
            let mut before = head;
            for range in &self.ranges {
                let behind = before + (range.end - range.start);
                if at < behind && at < end {
                    let until = end.min(behind);
                    let offset = range.start + (at - before);
                    placed.push(Part::File { offset, bytes: until - at });
                    at = until;
                }
                before = behind;
            }
        }
        placed
    }
}

impl From<SegmentParts> for ItemParts {
    fn from(parts: SegmentParts) -> ItemParts {
        ItemParts { head: parts.head.into_boxed_slice().into(), ranges: parts.ranges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_an_item_are_its_bytes_and_those_of_the_file() {
        let item =
            ItemParts { head: Bytes::from_static(b"0123456789"), ranges: vec![100..105, 200..300] };
        let file = |offset, bytes| Part::File { offset, bytes };
        let bytes = |text: &'static [u8]| Part::Bytes(Bytes::from_static(text));
        for (asked, expected) in [
            (file(0, 115), vec![bytes(b"0123456789"), file(100, 5), file(200, 100)]),
            (file(2, 3), vec![bytes(b"234")]),
            (file(9, 2), vec![bytes(b"9"), file(100, 1)]),
            (file(10, 5), vec![file(100, 5)]),
            (file(12, 4), vec![file(102, 3), file(200, 1)]),
            (file(15, 1), vec![file(200, 1)]),
            (file(114, 1), vec![file(299, 1)]),
        ] {
            assert_eq!(item.placed(vec![asked.clone()]), expected, "{asked:?}");
        }
        let text = bytes(b"--boundary");
        let asked = vec![text.clone(), file(0, 1), text.clone()];
        assert_eq!(item.placed(asked), [text.clone(), bytes(b"0"), text]);
    }

    #[test]
    fn an_answer_shares_the_bytes_of_the_item() {
        let item = ItemParts::of_text(b"#EXTM3U".to_vec());
        let placed = item.placed(vec![Part::File { offset: 0, bytes: 7 }]);
        let [Part::Bytes(text)] = &placed[..] else { panic!("{placed:?}") };
        assert_eq!(text.as_ptr(), item.head.as_ptr());
    }
}
