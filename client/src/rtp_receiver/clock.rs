// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps the kernel's timestamps of datagrams to times on a monotonic clock.
//!
//! The kernel's timestamps use the wall clock, which may be set. A timestamp is therefore converted
//! by its age: the difference between it and the current time of the same clock.
//!
//! Sources: socket(7) SO_TIMESTAMPNS; clock_gettime(2).

use std::time::{Duration, Instant, SystemTime};

use clock::Clock;

/// The time since the start of a receiver.
#[derive(Debug, Clone)]
pub struct ArrivalClock {
    clock: Clock,
    began: Instant,
}

impl ArrivalClock {
    /// A clock that begins now, by this clock.
    pub fn start(clock: &Clock) -> ArrivalClock {
        ArrivalClock { clock: clock.clone(), began: clock.now() }
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.since(self.clock.now())
    }

    /// The current time of this clock and of the wall clock, read at the same moment.
    pub fn moment(&self) -> (Duration, SystemTime) {
        let moment = self.clock.moment();
        (self.since(moment.at), moment.wall)
    }

    /// The `Instant` of a time on this clock.
    pub fn instant(&self, at: Duration) -> Instant {
        self.began + at
    }

    /// The time of an `Instant` on this clock; zero for one before the start.
    pub fn since(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.began)
    }

    /// Computes the arrival time of a datagram with this timestamp; `now` and `wall` are later
    /// times of both clocks. A datagram without a timestamp arrived `now`. So did one whose
    /// timestamp lies in the future or is older than `age_max`: the wall clock was set.
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
        let (now, wall) =
            (Duration::from_secs(100), SystemTime::UNIX_EPOCH + Duration::from_secs(9));
        let ms = Duration::from_millis;
        let arrival = |stamp| ArrivalClock::arrival(stamp, now, wall, Duration::from_secs(1));
        assert_eq!(arrival(Some(wall - ms(7))), now - ms(7));
        assert_eq!(arrival(None), now);
        // The wall clock was set back in between: the result is not in the future.
        assert_eq!(arrival(Some(wall + ms(7))), now);
        assert_eq!(arrival(Some(wall - ms(1000))), now, "a clock that was set forward");
    }
}
