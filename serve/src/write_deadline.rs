// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing to a TCP peer: a slow one gets as long as it makes progress, one that takes nothing is
//! ended.
//!
//! A peer begins with an allowance of time ([`crate::config::Timeouts::write`]); every byte that it
//! acknowledges adds to it, up to twice the allowance. So an answer of any length may take as long
//! as [`RATE_MIN`] needs for it, and nobody holds memory or a descriptor by reading nothing. The
//! socket's buffer is not the measure: it may hold megabytes and wakes a writer when a third of
//! them has left, which takes a slow peer minutes; the kernel's count of unacknowledged bytes is.
//! Costs nothing while a socket takes bytes, and one call every [`LOOK_EVERY`] while it does not.
//!
//! Sources: tcp(7) (SIOCOUTQ), RFC 9293 §3.8.6.2 (a receiver opens its window in steps).
//! Does not do: limit how fast a peer is (the network does).

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long one answer's peer may still take.
pub(crate) struct Allowance {
    until: Instant,
    most: Duration,
    /// Bytes that were handed to the kernel and not acknowledged when it was last asked.
    queued: u64,
    /// Whether bytes of earlier answers are in that number.
    is_counted: bool,
}

impl Allowance {
    /// For an answer that begins now; `wait` is the timeouts with a peer that takes nothing.
    pub(crate) fn new(wait: Duration) -> Allowance {
        Allowance { until: Instant::now() + wait, most: wait * 2, queued: 0, is_counted: false }
    }

    /// Notes bytes that were handed to the kernel.
    pub(crate) fn handed(&mut self, bytes: u64) {
        self.queued += bytes;
    }

    /// Waits until the socket takes more; false when the peer is gone or too slow.
    pub(crate) async fn writable(&mut self, stream: &TcpStream) -> bool {
        if !self.is_counted {
            // Answers before this one may still be on their way, and leave first.
            self.is_counted = true;
            self.queued = paths::unacknowledged(stream.as_fd()).unwrap_or(self.queued);
        }
        loop {
            match timeout(LOOK_EVERY.min(self.most), stream.writable()).await {
                Ok(ready) => return ready.is_ok(),
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

    /// Takes note of what the peer has acknowledged; false when its time is over.
    fn look(&mut self, unacknowledged: u64, now: Instant) -> bool {
        let taken = self.queued.saturating_sub(unacknowledged);
        self.queued = self.queued.min(unacknowledged);
        let earned = Duration::from_millis(taken.saturating_mul(1000) / RATE_MIN);
        let latest = now + self.most;
        self.until = self.until.checked_add(earned).map_or(latest, |until| until.min(latest));
        now < self.until
    }
}

/// Bytes a second: a modem's, from before there was media to download; what is slower than that is
/// an attack or has gone away. A receiver opens its window in steps of up to 64 KiB on loopback,
/// which this rate earns a minute for.
pub(crate) const RATE_MIN: u64 = 1024;
/// As exact as the end of a peer has to be.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    /// Seconds until a peer is ended that has acknowledged what `taken` says by each second.
    fn ended(queued: u64, taken: impl Fn(u64) -> u64) -> Option<u64> {
        let mut allowance = Allowance::new(WAIT);
        let began = allowance.until - WAIT;
        allowance.handed(queued);
        (1..3600).find(|&second| {
            let left = queued.saturating_sub(taken(second));
            !allowance.look(left, began + Duration::from_secs(second))
        })
    }

    #[test]
    fn who_takes_nothing_is_ended_and_who_makes_progress_is_not() {
        let many = 1 << 40;
        assert_eq!(ended(many, |_| 0), Some(30));
        assert_eq!(ended(many, |second| second * 1024), None);
        // In steps, as a receive buffer opens.
        assert_eq!(ended(many, |second| second / 25 * 25 * 1024), None);
        assert_eq!(ended(many, |second| second * 512), Some(60));
        // A gigabyte at once earns a minute, not eleven days.
        assert_eq!(ended(many, |second| if second < 10 { 0 } else { 1 << 30 }), Some(70));
    }
}
