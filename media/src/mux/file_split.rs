// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides where a recording in fragments continues in another file.
//!
//! A file ends before a key frame: at its limit of time, where another group of pictures, a quarter
//! longer than the longest of the file, would exceed its limit of bytes, or once another file is
//! requested ([`FileRequest`]). Without key frames it ends ten seconds after the limit of time or
//! the request at most, or before the fragment that would exceed the limit of bytes. A file holds
//! one fragment at least, which may be longer than the limit. All times are those of the media, so
//! a recording without requests is cut at the same positions however it arrives.
//!
//! Where the parameters of a track change, the next file begins with the new ones, but no file
//! is shorter than [`CHANGE_S_MIN`] for that reason: a sender may change them with each key frame.
//!
//! Does not move units ([`super::fmp4`] does).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::TICKS_PER_SECOND;

/// Limits at which a recording continues in another file.
#[derive(Debug, Clone, Default)]
pub struct Rotation {
    /// Size in bytes that no file exceeds.
    pub bytes: Option<u64>,
    /// Age from which a file ends at the next position where playback can start.
    pub time: Option<Duration>,
    /// Requests for another file from there on.
    pub request: Option<FileRequest>,
}

impl Rotation {
    /// True without any limit.
    pub fn is_never(&self) -> bool {
        self.bytes.is_none() && self.time.is_none() && self.request.is_none()
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.request.as_ref().map_or(0, FileRequest::count)
    }
}

/// Requests that a recording continue in another file, where playback can start. Clones share the
/// requests; each may be used by another thread.
#[derive(Debug, Clone, Default)]
pub struct FileRequest(Arc<AtomicU64>);

impl FileRequest {
    /// Requests another file. A file that has not begun by then is the requested one.
    pub fn make(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
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
    /// Requests that were found.
    requests: u64,
    /// Time of the unit with which the last of them was found, if it is for the next file.
    requested: Option<i64>,
}

impl FileSplit {
    pub(super) fn new(limits: Rotation) -> FileSplit {
        let requests = limits.requests();
        let groups = GroupBytes::default();
        FileSplit { limits, began: 0, bytes: 0, groups, requests, requested: None }
    }

    /// Begins the file with a unit that is decoded at `at`.
    pub(super) fn begin(&mut self, at: i64) {
        self.began = at;
    }

    /// Ends the file: the next unit, presented at `at`, is one of another.
    pub(super) fn end(&mut self, at: i64) {
        let requested = self.requested.filter(|&requested| requested > at);
        let requests = self.requests;
        *self = FileSplit { requests, requested, ..FileSplit::new(self.limits.clone()) };
    }

    /// Looks for a request when a unit of time `at` arrives, the `first` of all or another one.
    pub(super) fn unit_arrived(&mut self, at: i64, is_first: bool) {
        let requests = self.limits.requests();
        if requests != self.requests && !is_first {
            self.requested.get_or_insert(at);
        }
        self.requests = requests;
    }

    /// Counts bytes written to the file.
    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// True if the file ends before the key frame that is decoded at `at` and `presented` then,
    /// behind the bytes counted so far and about as many as are `unwritten`.
    pub(super) fn ends_before_key(&mut self, at: i64, presented: i64, unwritten: u64) -> bool {
        self.groups.end_file_at(self.bytes + unwritten, self.limits.bytes)
            || self.is_past(at, Duration::ZERO)
            || self.requested.is_some_and(|requested| requested <= presented)
    }

    /// True if the file ends before a fragment of about `bytes` that begins at `at`, though it does
    /// not begin with a key frame.
    pub(super) fn ends_before(&self, at: i64, bytes: u64) -> bool {
        let is_large = |most| self.bytes > 0 && self.bytes + bytes > most;
        let waits = Duration::from_secs(KEY_WAIT_S);
        self.limits.bytes.is_some_and(is_large)
            || self.is_past(at, waits)
            || self.requested.is_some_and(|requested| time_from(requested, at) >= waits)
    }

