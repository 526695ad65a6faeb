// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lateness of packets against the RTP clock.
//!
//! The transit of a packet is its arrival minus its RTP timestamp, both in nanoseconds since the
//! first packet. A jitter buffer would set its clock by the packet with the least transit; the
//! lateness of any other packet is its transit minus the least. Sending ahead of time is therefore
//! not rewarded: one packet 20 ms early makes all punctual ones 20 ms late. This is the strictest
//! definition, and the delay that a player's buffer has to absorb.
//!
//! The least transit is known only at the end, so transits are kept in bins of 50 µs and shifted at
//! the end. PLAY after a pause starts a new clock: the pause is not lateness. The figures include
//! the drift between the clocks of the two machines, and [`Lateness::drift_ppm`] measures it. Costs
//! a few hundred nanoseconds a packet; memory is one entry for each bin in use.
//!
//! Sources: RFC 3550 §5.1 (timestamp), §6.4.1 (transit).
//! Does not read a clock: arrivals are the kernel's times, without the receiving thread's delay.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wire::mp2t::CLOCK_RATE_HZ;

use crate::verdict::LatenessMs;

/// Lateness of all packets of a stream.
#[derive(Debug)]
pub(super) struct Lateness {
    scale: TimeScale,
    /// Packets by lateness in bins, for the clocks that have ended.
    ended: BTreeMap<i64, u64>,
    max_ns_ended: i64,
    media_stamps_ended: i64,
    clock: Option<Clock>,
    drift_ppm: Option<f64>,
}

/// Nanoseconds of RTP timestamps, as a fraction in its lowest terms.
#[derive(Debug, Clone, Copy)]
struct TimeScale {
    ns: i64,
    stamps: i64,
}

/// One clock: from a PLAY to the next pause.
#[derive(Debug)]
struct Clock {
    scale: TimeScale,
    began: Instant,
    stamps: UnwrappedTimestamps,
    /// Packets by transit in bins.
    bins: BTreeMap<i64, u64>,
    min_ns: i64,
    max_ns: i64,
    last_ns: i64,
    drift: Drift,
}

/// RTP timestamps without their wrap, counted from the first.
#[derive(Debug)]
struct UnwrappedTimestamps {
    last: u32,
    at: i64,
    min: i64,
    max: i64,
}

/// Least transits of the first and of the last whole slice of time.
#[derive(Debug, Default)]
struct Drift {
    first: Option<i64>,
    slice: u64,
    least: Option<i64>,
    ppm: Option<f64>,
}

/// Figures of the lateness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LatenessFigures {
    pub(super) packets: u64,
    pub(super) p50: Duration,
    pub(super) p90: Duration,
    pub(super) p99: Duration,
    pub(super) p999: Duration,
    pub(super) max: Duration,
    /// Packets later than [`LATE`].
    pub(super) late: u64,
}

impl Default for Lateness {
    /// Lateness of a stream with the RTP clock of MP2T.
    fn default() -> Lateness {
        Lateness::new(CLOCK_RATE_HZ)
    }
}

impl Lateness {
    /// Lateness of a stream whose RTP clock has this rate, which is not 0.
    pub(super) fn new(clock_rate_hz: u32) -> Lateness {
        Lateness {
            scale: TimeScale::new(clock_rate_hz),
            ended: BTreeMap::new(),
            max_ns_ended: 0,
            media_stamps_ended: 0,
            clock: None,
            drift_ppm: None,
        }
    }

    /// Counts a packet that arrived for the first time.
    pub(super) fn arrived(&mut self, timestamp: u32, arrival: Instant) {
        let scale = self.scale;
        let clock = self.clock.get_or_insert_with(|| Clock::new(scale, timestamp, arrival));
        clock.arrived(timestamp, arrival);
        clock.count();
    }

    /// Records a packet outside the measured time: it may have the least transit, but no figure
    /// counts it.
    pub(super) fn passed(&mut self, timestamp: u32, arrival: Instant) {
        let scale = self.scale;
        let clock = self.clock.get_or_insert_with(|| Clock::new(scale, timestamp, arrival));
        clock.arrived(timestamp, arrival);
    }

