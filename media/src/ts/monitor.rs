// SPDX-License-Identifier: MIT OR Apache-2.0
//! Monitors an incoming transport stream: continuity, sync bytes, and the jitter of its clock.
//!
//! Examines the header of every packet and the adaptation field where there is one. This costs 5 to
//! 15 ns a packet as measured on a machine with other work, so one core monitors 100 Gb/s. It
//! allocates no memory; a stream needs 8 KiB of counters. It counts:
//!
//! - continuity: the counter of each PID increases by one with each packet that has payload, one
//!   repetition of a packet is allowed, and a discontinuity_indicator excuses a jump (ISO/IEC
//!   13818-1 §2.4.3.3, §2.4.3.5; Continuity_count_error of ETSI TR 101 290 §5.2.1, 1.4);
//! - wrong sync bytes, and loss of synchronisation: two consecutive wrong ones, until five are
//!   right again (TR 101 290, 1.1 and 1.2);
//! - transport_error_indicator (2.1); such a packet is not examined further;
//! - the clock: the deviation of each reference (PCR) from its expected arrival time, with drift
//!   removed by a high-pass filter of 10 mHz. That is the overall jitter PCR_OJ of TR 101 290
//!   §5.3.2 and annex I, profile MGF1, as received: multiplexer, network and this host together.
//!   All packets of a datagram have one arrival time, which adds up to six packet times.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3; ETSI TR 101 290 V1.4.1 §5.2.1, §5.2.2, §5.3.2, annex I.
//! Does not measure PCR_AC, the accuracy by position in the stream, which needs a multiplex of
//! constant rate. Does not check tables, their CRC or repetition.

use std::time::Duration;

use super::{NULL_PID, PCR_MODULUS, PIDS, SYNC_BYTE, TsHeader, TsPacket};
use crate::{TICKS_PER_SECOND, TS_PACKET_BYTES};

/// Monitors one stream.
#[derive(Debug)]
pub struct Monitor {
    /// The last counter of each PID, combined with flags (`SEEN`, `REPEATED`, `EXCUSED`).
    counters: Box<[u8; PIDS]>,
    clocks: [PcrClock; CLOCKS_MAX],
    clocks_known: usize,
    /// Consecutive packets with a wrong sync byte, and with a right one after a loss.
    bad_row: u32,
    good_row: u32,
    is_lost: bool,
    counts: MonitorCounts,
}

/// Errors and clock figures found so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorCounts {
    /// Packets of 188 bytes.
    pub packets: u64,
    /// Packets whose continuity counter was not the expected one.
    pub continuity_errors: u64,
    /// Packets whose first byte is not 0x47.
    pub sync_byte_errors: u64,
    /// Runs of two or more such packets.
    pub sync_losses: u64,
    /// Packets with the transport_error_indicator set.
    pub transport_errors: u64,
    /// Program clock references.
    pub clock_references: u64,
    /// References more than 100 ms after the previous one, or before it, that no
    /// discontinuity_indicator announced (TR 101 290, 2.3).
    pub clock_discontinuities: u64,
    /// Largest deviation of a reference from its expected arrival time, in ticks of 27 MHz, after
    /// the filter has settled.
    pub jitter_ticks_max: u64,
}

/// The clock of one PID.
#[derive(Debug, Clone, Copy, Default)]
struct PcrClock {
    pid: u16,
    /// The last reference and its arrival time.
    last: Option<(u64, Duration)>,
    /// Media time since the first reference of this time base, in ticks.
    ticks: u64,
    /// Arrival time of that first reference.
    began: Duration,
    /// Arrival time minus media time, filtered, in 2⁻¹⁶ ticks.
    offset_16: i64,
    /// True if the last reference is from another sender or from before a gap.
    is_old: bool,
    /// Smallest and largest deviation since the last call of [`Monitor::take_jitter_ticks`].
    low: i64,
    high: i64,
}

impl Default for Monitor {
    fn default() -> Monitor {
        Monitor::new()
    }
}

impl Monitor {
    /// Creates a monitor of a new stream.
    pub fn new() -> Monitor {
        Monitor {
            counters: vec![0; PIDS].into_boxed_slice().try_into().expect("as many as PIDs"),
            clocks: [PcrClock::default(); CLOCKS_MAX],
            clocks_known: 0,
            bad_row: 0,
            good_row: 0,
            is_lost: false,
            counts: MonitorCounts::default(),
        }
    }

