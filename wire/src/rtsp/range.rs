// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses and writes the Range header: start and end of play, by normal play time, time code or
//! time of day.
//!
//! Answers to wrong ranges:
//!
//! | range | answer | why |
//! |---|---|---|
//! | any unit but `npt`, `smpte`, `clock` | 501 | "time format that is not understood" (§12.29) |
//! | not of the grammar | 400 | §3.5 to §3.7 |
//! | `npt=-10`, `npt=20-10`, several ranges, absurd figures | 457 | no start, or nothing to play |
//!
//! With a negative Scale `npt=20-10` is valid: play runs from its start backwards to its end.
//!
//! `npt=-10` matches the grammar, but §3.6 does not define its start; a guess would play something
//! that the client did not ask for. `time=` (the time to begin, §12.29) is parsed but ignored if it
//! is in the future: playback starts at once, as for a time in the past. A range beyond the end is
//! refused by the server, which has the duration.
//!
//! `rtsp-types` has this header too; it reads `npt=+1-`, minutes of 75 and no `5.`, hence this.
//!
//! Sources: RFC 2326 §3.5, §3.6, §3.7, §12.29.

use std::fmt;
use std::time::Duration;

use super::smpte::SmpteRate;
use super::status::Status;
use super::utc;

/// Unit of the client's times, and of those in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RangeUnit {
    /// Normal play time (§3.6).
    #[default]
    Npt,
    /// Time codes (§3.5): times since the start of the asset, like normal play time.
    Smpte(SmpteRate),
    /// Time of day (§3.7): times since 1970, in UTC.
    Clock,
}

impl RangeUnit {
    fn named(unit: &str) -> Option<RangeUnit> {
        match unit {
            _ if unit.eq_ignore_ascii_case("npt") => Some(RangeUnit::Npt),
            _ if unit.eq_ignore_ascii_case("clock") => Some(RangeUnit::Clock),
            _ => SmpteRate::named(unit).map(RangeUnit::Smpte),
        }
    }

    fn read(self, text: &str) -> Result<Duration, Status> {
        match self {
            RangeUnit::Npt => time(text),
            RangeUnit::Smpte(rate) => rate.read(text),
            RangeUnit::Clock => utc::read(text),
        }
    }

    /// The range from `start` to `end` in this unit.
    pub(super) fn write(self, start: Duration, end: Option<Duration>) -> String {
        let (name, text): (_, &dyn Fn(Duration) -> String) = match &self {
            RangeUnit::Npt => ("npt", &|time| Npt(time).to_string()),
            RangeUnit::Smpte(rate) => (rate.unit(), &|time| rate.write(time)),
            RangeUnit::Clock => ("clock", &utc::write),
        };
        format!("{name}={}-{}", text(start), end.map(text).unwrap_or_default())
    }
}

/// Start of play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NptStart {
    /// `now`: for stored media, the current position of the session.
    Now,
    /// At a time since the start of the asset, or since 1970 ([`RangeUnit`]).
    At(Duration),
}

/// A range of play: from `start`, up to and not including `end` (§12.29); backwards where `end` is
/// before `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NptRange {
    /// The first instant.
    pub start: NptStart,
    /// The first instant not played; none is the end of the asset.
    pub end: Option<Duration>,
}

/// Writes a time as normal play time in seconds with as many decimals as it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Npt(pub Duration);

impl fmt::Display for Npt {
    /// Three decimals at least: GStreamer and live555 print as many, and old parsers expect a
    /// point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.subsec_nanos();
        write!(f, "{}.", self.0.as_secs())?;
        if nanoseconds.is_multiple_of(1_000_000) {
            write!(f, "{:03}", nanoseconds / 1_000_000)
        } else {
            write!(f, "{:06}", nanoseconds / 1_000)
        }
    }
}

impl fmt::Display for NptRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start {
            NptStart::Now => f.write_str("npt=now-")?,
            NptStart::At(start) => write!(f, "npt={}-", Npt(start))?,
        }
        self.end.map_or(Ok(()), |end| write!(f, "{}", Npt(end)))
    }
}

/// Parses a Range header, or returns the status with which it is refused. A range that ends where
/// it begins has nothing to play; one that ends before its start depends on the Scale.
pub(super) fn parse(header: &str) -> Result<(NptRange, RangeUnit), Status> {
    let ranges = header.split(';').next().unwrap_or_default();
    let mut list = ranges.split(',').map(str::trim).filter(|range| !range.is_empty());
    let range = list.next().ok_or(Status::BadRequest)?;
    let (unit, times) = range.split_once('=').ok_or(Status::BadRequest)?;
    let unit = RangeUnit::named(unit.trim()).ok_or(Status::NotImplemented)?;
    if list.next().is_some() {
        return Err(Status::InvalidRange);
    }
    let (start, end) = match without_negative_start(times) {
        Some(end) => ("0", end),
        None => times.split_once('-').ok_or(Status::BadRequest)?,
    };
    let (start, end) = (start.trim(), end.trim());
    let end = if end.is_empty() { None } else { Some(unit.read(end)?) };
    let start = match start {
        "" if end.is_some() => return Err(Status::InvalidRange),
        "" => return Err(Status::BadRequest),
        now if now.eq_ignore_ascii_case("now") && unit == RangeUnit::Npt => NptStart::Now,
        at => NptStart::At(unit.read(at)?),
    };
    match (start, end) {
        (NptStart::At(start), Some(end)) if end == start => Err(Status::InvalidRange),
        _ => Ok((NptRange { start, end }, unit)),
    }
}

