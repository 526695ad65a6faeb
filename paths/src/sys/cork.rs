// SPDX-License-Identifier: MIT OR Apache-2.0
//! Corking: a datagram made by several calls, sent when the cork is removed, or discarded.
//!
//! Sources: `udp(7)` (`UDP_CORK`), `send(2)` (`MSG_MORE`); Linux 6.18 `net/ipv4/udp.c`
//! (`udp_lib_setsockopt`, `udp_sendmsg`).
//!
//! Does not remember whether a socket is corked; a path removes its own cork.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::set_option;

/// `UDP_CORK` of `linux/udp.h`, which the libc crate lacks for Linux.
const UDP_CORK: libc::c_int = 1;

/// Corks a UDP socket, or removes the cork and thereby sends the corked bytes. A refusal by the
/// network is not reported then: the kernel returns 0 even for a lost datagram.
pub(crate) fn set_cork(
    socket: BorrowedFd<'_>,
    corked: bool,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    set_option(socket, libc::SOL_UDP, UDP_CORK, corked.into(), stats)
}

/// Discards bytes that an interrupted call left corked on a UDP socket, so that they are not sent
/// in front of the next message; harmless without such bytes.
///
/// The kernel has no call for it. Switching `UDP_CORK` off would send the remainder, cut anywhere.
/// A part that cannot be appended makes the kernel drop all corked bytes (`udp_sendmsg`: `if (err)
/// udp_flush_pending_frames(sk)`), and a byte at address 0 cannot be appended.
pub(crate) fn discard_corked(socket: BorrowedFd<'_>, stats: &mut SendStats) {
    let nowhere = libc::iovec { iov_base: ptr::null_mut(), iov_len: 1 };
    // SAFETY: msghdr is plain numbers and pointers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = (&raw const nowhere).cast_mut();
    message.msg_iovlen = 1;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;
    stats.calls += 1;
    // SAFETY: `message` names one range, which the kernel only reads and, as nothing is mapped at
    // address 0, answers with EFAULT.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    debug_assert!(sent < 0, "a byte at address 0 was sent");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::send;
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
        let mut stats = SendStats::default();
        let mut buffer = [0; 64];
        send_flagged(&sender, b"left behind", SendFlags::MORE).unwrap();
        for message in [b"first", b"other"] {
            discard_corked(sender.as_fd(), &mut stats);
            send(sender.as_fd(), message, &mut stats).unwrap();
            let bytes = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..bytes], message);
        }
        assert_eq!(stats.calls, 4);
    }

    #[test]
    fn corked_bytes_are_one_datagram_or_thrown_away() {
        let (sender, receiver) = pair();
        let mut stats = SendStats::default();
        let mut buffer = [0; 64];
        for thrown_away in [true, false] {
            set_cork(sender.as_fd(), true, &mut stats).unwrap();
            for part in [b"one ", b"part"] {
                send(sender.as_fd(), part, &mut stats).unwrap();
            }
            if thrown_away {
                discard_corked(sender.as_fd(), &mut stats);
            }
            set_cork(sender.as_fd(), false, &mut stats).unwrap();
        }
        send(sender.as_fd(), b"next", &mut stats).unwrap();
        for expected in [&b"one part"[..], b"next"] {
            let bytes = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..bytes], expected);
        }
        assert_eq!(stats.calls, 10);
    }
}
