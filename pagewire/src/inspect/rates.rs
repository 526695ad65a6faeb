// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bit rates over time: bytes of each second by due time, and their plot in a line of blocks.
//!
//! Computed from the sample table or the plan's clock alone, without a read. Seconds without a byte
//! cost nothing, so that a damaged file whose clock spans centuries is counted as fast as any
//! other. The series has at most [`ENTRIES_MAX`] entries; minimum and peak are those of single
//! seconds.

use std::iter::Peekable;

use media::{PacketPlan, Presentation, TICKS_PER_SECOND, TS_PACKET_BYTES};
use serde::Serialize;

/// Bit rates of a track or a file, without any headers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Rates {
    /// The lowest rate of a whole second.
    pub(super) min: u64,
    pub(super) mean: u64,
    /// The highest rate of a second, and the first such second.
    pub(super) peak: u64,
    pub(super) peak_at_s: u64,
    /// Seconds of an entry of the series.
    pub(super) interval_s: u64,
    /// Bits per second of each interval.
    pub(super) series: Vec<u64>,
}

/// Adds up the bytes of seconds.
struct RateCounter {
    duration_ticks: u64,
    interval_s: u64,
    /// Bytes of each interval.
    series: Vec<u64>,
    bytes: u64,
    /// Whole seconds so far that have bytes, and the fewest bytes in one of them.
    counted: u64,
    min: u64,
    peak: (u64, u64),
}

impl RateCounter {
    fn new(duration_ticks: u64) -> RateCounter {
        let seconds = duration_ticks.div_ceil(TICKS_PER_SECOND).max(1);
        let interval_s = seconds.div_ceil(ENTRIES_MAX);
        let series = vec![0; seconds.div_ceil(interval_s) as usize];
        let (bytes, counted, min, peak) = (0, 0, u64::MAX, (0, 0));
        RateCounter { duration_ticks, interval_s, series, bytes, counted, min, peak }
    }

    /// Adds the bytes of a second; each second is added once, in order.
    fn add(&mut self, second: u64, bytes: u64) {
        // Samples without a duration are due at the very end.
        let at = (second / self.interval_s).min(self.series.len() as u64 - 1);
        self.series[at as usize] += bytes;
        self.bytes += bytes;
        if bytes > self.peak.0 {
            self.peak = (bytes, second);
        }
        if second < self.whole_seconds() {
            self.counted += 1;
            self.min = self.min.min(bytes);
        }
    }

    fn whole_seconds(&self) -> u64 {
        self.duration_ticks / TICKS_PER_SECOND
    }

    fn finish(self) -> Rates {
        let bits = u128::from(self.bytes) * 8 * u128::from(TICKS_PER_SECOND);
        let mean = (bits / u128::from(self.duration_ticks.max(1))) as u64;
        let whole = self.whole_seconds();
        let (peak, peak_at_s) = (self.peak.0 * 8, self.peak.1);
        let (min, peak) = match whole {
            // No second is whole.
            0 => (mean, mean),
            _ if self.counted < whole => (0, peak),
            _ => (self.min * 8, peak),
        };
        let rate = |bytes: u64| (u128::from(bytes) * 8 / u128::from(self.interval_s)) as u64;
        let series = self.series.into_iter().map(rate).collect();
        Rates { min, mean, peak, peak_at_s, interval_s: self.interval_s, series }
    }
}

/// Returns the rates of a file of tracks: of all together, and of each.
pub(super) fn of_tracks(presentation: &Presentation) -> (Rates, Vec<Rates>) {
    let duration = presentation.duration_ticks();
    let tracks = presentation.tracks().len();
    let mut seconds: Vec<_> =
        (0..tracks).map(|track| track_seconds(presentation, track).peekable()).collect();
    let mut counters: Vec<_> = (0..tracks).map(|_| RateCounter::new(duration)).collect();
    let mut total = RateCounter::new(duration);
    let first = |seconds: &mut Vec<Peekable<_>>| {
        seconds.iter_mut().filter_map(|of_track| of_track.peek().map(|&(second, _)| second)).min()
    };
    while let Some(second) = first(&mut seconds) {
        let mut sum = 0;
        for (of_track, counter) in seconds.iter_mut().zip(&mut counters) {
            if let Some((_, bytes)) = of_track.next_if(|&(at, _)| at == second) {
                counter.add(second, bytes);
                sum += bytes;
            }
        }
        total.add(second, sum);
    }
    (total.finish(), counters.into_iter().map(RateCounter::finish).collect())
}

