// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements of EBML: identifier, size and place, read a little at a time.
//!
//! Reads use a window of [`WINDOW_BYTES`], so the headers of neighbouring elements cost one read.
//! The window holds no media, except bytes that happen to follow a header.
//!
//! Sources: RFC 8794 §4 (variable-size integers), §5 (identifiers), §6 (sizes).
//! Does not interpret elements.

use std::cell::RefCell;
use std::io;

use crate::read_at::ReadAt;

/// An element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    /// Its identifier, marker bits included, as the specifications print it.
    pub(super) id: u32,
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// Offset of its content.
    pub(super) body: u64,
    /// Offset after its content; `None` if its size is unknown (a live stream's).
    pub(super) end: Option<u64>,
}

impl Element {
    /// The element, if it ends at `limit` at the latest.
    pub(super) fn within(self, limit: u64) -> Result<Element, NoElement> {
        match self.end.is_some_and(|end| end > limit) {
            true => {
                let what = "an element that ends past the one around it";
                Err(NoElement::Broken { offset: self.offset, what })
            }
            false => Ok(self),
        }
    }
}

/// Reason for the absence of an element.
#[derive(Debug)]
pub(super) enum NoElement {
    /// The bytes at `offset` are not an element.
    Broken {
        offset: u64,
        what: &'static str,
    },
    Unreadable(io::Error),
}

impl From<io::Error> for NoElement {
    fn from(error: io::Error) -> NoElement {
        NoElement::Unreadable(error)
    }
}

/// Reads of a file through a window.
pub(super) struct Window<'a, F: ReadAt + ?Sized> {
    file: &'a F,
    file_bytes: u64,
    buffer: RefCell<Buffer>,
}

#[derive(Default)]
struct Buffer {
    offset: u64,
    bytes: Vec<u8>,
}

impl<'a, F: ReadAt + ?Sized> Window<'a, F> {
    pub(super) fn new(file: &'a F, file_bytes: u64) -> Window<'a, F> {
        Window { file, file_bytes, buffer: RefCell::default() }
    }

    /// Returns up to `N` bytes from `offset` on and their number; fewer at the end of the file.
    pub(super) fn bytes<const N: usize>(&self, offset: u64) -> io::Result<([u8; N], usize)> {
        let there = self.file_bytes.saturating_sub(offset).min(N as u64) as usize;
        let mut out = [0; N];
        let mut buffer = self.buffer.borrow_mut();
        let end = buffer.offset + buffer.bytes.len() as u64;
        if offset < buffer.offset || offset + there as u64 > end {
            let count = (self.file_bytes - offset.min(self.file_bytes)).min(WINDOW_BYTES as u64);
            // On an error the old bytes are discarded, so nothing wrong is found in them.
            buffer.bytes.clear();
            let mut bytes = std::mem::take(&mut buffer.bytes);
            bytes.resize(count as usize, 0);
            self.file.read_exact_at(&mut bytes, offset)?;
            *buffer = Buffer { offset, bytes };
        }
        let from = (offset - buffer.offset) as usize;
        out[..there].copy_from_slice(&buffer.bytes[from..from + there]);
        Ok((out, there))
    }

    /// Reads all of an element's content, of at most `limit` bytes.
    pub(super) fn content(&self, element: &Element, limit: u64) -> Result<Vec<u8>, NoElement> {
        let broken = |what| NoElement::Broken { offset: element.offset, what };
        let end = element.end.ok_or_else(|| broken("an element of unknown size"))?;
        let bytes = end - element.body;
        if bytes > limit {
            return Err(broken("an element larger than it can be"));
        }
        let mut content = vec![0; bytes as usize];
        self.file.read_exact_at(&mut content, element.body)?;
        Ok(content)
    }

    /// Reads the header of the element at `offset`, which ends at `limit` at the latest.
    pub(super) fn element(&self, offset: u64, limit: u64) -> Result<Element, NoElement> {
        self.header(offset)?.within(limit)
    }

    /// Reads the header of the element at `offset`. By its size it may end past the file.
    pub(super) fn header(&self, offset: u64) -> Result<Element, NoElement> {
        let broken = |what| NoElement::Broken { offset, what };
        let (bytes, count) = self.bytes::<12>(offset)?;
        let header = &bytes[..count];
        let id_bytes = header.first().map_or(9, |first| first.leading_zeros() as usize + 1);
        if id_bytes > 4 || id_bytes > count {
            return Err(broken("no element's identifier"));
        }
        let id = header[..id_bytes].iter().fold(0, |id, &byte| id << 8 | u32::from(byte));
        let Some((size, size_bytes)) = number(&header[id_bytes..]) else {
            return Err(broken("no element's size"));
        };
        let body = offset + (id_bytes + size_bytes) as u64;
        let is_unknown = size == unknown(size_bytes);
        let end = match is_unknown {
            true => None,
            false => Some(body.saturating_add(size)),
        };
        Ok(Element { id, offset, body, end })
    }
}

/// Reads a variable-size integer without its marker; its value and bytes.
pub(super) fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let count = first.leading_zeros() as usize + 1;
    if count > 8 {
        return None;
    }
    let rest = bytes.get(1..count)?;
    let marked = u64::from(first) & (0x7f >> (count - 1));
    Some((rest.iter().fold(marked, |value, &byte| value << 8 | u64::from(byte)), count))
}

