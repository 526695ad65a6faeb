// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delays requests of a connection that arrive faster than the limit, and its other input:
//! interleaved frames, and reads that end none of them.
//!
//! A delay is a sufficient answer: nothing is read while a request waits, so TCP flow control stops
//! the peer's sends. A client that sends too fast is served at the limit and loses nothing. Costs
//! 48 bytes a connection and a pace, and one clock reading a request.
//!
//! Sources: the generic cell rate algorithm, ITU-T I.371 §A.1 (virtual scheduling).
//! Does not sleep; the caller does.

use std::time::Duration;

/// Schedule of one connection's requests, or of its other input.
#[derive(Debug)]
pub(crate) struct InputPace {
    interval: Duration,
    /// Time at which the next request is due at the limit's rate.
    due: Duration,
    /// Read time of the first request that had to wait since half of the burst was available.
    waiting_since: Option<Duration>,
}

impl InputPace {
    /// Permits `per_s` requests a second.
    pub(crate) fn new(per_s: u32) -> InputPace {
        let interval = Duration::from_secs(1) / per_s.max(1);
        InputPace { interval, due: Duration::ZERO, waiting_since: None }
    }

    /// Limits the input beside this many requests a second: twice as many reads, and at least
    /// [`BESIDE_PER_S_MIN`]. A player sends a receiver report a stream every few seconds; the
    /// reports of the fastest permitted interval (RFC 3550 §6.2) of sixteen sessions fit in.
    pub(crate) fn beside(requests_per_s: u32) -> InputPace {
        InputPace::new(requests_per_s.saturating_mul(2).max(BESIDE_PER_S_MIN))
    }

    /// Returns how long the request read at `now` has to wait.
    pub(crate) fn request(&mut self, now: Duration) -> Duration {
        let due = self.due.max(now);
        self.due = due + self.interval;
        let wait = due.saturating_sub(now + BURST);
        if !wait.is_zero() {
            self.waiting_since.get_or_insert(now);
        } else if due.saturating_sub(now) <= BURST / 2 {
            // Sleeps are longer than asked for, so one without a wait is no sign of a pause.
            self.waiting_since = None;
        }
        wait
    }

    /// True when the client has sent no slower than the limit for [`FLOOD_TIMEOUT`].
    pub(crate) fn is_flood(&self, now: Duration) -> bool {
        self.waiting_since.is_some_and(|since| now.saturating_sub(since) >= FLOOD_TIMEOUT)
    }
}

/// Burst allowance: two seconds' worth of requests.
const BURST: Duration = Duration::from_secs(2);
/// Least rate of the input beside requests, however few requests are permitted.
const BESIDE_PER_S_MIN: u32 = 400;
/// No player sends at the limit for so long.
const FLOOD_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_served_at_the_limit_and_then_given_up() {
        let mut pace = InputPace::new(100);
        let mut now = Duration::from_secs(7);
        let at_once = (0..1000).take_while(|_| pace.request(now).is_zero()).count();
        assert_eq!(at_once, 201, "two seconds' worth, and the one that is due");
        let (began, mut served) = (now, 0);
        while !pace.is_flood(now) {
            now += pace.request(now);
            served += 1;
        }
        assert!((2990..3010).contains(&served), "{served}");
        assert!(now - began < FLOOD_TIMEOUT + Duration::from_secs(1), "{:?}", now - began);
    }

    #[test]
    fn a_flood_is_given_up_though_sleeps_take_longer() {
        let mut pace = InputPace::new(400);
        let (mut now, mut served) = (Duration::ZERO, 0);
        while !pace.is_flood(now) {
            let wait = pace.request(now);
            now += if wait.is_zero() { wait } else { wait + Duration::from_millis(2) };
            served += 1;
        }
        assert!((12_000..13_000).contains(&served), "{served}");
    }

    #[test]
    fn a_steady_client_never_waits_and_a_burst_is_forgiven() {
        let mut pace = InputPace::new(100);
        let mut now = Duration::ZERO;
        for _ in 0..10_000 {
            assert_eq!(pace.request(now), Duration::ZERO);
            now += Duration::from_millis(10);
        }
        while pace.request(now).is_zero() {}
        assert_ne!(pace.waiting_since, None);
        assert_eq!(pace.request(now + Duration::from_secs(3)), Duration::ZERO);
        assert_eq!(pace.waiting_since, None);
    }
}
