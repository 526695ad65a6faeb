// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending: a gathered list, a range of a file, or a buffer.
//!
//! [`Scratch`] is a thread's list of ranges, kept so that no batch allocates. A [`Gather`] borrows
//! it together with all listed data, so the kernel reads only live memory.
//!
//! Sources: `writev(2)`, `sendfile(2)`, `send(2)`, `sendmsg(2)`, `cmsg(3)`; Linux 6.18
//! `net/ipv4/udp.c`, `net/core/sock.c` (`SCM_TXTIME`: eight bytes, refused with `EINVAL` where the
//! socket has no departure clock).
//!
//! Does not interpret a refusal or repeat a call.

use std::fs::File;
use std::marker::PhantomData;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::{FileMap, counted};

/// Largest number of ranges of one call: `IOV_MAX` of Linux.
pub(crate) const RANGES_MAX: usize = libc::UIO_MAXIOV as usize;

/// Memory for a list of ranges, reused from call to call.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Vec<libc::iovec>);

// SAFETY: the addresses in it are used through a Gather alone, which clears the list when it begins
// and borrows all that it then adds; between two Gathers the list is only memory to be overwritten.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(RANGES_MAX))
    }

    /// Begins an empty list.
    pub(crate) fn gather<'data>(&mut self) -> Gather<'_, 'data> {
        self.0.clear();
        Gather::behind(&mut self.0, 0)
    }
}

/// A list of ranges to be sent in one call; `'data` is the lifetime of their memory.
#[derive(Debug)]
pub(crate) struct Gather<'scratch, 'data> {
    ranges: &'scratch mut Vec<libc::iovec>,
    /// Index in `ranges` at which the list begins.
    first: usize,
    data: PhantomData<&'data [u8]>,
}

impl<'scratch, 'data> Gather<'scratch, 'data> {
    /// Returns the list that begins behind the first `first` of `ranges`.
    pub(super) fn behind(ranges: &'scratch mut Vec<libc::iovec>, first: usize) -> Self {
        Self { ranges, first, data: PhantomData }
    }

    /// Returns the number of ranges on the list.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len() - self.first
    }

    /// Removes all ranges after the first `len` from the list.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.ranges.truncate(self.first + len);
    }

    /// Adds `bytes`; false when the list is full.
    pub(crate) fn bytes(&mut self, bytes: &'data [u8]) -> bool {
        self.add(bytes.as_ptr().cast_mut().cast(), bytes.len())
    }

    /// Adds `bytes` bytes of the mapped file from `offset` on; false when the list is full.
    ///
    /// # Panics
    /// When the map does not reach so far: the caller compares first.
    pub(crate) fn mapped(&mut self, map: &'data FileMap, offset: u64, bytes: u64) -> bool {
        let start = map.address(offset, bytes).expect("the range lies in the map");
        self.add(start, bytes as usize)
    }

    fn add(&mut self, start: *mut libc::c_void, bytes: usize) -> bool {
        if self.len() >= RANGES_MAX {
            return false;
        }
        self.ranges.push(libc::iovec { iov_base: start, iov_len: bytes });
        true
    }

    /// Sends all that is on the list as one message.
    pub(crate) fn send(
        &self,
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<usize, Errno> {
        stats.calls += 1;
        // SAFETY: every range on the list was added by `bytes` or `mapped` and is borrowed for
        // `'data`, which `self` keeps alive; `add` keeps their number within UIO_MAXIOV, an int.
        // The kernel only reads them, and answers EFAULT where a mapped page no longer exists.
        let sent = unsafe {
            let ranges = &self.ranges[self.first..];
            libc::writev(socket.as_raw_fd(), ranges.as_ptr(), ranges.len() as libc::c_int)
        };
        let sent = counted(sent)?;
        stats.copied_bytes += sent as u64;
        Ok(sent)
    }

    /// Sends all that is on the list as one message that is to leave at `departure_ns`, a time of
    /// the clock that was set for the socket ([`crate::sys::set_departure_clock`]).
    pub(crate) fn send_at(
        &self,
        socket: BorrowedFd<'_>,
        departure_ns: u64,
        stats: &mut SendStats,
    ) -> Result<usize, Errno> {
        let mut control = [0_u64; CONTROL_WORDS];
        let ranges = &self.ranges[self.first..];
        // SAFETY: msghdr is plain numbers and pointers, for which all zeroes is a value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = ranges.as_ptr().cast_mut();
        message.msg_iovlen = ranges.len() as _;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: `message` names `control`, which is live, aligned for cmsghdr and, by the
        // assertion at CONTROL_WORDS, has room for one header and eight bytes.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_TXTIME;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<u64>() as u32) as _;
            libc::CMSG_DATA(header).cast::<u64>().write_unaligned(departure_ns);
        }
        stats.calls += 1;
        // SAFETY: every range on the list was added by `bytes` or `mapped` and is borrowed for
        // `'data`, which `self` keeps alive; `control` lives to the end of this function. The
        // kernel only reads both.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
        let sent = counted(sent)?;
        stats.copied_bytes += sent as u64;
        Ok(sent)
    }
}

