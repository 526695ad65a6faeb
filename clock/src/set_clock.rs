// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks that stand still until they are advanced or set, for tests.
//!
//! Does not advance by itself, and never backwards on the monotonic side.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use crate::{Clock, Source};

/// Sets the times of the [`Clock`]s made from it.
#[derive(Debug, Clone)]
pub struct SetClock(Arc<SetTimes>);

/// Times of a set clock, shared by its copies.
#[derive(Debug)]
pub(crate) struct SetTimes(Mutex<(Instant, SystemTime)>);

impl SetClock {
    /// A clock whose wall clock begins at `wall`. Its monotonic clock begins with the host's, since
    /// an [`Instant`] cannot be made otherwise; only differences of it mean something.
    pub fn at(wall: SystemTime) -> SetClock {
        SetClock(Arc::new(SetTimes(Mutex::new((Instant::now(), wall)))))
    }

    /// Returns the clock to pass to the code under test.
    pub fn clock(&self) -> Clock {
        Clock(Source::Set(self.0.clone()))
    }

    /// Returns the time of its monotonic clock.
    pub fn now(&self) -> Instant {
        self.0.now()
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, time: Duration) {
        let mut times = self.0.locked();
        *times = (times.0 + time, times.1 + time);
    }

    /// Lets time pass until the monotonic clock has the time `at`; none if that is past.
    pub fn advance_to(&self, at: Instant) {
        self.advance(at.saturating_duration_since(self.now()));
    }

    /// Sets the wall clock, as an administrator does; the monotonic clock is not affected.
    pub fn set_wall(&self, wall: SystemTime) {
        self.0.locked().1 = wall;
    }
}

impl SetTimes {
    pub(crate) fn now(&self) -> Instant {
        self.locked().0
    }

    pub(crate) fn wall(&self) -> SystemTime {
        self.locked().1
    }

    fn locked(&self) -> MutexGuard<'_, (Instant, SystemTime)> {
        // No code panics while it holds the lock.
        self.0.lock().expect("not poisoned")
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn copies_advance_together_and_only_when_advanced() {
        let set = SetClock::at(UNIX_EPOCH + 100 * SECOND);
        let (clock, copy) = (set.clock(), set.clone().clock());
        let before = clock.moment();
        assert_eq!(before, copy.moment());
        set.advance(3 * SECOND);
        assert_eq!((clock.now() - before.at, clock.wall()), (3 * SECOND, before.wall + 3 * SECOND));
        assert_eq!(clock.moment(), copy.moment());
        set.advance_to(before.at + 5 * SECOND);
        set.advance_to(before.at);
        assert_eq!(copy.now() - before.at, 5 * SECOND);
    }

    #[test]
    fn wall_clock_that_is_set_moves_no_monotonic_clock() {
        let set = SetClock::at(UNIX_EPOCH);
        let before = set.now();
        set.set_wall(UNIX_EPOCH + 7 * SECOND);
        assert_eq!(set.clock().moment().since_epoch(), Some(7 * SECOND));
        set.set_wall(UNIX_EPOCH - SECOND);
        assert_eq!(set.clock().moment().since_epoch(), None);
        assert_eq!(set.now(), before);
    }
}
