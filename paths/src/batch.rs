// SPDX-License-Identifier: MIT OR Apache-2.0
//! A batch: a run of datagrams of one asset to one destination, sent together.
//!
//! A batch borrows all data that it names, so making one allocates nothing. In *gathered* form a
//! datagram is a header from memory and a payload from the file; in *image* form the file holds the
//! datagrams as they are sent and the batch is one range of it. All datagrams have `segment_bytes`
//! but the last, which may be shorter: UDP segmentation requires it, and the segment runs of a plan
//! comply with it.
//!
//! Sources: `udp(7)`, `UDP_SEGMENT`.
//!
//! Does not interpret headers; any bytes, such as 12 of RTP, serve as one.

use crate::departure::Departure;
use crate::mapped_file::MappedFile;

/// The most payload a UDP datagram over IPv4 can have: 65,535 less the IP and UDP headers.
pub(crate) const DATAGRAM_BYTES_MAX: u32 = 65_507;

/// A range of the file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its start, in bytes from the file's start.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Datagrams to send. Fields are public for reading; [`Batch::gathered`] and [`Batch::image`] make
/// one.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Number of datagrams; 0 is an empty batch.
    pub packets: u32,
    /// Bytes of each datagram, header included; the last may be shorter.
    pub segment_bytes: u32,
    /// Bytes of all datagrams.
    pub bytes: u64,
    /// The location of the bytes.
    pub form: BatchForm<'a>,
    /// Time at which the batch is to leave the host; `None` sends at once. Paths that carry
    /// departure times ([`crate::StreamPath::carries_departures`]) use it for a destination that
    /// has a queue for them ([`crate::Destination::use_departures`]); other paths send at once.
    pub departure: Option<Departure>,
}

/// The location of a batch's bytes.
#[derive(Clone, Copy, Debug)]
pub enum BatchForm<'a> {
    /// Headers in memory, payloads in the file.
    Gathered {
        /// The file with the payloads.
        source: &'a MappedFile,
        /// The headers, one after the other, all of one size.
        heads: &'a [u8],
        /// The payloads, one after the other: the payload of each packet begins where that of the
        /// packet before ended, so one piece may serve many packets and a packet may need several.
        pieces: &'a [Piece],
    },
    /// Datagrams one after the other in the file, headers and all.
    Image {
        /// The wire image.
        source: &'a MappedFile,
        /// Offset of the first datagram in it.
        offset: u64,
    },
}

impl<'a> Batch<'a> {
    /// Returns a batch of `packets` datagrams from `heads` (equal shares) and `pieces`.
    ///
    /// # Panics
    /// When the headers cannot be shared out evenly, or the bytes do not fill `packets` datagrams.
    pub fn gathered(
        source: &'a MappedFile,
        packets: u32,
        segment_bytes: u32,
        heads: &'a [u8],
        pieces: &'a [Piece],
    ) -> Self {
        let payload_bytes = pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.bytes));
        let bytes = payload_bytes.saturating_add(heads.len() as u64);
        let form = BatchForm::Gathered { source, heads, pieces };
        let batch = Self { packets, segment_bytes, bytes, form, departure: None };
        batch.assert_sound();
        batch
    }

    /// Returns a batch of `packets` datagrams that lie in `source` from `offset` on, `bytes` in
    /// all.
    ///
    /// # Panics
    /// When `bytes` do not fill `packets` datagrams.
    pub fn image(
        source: &'a MappedFile,
        packets: u32,
        segment_bytes: u32,
        offset: u64,
        bytes: u64,
    ) -> Self {
        let form = BatchForm::Image { source, offset };
        let batch = Self { packets, segment_bytes, bytes, form, departure: None };
        batch.assert_sound();
        batch
    }

    /// Sets the departure time of the whole batch. The kernel's queue treats a call of several
    /// packets as one packet, whose segments leave back to back.
    #[must_use]
    pub fn departing(mut self, at: Departure) -> Self {
        self.departure = Some(at);
        self
    }

    /// Returns the number of bytes of `packets` datagrams from number `first` on.
    pub(crate) fn run_bytes(&self, first: u32, packets: u32) -> u64 {
        let start = u64::from(first) * u64::from(self.segment_bytes);
        let end = (start + u64::from(packets) * u64::from(self.segment_bytes)).min(self.bytes);
        end.saturating_sub(start)
    }

    /// Checks that the numbers are consistent; every later step relies on it.
    pub(crate) fn assert_sound(&self) {
        let segment_bytes = u64::from(self.segment_bytes);
        if self.packets == 0 {
            assert!(self.bytes == 0, "an empty batch has no bytes");
            return;
        }
        assert!(
            (1..=DATAGRAM_BYTES_MAX).contains(&self.segment_bytes),
            "a datagram has 1 to {DATAGRAM_BYTES_MAX} bytes"
        );
        let full = u64::from(self.packets - 1) * segment_bytes;
        assert!(full < self.bytes, "the last datagram is not empty");
        assert!(self.bytes <= full + segment_bytes, "the last datagram is no longer than the rest");
        if let BatchForm::Gathered { heads, .. } = self.form {
            let packets = self.packets as usize;
            assert!(heads.len().is_multiple_of(packets), "headers are of one size");
            let head_bytes = (heads.len() / packets) as u64;
            assert!(head_bytes <= self.bytes - full, "the last header fits its datagram");
        }
    }
}

