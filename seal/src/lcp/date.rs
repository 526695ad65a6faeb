// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dates in licences: ISO 8601 in the profile of RFC 3339, to and from seconds since 1970.
//!
//! Sources: RFC 3339 §5.6; H. Hinnant, "chrono-Compatible Low-Level Date Algorithms" (days from
//! civil and back, in eras of 400 years that begin on 1 March). Does not support leap seconds
//! (second 60 is read as the next minute's first) or years before 0.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in whole seconds since 1970.
pub(super) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Formats `seconds` since 1970 as `2026-11-21T10:26:45Z`.
pub(super) fn write(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let shifted = days + DAYS_TO_EPOCH;
    let (era, day) = (shifted.div_euclid(DAYS_OF_ERA), shifted.rem_euclid(DAYS_OF_ERA));
    let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Parses a date with a time and an offset into seconds since 1970; `None` when `text` is no such
/// date.
pub(super) fn read(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, digits: usize| -> Option<i64> {
        let digits = bytes.get(from..from + digits)?;
        digits.iter().try_fold(0, |sum, digit| {
            digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0'))
        })
    };
    let is = |at: usize, expected: &[u8]| bytes.get(at).is_some_and(|b| expected.contains(b));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = 19;
    if is(at, b".") {
        at += 1 + bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    }
    let offset = if is(at, b"Zz") {
        at += 1;
        0
    } else if is(at, b"+-") && is(at + 3, b":") {
        let offset = number(at + 1, 2)? * 3600 + number(at + 4, 2)? * 60;
        let sign = if bytes[at] == b'-' { -1 } else { 1 };
        at += 6;
        sign * offset
    } else {
        return None;
    };
    if at != bytes.len() {
        return None;
    }
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (shifted_year.div_euclid(400), shifted_year.rem_euclid(400));
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let days = era * DAYS_OF_ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    Some((days - DAYS_TO_EPOCH) * DAY + hour * 3600 + minute * 60 + second - offset)
}

const DAY: i64 = 24 * 3600;
const DAYS_OF_ERA: i64 = 146_097;
/// Days from 1 March of the year 0 to 1970.
const DAYS_TO_EPOCH: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_what_date_1_says() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_383_523_695, "2013-11-04T00:08:15Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(write(seconds), text);
            assert_eq!(read(text), Some(seconds));
        }
        assert_eq!(read("2013-11-04T01:08:15+01:00"), Some(1_383_523_695));
        assert_eq!(read("2013-11-03T19:38:15.123-04:30"), Some(1_383_523_695));
    }

    #[test]
    fn every_day_of_an_era_comes_back() {
        for day in (0..DAYS_OF_ERA).map(|day| (day - DAYS_TO_EPOCH + DAYS_OF_ERA * 4) * DAY) {
            assert_eq!(read(&write(day)), Some(day));
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "2013-11-04",
            "2013-11-04T01:08:15",
            "2013-13-04T01:08:15Z",
            "2013-11-04T24:08:15Z",
            "2013-11-04T01:08:15ZZ",
            "2013-11-04T01:08:15+1:00",
            "2o13-11-04T01:08:15Z",
            "２０13-11-04T01:08:15Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
