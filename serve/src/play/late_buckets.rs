// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the packets of one session by lateness, in twelve buckets of doubling width.
//!
//! The histogram of a session has to be small, since there are thousands of sessions and each step
//! of a pacer adds to one under a lock. This one occupies 96 bytes and costs an addition a send
//! call. The server-wide histogram ([`crate::meter`]) has two digits of precision instead.
//!
//! Does not distinguish early packets from punctual ones: both are 0 late.

use std::time::Duration;

/// Packets by their lateness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LateBuckets([u64; BUCKETS]);

impl LateBuckets {
    /// Adds packets that were this late.
    pub(crate) fn add(&mut self, late: Duration, packets: u64) {
        let ms = late.as_millis() as u64;
        // Bucket 0 holds less than a millisecond; each further bit of `ms` is one bucket.
        let bucket = (u64::BITS - ms.leading_zeros()) as usize;
        self.0[bucket.min(BUCKETS - 1)] += packets;
    }

    /// Adds the packets of another histogram.
    pub(crate) fn merge(&mut self, other: &LateBuckets) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// Returns the packets added since an earlier state.
    pub(crate) fn since(&self, before: &LateBuckets) -> LateBuckets {
        let mut since = *self;
        since
            .0
            .iter_mut()
            .zip(before.0)
            .for_each(|(count, was)| *count = count.saturating_sub(was));
        since
    }

    pub(crate) fn packets(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the upper bound, in milliseconds, of the bucket that holds this share of the
    /// packets; 0 for packets in time and for an empty histogram.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> u64 {
        let wanted = (self.packets() as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return if bucket == 0 { 0 } else { 1 << bucket };
            }
        }
        0
    }
}

/// Buckets: less than 1 ms, then up to 2, 4, … 1024 ms, and more.
const BUCKETS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_counted_in_doubling_buckets() {
        let mut late = LateBuckets::default();
        assert_eq!(late.quantile_ms(0.99), 0);
        late.add(Duration::from_micros(999), 90);
        let before = late;
        late.add(Duration::from_millis(3), 8);
        late.add(Duration::from_secs(100), 2);
        assert_eq!((late.packets(), late.quantile_ms(0.5)), (100, 0));
        assert_eq!((late.quantile_ms(0.98), late.quantile_ms(0.99)), (4, 2048));
        let since = late.since(&before);
        assert_eq!((since.packets(), since.quantile_ms(0.5)), (10, 4));
        let mut both = before;
        both.merge(&since);
        assert_eq!(both, late);
    }
}
