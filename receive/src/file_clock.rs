// SPDX-License-Identifier: MIT OR Apache-2.0
//! The times at which the clock on the wall begins another file: multiples of a number of minutes
//! since midnight.
//!
//! Where the offset of the time zone changes, a file begins as well, so that the hour that comes
//! twice is in two files; files of whole days are of 23 or 25 hours then. A clock that is set back
//! by less than a period begins no file.
//!
//! Sources: IANA time zone database (by `jiff`). Does not wait.

use std::time::SystemTime;

use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// The periods of a camera's files.
#[derive(Debug)]
pub(crate) struct FileClock {
    minutes: u32,
    time_zone: TimeZone,
    /// The current period, and the time at which it was found.
    current: Option<(FilePeriod, Timestamp)>,
}

/// A period, by the clock on the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FilePeriod {
    date: Date,
    /// Number of the period in the day.
    number: u32,
    /// `None` where a period is a day.
    offset: Option<Offset>,
}

impl FileClock {
    /// Periods of this many minutes, a divisor of a day.
    pub(crate) fn new(minutes: u32, time_zone: TimeZone) -> FileClock {
        FileClock { minutes: minutes.clamp(1, DAY_MINUTES), time_zone, current: None }
    }

    /// True if a period has begun since the last call.
    pub(crate) fn has_begun(&mut self, now: SystemTime) -> bool {
        let Ok(now) = Timestamp::try_from(now) else { return false };
        let period = self.period(now);
        let Some((current, since)) = self.current else {
            self.current = Some((period, now));
            return false;
        };
        let back = since.duration_since(now);
        let has_begun = period != current
            && (back.is_negative() || back >= SignedDuration::from_mins(self.minutes.into()));
        if has_begun {
            self.current = Some((period, now));
        }
        has_begun
    }

    fn period(&self, now: Timestamp) -> FilePeriod {
        let now = now.to_zoned(self.time_zone.clone());
        let minute =
            u32::from(now.hour().unsigned_abs()) * 60 + u32::from(now.minute().unsigned_abs());
        let offset = Some(now.offset()).filter(|_| self.minutes < DAY_MINUTES);
        FilePeriod { date: now.date(), number: minute / self.minutes, offset }
    }
}

/// Minutes of a day.
const DAY_MINUTES: u32 = 24 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    /// The local times at which files begin, of all minutes from a time on.
    fn starts(minutes: u32, from: &str, hours: i64) -> Vec<String> {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let mut clock = FileClock::new(minutes, zone.clone());
        let from: Timestamp = from.parse().unwrap();
        let times = (0..=hours * 60).map(|minute| from + SignedDuration::from_mins(minute));
        times
            .filter(|&time| clock.has_begun(time.into()))
            .map(|time| time.to_zoned(zone.clone()).strftime("%d %H:%M %z").to_string())
            .collect()
    }

    #[test]
    fn files_begin_at_multiples_of_the_minutes_since_midnight() {
        let hours = starts(60, "2026-11-30T12:10:00+01:00", 3);
        assert_eq!(hours, ["30 13:00 +0100", "30 14:00 +0100", "30 15:00 +0100"]);
        let quarters = starts(480, "2026-11-30T22:00:00+01:00", 12);
        assert_eq!(quarters, ["01 00:00 +0100", "01 08:00 +0100"]);
        assert_eq!(starts(1440, "2026-11-30T00:00:00+01:00", 25), ["01 00:00 +0100"]);
    }

    #[test]
    fn an_hour_that_comes_twice_or_never_makes_no_long_file() {
        let autumn = starts(60, "2026-10-25T01:30:00+02:00", 4);
        let expected = ["25 02:00 +0200", "25 02:00 +0100", "25 03:00 +0100", "25 04:00 +0100"];
        assert_eq!(autumn, expected);
        let spring = starts(60, "2026-03-29T01:30:00+01:00", 2);
        assert_eq!(spring, ["29 03:00 +0200", "29 04:00 +0200"]);
        let days = starts(1440, "2026-10-24T12:00:00+02:00", 48);
        assert_eq!(days, ["25 00:00 +0200", "26 00:00 +0100"]);
    }

    #[test]
    fn a_clock_that_is_set_begins_a_file_only_forward_or_far_back() {
        let mut clock = FileClock::new(60, TimeZone::UTC);
        let mut begins = |time: &str| {
            let time: Timestamp = format!("2026-11-30T{time}Z").parse().unwrap();
            clock.has_begun(time.into())
        };
        assert!(!begins("13:59:59"));
        assert!(begins("14:00:00"));
        assert!(!begins("13:59:59") && !begins("14:00:00") && !begins("14:30:00"));
        assert!(begins("18:30:00"));
        assert!(begins("12:30:00") && begins("13:00:00"));
    }
}
