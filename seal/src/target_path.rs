// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of files and folders to be made, in folders where others may write.
//!
//! The folder that the caller names is opened once, and all paths below it are relative to its
//! descriptor. A symlink in its place is followed only when this user or root made it: another
//! user's could lead anywhere. Symlinks further up are the caller's choice.
//!
//! Costs a few system calls a run.
//!
//! Sources: symlink(7), open(2) (`O_PATH`), readlink(2); proc(5) (`protected_symlinks`) for the
//! rule.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use crate::dir_handle::DirHandle;
use crate::error::{Error, FileFault};
use crate::pending_file::PendingFile;
use crate::trust;

/// Path of a file to be made.
#[derive(Clone, Debug)]
pub enum TargetPath {
    /// A path that the caller named.
    Path(PathBuf),
    /// A path below an open folder.
    Below(Arc<DirHandle>, CString),
}

impl From<&Path> for TargetPath {
    fn from(path: &Path) -> Self {
        TargetPath::Path(path.to_owned())
    }
}

impl TargetPath {
    /// Returns the path, for messages.
    pub fn shown(&self) -> PathBuf {
        match self {
            TargetPath::Path(path) => path.clone(),
            TargetPath::Below(root, below) => root.shown(below),
        }
    }

    /// Makes the pending file, with the permissions `mode`.
    ///
    /// # Errors
    /// Errors of [`PendingFile::create`].
    pub fn create(&self, mode: u32) -> Result<PendingFile, Error> {
        match self {
            TargetPath::Path(path) => PendingFile::create(path, mode),
            TargetPath::Below(root, below) => PendingFile::create_below(root, below.clone(), mode),
        }
    }

    /// Returns the same path with another extension.
    pub(crate) fn with_extension(&self, extension: &str) -> Self {
        match self {
            TargetPath::Path(path) => TargetPath::Path(path.with_extension(extension)),
            TargetPath::Below(root, below) => {
                let path = Path::new(OsStr::from_bytes(below.to_bytes())).with_extension(extension);
                TargetPath::Below(root.clone(), c_string(&path).expect("it had no NUL"))
            }
        }
    }
}

/// Converts a path for system calls.
pub(crate) fn c_string(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::host("open", path)(Errno::INVAL.into()))
}

/// Returns a folder's path without symlinks.
pub(crate) fn real(path: &Path) -> Result<PathBuf, Error> {
    std::fs::canonicalize(path).map_err(Error::host("open", path))
}

/// Opens the folder that contains `path` and returns it with the name in it. For a path without a
/// name (`..`, `/`), which always exists, the inner `Err` has the folder itself.
pub(crate) fn parent(path: &Path) -> Result<Result<(Arc<DirHandle>, CString), DirHandle>, Error> {
    let Some(name) = path.file_name() else {
        return Ok(Err(DirHandle::open_canonical(&real(path)?)?));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = Arc::new(DirHandle::open_canonical(&real(parent)?)?);
    Ok(Ok((parent, c_string(Path::new(name))?)))
}

/// Opens the folder `name` in `parent`; follows a symlink when it is this user's or root's. Returns
/// `None` when nothing has that name.
pub(crate) fn folder(parent: &DirHandle, name: &CStr) -> Result<Option<DirHandle>, Error> {
    match parent.folder(name) {
        Ok(root) => Ok(Some(root)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR) => followed(parent, name).map(Some),
        Err(errno) => Err(parent.error("open", name, errno)),
    }
}

/// Opens the folder `path`; makes it and the folders above it when they are missing.
pub(crate) fn open_or_make(path: &Path) -> Result<DirHandle, Error> {
    let (parent, name) = {
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            std::fs::create_dir_all(above).map_err(Error::host("mkdir", above))?;
        }
        match parent(path)? {
            Ok(found) => found,
            Err(root) => return Ok(root),
        }
    };
    if let Some(root) = folder(&parent, &name)? {
        return Ok(root);
    }
    match mkdirat(parent.fd(), &name, Mode::from_raw_mode(FOLDER_MODE)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(parent.error("mkdir", &name, errno)),
    }
    folder(&parent, &name)?.ok_or_else(|| parent.error("open", &name, Errno::NOENT))
}

/// Opens the folder that a symlink in `parent` leads to.
fn followed(parent: &DirHandle, name: &CStr) -> Result<DirHandle, Error> {
    let host = |errno| parent.error("open", name, errno);
    // The link itself is opened, so its target is read from the same link that is checked.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = openat(parent.fd(), name, flags, Mode::empty()).map_err(host)?;
    let stat = fstat(&link).map_err(host)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        return Err(host(Errno::NOTDIR));
    }
    trust::link(&stat)
        .map_err(|planted| Error::file(&parent.shown(name), FileFault::Untrusted(planted)))?;
    let led = readlinkat(&link, c"", Vec::new()).map_err(host)?;
    let path = parent.path().join(OsStr::from_bytes(led.to_bytes()));
    DirHandle::open_canonical(&real(&path).map_err(|_| host(Errno::NOENT))?)
}

/// Permissions of visible folders, before the process's umask.
pub(crate) const FOLDER_MODE: u32 = 0o777;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn a_link_of_this_user_is_followed_and_a_stranger_s_is_not() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::create_dir(path("real")).unwrap();
        symlink("real", path("link")).unwrap();
        symlink("nothing", path("dangling")).unwrap();
        std::fs::write(path("file"), b"x").unwrap();
        let real = path("real").canonicalize().unwrap();
        assert_eq!(open_or_make(&path("link")).unwrap().path(), real);
        assert!(open_or_make(&path("dangling")).is_err() && !path("nothing").exists());
        assert!(open_or_make(&path("file")).is_err());
        assert_eq!(open_or_make(&path("new/er")).unwrap().path(), real.with_file_name("new/er"));
        assert!(open_or_make(Path::new("/")).is_ok());
        if lchown(path("link"), Some(65_534), None).is_err() {
            println!("skip: only root can give a link to another user");
            return;
        }
        let error = open_or_make(&path("link")).unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534"), "{error}");
    }

    #[test]
    fn a_spot_below_a_folder_keeps_to_it() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("a")).unwrap();
        let root = Arc::new(DirHandle::open(place.path()).unwrap());
        let spot = TargetPath::Below(root, c"a/book.epub".to_owned()).with_extension("lcpl");
        spot.create(0o600).unwrap().commit(false).unwrap();
        assert!(place.path().join("a/book.lcpl").is_file());
        assert_eq!(spot.shown(), place.path().join("a/book.lcpl"));
    }
}