impl NptRange {
    /// True if it ends before it begins.
    pub fn is_backwards(&self) -> bool {
        matches!((self.start, self.end), (NptStart::At(start), Some(end)) if end < start)
    }
}

/// Writes the end of a range of normal play time in the form of `a=range` (C.1.5).
pub(crate) fn end(range: &str) -> Option<Duration> {
    let (range, _) = parse(range).ok().filter(|(_, unit)| *unit == RangeUnit::Npt)?;
    range.end
}

/// Returns the text after a start that lies before the asset's own, as ffmpeg writes it for a seek
/// to the first picture of a file whose sound begins earlier: `0.-153-`, `-1.-20-`
/// (libavformat/rtspdec.c prints whole seconds and thousandths, each with its sign). Such a client
/// would wait for ever after a refusal, and means the start.
fn without_negative_start(times: &str) -> Option<&str> {
    let times = times.trim_start();
    let (seconds, rest) = times.strip_prefix('-').unwrap_or(times).split_once(".-")?;
    let (thousandths, end) = rest.split_once('-')?;
    let are_digits = digits(seconds).is_ok() && digits(thousandths).is_ok();
    are_digits.then_some(end)
}

/// Parses `npt-sec` or `npt-hhmmss`.
fn time(text: &str) -> Result<Duration, Status> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut fields = whole.split(':');
    let (first, minutes, seconds) = (fields.next(), fields.next(), fields.next());
    if fields.next().is_some() {
        return Err(Status::BadRequest);
    }
    let first = digits(first.unwrap_or_default())?;
    let seconds = match (minutes, seconds) {
        (None, _) => first,
        (Some(minutes), Some(seconds)) => {
            let (minutes, seconds) = (sexagesimal(minutes)?, sexagesimal(seconds)?);
            first.saturating_mul(3600).saturating_add(minutes * 60 + seconds)
        }
        (Some(_), None) => return Err(Status::BadRequest),
    };
    if seconds > NPT_SECONDS_MAX {
        return Err(Status::InvalidRange);
    }
    Ok(Duration::new(seconds, nanoseconds(fraction)?))
}

/// One or more digits, saturating: a value that is too large is refused as a time, not as a number.
pub(super) fn digits(text: &str) -> Result<u64, Status> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Status::BadRequest);
    }
    let digit = |sum: u64, b: u8| sum.saturating_mul(10).saturating_add(u64::from(b - b'0'));
    Ok(text.bytes().fold(0, digit))
}

/// One or two digits, 0 to 59.
pub(super) fn sexagesimal(text: &str) -> Result<u64, Status> {
    match digits(text)? {
        value if value < 60 && text.len() <= 2 => Ok(value),
        _ => Err(Status::BadRequest),
    }
}

/// Decimals of a second, any number of them; those past the ninth are cut off.
pub(super) fn nanoseconds(decimals: &str) -> Result<u32, Status> {
    if !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Status::BadRequest);
    }
    let nine = decimals.bytes().chain(std::iter::repeat(b'0')).take(9);
    Ok(nine.fold(0, |sum, b| sum * 10 + u32::from(b - b'0')))
}

