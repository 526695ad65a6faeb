// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates of downloads, and leaky buckets for the bytes that a connection has sent ahead of them.
//!
//! A bucket drains at its rate and holds a burst; bytes above the burst have to drain before the
//! next turn leaves. Media has one bucket for all rates between two powers of two, so that the debt
//! of a film is not charged to a song, which would need a minute to drain it at its own rate.
//!
//! Does not wait ([`crate::http::download_pace`] does).

use std::time::{Duration, Instant};

/// Buckets of a connection's media, one for all rates between two powers of two: bytes that a film
/// has sent ahead are no debt of a song, which would need a minute to drain them.
#[derive(Default)]
pub(super) struct MediaBuckets {
    pub(super) by_rate: Vec<(u32, Bucket)>,
    /// Bytes of bodies whose rate was not looked up, until the first that has one is charged.
    pub(super) unknown_bytes: Option<u64>,
}

/// Bytes sent ahead of a rate.
#[derive(Default)]
pub(super) struct Bucket {
    pub(super) ahead_bytes: u64,
    /// Time up to which it has drained.
    drained: Option<Instant>,
}

/// A rate with the bytes that may leave ahead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) bytes_per_s: u64,
    pub(super) burst_bytes: u64,
}

impl MediaBuckets {
    /// Returns the bucket of a rate; the first is charged with the bytes sent before a rate was
    /// known.
    pub(super) fn of(&mut self, rate: Rate, now: Instant) -> &mut Bucket {
        let class = rate.bytes_per_s.ilog2();
        let place = self.by_rate.iter().position(|&(other, _)| other == class);
        let place = place.unwrap_or_else(|| {
            let ahead_bytes = self.unknown_bytes.take().unwrap_or(0);
            self.by_rate.push((class, Bucket { ahead_bytes, drained: Some(now) }));
            self.by_rate.len() - 1
        });
        &mut self.by_rate[place].1
    }
}

impl Rate {
    pub(super) fn of_media(media_bytes_per_s: u64, factor: f64) -> Rate {
        let burst_bytes = media_bytes_per_s.saturating_mul(BURST_S);
        Rate {
            bytes_per_s: ((media_bytes_per_s as f64 * factor) as u64).max(BYTES_PER_S_MIN),
            burst_bytes: burst_bytes.clamp(BURST_BYTES_MIN, BURST_BYTES_MAX),
        }
    }

    /// A limit's rate: a turn may leave at once, and the quarter by which one may be late.
    pub(super) fn of_limit(bytes_per_s: u64) -> Rate {
        let rate = Rate { bytes_per_s, burst_bytes: 0 };
        Rate { burst_bytes: rate.turn_bytes() * 5 / 4, ..rate }
    }

    /// A second's bytes, within bounds.
    pub(super) fn turn_bytes(self) -> u64 {
        self.bytes_per_s.clamp(TURN_BYTES_MIN, TURN_BYTES_MAX)
    }
}

impl Bucket {
    /// Adds bytes that leave next; returns how many have to drain before.
    pub(super) fn reserve(&mut self, rate: Rate, bytes: u64, now: Instant) -> u64 {
        self.drain(rate.bytes_per_s, now);
        self.ahead_bytes = self.ahead_bytes.saturating_add(bytes);
        self.ahead_bytes.saturating_sub(rate.burst_bytes)
    }

    /// Returns the bytes that may leave at once.
    pub(super) fn room(&mut self, rate: Rate, now: Instant) -> u64 {
        self.drain(rate.bytes_per_s, now);
        rate.burst_bytes.saturating_sub(self.ahead_bytes)
    }

    pub(super) fn refund(&mut self, bytes: u64) {
        self.ahead_bytes = self.ahead_bytes.saturating_sub(bytes);
    }

    pub(super) fn drain(&mut self, bytes_per_s: u64, now: Instant) {
        let since = self.drained.replace(now).unwrap_or(now);
        let bytes = bytes_in(now.saturating_duration_since(since), bytes_per_s);
        self.ahead_bytes = self.ahead_bytes.saturating_sub(bytes);
    }

    /// Adds bytes that leave; they drain from now on if it was empty.
    pub(super) fn charge(&mut self, bytes: u64, now: Instant) {
        if self.ahead_bytes == 0 {
            self.drained = Some(now);
        }
        self.ahead_bytes = self.ahead_bytes.saturating_add(bytes);
    }
}

