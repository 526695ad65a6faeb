// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boxes of an ISO base media file: their headers, and the bodies of small ones.
//!
//! A box is only an offset in the file until its body is read. A box is inside of its container, so
//! no walk leaves the container or goes back; a container has a limited number of boxes. Headers
//! inside of `moov` and `moof` are read through a window of 4 KiB.
//!
//! Sources: ISO/IEC 14496-12 §4.2 (size, largesize, size 0, version and flags).
//! Reads no body that is longer than the caller allows.

use std::cell::{Cell, RefCell};

use mp4_atom::Atom;

use crate::{DemuxError, ReadAt, Refusal};

/// Name of the kind of file in refusals.
pub(super) const CONTAINER: &str = "MP4";

/// Type of a box, or of a sample entry.
pub(super) type FourCode = [u8; 4];

/// Boxes of a container: a film has a few dozen, a fragment a few for each track.
const BOXES_MAX: usize = 1 << 16;

/// Most boxes skipped inside of an outermost box, counted twice if they are searched twice: all
/// tracks of `moov`, or all runs of `moof`. They are read in one pass.
const STEPS_MAX: u32 = 1 << 18;

/// Largest body that a box of fixed fields has.
const SMALL_BYTES_MAX: u64 = 64 << 10;

const HEADER_BYTES: u64 = 8;
const LONG_HEADER_BYTES: u64 = 16;

/// Bytes of version and flags.
pub(super) const FULL_BYTES: u64 = 4;

const WINDOW_BYTES: u64 = 4096;

/// The refusal of a broken structure at `offset`.
pub(super) fn broken(offset: u64, what: impl Into<String>) -> DemuxError {
    Refusal::Broken { container: CONTAINER, offset, what: what.into() }.into()
}

/// The refusal of a box whose size is too small for its header or too large for its container.
fn ill_sized(code: FourCode, start: u64, bytes: u64, left: u64) -> DemuxError {
    broken(start, format!("box {} of {bytes} bytes where {left} are left", spelled(code)))
}

/// The type for messages: characters other than ASCII are escaped.
pub(super) fn spelled(code: FourCode) -> String {
    code.escape_ascii().to_string()
}

/// The file that is read.
pub(super) struct Input<'a> {
    file: &'a dyn ReadAt,
    bytes: u64,
    /// Bytes of the file and the offset of the first.
    window: RefCell<(u64, Vec<u8>)>,
    /// Boxes that were stepped over since the last that is in no other.
    steps: Cell<u32>,
}

/// A file without a static type, for a reader that may have no size.
struct Reader<'a, F: ?Sized>(&'a F);

impl<F: ReadAt + ?Sized> ReadAt for Reader<'_, F> {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }
}

/// Calls `with` with the file as an input.
pub(super) fn with_input<T>(
    file: &(impl ReadAt + ?Sized),
    bytes: u64,
    with: impl FnOnce(&Input<'_>) -> T,
) -> T {
    let (window, steps) = (RefCell::default(), Cell::new(0));
    with(&Input { file: &Reader(file), bytes, window, steps })
}

impl Input<'_> {
    /// Size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `bytes` with the bytes of the file from `offset` on.
    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), DemuxError> {
        Ok(self.file.read_exact_at(bytes, offset)?)
    }

    /// Fills `bytes` through the window, which ends at `end` at the latest.
    fn read_near(&self, bytes: &mut [u8], offset: u64, end: u64) -> Result<(), DemuxError> {
        let wanted = bytes.len() as u64;
        if wanted > WINDOW_BYTES || offset + wanted > end {
            return self.read(bytes, offset);
        }
        let mut window = self.window.borrow_mut();
        let (start, held) = &mut *window;
        let is_held = offset >= *start && offset + wanted <= *start + held.len() as u64;
        if !is_held {
            held.resize(WINDOW_BYTES.min(end - offset) as usize, 0);
            *start = offset;
            if let Err(error) = self.file.read_exact_at(held, offset) {
                held.clear();
                return Err(error.into());
            }
        }
        let at = (offset - *start) as usize;
        bytes.copy_from_slice(&held[at..at + bytes.len()]);
        Ok(())
    }
}

/// Place of a box in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileBox {
    pub(super) code: FourCode,
    /// Offset of the header.
    pub(super) start: u64,
    /// Offset of the body.
    pub(super) body: u64,
    /// Offset after the body; not past the end of the container.
    pub(super) end: u64,
}

