// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of arrival on a steady clock, from the stamps that the kernel puts on datagrams.
//!
//! The kernel stamps with the clock that the user sees, which may be set. A stamp is therefore
//! brought over by its age: the time between the stamp and a look at that same clock now.
//!
//! Sources: socket(7) SO_TIMESTAMPNS; clock_gettime(2).

use std::time::{Duration, Instant, SystemTime};

/// The time since the start of a receiver.
#[derive(Debug, Clone, Copy)]
pub struct ArrivalClock {
    began: Instant,
}

impl ArrivalClock {
    /// A clock that begins now.
    pub fn start() -> ArrivalClock {
        ArrivalClock { began: Instant::now() }
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The moment of a time on this clock.
    pub fn instant(&self, at: Duration) -> Instant {
        self.began + at
    }

    /// The time of a moment on this clock; zero for one before the start.
    pub fn since(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.began)
    }

    /// The time of arrival of a datagram with this stamp, at which both clocks showed `now` and
    /// `wall` later. A datagram without a stamp arrived `now`, and so did one whose stamp lies in
    /// the future or is older than `age_max`: the wall clock was set.
    pub fn arrival(
        stamp: Option<SystemTime>,
        now: Duration,
        wall: SystemTime,
        age_max: Duration,
    ) -> Duration {
        let age = stamp.and_then(|stamp| wall.duration_since(stamp).ok());
        now.saturating_sub(age.filter(|age| *age < age_max).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_brought_to_the_steady_clock_by_its_age() {
        let (now, wall) = (Duration::from_secs(100), SystemTime::now());
        let ms = Duration::from_millis;
        let arrival = |stamp| ArrivalClock::arrival(stamp, now, wall, Duration::from_secs(1));
        assert_eq!(arrival(Some(wall - ms(7))), now - ms(7));
        assert_eq!(arrival(None), now);
        // A clock that was set back in between: not in the future.
        assert_eq!(arrival(Some(wall + ms(7))), now);
        assert_eq!(arrival(Some(wall - ms(1000))), now, "a clock that was set forward");
    }
}