/// Position of a cursor, valid beyond the borrow of its pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CursorPosition {
    piece: usize,
    used: u64,
}

/// Position of the next payload in a batch's pieces. Small and `Copy`: a repeated call starts again
/// from the copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    pieces: &'a [Piece],
    /// Bytes of the first piece that have been consumed.
    used: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(pieces: &'a [Piece]) -> Self {
        Self { pieces, used: 0 }
    }

    /// Continues in `pieces` at a position from [`Cursor::mark`].
    pub(crate) fn at(pieces: &'a [Piece], mark: CursorPosition) -> Self {
        Self { pieces: &pieces[mark.piece..], used: mark.used }
    }

    /// Returns its position in `pieces`, from which it was made.
    pub(crate) fn mark(&self, pieces: &[Piece]) -> CursorPosition {
        CursorPosition { piece: pieces.len() - self.pieces.len(), used: self.used }
    }

    /// Returns the next piece of at most `bytes` bytes; never empty.
    ///
    /// # Panics
    /// When the pieces are exhausted: the batch was not sound.
    pub(crate) fn next(&mut self, bytes: u64) -> Piece {
        loop {
            let (piece, rest) = self.pieces.split_first().expect("pieces hold every payload");
            let left = piece.bytes - self.used;
            if left == 0 {
                *self = Self::new(rest);
                continue;
            }
            let piece_bytes = left.min(bytes);
            let offset = piece.offset.saturating_add(self.used);
            self.used += piece_bytes;
            return Piece { offset, bytes: piece_bytes };
        }
    }

    /// Calls `each` with the ranges of the next `bytes` bytes.
    pub(crate) fn take(&mut self, bytes: u64, mut each: impl FnMut(Piece)) {
        let mut left = bytes;
        while left > 0 {
            let piece = self.next(left);
            left -= piece.bytes;
            each(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(list: &[(u64, u64)]) -> Vec<Piece> {
        list.iter().map(|&(offset, bytes)| Piece { offset, bytes }).collect()
    }

    #[test]
    fn a_cursor_cuts_and_joins_pieces() {
        let list = pieces(&[(10, 4), (50, 0), (100, 3), (7, 1)]);
        let mut cursor = Cursor::new(&list);
        let mut seen = Vec::new();
        for bytes in [2, 4, 0, 2] {
            cursor.take(bytes, |piece| seen.push((piece.offset, piece.bytes)));
        }
        assert_eq!(seen, [(10, 2), (12, 2), (100, 2), (102, 1), (7, 1)]);
    }

    #[test]
    fn a_cursor_goes_on_at_its_mark() {
        let list = pieces(&[(10, 4), (50, 0), (100, 3)]);
        for bytes in 0..7 {
            let mut cursor = Cursor::new(&list);
            cursor.take(bytes, |_| ());
            let mut again = Cursor::at(&list, cursor.mark(&list));
            assert_eq!(again.next(1), cursor.next(1), "after {bytes}");
        }
    }

    #[test]
    #[should_panic(expected = "pieces hold every payload")]
    fn a_cursor_past_its_pieces_is_our_own_mistake() {
        Cursor::new(&[]).take(1, |_| ());
    }
}
