// SPDX-License-Identifier: MIT OR Apache-2.0
//! One gzip member made of rows compressed once and live text stored around them.
//!
//! Deflate blocks that end at a byte can be concatenated. So the text above the rows is a stored
//! block, the compressed rows end with a flush, and the text below is the last stored block; the
//! checksum of the whole is computed from those of the parts. An answer then costs no compression,
//! and all clients share the compressed rows. Two consecutive members would be simpler, but some
//! browsers read only the first.
//!
//! Sources: RFC 1952 §2.3 (member), RFC 1951 §3.2.4 (stored blocks), §3.2.3 (block header).

use std::io::{self, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// Compressed rows: deflate blocks, none marked as the last.
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    crc: Crc,
}

impl Packed {
    pub(super) fn new<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<Packed> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let mut crc = Crc::new();
        for piece in pieces {
            encoder.write_all(piece)?;
            crc.update(piece);
        }
        // Ends the block, and aligns to a byte with an empty stored block.
        encoder.flush()?;
        Ok(Packed { bytes: encoder.get_ref().clone(), crc })
    }

    /// Returns the bytes before the compressed rows and those after them.
    pub(super) fn around(&self, above: &[u8], below: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut before = HEADER.to_vec();
        push_stored(&mut before, above, false);
        let mut after = Vec::new();
        push_stored(&mut after, below, true);
        let (mut crc, mut last) = (Crc::new(), Crc::new());
        crc.update(above);
        last.update(below);
        crc.combine(&self.crc);
        crc.combine(&last);
        after.extend_from_slice(&crc.sum().to_le_bytes());
        after.extend_from_slice(&crc.amount().to_le_bytes());
        (before, after)
    }
}

/// Appends `text` in stored blocks; `is_last` ends the deflate stream.
fn push_stored(target: &mut Vec<u8>, text: &[u8], is_last: bool) {
    let mut chunks = text.chunks(usize::from(u16::MAX)).peekable();
    if chunks.peek().is_none() && is_last {
        target.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    }
    while let Some(chunk) = chunks.next() {
        let length = chunk.len() as u16;
        target.push(u8::from(is_last && chunks.peek().is_none()));
        target.extend_from_slice(&length.to_le_bytes());
        target.extend_from_slice(&(!length).to_le_bytes());
        target.extend_from_slice(chunk);
    }
}

/// Gzip header: deflate, no flags, no time, no compression hint, Unix.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn parts_are_one_member_that_inflates_to_the_whole() {
        let rows = "a row like all others\n".repeat(20_000).into_bytes();
        for above in [0, 1, 700, 65_535, 65_536, 200_000] {
            for (rows, below) in [(&rows[..], 0), (&rows[..], 70_000), (&[][..], 3)] {
                let (above, below) = (vec![b'a'; above], vec![b'z'; below]);
                let packed = Packed::new(rows.chunks(777)).unwrap();
                assert!(packed.bytes.len() < 5000, "{}", packed.bytes.len());
                let (before, after) = packed.around(&above, &below);
                let sent = [&before, &packed.bytes, &after].map(Vec::as_slice).concat();
                let mut read = Vec::new();
                // `bufread::GzDecoder` reads one member with its checksum, and nothing after it.
                let mut decoder = flate2::bufread::GzDecoder::new(&sent[..]);
                decoder.read_to_end(&mut read).unwrap();
                assert!(read == [&above, rows, &below].concat());
                assert!(decoder.into_inner().is_empty());
            }
        }
    }
}
