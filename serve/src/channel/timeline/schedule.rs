// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts of the items of a schedule, in local time, around a day.
//!
//! Items recur weekly, so the last start before a time lies at most eight days back and the next at
//! most eight days ahead; the starts of twenty days answer every query for one. A local time that
//! summer time skips starts later by the skipped time (02:30 becomes 03:30); one that occurs twice
//! starts at the first. If two items start at one moment for that reason, the later in the list
//! plays.
//!
//! Cost: one conversion of time per item and day, once a day; 256 items take 5,000.
//!
//! Sources: RFC 5545 §3.3.5 (the same rules for calendars); the IANA time zone database.
//! Does not know what an item plays.

use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::super::settings::ScheduleSlot;

/// Starts of a schedule, in order of time.
#[derive(Debug)]
pub(super) struct Starts(Vec<(Duration, usize)>);

impl Starts {
    /// Starts of twenty days around `day`, counted in UTC from the Unix epoch. Years beyond 9999
    /// have none.
    pub(super) fn around(day: u128, slots: &[ScheduleSlot], zone: &TimeZone) -> Starts {
        let seconds = i64::try_from(day).ok().and_then(|day| day.checked_mul(DAY_S as i64));
        let begin = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        let Some(begin) = begin else { return Starts(Vec::new()) };
        let local = zone.to_datetime(begin).date();
        let mut starts = Vec::new();
        for days in -DAYS_BACK..=DAYS_AHEAD {
            let Ok(date) = local.checked_add(Span::new().days(days)) else { continue };
            let of_day = slots.iter().enumerate().filter(|(_, slot)| slot.is_on(date.weekday()));
            for (index, slot) in of_day {
                if let Some(start) = start(date, slot, zone) {
                    starts.push((start, index));
                }
            }
        }
        starts.sort_unstable();
        // Of items that start at one moment the last is kept.
        starts.reverse();
        starts.dedup_by_key(|(start, _)| *start);
        starts.reverse();
        Starts(starts)
    }

    /// The last start up to `time` with the index of its item, and the first start after.
    pub(super) fn around_time(
        &self,
        time: Duration,
    ) -> (Option<(Duration, usize)>, Option<Duration>) {
        let after = self.0.partition_point(|(start, _)| *start <= time);
        let latest = after.checked_sub(1).map(|at| self.0[at]);
        (latest, self.0.get(after).map(|(start, _)| *start))
    }
}

/// The moment at which an item starts on a local date; none before 1970 and after 9999.
fn start(date: Date, slot: &ScheduleSlot, zone: &TimeZone) -> Option<Duration> {
    let moment = zone.to_timestamp(date.to_datetime(slot.time)).ok()?;
    Duration::try_from(moment.as_duration()).ok()
}

/// Seconds of a day of UTC.
pub(super) const DAY_S: u64 = 86_400;
/// A week, a day for zones ahead of or behind UTC, and one that a zone may skip.
const DAYS_BACK: i64 = 9;
const DAYS_AHEAD: i64 = 10;