impl FileBox {
    /// Returns the outermost box at `start`; `None` if too few bytes for a header are left. Its
    /// body is not read: it may be samples.
    pub(super) fn outermost(input: &Input<'_>, start: u64) -> Result<Option<FileBox>, DemuxError> {
        let found = FileBox::outermost_header(input, start)?;
        found.map(|found| found.within(input.bytes)).transpose()
    }

    /// Like that, for a file that may be truncated: the box may extend past its end.
    pub(super) fn outermost_header(
        input: &Input<'_>,
        start: u64,
    ) -> Result<Option<FileBox>, DemuxError> {
        input.steps.set(0);
        let left = input.bytes.saturating_sub(start);
        let mut header = [0; LONG_HEADER_BYTES as usize];
        if left < HEADER_BYTES {
            return Ok(None);
        }
        let (short, size) = header.split_at_mut(HEADER_BYTES as usize);
        input.read(short, start)?;
        if short.starts_with(&1_u32.to_be_bytes()) && left >= LONG_HEADER_BYTES {
            input.read(size, start + HEADER_BYTES)?;
        }
        FileBox::parse_header(header, start, left).map(Some)
    }

    /// Returns the box at `start` in a container that ends at `end`; `None` if too few bytes for a
    /// header are left, as some writers pad a container with zeros.
    fn at(input: &Input<'_>, start: u64, end: u64) -> Result<Option<FileBox>, DemuxError> {
        let left = end - start;
        if left < HEADER_BYTES {
            return Ok(None);
        }
        let mut header = [0; LONG_HEADER_BYTES as usize];
        input.read_near(&mut header[..left.min(LONG_HEADER_BYTES) as usize], start, end)?;
        FileBox::parse(header, start, left).map(Some)
    }

    /// The box with this header, where `left` bytes are left of its container.
    fn parse(
        header: [u8; LONG_HEADER_BYTES as usize],
        start: u64,
        left: u64,
    ) -> Result<FileBox, DemuxError> {
        FileBox::parse_header(header, start, left)?.within(start + left)
    }

    /// The box, if it ends at `end` at the latest.
    pub(super) fn within(self, end: u64) -> Result<FileBox, DemuxError> {
        match self.end <= end {
            true => Ok(self),
            false => Err(ill_sized(self.code, self.start, self.end - self.start, end - self.start)),
        }
    }

    fn parse_header(
        header: [u8; LONG_HEADER_BYTES as usize],
        start: u64,
        left: u64,
    ) -> Result<FileBox, DemuxError> {
        let [a, b, c, d, code @ .., _, _, _, _, _, _, _, _] = header;
        let (head, bytes) = match u32::from_be_bytes([a, b, c, d]) {
            0 => (HEADER_BYTES, left),
            1 if left < LONG_HEADER_BYTES => {
                let what = format!("box {} without the size that it announces", spelled(code));
                return Err(broken(start, what));
            }
            1 => {
                let [.., e, f, g, h, i, j, k, l] = header;
                (LONG_HEADER_BYTES, u64::from_be_bytes([e, f, g, h, i, j, k, l]))
            }
            bytes => (HEADER_BYTES, bytes.into()),
        };
        if bytes < head {
            return Err(ill_sized(code, start, bytes, left));
        }
        Ok(FileBox { code, start, body: start + head, end: start.saturating_add(bytes) })
    }

    /// Bytes of the body.
    pub(super) fn body_bytes(&self) -> u64 {
        self.end - self.body
    }

    /// Calls `each` with every box inside of this one; returns their number.
    pub(super) fn children(
        &self,
        input: &Input<'_>,
        mut each: impl FnMut(FileBox) -> Result<(), DemuxError>,
    ) -> Result<usize, DemuxError> {
        let (mut next, mut boxes) = (self.body, 0);
        while let Some(child) = FileBox::at(input, next, self.end)? {
            boxes += 1;
            if boxes > BOXES_MAX {
                let name = spelled(self.code);
                return Err(broken(self.start, format!("{name} of more than {BOXES_MAX} boxes")));
            }
            input.steps.set(input.steps.get() + 1);
            if input.steps.get() > STEPS_MAX {
                let name = spelled(self.code);
                return Err(broken(child.start, format!("{name} in a box of too many boxes")));
            }
            each(child)?;
            next = child.end;
        }
        Ok(boxes)
    }

