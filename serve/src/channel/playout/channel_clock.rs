// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channel time, the clock of a channel's stream, and its relation to the wall clock.
//!
//! Channel time counts 27 MHz ticks since the Unix epoch, so that two servers with synchronised
//! clocks have the same. It runs on with the monotonic clock: the stream's clock (PCR) never jumps
//! while the channel runs. When the wall clock was set by
//! [`CLOCK_STEP`](crate::channel::CLOCK_STEP) or more, only the programme follows it; one that was
//! set before 1970 is not followed.
//!
//! Sources: `serve/src/channel/timeline.rs`, "Clock steps".
//! Does not read a clock: callers pass both.

use std::time::{Duration, Instant};

use media::{duration_of, ticks_of};

use crate::channel::timeline::is_clock_step;

/// Channel time and wall time of a monotonic clock.
pub(super) struct ChannelClock {
    began: Instant,
    /// Channel time at `began`.
    ticks: u64,
    /// Wall time minus channel time, of the last step; positive or negative.
    ahead: Duration,
    behind: Duration,
    /// True since the wall clock was found before 1970.
    is_lost: bool,
}

/// Change of the wall clock since it was compared last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WallClockChange {
    /// It was set, so that the programme changes.
    Set,
    /// It was set before 1970.
    Lost,
}

impl ChannelClock {
    /// Starts the clock at the wall time `wall`.
    pub(super) fn new(now: Instant, wall: Duration) -> ChannelClock {
        let (ahead, behind) = (Duration::ZERO, Duration::ZERO);
        ChannelClock { began: now, ticks: ticks_of(wall), ahead, behind, is_lost: false }
    }

    /// Returns the channel time of a moment.
    pub(super) fn ticks_at(&self, now: Instant) -> u64 {
        self.ticks + ticks_of(now.saturating_duration_since(self.began))
    }

    /// Returns the wall time of a channel time.
    pub(super) fn wall_of(&self, ticks: u64) -> Duration {
        (duration_of(ticks) + self.ahead).saturating_sub(self.behind)
    }

    /// Returns the channel time of a wall time.
    pub(super) fn ticks_of_wall(&self, wall: Duration) -> u64 {
        ticks_of(wall.saturating_add(self.behind).saturating_sub(self.ahead))
    }

    /// Compares with the wall clock, which has no time before 1970.
    pub(super) fn compare(
        &mut self,
        now: Instant,
        wall: Option<Duration>,
    ) -> Option<WallClockChange> {
        let was_lost = std::mem::replace(&mut self.is_lost, wall.is_none());
        let Some(wall) = wall else { return (!was_lost).then_some(WallClockChange::Lost) };
        let ticks = self.ticks_at(now);
        if !is_clock_step(self.wall_of(ticks), wall) {
            return None;
        }
        let channel = duration_of(ticks);
        (self.ahead, self.behind) = (wall.saturating_sub(channel), channel.saturating_sub(wall));
        Some(WallClockChange::Set)
    }
}

#[cfg(test)]
mod tests {
    use media::TICKS_PER_SECOND;

    use super::*;

    const WALL: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn channel_time_is_wall_time_until_the_wall_clock_is_set() {
        let began = Instant::now();
        let mut clock = ChannelClock::new(began, WALL);
        let later = began + Duration::from_secs(10);
        assert_eq!(clock.ticks_at(later), ticks_of(WALL) + 10 * TICKS_PER_SECOND);
        assert_eq!(clock.wall_of(clock.ticks_at(later)), WALL + Duration::from_secs(10));
        let slewed = clock.compare(later, Some(WALL + Duration::from_millis(10_400)));
        assert_eq!(slewed, None);
        for wall in [WALL + Duration::from_secs(3600), WALL - Duration::from_secs(7200)] {
            let before = clock.ticks_at(later);
            assert_eq!(clock.compare(later, Some(wall)), Some(WallClockChange::Set));
            assert_eq!(clock.ticks_at(later), before, "the stream's clock does not jump");
            assert_eq!(clock.wall_of(before), wall);
            assert_eq!(clock.ticks_of_wall(wall), before);
            assert_eq!(clock.compare(later, Some(wall)), None);
        }
    }

    #[test]
    fn a_wall_clock_before_1970_is_told_once_and_not_followed() {
        let began = Instant::now();
        let mut clock = ChannelClock::new(began, WALL);
        let after = |seconds| began + Duration::from_secs(seconds);
        let changes = (1..100).map(|seconds| clock.compare(after(seconds), None));
        let changes: Vec<_> = changes.flatten().collect();
        assert_eq!(changes, [WallClockChange::Lost]);
        let wall = WALL + Duration::from_secs(100);
        assert_eq!(clock.wall_of(clock.ticks_at(after(100))), wall, "the programme goes on");
        assert_eq!(clock.compare(after(100), Some(wall)), None, "it is right again");
        assert_eq!(clock.compare(after(101), None), Some(WallClockChange::Lost));
    }
}
