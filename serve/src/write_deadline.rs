// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes to a TCP peer; disconnects a peer that makes no progress, and gives a slow one time.
//!
//! A peer begins with an allowance of time ([`crate::config::Timeouts::write`]); every byte that it
//! acknowledges adds to it, up to twice the allowance. So an answer of any length may take as long
//! as [`RATE_MIN`] needs for it, and no peer holds memory or a descriptor by reading nothing. Free
//! space in the socket's buffer is no measure of progress: the buffer may hold megabytes and wakes
//! a writer when a third has left, which takes a slow peer minutes. The kernel's count of
//! unacknowledged bytes is used instead.
//! Costs nothing while a socket accepts bytes, and one call every [`LOOK_EVERY`] while it does not;
//! where `MSG_ZEROCOPY` is used, six calls a wait.
//!
//! Sources: tcp(7) (SIOCOUTQ), RFC 9293 §3.8.6.2 (a receiver opens its window in steps), Linux
//! `Documentation/networking/msg_zerocopy.rst` (reports make `poll` return `POLLERR`).
//! Does not limit a peer's rate (the network does).

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time that remains to the peer of one answer.
pub(crate) struct Allowance {
    until: Instant,
    most: Duration,
    /// Bytes handed to the kernel and unacknowledged at the last look.
    queued: u64,
    /// True when `queued` includes bytes of earlier answers.
    is_counted: bool,
}

impl Allowance {
    /// Creates the allowance of an answer that begins now; `wait` is the time-out of a peer that
    /// accepts nothing.
    pub(crate) fn new(wait: Duration) -> Allowance {
        Allowance { until: Instant::now() + wait, most: wait * 2, queued: 0, is_counted: false }
    }

    /// Adds bytes that were handed to the kernel.
    pub(crate) fn handed(&mut self, bytes: u64) {
        self.queued += bytes;
    }

    /// Adds a time in which the server itself decided to send nothing.
    pub(crate) fn pause(&mut self, time: Duration) {
        self.until += time;
    }

    /// Waits until the socket accepts more; false when the peer is gone or too slow.
    pub(crate) async fn writable(&mut self, stream: &TcpStream) -> bool {
        if !self.is_counted {
            // Earlier answers may still be queued, and leave first.
            self.is_counted = true;
            self.queued = paths::unacknowledged(stream.as_fd()).unwrap_or(self.queued);
        }
        loop {
            match timeout(LOOK_EVERY.min(self.most), writable(stream)).await {
                Ok(is_connected) => return is_connected,
                Err(_) => {
                    let unacknowledged = paths::unacknowledged(stream.as_fd()).unwrap_or(u64::MAX);
                    if !self.look(unacknowledged, Instant::now()) {
                        return false;
                    }
                }
            }
        }
    }

    /// Writes all of `bytes`; false when the peer is gone or too slow.
    pub(crate) async fn write(&mut self, stream: &TcpStream, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match stream.try_write(bytes) {
                Ok(0) => return false,
                Ok(written) => {
                    self.handed(written as u64);
                    bytes = &bytes[written..];
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if !self.writable(stream).await {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Credits acknowledged bytes; false if the allowance is exhausted.
    fn look(&mut self, unacknowledged: u64, now: Instant) -> bool {
        let acknowledged = self.queued.saturating_sub(unacknowledged);
        self.queued = self.queued.min(unacknowledged);
        let earned = Duration::from_millis(acknowledged.saturating_mul(1000) / RATE_MIN);
        let latest = now + self.most;
        self.until = self.until.checked_add(earned).map_or(latest, |until| until.min(latest));
        now < self.until
    }
}

/// Waits until the socket accepts more; false when the peer is gone. A socket with an error is
/// "writable" for ever, so it counts as gone; one with reports of `MSG_ZEROCOPY` in its error queue
/// looks the same to the event loop from then on, and is waited for by a registration of its own.
async fn writable(stream: &TcpStream) -> bool {
    match stream.ready(Interest::WRITABLE).await {
        Ok(ready) if !ready.is_write_closed() => true,
        Ok(_) if is_connected(stream) => {
            let own = stream.as_fd().try_clone_to_owned();
            match own.and_then(|own| TcpStream::from_std(own.into())) {
                Ok(own) => own.ready(Interest::WRITABLE).await.is_ok(),
                Err(error) => {
                    tracing::debug!("waiting for a socket with reports: {error}");
                    false
                }
            }
        }
        _ => false,
    }
}

/// True while neither an error nor the end of the connection has been reported.
fn is_connected(stream: &TcpStream) -> bool {
    let mut asked = [PollFd::new(stream, PollFlags::OUT)];
    let is_polled = poll(&mut asked, Some(&Timespec::default())).is_ok();
    let is_ended = asked[0].revents().contains(PollFlags::HUP);
    is_polled && !is_ended && stream.take_error().is_ok_and(|error| error.is_none())
}

/// Least rate, bytes a second: that of a modem; a slower peer is an attack or is gone. A receiver
/// opens its window in steps of up to 64 KiB on loopback, for which this rate credits a minute.
pub(crate) const RATE_MIN: u64 = 1024;
/// Precision of a peer's deadline.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    /// Returns the seconds until a peer is disconnected that has acknowledged
    /// `acknowledged(second)` bytes.
    fn ended(queued: u64, acknowledged: impl Fn(u64) -> u64) -> Option<u64> {
        let mut allowance = Allowance::new(WAIT);
        let began = allowance.until - WAIT;
        allowance.handed(queued);
        (1..3600).find(|&second| {
            let left = queued.saturating_sub(acknowledged(second));
            !allowance.look(left, began + Duration::from_secs(second))
        })
    }

    #[tokio::test]
    async fn a_socket_with_an_error_is_gone_and_not_writable() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (client, stream) = (client.unwrap(), accepted.unwrap().0);
        assert!(Allowance::new(WAIT).writable(&stream).await);
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
        drop(client);
        stream.ready(Interest::ERROR).await.unwrap();
        assert!(!Allowance::new(WAIT).writable(&stream).await);
    }

    #[test]
    fn who_takes_nothing_is_ended_and_who_makes_progress_is_not() {
        let many = 1 << 40;
        assert_eq!(ended(many, |_| 0), Some(30));
        assert_eq!(ended(many, |second| second * 1024), None);
        // In steps, as a receive buffer opens its window.
        assert_eq!(ended(many, |second| second / 25 * 25 * 1024), None);
        assert_eq!(ended(many, |second| second * 512), Some(60));
        // A gigabyte at once credits a minute, not eleven days.
        assert_eq!(ended(many, |second| if second < 10 { 0 } else { 1 << 30 }), Some(70));
    }
}
