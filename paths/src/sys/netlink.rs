// SPDX-License-Identifier: MIT OR Apache-2.0
//! One question to the kernel's routing (rtnetlink) and its answer, in one part or in several.
//!
//! Sources: `netlink(7)`, `rtnetlink(7)`.
//!
//! Does not interpret messages ([`crate::frame`] does), and does not wait: the kernel has put the
//! answer to a question about one thing into the socket before the send returns.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::{counted, last_errno};

/// A socket to the kernel's routing.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    pub(crate) fn open(stats: &mut SendStats) -> Result<Self, Errno> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        stats.calls += 1;
        // SAFETY: socket takes no pointer.
        let descriptor = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if descriptor < 0 {
            return Err(last_errno());
        }
        // SAFETY: the descriptor is new and owned by no other code.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Sends a question; returns the part of `answer` that was filled.
    pub(crate) fn ask<'a>(
        &self,
        question: &[u8],
        answer: &'a mut [u8],
        stats: &mut SendStats,
    ) -> Result<&'a [u8], Errno> {
        let socket = self.0.as_raw_fd();
        stats.calls += 1;
        // SAFETY: the range is the slice's own. A netlink socket that was not connected sends to
        // the kernel.
        let sent = unsafe { libc::send(socket, question.as_ptr().cast(), question.len(), 0) };
        counted(sent)?;
        self.more(answer, stats)
    }

    /// Reads the next part of the answer to a question about many objects (a dump): the kernel puts
    /// it into the socket when the previous part is read.
    pub(crate) fn more<'a>(
        &self,
        answer: &'a mut [u8],
        stats: &mut SendStats,
    ) -> Result<&'a [u8], Errno> {
        let socket = self.0.as_raw_fd();
        stats.calls += 1;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the range is the slice's own.
        let got = unsafe { libc::recv(socket, answer.as_mut_ptr().cast(), answer.len(), flags) };
        // MSG_TRUNC makes the call return the full length, even of a truncated answer.
        answer.get(..counted(got)?).ok_or(Errno::new(libc::EMSGSIZE))
    }
}
