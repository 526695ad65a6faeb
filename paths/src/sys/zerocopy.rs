// SPDX-License-Identifier: MIT OR Apache-2.0
//! `MSG_ZEROCOPY`: switching it on for a socket, and what the kernel reports of such sends.
//!
//! The kernel numbers a socket's zero-copy sends from 0 on and reports, on the socket's error
//! queue, ranges of numbers that it is done with, and whether it copied them after all.
//!
//! Sources: Linux `Documentation/networking/msg_zerocopy.rst`, `socket(7)` (`SO_ZEROCOPY`, 4.14 for
//! TCP and 5.0 for UDP), `SO_COOKIE` (4.6), `linux/errqueue.h`.
//!
//! What it does not do: know which number was which send ([`crate::zerocopy`] does).

use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::Errno;
use crate::sys::{counted, option, set_option};
use crate::tally::Tally;

/// `SO_ZEROCOPY`, `SO_COOKIE`, of `asm-generic/socket.h`, which the libc crate lacks.
const SO_ZEROCOPY: libc::c_int = 60;
const SO_COOKIE: libc::c_int = 57;
/// `SO_EE_ORIGIN_ZEROCOPY`, `SO_EE_CODE_ZEROCOPY_COPIED` of `linux/errqueue.h`, likewise.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

/// Room for a report: 32 bytes of it and the address of a peer, and to spare.
const CONTROL_WORDS: usize = 32;

/// The kernel is done with the sends of these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) first: u32,
    /// Included.
    pub(crate) last: u32,
    /// Whether their bytes were copied after all.
    pub(crate) copied: bool,
}

/// Makes `MSG_ZEROCOPY` mean something on this socket; plain sends stay what they are.
pub(crate) fn set_zerocopy(socket: BorrowedFd<'_>, tally: &mut Tally) -> Result<(), Errno> {
    set_option(socket, libc::SOL_SOCKET, SO_ZEROCOPY, 1, tally)
}

/// Whether somebody has done so already.
pub(crate) fn is_zerocopy(socket: BorrowedFd<'_>, tally: &mut Tally) -> Result<bool, Errno> {
    // SAFETY: an int is plain numbers.
    let value: libc::c_int = unsafe { option(socket, libc::SOL_SOCKET, SO_ZEROCOPY, tally) }?;
    Ok(value != 0)
}

/// A number that no other socket has or had since the machine was started.
pub(crate) fn cookie(socket: BorrowedFd<'_>, tally: &mut Tally) -> Result<u64, Errno> {
    // SAFETY: a u64 is plain numbers.
    unsafe { option(socket, libc::SOL_SOCKET, SO_COOKIE, tally) }
}

/// Takes the next report off the error queue; `None` when it is not one of a zero-copy send,
/// `EAGAIN` when there is none.
pub(crate) fn report(socket: BorrowedFd<'_>, tally: &mut Tally) -> Result<Option<Report>, Errno> {
    let mut control = [MaybeUninit::<u64>::uninit(); CONTROL_WORDS];
    // SAFETY: msghdr is plain numbers and pointers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    tally.calls += 1;
    // SAFETY: `message` names no range for data and one, live and of the length given, for control.
    counted(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) })?;
    // SAFETY: the kernel has written `msg_controllen` bytes of well-formed control messages into
    // `control`, which is aligned for cmsghdr and lives on to the end of this function.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: not null, so it is a whole header within `control`.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if matches!(
            (level, kind),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        ) {
            // SAFETY: messages of this kind hold a sock_extended_err, plain numbers that may lie
            // unaligned.
            let error: libc::sock_extended_err = unsafe {
                libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned()
            };
            let report = Report {
                first: error.ee_info,
                last: error.ee_data,
                copied: error.ee_code & CODE_COPIED != 0,
            };
            return Ok((error.ee_origin == ORIGIN_ZEROCOPY).then_some(report));
        }
        // SAFETY: `header` is one of `message`, as above.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Map, send_mapped_zerocopy};
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_zero_copy_send_is_reported_once_and_cookies_differ() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1000).unwrap();
        let map = Map::new(&file, 1000).unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(receiver) = UdpSocket::bind(address) else {
                eprintln!("skip: no loopback for {address}");
                continue;
            };
            let sender = UdpSocket::bind(address).unwrap();
            sender.connect(receiver.local_addr().unwrap()).unwrap();
            let (socket, mut tally) = (sender.as_fd(), Tally::default());
            assert_eq!(is_zerocopy(socket, &mut tally), Ok(false));
            set_zerocopy(socket, &mut tally).unwrap();
            assert_eq!(is_zerocopy(socket, &mut tally), Ok(true));
            let empty = report(socket, &mut tally).unwrap_err();
            assert_eq!(empty.code(), libc::EAGAIN);
            for number in 0..2 {
                let sent = send_mapped_zerocopy(socket, &map, 0, 1000, &mut tally);
                assert_eq!(sent, Ok(1000));
                receiver.recv(&mut [0; 1000]).unwrap();
                let done = report(socket, &mut tally).unwrap().unwrap();
                assert_eq!(done, Report { first: number, last: number, copied: true });
            }
            assert_eq!((tally.calls, tally.copied_bytes), (8, 0));
            let other = cookie(receiver.as_fd(), &mut tally).unwrap();
            assert_ne!(cookie(socket, &mut tally).unwrap(), other);
        }
    }
}
