// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pipe through which a file's pages go to a socket, in two calls without a copy; or through
//! which a socket's datagrams go to another, copied once within the kernel, into the pipe's pages.
//!
//! Bytes left in the pipe would be sent in front of the next message, so a [`Pipe`] counts its
//! content and can discard it: to `/dev/null` by one call without a copy, and where that does not
//! empty the pipe, by replacing it.
//!
//! Sources: `splice(2)`, `vmsplice(2)`, `pipe(7)`, `F_SETPIPE_SZ`; Linux 6.18 `fs/splice.c`
//! (`splice_to_socket`, `copy_splice_read`), `mm/filemap.c` (`filemap_splice_read`).
//!
//! Does not wait for room in the pipe. It may wait for the file.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::error::{Errno, Error};
use crate::send_stats::SendStats;
use crate::sys::{FileMap, counted, last_errno, page_bytes};

/// `/dev/null`, for unwanted bytes.
const NOWHERE: &str = "/dev/null";

/// A pipe, its content, and the target of unwanted bytes.
#[derive(Debug)]
pub(crate) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    nowhere: OwnedFd,
    /// The requested size; the granted one may be less.
    wanted_pages: u64,
    pages: u64,
    /// Bytes in it now.
    bytes: u64,
}

impl Pipe {
    /// Makes a pipe with room for `pages` pages, or as many as this user may have.
    pub(crate) fn new(pages: u64) -> Result<Self, Error> {
        let host = |call, object: &str, errno| Error::Host { call, object: object.into(), errno };
        let nowhere = File::options().write(true).open(NOWHERE);
        let nowhere = nowhere.map_err(|error| host("open", NOWHERE, error.into()))?.into();
        let mut stats = SendStats::default();
        let made = make(pages, &mut stats).map_err(|errno| host("pipe2", "splice", errno))?;
        let (read, write, granted) = made;
        Ok(Self { read, write, nowhere, wanted_pages: pages, pages: granted, bytes: 0 })
    }

    /// Returns the number of pages it has room for when empty.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Puts `bytes` bytes of `file` from `offset` on into it, or as many as there is room for; 0 at
    /// the end of the file, `EAGAIN` when the pipe is full.
    pub(crate) fn fill(
        &mut self,
        file: &File,
        offset: u64,
        bytes: u64,
        stats: &mut SendStats,
    ) -> Result<u64, Errno> {
        let mut offset = libc::off_t::try_from(offset).map_err(|_| Errno::new(libc::EOVERFLOW))?;
        let put = splice(file.as_fd(), Some(&mut offset), self.write.as_fd(), bytes, stats)?;
        self.bytes += put;
        Ok(put)
    }

    /// Puts ranges of a mapped file into it, none of them empty and 1,024 at most (`UIO_MAXIOV`),
    /// or as many pages of them as it has room for and the file has; `EFAULT` when the first page
    /// is not there, or not mapped.
    pub(crate) fn fill_mapped(
        &mut self,
        map: &FileMap,
        ranges: &[Range<u64>],
        stats: &mut SendStats,
    ) -> Result<u64, Errno> {
        let slice = |range: &Range<u64>| {
            let bytes = range.end - range.start;
            let iov_base = map.address(range.start, bytes)?;
            // It lies in the map, whose length is a usize.
            Some(libc::iovec { iov_base, iov_len: bytes as usize })
        };
        let slices: Option<Vec<_>> = ranges.iter().map(slice).collect();
        let slices = slices.ok_or(Errno::new(libc::EFAULT))?;
        stats.calls += 1;
        // SAFETY: `slices` is alive and its length is the one given. The memory it names lies in
        // `map`, which outlives the call; the pipe then refers to the file's pages, not to the map.
        let put = unsafe {
            let (pipe, flags) = (self.write.as_raw_fd(), libc::SPLICE_F_NONBLOCK);
            libc::vmsplice(pipe, slices.as_ptr(), slices.len(), flags)
        };
        let put = counted(put)? as u64;
        self.bytes += put;
        Ok(put)
    }

    /// Makes the kernel refuse to splice into it, as before 6.5 from any UDP socket.
    #[cfg(test)]
    pub(crate) fn spoil(&mut self) {
        self.write = File::options().write(true).open(NOWHERE).unwrap().into();
    }

    /// Moves the next datagram or joined run of `socket` into the pipe: `bytes` bytes, within its
    /// room. A longer one is cut, and the rest lost. `EINVAL` before Linux 6.5.
    pub(crate) fn take(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: u64,
        stats: &mut SendStats,
    ) -> Result<u64, Errno> {
        let put = splice(socket, None, self.write.as_fd(), bytes, stats)?;
        self.bytes += put;
        Ok(put)
    }