    /// Closes the clock: the next packet starts another.
    pub(super) fn renew(&mut self) {
        let Some(clock) = self.clock.take() else { return };
        self.drift_ppm = clock.drift.ppm.or(self.drift_ppm);
        self.max_ns_ended = self.max_ns_ended.max(clock.max_ns.saturating_sub(clock.min_ns));
        self.media_stamps_ended += clock.stamps.max - clock.stamps.min;
        let least = clock.least_bin();
        for (bin, packets) in clock.bins {
            *self.ended.entry(bin - least).or_default() += packets;
        }
    }

    /// Arrival of the first packet of the current clock.
    pub(super) fn first(&self) -> Option<Instant> {
        self.clock.as_ref().map(|clock| clock.began)
    }

    /// Lateness of the last packet against the least transit so far.
    pub(super) fn last(&self) -> Duration {
        self.clock
            .as_ref()
            .map_or(Duration::ZERO, |clock| nanoseconds(clock.last_ns - clock.min_ns))
    }

    /// Sum over all clocks of the last timestamp minus the first, in units of the RTP clock.
    pub(super) fn media_stamps(&self) -> i64 {
        let running = self.clock.as_ref().map_or(0, |clock| clock.stamps.max - clock.stamps.min);
        self.media_stamps_ended + running
    }

    /// Excess speed of this machine's clock over the sender's; a positive drift makes packets
    /// appear increasingly late. Known after a minute of one clock.
    pub(super) fn drift_ppm(&self) -> Option<f64> {
        self.clock.as_ref().and_then(|clock| clock.drift.ppm).or(self.drift_ppm)
    }

    /// Closes the clocks of both, and adds the other's packets to the figures.
    pub(super) fn merge(&mut self, mut other: Lateness) {
        self.renew();
        other.renew();
        self.drift_ppm = self.drift_ppm.or(other.drift_ppm);
        self.max_ns_ended = self.max_ns_ended.max(other.max_ns_ended);
        self.media_stamps_ended += other.media_stamps_ended;
        for (bin, packets) in other.ended {
            *self.ended.entry(bin).or_default() += packets;
        }
    }

    /// Packets later than `bound`, in steps of 50 µs.
    pub(super) fn later_than(&self, bound: Duration) -> u64 {
        later(&self.bins(), bound)
    }

    /// Returns the figures in the form of reports; packets later than `bound` are late.
    pub(super) fn milliseconds(&self, bound: Duration) -> LatenessMs {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let figures = self.figures();
        LatenessMs {
            p50: ms(figures.p50),
            p90: ms(figures.p90),
            p99: ms(figures.p99),
            p999: ms(figures.p999),
            max: ms(figures.max),
            late_share: self.later_than(bound) as f64 / figures.packets.max(1) as f64,
            bound: ms(bound),
            drift_ppm: self.drift_ppm(),
        }
    }

    /// Packets by lateness in bins.
    fn bins(&self) -> BTreeMap<i64, u64> {
        let mut bins = self.ended.clone();
        if let Some(clock) = &self.clock {
            let least = clock.least_bin();
            for (bin, packets) in &clock.bins {
                *bins.entry(bin - least).or_default() += packets;
            }
        }
        bins
    }

    /// Figures so far.
    pub(super) fn figures(&self) -> LatenessFigures {
        let bins = self.bins();
        let running = self.clock.as_ref().map(|clock| clock.max_ns.saturating_sub(clock.min_ns));
        let max_ns = self.max_ns_ended.max(running.unwrap_or(0));
        let total: u64 = bins.values().sum();
        let quantile = |per_mille: u64| {
            // Nearest rank: the least lateness that this number of packets does not exceed.
            let rank = total.saturating_mul(per_mille).div_ceil(1000).max(1);
            let mut passed = 0;
            let found = bins.iter().find(|(_, packets)| {
                passed += **packets;
                passed >= rank
            });
            nanoseconds(found.map_or(0, |(bin, _)| bin.saturating_mul(BIN_NS)).min(max_ns))
        };
        LatenessFigures {
            packets: total,
            p50: quantile(500),
            p90: quantile(900),
            p99: quantile(990),
            p999: quantile(999),
            max: nanoseconds(max_ns),
            late: later(&bins, LATE),
        }
    }
}

