// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of one measured time: percentiles of latency, and the rate of a paced connection.
//!
//! A rate is the slope of the line of least squares through a connection's bytes over time. Bytes
//! over time would be wrong for a server that sends a second's worth at once, as nginx does with
//! `limit_rate`: one burst more or less in ten seconds is 10 %; of the slope it is under 2 %.
//!
//! Sources: RFC 2330 §11.3 (percentiles).
//! Does not summarise rounds; [`measure::statistics`] does.

use std::time::Duration;

/// Returns the smallest of these times that at least `share` of them do not exceed; zero of none.
pub(crate) fn percentile(times: &mut [Duration], share: f64) -> Duration {
    let rank = (times.len() as f64 * share).ceil() as usize;
    let Some(index) = rank.max(1).checked_sub(1).filter(|&index| index < times.len()) else {
        return Duration::ZERO;
    };
    *times.select_nth_unstable(index).1
}

/// Bytes of many connections at moments of a measured time.
pub(super) struct Rates {
    moments: Vec<f64>,
    /// For each connection, the sum of its bytes and that of bytes times moment.
    sums: Vec<(f64, f64)>,
    first: Vec<u64>,
}

impl Rates {
    /// Begins with the bytes that each connection has.
    pub(super) fn begin(bytes: impl Iterator<Item = u64>) -> Rates {
        let first: Vec<u64> = bytes.collect();
        Rates { moments: vec![0.0], sums: vec![(0.0, 0.0); first.len()], first }
    }

    /// Adds the bytes of all connections at a moment, in seconds since the beginning.
    pub(super) fn add(&mut self, moment: f64, bytes: impl Iterator<Item = u64>) {
        self.moments.push(moment);
        for ((sums, &first), bytes) in self.sums.iter_mut().zip(&self.first).zip(bytes) {
            let bytes = (bytes - first) as f64;
            sums.0 += bytes;
            sums.1 += bytes * moment;
        }
    }

    /// Returns the share of connections whose rate is within `part` of `bits_per_second`.
    pub(super) fn share_within(&self, bits_per_second: f64, part: f64) -> f64 {
        let rates = self.bits_per_second();
        let is_near = |rate: &f64| (rate / bits_per_second - 1.0).abs() <= part;
        rates.filter(is_near).count() as f64 / self.sums.len().max(1) as f64
    }

    /// Returns the median rate.
    pub(super) fn median(&self) -> f64 {
        let mut rates: Vec<f64> = self.bits_per_second().collect();
        rates.sort_unstable_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    }

    fn bits_per_second(&self) -> impl Iterator<Item = f64> {
        let count = self.moments.len() as f64;
        let sum: f64 = self.moments.iter().sum();
        let squares: f64 = self.moments.iter().map(|moment| moment * moment).sum();
        let width = (count * squares - sum * sum).max(f64::MIN_POSITIVE);
        self.sums
            .iter()
            .map(move |(bytes, products)| 8.0 * (count * products - sum * bytes) / width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let of = |count: u64, share| {
            let mut times: Vec<_> = (1..=count).rev().map(Duration::from_millis).collect();
            percentile(&mut times, share).as_millis()
        };
        assert_eq!((of(100, 0.5), of(100, 0.99), of(1000, 0.99)), (50, 99, 990));
        assert_eq!((of(1, 0.5), of(1, 0.99), of(2, 0.99)), (1, 1, 2));
        assert_eq!((of(0, 0.5), of(3, 0.0), of(3, 1.0)), (0, 1, 3));
    }

    /// Rates of connections that send a second's worth at once, at these parts of a second.
    fn bursts(phases: &[f64], seconds: usize, per_second: u64) -> Rates {
        let at = |moment: f64| {
            phases.iter().map(move |phase| (moment + phase).floor() as u64 * per_second)
        };
        let mut rates = Rates::begin(at(0.0));
        for index in 1..=seconds * 10 {
            let moment = index as f64 / 10.0;
            rates.add(moment, at(moment));
        }
        rates
    }

    #[test]
    fn bursts_of_a_second_are_of_the_right_rate_whenever_they_come() {
        let phases: Vec<f64> = (0..100).map(|index| f64::from(index) / 100.0).collect();
        let rates = bursts(&phases, 10, 625_000);
        assert_eq!(rates.share_within(5e6, 0.02), 1.0);
        assert!((rates.median() / 5e6 - 1.0).abs() < 0.02, "{}", rates.median());
        assert_eq!(rates.share_within(5.5e6, 0.05), 0.0);
    }

    #[test]
    fn connections_of_another_rate_are_outside() {
        let mut rates = Rates::begin([1_000_u64, 5].into_iter());
        for second in 1..=8_u64 {
            let bytes = [1_000 + second * 625_000, 5 + second * 700_000];
            rates.add(second as f64, bytes.into_iter());
        }
        assert_eq!(rates.share_within(5e6, 0.05), 0.5);
        assert_eq!(Rates::begin(std::iter::empty()).share_within(5e6, 0.05), 0.0);
    }
}
