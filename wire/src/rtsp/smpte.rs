// SPDX-License-Identifier: MIT OR Apache-2.0
//! SMPTE time codes of a Range header, as times since the start of the asset.
//!
//! A time code counts frames: `hours:minutes:seconds:frames.subframes`, a subframe a hundredth of a
//! frame. `smpte` and `smpte-30-drop` count 30000 frames in 1001 seconds and leave out the numbers
//! 0 and 1 of each minute but every tenth; `smpte-25` counts 25 a second.
//!
//! Sources: RFC 2326 §3.5; SMPTE 12M-1 §5.2.2 (drop frame).

use std::time::Duration;

use super::range::{digits, sexagesimal};
use super::status::Status;

/// Frame rates of time codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmpteRate {
    /// `smpte`, `smpte-30-drop`: 29.97 frames a second.
    Drop30,
    /// `smpte-25`.
    Fixed25,
}

/// Longest time code: numbers of frames stay far from any overflow.
const HOURS_MAX: u64 = 1 << 20;

impl SmpteRate {
    /// The rate that a unit of the Range header names.
    pub(super) fn named(unit: &str) -> Option<SmpteRate> {
        match unit.to_ascii_lowercase().as_str() {
            "smpte" | "smpte-30-drop" => Some(SmpteRate::Drop30),
            "smpte-25" => Some(SmpteRate::Fixed25),
            _ => None,
        }
    }

    /// The name of its unit.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            SmpteRate::Drop30 => "smpte-30-drop",
            SmpteRate::Fixed25 => "smpte-25",
        }
    }

    /// Frame numbers of a second.
    const fn numbers(self) -> u64 {
        match self {
            SmpteRate::Drop30 => 30,
            SmpteRate::Fixed25 => 25,
        }
    }

    /// Duration of this many frames in seconds, as a fraction.
    const fn seconds(self) -> (u64, u64) {
        match self {
            SmpteRate::Drop30 => (1001, 30_000),
            SmpteRate::Fixed25 => (1, 25),
        }
    }

    /// Reads a time code; frames and subframes may be left out.
    pub(super) fn read(self, text: &str) -> Result<Duration, Status> {
        let (whole, subframes) = text.split_once('.').unwrap_or((text, ""));
        let mut fields = whole.split(':');
        let mut field = || fields.next().ok_or(Status::BadRequest);
        let (hours, minutes, seconds) = (field()?, field()?, field()?);
        let frames = fields.next();
        if fields.next().is_some() || (frames.is_none() && text.contains('.')) {
            return Err(Status::BadRequest);
        }
        let hours = digits(hours)?;
        let (minutes, seconds) = (sexagesimal(minutes)?, sexagesimal(seconds)?);
        let frame = match frames {
            Some(frames) if frames.len() <= 2 => digits(frames)?,
            Some(_) => return Err(Status::BadRequest),
            None => 0,
        };
        let subframe = match subframes.len() {
            0 => 0,
            1 | 2 => digits(subframes)?,
            _ => return Err(Status::BadRequest),
        };
        if frame >= self.numbers() {
            return Err(Status::BadRequest);
        }
        if hours > HOURS_MAX {
            return Err(Status::InvalidRange);
        }
        let minutes = hours * 60 + minutes;
        let mut count = (minutes * 60 + seconds) * self.numbers() + frame;
        if self == SmpteRate::Drop30 {
            // The dropped frame numbers 0 and 1 mean 2 and 3 if a client sends them.
            let is_left_out = !minutes.is_multiple_of(10) && seconds == 0 && frame < 2;
            count = count + if is_left_out { 2 } else { 0 } - 2 * (minutes - minutes / 10);
        }
        let (numerator, denominator) = self.seconds();
        let hundredths = u128::from(count) * 100 + u128::from(subframe);
        let nanoseconds = hundredths * u128::from(numerator) * 10_000_000 / u128::from(denominator);
        Ok(Duration::from_nanos(u64::try_from(nanoseconds).map_err(|_| Status::InvalidRange)?))
    }

    /// The time code of a time: of the frame that is nearest to it, by subframes.
    pub(super) fn write(self, time: Duration) -> String {
        let (numerator, denominator) = self.seconds();
        let unit = u128::from(numerator) * 10_000_000;
        let hundredths = (time.as_nanos() * u128::from(denominator) + unit / 2) / unit;
        let (mut count, subframe) = ((hundredths / 100) as u64, hundredths % 100);
        if self == SmpteRate::Drop30 {
            let (tens, rest) = (count / TEN_MINUTES, count % TEN_MINUTES);
            // The first minute of ten has all numbers, the others have two less.
            let minutes = rest.saturating_sub(2) / (MINUTE - 2);
            count += tens * 18 + 2 * minutes;
        }
        let numbers = self.numbers();
        let (seconds, frame) = (count / numbers, count % numbers);
        let (hours, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let mut text = format!("{hours}:{minute:02}:{second:02}:{frame:02}");
        if subframe > 0 {
            text.push_str(&format!(".{subframe:02}"));
        }
        text
    }
}

