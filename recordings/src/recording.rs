// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recorded file, and the times without any.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::camera_files::FileStartName;

/// A file of a camera.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CameraFile {
    /// The file.
    pub path: PathBuf,
    /// Its start, as its name tells it.
    pub start: FileStartName,
    /// Length of its media.
    pub length: Duration,
    /// Size of the file.
    pub bytes: u64,
    /// True while a recorder writes it.
    pub is_growing: bool,
}

impl CameraFile {
    /// Time of its first unit, to the nearest second.
    pub fn from(&self) -> Timestamp {
        self.start.began
    }

    /// Time of its end.
    pub fn to(&self) -> Timestamp {
        self.start.began.saturating_add(self.length).unwrap_or(Timestamp::MAX)
    }

    /// True if a part of it is in a time.
    pub fn is_in(&self, range: RecordedTime) -> bool {
        self.from() < range.to && self.to() > range.from
    }
}

/// A time from one moment to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedTime {
    /// First moment.
    pub from: Timestamp,
    /// The moment behind the last.
    pub to: Timestamp,
}

/// Times between recordings in which nothing was recorded: longer than two seconds, because names
/// tell their times to the nearest second.
pub fn gaps(recordings: &[CameraFile]) -> Vec<RecordedTime> {
    gaps_between(recordings.iter().map(|one| RecordedTime { from: one.from(), to: one.to() }))
}

/// Gaps between times in the order of their starts.
pub(crate) fn gaps_between(times: impl IntoIterator<Item = RecordedTime>) -> Vec<RecordedTime> {
    let mut gaps = Vec::new();
    let mut end: Option<Timestamp> = None;
    for time in times {
        if let Some(from) = end.filter(|end| time.from.duration_since(*end) > GAP_MIN) {
            gaps.push(RecordedTime { from, to: time.from });
        }
        end = end.max(Some(time.to));
    }
    gaps
}

/// Shorter times between two files may come from the rounding of their names.
pub(crate) const GAP_MIN: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_recordings_with_a_part_in_it() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let range = RecordedTime { from: at(100), to: at(200) };
        let is_in = |(from, to): &(i64, i64)| {
            let start = FileStartName { began: at(*from), copy: 1, is_mp4: true, offset_s: 0 };
            let length = Duration::from_secs((to - from).unsigned_abs());
            let (path, bytes, is_growing) = (PathBuf::new(), 0, false);
            CameraFile { path, start, length, bytes, is_growing }.is_in(range)
        };
        let inside = [(100, 200), (50, 101), (199, 300), (0, 900), (120, 121)];
        assert!(inside.iter().all(is_in));
        let outside = [(0, 100), (200, 300), (0, 50), (300, 400), (200, 200), (99, 99)];
        assert!(!outside.iter().any(is_in));
    }
}
