// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for any of many sockets.
//!
//! Level-triggered: a socket that was not emptied is reported again, behind those that were not
//! reported yet, so all are served even when a wait reports fewer than are ready.
//!
//! Sources: `epoll(7)`, `epoll_wait(2)` (`epoll_pwait2`, Linux 5.11).
//!
//! Does not read.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use crate::error::Errno;
use crate::receive::ReceiveStats;
use crate::sys::last_errno;

/// The most sockets that a wait reports.
pub(crate) const READY_MAX: usize = 64;

/// A set of sockets, and those that are ready.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Box<[libc::epoll_event; READY_MAX]>,
    /// True when the kernel waits for less than a millisecond.
    is_fine: bool,
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poll").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Poll {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: the call takes no pointer.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(last_errno());
        }
        // SAFETY: the call succeeded, so it is open and owned by no other code.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let none = libc::epoll_event { events: 0, u64: 0 };
        Ok(Self { epoll, events: Box::new([none; READY_MAX]), is_fine: true })
    }

    /// Adds a socket to the set, with a mark. A closed socket leaves the set.
    pub(crate) fn add(&self, socket: BorrowedFd<'_>, mark: u64) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: mark };
        let (epoll, socket) = (self.epoll.as_raw_fd(), socket.as_raw_fd());
        // SAFETY: `event` is alive; the call reads it alone.
        let done = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, socket, &raw mut event) };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Waits at most `wait` for a socket to be ready; returns the number, at most [`READY_MAX`]; 0
    /// after a signal.
    pub(crate) fn wait(
        &mut self,
        wait: Duration,
        stats: &mut ReceiveStats,
    ) -> Result<usize, Errno> {
        loop {
            let ready = if self.is_fine { self.wait_fine(wait) } else { self.wait_coarse(wait) };
            stats.waits += 1;
            let Err(_) = usize::try_from(ready) else { return Ok(ready as usize) };
            match last_errno() {
                errno if errno.code() == libc::EINTR => return Ok(0),
                // A kernel before 5.11, or a container's system call filter that is older.
                errno if self.is_fine && matches!(errno.code(), libc::ENOSYS | libc::EPERM) => {
                    self.is_fine = false;
                }
                errno => return Err(errno),
            }
        }
    }

    fn wait_fine(&mut self, wait: Duration) -> libc::c_long {
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(wait.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        let epoll = self.epoll.as_raw_fd();
        let events = self.events.as_mut_ptr();
        // SAFETY: there is room for READY_MAX events and `time` is alive; no mask is given.
        unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                epoll,
                events,
                READY_MAX as libc::c_int,
                &raw const time,
                ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        }
    }

    fn wait_coarse(&mut self, wait: Duration) -> libc::c_long {
        let wait_ms = wait.as_nanos().div_ceil(1_000_000);
        let wait_ms = libc::c_int::try_from(wait_ms).unwrap_or(libc::c_int::MAX);
        let (epoll, events) = (self.epoll.as_raw_fd(), self.events.as_mut_ptr());
        // SAFETY: there is room for READY_MAX events.
        unsafe { libc::epoll_wait(epoll, events, READY_MAX as libc::c_int, wait_ms) }.into()
    }

    /// Returns the mark of the ready socket of that number.
    pub(crate) fn ready(&self, number: usize) -> u64 {
        self.events[number].u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn more_sockets_than_are_named_at_once_all_have_their_turn() {
        let mut poll = Poll::new().unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let count = READY_MAX + 10;
        let sockets: Vec<_> = (0..count)
            .map(|mark| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                poll.add(socket.as_fd(), mark as u64).unwrap();
                sender.send_to(b"x", socket.local_addr().unwrap()).unwrap();
                socket
            })
            .collect();
        let mut seen = BTreeSet::new();
        let mut stats = ReceiveStats::default();
        for fine in [true, false] {
            poll.is_fine = fine;
            // Nothing is read: all stay ready.
            for _ in 0..2 {
                let ready = poll.wait(Duration::from_secs(5), &mut stats).unwrap();
                assert_eq!(ready, READY_MAX);
                seen.extend((0..ready).map(|number| poll.ready(number)));
            }
            assert_eq!(seen.len(), count);
            seen.clear();
        }
        drop(sockets);
        assert_eq!(poll.wait(Duration::ZERO, &mut stats).unwrap(), 0, "closed ones are gone");
        assert_eq!(stats.waits, 5);
    }
}
