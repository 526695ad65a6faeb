// SPDX-License-Identifier: MIT OR Apache-2.0
//! A buffer that begins on a page.
//!
//! The kernel copies between a file's pages and a program's: the offset of the buffer in its page
//! decides whether a page is one copy or two pieces of odd sizes. An allocator chooses that offset
//! by the size, so that figures of two sizes would differ in two things.

use std::ops::{Deref, DerefMut};

const PAGE_BYTES: usize = 4096;

/// Bytes that begin on a page.
pub(super) struct Buffer {
    allocated: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    /// Returns zeros in pages that are already mapped.
    pub(super) fn zeros(bytes: usize) -> Buffer {
        let mut allocated = vec![0; bytes + PAGE_BYTES];
        let start = allocated.as_ptr().align_offset(PAGE_BYTES);
        // Writes each page: a page that was only read is the shared zero page, and faults when
        // written.
        allocated.fill(1);
        allocated.fill(0);
        Buffer { allocated, start, bytes }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.allocated[self.start..self.start + self.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.allocated[self.start..self.start + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_on_a_page() {
        for bytes in [1, 512, 4096, 100_000, 1 << 20] {
            let mut buffer = Buffer::zeros(bytes);
            assert_eq!(buffer.as_ptr().align_offset(PAGE_BYTES), 0, "{bytes}");
            assert_eq!(buffer.len(), bytes);
            buffer[bytes - 1] = 7;
            assert_eq!(buffer.last(), Some(&7));
        }
    }
}
