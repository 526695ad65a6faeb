// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socket's error queue: reports of zero-copy sends, of the path and of missed departure times,
//! and the options that limit the effect of ICMP on a socket.
//!
//! ICMP reaches a connected UDP socket in two ways. It sets the socket's pending error, which the
//! next send returns instead of sending; without `IP_RECVERR` only the fatal kinds do so (port and
//! protocol unreachable, prohibited, fragmentation needed). With `IP_RECVERR` all kinds do, and
//! each is queued with the payload that it quotes; besides, `ENOBUFS` of a full device queue is
//! then returned instead of hidden. So the queue is switched on at the first pending error, and a
//! socket without ICMP has no cost.
//!
//! The other effect is on the path MTU: "fragmentation needed" lowers that of the route, also where
//! it quotes a packet of another socket. [`ignore_path_mtu`] makes a socket use its device's MTU.
//!
//! Sources: `ip(7)`, `ipv6(7)`, `linux/errqueue.h`; Linux 6.18 `net/ipv4/udp.c` (`__udp4_lib_err`,
//! `udp_send_skb`), `net/ipv4/ip_sockglue.c` (`ip_icmp_error`), `include/net/ip.h`
//! (`ip_sk_accept_pmtu`, `ip_sk_use_pmtu`), `net/core/skbuff.c` (`sock_dequeue_err_skb`: a report
//! that is taken also takes back the pending error that it set).
//!
//! Does not map numbers to sends ([`crate::zerocopy`] does), or trust a report
//! ([`crate::PathReport`]).

use std::mem::{MaybeUninit, zeroed};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::Errno;
use crate::report::{PathFault, PathReport, QUOTE_BYTES};
use crate::send_stats::SendStats;
use crate::sys::{counted, set_option};

/// Values of `IP_MTU_DISCOVER` and `IPV6_MTU_DISCOVER` of `linux/in.h`, equal for both.
const PROBE: libc::c_int = 3;
const OMIT: libc::c_int = 5;
/// `SO_EE_ORIGIN_ZEROCOPY`, `SO_EE_CODE_ZEROCOPY_COPIED` of `linux/errqueue.h`, which the libc
/// crate lacks.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;
/// `SO_EE_ORIGIN_TXTIME`, `SO_EE_CODE_TXTIME_MISSED` of `linux/errqueue.h`.
const ORIGIN_TXTIME: u8 = 6;
const CODE_TXTIME_MISSED: u8 = 2;
/// RFC 792 and RFC 4443 §3.1, §3.2.
const ICMP_UNREACHABLE: u8 = 3;
const ICMP_PORT: u8 = 3;
const ICMP_FRAGMENTATION_NEEDED: u8 = 4;
const ICMP6_UNREACHABLE: u8 = 1;
const ICMP6_PORT: u8 = 4;
const ICMP6_TOO_BIG: u8 = 2;

/// Buffer for a report: its 32 bytes, the address of a peer, and a reserve.
const CONTROL_WORDS: usize = 32;

/// Memory for waiting reports (the kernel doubles it): a dozen from a driver that charges 1 KiB
/// each, three from one that charges 4 KiB. A flood of ICMP costs a session no more memory than
/// this.
const QUEUE_BYTES: libc::c_int = 8 << 10;

/// Entry of the error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorQueueEntry {
    /// The kernel is done with zero-copy sends.
    Zerocopy(ZerocopyReport),
    /// A report by ICMP.
    Path(PathReport),
    /// A datagram was dropped because of its departure time.
    Departure(DepartureReport),
    /// An error of this host, which the send returned as well.
    Local,
}

/// The kernel is done with the sends of these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZerocopyReport {
    pub(crate) first: u32,
    /// The last number, included.
    pub(crate) last: u32,
    /// True when their bytes were copied nevertheless.
    pub(crate) copied: bool,
}

/// The reason why a queueing discipline dropped a datagram, and its intended departure time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DepartureReport {
    /// True when it was too late; false when the socket's clock or mode is not the discipline's.
    pub(crate) is_missed: bool,
    pub(crate) departure_ns: u64,
}