impl TimeScale {
    fn new(clock_rate_hz: u32) -> TimeScale {
        let rate = i64::from(clock_rate_hz.max(1));
        let (mut common, mut rest) = (NS_PER_SECOND, rate);
        while rest != 0 {
            (common, rest) = (rest, common % rest);
        }
        TimeScale { ns: NS_PER_SECOND / common, stamps: rate / common }
    }
}

impl Clock {
    fn new(scale: TimeScale, timestamp: u32, arrival: Instant) -> Clock {
        Clock {
            scale,
            began: arrival,
            stamps: UnwrappedTimestamps { last: timestamp, at: 0, min: 0, max: 0 },
            bins: BTreeMap::new(),
            min_ns: i64::MAX,
            max_ns: i64::MIN,
            last_ns: 0,
            drift: Drift::default(),
        }
    }

    fn arrived(&mut self, timestamp: u32, arrival: Instant) {
        let stamp = self.stamps.unwrap(timestamp);
        let passed = arrival.saturating_duration_since(self.began);
        let passed_ns = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        let transit_ns =
            passed_ns.saturating_sub(stamp.saturating_mul(self.scale.ns) / self.scale.stamps);
        self.min_ns = self.min_ns.min(transit_ns);
        self.last_ns = transit_ns;
        self.drift.note(passed, transit_ns);
    }

    /// Counts the last packet in the figures.
    fn count(&mut self) {
        self.max_ns = self.max_ns.max(self.last_ns);
        *self.bins.entry(bin(self.last_ns)).or_default() += 1;
    }

    fn least_bin(&self) -> i64 {
        bin(self.min_ns)
    }
}

impl UnwrappedTimestamps {
    fn unwrap(&mut self, timestamp: u32) -> i64 {
        let step = timestamp.wrapping_sub(self.last).cast_signed();
        self.last = timestamp;
        self.at = self.at.saturating_add(i64::from(step));
        self.min = self.min.min(self.at);
        self.max = self.max.max(self.at);
        self.at
    }
}

impl Drift {
    fn note(&mut self, passed: Duration, transit_ns: i64) {
        let slice = passed.as_secs() / DRIFT_SLICE_S;
        if slice != self.slice {
            if let Some(least) = self.least.take() {
                let first = *self.first.get_or_insert(least);
                let elapsed_s = self.slice * DRIFT_SLICE_S;
                if elapsed_s >= DRIFT_AFTER_S {
                    self.ppm = Some((least - first) as f64 / 1e3 / elapsed_s as f64);
                }
            }
            self.slice = slice;
        }
        self.least = Some(self.least.map_or(transit_ns, |least| least.min(transit_ns)));
    }
}

fn later(bins: &BTreeMap<i64, u64>, bound: Duration) -> u64 {
    let bound = i64::try_from(bound.as_nanos()).unwrap_or(i64::MAX) / BIN_NS;
    bins.range(bound.saturating_add(1)..).map(|(_, packets)| packets).sum()
}

/// Extreme transits share the outermost bins, which bounds the memory that a hostile sender can
/// use.
fn bin(transit_ns: i64) -> i64 {
    transit_ns.div_euclid(BIN_NS).clamp(-BINS_MAX, BINS_MAX)
}

fn nanoseconds(ns: i64) -> Duration {
    Duration::from_nanos(ns.max(0).unsigned_abs())
}

/// A packet is late beyond this bound, which the server's pacing must keep.
pub(super) const LATE: Duration = Duration::from_millis(25);

