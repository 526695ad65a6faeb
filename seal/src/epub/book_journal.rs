// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a book of a folder is noted when it is sealed: a line of the folder's journal.
//!
//! Costs one write a book; books end far enough apart that nothing is gained by gathering lines.
//! Does not: read journals; the catalogue does.

use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex};

use zeroize::Zeroizing;

use super::content_hash::Content;
use crate::error::Error;
use crate::manifest::{Journal, ManifestRecord};

/// The journal of a folder and the name of a book in it.
#[derive(Clone, Debug)]
pub struct BookJournal {
    journal: Arc<Mutex<Journal>>,
    name: OsString,
    content_key: Zeroizing<[u8; 32]>,
}

impl BookJournal {
    /// `name` is the book's path relative to the folder.
    pub(super) fn new(
        journal: &Arc<Mutex<Journal>>,
        name: &OsStr,
        content_key: &Zeroizing<[u8; 32]>,
    ) -> Self {
        Self { journal: journal.clone(), name: name.to_owned(), content_key: content_key.clone() }
    }

    /// For the hash of what is in the book.
    pub(super) fn content(&self) -> Content {
        Content::new(&self.content_key)
    }

    /// The line of the book, before it takes its name.
    pub(super) fn note(&self, record: &ManifestRecord, sync: bool) -> Result<(), Error> {
        let mut journal = self.journal.lock().expect("no worker panicked");
        journal.push_file(&self.name, record);
        journal.write()?;
        if sync { journal.sync() } else { Ok(()) }
    }

    /// It could not take its name after all.
    pub(super) fn undo(&self) {
        let mut journal = self.journal.lock().expect("no worker panicked");
        journal.push_undone(&self.name);
        // What made the book fail is said; that this failed, too, leaves a line whose sealed size
        // is compared with what is there.
        let _ = journal.write();
    }
}
