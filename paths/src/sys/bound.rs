// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP sockets for receiving (bound, in their groups, with room for a late reader), and the reach
//! of those that relay.
//!
//! Sets the options that must be set before a socket is bound, and those of receivers alone. Groups
//! are joined by the calls that serve both families and accept the device's number (RFC 3678 §5.1).
//!
//! Sources: `socket(2)`, `bind(2)`, `ip(7)`, `ipv6(7)`, `udp(7)` (`UDP_GRO`, Linux 5.0),
//! `socket(7)` (`SO_RCVBUFFORCE`, `SO_TIMESTAMPNS`); RFC 3678.
//!
//! Does not choose options.

use std::ffi::CString;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::address::{Name, name};
use crate::sys::last_errno;
use crate::sys::option::{option, set_option, set_record};

/// Returns a non-blocking socket for UDP over the family of `address`. An IPv6 socket receives no
/// IPv4.
pub(crate) fn udp_socket(address: SocketAddr, stats: &mut SendStats) -> Result<UdpSocket, Errno> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    stats.calls += 1;
    // SAFETY: the call takes no pointer.
    let socket = unsafe { libc::socket(family, kind, 0) };
    if socket < 0 {
        return Err(last_errno());
    }
    // SAFETY: the call succeeded, so it is open and owned by no other code.
    let socket = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(socket) });
    if family == libc::AF_INET6 {
        set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1, stats)?;
    }
    Ok(socket)
}

/// Lets others bind the same address: each receives the datagrams of a group, only one those of a
/// host's address.
pub(crate) fn share_address(socket: BorrowedFd<'_>, stats: &mut SendStats) -> Result<(), Errno> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1, stats)
}

/// Binds a socket.
pub(crate) fn bind(
    socket: BorrowedFd<'_>,
    address: SocketAddr,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let (name, bytes) = name(address);
    stats.calls += 1;
    // SAFETY: `name` is alive and at least `bytes` long; the call reads it alone.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), bytes) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Returns the number of the device of that name.
pub(crate) fn device_index(device: &str, stats: &mut SendStats) -> Result<u32, Errno> {
    let device = CString::new(device).map_err(|_| Errno::new(libc::ENODEV))?;
    // The call opens a socket, queries it and closes it.
    stats.calls += 3;
    // SAFETY: a string that ends in a zero and outlives the call.
    match unsafe { libc::if_nametoindex(device.as_ptr()) } {
        0 => Err(last_errno()),
        index => Ok(index),
    }
}

/// True when a device of that number exists.
pub(crate) fn has_device(index: u32, stats: &mut SendStats) -> bool {
    let mut device = [0; libc::IF_NAMESIZE];
    stats.calls += 3;
    // SAFETY: room for a device's name, as the call demands.
    !unsafe { libc::if_indextoname(index, device.as_mut_ptr()) }.is_null()
}

/// Joins a group on the device `device` (0: the route's), for datagrams from `source` or from any
/// sender.
pub(crate) fn join_group(
    socket: BorrowedFd<'_>,
    group: IpAddr,
    source: Option<IpAddr>,
    device: u32,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let level = if group.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 };
    let group = storage(group);
    match source.map(storage) {
        Some(source) => {
            let request = libc::group_source_req {
                gsr_interface: device,
                gsr_group: group,
                gsr_source: source,
            };
            set_record(socket, level, libc::MCAST_JOIN_SOURCE_GROUP, &request, stats)
        }
        None => {
            let request = libc::group_req { gr_interface: device, gr_group: group };
            set_record(socket, level, libc::MCAST_JOIN_GROUP, &request, stats)
        }
    }
}

/// Sends datagrams for groups by the device of that number.
pub(crate) fn send_groups_by(
    socket: BorrowedFd<'_>,
    group: IpAddr,
    device: u32,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let index = libc::c_int::try_from(device).map_err(|_| Errno::new(libc::ENODEV))?;
    if group.is_ipv6() {
        return set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, index, stats);
    }
    let any = libc::in_addr { s_addr: libc::INADDR_ANY };
    let request = libc::ip_mreqn { imr_multiaddr: any, imr_address: any, imr_ifindex: index };
    set_record(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request, stats)
}

/// Sets the hop limit (TTL) of datagrams to `target`.
pub(crate) fn set_hops(
    socket: BorrowedFd<'_>,
    target: IpAddr,
    hops: u8,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let (level, option) = match (target.is_ipv4(), target.is_multicast()) {
        (true, true) => (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL),
        (true, false) => (libc::IPPROTO_IP, libc::IP_TTL),
        (false, true) => (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
        (false, false) => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    };
    set_option(socket, level, option, hops.into(), stats)
}

fn storage(address: IpAddr) -> libc::sockaddr_storage {
    // SAFETY: plain numbers, for which all zeroes is a value.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    const _: () = assert!(size_of::<Name>() <= size_of::<libc::sockaddr_storage>());
    const _: () = assert!(align_of::<Name>() <= align_of::<libc::sockaddr_storage>());
    // SAFETY: it has room for a Name and is as aligned, as asserted above.
    unsafe { (&raw mut storage).cast::<Name>().write(name(SocketAddr::new(address, 0)).0) };
    storage
}

/// Excludes the groups that others on this host have joined (`IP_MULTICAST_ALL`).
pub(crate) fn own_groups_only(
    socket: BorrowedFd<'_>,
    group: IpAddr,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let (level, option) = match group {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL),
    };
    set_option(socket, level, option, 0, stats)
}

/// Sets the receive buffer: to the requested size with `CAP_NET_ADMIN`, otherwise up to
/// `net.core.rmem_max`.
pub(crate) fn set_receive_buffer(
    socket: BorrowedFd<'_>,
    bytes: u32,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    match set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value, stats) {
        Err(errno) if errno.code() == libc::EPERM => {
            set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, value, stats)
        }
        set => set,
    }
}

/// Returns the receive buffer's size, as the kernel counts it: twice the requested size.
pub(crate) fn receive_buffer(
    socket: BorrowedFd<'_>,
    stats: &mut SendStats,
) -> Result<usize, Errno> {
    // SAFETY: an int is a plain number.
    let bytes: libc::c_int = unsafe { option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, stats)? };
    usize::try_from(bytes).map_err(|_| Errno::new(libc::EOVERFLOW))
}

/// Makes the kernel timestamp each datagram.
pub(crate) fn report_time(socket: BorrowedFd<'_>, stats: &mut SendStats) -> Result<(), Errno> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1, stats)
}

/// Receives runs that the kernel has joined, or the sender has not segmented yet, as one.
pub(crate) fn take_joined(socket: BorrowedFd<'_>, stats: &mut SendStats) -> Result<(), Errno> {
    set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1, stats)
}

/// Drops every datagram before it enters the socket's buffer.
pub(crate) fn take_nothing(socket: BorrowedFd<'_>, stats: &mut SendStats) -> Result<(), Errno> {
    // The filter accepts 0 bytes of a datagram.
    let mut nothing = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    // The kernel reads the one instruction and keeps a copy.
    set_record(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program, stats)
}