    /// Consumes whole packets that arrived together; `arrival` is on any steady clock. A trailing
    /// partial packet is ignored.
    pub fn feed(&mut self, packets: &[u8], arrival: Duration) {
        let (packets, _) = packets.as_chunks::<TS_PACKET_BYTES>();
        self.counts.packets += packets.len() as u64;
        for bytes in packets {
            let header = TsHeader::read(bytes);
            if header.0 >> 24 != SYNC_BYTE {
                self.lose_sync();
                continue;
            }
            if self.bad_row > 0 {
                self.find_sync();
            }
            if header.is_damaged() {
                self.counts.transport_errors += 1;
                continue;
            }
            let is_plain = header.0 & 0x30 == 0x10;
            let packet = TsPacket { header, bytes };
            let is_announced = !is_plain && self.adapt(&packet, arrival);
            if header.has_payload() {
                self.follow(&packet, is_announced);
            }
        }
    }

    /// Announces that the next packets are from another sender or follow a gap. Continuity counters
    /// restart, because the next values are arbitrary. An unannounced jump of the clock still
    /// counts as a discontinuity, as players of the recording see it. Jitter measurement restarts.
    pub fn renew(&mut self) {
        self.counters.fill(0);
        self.clocks[..self.clocks_known].iter_mut().for_each(|clock| clock.is_old = true);
        self.bad_row = 0;
        self.is_lost = false;
    }

    /// Errors and clock figures found so far.
    pub fn counts(&self) -> &MonitorCounts {
        &self.counts
    }

    /// Returns the peak-to-peak deviation of the references since the last call, in ticks of 27
    /// MHz, for the PID with the largest.
    pub fn take_jitter_ticks(&mut self) -> u64 {
        let clocks = self.clocks[..self.clocks_known].iter_mut();
        let spread = clocks.map(|clock| {
            let spread = clock.high.saturating_sub(clock.low).max(0).unsigned_abs();
            (clock.low, clock.high) = NOTHING_SEEN;
            spread
        });
        spread.max().unwrap_or(0)
    }

    fn lose_sync(&mut self) {
        self.counts.sync_byte_errors += 1;
        self.bad_row += 1;
        self.good_row = 0;
        if self.bad_row == SYNC_LOST_AFTER && !self.is_lost {
            self.is_lost = true;
            self.counts.sync_losses += 1;
        }
    }

    fn find_sync(&mut self) {
        self.good_row += 1;
        if !self.is_lost || self.good_row >= SYNC_FOUND_AFTER {
            (self.bad_row, self.good_row, self.is_lost) = (0, 0, false);
        }
    }

    /// Examines the adaptation field. Returns true if it announces a discontinuity.
    fn adapt(&mut self, packet: &TsPacket<'_>, arrival: Duration) -> bool {
        let adaptation = packet.adaptation();
        let pid = packet.header.pid();
        if adaptation.discontinuity {
            self.counters[usize::from(pid)] |= EXCUSED;
        }
        if let Some(pcr) = adaptation.pcr {
            self.counts.clock_references += 1;
            if let Some(clock) = self.clock(pid) {
                let found = clock.take(pcr, arrival, adaptation.discontinuity);
                self.counts.clock_discontinuities += u64::from(found.is_discontinuity);
                let max = &mut self.counts.jitter_ticks_max;
                *max = found.distance.map_or(*max, |distance| distance.max(*max));
            }
        }
        adaptation.discontinuity
    }

    fn clock(&mut self, pid: u16) -> Option<&mut PcrClock> {
        let known = self.clocks[..self.clocks_known].iter().position(|clock| clock.pid == pid);
        if let Some(index) = known {
            return self.clocks.get_mut(index);
        }
        let is_full = self.clocks_known == CLOCKS_MAX;
        let old = self.clocks.iter().position(|clock| is_full && clock.is_old);
        let index = old.unwrap_or(self.clocks_known);
        *self.clocks.get_mut(index)? =
            PcrClock { pid, low: NOTHING_SEEN.0, high: NOTHING_SEEN.1, ..PcrClock::default() };
        self.clocks_known = self.clocks_known.max(index + 1);
        self.clocks.get_mut(index)
    }

