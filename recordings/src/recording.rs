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
