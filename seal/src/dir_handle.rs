// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open folder, whose descriptor names all files below it.
//!
//! Other users may be able to write in a source or target folder, and may replace a folder by a
//! symlink at any moment. So the kernel resolves each path below a [`DirHandle`] and refuses every
//! symlink in it (`RESOLVE_NO_SYMLINKS`), and a file is made, renamed and removed by the descriptor
//! of its folder. Where a sandbox blocks `openat2`, each component is opened alone with
//! `O_NOFOLLOW`.
//!
//! Costs one `openat2` for a path of several components; the descriptors of the last folders are
//! kept, so files in one folder share one.
//!
//! Sources: openat2(2), path_resolution(7), flock(2), proc(5) (`fd`), symlink(7). Does not check
//! the owner of a file (`trust` does).

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, Stat, chmodat, flock, openat,
    openat2, statat, unlinkat,
};
use rustix::io::Errno;

use crate::error::{Error, FileFault};
use crate::manifest::ManifestDamage;

/// An open folder; its descriptor names the files below it.
#[derive(Debug)]
pub struct DirHandle {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    /// Folders below it that were opened last, the oldest first.
    last: Mutex<Vec<(CString, Arc<OwnedFd>)>>,
}

impl DirHandle {
    /// Opens the folder `path`. Symlinks in `path` are followed: the caller named them.
    ///
    /// # Errors
    /// The path is no folder, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| Error::host("open", path)(errno.into()))?;
        Ok(Self::of(fd, path.to_owned()))
    }

    /// Opens a path from [`Path::canonicalize`]; refuses a component that has become a symlink
    /// since.
    ///
    /// # Errors
    /// The path is no folder, or cannot be opened.
    pub(crate) fn open_canonical(path: &Path) -> Result<Self, Error> {
        let top = Self::open(Path::new("/"))?;
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let below = CString::new(below.as_os_str().as_bytes()).expect("the kernel gave it");
        top.folder(&below).map_err(|errno| Error::host("open", path)(errno.into()))
    }

    /// Makes a handle of a folder that is already open.
    pub(crate) fn of(fd: OwnedFd, path: PathBuf) -> Self {
        Self { fd: Arc::new(fd), path, last: Mutex::default() }
    }

    /// Opens the folder `below`.
    pub(crate) fn folder(&self, below: &CStr) -> Result<Self, Errno> {
        let fd = self.open_below(below, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Self::of(fd, self.shown(below)))
    }

    /// Returns the folder's descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Returns the folder's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of `below`, for messages.
    pub fn shown(&self, below: &CStr) -> PathBuf {
        match below.to_bytes() {
            b"." => self.path.clone(),
            bytes => self.path.join(OsStr::from_bytes(bytes)),
        }
    }

    /// Returns the error of a system call that failed on `below`.
    pub(crate) fn error(&self, call: &'static str, below: &CStr, errno: Errno) -> Error {
        Error::host(call, &self.shown(below))(errno.into())
    }

    /// Opens `below`; no component may be a symlink.
    pub(crate) fn open_below(
        &self,
        below: &CStr,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // A single component needs only NOFOLLOW, and every sandbox allows openat.
        if !below.to_bytes().contains(&b'/') {
            return openat(&self.fd, below, flags, mode);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match openat2(&self.fd, below, flags, mode, resolve) {
            // Older container runtimes block openat2.
            Err(Errno::NOSYS | Errno::PERM) => self.open_each(below, flags, mode),
            result => result,
        }
    }

    /// Opens `below` without `openat2`, component by component.
    fn open_each(&self, below: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let mut parts = below.to_bytes().split(|&byte| byte == b'/').peekable();
        let mut folder: Option<OwnedFd> = None;
        while let Some(part) = parts.next() {
            if part == b".." {
                return Err(Errno::XDEV);
            }
            let at = folder.as_ref().unwrap_or(&self.fd);
            if parts.peek().is_none() {
                return openat(at, part, flags, mode);
            }
            folder = Some(openat(at, part, FOLDER, Mode::empty())?);
        }
        Err(Errno::NOENT)
    }

    /// Returns the folder that contains `below`, and the name in it.
    pub(crate) fn parent<'a>(&self, below: &'a CStr) -> Result<(Arc<OwnedFd>, &'a CStr), Errno> {
        let (folder, name) = split(below);
        let Some(folder) = folder else { return Ok((self.fd.clone(), name)) };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, fd)) = last.iter().find(|(path, _)| *path == folder) {
            return Ok((fd.clone(), name));
        }
        let fd = Arc::new(self.open_below(&folder, FOLDER, Mode::empty())?);
        if last.len() == FOLDERS_MAX {
            last.remove(0);
        }
        last.push((folder, fd.clone()));
        Ok((fd, name))
    }

    pub(crate) fn stat(&self, below: &CStr) -> Result<Stat, Errno> {
        let (folder, name) = self.parent(below)?;
        statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Removes the name `below`; a folder's with [`AtFlags::REMOVEDIR`].
    pub(crate) fn remove(&self, below: &CStr, flags: AtFlags) -> Result<(), Errno> {
        let (folder, name) = self.parent(below)?;
        unlinkat(folder, name, flags)
    }

    /// Makes the folder `below`; an existing one stays as it is.
    pub(crate) fn make_folder(&self, below: &CStr, mode: Mode) -> Result<CreatedFolder, Errno> {
        let (folder, name) = self.parent(below)?;
        match rustix::fs::mkdirat(folder, name, mode) {
            Ok(()) => Ok(CreatedFolder::Now),
            Err(Errno::EXIST) => Ok(CreatedFolder::Before),
            Err(errno) => Err(errno),
        }
    }

    /// Makes the missing folders above the file `below`.
    pub(crate) fn make_folders_of(&self, below: &CStr, mode: Mode) -> Result<(), Error> {
        let bytes = below.to_bytes();
        let slashes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            let folder = CString::new(&bytes[..at]).expect("a path has no NUL");
            let made = self.make_folder(&folder, mode);
            made.map_err(|errno| self.error("mkdir", &folder, errno))?;
        }
        Ok(())
    }

    /// Changes the permissions of the folder `below`.
    pub(crate) fn chmod_folder(&self, below: &CStr, mode: Mode) -> Result<(), Errno> {
        let fd = self.open_below(below, FOLDER, Mode::empty())?;
        // fchmod(2) does not accept O_PATH, and a folder without read permission cannot be opened
        // otherwise.
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        chmodat(CWD, link, mode, AtFlags::empty())
    }

    /// Locks the folder for this run until the handle is dropped. Some network file systems have no
    /// locks; there the call succeeds without one.
    ///
    /// # Errors
    /// [`ManifestDamage::Busy`].
    pub(crate) fn lock(&self) -> Result<(), Error> {
        match flock(self.fd.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                Err(Error::file(&self.path, FileFault::Manifest(ManifestDamage::Busy)))
            }
            _ => Ok(()),
        }
    }
}