/// A thousand years: far past any asset, and far from any overflow in ticks or nanoseconds.
const NPT_SECONDS_MAX: u64 = 1000 * 366 * 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;

    /// A range of normal play time, or the refusal.
    fn parse(header: &str) -> Result<NptRange, Status> {
        let (range, unit) = super::parse(header)?;
        assert_eq!(unit, RangeUnit::Npt);
        if range.is_backwards() { Err(Status::InvalidRange) } else { Ok(range) }
    }

    fn at(start: Duration, end: Option<Duration>) -> Result<NptRange, Status> {
        Ok(NptRange { start: NptStart::At(start), end })
    }

    #[test]
    fn rfc_2326_section_3_6_examples() {
        let ms = Duration::from_millis;
        assert_eq!(parse("npt=123.45-125"), at(ms(123_450), Some(ms(125_000))));
        assert_eq!(parse("npt=12:05:35.3-"), at(ms(43_535_300), None));
        assert_eq!(parse("npt=now-"), Ok(NptRange { start: NptStart::Now, end: None }));
    }

    #[test]
    fn rfc_2326_sections_3_5_and_3_7_examples() {
        let seconds = Duration::from_secs;
        let range = |start, end| NptRange { start: NptStart::At(start), end };
        let found = super::parse("smpte=10:12:33:20-");
        let start = Duration::from_nanos((36_753 * 30 + 20 - 1102) * 1001 * 1_000_000 / 30);
        assert_eq!(found, Ok((range(start, None), RangeUnit::Smpte(SmpteRate::Drop30))));
        let found = super::parse("smpte-25=10:07:00-10:07:33:05.01;time=19970123T153600Z");
        let end = Some(Duration::from_nanos(36_453_200_400_000));
        let unit = RangeUnit::Smpte(SmpteRate::Fixed25);
        assert_eq!(found, Ok((range(seconds(36_420), end), unit)));
        let found = super::parse("clock=19961108T142300Z-19961108T143520Z");
        let end = Some(seconds(847_463_720));
        assert_eq!(found, Ok((range(seconds(847_462_980), end), RangeUnit::Clock)));
        assert_eq!(super::parse("bytes=0-"), Err(Status::NotImplemented));
        assert_eq!(super::parse("clock=now-"), Err(Status::BadRequest));
        assert_eq!(super::parse("smpte=now-"), Err(Status::BadRequest));
    }

    #[test]
    fn answers_are_in_the_unit_of_the_question() {
        let times = (Duration::from_millis(620_500), Some(Duration::from_secs(640)));
        for (unit, text) in [
            (RangeUnit::Npt, "npt=620.500-640.000"),
            (RangeUnit::Smpte(SmpteRate::Fixed25), "smpte-25=0:10:20:12.50-0:10:40:00"),
            (RangeUnit::Clock, "clock=19700101T001020.500Z-19700101T001040.000Z"),
        ] {
            assert_eq!(unit.write(times.0, times.1), text);
            let range = NptRange { start: NptStart::At(times.0), end: times.1 };
            assert_eq!(super::parse(text), Ok((range, unit)));
        }
        assert_eq!(RangeUnit::Npt.write(times.0, None), "npt=620.500-");
    }

    #[test]
    fn a_range_may_end_before_it_begins_for_play_backwards() {
        assert!(super::parse("npt=20-10").unwrap().0.is_backwards());
        assert!(!super::parse("npt=10-20").unwrap().0.is_backwards());
        assert!(!super::parse("npt=10-").unwrap().0.is_backwards());
    }

    #[test]
    fn what_clients_send() {
        assert_eq!(parse("npt=0.000-"), at(Duration::ZERO, None)); // live555, ffmpeg
        assert_eq!(parse("npt=0-"), at(Duration::ZERO, None)); // GStreamer
        // ffmpeg, for a start before the asset's own.
        let ten = Some(Duration::from_secs(10));
        for start in ["npt=0.-153-", "npt=0.-80-", "npt=-1.-20-"] {
            assert_eq!(parse(start), at(Duration::ZERO, None), "{start}");
            assert_eq!(parse(&format!("{start}10")), at(Duration::ZERO, ten), "{start}");
        }
        assert_eq!(parse("npt = 5. - 7"), at(Duration::from_secs(5), Some(Duration::from_secs(7))));
        let nine = Duration::new(1, 123_456_789);
        assert_eq!(parse("npt=1.1234567899999-"), at(nine, None));
        assert_eq!(parse("npt=10-;time=19970123T143720Z"), at(Duration::from_secs(10), None));
    }

    #[test]
    fn wrong_ranges() {
        for (range, status) in [
            ("npt=-10", Status::InvalidRange),
            ("npt=20-10", Status::InvalidRange),
            ("npt=10-10", Status::InvalidRange),
            ("npt=0-10,20-30", Status::InvalidRange),
            ("npt=99999999999999999999999999-", Status::InvalidRange),
            ("npt=99999999999999999999:00:00-", Status::InvalidRange),
            ("", Status::BadRequest),
            ("npt", Status::BadRequest),
            ("npt=", Status::BadRequest),
            ("npt=-", Status::BadRequest),
            ("npt=10", Status::BadRequest),
            ("npt=+10-", Status::BadRequest),
            ("npt=0.--", Status::BadRequest),
            ("npt=.-1-", Status::BadRequest),
            ("npt=1e3-", Status::BadRequest),
            ("npt=NaN-", Status::BadRequest),
            ("npt=5:30-", Status::BadRequest),
            ("npt=1:75:00-", Status::BadRequest),
            ("npt=1:000:00-", Status::BadRequest),
            ("npt=1:2:3:4-", Status::BadRequest),
            ("npt=.5-", Status::BadRequest),
            ("npt=1.5x-", Status::BadRequest),
            ("npt=0-now", Status::BadRequest),
        ] {
            assert_eq!(parse(range), Err(status), "{range}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (seconds, nanos) in [(0, 0), (30, 0), (59, 999_999_000), (7, 40_000_000), (1, 1_000)] {
            let start = Duration::new(seconds, nanos);
            let range = NptRange { start: NptStart::At(start), end: Some(start * 2 + start) };
            if start.is_zero() {
                assert_eq!(NptRange { end: None, ..range }.to_string(), "npt=0.000-");
            } else {
                assert_eq!(parse(&range.to_string()), Ok(range));
            }
        }
    }
}