/// Sends to `peer` by the MTU of the device, regardless of ICMP's path MTU.
///
/// IPv4 is sent without DF, so a router fragments packets that do not fit. IPv6 routers do not:
/// there the kernel continues to report "packet too big", and a packet larger than the device's MTU
/// is refused until [`cut_at_device`].
pub(crate) fn ignore_path_mtu(
    socket: BorrowedFd<'_>,
    peer: IpAddr,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    if is_ipv4(peer) {
        return set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, OMIT, stats);
    }
    set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, PROBE, stats)
}

/// Makes the kernel fragment packets to an IPv6 peer that exceed the device's MTU.
pub(crate) fn cut_at_device(socket: BorrowedFd<'_>, stats: &mut SendStats) -> Result<(), Errno> {
    set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, OMIT, stats)
}

/// Makes the kernel queue ICMP reports of packets to `peer`, with their quotes.
pub(crate) fn queue_reports(
    socket: BorrowedFd<'_>,
    peer: IpAddr,
    stats: &mut SendStats,
) -> Result<(), Errno> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, QUEUE_BYTES, stats)?;
    match is_ipv4(peer) {
        true => set_option(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1, stats),
        false => set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1, stats),
    }
}

/// Drops up to `datagrams` waiting datagrams of the socket: they use the memory of the reports.
pub(crate) fn drop_datagrams(socket: BorrowedFd<'_>, datagrams: usize, stats: &mut SendStats) {
    for _ in 0..datagrams {
        stats.calls += 1;
        // SAFETY: no bytes are requested, so none are written; the rest of a datagram is dropped.
        let received =
            unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
        if received < 0 {
            return;
        }
    }
}

/// True for IPv4, also for an IPv4-mapped IPv6 address.
pub(crate) fn is_ipv4(peer: IpAddr) -> bool {
    match peer {
        IpAddr::V4(_) => true,
        IpAddr::V6(peer) => peer.to_ipv4_mapped().is_some(),
    }
}

/// Removes and returns the next entry of the error queue; `EAGAIN` when it is empty.
pub(crate) fn next_error(
    socket: BorrowedFd<'_>,
    stats: &mut SendStats,
) -> Result<ErrorQueueEntry, Errno> {
    let mut control = [MaybeUninit::<u64>::uninit(); CONTROL_WORDS];
    let mut quote = [0_u8; QUOTE_BYTES];
    let mut range =
        libc::iovec { iov_base: quote.as_mut_ptr().cast(), iov_len: size_of_val(&quote) };
    // SAFETY: msghdr is plain numbers and pointers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut range;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    stats.calls += 1;
    // SAFETY: `message` names one range for data and one for control, live and of the lengths
    // given.
    let bytes = counted(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) })?;
    let quote = &quote[..bytes.min(QUOTE_BYTES)];
    // SAFETY: the kernel has written `msg_controllen` bytes of well-formed control messages into
    // `control`, which is aligned for cmsghdr and lives to the end of this function.
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
            return Ok(queued(&error, quote));
        }
        // SAFETY: `header` is one of `message`, as above.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(ErrorQueueEntry::Local)
}