const NS_PER_SECOND: i64 = 1_000_000_000;
const BIN_NS: i64 = 50_000;
/// 20 s to either side of the first packet.
const BINS_MAX: i64 = 400_000;
const DRIFT_SLICE_S: u64 = 10;
/// Earlier, a scheduling delay could be mistaken for drift.
const DRIFT_AFTER_S: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Packets at their due times (10 ms apart) plus these delays.
    fn play(lateness: &mut Lateness, from: Instant, first: u32, delays_ms: &[u64]) {
        for (n, delay) in delays_ms.iter().enumerate() {
            let timestamp = first.wrapping_add(n as u32 * 900);
            lateness.arrived(timestamp, from + ms(n as u64 * 10 + delay));
        }
    }

    #[test]
    fn measured_from_the_earliest_packet_even_when_it_comes_last() {
        let mut lateness = Lateness::default();
        play(&mut lateness, Instant::now(), 0, &[30, 30, 30, 50, 0]);
        let figures = lateness.figures();
        assert_eq!((figures.p50, figures.max, figures.late), (ms(30), ms(50), 4));
        assert_eq!(figures.packets, 5);
        assert_eq!(lateness.last(), ms(0));
    }

    #[test]
    fn the_clock_wraps_and_packets_change_places() {
        let mut lateness = Lateness::default();
        let from = Instant::now();
        for (n, order) in [0_u32, 1, 3, 2, 4].into_iter().enumerate() {
            let timestamp = (u32::MAX - 1000).wrapping_add(order * 900);
            lateness.arrived(timestamp, from + ms(n as u64 * 10));
        }
        let figures = lateness.figures();
        // The third packet arrived 10 ms early and so makes the punctual ones 10 ms late.
        assert_eq!((figures.p50, figures.max), (ms(10), ms(20)));
        assert_eq!(lateness.media_stamps(), 4 * 900);
    }

    #[test]
    fn a_pause_is_not_lateness_and_each_clock_has_its_own_earliest() {
        let mut lateness = Lateness::default();
        let from = Instant::now();
        play(&mut lateness, from, 7, &[0, 5, 0]);
        lateness.renew();
        play(&mut lateness, from + ms(3000), 7 + 2700, &[8, 0, 0]);
        let figures = lateness.figures();
        assert_eq!((figures.packets, figures.max, figures.late), (6, ms(8), 0));
        assert_eq!(lateness.media_stamps(), 2 * 1800);
    }

    #[test]
    fn the_bound_itself_is_not_late() {
        let mut lateness = Lateness::default();
        play(&mut lateness, Instant::now(), 0, &[0, 25, 26]);
        assert_eq!(lateness.figures().late, 1);
    }

    #[test]
    fn what_passes_may_be_the_earliest_and_is_in_no_figure() {
        let mut lateness = Lateness::default();
        let from = Instant::now();
        lateness.passed(0, from);
        lateness.arrived(900, from + ms(30));
        lateness.arrived(1800, from + ms(25));
        lateness.passed(2700, from + ms(500));
        let figures = lateness.figures();
        assert_eq!((figures.packets, figures.p50, figures.max), (2, ms(5), ms(20)));
        assert_eq!((lateness.later_than(ms(5)), lateness.later_than(ms(20))), (1, 0));
        let mut only = Lateness::default();
        only.passed(0, from);
        assert_eq!((only.figures().packets, only.figures().max), (0, ms(0)));
        only.merge(lateness);
        assert_eq!((only.figures().packets, only.figures().max), (2, ms(20)));
        assert_eq!(only.later_than(ms(6)), 1);
    }

    #[test]
    fn drift_is_told() {
        let mut lateness = Lateness::default();
        let from = Instant::now();
        for second in 0..100_u64 {
            // This machine's clock gains 50 µs a second.
            let arrival = from + Duration::from_micros(second * 1_000_050);
            lateness.arrived(second as u32 * 90_000, arrival);
        }
        let ppm = lateness.drift_ppm().unwrap();
        assert!((49.0..51.0).contains(&ppm), "{ppm}");
        let mut short = Lateness::default();
        play(&mut short, from, 0, &[0; 50]);
        assert_eq!(short.drift_ppm(), None);
    }

    #[test]
    fn absurd_timestamps_are_bounded() {
        let mut lateness = Lateness::default();
        let from = Instant::now();
        for n in 0..1000_u32 {
            lateness.arrived(n.wrapping_mul(0x7FFF_FFFF), from + ms(u64::from(n)));
        }
        let clock = lateness.clock.as_ref().unwrap();
        assert!(clock.bins.keys().all(|bin| bin.abs() <= BINS_MAX));
        assert_eq!(lateness.figures().packets, 1000);
    }
}