    /// The first box of each type in `codes`; a second one of a type is ignored.
    pub(super) fn find<const COUNT: usize>(
        &self,
        input: &Input<'_>,
        codes: [&FourCode; COUNT],
    ) -> Result<[Option<FileBox>; COUNT], DemuxError> {
        let mut found = [None; COUNT];
        self.children(input, |child| {
            if let Some(at) = codes.iter().position(|&code| *code == child.code) {
                found[at].get_or_insert(child);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The box, or the refusal of a container that lacks one of type `code`.
    pub(super) fn needed(
        &self,
        found: Option<FileBox>,
        code: &FourCode,
    ) -> Result<FileBox, DemuxError> {
        let missing = || format!("{} without {}", spelled(self.code), spelled(*code));
        found.ok_or_else(|| broken(self.start, missing()))
    }

    /// The body of a box that has at most `limit` bytes.
    pub(super) fn read_body(&self, input: &Input<'_>, limit: u64) -> Result<Vec<u8>, DemuxError> {
        let bytes = self.body_bytes();
        if bytes > limit {
            let name = spelled(self.code);
            return Err(broken(self.start, format!("box {name} of {bytes} bytes, over {limit}")));
        }
        let mut body = vec![0; bytes as usize];
        input.read_near(&mut body, self.body, self.end)?;
        Ok(body)
    }

    /// A box of fixed fields. Bytes after the known fields are reserved for later versions.
    pub(super) fn decode<T: Atom>(&self, input: &Input<'_>) -> Result<T, DemuxError> {
        let body = self.read_body(input, SMALL_BYTES_MAX)?;
        T::decode_body(&mut body.as_slice()).map_err(|error| {
            broken(self.start, format!("box {} that has no meaning: {error}", spelled(self.code)))
        })
    }

    /// The first `N` bytes of the body.
    pub(super) fn fields<const N: usize>(&self, input: &Input<'_>) -> Result<[u8; N], DemuxError> {
        let mut fields = [0; N];
        if self.body_bytes() < N as u64 {
            let (name, bytes) = (spelled(self.code), self.body_bytes());
            return Err(broken(self.start, format!("box {name} with a body of {bytes} bytes")));
        }
        input.read_near(&mut fields, self.body, self.end)?;
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(file: &[u8]) -> Result<Vec<(FourCode, u64)>, DemuxError> {
        let whole = FileBox { code: *b"file", start: 0, body: 0, end: file.len() as u64 };
        let mut found = Vec::new();
        with_input(file, file.len() as u64, |input| {
            whole.children(input, |child| {
                found.push((child.code, child.body_bytes()));
                Ok(())
            })
        })?;
        Ok(found)
    }

    #[test]
    fn boxes_have_sizes_of_32_and_64_bits_and_to_the_end() {
        let mut file = vec![0, 0, 0, 10, b'a', b'b', b'c', b'd', 1, 2];
        file.extend([0, 0, 0, 1, b'l', b'o', b'n', b'g', 0, 0, 0, 0, 0, 0, 0, 17, 9]);
        file.extend([0, 0, 0, 0, b'l', b'a', b's', b't', 1, 2, 3]);
        assert_eq!(walk(&file).unwrap(), [(*b"abcd", 2), (*b"long", 1), (*b"last", 3)]);
        file.truncate(27);
        file.extend([0; 7]);
        assert_eq!(walk(&file).unwrap().len(), 2, "seven bytes of padding");
    }

    #[test]
    fn sizes_that_lie_are_refused() {
        let long = |size: u64| [&[0, 0, 0, 1], b"long".as_slice(), &size.to_be_bytes()].concat();
        let short = |size: u32| [size.to_be_bytes().as_slice(), b"abcd", &[0; 4]].concat();
        for file in [long(15), long(17), long(u64::MAX), short(7), short(13), short(1)] {
            assert!(matches!(walk(&file), Err(DemuxError::Refused(Refusal::Broken { .. }))));
        }
        let many = [0, 0, 0, 8, b'f', b'r', b'e', b'e'].repeat(BOXES_MAX + 1);
        assert!(walk(&many).is_err());
    }

    #[test]
    fn unreadable_bytes_are_no_refusal() {
        let file = [0, 0, 0, 8, b'f', b'r', b'e', b'e'];
        let result = with_input(&file[..], 100, |input| FileBox::at(input, 8, 100));
        assert!(matches!(result, Err(DemuxError::Unreadable(_))));
    }
}
