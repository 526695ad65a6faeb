// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is shared with the kernel: rings of frames and of descriptors.
//!
//! Words that both sides write are atomics. Other memory belongs to one side at a time; the rings
//! read the owner from the words ([`super::PacketRing`], [`super::XdpRing`]).
//!
//! Sources: `mmap(2)`.
//!
//! Does not manage the layout.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32};

use crate::error::Errno;
use crate::sys::last_errno;

/// A mapping that is read and written here and by the kernel.
#[derive(Debug)]
pub(super) struct Area {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an Area owns its mapping; only the thread that owns the Area accesses it.
unsafe impl Send for Area {}

impl Area {
    /// Maps memory of this process, present from the start.
    pub(super) fn anonymous(bytes: usize) -> Result<Self, Errno> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1, 0)
    }

    /// Maps memory of this process; each page is allocated at its first access.
    pub(super) fn untouched(bytes: usize) -> Result<Self, Errno> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Maps memory of the kernel behind a socket, from its byte `offset` on.
    pub(super) fn of_socket(
        socket: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
    ) -> Result<Self, Errno> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::new(libc::EOVERFLOW))?;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Self::map(bytes, flags, socket.as_raw_fd(), offset)
    }

    fn map(bytes: usize, flags: i32, descriptor: i32, offset: libc::off_t) -> Result<Self, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, descriptor, offset) };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let start = NonNull::new(start.cast()).ok_or(Errno::new(libc::ENOMEM))?;
        Ok(Self { start, bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of its first byte, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Returns the word at byte `at`, which the kernel may change at any time.
    ///
    /// # Panics
    /// When it does not lie in the area, or at an odd place.
    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.bytes, "a word of the area");
        // SAFETY: in the mapping and aligned, as asserted (a mapping begins at a page), and alive
        // as long as `self`. Callers reach these bytes as atomics alone while they are shared.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Returns the half of a word at byte `at`, which the kernel may read at any time.
    ///
    /// # Panics
    /// When it does not lie in the area, or at an odd place.
    pub(super) fn half(&self, at: usize) -> &AtomicU16 {
        assert!(at.is_multiple_of(2) && at + 2 <= self.bytes, "half a word of the area");
        // SAFETY: as for `word`.
        unsafe { AtomicU16::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Writes a value at byte `at`.
    ///
    /// # Safety
    /// The kernel neither reads nor writes these bytes until they are handed to it.
    ///
    /// # Panics
    /// When it does not lie in the area, or not aligned.
    pub(super) unsafe fn put<T: Copy>(&mut self, at: usize, value: T) {
        let fits = at.is_multiple_of(align_of::<T>()) && at + size_of::<T>() <= self.bytes;
        assert!(fits, "a value of the area");
        // SAFETY: in the mapping and aligned, as asserted; owned by no other code now (caller).
        unsafe { self.start.as_ptr().add(at).cast::<T>().write(value) };
    }

    /// Reads a value at byte `at`.
    ///
    /// # Safety
    /// The kernel does not write these bytes now, and any pattern of them is a `T`.
    ///
    /// # Panics
    /// When it does not lie in the area, or not aligned.
    pub(super) unsafe fn value<T: Copy>(&self, at: usize) -> T {
        let fits = at.is_multiple_of(align_of::<T>()) && at + size_of::<T>() <= self.bytes;
        assert!(fits, "a value of the area");
        // SAFETY: in the mapping and aligned, as asserted; not being written (caller).
        unsafe { self.start.as_ptr().add(at).cast::<T>().read() }
    }

    /// Returns the bytes of a range.
    ///
    /// # Safety
    /// No code writes them while they are borrowed.
    ///
    /// # Panics
    /// When they do not lie in the area.
    pub(super) unsafe fn range(&self, range: Range) -> &[u8] {
        let end = range.start.checked_add(range.bytes).expect("a range");
        assert!(end <= self.bytes, "a range of the area");
        // SAFETY: in the mapping, as asserted, alive as long as `self`, and not written (caller).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.bytes) }
    }

    /// Returns two ranges that do not overlap.
    ///
    /// # Safety
    /// The kernel writes none of their bytes while they are borrowed.
    ///
    /// # Panics
    /// When they overlap or do not lie in the area.
    pub(super) unsafe fn two(&mut self, first: Range, second: Range) -> [&mut [u8]; 2] {
        let [one, other] = [&first, &second].map(|range| range.start + range.bytes);
        assert!(one <= self.bytes && other <= self.bytes, "ranges of the area");
        assert!(one <= second.start || other <= first.start, "ranges apart");
        // SAFETY: both lie in the mapping and apart, as asserted; `self` is borrowed for as long as
        // they are and no other code writes them (caller).
        [first, second].map(|range| unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr().add(range.start), range.bytes)
        })
    }
}

/// A part of an [`Area`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) start: usize,
    pub(super) bytes: usize,
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this start and length and is removed once;
        // no borrow of it exists any more.
        let removed = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(removed, 0, "munmap of a whole mapping");
    }
}

/// Returns one or two ranges of slots `first..first + count` of a ring of `slots` slots.
pub(super) fn ring_ranges(first: u32, count: u32, slots: u32, stride: usize) -> (Range, Range) {
    assert!(first < slots && count <= slots, "slots of the ring");
    let before_end = count.min(slots - first) as usize;
    let first = Range { start: first as usize * stride, bytes: before_end * stride };
    (first, Range { start: 0, bytes: (count as usize - before_end) * stride })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_go_round() {
        let parts = |first, count| {
            let (one, other) = ring_ranges(first, count, 8, 10);
            (one.start, one.bytes, other.bytes)
        };
        assert_eq!(parts(0, 8), (0, 80, 0));
        assert_eq!(parts(5, 3), (50, 30, 0));
        assert_eq!(parts(5, 4), (50, 30, 10));
        assert_eq!(parts(7, 8), (70, 10, 70));
        assert_eq!(parts(7, 0), (70, 0, 0));
    }

    #[test]
    #[should_panic(expected = "ranges apart")]
    fn ranges_that_overlap_are_our_own_mistake() {
        let mut area = Area::anonymous(4096).unwrap();
        let (first, second) = (Range { start: 0, bytes: 11 }, Range { start: 10, bytes: 1 });
        // SAFETY: this memory is registered with no kernel interface.
        unsafe { area.two(first, second) };
    }
}
