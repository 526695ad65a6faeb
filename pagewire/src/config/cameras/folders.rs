// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders of cameras: the folder above each exists, and nothing else has its name.
//!
//! A folder above that is missing is a fault rather than made: a disk may not be mounted, and its
//! cameras would fill the disk of the system.
//!
//! Does not make folders (the recorder does).

use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::super::faults::Faults;
use super::camera_key::CameraKey;
use super::camera_settings::{CameraSettings, without_code};
use super::source::CameraTable;

/// Folder that the folders of cameras lie in.
pub(super) struct TopFolder {
    path: PathBuf,
    /// False after a fault.
    is_usable: bool,
}

impl TopFolder {
    /// Checks the folder of the settings at the top, or takes that of the file, `base`.
    pub(super) fn new(faults: &mut Faults<'_>, top: &CameraSettings, base: &Path) -> TopFolder {
        let Some(folder) = &top.folder else {
            let is_usable = !top.unread.contains(&CameraKey::Folder);
            return TopFolder { path: base.to_owned(), is_usable };
        };
        let path = folder.value.clone();
        let checked = check_existing(&path);
        if let Err(fault) = &checked {
            let fault = format!("{}: {fault}", path.display());
            faults.add(Some(folder.place.clone()), CameraKey::Folder.fault("", &fault));
        }
        TopFolder { path, is_usable: checked.is_ok() }
    }
}

impl CameraTable {
    /// Returns the folder of the camera's files; adds a fault where it cannot be one.
    pub(super) fn folder(&self, faults: &mut Faults<'_>, top: &TopFolder) -> PathBuf {
        let (path, place): (PathBuf, &Range<usize>) = match &self.own.folder {
            Some(folder) => (folder.value.clone(), &folder.place),
            None => (top.path.join(&self.name), &self.place),
        };
        let is_checked = match self.own.folder {
            Some(_) => true,
            None => top.is_usable && !self.own.unread.contains(&CameraKey::Folder),
        };
        if let Some(fault) = is_checked.then(|| check(&path)).and_then(Result::err) {
            self.refuse(faults, (CameraKey::Folder, place), &fault);
        }
        path
    }
}

/// Checks that a path is a folder, or that one can be made there.
fn check(path: &Path) -> Result<(), String> {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(format!("{shown}: no folder; name another, or move the file away")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let above = path.parent().unwrap_or(Path::new("/"));
            let fault = check_existing(above).err();
            fault.map_or(Ok(()), |fault| Err(format!("{shown}: {}: {fault}", above.display())))
        }
        Err(error) => Err(format!("{shown}: {}; name another", without_code(&error))),
    }
}

/// Checks that a path is a folder.
fn check_existing(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err("no folder; name another".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("no such folder; mount its disk, or mkdir -p {}", path.display()))
        }
        Err(error) => Err(format!("{}; name another", without_code(&error))),
    }
}