fn queued(error: &libc::sock_extended_err, quote: &[u8]) -> ErrorQueueEntry {
    let fault = match (error.ee_origin, error.ee_type, error.ee_code) {
        (ORIGIN_ZEROCOPY, ..) => {
            let copied = error.ee_code & CODE_COPIED != 0;
            return ErrorQueueEntry::Zerocopy(ZerocopyReport {
                first: error.ee_info,
                last: error.ee_data,
                copied,
            });
        }
        (ORIGIN_TXTIME, _, code) => {
            // Linux 6.18 `net/sched/sch_etf.c` (`report_sock_error`): the upper half is `ee_data`.
            let departure_ns = u64::from(error.ee_data) << 32 | u64::from(error.ee_info);
            let is_missed = code == CODE_TXTIME_MISSED;
            return ErrorQueueEntry::Departure(DepartureReport { is_missed, departure_ns });
        }
        (libc::SO_EE_ORIGIN_ICMP, ICMP_UNREACHABLE, ICMP_PORT)
        | (libc::SO_EE_ORIGIN_ICMP6, ICMP6_UNREACHABLE, ICMP6_PORT) => PathFault::PortUnreachable,
        (libc::SO_EE_ORIGIN_ICMP, ICMP_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED)
        | (libc::SO_EE_ORIGIN_ICMP6, ICMP6_TOO_BIG, _) => {
            PathFault::TooLarge { mtu: error.ee_info }
        }
        (libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6, ..) => PathFault::Transient,
        _ => return ErrorQueueEntry::Local,
    };
    ErrorQueueEntry::Path(PathReport::new(fault, quote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_closed_port_is_reported_with_the_quoted_payload() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(closed) = UdpSocket::bind(address) else {
                eprintln!("skip: no loopback for {address}");
                continue;
            };
            let peer = closed.local_addr().unwrap();
            // The socket holds the port and receives nothing from others than this one.
            closed.connect((peer.ip(), 9)).unwrap();
            let sender = UdpSocket::bind(address).unwrap();
            sender.connect(peer).unwrap();
            let (socket, mut stats) = (sender.as_fd(), SendStats::default());
            queue_reports(socket, peer.ip(), &mut stats).unwrap();
            assert_eq!(next_error(socket, &mut stats).unwrap_err().code(), libc::EAGAIN);
            sender.send(b"a payload of ours").unwrap();
            let report = PathReport::new(PathFault::PortUnreachable, b"a payload of ours");
            assert_eq!(
                next_error(socket, &mut stats),
                Ok(ErrorQueueEntry::Path(report)),
                "{address}"
            );
            assert_eq!(report.quote(), b"a payload of");
            // Reading the report has also cleared the pending error.
            sender.send(b"again").unwrap();
        }
    }

    #[test]
    fn kinds_of_icmp_are_told_apart() {
        let fault = |ee_origin, ee_type, ee_code| {
            let error = libc::sock_extended_err {
                ee_errno: 0,
                ee_origin,
                ee_type,
                ee_code,
                ee_pad: 0,
                ee_info: 1280,
                ee_data: 0,
            };
            match queued(&error, b"short") {
                ErrorQueueEntry::Path(report) => Some(report.fault),
                _ => None,
            }
        };
        let (v4, v6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
        assert_eq!(fault(v4, 3, 3), Some(PathFault::PortUnreachable));
        assert_eq!(fault(v6, 1, 4), Some(PathFault::PortUnreachable));
        assert_eq!(fault(v4, 3, 4), Some(PathFault::TooLarge { mtu: 1280 }));
        assert_eq!(fault(v6, 2, 0), Some(PathFault::TooLarge { mtu: 1280 }));
        for (kind, code) in [(3, 0), (3, 1), (3, 2), (3, 13), (11, 0), (12, 0)] {
            assert_eq!(fault(v4, kind, code), Some(PathFault::Transient), "{kind} {code}");
        }
        assert_eq!(fault(libc::SO_EE_ORIGIN_LOCAL, 0, 0), None);
    }
    #[test]
    fn a_missed_departure_has_its_time() {
        let error = |ee_code| libc::sock_extended_err {
            ee_errno: libc::ECANCELED as u32,
            ee_origin: ORIGIN_TXTIME,
            ee_type: 0,
            ee_code,
            ee_pad: 0,
            ee_info: 0x89ab_cdef,
            ee_data: 0x0123_4567,
        };
        for (code, is_missed) in [(1, false), (2, true)] {
            let report = DepartureReport { is_missed, departure_ns: 0x0123_4567_89ab_cdef };
            assert_eq!(queued(&error(code), b""), ErrorQueueEntry::Departure(report));
        }
    }
}
