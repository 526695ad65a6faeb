// SPDX-License-Identifier: MIT OR Apache-2.0
//! `MSG_ZEROCOPY`: switching it on for a socket.
//!
//! The kernel numbers a socket's zero-copy sends from 0 on and reports, on the socket's error
//! queue, ranges of numbers that it is done with, and whether it copied them nevertheless.
//!
//! Sources: Linux `Documentation/networking/msg_zerocopy.rst`, `socket(7)` (`SO_ZEROCOPY`, 4.14 for
//! TCP and 5.0 for UDP), `SO_COOKIE` (4.6).
//!
//! Does not read the reports ([`crate::sys::next_error`] does).

use std::os::fd::BorrowedFd;

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::{option, set_option};

/// `SO_ZEROCOPY`, `SO_COOKIE`, of `asm-generic/socket.h`, which the libc crate lacks.
const SO_ZEROCOPY: libc::c_int = 60;
const SO_COOKIE: libc::c_int = 57;

/// Enables `MSG_ZEROCOPY` on this socket; plain sends are unaffected.
pub(crate) fn set_zerocopy(socket: BorrowedFd<'_>, stats: &mut SendStats) -> Result<(), Errno> {
    set_option(socket, libc::SOL_SOCKET, SO_ZEROCOPY, 1, stats)
}

/// True when it is enabled already.
pub(crate) fn is_zerocopy(socket: BorrowedFd<'_>, stats: &mut SendStats) -> Result<bool, Errno> {
    // SAFETY: an int is plain numbers.
    let value: libc::c_int = unsafe { option(socket, libc::SOL_SOCKET, SO_ZEROCOPY, stats) }?;
    Ok(value != 0)
}

/// Returns a number that no other socket has or had since the machine was started.
pub(crate) fn cookie(socket: BorrowedFd<'_>, stats: &mut SendStats) -> Result<u64, Errno> {
    // SAFETY: a u64 is plain numbers.
    unsafe { option(socket, libc::SOL_SOCKET, SO_COOKIE, stats) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{ErrorQueueEntry, FileMap, ZerocopyReport, next_error, send_mapped_zerocopy};
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_zero_copy_send_is_reported_once_and_cookies_differ() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1000).unwrap();
        let map = FileMap::new(&file, 1000).unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(receiver) = UdpSocket::bind(address) else {
                eprintln!("skip: no loopback for {address}");
                continue;
            };
            let sender = UdpSocket::bind(address).unwrap();
            sender.connect(receiver.local_addr().unwrap()).unwrap();
            let (socket, mut stats) = (sender.as_fd(), SendStats::default());
            assert_eq!(is_zerocopy(socket, &mut stats), Ok(false));
            set_zerocopy(socket, &mut stats).unwrap();
            assert_eq!(is_zerocopy(socket, &mut stats), Ok(true));
            let empty = next_error(socket, &mut stats).unwrap_err();
            assert_eq!(empty.code(), libc::EAGAIN);
            for number in 0..2 {
                let sent = send_mapped_zerocopy(socket, &map, 0, 1000, &mut stats);
                assert_eq!(sent, Ok(1000));
                receiver.recv(&mut [0; 1000]).unwrap();
                let done = ZerocopyReport { first: number, last: number, copied: true };
                assert_eq!(next_error(socket, &mut stats), Ok(ErrorQueueEntry::Zerocopy(done)));
            }
            assert_eq!((stats.calls, stats.copied_bytes), (8, 0));
            let other = cookie(receiver.as_fd(), &mut stats).unwrap();
            assert_ne!(cookie(socket, &mut stats).unwrap(), other);
        }
    }
}
