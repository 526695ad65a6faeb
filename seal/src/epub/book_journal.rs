// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record of a sealed book: a line of its folder's journal.
//!
//! Costs one write a book; books end too far apart for batching to gain anything.
//! Does not read journals; the catalogue does.

use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex};

use zeroize::Zeroizing;

use super::content_hash::Content;
use crate::error::Error;
use crate::manifest::{Journal, ManifestRecord};

/// The journal of a folder, and the name of a book in it.
#[derive(Clone, Debug)]
pub struct BookJournal {
    journal: Arc<Mutex<Journal>>,
    name: OsString,
    content_key: Zeroizing<[u8; 32]>,
}

impl BookJournal {
    /// Makes the record of a book; `name` is its path relative to the folder.
    pub(super) fn new(
        journal: &Arc<Mutex<Journal>>,
        name: &OsStr,
        content_key: &Zeroizing<[u8; 32]>,
    ) -> Self {
        Self { journal: journal.clone(), name: name.to_owned(), content_key: content_key.clone() }
    }

    /// Starts the hash of the book's content.
    pub(super) fn content(&self) -> Content {
        Content::new(&self.content_key)
    }

    /// Writes the line of the book, before the book gets its name.
    pub(super) fn note(&self, record: &ManifestRecord, sync: bool) -> Result<(), Error> {
        let mut journal = self.journal.lock().expect("no worker panicked");
        journal.push_file(&self.name, record);
        journal.write()?;
        if sync { journal.sync() } else { Ok(()) }
    }

    /// Revokes the line of a book that could not get its name.
    pub(super) fn undo(&self) {
        let mut journal = self.journal.lock().expect("no worker panicked");
        journal.push_undone(&self.name);
        // The book's own fault is reported. If this write fails too, a line stays whose sealed size
        // is compared with the existing file.
        let _ = journal.write();
    }
}
