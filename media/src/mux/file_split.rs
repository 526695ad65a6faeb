// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides where a recording in fragments continues in another file.
//!
//! A file ends before a key frame: at its limit of time, or where another group of pictures, a
//! quarter longer than the longest of the file, would exceed its limit of bytes. Without key frames
//! it ends ten seconds after the limit of time at most, or before the fragment that would exceed
//! the limit of bytes. A file holds one fragment at least, which may be longer than the limit. All
//! times are those of the media, so a recording is cut at the same positions however it arrives.
//!
//! Where the parameters of a track change, the next file begins with the new ones, but no file
//! is shorter than [`CHANGE_S_MIN`] for that reason: a sender may change them with each key frame.
//!
//! Does not move units ([`super::fmp4`] does).

use std::time::Duration;

use crate::TICKS_PER_SECOND;

/// Limits at which a recording continues in another file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Size in bytes that no file exceeds.
    pub bytes: Option<u64>,
    /// Age from which a file ends at the next position where playback can start.
    pub time: Option<Duration>,
}

/// Distances between the positions of a file where playback can start.
#[derive(Debug, Clone, Copy, Default)]
pub struct GroupBytes {
    last: u64,
    longest: u64,
}

impl GroupBytes {
    /// True if a file of at most `most` bytes ends at such a position, `bytes` behind its start:
    /// another group, a quarter longer than the longest so far, would not fit.
    pub fn end_file_at(&mut self, bytes: u64, most: Option<u64>) -> bool {
        self.longest = self.longest.max(bytes.saturating_sub(self.last));
        self.last = bytes;
        most.is_some_and(|most| bytes + self.longest + self.longest / 4 > most)
    }
}

/// Seconds for which a file whose time is over waits for a key frame: ten, less a fragment.
const KEY_WAIT_S: u64 = 8;

/// Seconds of a file before changed parameters end it.
const CHANGE_S_MIN: u64 = 10;

/// The current file of a recording. Times are in ticks of 27 MHz.
#[derive(Debug)]
pub(super) struct FileSplit {
    limits: Rotation,
    /// Decoding time of its first unit.
    began: i64,
    /// Bytes written, headers included.
    bytes: u64,
    /// Distances between key frames.
    groups: GroupBytes,
}

impl FileSplit {
    pub(super) fn new(limits: Rotation) -> FileSplit {
        FileSplit { limits, began: 0, bytes: 0, groups: GroupBytes::default() }
    }

    /// Begins the file with a unit that is decoded at `at`.
    pub(super) fn begin(&mut self, at: i64) {
        self.began = at;
    }

    /// Ends the file: the next unit is one of another.
    pub(super) fn end(&mut self) {
        *self = FileSplit::new(self.limits);
    }

    /// Counts bytes written to the file.
    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// True if the file ends before the key frame that is decoded at `at`, behind the bytes counted
    /// so far and about as many as are `unwritten`.
    pub(super) fn ends_before_key(&mut self, at: i64, unwritten: u64) -> bool {
        self.groups.end_file_at(self.bytes + unwritten, self.limits.bytes)
            || self.is_past(at, Duration::ZERO)
    }

    /// True if the file ends before a fragment of about `bytes` that begins at `at`, though it does
    /// not begin with a key frame.
    pub(super) fn ends_before(&self, at: i64, bytes: u64) -> bool {
        let is_large = |most| self.bytes > 0 && self.bytes + bytes > most;
        self.limits.bytes.is_some_and(is_large) || self.is_past(at, Duration::from_secs(KEY_WAIT_S))
    }

    /// True if parameters that have changed by `at` end the file.
    pub(super) fn may_change(&self, at: i64) -> bool {
        self.age(at) >= Duration::from_secs(CHANGE_S_MIN)
    }

    fn is_past(&self, at: i64, by: Duration) -> bool {
        self.limits.time.is_some_and(|limit| self.age(at) >= limit.saturating_add(by))
    }

    fn age(&self, at: i64) -> Duration {
        let ticks = u64::try_from(at.saturating_sub(self.began)).unwrap_or(0);
        Duration::from_micros(ticks / (TICKS_PER_SECOND / 1_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = TICKS_PER_SECOND as i64;

    #[test]
    fn time_ends_a_file_at_a_key_frame_or_eight_seconds_later_anywhere() {
        let time = Some(Duration::from_secs(60));
        let mut split = FileSplit::new(Rotation { time, bytes: None });
        split.begin(5 * SECOND);
        split.add_bytes(1 << 40);
        assert!(!split.ends_before_key(65 * SECOND - 27, 0));
        assert!(split.ends_before_key(65 * SECOND, 0));
        assert!(!split.ends_before(73 * SECOND - 27, 1) && split.ends_before(73 * SECOND, 1));
        split.end();
        split.begin(65 * SECOND);
        assert!(!split.ends_before_key(66 * SECOND, 0));
    }

    #[test]
    fn bytes_end_a_file_where_another_group_would_not_fit() {
        let mut split = FileSplit::new(Rotation { bytes: Some(1000), time: None });
        split.begin(0);
        split.add_bytes(100);
        for (bytes, ends) in [(200, false), (200, false), (200, true)] {
            assert_eq!(split.ends_before_key(0, bytes), ends, "{bytes}");
            split.add_bytes(bytes as usize);
        }
        assert!(!split.ends_before(0, 300) && split.ends_before(0, 301));
        // A fragment that exceeds the limit alone is a file.
        split.end();
        assert!(!split.ends_before(0, 5000));
    }

    #[test]
    fn no_limit_ends_no_file_and_changes_wait() {
        let mut split = FileSplit::new(Rotation::default());
        split.begin(0);
        split.add_bytes(usize::MAX / 4);
        assert!(!split.ends_before_key(i64::MAX, 9) && !split.ends_before(i64::MAX, u64::MAX / 4));
        assert!(!split.may_change(10 * SECOND - 27) && split.may_change(10 * SECOND));
        assert!(!split.may_change(i64::MIN));
    }
}
