// SPDX-License-Identifier: MIT OR Apache-2.0
//! Viewing rates, and the times of pictures that are shown at them.
//!
//! Sources: RFC 2326 §12.34.

use std::fmt;

/// A viewing rate (RFC 2326 §12.34): 1, 2, 4, 8 or 16 times the recorded speed, forwards or
/// backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlayScale(i8);

impl PlayScale {
    /// Normal play.
    pub const ONE: PlayScale = PlayScale(1);

    /// Returns the rate nearest to the requested one, by their ratio; forwards for 0 and for NaN.
    pub fn nearest(wanted: f64) -> PlayScale {
        let doublings = wanted.abs().log2().round().clamp(0.0, f64::from(DOUBLINGS_MAX));
        // No number is cast to zero.
        let factor = 1_i8 << doublings as u32;
        PlayScale(if wanted < 0.0 { -factor } else { factor })
    }

    /// True for normal play.
    pub const fn is_normal(self) -> bool {
        self.0 == 1
    }

    /// True if the last picture is shown first.
    pub const fn is_backwards(self) -> bool {
        self.0 < 0
    }

    /// Factor of the speed, without the direction.
    pub const fn factor(self) -> u64 {
        self.0.unsigned_abs() as u64
    }

    /// The value of the header.
    pub fn value(self) -> f64 {
        f64::from(self.0)
    }
}

impl fmt::Display for PlayScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Powers of two of the fastest rate, 16.
const DOUBLINGS_MAX: u32 = 4;

/// Times in a file, and those at which its pictures are shown at a scale. All in ticks of 27 MHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrickTimeline {
    scale: PlayScale,
    /// End of the file.
    file_end_ticks: u64,
}

impl TrickTimeline {
    /// The timeline of a file that ends at `file_end_ticks`.
    pub const fn new(scale: PlayScale, file_end_ticks: u64) -> TrickTimeline {
        TrickTimeline { scale, file_end_ticks }
    }

    /// Its viewing rate.
    pub const fn scale(&self) -> PlayScale {
        self.scale
    }

    /// End of the file.
    pub const fn file_end_ticks(&self) -> u64 {
        self.file_end_ticks
    }

    /// When a place of the file is shown.
    pub fn ticks(&self, file_ticks: u64) -> u64 {
        let passed = match self.scale.is_backwards() {
            true => self.file_end_ticks.saturating_sub(file_ticks),
            false => file_ticks,
        };
        passed / self.scale.factor()
    }

    /// The place of the file that is shown at `ticks`.
    pub fn file_ticks(&self, ticks: u64) -> u64 {
        let passed = ticks.saturating_mul(self.scale.factor());
        match self.scale.is_backwards() {
            true => self.file_end_ticks.saturating_sub(passed),
            false => passed,
        }
    }

    /// The end of the timeline: the display time of the end of the file, or backwards that of its
    /// start.
    pub fn end_ticks(&self) -> u64 {
        self.file_end_ticks / self.scale.factor()
    }
}
