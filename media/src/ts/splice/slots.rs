// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times the slots of a constant-rate stream: packet `k` leaves at `k` × 188 × 8 / rate of channel
//! time.
//!
//! A slot's time is stored as ticks and a remainder in parts of the rate, so it stays exact and
//! needs no division. A clock reference is the time of the byte that ends its base, rounded down to
//! a tick of 37 ns (ISO/IEC 13818-1 §2.4.2.2).
//!
//! Media waits in a queue for its slot, at most [`DELAY_TICKS`]. Timestamps are moved by the same
//! time, so no packet is later relative to its timestamps than in its file.
//!
//! Sources: ISO/IEC 13818-1 §2.4.2.2 (clock), §2.4.2.3 (delay of the decoder model).
//! Does not assign packets to slots.

use std::collections::VecDeque;

use super::QueuedPacket;
use crate::{TICKS_PER_SECOND, TS_PACKET_BYTES};

/// Longest time in the queue.
pub(super) const DELAY_TICKS: u64 = TICKS_PER_SECOND / 4;

/// Smallest and largest constant rate, in bits per second.
pub const SPLICE_RATES: std::ops::RangeInclusive<u64> = 200_000..=200_000_000;

/// Rate reserved for tables and clock references: PAT and PMT of one packet every 80 ms, a
/// reference every 38 ms, and occasional longer tables.
const OVERHEAD_BITS_PER_SECOND: u64 = 100_000;

const PACKET_BITS: u64 = TS_PACKET_BYTES as u64 * 8;
/// Ticks of a slot at one bit per second.
const BIT_TICKS: u64 = PACKET_BITS * TICKS_PER_SECOND;
/// Bits up to the end of a clock reference's base: byte 10 contains its last bit.
const CLOCK_BITS: u64 = 10 * 8;

/// The next slot, and the queued packets.
pub(super) struct Slots {
    rate: u64,
    index: u64,
    ticks: u64,
    /// In parts of `rate`, below it.
    remainder: u64,
    pub(super) queue: VecDeque<QueuedPacket>,
    pub(super) capacity: usize,
    pub(super) is_started: bool,
}

impl Slots {
    /// Creates the slots of a rate within [`SPLICE_RATES`].
    pub(super) fn new(rate: u64) -> Self {
        let packets = (rate - OVERHEAD_BITS_PER_SECOND) * DELAY_TICKS / TICKS_PER_SECOND;
        Self {
            rate,
            index: 0,
            ticks: 0,
            remainder: 0,
            queue: VecDeque::new(),
            capacity: (packets / PACKET_BITS) as usize,
            is_started: false,
        }
    }

    /// Moves to the first slot that is not before `time`, and returns the number of skipped slots.
    pub(super) fn seek(&mut self, time: u64) -> u64 {
        let index = (u128::from(time) * u128::from(self.rate)).div_ceil(u128::from(BIT_TICKS));
        let before = self.index;
        self.index = index as u64;
        (self.ticks, self.remainder) = self.time_of(self.index);
        self.is_started = true;
        self.index.saturating_sub(before)
    }

    /// Returns the time of a slot, and the remainder. The result is exact also for times since
    /// 1970, whose ticks exceed the precision of a floating-point number.
    pub(super) fn time_of(&self, index: u64) -> (u64, u64) {
        let (exact, rate) = (u128::from(index) * u128::from(BIT_TICKS), u128::from(self.rate));
        ((exact / rate) as u64, (exact % rate) as u64)
    }

    /// Moves to the next slot.
    pub(super) fn advance(&mut self) {
        self.index += 1;
        let sum = self.remainder + BIT_TICKS;

        self.ticks += sum / self.rate;
        self.remainder = sum % self.rate;
    }

    /// Returns the index of the slot.
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// Returns the time of the slot, rounded down.
    pub(super) fn time(&self) -> u64 {
        self.ticks
    }

    /// Returns the clock reference of a packet in this slot.
    pub(super) fn pcr(&self) -> u64 {
        self.ticks + (self.remainder + CLOCK_BITS * TICKS_PER_SECOND) / self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_slots_are_exact_and_equal_after_a_seek() {
        for rate in [*SPLICE_RATES.start(), 3_999_999, 40_000_000, *SPLICE_RATES.end()] {
            let mut slots = Slots::new(rate);
            slots.seek(12_345);
            for _ in 0..10_000 {
                let exact = u128::from(slots.index()) * 1504 * 27_000_000;
                assert_eq!(u128::from(slots.time()), exact / u128::from(rate));
                assert_eq!(slots.time_of(slots.index()).0, slots.time());
                let clock = (exact + 80 * 27_000_000) / u128::from(rate);
                assert_eq!(u128::from(slots.pcr()), clock);
                slots.advance();
            }
            let mut other = Slots::new(rate);
            other.seek(slots.time());
            if slots.remainder > 0 {
                assert_eq!(other.index() + u64::from(slots.time() > other.time()), slots.index());
            } else {
                assert_eq!(other.index(), slots.index());
            }
        }
    }

    #[test]
    fn slots_of_today_are_as_far_apart_as_those_of_1970() {
        let slots = Slots::new(2_500_000);
        let today = 1_800_000_000 * 2_500_000 / PACKET_BITS;
        for count in [1, 7, 868, 1_000_003] {
            let apart = slots.time_of(today + count).0 - slots.time_of(today).0;
            assert!(apart.abs_diff(slots.time_of(count).0) <= 1, "{count}: {apart}");
        }
    }

    #[test]
    fn seek_finds_the_first_slot_not_before_a_time() {
        let mut slots = Slots::new(1_504_000);
        assert_eq!(slots.seek(27_000), 1);
        assert_eq!((slots.index(), slots.time()), (1, 27_000));
        slots.seek(27_001);
        assert_eq!((slots.index(), slots.time()), (2, 54_000));
        slots.seek(1 << 62);
        assert!(slots.time() >= 1 << 62);
    }
}