/// Returns the value of an unknown size of this many bytes: all ones.
const fn unknown(bytes: usize) -> u64 {
    (1 << (7 * bytes)) - 1
}

/// Elements within a content that is in memory; ends at the first that is broken.
pub(super) fn children(content: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut rest = content;
    std::iter::from_fn(move || {
        let id_bytes = rest.first()?.leading_zeros() as usize + 1;
        let id = rest.get(..id_bytes).filter(|_| id_bytes <= 4)?;
        let id = id.iter().fold(0, |id, &byte| id << 8 | u32::from(byte));
        let (size, size_bytes) = number(&rest[id_bytes..])?;
        let body = &rest[id_bytes + size_bytes..];
        let size = usize::try_from(size).ok().filter(|&size| size <= body.len())?;
        rest = &body[size..];
        Some((id, &body[..size]))
    })
}

/// An unsigned integer of up to eight bytes.
pub(super) fn unsigned(content: &[u8]) -> Option<u64> {
    let fits = content.len() <= 8;
    fits.then(|| content.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

/// A floating-point number of four or eight bytes.
pub(super) fn float(content: &[u8]) -> Option<f64> {
    match content.len() {
        4 => Some(f64::from(f32::from_be_bytes(content.try_into().ok()?))),
        8 => Some(f64::from_be_bytes(content.try_into().ok()?)),
        _ => None,
    }
}

/// Bytes of a read: headers of a cluster's small blocks are near each other.
const WINDOW_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read() {
        // RFC 8794 §4.4: the number 2 in one to four bytes.
        let examples: [&[u8]; 4] = [&[0x82], &[0x40, 2], &[0x20, 0, 2], &[0x10, 0, 0, 2]];
        for bytes in examples {
            assert_eq!(number(bytes), Some((2, bytes.len())));
        }
        assert_eq!(number(&[0x01, 0, 0, 0, 0, 0, 0, 7]), Some((7, 8)));
        assert_eq!(number(&[0x00, 1, 2, 3, 4, 5, 6, 7, 8]), None, "more than eight bytes");
        assert_eq!(number(&[0x40]), None, "cut off");
        assert_eq!(number(&[0xff]), Some((unknown(1), 1)));
    }

    #[test]
    fn elements_have_their_places() {
        // An EBML header (0x1A45DFA3) of three bytes, then one of unknown size.
        let file = vec![0x1a, 0x45, 0xdf, 0xa3, 0x83, 1, 2, 3, 0xec, 0xff, 9];
        let window = Window::new(&file, file.len() as u64);
        let first = window.element(0, 11).unwrap();
        assert_eq!(first, Element { id: 0x1a45_dfa3, offset: 0, body: 5, end: Some(8) });
        assert_eq!(window.content(&first, 3).unwrap(), [1, 2, 3]);
        assert!(window.content(&first, 2).is_err(), "more than the limit");
        let second = window.element(8, 11).unwrap();
        assert_eq!(second, Element { id: 0xec, offset: 8, body: 10, end: None });
        assert!(window.element(0, 7).is_err(), "ends past the limit");
        assert!(window.element(11, 11).is_err(), "nothing there");
        assert_eq!(children(&file).next(), Some((0x1a45_dfa3, &[1, 2, 3][..])));
    }
}
