// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refuses a session that would make others late, by the load of the pacers, and a viewer over HTTP
//! by the load of the whole process as well.
//!
//! The load is the greater of two: the processor time that the pacers used in the last second or
//! more, and the time that the rates of all sessions will need at the present cost of a byte. The
//! cost is measured while [`MEASURED_BYTES_MIN`] or more were sent, otherwise it is that of the
//! calibration. Where packets are late already ([`LATE_US`] at the 99th percentile) and the pacers
//! are half as busy as they may be, no client is added either: lateness alone may be caused by
//! other work on the machine, which a refusal does not lessen.
//!
//! Costs a lock of each pacer's published counters, a second apart at least, at a SETUP and at the
//! first playlist of a viewer; and one clock_gettime(2) of each pacer thread in 50 ms.
//!
//! Sources: RFC 2326 §11.3.4 (453), RFC 9110 §15.6.4 (503); clock_gettime(2),
//! CLOCK_THREAD_CPUTIME_ID, CLOCK_PROCESS_CPUTIME_ID.
//! Does not refuse downloads, which have no time to be late for, nor end sessions.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::{Mutex, MutexGuard};
use rustix::time::{ClockId, clock_gettime};

use crate::meter::{Meters, PacerCounters};

/// Load of the pacers, and cost of a byte.
pub(crate) struct Capacity {
    state: Mutex<CapacityState>,
}

struct CapacityState {
    sampled: Instant,
    before: PacerCounters,
    /// Pacers' processor time by time and thread, 0 to 1.
    busy: f64,
    /// Processor time of the process at the last sample.
    process_before: Duration,
    /// Processor time of the process by time and core, 0 to 1.
    process_busy: f64,
    cores: f64,
    cpu_s_per_gb: f64,
    is_late: bool,
}

impl Capacity {
    /// Begins with the cost by the calibration, CPU seconds per 10⁹ bytes.
    pub(crate) fn new(cpu_s_per_gb: Option<f64>) -> Capacity {
        let cpu_s_per_gb = cpu_s_per_gb.unwrap_or(COST).clamp(COST_MIN, COST_MAX);
        let (sampled, before) = (Instant::now(), PacerCounters::new());
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let state = CapacityState {
            sampled,
            before,
            busy: 0.0,
            process_before: process_time(),
            process_busy: 0.0,
            cores,
            cpu_s_per_gb,
            is_late: false,
        };
        Capacity { state: Mutex::new(state) }
    }

    /// True when the pacers have room for the sessions of `bits_per_s` in all, of which the new one
    /// is one, below this load of each.
    pub(crate) fn has_room(&self, meters: &Meters, bits_per_s: u64, load_max: f64) -> bool {
        let threads = meters.pacers.len().max(1) as f64;
        self.sampled(meters).has_room(threads, bits_per_s, load_max)
    }

    /// True when one more viewer over HTTP makes neither the sessions of `bits_per_s` in all late,
    /// nor other viewers: below this load of the pacers and of all cores.
    pub(crate) fn has_room_for_viewer(
        &self,
        meters: &Meters,
        bits_per_s: u64,
        load_max: f64,
    ) -> bool {
        let threads = meters.pacers.len().max(1) as f64;
        let state = self.sampled(meters);
        state.process_busy <= load_max && state.has_room(threads, bits_per_s, load_max)
    }

    fn sampled(&self, meters: &Meters) -> MutexGuard<'_, CapacityState> {
        let mut state = self.state.lock();
        if state.sampled.elapsed() >= SAMPLE {
            let threads = meters.pacers.len().max(1) as f64;
            let mut all = PacerCounters::new();
            meters.pacers.iter().for_each(|pacer| all.add(&pacer.lock()));
            state.sample(all, threads, (Instant::now(), process_time()));
        }
        state
    }
}

/// Returns the processor time that this process has used.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.max(0).cast_unsigned(), time.tv_nsec as u32)
}

impl CapacityState {
    fn sample(&mut self, now: PacerCounters, threads: f64, (moment, process): (Instant, Duration)) {
        let lasts = moment.saturating_duration_since(self.sampled).as_secs_f64();
        let cpu_s = now.cpu.saturating_sub(self.before.cpu).as_secs_f64();
        let bytes = now.stats.bytes.saturating_sub(self.before.stats.bytes);
        self.busy = cpu_s / (lasts * threads);
        let process_s = process.saturating_sub(self.process_before).as_secs_f64();
        self.process_busy = process_s / (lasts * self.cores);
        if bytes >= MEASURED_BYTES_MIN {
            let cost = (cpu_s / (bytes as f64 / 1e9)).clamp(COST_MIN, COST_MAX);
            // Moves by a quarter of the difference: one second may be unlike the others.
            self.cpu_s_per_gb += (cost - self.cpu_s_per_gb) / 4.0;
        }
        self.is_late = late_us(&now.late_us, &self.before.late_us) > LATE_US;
        (self.sampled, self.before, self.process_before) = (moment, now, process);
    }