/// Frames of a minute with all numbers, and of ten minutes of drop frame.
const MINUTE: u64 = 1800;
const TEN_MINUTES: u64 = 17_982;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_codes_of_25_frames_are_times() {
        let rate = SmpteRate::Fixed25;
        assert_eq!(rate.read("10:07:33:05.01"), Ok(Duration::from_nanos(36_453_200_400_000)));
        assert_eq!(rate.read("0:10:20"), Ok(Duration::from_secs(620)));
        assert_eq!(rate.write(Duration::from_secs(620)), "0:10:20:00");
        assert_eq!(rate.write(Duration::from_millis(620_250)), "0:10:20:06.25");
        assert_eq!(rate.read("0:0:0:25"), Err(Status::BadRequest));
    }

    #[test]
    fn drop_frame_keeps_time_with_the_clock() {
        let rate = SmpteRate::Drop30;
        // SMPTE 12M: an hour of time code is 107,892 frames, 3.6 ms short of an hour.
        let hour = rate.read("1:00:00:00").unwrap();
        assert_eq!(hour, Duration::from_nanos(107_892 * 1001 * 1_000_000 / 30));
        // Frame 1800 is the first of the second minute: its number is 2.
        let frame = |count: u64| Duration::from_nanos((count * 1001 * 1_000_000).div_ceil(30));
        assert_eq!(rate.write(frame(1799)), "0:00:59:29");
        assert_eq!(rate.write(frame(1800)), "0:01:00:02");
        assert_eq!(rate.write(frame(17_982)), "0:10:00:00");
        assert_eq!(rate.read("0:01:00:00"), rate.read("0:01:00:02"), "a number left out");
    }

    #[test]
    fn every_frame_has_a_time_code_and_is_found_by_it() {
        for rate in [SmpteRate::Drop30, SmpteRate::Fixed25] {
            let (numerator, denominator) = rate.seconds();
            let mut before = String::new();
            for count in (0..200_000_u64).step_by(7) {
                let nanoseconds = count * numerator * 1_000_000_000 / denominator;
                let time = Duration::from_nanos(nanoseconds);
                let text = rate.write(time);
                assert_ne!(text, before);
                let found = rate.read(&text).unwrap();
                assert!(found.abs_diff(time) < Duration::from_nanos(200), "{text} {time:?}");
                before = text;
            }
        }
    }

    #[test]
    fn wrong_time_codes() {
        for wrong in ["", "1", "1:2", "1:2:3:4:5", "1:60:0", "1:0:60", "1:2:3.5", "1:2:3:4.567"] {
            assert_eq!(SmpteRate::Drop30.read(wrong), Err(Status::BadRequest), "{wrong}");
        }
        let absurd = SmpteRate::Drop30.read("99999999999999999999:00:00");
        assert_eq!(absurd, Err(Status::InvalidRange));
    }
}
