// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file mapped read-only and shared, whose bytes this program never reads.
//!
//! A mapping of a file that another program truncates kills the reader with SIGBUS. The kernel,
//! copying from the same address on our behalf, returns `EFAULT` instead. So a [`FileMap`] returns
//! addresses for the kernel and no slice: the fault becomes an error, and Rust's rule that memory
//! behind a shared reference does not change is not broken by a file that does.
//!
//! Sources: `mmap(2)`, `madvise(2)` (`MADV_POPULATE_READ`, Linux 5.14).
//!
//! Does not grow with the file; it covers the file's size when it was mapped.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;

use crate::error::Errno;
use crate::sys::{last_errno, page_bytes};

/// A read-only, shared mapping of a file from its first byte on.
#[derive(Debug)]
pub(crate) struct FileMap {
    /// Null when `bytes` is 0.
    start: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: a FileMap owns its mapping and never reads or writes it; its address may be handed to the
// kernel, and the mapping removed, from any thread.
unsafe impl Send for FileMap {}
// SAFETY: as for Send; no method changes a FileMap behind a shared reference.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps the first `bytes` bytes of `file`.
    pub(crate) fn new(file: &File, bytes: u64) -> Result<Self, Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno::new(libc::ENOMEM))?;
        if bytes == 0 {
            return Ok(Self { start: ptr::null_mut(), bytes });
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe {
            let protection = libc::PROT_READ;
            libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        Ok(Self { start, bytes })
    }

    /// Returns the address of `bytes` bytes from `offset` on, for the kernel to read; `None` when
    /// the map ends before.
    pub(crate) fn address(&self, offset: u64, bytes: u64) -> Option<*mut libc::c_void> {
        let end = offset.checked_add(bytes)?;
        if bytes == 0 || end > self.bytes as u64 {
            return None;
        }
        // The offset is less than the map's length, which is a usize.
        Some(self.start.wrapping_byte_add(offset as usize))
    }

    /// Waits until the pages of `range` are in the page cache and in this program's page tables.
    /// `EFAULT` when the file has become shorter, `EINVAL` when the kernel is older than 5.14.
    pub(crate) fn populate(&self, range: Range<u64>) -> Result<(), Errno> {
        let page_bytes = page_bytes();
        let start = range.start - range.start % page_bytes;
        let end = range.end.min(self.bytes as u64);
        if start >= end {
            return Ok(());
        }
        let address = self.start.wrapping_byte_add(start as usize);
        // SAFETY: `start..end` lies in the mapping, as compared above, and populating changes no
        // byte of it.
        let done =
            unsafe { libc::madvise(address, (end - start) as usize, libc::MADV_POPULATE_READ) };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: the mapping was made by `new` with this start and length and is removed once;
            // each user of an address had to borrow the FileMap for as long as it was used.
            let removed = unsafe { libc::munmap(self.start, self.bytes) };
            debug_assert_eq!(removed, 0, "munmap of a whole mapping");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stay_in_the_map() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(5000).unwrap();
        let map = FileMap::new(&file, 5000).unwrap();
        let start = map.address(0, 5000).unwrap();
        assert_eq!(map.address(4999, 1), Some(start.wrapping_byte_add(4999)));
        assert_eq!(map.address(4999, 2), None);
        assert_eq!(map.address(5000, 0), None);
        assert_eq!(map.address(u64::MAX, 2), None);
        let nothing = FileMap::new(&file, 0).unwrap();
        assert_eq!(nothing.address(0, 1), None);
        assert_eq!(nothing.populate(0..4096), Ok(()));
    }
}