/// Most folders below a root whose descriptors are kept. Files come in the order of their inodes,
/// so a few folders are in use at a time.
const FOLDERS_MAX: usize = 16;

/// Time of a folder's creation, relative to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreatedFolder {
    /// The call made it.
    Now,
    /// A folder or another file of this name existed.
    Before,
}

/// Flags for a folder that names files below it: search permission is enough.
const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns the folder part of a path, `None` for a single name, and the name.
pub(crate) fn split(below: &CStr) -> (Option<CString>, &CStr) {
    let bytes = below.to_bytes_with_nul();
    let slash = bytes.iter().rposition(|&byte| byte == b'/');
    let name = CStr::from_bytes_with_nul(&bytes[slash.map_or(0, |slash| slash + 1)..]);
    let folder = slash.map(|slash| CString::new(&bytes[..slash]).expect("a path has no NUL"));
    (folder, name.expect("the end of a path has no other NUL"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Makes a folder `real` with a file, a link to it, and an outside file that a link leads to.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("top/real/deep")).unwrap();
        std::fs::create_dir(folder.path().join("outside")).unwrap();
        std::fs::write(folder.path().join("top/real/file"), b"x").unwrap();
        std::fs::write(folder.path().join("outside/file"), b"x").unwrap();
        symlink("real", folder.path().join("top/link")).unwrap();
        symlink("../outside", folder.path().join("top/out")).unwrap();
        folder
    }

    #[test]
    fn no_component_of_a_path_is_followed_with_openat2_or_without() {
        let folder = folder();
        let root = DirHandle::open(&folder.path().join("top")).unwrap();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let by_openat2 = |path| root.open_below(path, flags, Mode::empty()).map(drop);
        let by_openat = |path| root.open_each(path, flags, Mode::empty()).map(drop);
        assert_eq!(by_openat2(c"real/file"), Ok(()));
        assert_eq!(by_openat(c"real/file"), Ok(()));
        assert_eq!(by_openat(c"real/deep"), Ok(()));
        for path in [c"link/file", c"link", c"out/file"] {
            assert_eq!(by_openat2(path), Err(Errno::LOOP), "{path:?}");
            assert!(matches!(by_openat(path), Err(Errno::LOOP | Errno::NOTDIR)), "{path:?}");
        }
        for path in [c"../outside/file", c"real/../../outside/file"] {
            assert_eq!(by_openat2(path), Err(Errno::XDEV), "{path:?}");
            assert_eq!(by_openat(path), Err(Errno::XDEV), "{path:?}");
        }
    }

    #[test]
    fn nothing_is_removed_made_or_changed_through_a_symlink() {
        let folder = folder();
        let root = DirHandle::open(&folder.path().join("top")).unwrap();
        let refused =
            |result: Result<(), Errno>| matches!(result, Err(Errno::LOOP | Errno::NOTDIR));
        assert!(refused(root.remove(c"out/file", AtFlags::empty())));
        assert!(refused(root.make_folder(c"out/new", Mode::RWXU).map(drop)));
        assert!(root.chmod_folder(c"out", Mode::RWXU).is_err());
        assert!(root.stat(c"out/file").is_err());
        let outside = folder.path().join("outside");
        assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"x");
        assert!(!outside.join("new").exists());

        assert_eq!(root.make_folder(c"real/new", Mode::RWXU), Ok(CreatedFolder::Now));
        assert_eq!(root.make_folder(c"real/new", Mode::RWXU), Ok(CreatedFolder::Before));
        root.chmod_folder(c"real/new", Mode::from_raw_mode(0o751)).unwrap();
        let mode = std::fs::metadata(folder.path().join("top/real/new")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o751);
        root.remove(c"real/file", AtFlags::empty()).unwrap();
        root.remove(c"real/new", AtFlags::REMOVEDIR).unwrap();
        assert!(!folder.path().join("top/real/file").exists());
    }

    #[test]
    fn a_canonical_path_that_became_a_symlink_is_refused() {
        let folder = folder();
        let path = folder.path().join("top/real").canonicalize().unwrap();
        assert_eq!(DirHandle::open_canonical(&path).unwrap().path(), path);
        std::fs::rename(&path, folder.path().join("top/moved")).unwrap();
        symlink(folder.path().join("outside"), &path).unwrap();
        assert!(DirHandle::open_canonical(&path).is_err());
        assert!(DirHandle::open_canonical(Path::new("/")).is_ok());
    }

    #[test]
    fn one_run_at_a_time_holds_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| DirHandle::open(folder.path()).unwrap());
        one.lock().unwrap();
        assert!(other.lock().unwrap_err().to_string().contains("another run is at work"));
        drop(one);
        other.lock().unwrap();
    }
}
