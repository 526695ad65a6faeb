// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for any of a few descriptors, without state in the kernel between waits.
//!
//! [`super::Poll`] does the same for many; but a descriptor in an epoll set makes the kernel call a
//! function at each arrival, even without a waiting thread: 0.15 µs a frame of an XDP socket.
//! `ppoll` causes no call between waits.
//!
//! Sources: `poll(2)`; Linux 6.18 `net/core/sock.c` (`sock_def_readable`), `fs/eventpoll.c`
//! (`ep_poll_callback`).
//!
//! Does not report which descriptor is ready.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use crate::error::Errno;
use crate::receive::ReceiveStats;
use crate::sys::last_errno;

/// Memory for the list, kept from wait to wait.
#[derive(Default)]
pub(crate) struct Waiting(Vec<libc::pollfd>);

impl Waiting {
    /// Begins an empty list.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a descriptor to the wait. It must still be open when the wait begins; otherwise the
    /// wait may use another descriptor with its number.
    pub(crate) fn add(&mut self, descriptor: BorrowedFd<'_>) {
        let fd = descriptor.as_raw_fd();
        self.0.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    }

    /// Waits at most `wait` for one to be ready, or for a signal.
    pub(crate) fn wait(&mut self, wait: Duration, stats: &mut ReceiveStats) -> Result<(), Errno> {
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(wait.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        stats.waits += 1;
        let (list, count) = (self.0.as_mut_ptr(), self.0.len() as libc::nfds_t);
        // SAFETY: there are `count` live records, of which the kernel writes `revents`; `time` is
        // alive; no mask is given.
        let ready = unsafe { libc::ppoll(list, count, &raw const time, ptr::null()) };
        if ready >= 0 {
            return Ok(());
        }
        match last_errno() {
            errno if errno.is_again() => Ok(()),
            errno => Err(errno),
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiting({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_ends_when_one_of_them_is_ready() {
        let sockets = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let (mut waiting, mut stats) = (Waiting::default(), ReceiveStats::default());
        let mut wait = |most| {
            waiting.clear();
            sockets.iter().for_each(|socket| waiting.add(socket.as_fd()));
            let start = Instant::now();
            waiting.wait(most, &mut stats).unwrap();
            start.elapsed()
        };
        assert!(wait(Duration::from_millis(3)) >= Duration::from_millis(3));
        sockets[0].send_to(b"x", sockets[1].local_addr().unwrap()).unwrap();
        assert!(wait(Duration::from_secs(3600)) < Duration::from_secs(60));
        assert_eq!(stats.waits, 2);
    }
}
