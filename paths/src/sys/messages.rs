// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many messages in one call.
//!
//! [`Outbox`] holds a thread's buffers for them, kept so that no batch allocates; [`Messages`]
//! borrows it together with all queued data, so the kernel reads only live memory.
//!
//! Sources: `sendmmsg(2)`: up to 1,024 messages a call, and the count of those sent when one is
//! refused; its error is then lost.
//!
//! Does not interpret a refusal or repeat a call.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::{FileMap, counted};

/// Largest number of messages of a call: `UIO_MAXIOV` of Linux.
pub(crate) const MESSAGES_MAX: usize = libc::UIO_MAXIOV as usize;

/// Ranges of all messages together: a header and 7 pieces for each.
const RANGES_MAX: usize = 8 * MESSAGES_MAX;

/// Buffers for messages, reused from call to call.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// The ranges of all messages, one after the other.
    ranges: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the addresses in it are used through Messages alone, which clears it when it begins and
// borrows all that it then adds; between two uses it is only memory to be overwritten.
unsafe impl Send for Outbox {}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { ranges: Vec::with_capacity(RANGES_MAX), messages: Vec::with_capacity(MESSAGES_MAX) }
    }

    /// Begins with no message.
    pub(crate) fn open<'data>(&mut self) -> Messages<'_, 'data> {
        self.ranges.clear();
        self.messages.clear();
        Messages { outbox: self, data: PhantomData }
    }
}

/// Messages to be sent in one call; `'data` is the lifetime of their bytes.
#[derive(Debug)]
pub(crate) struct Messages<'outbox, 'data> {
    outbox: &'outbox mut Outbox,
    data: PhantomData<&'data [u8]>,
}

impl<'data> Messages<'_, 'data> {
    /// Begins a message, to which ranges are then added; false when the call holds no more.
    pub(crate) fn begin(&mut self) -> bool {
        if self.outbox.messages.len() >= MESSAGES_MAX {
            return false;
        }
        // SAFETY: mmsghdr is plain numbers and pointers, for which all zeroes is a value.
        self.outbox.messages.push(unsafe { std::mem::zeroed() });
        true
    }

    /// Removes the message that was begun last.
    pub(crate) fn withdraw(&mut self) {
        if let Some(message) = self.outbox.messages.pop() {
            let ranges = self.outbox.ranges.len() - range_count(&message.msg_hdr);
            self.outbox.ranges.truncate(ranges);
        }
    }

    /// Adds `bytes` to the message; false when it, or the call, holds no more ranges.
    pub(crate) fn bytes(&mut self, bytes: &'data [u8]) -> bool {
        self.add(bytes.as_ptr().cast_mut().cast(), bytes.len())
    }

    /// Adds `bytes` bytes of the mapped file from `offset` on; false as for [`Self::bytes`].
    ///
    /// # Panics
    /// When the map does not reach so far: the caller compares first.
    pub(crate) fn mapped(&mut self, map: &'data FileMap, offset: u64, bytes: u64) -> bool {
        let start = map.address(offset, bytes).expect("the range lies in the map");
        self.add(start, bytes as usize)
    }

    fn add(&mut self, start: *mut libc::c_void, bytes: usize) -> bool {
        let outbox = &mut *self.outbox;
        let Some(message) = outbox.messages.last_mut() else { return false };
        let ranges = range_count(&message.msg_hdr);
        if ranges >= libc::UIO_MAXIOV as usize || outbox.ranges.len() >= RANGES_MAX {
            return false;
        }
        message.msg_hdr.msg_iovlen += 1;
        outbox.ranges.push(libc::iovec { iov_base: start, iov_len: bytes });
        true
    }

    /// Sends them, without waiting; returns the number that the kernel accepted, at least one.
    pub(crate) fn send(
        self,
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<usize, Errno> {
        let Outbox { ranges, messages } = self.outbox;
        let mut first = 0;
        for message in messages.iter_mut() {
            let count = range_count(&message.msg_hdr);
            message.msg_hdr.msg_iov = ranges[first..first + count].as_mut_ptr();
            first += count;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        stats.calls += 1;
        // SAFETY: each message names its own ranges, which lie in `ranges` and stay there; each
        // range was added by `bytes` or `mapped` and is borrowed for `'data`, which `self` keeps
        // alive. The kernel writes into the messages' lengths alone. `begin` keeps their number
        // within UIO_MAXIOV, an unsigned int.
        let sent = unsafe {
            let count = messages.len() as libc::c_uint;
            libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, flags as _)
        };
        let sent = counted(sent as libc::ssize_t)?;
        let lengths = messages[..sent].iter().map(|message| u64::from(message.msg_len));
        stats.copied_bytes += lengths.sum::<u64>();
        Ok(sent)
    }
}

/// Returns the number of ranges of a message.
#[allow(clippy::unnecessary_cast, reason = "the C libraries glibc and musl have different types")]
fn range_count(head: &libc::msghdr) -> usize {
    head.msg_iovlen as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn messages_keep_their_ranges_and_one_taken_out_is_not_sent() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let mut outbox = Outbox::new();
        let mut stats = SendStats::default();
        for _ in 0..2 {
            let mut messages = outbox.open();
            for parts in [&["a", "bc"][..], &["not this"], &["", "d"]] {
                assert!(messages.begin());
                assert!(parts.iter().all(|part| messages.bytes(part.as_bytes())));
                if parts.len() == 1 {
                    messages.withdraw();
                }
            }
            assert_eq!(messages.send(sender.as_fd(), &mut stats), Ok(2));
        }
        let mut buffer = [0; 16];
        for expected in ["abc", "d", "abc", "d"] {
            let bytes = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..bytes], expected.as_bytes());
        }
        assert_eq!((stats.calls, stats.copied_bytes), (2, 8));
    }

    #[test]
    fn a_call_and_a_message_have_an_end() {
        let mut outbox = Outbox::new();
        let mut messages = outbox.open();
        assert!(!messages.bytes(b"of no message"));
        let begun = (0..2 * MESSAGES_MAX).take_while(|_| messages.begin()).count();
        assert_eq!(begun, MESSAGES_MAX);
        let added = (0..2 * MESSAGES_MAX).take_while(|_| messages.bytes(b"x")).count();
        assert_eq!(added, libc::UIO_MAXIOV as usize);
        messages.withdraw();
        assert!(messages.begin());
    }
}