    fn has_room(&self, threads: f64, bits_per_s: u64, load_max: f64) -> bool {
        let expected = bits_per_s as f64 / 8.0 / 1e9 * self.cpu_s_per_gb / threads;
        let load = self.busy.max(expected);
        load <= load_max && !(self.is_late && load > load_max / 2.0)
    }
}

/// Returns the 99th percentile of the packets between two states; 0 without any.
fn late_us(now: &Histogram<u64>, before: &Histogram<u64>) -> u64 {
    let mut between = now.clone();
    match between.subtract(before) {
        Ok(()) if !between.is_empty() => between.value_at_quantile(0.99),
        _ => 0,
    }
}

/// Time over which the load is measured, at least.
const SAMPLE: Duration = Duration::from_secs(1);
/// Bytes in one sample from which a cost is computed: below, waking costs more than sending.
const MEASURED_BYTES_MIN: u64 = 10_000_000;
/// Lateness that players notice: beyond the time that they hold against jitter of the network.
const LATE_US: u64 = 100_000;
/// Cost without a calibration: twice that of `mmap_gso` over loopback.
const COST: f64 = 2.0;
const COST_MIN: f64 = 0.01;
const COST_MAX: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: u64 = 1_000_000_000;

    fn state(cpu_s_per_gb: f64) -> CapacityState {
        Capacity::new(Some(cpu_s_per_gb)).state.into_inner()
    }

    fn counters(cpu_ms: u64, bytes: u64, late_us: u64) -> PacerCounters {
        let mut counters = PacerCounters::new();
        counters.cpu = Duration::from_millis(cpu_ms);
        counters.stats.bytes = bytes;
        counters.late_us.record_n(late_us, 10_000).unwrap();
        counters
    }

    #[test]
    fn sessions_are_admitted_up_to_the_load_that_their_rates_make() {
        let state = state(2.0);
        // 1.8 s of processor time a second on two threads.
        assert!(state.has_room(2.0, 7 * GIGABIT + GIGABIT / 5, 0.9));
        assert!(!state.has_room(2.0, 7 * GIGABIT + GIGABIT / 4, 0.9));
        assert!(state.has_room(4.0, 14 * GIGABIT, 0.9));
    }

    #[test]
    fn measured_load_and_cost_replace_those_expected() {
        let mut state = state(0.1);
        let begin = state.sampled;
        state.sample(
            counters(1900, 100_000_000, 100),
            2.0,
            (begin + Duration::from_secs(1), Duration::ZERO),
        );
        assert!((state.busy - 0.95).abs() < 0.001, "{}", state.busy);
        assert!(!state.has_room(2.0, 1, 0.9), "the pacers are busy");
        assert!(state.cpu_s_per_gb > 4.0, "{}", state.cpu_s_per_gb);
        let cost = state.cpu_s_per_gb;
        state.sample(
            counters(1910, 100_001_000, 100),
            2.0,
            (begin + Duration::from_secs(2), Duration::ZERO),
        );
        assert_eq!(state.cpu_s_per_gb, cost, "too few bytes tell nothing");
        assert!(state.has_room(2.0, 1, 0.9));
    }

    #[test]
    fn lateness_of_a_busy_server_refuses_and_of_an_idle_one_does_not() {
        let mut state = state(1.0);
        let begin = state.sampled;
        state.sample(
            counters(100, 0, 200_000),
            1.0,
            (begin + Duration::from_secs(1), Duration::ZERO),
        );
        assert!(state.is_late && state.has_room(1.0, 1, 0.9), "others keep it from running");
        let mut next = counters(700, 0, 200_000);
        next.late_us.record_n(300_000, 10_000).unwrap();
        state.sample(next, 1.0, (begin + Duration::from_secs(2), Duration::ZERO));
        assert!(state.is_late && !state.has_room(1.0, 1, 0.9));
        // All of it lies before the next sample.
        let mut last = counters(1300, 0, 200_000);
        last.late_us.record_n(300_000, 10_000).unwrap();
        last.late_us.record_n(100, 10_000_000).unwrap();
        state.sample(last, 1.0, (begin + Duration::from_secs(3), Duration::ZERO));
        assert!(!state.is_late && state.has_room(1.0, 1, 0.9));
    }

    #[test]
    fn process_time_is_by_time_and_core() {
        let mut state = state(1.0);
        (state.cores, state.process_before) = (2.0, Duration::from_secs(5));
        let moment = state.sampled + Duration::from_secs(2);
        state.sample(counters(0, 0, 0), 1.0, (moment, Duration::from_secs(8)));
        assert!((state.process_busy - 0.75).abs() < 0.001, "{}", state.process_busy);
        assert!(state.has_room(1.0, 1, 0.9), "the pacers have nothing to do");
    }
}
