// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket options of UDP segmentation.
//!
//! Sources: `udp(7)`: `UDP_SEGMENT`, Linux 4.18.
//!
//! What it does not do: remember what is set ([`crate::Destination`] does).

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::Errno;
use crate::sys::last_errno;
use crate::tally::Tally;

/// Sets the size at which the kernel cuts what is sent into datagrams; 0 switches that off.
pub(crate) fn set_udp_segment(
    socket: BorrowedFd<'_>,
    segment_bytes: u32,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let value = libc::c_int::try_from(segment_bytes).map_err(|_| Errno::new(libc::EINVAL))?;
    tally.calls += 1;
    // SAFETY: `value` is a live int and the length given is its own.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Switches transmit checksums off: the kernel then refuses UDP segmentation with `EINVAL`, as it
/// would for a route that cannot do it.
#[cfg(test)]
pub(crate) fn set_no_checksums(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    // SAFETY: `on` is a live int and the length given is its own.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}
