// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending: a gathered list, a range of a file, or a buffer.
//!
//! [`Scratch`] is a thread's list of ranges, kept so that no batch allocates. A [`Gather`] borrows
//! it together with everything that is put on the list, so the kernel reads only what is still
//! there.
//!
//! Sources: `writev(2)`, `sendfile(2)`, `send(2)`; Linux 6.18 `net/ipv4/udp.c`.
//!
//! What it does not do: interpret a refusal or repeat a call.

use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::error::Errno;
use crate::sys::{Map, counted};
use crate::tally::Tally;

/// The most ranges one call takes: `IOV_MAX` of Linux.
pub(crate) const RANGES_MAX: usize = libc::UIO_MAXIOV as usize;

/// Room for a list of ranges, reused from call to call.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Vec<libc::iovec>);

// SAFETY: the addresses in it are used through a Gather alone, which clears the list when it begins
// and borrows what it then adds; between two Gathers the list is only memory to be written over.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(RANGES_MAX))
    }

    /// Begins an empty list.
    pub(crate) fn gather<'data>(&mut self) -> Gather<'_, 'data> {
        self.0.clear();
        Gather { ranges: &mut self.0, data: PhantomData }
    }
}

/// A list of ranges to be sent in one call; `'data` is how long they are there.
#[derive(Debug)]
pub(crate) struct Gather<'scratch, 'data> {
    ranges: &'scratch mut Vec<libc::iovec>,
    data: PhantomData<&'data [u8]>,
}

impl<'data> Gather<'_, 'data> {
    /// How many ranges are on the list.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Takes all ranges after the first `len` off the list.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.ranges.truncate(len);
    }

    /// Adds `bytes`; false when the list is full.
    pub(crate) fn bytes(&mut self, bytes: &'data [u8]) -> bool {
        self.add(bytes.as_ptr().cast_mut().cast(), bytes.len())
    }

    /// Adds `bytes` bytes of the mapped file from `offset` on; false when the list is full.
    ///
    /// # Panics
    /// When the map does not reach so far: the caller compares first.
    pub(crate) fn mapped(&mut self, map: &'data Map, offset: u64, bytes: u64) -> bool {
        let start = map.address(offset, bytes).expect("the range lies in the map");
        self.add(start, bytes as usize)
    }

    fn add(&mut self, start: *mut libc::c_void, bytes: usize) -> bool {
        if self.ranges.len() >= RANGES_MAX {
            return false;
        }
        self.ranges.push(libc::iovec { iov_base: start, iov_len: bytes });
        true
    }

    /// Sends all that is on the list as one message.
    pub(crate) fn send(&self, socket: BorrowedFd<'_>, tally: &mut Tally) -> Result<usize, Errno> {
        tally.calls += 1;
        // SAFETY: every range on the list was added by `bytes` or `mapped` and is borrowed for
        // `'data`, which `self` keeps alive; `add` keeps their number within UIO_MAXIOV, an int.
        // The kernel only reads them, and answers EFAULT where a mapped page has gone.
        let sent = unsafe {
            let count = self.ranges.len() as libc::c_int;
            libc::writev(socket.as_raw_fd(), self.ranges.as_ptr(), count)
        };
        let sent = counted(sent)?;
        tally.copied_bytes += sent as u64;
        Ok(sent)
    }
}

/// Sends `bytes` bytes of `file` from `offset` on without bringing them to user memory. The file's
/// own offset stays as it is, so a refused call can be made again.
pub(crate) fn sendfile(
    socket: BorrowedFd<'_>,
    file: &File,
    offset: u64,
    bytes: u64,
    tally: &mut Tally,
) -> Result<usize, Errno> {
    let mut offset = libc::off_t::try_from(offset).map_err(|_| Errno::new(libc::EOVERFLOW))?;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    tally.calls += 1;
    // SAFETY: `offset` is a live off_t of this frame, the only memory the call touches.
    let sent =
        unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, bytes) };
    counted(sent)
}

/// Sends what the socket takes of `bytes` now, without waiting and without SIGPIPE.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    tally: &mut Tally,
) -> Result<usize, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    tally.calls += 1;
    // SAFETY: the range is the slice's own.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    let sent = counted(sent)?;
    tally.copied_bytes += sent as u64;
    Ok(sent)
}

/// Throws away what an interrupted call left corked on a UDP socket, so that it is not sent in
/// front of the next message; harmless when nothing is left.
///
/// There is no call for it. `UDP_CORK` switched off would send the remainder, cut where it happens
/// to end. A part that cannot be appended makes the kernel drop the whole (`udp_sendmsg`: `if (err)
/// udp_flush_pending_frames(sk)`), and a byte at address 0 cannot be.
pub(crate) fn discard_corked(socket: BorrowedFd<'_>, tally: &mut Tally) {
    let nowhere = libc::iovec { iov_base: ptr::null_mut(), iov_len: 1 };
    // SAFETY: msghdr is plain numbers and pointers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = (&raw const nowhere).cast_mut();
    message.msg_iovlen = 1;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;
    tally.calls += 1;
    // SAFETY: `message` names one range, which the kernel only reads and, as nothing is mapped at
    // address 0, answers with EFAULT.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    debug_assert!(sent < 0, "a byte at address 0 was sent");
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendFlags, send as send_flagged};
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
    fn corked_bytes_are_thrown_away_and_an_uncorked_socket_is_left_alone() {
        let (sender, receiver) = pair();
        let mut tally = Tally::default();
        let mut buffer = [0; 64];
        send_flagged(&sender, b"left behind", SendFlags::MORE).unwrap();
        for message in [b"first", b"other"] {
            discard_corked(sender.as_fd(), &mut tally);
            send(sender.as_fd(), message, &mut tally).unwrap();
            let bytes = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..bytes], message);
        }
        assert_eq!(tally.calls, 4);
    }

    #[test]
    fn a_list_takes_as_many_ranges_as_the_kernel() {
        let (sender, receiver) = pair();
        let mut tally = Tally::default();
        let mut scratch = Scratch::new();
        let data = vec![7_u8; RANGES_MAX + 1];
        let mut list = scratch.gather();
        let added = data.chunks(1).take_while(|byte| list.bytes(byte)).count();
        assert_eq!((added, list.len()), (RANGES_MAX, RANGES_MAX));
        assert_eq!(list.send(sender.as_fd(), &mut tally), Ok(RANGES_MAX));
        let mut buffer = vec![0; 2 * RANGES_MAX];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), RANGES_MAX);
        assert_eq!(scratch.gather().len(), 0);
    }
}