    /// Checks the continuity counter of a packet with payload.
    #[inline]
    fn follow(&mut self, packet: &TsPacket<'_>, is_announced: bool) {
        let header = packet.header;
        if header.pid() == NULL_PID {
            return;
        }
        let state = &mut self.counters[usize::from(header.pid())];
        let (last, found) = (*state & COUNTER, header.continuity());
        if *state & SEEN != 0 && found == (last + 1) & COUNTER {
            *state = SEEN | found;
            return;
        }
        let is_excused = *state & (SEEN | EXCUSED) != SEEN || is_announced;
        if found == last && *state & (SEEN | REPEATED) == SEEN && !is_excused {
            *state |= REPEATED;
            return;
        }
        *state = SEEN | found;
        self.counts.continuity_errors += u64::from(!is_excused);
    }
}

/// Result of one clock reference.
#[derive(Debug, Default)]
struct PcrFinding {
    is_discontinuity: bool,
    /// Deviation from the expected arrival time, in ticks; none while the filter settles.
    distance: Option<u64>,
}

impl PcrClock {
    fn take(&mut self, pcr: u64, arrival: Duration, is_announced: bool) -> PcrFinding {
        let Some((last, last_arrival)) = self.last.replace((pcr, arrival)) else {
            self.begin(arrival);
            return PcrFinding::default();
        };
        let step = (pcr + PCR_MODULUS - last) % PCR_MODULUS;
        let is_discontinuity = is_announced || step > PCR_STEP_TICKS_MAX;
        if std::mem::take(&mut self.is_old) {
            self.begin(arrival);
            let is_discontinuity = is_discontinuity && !is_announced;
            return PcrFinding { is_discontinuity, distance: None };
        }
        if is_discontinuity {
            // A forward jump of less than ten seconds is a gap in the stream: the time base stays.
            if is_announced || step > GAP_TICKS_MAX {
                self.begin(arrival);
                return PcrFinding { is_discontinuity: !is_announced, distance: None };
            }
        }
        if self.ticks > TIME_BASE_TICKS_MAX {
            self.begin(arrival);
        }
        self.ticks += step;
        let passed = ticks(arrival.saturating_sub(self.began));
        let difference = passed - self.ticks.cast_signed();
        let dt = ticks(arrival.saturating_sub(last_arrival)).max(1);
        // A first-order filter settles. At the start the value is the mean of all deviations so
        // far.
        let constant = FILTER_TICKS.min(passed.max(1)).max(dt);
        let above = (difference << 16) - self.offset_16;
        self.offset_16 += (i128::from(above) * i128::from(dt) / i128::from(constant)) as i64;
        let distance = difference - (self.offset_16 >> 16);
        let is_settled = passed >= SETTLED_TICKS;
        if is_settled {
            (self.low, self.high) = (self.low.min(distance), self.high.max(distance));
        }
        let distance = is_settled.then_some(distance.unsigned_abs());
        PcrFinding { is_discontinuity, distance }
    }

    fn begin(&mut self, arrival: Duration) {
        (self.began, self.ticks, self.offset_16) = (arrival, 0, 0);
    }
}

/// Converts a time to ticks, at most 2⁴⁶, so that a shift by 16 bits fits.
fn ticks(time: Duration) -> i64 {
    let ticks = time.as_nanos() * u128::from(TICKS_PER_SECOND) / 1_000_000_000;
    i64::try_from(ticks).unwrap_or(i64::MAX).min(1 << 46)
}

/// After a week the mean restarts, so that a shift by 16 bits always fits.
const TIME_BASE_TICKS_MAX: u64 = 7 * 86_400 * TICKS_PER_SECOND;

const COUNTER: u8 = 0x0f;
/// A packet with payload was received.
const SEEN: u8 = 0x10;
/// The last packet was a repetition of the previous one.
const REPEATED: u8 = 0x20;
/// A packet without payload has announced a discontinuity.
const EXCUSED: u8 = 0x40;

/// Programmes whose clocks are measured.
const CLOCKS_MAX: usize = 8;

const NOTHING_SEEN: (i64, i64) = (i64::MAX, i64::MIN);

/// TR 101 290, 1.1.
const SYNC_LOST_AFTER: u32 = 2;
const SYNC_FOUND_AFTER: u32 = 5;

/// TR 101 290, 2.3: 100 ms.
const PCR_STEP_TICKS_MAX: u64 = TICKS_PER_SECOND / 10;

/// A step of more than this is a new time base.
const GAP_TICKS_MAX: u64 = 10 * TICKS_PER_SECOND;

/// Time constant of a 10 mHz filter: 1 / 2π·0.01 s.
const FILTER_TICKS: i64 = (TICKS_PER_SECOND * 15_915 / 1000).cast_signed();

