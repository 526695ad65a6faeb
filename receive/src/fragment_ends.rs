// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds where whole fragments end in a file of fragmented MP4, as it is written.
//!
//! A file that ends there is whole: behind `moov`, or behind the `mdat` of a fragment. Only the
//! headers of boxes are read; `media::mux` writes them with 32-bit sizes. Costs a few instructions
//! a box.
//!
//! Sources: ISO/IEC 14496-12 §4.2 (boxes).
//! Does not check what is in boxes.

/// The position in a file.
#[derive(Debug, Default)]
pub(crate) struct FragmentEnds {
    /// Bytes of the file.
    bytes: u64,
    /// Header of the box that is being written.
    header: Vec<u8>,
    /// Bytes of that box behind its header.
    rest: u64,
    whole: u64,
    has_fragment: bool,
}

impl FragmentEnds {
    /// Reads the next bytes of the file.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.header.len() < HEADER_BYTES {
                let (head, behind) = bytes.split_at(bytes.len().min(self.missing()));
                self.header.extend_from_slice(head);
                self.bytes += head.len() as u64;
                bytes = behind;
                if self.header.len() < HEADER_BYTES {
                    return;
                }
                let size = u32::from_be_bytes(self.header[..4].try_into().expect("four bytes"));
                self.rest = u64::from(size).saturating_sub(HEADER_BYTES as u64);
            }
            let inside = self.rest.min(bytes.len() as u64);
            bytes = &bytes[inside as usize..];
            self.bytes += inside;
            self.rest -= inside;
            if self.rest == 0 {
                if matches!(&self.header[4..], b"moov" | b"mdat") {
                    self.whole = self.bytes;
                    self.has_fragment |= self.header[4..] == *b"mdat";
                }
                self.header.clear();
            }
        }
    }

    /// Length of the file up to the end of its last whole fragment.
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.whole
    }

    /// True if a whole fragment was fed, besides `moov`.
    pub(crate) fn has_fragment(&self) -> bool {
        self.has_fragment
    }

    /// Bytes behind that end.
    pub(crate) fn unfinished_bytes(&self) -> u64 {
        self.bytes - self.whole
    }

    fn missing(&self) -> usize {
        HEADER_BYTES - self.header.len()
    }
}

const HEADER_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(kind: &[u8; 4], bytes: usize) -> Vec<u8> {
        let size = (HEADER_BYTES + bytes) as u32;
        [&size.to_be_bytes()[..], kind, &vec![7; bytes]].concat()
    }

    #[test]
    fn ends_are_behind_moov_and_each_mdat_however_the_bytes_arrive() {
        let parts =
            [boxed(b"ftyp", 12), boxed(b"moov", 300), boxed(b"moof", 90), boxed(b"mdat", 0)];
        let more = [boxed(b"moof", 90), boxed(b"mdat", 5000)];
        let file = [parts.concat(), more.concat()].concat();
        let ends = [(0, 0), (20, 20 + 308), (328, 328 + 106), (434, file.len())];
        for step in [1, 3, 7, 8, 4096, file.len()] {
            let mut found = FragmentEnds::default();
            let mut at = 0;
            for piece in file.chunks(step) {
                found.feed(piece);
                at += piece.len();
                let whole = ends.iter().map(|&(_, end)| end).filter(|&end| end <= at).max();
                assert_eq!(found.whole_bytes(), whole.unwrap_or(0) as u64, "{step} {at}");
                assert_eq!(found.has_fragment(), at >= 434);
                assert_eq!(found.whole_bytes() + found.unfinished_bytes(), at as u64);
            }
            assert_eq!(found.whole_bytes(), file.len() as u64);
        }
    }

    #[test]
    fn a_box_smaller_than_its_header_ends_behind_it() {
        let mut found = FragmentEnds::default();
        found.feed(&[0, 0, 0, 0, b'f', b'r', b'e', b'e']);
        found.feed(&boxed(b"mdat", 1));
        assert_eq!(found.whole_bytes(), 17);
    }
}
