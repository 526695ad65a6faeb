// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that continue each other, as the parts of a channel's window that hold one segment.
//! Offsets of an answer count over all of them.
//!
//! Does not hold the bytes: a file that is emptied meanwhile ends the answer.

use std::ops::Range;
use std::sync::Arc;

use crate::http::open_files::OpenFile;

/// Files that continue each other.
pub(crate) struct JoinedFiles(Vec<JoinedFile>);

struct JoinedFile {
    /// Offset at which it begins.
    from: u64,
    file: Arc<OpenFile>,
}

impl JoinedFiles {
    /// Joins files that begin at these offsets, which rise from 0 on.
    pub(crate) fn new(files: impl IntoIterator<Item = (u64, Arc<OpenFile>)>) -> JoinedFiles {
        let files: Vec<JoinedFile> =
            files.into_iter().map(|(from, file)| JoinedFile { from, file }).collect();
        assert!(files.first().is_some_and(|first| first.from == 0), "there is a file");
        JoinedFiles(files)
    }

    /// Returns the file that holds the first byte of a range, and as much of the range as it has.
    pub(super) fn first_of(&self, range: Range<u64>) -> (&Arc<OpenFile>, Range<u64>) {
        let after = self.0.partition_point(|file| file.from <= range.start);
        let JoinedFile { from, file } = &self.0[after - 1];
        let end = self.0.get(after).map_or(range.end, |next| next.from.min(range.end));
        (file, range.start - from..end - from)
    }

    /// Splits a range into those of the files.
    pub(super) fn split(&self, range: Range<u64>) -> Vec<(&Arc<OpenFile>, Range<u64>)> {
        let (mut at, mut split) = (range.start, Vec::with_capacity(2));
        while at < range.end {
            let (file, own) = self.first_of(at..range.end);
            at += own.end - own.start;
            split.push((file, own));
        }
        split
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_split_where_files_end() {
        let file = |bytes: u64| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(bytes).unwrap();
            Arc::new(OpenFile::made("a part", file).unwrap())
        };
        let files = [file(100), file(50), file(70)];
        let joined = JoinedFiles::new([0, 100, 150].into_iter().zip(files.clone()));
        for (range, expected) in [
            (0..100, vec![(0, 0..100)]),
            (99..101, vec![(0, 99..100), (1, 0..1)]),
            (100..150, vec![(1, 0..50)]),
            (20..200, vec![(0, 20..100), (1, 0..50), (2, 0..50)]),
            (149..151, vec![(1, 49..50), (2, 0..1)]),
        ] {
            let found = joined.split(range.clone());
            assert_eq!(found.len(), expected.len(), "{range:?}");
            for ((file, own), (number, bytes)) in found.into_iter().zip(expected) {
                assert!(Arc::ptr_eq(file, &files[number]) && own == bytes, "{range:?}: {own:?}");
            }
        }
    }
}