/// Settling time of the filter, in which deviations are ignored: there is no mean yet.
const SETTLED_TICKS: i64 = TICKS_PER_SECOND.cast_signed();

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u16 = 0x101;

    /// A packet with payload.
    fn payload(pid: u16, continuity: u8) -> [u8; TS_PACKET_BYTES] {
        let mut bytes = [0xff; TS_PACKET_BYTES];
        bytes[..4].copy_from_slice(&[0x47, (pid >> 8) as u8, pid as u8, 0x10 | continuity & 15]);
        bytes
    }

    /// Returns a packet with an adaptation field, with or without payload.
    fn adapted(continuity: u8, has_payload: bool, discontinuity: bool) -> [u8; TS_PACKET_BYTES] {
        let mut bytes = payload(PID, continuity);
        bytes[3] = if has_payload { 0x30 } else { 0x20 } | continuity & 15;
        bytes[4] = if has_payload { 1 } else { 183 };
        bytes[5] = u8::from(discontinuity) << 7;
        bytes
    }

    fn reference(pcr: u64, discontinuity: bool) -> [u8; TS_PACKET_BYTES] {
        let mut bytes = adapted(0, false, discontinuity);
        bytes[5] |= 0x10;
        let field = (pcr / 300) << 15 | 0x3f << 9 | (pcr % 300);
        bytes[6..12].copy_from_slice(&field.to_be_bytes()[2..]);
        bytes
    }

    fn errors(packets: &[[u8; TS_PACKET_BYTES]]) -> u64 {
        let mut monitor = Monitor::new();
        monitor.feed(packets.as_flattened(), Duration::ZERO);
        assert_eq!(monitor.counts().packets, packets.len() as u64);
        monitor.counts().continuity_errors
    }

    fn errors_of(counters: &[u8]) -> u64 {
        let packets: Vec<_> = counters.iter().map(|&counter| payload(PID, counter)).collect();
        errors(&packets)
    }

    #[test]
    fn counters_go_up_by_one_and_wrap() {
        let row: Vec<u8> = (0..40).collect();
        assert_eq!(errors_of(&row), 0);
        assert_eq!(errors_of(&[14, 15, 0, 1]), 0);
        assert_eq!(errors_of(&[3, 5]), 1);
        assert_eq!(errors_of(&[3, 5, 6, 9]), 2);
    }

    #[test]
    fn a_packet_may_be_repeated_once() {
        assert_eq!(errors_of(&[1, 1, 2, 2, 3]), 0);
        assert_eq!(errors_of(&[1, 1, 1]), 1);
    }

    #[test]
    fn pids_do_not_disturb_each_other_and_stuffing_counts_for_nothing() {
        let packets = [(PID, 1), (5, 9), (NULL_PID, 3), (PID, 2), (NULL_PID, 3), (5, 10)];
        assert_eq!(errors(&packets.map(|(pid, counter)| payload(pid, counter))), 0);
    }

    #[test]
    fn a_packet_without_payload_does_not_count() {
        let packets = [payload(PID, 4), adapted(4, false, false), payload(PID, 5)];
        assert_eq!(errors(&packets), 0);
        let packets = [payload(PID, 4), adapted(9, false, false), payload(PID, 5)];
        assert_eq!(errors(&packets), 0);
    }

    #[test]
    fn an_announced_discontinuity_is_excused_once() {
        assert_eq!(errors(&[payload(PID, 4), adapted(9, true, true), payload(PID, 10)]), 0);
        assert_eq!(errors(&[payload(PID, 4), adapted(4, false, true), payload(PID, 10)]), 0);
        let twice = [payload(PID, 4), adapted(9, true, true), payload(PID, 12)];
        assert_eq!(errors(&twice), 1);
    }

    #[test]
    fn a_damaged_packet_is_counted_and_not_judged() {
        let mut damaged = payload(PID, 9);
        damaged[1] |= 0x80;
        let mut monitor = Monitor::new();
        let packets = [payload(PID, 1), damaged, payload(PID, 2)];
        monitor.feed(packets.as_flattened(), Duration::ZERO);
        let counts = monitor.counts();
        assert_eq!((counts.transport_errors, counts.continuity_errors), (1, 0));
    }

    #[test]
    fn sync_is_lost_after_two_and_found_after_five() {
        let mut monitor = Monitor::new();
        let mut feed = |row: &str| {
            for (n, letter) in row.bytes().enumerate() {
                let mut packet = payload(NULL_PID, n as u8);
                packet[0] = if letter == b'x' { 0 } else { 0x47 };
                monitor.feed(&packet, Duration::ZERO);
            }
            (monitor.counts().sync_byte_errors, monitor.counts().sync_losses)
        };
        assert_eq!(feed("..x.x.x"), (3, 0));
        assert_eq!(feed(".xx"), (5, 1));
        assert_eq!(feed("....xx"), (7, 1), "four are too few");
        assert_eq!(feed(".....xxx"), (10, 2));
        monitor.renew();
        assert_eq!(monitor.counts().sync_losses, 2);
    }

    /// Feeds references every 40 ms for `seconds`; reference `n` arrives `late(n)` after its due
    /// time.
    fn clock(seconds: u64, late: impl Fn(u64) -> Duration) -> Monitor {
        let mut monitor = Monitor::new();
        for n in 0..seconds * 25 {
            let due = Duration::from_millis(n * 40);
            let start = PCR_MODULUS - TICKS_PER_SECOND;
            let pcr = (start + n * TICKS_PER_SECOND / 25) % PCR_MODULUS;
            monitor.feed(&reference(pcr, false), due + late(n));
        }
        monitor
    }

    #[test]
    fn a_steady_clock_has_no_jitter_across_its_wrap() {
        let mut monitor = clock(20, |_| Duration::from_millis(3));
        let counts = *monitor.counts();
        assert_eq!((counts.clock_references, counts.clock_discontinuities), (500, 0));
        assert!(counts.jitter_ticks_max <= 1, "{counts:?}");
        assert!(monitor.take_jitter_ticks() <= 2);
        assert_eq!(monitor.take_jitter_ticks(), 0, "nothing came since");
    }

    #[test]
    fn a_clock_that_drifts_has_little_and_one_that_jumps_has_it_all() {
        // A drift of 30 parts per million over 100 s amounts to 3 ms.
        let drift = clock(100, |n| Duration::from_nanos(n * 40 * 30));
        assert!(drift.counts().jitter_ticks_max < TICKS_PER_SECOND / 1000, "{drift:?}");
        let jump = clock(20, |n| Duration::from_millis(if n % 50 == 49 { 10 } else { 0 }));
        let ms = jump.counts().jitter_ticks_max * 1000 / TICKS_PER_SECOND;
        assert!((8..=10).contains(&ms), "{ms}");
    }

    #[test]
    fn jumps_of_the_clock_are_counted_unless_announced() {
        let mut monitor = Monitor::new();
        let mut at = 0;
        let mut feed = |pcr, announced| {
            at += 40;
            monitor.feed(&reference(pcr, announced), Duration::from_millis(at));
            monitor.counts().clock_discontinuities
        };
        let ms = |ms: u64| ms * TICKS_PER_SECOND / 1000;
        assert_eq!(feed(ms(5000), false), 0);
        assert_eq!(feed(ms(5100), false), 0);
        assert_eq!(feed(ms(5201), false), 1, "too late");
        assert_eq!(feed(ms(5200), false), 2, "backwards");
        assert_eq!(feed(ms(90_000), true), 2);
        assert_eq!(feed(ms(90_040), false), 2);
    }

    #[test]
    fn a_jump_of_the_clock_at_a_change_of_sender_is_counted_unless_announced() {
        let found = |pcr_ms: u64, announced| {
            let mut monitor = clock(20, |_| Duration::ZERO);
            monitor.renew();
            let start = PCR_MODULUS - TICKS_PER_SECOND;
            let pcr = (start + pcr_ms * TICKS_PER_SECOND / 1000) % PCR_MODULUS;
            monitor.feed(&reference(pcr, announced), Duration::from_secs(25));
            let counts = monitor.counts();
            assert!(counts.jitter_ticks_max <= 1, "{counts:?}");
            counts.clock_discontinuities
        };
        assert_eq!((found(0, false), found(25_000, false)), (1, 1), "back, and on");
        assert_eq!((found(0, true), found(20_000, false)), (0, 0), "announced; the same stream");
        // Clocks of earlier senders are replaced by those of new programmes.
        let mut monitor = Monitor::new();
        for pid in 0..3 * CLOCKS_MAX as u16 {
            monitor.renew();
            assert!(monitor.clock(pid).is_some());
        }
    }
}
