// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder in which films become folders, held open and locked for one run.
//!
//! Other users may be able to write in it. So folders of films are opened by descriptors, an
//! existing one is accepted as made here only when it is this user's, and a film is made in a
//! working folder ([`crate::working_folder`]) beside its name.
//!
//! Costs a listing of each folder in which films become folders, once a run.
//! Does not read a film's folder beyond its journal (`film` does).

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Mode;
use rustix::io::Errno;

use super::FilmFault;
use super::film_journal::Journal;
use crate::dir_handle::{DirHandle, split};
use crate::error::{Error, FileFault};
use crate::target_path::{self, FOLDER_MODE};
use crate::trust;
use crate::untrusted::Untrusted;
use crate::working_folder::{self, WorkingFolder, WorkingKind};

/// Target folder of a run.
pub(super) struct HlsTarget {
    root: Arc<DirHandle>,
    /// Unfinished names in the folders listed so far.
    names: Mutex<HashMap<CString, Arc<Vec<CString>>>>,
    notes: Mutex<Vec<Error>>,
}

impl HlsTarget {
    /// Opens or makes the folder, and locks it for this run.
    pub(super) fn take(path: &Path) -> Result<Self, Error> {
        let root = Arc::new(target_path::open_or_make(path)?);
        root.lock()?;
        Ok(Self { root, names: Mutex::default(), notes: Mutex::default() })
    }

    pub(super) fn root(&self) -> &DirHandle {
        &self.root
    }

    /// Returns the folder of a film, if it exists.
    pub(super) fn film(&self, below: &CStr) -> Result<Option<DirHandle>, Error> {
        film_folder(&self.root, below)
    }

    /// Returns the working folder of a film, locked for this run, and its final name.
    pub(super) fn working(&self, below: &CStr) -> Result<(WorkingFolder, CString), Error> {
        self.root.make_folders_of(below, Mode::from_raw_mode(FOLDER_MODE))?;
        let (above, name) = split(below);
        let above = above.unwrap_or_else(|| c".".to_owned());
        let name = name.to_owned();
        let parent = self.root.folder(&above);
        let parent = Arc::new(parent.map_err(|errno| self.root.error("open", &above, errno))?);
        let left =
            working_folder::left(&parent, &self.names(&parent, above)?, &name, WorkingKind::Film);
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).extend(left.notes);
        let working = match left.working {
            Some(working) => working,
            None => WorkingFolder::make(&parent, &name, WorkingKind::Film)?,
        };
        working.take()?;
        Ok((working, name))
    }

    fn names(&self, parent: &DirHandle, above: CString) -> Result<Arc<Vec<CString>>, Error> {
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = known.get(&above) {
            return Ok(names.clone());
        }
        let names = Arc::new(working_folder::names(parent)?);
        known.insert(above, names.clone());
        Ok(names)
    }

    /// Marks the journal of a film, if it exists, as synced.
    pub(super) fn mark_synced(&self, name: &str) -> Result<(), Error> {
        match self.film(&target_path::c_string(name.as_ref())?)? {
            Some(folder) => Journal::mark_synced(&Arc::new(folder)),
            None => Ok(()),
        }
    }

    /// True when a film of that name exists.
    pub(super) fn has(&self, name: &str) -> bool {
        let folder = target_path::c_string(name.as_ref()).and_then(|below| self.film(&below));
        folder.is_ok_and(|folder| folder.is_some())
    }

    /// Returns remarks on folders that look like working folders and are not used.
    pub(super) fn into_notes(self) -> Vec<Error> {
        self.notes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the folder of a film below `root`, if the name exists. Refuses a folder that is not this
/// user's, and anything that is not a folder.
pub(super) fn film_folder(root: &DirHandle, below: &CStr) -> Result<Option<DirHandle>, Error> {
    let path = root.shown(below);
    let not_ours = || Error::file(&path, FilmFault::NotOurs.into());
    let folder = match root.folder(below) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(not_ours()),
        Err(errno) => return Err(root.error("open", below, errno)),
    };
    match trust::folder(folder.fd()) {
        // A folder that others may write in can be this user's choice (umask).
        Ok(Ok(_) | Err(Untrusted::Writable { .. })) => Ok(Some(folder)),
        Ok(Err(planted)) => Err(Error::file(&path, FileFault::Untrusted(planted))),
        Err(errno) => Err(root.error("fstat", below, errno)),
    }
}
