// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of the index, cut into pages whose text is made once.
//!
//! A page ends after [`PAGE_ROWS`] rows, or earlier where names and reasons are long. Costs the
//! rows, and their text in each form that was requested.
//!
//! Does not render rows ([`super::rows`] does) or choose a page.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::gzip::Packed;
use super::rows::RowFormat;
use super::text::{Authorities, Text};
use crate::library::{LibraryEntry, LibraryTitle, State};
use crate::web::SegmentCipher;

#[derive(PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) entry: LibraryEntry,
    pub(super) title: Option<LibraryTitle>,
    /// Names of the files of a folder of renditions; empty of a file.
    pub(super) renditions: Vec<String>,
}

impl Row {
    /// Bytes of the texts that a file may make long: names, and the reasons why it or a track is
    /// not sent.
    fn text_bytes(&self) -> usize {
        let reasons = match &self.entry.state {
            State::Refused(reason) => reason.len(),
            State::Ready(summary) => {
                let texts = summary.left_out.iter().chain(&summary.elementary_left_out);
                texts.chain(&summary.warnings).map(String::len).sum()
            }
            State::Waiting | State::Download => 0,
        };
        self.name.len() + reasons + self.renditions.iter().map(String::len).sum::<usize>()
    }
}

/// Consecutive rows, at least one.
pub(super) struct Page {
    /// Number of the page, unique in this process.
    pub(super) number: u64,
    pub(super) rows: Vec<Row>,
    pub(super) json: OnceLock<Arc<Text>>,
    pub(super) html: OnceLock<Arc<Text>>,
    packed: Mutex<VecDeque<(PackedKey, Arc<Packed>)>>,
}

pub(super) type PackedKey = (RowFormat, usize, usize, Authorities);

/// Cuts rows into pages.
pub(super) struct PageWriter<'a> {
    /// Pages of the listing before, of which equal ones are reused.
    before: &'a [Arc<Page>],
    pages: Vec<Arc<Page>>,
    /// Rows of the page that is being written, and their [`Row::text_bytes`].
    rows: Vec<Row>,
    text_bytes: usize,
}

impl<'a> PageWriter<'a> {
    pub(super) fn new(before: &'a [Arc<Page>]) -> PageWriter<'a> {
        PageWriter { before, pages: Vec::new(), rows: Vec::new(), text_bytes: 0 }
    }

    pub(super) fn finish(mut self) -> Vec<Arc<Page>> {
        self.end_page();
        self.pages
    }

    pub(super) fn row(&mut self, row: Row) {
        self.text_bytes += row.text_bytes();
        self.rows.push(row);
        if self.rows.len() == PAGE_ROWS || self.text_bytes >= PAGE_TEXT_BYTES {
            self.end_page();
        }
    }

    fn end_page(&mut self) {
        self.text_bytes = 0;
        if !self.rows.is_empty() {
            let known = self.before.get(self.pages.len());
            self.pages.push(Page::of(std::mem::take(&mut self.rows), known));
        }
    }
}

impl Page {
    /// Returns a page of these rows; reuses the one before if its rows are equal.
    fn of(rows: Vec<Row>, before: Option<&Arc<Page>>) -> Arc<Page> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if let Some(before) = before.filter(|before| before.rows == rows) {
            return before.clone();
        }
        Arc::new(Page {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            rows,
            json: OnceLock::new(),
            html: OnceLock::new(),
            packed: Mutex::default(),
        })
    }

    pub(super) fn text(&self, form: RowFormat) -> &OnceLock<Arc<Text>> {
        match form {
            RowFormat::Json => &self.json,
            RowFormat::Html => &self.html,
        }
    }

    /// Returns the text of its rows; a server has one cipher, or none.
    pub(super) fn rendered(&self, form: RowFormat, cipher: Option<SegmentCipher>) -> Arc<Text> {
        self.text(form).get_or_init(|| Arc::new(form.render(&self.rows, cipher))).clone()
    }

    pub(super) fn find_packed(&self, key: &PackedKey) -> Option<Arc<Packed>> {
        let packed = self.packed.lock();
        packed.iter().find(|(known, _)| known == key).map(|(_, packed)| packed.clone())
    }

    pub(super) fn keep_packed(&self, key: PackedKey, made: &Arc<Packed>) {
        let mut packed = self.packed.lock();
        if packed.len() == PACKED_MAX {
            packed.pop_front();
        }
        packed.push_back((key, made.clone()));
    }
}

/// Most rows of a page: 300 kB of JSON, 30 kB compressed, which a browser shows at once.
pub(super) const PAGE_ROWS: usize = 1000;
/// Most bytes of names and reasons in a page: a page of long names (up to 4 KiB each) or of many
/// tracks that are not sent (1 KiB a file) has fewer rows.
const PAGE_TEXT_BYTES: usize = 256 << 10;
/// Most compressed forms kept for a page: clients reach a server by few host names.
const PACKED_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::http::index::text::Slice;

    fn row(number: usize, bytes: u64) -> Row {
        let modified = SystemTime::UNIX_EPOCH;
        Row {
            name: format!("{number:05}"),
            entry: LibraryEntry { bytes, modified, state: State::Waiting, is_live: false },
            title: None,
            renditions: Vec::new(),
        }
    }

    /// A thousand files of 254 tracks that are not sent once made a page of 28 MB.
    #[test]
    fn page_of_long_reasons_has_fewer_rows() {
        let paged = |state: fn() -> State| {
            let mut pages = PageWriter::new(&[]);
            for number in 0..2500 {
                let mut row = row(number, 1);
                row.entry.state = state();
                pages.row(row);
            }
            pages.finish()
        };
        let rows: Vec<_> = paged(|| State::Waiting).iter().map(|page| page.rows.len()).collect();
        assert_eq!(rows, [1000, 1000, 500]);
        let pages = paged(|| State::Refused("x".repeat(1024)));
        assert_eq!(pages.iter().map(|page| page.rows.len()).sum::<usize>(), 2500);
        for page in &pages {
            let text = page.rendered(RowFormat::Json, None);
            let rows = 0..page.rows.len();
            let authorities = Authorities { http: String::new(), rtsp: String::new() };
            let bytes = Slice { text, rows, authorities }.bytes();
            assert!(bytes < 3 * PAGE_TEXT_BYTES as u64, "{bytes} bytes");
        }
    }

    #[test]
    fn page_that_has_not_changed_is_taken_over() {
        let rows = || (0..5).map(|n| row(n, 1)).collect::<Vec<_>>();
        let first = Page::of(rows(), None);
        let text = first.rendered(RowFormat::Json, None);
        let second = Page::of(rows(), Some(&first));
        assert!(Arc::ptr_eq(&text, &second.rendered(RowFormat::Json, None)));
        let mut changed = rows();
        changed[2] = row(2, 9);
        let third = Page::of(changed, Some(&first));
        assert!(third.number != first.number && third.json.get().is_none());
    }
}
