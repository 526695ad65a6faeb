// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that the kernel may still be reading when the call that named them has returned.
//!
//! A zero-copy send refers to its pages until the device, or the peer's acknowledgement, has
//! released them. So those bytes may be overwritten only after the kernel's notification, and
//! neither the caller nor Rust may own them: a [`Pool`] is a mapping of its own, which lends no
//! slice. Each buffer counts its users and is free when it has none.
//!
//! Dropping a pool needs no waiting. The kernel holds the pages themselves, not the mapping: after
//! its removal only the packets hold them, unchanged, and free them.
//!
//! Sources: `mmap(2)`; Linux 6.18 `net/core/datagram.c` (`zerocopy_fill_skb_from_iter`),
//! `io_uring/rsrc.c` (registered buffers are pinned).
//!
//! Does not grow. When no buffer is free the caller copies.

use std::ptr;

use crate::error::Errno;
use crate::sys::last_errno;

/// Buffers of one size in a mapping of their own.
#[derive(Debug)]
pub(super) struct Pool {
    start: *mut libc::c_void,
    buffer_bytes: usize,
    /// Number of users of each buffer.
    users: Vec<u16>,
    free: Vec<u16>,
}

// SAFETY: a Pool owns its mapping; it writes to it through `&mut self` alone and never reads.
unsafe impl Send for Pool {}

impl Pool {
    /// Maps `buffers` buffers of `buffer_bytes`, a power of two, each.
    pub(super) fn new(buffers: u16, buffer_bytes: usize) -> Result<Self, Errno> {
        assert!(buffers > 0 && buffer_bytes.is_power_of_two(), "buffers share no page by accident");
        let bytes = usize::from(buffers) * buffer_bytes;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let free = (0..buffers).rev().collect();
        Ok(Self { start, buffer_bytes, users: vec![0; buffers.into()], free })
    }

    /// Returns the number of buffers.
    pub(super) fn buffers(&self) -> u16 {
        self.users.len() as u16
    }

    /// Returns the number of bytes of each buffer.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Returns the number of bytes of all buffers.
    pub(super) fn bytes(&self) -> usize {
        self.users.len() * self.buffer_bytes
    }

    /// Returns a free buffer, which then has one user; the last `spare` are reserved.
    pub(super) fn take(&mut self, spare: usize) -> Option<u16> {
        if self.free.len() <= spare {
            return None;
        }
        let buffer = self.free.pop()?;
        self.users[usize::from(buffer)] = 1;
        Some(buffer)
    }

    /// Adds a user to a buffer that has some.
    pub(super) fn hold(&mut self, buffer: u16) {
        let users = &mut self.users[usize::from(buffer)];
        assert!(*users > 0, "a free buffer is not held");
        *users += 1;
    }

    /// Removes a user of a buffer.
    pub(super) fn release(&mut self, buffer: u16) {
        let users = &mut self.users[usize::from(buffer)];
        *users = users.checked_sub(1).expect("a buffer is released by its users");
        if *users == 0 {
            self.free.push(buffer);
        }
    }

    /// Returns the address of `bytes` bytes of a buffer from its byte `at` on, for the kernel.
    pub(super) fn address(&self, buffer: u16, at: usize, bytes: usize) -> *mut libc::c_void {
        let end = at.checked_add(bytes).expect("a range");
        assert!(end <= self.buffer_bytes, "the range lies in the buffer");
        assert!(usize::from(buffer) < self.users.len(), "the buffer is one of the pool's");
        self.start.wrapping_byte_add(usize::from(buffer) * self.buffer_bytes + at)
    }

    /// Copies `bytes` into a buffer from its byte `at` on.
    pub(super) fn write(&mut self, buffer: u16, at: usize, bytes: &[u8]) {
        let target = self.address(buffer, at, bytes.len()).cast::<u8>();
        // SAFETY: `address` has compared the range with the mapping, which is writable; no Rust
        // reference points into it, so `bytes` is elsewhere.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    /// Returns each buffer as a range.
    pub(super) fn ranges(&self) -> Vec<libc::iovec> {
        (0..self.users.len())
            .map(|buffer| libc::iovec {
                iov_base: self.start.wrapping_byte_add(buffer * self.buffer_bytes),
                iov_len: self.buffer_bytes,
            })
            .collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this start and length and is removed once;
        // after a submission only the kernel uses an address of it, and the kernel holds the pages.
        let removed = unsafe { libc::munmap(self.start, self.bytes()) };
        debug_assert_eq!(removed, 0, "munmap of a whole mapping");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_free_when_its_last_user_is_done() {
        let mut pool = Pool::new(3, 4096).unwrap();
        let (first, second) = (pool.take(1).unwrap(), pool.take(1).unwrap());
        assert_ne!(first, second);
        assert_eq!(pool.take(1), None, "one is spared");
        pool.hold(first);
        pool.release(first);
        assert_eq!(pool.take(1), None);
        pool.release(first);
        assert_eq!(pool.take(1), Some(first));
        assert!(pool.take(0).is_some());
        assert_eq!(pool.take(0), None);
    }

    #[test]
    fn addresses_stay_in_their_buffer() {
        let mut pool = Pool::new(2, 4096).unwrap();
        pool.write(1, 4090, b"sixsix");
        let start = pool.address(0, 0, 4096);
        assert_eq!(pool.address(1, 4096, 0), start.wrapping_byte_add(8192));
        assert_eq!((pool.bytes(), pool.ranges().len()), (8192, 2));
    }

    #[test]
    #[should_panic(expected = "the range lies in the buffer")]
    fn a_range_past_its_buffer_is_our_own_mistake() {
        Pool::new(2, 4096).unwrap().write(0, 4090, b"sevense");
    }
}