/// Returns the bytes of a rate in a time.
pub(super) fn bytes_in(time: Duration, bytes_per_s: u64) -> u64 {
    let bytes = time.as_nanos() * u128::from(bytes_per_s) / NS_PER_S;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Returns the time that bytes of a rate take.
pub(super) fn time_of(bytes: u64, bytes_per_s: u64) -> Duration {
    let ns = (u128::from(bytes) * NS_PER_S).div_ceil(u128::from(bytes_per_s.max(1)));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Media time of a start burst: more than the segment that players start with (RFC 8216 recommends
/// six seconds), and what browsers buffer before they play.
const BURST_S: u64 = 10;
/// A second of the highest rates, and as long as a step of an unpaced download.
pub(super) const BURST_BYTES_MIN: u64 = 1 << 20;
/// Ten seconds at 13 Mb/s. A longer film's index (`moov`) fits, too.
const BURST_BYTES_MAX: u64 = 16 << 20;
/// A megabit a second: slower pacing saves nothing, and a player's own requests disturb it.
const BYTES_PER_S_MIN: u64 = 125_000;
/// Longest turn; two must fit into the least burst.
pub(super) const TURN_BYTES_MAX: u64 = 512 << 10;
/// One packet: a smaller share means too many downloads.
pub(super) const TURN_BYTES_MIN: u64 = 1 << 10;
const NS_PER_S: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn after(began: Instant, ms: u64) -> Instant {
        began + Duration::from_millis(ms)
    }

    /// Sends `bytes` by turns, each of which wakes `late_ms` after its time; returns the seconds.
    fn seconds(bucket: &mut Bucket, rate: Rate, bytes: u64, late_ms: u64) -> f64 {
        let began = Instant::now();
        let (mut now, mut left) = (began, bytes);
        while left > 0 {
            let turn = rate.turn_bytes().min(left);
            let wait = time_of(bucket.reserve(rate, turn, now), rate.bytes_per_s);
            if !wait.is_zero() {
                now += wait + Duration::from_millis(late_ms);
            }
            left -= turn;
        }
        (now - began).as_secs_f64()
    }

    #[test]
    fn body_leaves_at_its_rate_behind_its_burst() {
        let rate = Rate::of_media(MB, 4.0);
        assert_eq!(rate, Rate { bytes_per_s: 4 * MB, burst_bytes: 10 * MB });
        for late_ms in [0, 7, 50] {
            let took = seconds(&mut Bucket::default(), rate, 50 * MB, late_ms);
            assert!((10.0..10.06).contains(&took), "{late_ms} ms late: {took}");
        }
        assert_eq!(seconds(&mut Bucket::default(), rate, 10 * MB, 0), 0.0, "the burst alone");
        let limit = Rate::of_limit(MB);
        let took = seconds(&mut Bucket::default(), limit, 20 * MB, 7);
        assert!((18.5..20.0).contains(&took), "{took}");
    }

    #[test]
    fn bursts_and_rates_have_bounds() {
        let slow = Rate::of_media(16_000, 4.0);
        assert_eq!((slow.bytes_per_s, slow.burst_bytes), (BYTES_PER_S_MIN, BURST_BYTES_MIN));
        let fast = Rate::of_media(u64::MAX, 1000.0);
        assert_eq!((fast.bytes_per_s, fast.burst_bytes), (u64::MAX, BURST_BYTES_MAX));
        for rate in [slow, fast, Rate::of_limit(1), Rate::of_limit(u64::MAX)] {
            assert!(rate.turn_bytes() < rate.burst_bytes, "{rate:?}");
            assert!((TURN_BYTES_MIN..=TURN_BYTES_MAX).contains(&rate.turn_bytes()));
            let wait = Bucket { ahead_bytes: u64::MAX / 2, drained: None };
            assert!({ wait }.reserve(rate, 1, Instant::now()) > 0);
        }
    }

    #[test]
    fn streams_of_a_connection_have_turns_by_turns() {
        let (mut bucket, rate, began) = (Bucket::default(), Rate::of_limit(MB), Instant::now());
        let turn = rate.turn_bytes();
        // Each stream reserves its next turn when its last one is due.
        let (mut due, mut sent) = ([began; 2], [0; 2]);
        while due[0].min(due[1]) < after(began, 60_000) {
            let next = usize::from(due[1] < due[0]);
            sent[next] += turn;
            let now = due[next];
            due[next] = now + time_of(bucket.reserve(rate, turn, now), rate.bytes_per_s);
        }
        assert!(sent[0].abs_diff(sent[1]) <= 2 * turn, "{sent:?}");
        assert!((58 * MB..63 * MB).contains(&(sent[0] + sent[1])), "{sent:?}");
    }
}