/// Returns the seconds in which samples of a track are due, with their bytes.
fn track_seconds(
    presentation: &Presentation,
    track: usize,
) -> impl Iterator<Item = (u64, u64)> + use<'_> {
    let track = &presentation.tracks()[track];
    let samples = track.samples.samples(0..track.samples.len());
    let mut timed = samples
        .map(|sample| (presentation.due_ticks(track, &sample) / TICKS_PER_SECOND, sample.bytes))
        .peekable();
    std::iter::from_fn(move || {
        let (second, bytes) = timed.next()?;
        let mut sum = u64::from(bytes);
        while let Some((_, bytes)) = timed.next_if(|&(at, _)| at == second) {
            sum += u64::from(bytes);
        }
        Some((second, sum))
    })
}

/// Returns the rates of a transport stream.
pub(super) fn of_transport_stream(plan: &PacketPlan) -> Rates {
    let mut counter = RateCounter::new(plan.duration_ticks());
    let mut packet = 0;
    while packet < plan.packets() {
        let second = plan.ticks(packet) / TICKS_PER_SECOND;
        let end = plan.packets_before((second + 1) * TICKS_PER_SECOND).max(packet + 1);
        counter.add(second, plan.payload_bytes(packet..end));
        packet = end;
    }
    debug_assert_eq!(counter.bytes, plan.ts_packets() * TS_PACKET_BYTES as u64);
    counter.finish()
}

/// Returns a line of at most `columns` blocks, each as high as the mean rate of its seconds; the
/// highest is full. A blank stands for no bytes.
pub(super) fn plot(series: &[u64], columns: usize) -> String {
    let columns = columns.max(1).min(series.len());
    let mean = |column: usize| {
        let (from, to) = (column * series.len() / columns, (column + 1) * series.len() / columns);
        let sum: u128 = series[from..to].iter().map(|&rate| u128::from(rate)).sum();
        sum / (to - from).max(1) as u128
    };
    let means: Vec<u128> = (0..columns).map(mean).collect();
    let highest = means.iter().copied().max().unwrap_or(0).max(1);
    let block = |&mean: &u128| match mean {
        0 => ' ',
        _ => BLOCKS[(mean * BLOCKS.len() as u128).div_ceil(highest) as usize - 1],
    };
    means.iter().map(block).collect()
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Limit on the entries of a series: an hour of one second each.
const ENTRIES_MAX: u64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(ticks: u64, seconds: &[(u64, u64)]) -> Rates {
        let mut counter = RateCounter::new(ticks);
        seconds.iter().for_each(|&(second, bytes)| counter.add(second, bytes));
        counter.finish()
    }

    #[test]
    fn minimum_and_peak_are_those_of_seconds() {
        let found = rates(7 * TICKS_PER_SECOND / 2, &[(0, 100), (1, 400), (2, 50), (3, 10)]);
        assert_eq!((found.min, found.mean, found.peak, found.peak_at_s), (400, 1280, 3200, 1));
        assert_eq!((found.interval_s, &found.series[..]), (1, &[800, 3200, 400, 80][..]));
        assert_eq!(rates(3 * TICKS_PER_SECOND, &[(0, 9), (2, 9)]).min, 0, "nothing in a second");
        let short = rates(TICKS_PER_SECOND / 2, &[(0, 100)]);
        assert_eq!((short.min, short.mean, short.peak), (1600, 1600, 1600));
    }

    #[test]
    fn series_of_centuries_is_bounded_and_keeps_its_peak() {
        let seconds = 1 << 37;
        let found = rates(seconds * TICKS_PER_SECOND, &[(0, 1), (7, 1000), (seconds - 1, 1)]);
        assert!(found.series.len() <= 3600);
        assert_eq!((found.min, found.peak, found.peak_at_s), (0, 8000, 7));
    }

    #[test]
    fn plots_fill_their_columns_and_no_more() {
        assert_eq!(plot(&[0, 1, 4, 8], 60), " ▁▄█");
        assert_eq!(plot(&[8; 1000], 5), "█████");
        assert_eq!(plot(&[4, 4, 8, 8, 0, 0], 3), "▄█ ");
        assert_eq!(plot(&[], 10), "");
        assert_eq!(plot(&[0], 0), " ");
        assert_eq!(plot(&[u64::MAX; 3], 2), "██");
    }
}