/// Words of a control message of eight bytes, header and padding included.
const CONTROL_WORDS: usize = 3;
// SAFETY: CMSG_SPACE only computes.
const _: () =
    assert!(unsafe { libc::CMSG_SPACE(size_of::<u64>() as u32) } as usize <= CONTROL_WORDS * 8);

/// Sends `bytes` bytes of `file` from `offset` on without copying them to user memory. The file's
/// own offset stays unchanged, so a refused call can be repeated.
pub(crate) fn sendfile(
    socket: BorrowedFd<'_>,
    file: &File,
    offset: u64,
    bytes: u64,
    stats: &mut SendStats,
) -> Result<usize, Errno> {
    let mut offset = libc::off_t::try_from(offset).map_err(|_| Errno::new(libc::EOVERFLOW))?;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    stats.calls += 1;
    // SAFETY: `offset` is a live off_t of this frame, the only memory the call touches.
    let sent =
        unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, bytes) };
    counted(sent)
}

/// Sends as much of `bytes` as the socket accepts now, without waiting and without SIGPIPE.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    stats: &mut SendStats,
) -> Result<usize, Errno> {
    // SAFETY: the range is the slice's own.
    let sent = unsafe { send_range(socket, bytes.as_ptr().cast(), bytes.len(), 0, stats) }?;
    stats.copied_bytes += sent as u64;
    Ok(sent)
}

/// Sends `bytes` as the beginning of a datagram that the next call continues.
pub(crate) fn send_more(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    stats: &mut SendStats,
) -> Result<usize, Errno> {
    let (start, len) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: the range is the slice's own.
    let sent = unsafe { send_range(socket, start, len, libc::MSG_MORE, stats) }?;
    stats.copied_bytes += sent as u64;
    Ok(sent)
}

/// Sends as much as the socket accepts now of `bytes` bytes of the mapped file from `offset` on;
/// `EFAULT` for a page that was cut off.
///
/// # Panics
/// When the map does not reach so far: the caller compares first.
pub(crate) fn send_mapped(
    socket: BorrowedFd<'_>,
    map: &FileMap,
    offset: u64,
    bytes: u64,
    stats: &mut SendStats,
) -> Result<usize, Errno> {
    let start = map.address(offset, bytes).expect("the range lies in the map");
    // SAFETY: the map holds the range and is borrowed for the call.
    let sent = unsafe { send_range(socket, start, bytes as usize, 0, stats) }?;
    stats.copied_bytes += sent as u64;
    Ok(sent)
}

/// Sends like [`send_mapped`], with references to the pages instead of a copy, where the socket is
/// set up for it ([`crate::sys::set_zerocopy`]) and the device can; the kernel reports later
/// whether it copied ([`crate::sys::next_error`]).
///
/// # Panics
/// Same as for [`send_mapped`].
pub(crate) fn send_mapped_zerocopy(
    socket: BorrowedFd<'_>,
    map: &FileMap,
    offset: u64,
    bytes: u64,
    stats: &mut SendStats,
) -> Result<usize, Errno> {
    let start = map.address(offset, bytes).expect("the range lies in the map");
    // SAFETY: the map holds the range and is borrowed for the call. The kernel holds the pages
    // themselves, not the mapping, for as long as it refers to them.
    unsafe { send_range(socket, start, bytes as usize, libc::MSG_ZEROCOPY, stats) }
}

/// Makes one `send`, which neither waits nor raises SIGPIPE.
///
/// # Safety
/// `bytes` bytes from `start` on belong to a slice or a mapping that exists during the call.
unsafe fn send_range(
    socket: BorrowedFd<'_>,
    start: *const libc::c_void,
    bytes: usize,
    flags: libc::c_int,
    stats: &mut SendStats,
) -> Result<usize, Errno> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    stats.calls += 1;
    // SAFETY: the kernel only reads the range, which the caller guarantees.
    counted(unsafe { libc::send(socket.as_raw_fd(), start, bytes, flags) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (sender, receiver)
    }

    #[test]
    fn a_list_takes_as_many_ranges_as_the_kernel() {
        let (sender, receiver) = pair();
        let mut stats = SendStats::default();
        let mut scratch = Scratch::new();
        let data = vec![7_u8; RANGES_MAX + 1];
        let mut list = scratch.gather();
        let added = data.chunks(1).take_while(|byte| list.bytes(byte)).count();
        assert_eq!((added, list.len()), (RANGES_MAX, RANGES_MAX));
        assert_eq!(list.send(sender.as_fd(), &mut stats), Ok(RANGES_MAX));
        let mut buffer = vec![0; 2 * RANGES_MAX];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), RANGES_MAX);
        assert_eq!(scratch.gather().len(), 0);
    }
}
