// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts between durations and the ticks of packet plans, those of a 27 MHz clock.
//!
//! Exact to a tick, and without drift over any time.
//!
//! Sources: ISO/IEC 13818-1 §2.4.2.1.
//! Does not scale by a delivery rate: plays of the server do.

use std::time::Duration;

use crate::TICKS_PER_SECOND;

/// Converts a duration to ticks.
pub fn ticks_of(duration: Duration) -> u64 {
    let ticks = duration.as_nanos() * u128::from(TICKS_PER_SECOND) / NANOS_PER_SECOND;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Converts ticks to a duration.
pub fn duration_of(ticks: u64) -> Duration {
    let nanos = u128::from(ticks) * NANOS_PER_SECOND / u128::from(TICKS_PER_SECOND);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;
