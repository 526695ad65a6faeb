// SPDX-License-Identifier: MIT OR Apache-2.0
//! A track's clock by its sender reports: maps RTP timestamps to wall-clock time.
//!
//! Timestamps of two tracks are comparable only through sender reports (RFC 3550 §6.4.1): each
//! track begins at a random number, and audio and video of the same moment may leave the sender at
//! different times.
//!
//! Sources: RFC 3550 §5.1, §6.4.1 (a sender without a clock may write zero).
//! Does not correct drift: the wall clocks of two tracks are one sender's.

use super::track_muxer::TrackOrigin;

/// One sender report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderClock {
    /// NTP timestamp, in units of 2^-32 s.
    pub ntp: u64,
    /// The same moment on the clock of the track.
    pub origin: TrackOrigin,
}

impl SenderClock {
    /// True where the report is plausible after an earlier one of the track.
    pub(super) fn follows(&self, before: Option<&SenderClock>) -> bool {
        let Some(before) = before else { return self.ntp != 0 };
        let stamps = self.origin.timestamp.wrapping_sub(before.origin.timestamp).cast_signed();
        let passed_s = f64::from(stamps) / f64::from(self.origin.clock_rate_hz.max(1));
        self.ntp != 0 && (self.since_s(before.ntp) - passed_s).abs() <= APART_S_MAX
    }

    /// Seconds from an NTP timestamp to this report, which may be in the next era.
    fn since_s(&self, ntp: u64) -> f64 {
        self.ntp.wrapping_sub(ntp).cast_signed() as f64 / NTP_UNITS_S
    }

    /// Seconds from an NTP timestamp to a unit's time, in units of a clock of `rate`.
    pub(super) fn unit_s(&self, unit_time: i64, rate: u32, ntp: u64) -> f64 {
        let passed = unit_time.saturating_sub(self.origin.shift(unit_time, rate));
        self.since_s(ntp) + passed as f64 / f64::from(rate.max(1))
    }
}

/// Largest plausible offset between two tracks of one sender: longer than any transmission delay
/// between them.
pub(super) const APART_S_MAX: f64 = 10.0;
const NTP_UNITS_S: f64 = 4_294_967_296.0;