    /// True if parameters that have changed by `at` end the file.
    pub(super) fn may_change(&self, at: i64) -> bool {
        self.age(at) >= Duration::from_secs(CHANGE_S_MIN)
    }

    fn is_past(&self, at: i64, by: Duration) -> bool {
        self.limits.time.is_some_and(|limit| self.age(at) >= limit.saturating_add(by))
    }

    fn age(&self, at: i64) -> Duration {
        time_from(self.began, at)
    }
}

/// Time from one time in ticks to another; zero if that is earlier.
pub(super) fn time_from(began: i64, at: i64) -> Duration {
    let ticks = u64::try_from(at.saturating_sub(began)).unwrap_or(0);
    Duration::from_micros(ticks / (TICKS_PER_SECOND / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = TICKS_PER_SECOND as i64;

    #[test]
    fn time_ends_a_file_at_a_key_frame_or_eight_seconds_later_anywhere() {
        let time = Some(Duration::from_secs(60));
        let mut split = FileSplit::new(Rotation { time, ..Rotation::default() });
        split.begin(5 * SECOND);
        split.add_bytes(1 << 40);
        assert!(!split.ends_before_key(65 * SECOND - 27, 65 * SECOND - 27, 0));
        assert!(split.ends_before_key(65 * SECOND, 65 * SECOND, 0));
        assert!(!split.ends_before(73 * SECOND - 27, 1) && split.ends_before(73 * SECOND, 1));
        split.end(65 * SECOND);
        split.begin(65 * SECOND);
        assert!(!split.ends_before_key(66 * SECOND, 66 * SECOND, 0));
    }

    #[test]
    fn bytes_end_a_file_where_another_group_would_not_fit() {
        let mut split = FileSplit::new(Rotation { bytes: Some(1000), ..Rotation::default() });
        split.begin(0);
        split.add_bytes(100);
        for (bytes, ends) in [(200, false), (200, false), (200, true)] {
            assert_eq!(split.ends_before_key(0, 0, bytes), ends, "{bytes}");
            split.add_bytes(bytes as usize);
        }
        assert!(!split.ends_before(0, 300) && split.ends_before(0, 301));
        // A fragment that exceeds the limit alone is a file.
        split.end(0);
        assert!(!split.ends_before(0, 5000));
    }

    #[test]
    fn no_limit_ends_no_file_and_changes_wait() {
        let mut split = FileSplit::new(Rotation::default());
        split.begin(0);
        split.add_bytes(usize::MAX / 4);
        assert!(
            !split.ends_before_key(i64::MAX, i64::MAX, 9)
                && !split.ends_before(i64::MAX, u64::MAX / 4)
        );
        assert!(!split.may_change(10 * SECOND - 27) && split.may_change(10 * SECOND));
        assert!(!split.may_change(i64::MIN));
    }

    #[test]
    fn a_request_is_for_the_key_frames_that_arrive_after_it() {
        let request = FileRequest::default();
        request.make();
        let limits = Rotation { request: Some(request.clone()), ..Rotation::default() };
        let mut split = FileSplit::new(limits);
        split.unit_arrived(0, true);
        split.begin(0);
        assert!(!split.ends_before_key(2 * SECOND, 2 * SECOND, 0));
        request.make();
        split.unit_arrived(10 * SECOND, false);
        request.make();
        split.unit_arrived(11 * SECOND, false);
        // The key frame arrived before the request, and was held.
        assert!(!split.ends_before_key(9 * SECOND, 9 * SECOND, 0));
        // Another reason ends the file there: the request is for the file behind it.
        split.end(9 * SECOND);
        split.begin(9 * SECOND);
        assert!(!split.ends_before(17 * SECOND, 0) && split.ends_before(18 * SECOND, 0));
        assert!(split.ends_before_key(10 * SECOND, 10 * SECOND, 0));
        split.end(10 * SECOND);
        split.begin(10 * SECOND);
        assert!(!split.ends_before_key(30 * SECOND, 30 * SECOND, 0));
    }
}
