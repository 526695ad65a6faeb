// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of scans by file: which files are no streams, and when a file may be scanned again.
//!
//! A file without a clock is read to its end before that is known, and a file being written changes
//! under its scan, so a peer that keeps asking for either would keep a scan busy. A refusal holds
//! as long as the file's size and time do. After a scan that read for a second or more the same
//! file rests for four times as long; after one that found it changing for [`AGAIN_MIN`], doubled
//! each time. Files are distinguished by device and inode, not by the names that peers write. Costs
//! about 200 bytes a refused or growing file; at most the number of the folder's files plus
//! [`UNLISTED`].
//!
//! Does not remember verdicts across restarts.

use std::collections::{HashMap, VecDeque};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use media::plan::PlanKey;

use super::NoAsset;

/// Identity of a file under all its names: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> FileId {
        FileId { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Verdicts of the latest scans.
#[derive(Default)]
pub(super) struct Verdicts {
    known: HashMap<FileId, AccessVerdict>,
    /// Files in the order of their first verdicts.
    order: VecDeque<FileId>,
}

struct AccessVerdict {
    bytes: u64,
    modified_ns: i128,
    /// Reason why the file, with this size and time, is no stream.
    refused: Option<String>,
    /// True when the file, with this size and time, is a stream; it is scanned again if its plan
    /// was not kept.
    is_stream: bool,
    /// Earliest time of the next scan.
    again_at: Instant,
    /// Pause after the last scan that found the file changing.
    rest: Duration,
}

impl Verdicts {
    /// Returns the reason not to scan this file at `now`, if there is one.
    pub(super) fn scan_refusal(&self, id: FileId, key: &PlanKey, now: Instant) -> Option<NoAsset> {
        let verdict = self.known.get(&id)?;
        let is_same = (verdict.bytes, verdict.modified_ns) == (key.bytes, key.modified_ns);
        if let Some(reason) = verdict.refused.as_ref().filter(|_| is_same) {
            return Some(NoAsset::Refused(reason.clone()));
        }
        if is_same && verdict.is_stream {
            return None;
        }
        let wait = verdict.again_at.saturating_duration_since(now);
        (!wait.is_zero()).then_some(NoAsset::Changing { again_in: wait })
    }

    /// Records the result of a scan that read for `took` and ended at `now`; returns the pause
    /// before the next. Keeps the latest `limit` files at most.
    pub(super) fn note<T>(
        &mut self,
        (id, key): (FileId, &PlanKey),
        result: &Result<T, NoAsset>,
        took: Duration,
        (now, limit): (Instant, usize),
    ) -> Duration {
        let before = self.known.get(&id).map_or(Duration::ZERO, |verdict| verdict.rest);
        let rest = match result {
            Err(NoAsset::Changing { .. }) => (before * 2).max(AGAIN_MIN).min(AGAIN_MAX),
            _ => Duration::ZERO,
        };
        let refused = match result {
            Err(NoAsset::Refused(reason)) => Some(reason.clone()),
            _ => None,
        };
        let pause = if took < SHORT { rest } else { rest.max(took * SHARE).min(AGAIN_MAX) };
        let again_at = now + pause;
        let (bytes, modified_ns) = (key.bytes, key.modified_ns);
        let is_stream = result.is_ok();
        let verdict = AccessVerdict { bytes, modified_ns, refused, is_stream, again_at, rest };
        if self.known.insert(id, verdict).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > limit.max(1) {
            let oldest = self.order.pop_front().expect("it is longer than one");
            self.known.remove(&oldest);
        }
        pause
    }
}

/// Returns the most files to remember for a folder with so many entries.
pub(super) fn limit(entries: usize) -> usize {
    entries + UNLISTED
}

/// Files that can be requested and are not listed: in folders behind links within the folder.
const UNLISTED: usize = 1024;
/// Pause per scan time: a growing file is scanned for a fifth of the time at most.
const SHARE: u32 = 4;
/// A short file that was written anew can be played at once.
const SHORT: Duration = Duration::from_secs(1);
const AGAIN_MIN: Duration = Duration::from_millis(500);
/// A file that grows for hours is looked at once a minute.
const AGAIN_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FileId = FileId { device: 1, inode: 2 };

    fn key(bytes: u64) -> PlanKey {
        PlanKey { path: b"/a.ts".to_vec(), bytes, modified_ns: 7, inode: 2 }
    }

    fn refusal() -> Result<(), NoAsset> {
        Err(NoAsset::Refused("no clock".to_owned()))
    }

    #[test]
    fn a_refusal_holds_for_every_file_until_that_file_changes() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        let files: Vec<_> = (0..5000).map(|inode| FileId { device: 1, inode }).collect();
        for &id in &files {
            verdicts.note((id, &key(188)), &refusal(), Duration::ZERO, (now, limit(5000)));
        }
        for &id in &files {
            let reason = verdicts.scan_refusal(id, &key(188), now);
            assert!(matches!(reason, Some(NoAsset::Refused(_))), "{id:?}: {reason:?}");
        }
        assert!(verdicts.scan_refusal(ID, &key(376), now).is_none(), "it has another size");
        let elsewhere = FileId { device: 9, ..ID };
        assert!(verdicts.scan_refusal(elsewhere, &key(188), now).is_none(), "another file system");
    }

    #[test]
    fn the_files_remembered_are_bounded() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        for inode in 0..100 {
            let id = FileId { device: 1, inode };
            verdicts.note((id, &key(188)), &refusal(), Duration::ZERO, (now, 10));
        }
        assert_eq!((verdicts.known.len(), verdicts.order.len()), (10, 10));
    }

    #[test]
    fn a_growing_file_is_scanned_ever_more_rarely() {
        let (mut verdicts, mut now) = (Verdicts::default(), Instant::now());
        let mut scans = 0;
        let end = now + Duration::from_secs(600);
        while now < end {
            if verdicts.scan_refusal(ID, &key(scans), now).is_none() {
                let changing: Result<(), _> = Err(NoAsset::CHANGING);
                verdicts.note((ID, &key(scans)), &changing, Duration::ZERO, (now, 10));
                scans += 1;
            }
            now += Duration::from_millis(100);
        }
        assert_eq!(scans, 16, "half a second, a second, two; then once a minute");
        verdicts.note((ID, &key(scans)), &Ok(()), Duration::from_secs(1), (now, 10));
        let reason = verdicts.scan_refusal(ID, &key(scans + 1), now + Duration::from_secs(3));
        assert!(matches!(reason, Some(NoAsset::Changing { .. })), "four times the scan's second");
        let later = now + Duration::from_secs(4);
        assert!(verdicts.scan_refusal(ID, &key(scans + 1), later).is_none());
    }
}
