// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a path: datagrams, bytes, system calls and copies, counted where they happen.
//!
//! The function that makes a system call on behalf of a send also counts it, so a claim ("one call
//! a run, no copy") can be compared with a count. Costs five additions a call.
//!
//! Sources: ARCHITECTURE.md, "CPU cost".
//!
//! Reads no clock: the processor time of a CPU cost comes from the caller. Counts the bytes that
//! the kernel accepted; whether a device dropped a packet later is not visible here.

use std::ops::AddAssign;
use std::time::Duration;

/// Counters of sent packets and of the work for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStats {
    /// Datagrams the kernel accepted. Downloads have none.
    pub packets: u64,
    /// Bytes the kernel accepted, RTP headers included, UDP and IP headers not.
    pub bytes: u64,
    /// System calls made, those that failed included.
    pub calls: u64,
    /// Bytes copied between kernel and user memory, in either direction. Copies within the kernel
    /// (software segmentation, a checksum) are not counted.
    pub copied_bytes: u64,
    /// Bytes of zero-copy sends (`MSG_ZEROCOPY` and similar) that the kernel, according to its
    /// report, copied nevertheless: those sends saved no copy.
    pub zerocopy_copied_bytes: u64,
    /// Sends refused temporarily (`EAGAIN`, `ENOBUFS`).
    pub refused: u64,
}

impl SendStats {
    /// Returns the difference to an earlier state of the same counters.
    ///
    /// # Panics
    /// When a counter of `before` is larger.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            calls: self.calls - before.calls,
            copied_bytes: self.copied_bytes - before.copied_bytes,
            zerocopy_copied_bytes: self.zerocopy_copied_bytes - before.zerocopy_copied_bytes,
            refused: self.refused - before.refused,
        }
    }

    /// Returns the CPU cost: seconds of `processor` time per 10⁹ bytes sent; `None` before the
    /// first byte.
    pub fn cpu_s_per_gb(&self, processor: Duration) -> Option<f64> {
        (self.bytes > 0).then(|| processor.as_secs_f64() * 1e9 / self.bytes as f64)
    }

    /// Returns system calls per packet; `None` before the first packet.
    pub fn calls_per_packet(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.calls as f64 / self.packets as f64)
    }

    /// Returns copies per byte sent; `None` before the first byte.
    pub fn copies_per_byte(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.copied_bytes as f64 / self.bytes as f64)
    }
}

impl AddAssign for SendStats {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.calls += other.calls;
        self.copied_bytes += other.copied_bytes;
        self.zerocopy_copied_bytes += other.zerocopy_copied_bytes;
        self.refused += other.refused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_cost_is_seconds_per_gigabyte() {
        let mut stats = SendStats::default();
        assert_eq!(stats.cpu_s_per_gb(Duration::from_secs(1)), None);
        stats += SendStats { bytes: 500_000_000, packets: 4, calls: 2, ..SendStats::default() };
        stats += SendStats { copied_bytes: 1_000_000_000, ..SendStats::default() };
        assert_eq!(stats.cpu_s_per_gb(Duration::from_secs(1)), Some(2.0));
        assert_eq!(stats.calls_per_packet(), Some(0.5));
        assert_eq!(stats.copies_per_byte(), Some(2.0));
        let more = SendStats { bytes: 500_000_007, packets: 5, ..stats };
        assert_eq!(more.since(&stats), SendStats { bytes: 7, packets: 1, ..SendStats::default() });
    }
}
