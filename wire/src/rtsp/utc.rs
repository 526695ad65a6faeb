// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of day of a Range header (`clock=19961108T143720.25Z-`), as times since 1970.
//!
//! Sources: RFC 2326 §3.7.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

use super::range::nanoseconds;
use super::status::Status;

/// Bytes of date and time without a fraction.
const WHOLE_BYTES: usize = "19961108T143720".len();

/// Reads a time of day in UTC, not before 1970.
pub(super) fn read(text: &str) -> Result<Duration, Status> {
    let text = text.strip_suffix('Z').ok_or(Status::BadRequest)?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    // strptime would accept fewer digits, signs and blanks.
    let is_plain =
        |(at, byte): (usize, u8)| if at == 8 { byte == b'T' } else { byte.is_ascii_digit() };
    if whole.len() != WHOLE_BYTES || !whole.bytes().enumerate().all(is_plain) {
        return Err(Status::BadRequest);
    }
    let whole = DateTime::strptime(FORMAT, whole).map_err(|_| Status::BadRequest)?;
    let whole = TimeZone::UTC.to_timestamp(whole).map_err(|_| Status::InvalidRange)?;
    let seconds = u64::try_from(whole.as_second()).map_err(|_| Status::InvalidRange)?;
    Ok(Duration::new(seconds, nanoseconds(fraction)?))
}

/// Writes a time of day in UTC, to the millisecond.
pub(super) fn write(since_1970: Duration) -> String {
    let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    let whole = strtime::format(FORMAT, &time.to_zoned(TimeZone::UTC)).unwrap_or_default();
    format!("{whole}.{:03}Z", since_1970.subsec_millis())
}

const FORMAT: &str = "%Y%m%dT%H%M%S";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_read_and_written() {
        // The examples of RFC 2326 §3.7 and §10.5.
        let found = read("19961108T143720.25Z").unwrap();
        assert_eq!(found, Duration::new(847_463_840, 250_000_000));
        assert_eq!(write(found), "19961108T143720.250Z");
        assert_eq!(read("19961108T142300Z").unwrap(), Duration::from_secs(847_462_980));
        assert_eq!(read("20240229T235959Z").unwrap(), Duration::from_secs(1_709_251_199));
    }

    #[test]
    fn wrong_times_of_day() {
        for wrong in [
            "",
            "Z",
            "19961108T143720",
            "19961108 143720Z",
            "19961308T143720Z",
            "20230229T000000Z",
            "1996-11-08T14:37:20Z",
            "19961108T143720.2x5Z",
            "+9961108T143720Z",
        ] {
            assert_eq!(read(wrong), Err(Status::BadRequest), "{wrong}");
        }
        assert_eq!(read("19691231T235959Z"), Err(Status::InvalidRange));
    }
}
