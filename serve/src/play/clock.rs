// SPDX-License-Identifier: MIT OR Apache-2.0
//! The media clock of a play: delivery rate, and the map from wall-clock time to media ticks.
//!
//! Uses integers only: a rate is a number of thousandths, and a tick is one of the 27 MHz system
//! clock (ISO/IEC 13818-1 §2.4.2.1). Costs a few nanoseconds a call.
//!
//! Sources: RFC 2326 §12.35 (Speed).
//! Reads no clock.

use std::time::{Duration, Instant};

use media::{TICKS_PER_SECOND, ticks_of};

/// Delivery rate of a play (RFC 2326 §12.35): seconds of media sent per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Speed {
    thousandths: u32,
}

impl Speed {
    pub(crate) const ONE: Speed = Speed { thousandths: 1000 };

    /// Returns the supported rate nearest to `wanted`: half to four times that of normal play. A
    /// reader over TCP that is slower than this misses packets, as any slow reader does.
    pub(crate) fn nearest(wanted: f64) -> Speed {
        // A NaN is cast to zero.
        let thousandths = (wanted.clamp(0.5, 4.0) * 1000.0).round() as u32;
        Speed { thousandths: thousandths.max(500) }
    }

    /// Returns the value of the header.
    pub(crate) fn value(self) -> f64 {
        f64::from(self.thousandths) / 1000.0
    }

    /// Returns the time in which this many seconds of media are sent.
    pub(crate) fn time(self, media_s: f64) -> Duration {
        Duration::from_secs_f64(media_s / self.value())
    }

    /// Returns the media, in ticks, that is sent in this time.
    pub(crate) fn ticks(self, time: Duration) -> u64 {
        let ticks = ticks_of(time);
        match self {
            Speed::ONE => ticks,
            Speed { thousandths } => ticks.saturating_mul(thousandths.into()) / 1000,
        }
    }
}

/// Maps wall-clock time to media ticks from one reference point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MediaClock {
    pub(crate) moment: Instant,
    pub(crate) ticks: u64,
    pub(crate) speed: Speed,
}

impl MediaClock {
    pub(crate) fn ticks_at(&self, moment: Instant) -> u64 {
        let passed = self.speed.ticks(moment.saturating_duration_since(self.moment));
        self.ticks.saturating_add(passed)
    }

    /// Returns the media ticks from this moment to the start of a clock that starts later.
    pub(crate) fn ticks_to_start(&self, moment: Instant) -> u64 {
        self.speed.ticks(self.moment.saturating_duration_since(moment))
    }

    pub(crate) fn moment_of(&self, ticks: u64) -> Instant {
        let ahead = u128::from(ticks.saturating_sub(self.ticks));
        let ticks_per_s = TICKS_PER_SECOND / 1000 * u64::from(self.speed.thousandths);
        let ns = ahead * 1_000_000_000 / u128::from(ticks_per_s);
        self.moment + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}
