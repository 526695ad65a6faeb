// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times that a person writes: a date with a time, a time of today, a time ago, the name of a file.
//!
//! A time without an offset is one of the camera's time zone. Where the clock is set back, such a
//! time exists twice, and where it is set forward, not at all: `--from` means the earlier moment
//! and `--to` the later, so that a cut contains all that the caller may mean.
//!
//! Sources: RFC 3339; ISO 8601 (basic format, as in names of files); parsed by the crate `jiff`.
//! Does not read the clock: "now" is an argument.

use jiff::civil::Time;
use jiff::fmt::temporal::{Pieces, PiecesOffset};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Unit};
use recordings::RecordedTime;

/// The end of a range that a time is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    From,
    To,
}

impl End {
    fn option(self) -> &'static str {
        match self {
            End::From => "--from",
            End::To => "--to",
        }
    }
}

/// Returns the range between the values of `--from` and `--to`; `None` without both. `--to` is now
/// by default, and `--from` the begin of time.
///
/// # Errors
/// The option, its value, and what to write.
pub(super) fn range(
    from: Option<&str>,
    to: Option<&str>,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<Option<RecordedTime>, String> {
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let read = |text: &str, end| moment(text, end, zone, now);
    let begin = from.map_or(Ok(Timestamp::MIN), |text| read(text, End::From))?;
    let end = to.map_or(Ok(now), |text| read(text, End::To))?;
    if begin < end {
        return Ok(Some(RecordedTime { from: begin, to: end }));
    }
    let (begin, end) = (shown(begin, zone), shown(end, zone));
    let (from, default) = (from.unwrap_or_default(), if to.is_none() { " (now)" } else { "" });
    Err(format!(
        "--from {from}: {begin} is not before --to, {end}{default}; write an earlier --from or a \
         later --to, with its date if it is not today"
    ))
}

/// Parses a time.
///
/// # Errors
/// As for [`range`].
pub(super) fn moment(
    text: &str,
    end: End,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<Timestamp, String> {
    let text = text.trim();
    let found = if is_time_of_day(text) {
        text.parse::<Time>().ok().and_then(|time| {
            let today = now.to_zoned(zone.clone()).date();
            of_clock(&Pieces::from(today).with_time(time), end, zone)
        })
    } else if is_length(text) {
        ago(text, zone, now)
    } else {
        Pieces::parse(text).ok().and_then(|pieces| of_clock(&pieces, end, zone))
    };
    found.ok_or_else(|| format!("{} {text}: not a time; {CURE}", end.option()))
}

/// Formats a moment to the nearest second in a time zone, in a form that [`moment`] parses.
pub(super) fn shown(moment: Timestamp, zone: &TimeZone) -> String {
    formatted(moment, zone, Unit::Second)
}

/// As [`shown`], to the nearest millisecond.
pub(super) fn shown_exact(moment: Timestamp, zone: &TimeZone) -> String {
    formatted(moment, zone, Unit::Millisecond)
}

fn formatted(moment: Timestamp, zone: &TimeZone, unit: Unit) -> String {
    let moment = moment.round(unit).unwrap_or(moment);
    moment.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%.f%:z").to_string()
}

/// Formats a length with its two largest units.
pub(super) fn length_shown(seconds: u64) -> String {
    let two = |large: u64, name: &str, small: u64, small_name: &str| match small {
        0 => format!("{large} {name}"),
        _ => format!("{large} {name} {small} {small_name}"),
    };
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => two(seconds / 60, "min", seconds % 60, "s"),
        7_200..172_800 => two(seconds / 3600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    }
}

/// True for `14:20` and `14:20:05`.
fn is_time_of_day(text: &str) -> bool {
    text.contains(':') && text.chars().all(|c| c.is_ascii_digit() || c == ':' || c == '.')
}

/// True for a number and a letter behind it, such as `90s`.
fn is_length(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ' ');
    let is_number = unit.len() < text.len() && text.starts_with(|c: char| c.is_ascii_digit());
    // `20261130T140000` is a date.
    is_number && unit.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Returns the moment some time before now. A day ends at the same time of the clock.
fn ago(text: &str, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
    let span: Span = text.parse().ok().filter(|span: &Span| !span.is_negative())?;
    Some(now.to_zoned(zone.clone()).checked_sub(span).ok()?.timestamp())
}

/// Returns the moment of a date, which may have a time and an offset.
fn of_clock(pieces: &Pieces<'_>, end: End, zone: &TimeZone) -> Option<Timestamp> {
    if pieces.time_zone_annotation().is_some() {
        return None;
    }
    let zone = match pieces.offset() {
        None => zone.clone(),
        Some(PiecesOffset::Zulu) => TimeZone::UTC,
        Some(PiecesOffset::Numeric(offset)) => TimeZone::fixed(offset.offset()),
        Some(_) => return None,
    };
    let Some(time) = pieces.time() else {
        let day = match end {
            End::From => pieces.date(),
            End::To => pieces.date().tomorrow().ok()?,
        };
        return Some(day.to_zoned(zone).ok()?.timestamp());
    };
    let moments = zone.to_ambiguous_timestamp(pieces.date().to_datetime(time));
    match end {
        End::From => moments.earlier().ok(),
        End::To => moments.later().ok(),
    }
}

const CURE: &str = "write 2026-11-30T14:20 or 2026-11-30T14:20:05 (in the camera's time zone, or \
                    with an offset: 2026-11-30T14:20:05+01:00, …Z), 2026-11-30, 14:20 (today), \
                    or 10m, 2h, 1h30m (ago)";

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> TimeZone {
        TimeZone::get("Europe/Berlin").unwrap()
    }

    /// A Monday afternoon in Berlin.
    fn now() -> Timestamp {
        "2026-11-30T15:00:07+01:00".parse().unwrap()
    }

    fn read(text: &str, end: End) -> Result<String, String> {
        moment(text, end, &berlin(), now()).map(|moment| shown_exact(moment, &berlin()))
    }

    #[test]
    fn every_form_of_a_time_is_parsed() {
        for (text, expected) in [
            ("2026-11-30T14:20", "2026-11-30T14:20:00+01:00"),
            ("2026-11-30 14:20", "2026-11-30T14:20:00+01:00"),
            ("2026-11-30 14:20:05", "2026-11-30T14:20:05+01:00"),
            (" 2026-11-30T14:20:05.25 ", "2026-11-30T14:20:05.25+01:00"),
            ("2026-07-01T14:20", "2026-07-01T14:20:00+02:00"),
            ("2026-11-30T14:20:05Z", "2026-11-30T15:20:05+01:00"),
            ("2026-11-30T14:20Z", "2026-11-30T15:20:00+01:00"),
            ("2026-11-30t14:20:05z", "2026-11-30T15:20:05+01:00"),
            ("2026-11-30T14:20:05+01:00", "2026-11-30T14:20:05+01:00"),
            ("2026-11-30 14:20:05-03:30", "2026-11-30T18:50:05+01:00"),
            ("2026-11-30T14:20+01", "2026-11-30T14:20:00+01:00"),
            ("20261130T140000+0100", "2026-11-30T14:00:00+01:00"),
            ("20261130T140000Z", "2026-11-30T15:00:00+01:00"),
            ("20261130T140000", "2026-11-30T14:00:00+01:00"),
            ("14:20", "2026-11-30T14:20:00+01:00"),
            ("14:20:05", "2026-11-30T14:20:05+01:00"),
            ("00:00", "2026-11-30T00:00:00+01:00"),
            ("10m", "2026-11-30T14:50:07+01:00"),
            ("2h", "2026-11-30T13:00:07+01:00"),
            ("90s", "2026-11-30T14:58:37+01:00"),
            ("1h30m", "2026-11-30T13:30:07+01:00"),
            ("1h 30m", "2026-11-30T13:30:07+01:00"),
            ("1.5h", "2026-11-30T13:30:07+01:00"),
            ("0s", "2026-11-30T15:00:07+01:00"),
            ("2d", "2026-11-28T15:00:07+01:00"),
            // The clock was set back on October 25th: a day was longer.
            ("37d", "2026-10-24T15:00:07+02:00"),
        ] {
            assert_eq!(read(text, End::From).as_deref(), Ok(expected), "{text}");
            assert_eq!(read(text, End::To).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_date_is_its_midnight_and_its_end() {
        for (text, from, to) in [
            ("2026-11-30", "2026-11-30T00:00:00+01:00", "2026-12-01T00:00:00+01:00"),
            ("20261130", "2026-11-30T00:00:00+01:00", "2026-12-01T00:00:00+01:00"),
            // 25 hours, and 23.
            ("2026-10-25", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"),
            ("2026-03-29", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"),
            ("2028-02-29", "2028-02-29T00:00:00+01:00", "2028-03-01T00:00:00+01:00"),
        ] {
            assert_eq!(read(text, End::From).as_deref(), Ok(from), "{text}");
            assert_eq!(read(text, End::To).as_deref(), Ok(to), "{text}");
        }
        // A day that has no midnight begins an hour later.
        let beirut = TimeZone::get("Asia/Beirut").unwrap();
        let begin = moment("2021-03-28", End::From, &beirut, now()).unwrap();
        assert_eq!(shown(begin, &beirut), "2021-03-28T01:00:00+03:00");
    }

    #[test]
    fn a_time_that_exists_twice_or_never_contains_all_that_it_may_mean() {
        for (text, from, to) in [
            ("2026-10-25T02:30", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"),
            ("2026-10-25T03:00", "2026-10-25T03:00:00+01:00", "2026-10-25T03:00:00+01:00"),
            ("2026-03-29T02:30", "2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"),
        ] {
            assert_eq!(read(text, End::From).as_deref(), Ok(from), "{text}");
            assert_eq!(read(text, End::To).as_deref(), Ok(to), "{text}");
        }
        let with_offset = "2026-10-25T02:30+01:00";
        assert_eq!(read(with_offset, End::From), read(with_offset, End::To));
        let night: Timestamp = "2026-10-25T12:00:00+01:00".parse().unwrap();
        let early = moment("02:30", End::From, &berlin(), night).unwrap();
        assert_eq!(shown(early, &berlin()), "2026-10-25T02:30:00+02:00");
    }

    #[test]
    fn other_texts_are_refused_with_the_forms() {
        for text in [
            "",
            "yesterday",
            "14",
            "1420",
            "14:60",
            "24:00",
            "25:00",
            "14:20:05:01",
            "2026",
            "2026-11",
            "2026-13-01",
            "2026-02-29",
            "2026-11-31T14:20",
            "30.11.2026",
            "11/30/2026",
            "2026-11-30T",
            "2026-11-30T24:00",
            "2026-11-30T14:20+99:00",
            "2026-11-30T14:20[Europe/Berlin]",
            "20261130T1400Z0",
            "10",
            "10x",
            "m",
            "-10m",
            "10m ago",
            "99999999999h",
            "9999y 9999y",
            "10m\u{1b}",
            "é",
        ] {
            let fault = read(text, End::To).expect_err(text);
            assert!(fault.starts_with(&format!("--to {text}: not a time; write ")), "{fault}");
        }
    }

    #[test]
    fn ranges_have_defaults_and_a_begin_before_their_end() {
        let range = |from, to| {
            let range = range(from, to, &berlin(), now())?;
            Ok::<_, String>(range.map(|range| (range.from, shown(range.to, &berlin()))))
        };
        let today: Timestamp = "2026-11-30T00:00:00+01:00".parse().unwrap();
        assert_eq!(range(None, None), Ok(None));
        let until_now = Some((today, "2026-11-30T15:00:07+01:00".to_owned()));
        assert_eq!(range(Some("2026-11-30"), None), Ok(until_now));
        let whole_day = Some((today, "2026-12-01T00:00:00+01:00".to_owned()));
        assert_eq!(range(Some("2026-11-30"), Some("2026-11-30")), Ok(whole_day));
        let all_before = Some((Timestamp::MIN, "2026-11-30T14:00:00+01:00".to_owned()));
        assert_eq!(range(None, Some("14:00")), Ok(all_before));
        let is_not_before = |from, to, found: &str| {
            let fault = range(Some(from), to).unwrap_err();
            assert!(fault.starts_with(found), "{fault}");
        };
        is_not_before(
            "23:50",
            None,
            "--from 23:50: 2026-11-30T23:50:00+01:00 is not before --to, \
             2026-11-30T15:00:07+01:00 (now); write an earlier --from or a later --to",
        );
        is_not_before("14:20", Some("14:20"), "--from 14:20: 2026-11-30T14:20:00+01:00 is not");
        is_not_before("1h", Some("2h"), "--from 1h: 2026-11-30T14:00:07+01:00 is not before");
        assert!(range(Some("14:00"), Some("soon")).unwrap_err().starts_with("--to soon: not a"));
    }

    #[test]
    fn lengths_have_their_two_largest_units() {
        let shown = [0, 23, 119, 120, 725, 7_199, 7_200, 7_260, 172_800, 180_000].map(length_shown);
        let expected = [
            "0 s",
            "23 s",
            "119 s",
            "2 min",
            "12 min 5 s",
            "119 min 59 s",
            "2 h",
            "2 h 1 min",
            "2 d",
            "2 d 2 h",
        ];
        assert_eq!(shown, expected);
    }
}
