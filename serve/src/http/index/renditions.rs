// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of folders whose files are renditions of one title.
//!
//! Such a folder has a row of its own before those of its files: its name with `/`, and the
//! addresses of its HLS and DASH. Its files are the media files directly in it, two to
//! [`FILES_MAX`], that all have pictures and last equally long. Only their plans show if their
//! segments begin at the same times, and the plans are made when the playlist is requested; if they
//! do not, the answer to that request names the difference ([`crate::web::title`]).
//!
//! Costs a look at each file, and some hundred bytes for each folder.
//!
//! Does not look into folders below.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::pages::Row;
use crate::library::{LibraryEntry, Listed, State, StreamSummary};
use crate::web::title::FILES_MAX;

/// Longest difference of the durations of renditions: some pictures, or a frame of sound.
const APART_MAX_S: f64 = 1.0;

/// Folders of the library that may be titles.
#[derive(Default)]
pub(super) struct Folders {
    /// By name, in order.
    by_name: BTreeMap<String, Folder>,
}

/// The media files directly in a folder.
struct Folder {
    names: Vec<String>,
    bytes: u64,
    modified: SystemTime,
    /// Description of the file of the highest rate.
    best: Option<Arc<StreamSummary>>,
    is_title: bool,
}

impl Folders {
    /// Adds a file, if it counts as one of a folder's media files.
    pub(super) fn add(&mut self, file: &Listed) {
        let entry = &file.entry;
        let Some((name, _)) = file.name.rsplit_once('/') else { return };
        if entry.is_live || matches!(entry.state, State::Download) {
            return;
        }
        // Most folders were added by the file before.
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.to_owned(), Folder::new());
        }
        let Some(folder) = self.by_name.get_mut(name) else { return };
        match &entry.state {
            State::Ready(summary) if !file.is_part => folder.add(&file.name, entry, summary),
            _ => folder.is_title = false,
        }
    }

    /// Returns these rows, which are in the order of their names, with those of titles.
    pub(super) fn joined(self, rows: Vec<Row>) -> impl Iterator<Item = Row> {
        let folders = self.by_name.into_iter().filter_map(|(name, folder)| folder.row(&name));
        // A folder's name ends with `/` here, which orders otherwise.
        let mut folders: Vec<Row> = folders.collect();
        folders.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let (mut rows, mut folders) = (rows.into_iter().peekable(), folders.into_iter().peekable());
        std::iter::from_fn(move || {
            let is_folder = match (rows.peek(), folders.peek()) {
                (Some(row), Some(folder)) => folder.name < row.name,
                (row, _) => row.is_none(),
            };
            if is_folder { folders.next() } else { rows.next() }
        })
    }
}

impl Folder {
    fn new() -> Folder {
        let modified = SystemTime::UNIX_EPOCH;
        Folder { names: Vec::new(), bytes: 0, modified, best: None, is_title: true }
    }

    fn add(&mut self, name: &str, entry: &LibraryEntry, summary: &Arc<StreamSummary>) {
        let apart = |best: &Arc<StreamSummary>| (best.duration_s - summary.duration_s).abs();
        let is_equal = self.best.as_ref().is_none_or(|best| apart(best) <= APART_MAX_S);
        let is_shown = summary.has_segments && summary.has_pictures();
        self.is_title &= is_equal && is_shown && self.names.len() < FILES_MAX;
        if !self.is_title {
            return;
        }
        self.names.push(name.to_owned());
        self.bytes += entry.bytes;
        self.modified = self.modified.max(entry.modified);
        let rate = self.best.as_ref().map_or(0, |best| best.bits_per_second);
        if summary.bits_per_second >= rate {
            self.best = Some(summary.clone());
        }
    }

    /// Its row; `None` where it is no title.
    fn row(self, name: &str) -> Option<Row> {
        let summary = self.best.filter(|_| self.is_title && self.names.len() > 1)?;
        let entry = LibraryEntry {
            bytes: self.bytes,
            modified: self.modified,
            state: State::Ready(summary),
            is_live: false,
        };
        let (name, renditions) = (format!("{name}/"), self.names);
        Some(Row { name, entry, title: None, renditions })
    }
}
