// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket options: UDP segmentation, IP header fields, the rate of TCP, and the two calls that the
//! others are made of.
//!
//! Sources: `udp(7)`: `UDP_SEGMENT`, Linux 4.18; `ip(7)`, `socket(7)`; Linux commits 62748f32d501
//! (`SO_MAX_PACING_RATE`), 218af599fa63 (TCP paces without `fq`), 6bdef102da6a (64-bit rates).
//!
//! Does not remember values ([`crate::Destination`] does).

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::last_errno;

/// Returns the number of bytes handed to a TCP socket that its peer has not acknowledged (tcp(7),
/// `SIOCOUTQ`).
pub fn unacknowledged(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one int, which is alive and writable here.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    match result {
        0 => Ok(u64::try_from(bytes).unwrap_or(0)),
        _ => Err(last_errno()),
    }
}

/// Makes the kernel wake readers of a TCP socket when that many bytes have arrived and not before
/// (socket(7), `SO_RCVLOWAT`); a reader that reads at timer intervals then costs the sender's side
/// no wake-up. The kernel raises the receive buffer to twice as much.
///
/// # Errors
/// `ENOTSOCK`, `EBADF`.
pub fn set_wake_bytes(socket: BorrowedFd<'_>, bytes: u32) -> Result<(), Errno> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let (level, mut stats) = (libc::SOL_SOCKET, SendStats::default());
    set_option(socket, level, libc::SO_RCVLOWAT, value, &mut stats)
}

/// Limits the rate at which TCP sends, in bytes a second; [`UNPACED`] removes the limit. The
/// queueing discipline `fq` enforces it where the interface has it, and a timer of the socket
/// elsewhere: the call is the same.
///
/// # Errors
/// `ENOTSOCK`, `EBADF`.
pub fn set_max_pacing_rate(socket: BorrowedFd<'_>, bytes_per_s: u64) -> Result<(), Errno> {
    let (name, mut stats) = (libc::SO_MAX_PACING_RATE, SendStats::default());
    set_record(socket, libc::SOL_SOCKET, name, &bytes_per_s, &mut stats)
}

/// Rate of a socket without a limit.
pub const UNPACED: u64 = u64::MAX;

/// Sets the size of the datagrams into which the kernel cuts a send; 0 switches that off.
pub(crate) fn set_udp_segment(
    socket: BorrowedFd<'_>,
    segment_bytes: u32,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let value = libc::c_int::try_from(segment_bytes).map_err(|_| Errno::new(libc::EINVAL))?;
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, value, stats)
}

/// Limits the bytes of a TCP socket that are written and not sent (tcp(7), `TCP_NOTSENT_LOWAT`).
pub(crate) fn set_unsent_bytes_max(
    socket: BorrowedFd<'_>,
    bytes: u32,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, stats)
}

/// Makes a TCP socket accept no more while it holds that many bytes unsent (tcp(7),
/// `TCP_NOTSENT_LOWAT`): a reader that falls behind is noticed early and occupies little memory.
///
/// # Errors
/// `ENOTSOCK`, `EBADF`.
pub fn limit_unsent_bytes(socket: BorrowedFd<'_>, bytes: u32) -> Result<(), Errno> {
    set_unsent_bytes_max(socket, bytes, &mut SendStats::default())
}

/// Returns the value of an option of IPv4 that is a byte of its header, such as `IP_TTL`.
pub(crate) fn ip_option(
    socket: BorrowedFd<'_>,
    name: libc::c_int,
    stats: &mut SendStats,
) -> Result<u8, Errno> {
    // SAFETY: an int is a plain number.
    let value: libc::c_int = unsafe { option(socket, libc::IPPROTO_IP, name, stats)? };
    u8::try_from(value).map_err(|_| Errno::new(libc::EOVERFLOW))
}

/// Sets the send buffer: two calls. The kernel grants up to the host's limit, and more with
/// `CAP_NET_ADMIN`.
pub(super) fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize, stats: &mut SendStats) {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for name in [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE] {
        // A smaller buffer suffices.
        let _ = set_option(socket, libc::SOL_SOCKET, name, value, stats);
    }
}

/// Switches transmit checksums off: the kernel then refuses UDP segmentation with `EINVAL`, as it
/// would for a route that cannot do it.
#[cfg(test)]
pub(crate) fn set_no_checksums(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1, &mut SendStats::default())
}

/// Sets an option whose value is an int.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    set_record(socket, level, option, &value, stats)
}

/// Sets an option whose value is a record of the kernel's.
pub(super) fn set_record<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    stats.calls += 1;
    // SAFETY: `value` is alive and the length given is its own; the kernel only reads it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Returns the value of an option of type `T`.
///
/// # Safety
/// `T` is a type of plain numbers: any bytes are a value of it.
pub(super) unsafe fn option<T: Copy + Default>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    stats: &mut SendStats,
) -> Result<T, Errno> {
    let mut value = T::default();
    let mut bytes = size_of::<T>() as libc::socklen_t;
    stats.calls += 1;
    // SAFETY: `value` is live and the length given is its own, so the kernel writes no further; the
    // bytes it writes are a value of `T`, as the caller guarantees.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut bytes)
    };
    if done == 0 { Ok(value) } else { Err(last_errno()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn pacing_rate_of_64_bits_is_kept_and_lifted() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let rate = || {
            let (level, name) = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
            // SAFETY: an integer is a plain number.
            unsafe { option::<u64>(socket.as_fd(), level, name, &mut SendStats::default()) }
        };
        assert_eq!(rate(), Ok(UNPACED));
        for bytes_per_s in [1, 625_000, 20 << 32, UNPACED] {
            assert_eq!(set_max_pacing_rate(socket.as_fd(), bytes_per_s), Ok(()));
            assert_eq!(rate(), Ok(bytes_per_s));
        }
    }
}
