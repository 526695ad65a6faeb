// SPDX-License-Identifier: MIT OR Apache-2.0
//! `SO_TXTIME`: departure times of datagrams, and the clocks they are times of.
//!
//! A socket names the clock once; each send may then carry a time of it (`SCM_TXTIME`,
//! [`crate::sys::Gather::send_at`]).
//!
//! Sources: `socket(7)`; Linux 6.18 `include/uapi/linux/net_tstamp.h` (`struct sock_txtime`),
//! `net/core/sock.c` (`SO_TXTIME` requires `CAP_NET_ADMIN` for every clock but the monotonic one).
//!
//! Does not check that a queueing discipline respects the times ([`crate::departure`] does).

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::{set_record, time_of};

/// `struct sock_txtime`.
#[repr(C)]
struct SockTxtime {
    clock: libc::clockid_t,
    flags: u32,
}

const _: () = assert!(size_of::<SockTxtime>() == 8);

/// `SOF_TXTIME_DEADLINE_MODE`: the time is the latest, not the exact one.
const DEADLINE_MODE: u32 = 1;
/// `SOF_TXTIME_REPORT_ERRORS`.
const REPORT_ERRORS: u32 = 2;

/// Sets the clock of a socket's departure times; `is_reported` queues a report for each datagram
/// that was dropped because of its time ([`crate::sys::ErrorQueueEntry::Departure`]).
pub(crate) fn set_departure_clock(
    socket: BorrowedFd<'_>,
    clock: libc::clockid_t,
    (is_deadline, is_reported): (bool, bool),
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let deadline = if is_deadline { DEADLINE_MODE } else { 0 };
    let report = if is_reported { REPORT_ERRORS } else { 0 };
    let value = SockTxtime { clock, flags: deadline | report };
    set_record(socket, libc::SOL_SOCKET, libc::SO_TXTIME, &value, stats)
}

/// Returns the reading of a clock; zero where the kernel has none of that number.
pub(crate) fn clock_reading(clock: libc::clockid_t) -> Duration {
    time_of(clock).unwrap_or_default()
}