    /// Reads from it into memory; returns the number of bytes.
    pub(crate) fn read(&mut self, room: &mut [u8], stats: &mut SendStats) -> Result<u64, Errno> {
        stats.calls += 1;
        // SAFETY: `room` is alive, and its length the one given.
        let read =
            unsafe { libc::read(self.read.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
        let read = counted(read)? as u64;
        stats.copied_bytes += read;
        self.bytes = self.bytes.saturating_sub(read);
        Ok(read)
    }

    /// Sends `bytes` bytes of its content; returns the number that the socket accepted.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: u64,
        stats: &mut SendStats,
    ) -> Result<u64, Errno> {
        let sent = splice(self.read.as_fd(), None, socket, bytes, stats)?;
        self.bytes = self.bytes.saturating_sub(sent);
        Ok(sent)
    }

    /// Discards its content; makes no call for an empty pipe.
    pub(crate) fn clear(&mut self, stats: &mut SendStats) -> Result<(), Errno> {
        while self.bytes > 0 {
            match splice(self.read.as_fd(), None, self.nowhere.as_fd(), self.bytes, stats) {
                Ok(gone) if gone > 0 => self.bytes = self.bytes.saturating_sub(gone),
                Err(errno) if errno.code() == libc::EINTR => {}
                // The cause may be a page that is no longer valid: it is dropped with its pipe.
                _ => {
                    let (read, write, pages) = make(self.wanted_pages, stats)?;
                    // The two ends that are replaced are closed.
                    stats.calls += 2;
                    (self.read, self.write, self.pages, self.bytes) = (read, write, pages, 0);
                }
            }
        }
        Ok(())
    }
}

/// Returns a new pipe and the pages it has room for.
fn make(pages: u64, stats: &mut SendStats) -> Result<(OwnedFd, OwnedFd, u64), Errno> {
    let mut ends = [-1; 2];
    stats.calls += 1;
    // SAFETY: `ends` is two live ints to be written to.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(last_errno());
    }
    // SAFETY: pipe2 succeeded, so both are open and owned by no other code.
    let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    let wanted_bytes = pages.saturating_mul(page_bytes());
    let wanted_bytes = libc::c_int::try_from(wanted_bytes).unwrap_or(libc::c_int::MAX);
    stats.calls += 1;
    // SAFETY: the descriptor is open; the call takes no pointer.
    let set = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, wanted_bytes) };
    let granted = if set >= 0 {
        set
    } else {
        // The size exceeds this user's limit; the pipe keeps its initial size.
        stats.calls += 1;
        // SAFETY: as above.
        unsafe { libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ) }
    };
    let granted_bytes = u64::try_from(granted).map_err(|_| last_errno())?;
    Ok((read, write, (granted_bytes / page_bytes()).max(1)))
}

/// Moves bytes from `source`, at `offset` where it is a file, to `target`, without waiting for a
/// pipe.
fn splice(
    source: BorrowedFd<'_>,
    offset: Option<&mut libc::off_t>,
    target: BorrowedFd<'_>,
    bytes: u64,
    stats: &mut SendStats,
) -> Result<u64, Errno> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let offset = offset.map_or(ptr::null_mut(), ptr::from_mut);
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    stats.calls += 1;
    // SAFETY: `offset` is null or a live off_t, the only memory the call touches.
    let moved = unsafe {
        let (source, target) = (source.as_raw_fd(), target.as_raw_fd());
        libc::splice(source, offset.cast(), target, ptr::null_mut(), bytes, flags)
    };
    counted(moved).map(|moved| moved as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};
    use std::os::unix::fs::FileExt;

    fn file(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn a_cleared_pipe_holds_nothing_of_before() {
        let mut stats = SendStats::default();
        let mut pipe = Pipe::new(4).unwrap();
        assert_eq!(pipe.pages(), 4);
        let file = file(&[[1; 4096], [2; 4096]].concat());
        assert_eq!(pipe.fill(&file, 100, 5000, &mut stats), Ok(5000));
        assert_eq!((pipe.clear(&mut stats), stats.calls), (Ok(()), 2));
        assert_eq!((pipe.clear(&mut stats), stats.calls), (Ok(()), 2));
        assert_eq!(pipe.fill(&file, 4096, 3, &mut stats), Ok(3));
        let mut got = [0; 8];
        let mut end = File::from(pipe.read.try_clone().unwrap());
        assert_eq!(end.read(&mut got).unwrap(), 3);
        assert_eq!(got[..3], [2; 3]);
    }

    #[test]
    fn a_pipe_that_cannot_be_emptied_is_replaced() {
        let mut stats = SendStats::default();
        let mut pipe = Pipe::new(4).unwrap();
        let file = file(&[7; 100]);
        assert_eq!(pipe.fill(&file, 0, 100, &mut stats), Ok(100));
        // Nothing can be written to a descriptor that is for reading.
        pipe.nowhere = File::open(NOWHERE).unwrap().into();
        assert_eq!((pipe.clear(&mut stats), stats.calls), (Ok(()), 6));
        let mut end = File::from(pipe.read.try_clone().unwrap());
        assert_eq!(end.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn a_full_pipe_and_a_file_at_its_end_are_told_apart() {
        let mut stats = SendStats::default();
        let mut pipe = Pipe::new(1).unwrap();
        let file = file(&[7; 9000]);
        assert_eq!(pipe.fill(&file, 9000, 100, &mut stats), Ok(0));
        let put = pipe.fill(&file, 0, 9000, &mut stats).unwrap();
        assert_eq!(put, page_bytes().min(9000));
        let full = pipe.fill(&file, put, 100, &mut stats).unwrap_err();
        assert_eq!(full.code(), libc::EAGAIN);
    }
}
