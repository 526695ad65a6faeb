// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of the whole server over the last hour, one sample for ten seconds.
//!
//! Costs 30 KB and, each ten seconds, the merging of the pacers' histograms.
//!
//! Does not outlive the process: Prometheus keeps longer histories.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::meter::processor_seconds;

/// Figures of ten seconds.
#[derive(Debug, Clone, Copy, Serialize, PartialEq)]
pub(crate) struct HistorySample {
    /// Their end, in seconds since the Unix epoch.
    pub(crate) time_s: u64,
    pub(crate) bits_per_s: u64,
    /// Sessions and connections at their end.
    pub(crate) sessions: usize,
    pub(crate) connections: usize,
    /// Processor time as a share of one core.
    pub(crate) cpu_percent: f64,
    /// Processor seconds per 10⁹ bytes; `None` where next to nothing was sent.
    pub(crate) cpu_s_per_gb: Option<f64>,
    pub(crate) late_p99_us: u64,
    /// Packets lost by receivers' reports; `None` where none reported.
    pub(crate) lost_percent: Option<f64>,
}

/// Totals of the server at a moment.
pub(crate) struct ServerTotals {
    pub(crate) bytes: u64,
    pub(crate) sessions: usize,
    pub(crate) connections: usize,
    pub(crate) late_us: Histogram<u64>,
    /// Packets expected and lost, by reports of receivers.
    pub(crate) reported: (u64, u64),
}

/// The last hour.
pub(crate) struct History {
    samples: VecDeque<HistorySample>,
    before: Option<(Instant, f64, ServerTotals)>,
}

impl History {
    pub(crate) fn new() -> History {
        History { samples: VecDeque::with_capacity(SAMPLES), before: None }
    }

    /// Adds the change since the last call; the first has nothing to compare with.
    pub(crate) fn add(&mut self, now: Instant, totals: ServerTotals) {
        let processor_s = processor_seconds();
        if let Some((began, processor_before_s, before)) = &self.before {
            let over = now.saturating_duration_since(*began);
            let spent_s = processor_s - processor_before_s;
            let sample = sample(over, spent_s, (before, &totals));
            if self.samples.len() == SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back(sample);
        }
        self.before = Some((now, processor_s, totals));
    }

    /// Returns the samples, the oldest first.
    pub(crate) fn samples(&self) -> Vec<HistorySample> {
        self.samples.iter().copied().collect()
    }
}

fn sample(
    over: Duration,
    spent_s: f64,
    (before, now): (&ServerTotals, &ServerTotals),
) -> HistorySample {
    let seconds = over.as_secs_f64().max(0.001);
    let bytes = now.bytes.saturating_sub(before.bytes);
    let mut late_us = now.late_us.clone();
    // Never fails: counts of a thread only grow, and all have the same bounds.
    let _ = late_us.subtract(&before.late_us);
    let expected = now.reported.0.saturating_sub(before.reported.0);
    let lost = now.reported.1.saturating_sub(before.reported.1);
    HistorySample {
        time_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        bits_per_s: (bytes as f64 * 8.0 / seconds) as u64,
        sessions: now.sessions,
        connections: now.connections,
        cpu_percent: 100.0 * spent_s / seconds,
        cpu_s_per_gb: (bytes >= COST_BYTES_MIN).then(|| spent_s * 1e9 / bytes as f64),
        late_p99_us: late_us.value_at_quantile(0.99),
        lost_percent: (expected > 0).then(|| 100.0 * lost as f64 / expected as f64),
    }
}

/// Time of a sample.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// An hour.
const SAMPLES: usize = 360;
/// Below it the cost of an idle server would be shown as that of its bytes.
const COST_BYTES_MIN: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(bytes: u64, late_us: &[u64], reported: (u64, u64)) -> ServerTotals {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000, 2).unwrap();
        late_us.iter().for_each(|&late| histogram.record(late).unwrap());
        ServerTotals { bytes, sessions: 3, connections: 4, late_us: histogram, reported }
    }

    #[test]
    fn samples_are_of_their_ten_seconds_alone() {
        let before = totals(1_000, &[50_000_000], (100, 50));
        let now = totals(10_001_000, &[50_000_000, 10, 20], (300, 60));
        let sample = sample(Duration::from_secs(10), 5.0, (&before, &now));
        assert_eq!((sample.bits_per_s, sample.sessions, sample.connections), (8_000_000, 3, 4));
        assert_eq!((sample.cpu_percent, sample.cpu_s_per_gb), (50.0, Some(500.0)));
        assert_eq!((sample.late_p99_us, sample.lost_percent), (20, Some(5.0)));
    }

    #[test]
    fn an_hour_is_kept() {
        let mut history = History::new();
        let began = Instant::now();
        for number in 0..400 {
            history.add(began + number * INTERVAL, totals(u64::from(number), &[], (0, 0)));
        }
        let samples = history.samples();
        assert_eq!((samples.len(), samples[0].cpu_s_per_gb), (360, None));
        assert_eq!((samples[0].late_p99_us, samples[0].lost_percent), (0, None));
    }
}
