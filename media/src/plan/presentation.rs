// SPDX-License-Identifier: MIT OR Apache-2.0
//! Presentation times of the places to start, counted from the title's start.
//!
//! A client counts from the first picture that it shows (the first sound of a title without
//! pictures), and a picture is shown later than its bytes arrive, by a delay that the multiplexer
//! chooses and that differs from picture to picture. So a place to start is found by the time in
//! its own PES header, and not by the clock, which gives the time at which bytes are due.
//!
//! The times of one time base are exact to a tick of 90 kHz. If they were reset, or are missing,
//! the clock gives the distance from the place before. Costs one look-up a place, once a scan.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3.7 (PTS), RFC 2326 §3.6 (normal play time begins with zero).

use super::arithmetic::ticks_at;
use super::rows::{ClockPoint, TIMELINE_TICKS_MAX};
use crate::ts::EntryPoints;
use crate::{TICKS_PER_SECOND, TICKS_PER_TIMESTAMP};

/// Times whose distance from the clock differs by more than this from that at the title's start
/// were reset. A receiver holds a picture back for 10 s at most (§2.14.3.1).
const APART_TICKS_MAX: u64 = 10 * TICKS_PER_SECOND;

/// Presentation times without a break.
struct PresentationLine {
    /// Start, by the clock and as a presentation time.
    clock: u64,
    presented: u64,
    /// The last time on it, and its distance from the start.
    last: Option<u32>,
    since: i64,
}

impl PresentationLine {
    /// Distance of `time` from the start, and its presentation time.
    fn presents(&self, time: u32) -> Option<(i64, u64)> {
        let step = i64::from(time.wrapping_sub(self.last?) as i32) * TICKS_PER_TIMESTAMP as i64;
        let since = self.since.saturating_add(step);
        Some((since, self.presented.checked_add_signed(since)?))
    }

    /// True if `presented` agrees with the clock.
    fn fits(&self, presented: u64, clock: u64) -> bool {
        let by_clock = self.presented + (clock - self.clock);
        presented.abs_diff(by_clock) <= APART_TICKS_MAX
    }
}

/// Sets the presentation time of each place in `starts`, by its PES header and this clock.
pub(crate) fn present(clock: &[ClockPoint], starts: &mut EntryPoints) {
    let (mut clock_before, mut before) = (0, 0);
    let mut line = PresentationLine { clock: 0, presented: 0, last: None, since: 0 };
    if let Some((access_unit, time)) = starts.begin {
        clock_before = ticks_at(clock, access_unit);
        line = PresentationLine { clock: clock_before, last: Some(time), ..line };
    }
    for (entry, start) in &mut starts.entries {
        let ticks = ticks_at(clock, entry.access_unit);
        let by_clock = (before + (ticks - clock_before)).min(TIMELINE_TICKS_MAX);
        entry.presented_ticks = match start.presented() {
            None => by_clock,
            Some(time) => match line.presents(time) {
                // Times that stand still while the clock advances are wrong.
                Some((since, presented))
                    if (presented > before || ticks == clock_before)
                        && (before..=TIMELINE_TICKS_MAX).contains(&presented)
                        && line.fits(presented, ticks) =>
                {
                    (line.since, line.last) = (since, Some(time));
                    presented
                }
                _ => {
                    line = PresentationLine {
                        clock: ticks,
                        presented: by_clock,
                        last: Some(time),
                        since: 0,
                    };
                    by_clock
                }
            },
        };
        (clock_before, before) = (ticks, entry.presented_ticks);
    }
}
