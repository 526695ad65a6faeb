// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hidden folders, renamed to the target when complete and found by the next run.
//!
//! Other users may be able to write in the folder above (`/tmp`, a share). So the name ends in
//! random digits that other users cannot predict, `mkdir` refuses an existing name, and only this
//! user can enter the folder (mode 0700). A marker in it holds its name. The next run uses a folder
//! of such a name only when it is this user's, no other user can write in it, and its marker holds
//! the same name. All others (a symlink, another user's folder, a folder of this user's that
//! another user moved there) are left as they are and reported on standard error.
//!
//! Everything in the folder is reached by its descriptor. A rename that replaces nothing gives it
//! its final name; then a stat checks that the name leads to this folder.
//!
//! Costs a folder: one listing of the folder above, and about ten system calls.
//!
//! Sources: mkdir(2), renameat2(2) (`RENAME_NOREPLACE`), mkdtemp(3) for the idea. Does not check
//! the files that an earlier run left in the folder: their journal does.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Mode, OFlags, RawDir, RenameFlags, fstat, mkdirat, openat, renameat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;

use crate::dir_handle::DirHandle;
use crate::error::{Error, FileFault};
use crate::key;
use crate::pending_file::PREFIX;
use crate::trust::{self, Writer};
use crate::untrusted::Untrusted;

/// A working folder.
#[derive(Debug)]
pub(crate) struct WorkingFolder {
    parent: Arc<DirHandle>,
    name: CString,
    folder: Arc<DirHandle>,
}

/// Working folders of earlier runs.
#[derive(Debug, Default)]
pub(crate) struct LeftoverFolders {
    /// Folder in which this run can resume.
    pub(crate) working: Option<WorkingFolder>,
    /// Reports of names that look like a working folder's and are not accepted.
    pub(crate) notes: Vec<Error>,
}

/// Use of a working folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkingKind {
    Seal,
    Unseal,
    Film,
}

impl WorkingKind {
    fn name(self) -> &'static str {
        match self {
            WorkingKind::Seal => "seal",
            WorkingKind::Unseal => "unseal",
            WorkingKind::Film => "film",
        }
    }

    /// Returns the part of the name that version 0.1 put between the prefix and the target's name.
    fn earlier(self) -> &'static str {
        if self == WorkingKind::Film { "film-" } else { "" }
    }
}

/// Returns the names in `parent` that begin with the prefix of unfinished files.
pub(crate) fn names(parent: &DirHandle) -> Result<Vec<CString>, Error> {
    let mut names = Vec::new();
    entries(parent.fd(), |name| {
        if name.to_bytes().starts_with(PREFIX.as_bytes()) {
            names.push(name.to_owned());
        }
    })
    .map_err(|errno| parent.error("list", c".", errno))?;
    names.sort();
    Ok(names)
}

/// Searches `names` for the newest working folder of an earlier run for `target`.
pub(crate) fn left(
    parent: &Arc<DirHandle>,
    names: &[CString],
    target: &CStr,
    kind: WorkingKind,
) -> LeftoverFolders {
    let mut left = LeftoverFolders::default();
    let mut newest = None;
    let earlier = [PREFIX, kind.earlier()].concat().into_bytes();
    let stem = stem(target, kind);
    for name in names {
        let bytes = name.to_bytes();
        let is_earlier = bytes.strip_prefix(&earlier[..]) == Some(target.to_bytes());
        let digits = bytes.strip_prefix(&stem[..]).filter(|digits| is_random(digits));
        if !is_earlier && digits.is_none() {
            continue;
        }
        let note = |planted| Error::file(&parent.shown(name), FileFault::Untrusted(planted));
        match trusted(parent, name) {
            Ok(_) if is_earlier => left.notes.push(note(Untrusted::Earlier)),
            Ok((folder, modified)) => {
                let is_newer = newest.is_none_or(|known| known < modified);
                if is_newer {
                    newest = Some(modified);
                    let (parent, name) = (parent.clone(), name.clone());
                    left.working = Some(WorkingFolder { parent, name, folder: Arc::new(folder) });
                }
            }
            Err(Refused::Untrusted(planted)) => left.notes.push(note(planted)),
            // Removed since it was listed.
            Err(Refused::Errno(Errno::NOENT)) => {}
            Err(Refused::Errno(errno)) => left.notes.push(parent.error("open", name, errno)),
        }
    }
    left
}

enum Refused {
    Untrusted(Untrusted),
    Errno(Errno),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Refused::Errno(errno)
    }
}

/// Opens a folder of an earlier run after checking it; also returns its modification time.
fn trusted(parent: &DirHandle, name: &CStr) -> Result<(DirHandle, (i64, u32)), Refused> {
    let fd = match open_folder(parent, name) {
        Ok(fd) => fd,
        Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => {
            let stat = parent.stat(name)?;
            return Err(match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
                rustix::fs::FileType::Symlink => Refused::Untrusted(Untrusted::Link),
                rustix::fs::FileType::Directory => Refused::Errno(errno),
                _ => Refused::Untrusted(Untrusted::NoFolder),
            });
        }
        // An unreadable folder of another user: its owner is the more useful report.
        Err(Errno::ACCESS) => {
            let stat = parent.stat(name)?;
            let user = rustix::process::geteuid().as_raw();
            return Err(match stat.st_uid {
                found if found != user => Refused::Untrusted(Untrusted::Owner { found, user }),
                _ => Refused::Errno(Errno::ACCESS),
            });
        }
        Err(errno) => return Err(errno.into()),
    };
    let stat = trust::folder(&fd)?.map_err(Refused::Untrusted)?;
    let folder = DirHandle::of(fd, parent.shown(name));
    let marker = trust::read(&folder, MARKER, Writer::User, MARKER_BYTES_MAX).ok().flatten();
    let marker = marker.unwrap_or_default();
    // A run that was killed before its marker was complete had written nothing else.
    let is_begun =
        || Ok::<_, Errno>(name.to_bytes().starts_with(&marker) && is_empty(folder.fd())?);
    if marker != name.to_bytes() && !is_begun()? {
        return Err(Refused::Untrusted(Untrusted::Unmarked));
    }
    let modified = crate::folder_walk::modified(&stat);
    Ok((folder, (modified.s, modified.ns)))
}

impl WorkingFolder {
    /// Makes a working folder for `target` in `parent`.
    pub(crate) fn make(
        parent: &Arc<DirHandle>,
        target: &CStr,
        kind: WorkingKind,
    ) -> Result<Self, Error> {
        for _ in 0..ATTEMPTS {
            let name = fresh_name(target, kind)?;
            match mkdirat(parent.fd(), &name, Mode::RWXU) {
                Ok(()) => return Self::made(parent, name),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(parent.error("mkdir", &name, errno)),
            }
        }
        Err(parent.error("mkdir", target, Errno::EXIST))
    }

    /// Opens the new folder and checks that it is still the one that was made.
    fn made(parent: &Arc<DirHandle>, name: CString) -> Result<Self, Error> {
        let exchanged =
            || Error::file(&parent.shown(&name), FileFault::Untrusted(Untrusted::Exchanged));
        let host = |errno| parent.error("open", &name, errno);
        let fd = match open_folder(parent, &name) {
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(exchanged()),
            result => result.map_err(host)?,
        };
        if let Err(planted) = trust::folder(&fd).map_err(host)? {
            return Err(Error::file(&parent.shown(&name), FileFault::Untrusted(planted)));
        }
        if !is_empty(&fd).map_err(host)? {
            return Err(exchanged());
        }
        let folder = Arc::new(DirHandle::of(fd, parent.shown(&name)));
        Ok(Self { parent: parent.clone(), name, folder })
    }

    /// Returns the open folder.
    pub(crate) fn folder(&self) -> &Arc<DirHandle> {
        &self.folder
    }

    /// Locks the folder for this run and writes its marker, so that the next run finds it.
    pub(crate) fn take(&self) -> Result<(), Error> {
        self.folder.lock()?;
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let marker = self.folder.open_below(MARKER, flags, Mode::RUSR | Mode::WUSR);
        let marker = marker.map_err(|errno| self.folder.error("open", MARKER, errno))?;
        File::from(marker)
            .write_all(self.name.to_bytes())
            .map_err(Error::host("write", &self.folder.shown(MARKER)))
    }

    /// Removes all that an earlier run left in the folder, except the marker.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        let emptied = empty(self.folder.fd(), Some(MARKER));
        emptied.map_err(|errno| self.folder.error("unlink", c".", errno))
    }

    /// Removes unfinished files of an earlier run directly in the folder, not below its subfolders.
    pub(crate) fn remove_unfinished(&self) -> Result<(), Error> {
        for name in names(&self.folder)?.iter().filter(|name| name.as_c_str() != MARKER) {
            let removed = self.folder.remove(name, AtFlags::empty());
            removed.map_err(|errno| self.folder.error("unlink", name, errno))?;
        }
        Ok(())
    }

    /// Removes this folder and returns the error when another run holds a folder for the same
    /// target, which happens only when two runs begin at the same moment.
    pub(crate) fn yields(self, target: &CStr, kind: WorkingKind) -> Result<Self, Error> {
        let stem = stem(target, kind);
        for name in names(&self.parent)? {
            let digits = name.to_bytes().strip_prefix(&stem[..]);
            if name == self.name || !digits.is_some_and(is_random) {
                continue;
            }
            let Ok((other, _)) = trusted(&self.parent, &name) else { continue };
            if let Err(busy) = other.lock() {
                // The folder is empty except for its marker. If the removal fails, the next run
                // finds it.
                let _ = self.folder.remove(MARKER, AtFlags::empty());
                let _ = unlinkat(self.parent.fd(), &self.name, AtFlags::REMOVEDIR);
                return Err(busy);
            }
        }
        Ok(self)
    }

    /// Renames the folder to `target`, if nothing has that name. The caller syncs the folder above.
    pub(crate) fn publish(&self, target: &CStr) -> Result<(), Error> {
        let parent = self.parent.fd();
        match renameat_with(parent, &self.name, parent, target, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // Older file systems lack the flag. A plain rename replaces only an empty folder, never
            // a file, a symlink or a folder with content.
            Err(Errno::INVAL) => renameat(parent, &self.name, parent, target)
                .map_err(|errno| self.parent.error("rename", target, errno))?,
            Err(Errno::EXIST) => {
                return Err(Error::file(&self.parent.shown(target), FileFault::Exists));
            }
            Err(errno) => return Err(self.parent.error("rename", target, errno)),
        }
        self.published(target)
    }

    /// Exchanges the names of this folder and the folder `target`, and removes the old one.
    pub(crate) fn exchange(&self, target: &CStr, old: &DirHandle) -> Result<(), Error> {
        let parent = self.parent.fd();
        renameat_with(parent, &self.name, parent, target, RenameFlags::EXCHANGE)
            .map_err(|errno| self.parent.error("rename", target, errno))?;
        self.published(target)?;
        if !self.is_at(&self.name, old)? {
            let path = self.parent.shown(&self.name);
            return Err(Error::file(&path, FileFault::Untrusted(Untrusted::Exchanged)));
        }
        empty(old.fd(), None)
            .and_then(|()| unlinkat(parent, &self.name, AtFlags::REMOVEDIR))
            .map_err(|errno| self.parent.error("rmdir", &self.name, errno))
    }

    /// Checks that the name is now this folder's, not another user's folder; removes the marker.
    fn published(&self, target: &CStr) -> Result<(), Error> {
        if !self.is_at(target, &self.folder)? {
            let path = self.parent.shown(target);
            return Err(Error::file(&path, FileFault::Untrusted(Untrusted::Exchanged)));
        }
        match self.folder.remove(MARKER, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.folder.error("unlink", MARKER, errno)),
        }
    }

    fn is_at(&self, name: &CStr, folder: &DirHandle) -> Result<bool, Error> {
        let host = |errno| self.parent.error("stat", name, errno);
        let found = match statat(self.parent.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            result => result.map_err(host)?,
        };
        let own = fstat(folder.fd()).map_err(host)?;
        Ok((found.st_dev, found.st_ino) == (own.st_dev, own.st_ino))
    }

    /// Returns the folder that contains it.
    pub(crate) fn parent(&self) -> &DirHandle {
        &self.parent
    }
}

/// Removes everything in a folder except the file `kept`; follows no symlink.
fn empty(folder: &OwnedFd, kept: Option<&CStr>) -> Result<(), Errno> {
    let mut found = Vec::new();
    entries(folder, |name| found.push(name.to_owned()))?;
    for name in found.into_iter().filter(|name| Some(name.as_c_str()) != kept) {
        match unlinkat(folder, &name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                let below = openat(folder, &name, FOLDER, Mode::empty())?;
                empty(&below, None)?;
                unlinkat(folder, &name, AtFlags::REMOVEDIR)?;
            }
            result => result?,
        }
    }
    Ok(())
}

/// Calls `each` with every name in a folder.
fn entries(folder: &OwnedFd, mut each: impl FnMut(&CStr)) -> Result<(), Errno> {
    // A new descriptor: duplicates would share the position of the listing.
    let own = openat(folder, c".", FOLDER, Mode::empty())?;
    let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
    let mut entries = RawDir::new(&own, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            each(entry.file_name());
        }
    }
    Ok(())
}

/// Returns true when a folder has nothing but the marker.
fn is_empty(folder: &OwnedFd) -> Result<bool, Errno> {
    let mut is_empty = true;
    entries(folder, |name| is_empty &= name == MARKER)?;
    Ok(is_empty)
}

fn open_folder(parent: &DirHandle, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(parent.fd(), name, FOLDER, Mode::empty())
}

/// Returns the beginning of the names of working folders for `target`.
fn stem(target: &CStr, kind: WorkingKind) -> Vec<u8> {
    let front = format!("{PREFIX}{}-", kind.name());
    let target = target.to_bytes();
    let fits = front.len() + target.len() + 1 + RANDOM_DIGITS <= NAME_BYTES_MAX;
    // A target's name that leaves no room for the digits is replaced by its hash.
    let target = match fits {
        true => target.to_vec(),
        false => blake3::hash(target).to_hex().as_bytes()[..32].to_vec(),
    };
    [front.as_bytes(), &target, b"."].concat()
}

fn fresh_name(target: &CStr, kind: WorkingKind) -> Result<CString, Error> {
    let mut random = [0; RANDOM_DIGITS / 2];
    key::random(&mut random)?;
    let mut name = stem(target, kind);
    random.iter().for_each(|byte| write!(name, "{byte:02x}").expect("a vector takes all"));
    Ok(CString::new(name).expect("neither has a NUL"))
}

fn is_random(digits: &[u8]) -> bool {
    digits.len() == RANDOM_DIGITS && digits.iter().all(u8::is_ascii_hexdigit)
}

/// Name of the marker file, whose content is the working folder's name. The prefix hides it, and if
/// the run is killed before it removes the marker, the next run into the published folder does.
pub(crate) const MARKER: &CStr = c".pagewire-unfinished-folder";
const MARKER_BYTES_MAX: u64 = 255;
/// 64 bits: no user can make that many names in advance.
const RANDOM_DIGITS: usize = 16;
/// Most names that are tried; a second one is needed once in 2⁶⁴ runs.
const ATTEMPTS: usize = 8;
/// NAME_MAX of Linux.
const NAME_BYTES_MAX: usize = 255;
const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    fn parent(path: &Path) -> Arc<DirHandle> {
        Arc::new(DirHandle::open(path).unwrap())
    }

    fn look(parent: &Arc<DirHandle>) -> LeftoverFolders {
        left(parent, &names(parent).unwrap(), c"out", WorkingKind::Seal)
    }

    fn made(parent: &Arc<DirHandle>) -> WorkingFolder {
        let working = WorkingFolder::make(parent, c"out", WorkingKind::Seal).unwrap();
        working.take().unwrap();
        working
    }

    #[test]
    fn a_folder_is_fresh_private_found_again_and_named_once() {
        let place = tempfile::tempdir().unwrap();
        let parent = parent(place.path());
        assert!(look(&parent).working.is_none());
        let first = made(&parent);
        let mode = std::fs::metadata(first.folder().path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        assert!(look(&parent).working.unwrap().take().is_err(), "another run holds it");
        let path = first.folder().path().to_owned();
        drop(first);
        let again = look(&parent);
        assert!(again.notes.is_empty(), "{:?}", again.notes);
        let again = again.working.unwrap();
        assert_eq!(again.folder().path(), path);
        assert!(
            left(&parent, &names(&parent).unwrap(), c"ou", WorkingKind::Seal).working.is_none()
        );
        assert!(
            left(&parent, &names(&parent).unwrap(), c"out", WorkingKind::Film).working.is_none()
        );
        again.publish(c"out").unwrap();
        assert_eq!(std::fs::read_dir(place.path().join("out")).unwrap().count(), 0, "no marker");
        assert!(names(&parent).unwrap().is_empty() && place.path().join("out").is_dir());
        let second = made(&parent);
        assert!(second.publish(c"out").unwrap_err().to_string().contains("is there already"));
    }

    #[test]
    fn what_was_planted_under_a_working_folder_s_name_is_named_and_left() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        std::fs::create_dir(&victim).unwrap();
        std::fs::write(victim.join("dear"), b"dear").unwrap();
        let parent = parent(place.path());
        let name = |digit: char| {
            let digits = String::from(digit).repeat(RANDOM_DIGITS);
            place.path().join(format!("{PREFIX}seal-out.{digits}"))
        };
        symlink(&victim, name('0')).unwrap();
        std::fs::write(name('1'), b"a file").unwrap();
        std::fs::create_dir(name('2')).unwrap();
        std::fs::set_permissions(name('2'), PermissionsExt::from_mode(0o777)).unwrap();
        symlink(&victim, place.path().join(format!("{PREFIX}out"))).unwrap();
        // The first is this user's own, moved there by a user who can write in the parent; the
        // second has the marker of another name.
        std::fs::create_dir(name('3')).unwrap();
        std::fs::write(name('3').join("dear"), b"dear").unwrap();
        let other = made(&parent);
        std::fs::rename(other.folder().path(), name('4')).unwrap();
        std::fs::write(name('4').join("dear"), b"dear").unwrap();
        let left = look(&parent);
        assert!(left.working.is_none());
        let notes: Vec<_> = left.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes.len(), 6, "{notes:?}");
        let assert_noted = |digit, found: &str| {
            let path = name(digit).display().to_string();
            assert!(notes.iter().any(|n| n.starts_with(&path) && n.contains(found)), "{notes:?}");
        };
        assert_noted('0', "a symlink");
        assert_noted('1', "no folder");
        assert_noted('2', "others can write to it (mode 0777)");
        assert_noted('3', "left as it is");
        assert_noted('4', "left as it is");
        assert_eq!(std::fs::read(victim.join("dear")).unwrap(), b"dear");
        assert_eq!(std::fs::read(name('3').join("dear")).unwrap(), b"dear");
    }

    #[test]
    fn a_name_that_a_stranger_exchanged_is_noticed_when_it_is_given() {
        let place = tempfile::tempdir().unwrap();
        let parent = parent(place.path());
        let working = made(&parent);
        std::fs::rename(working.folder().path(), place.path().join("taken")).unwrap();
        std::fs::create_dir(working.folder().path()).unwrap();
        let error = working.publish(c"out").unwrap_err().to_string();
        assert!(error.contains("another folder took this name"), "{error}");
        // A symlink of the target's name is not replaced either.
        let working = made(&parent);
        symlink("taken", place.path().join("second")).unwrap();
        let error = working.publish(c"second").unwrap_err().to_string();
        assert!(error.contains("is there already"), "{error}");
    }

    #[test]
    fn long_names_have_working_folders_too() {
        let place = tempfile::tempdir().unwrap();
        let parent = parent(place.path());
        let name = CString::new(vec![b'n'; NAME_BYTES_MAX]).unwrap();
        let working = WorkingFolder::make(&parent, &name, WorkingKind::Seal).unwrap();
        working.take().unwrap();
        drop(working);
        let found =
            left(&parent, &names(&parent).unwrap(), &name, WorkingKind::Seal).working.unwrap();
        found.publish(&name).unwrap();
    }

    #[test]
    fn of_two_runs_that_began_at_once_one_goes_on_at_most() {
        let place = tempfile::tempdir().unwrap();
        let parent = parent(place.path());
        let (first, second) = (made(&parent), made(&parent));
        let error = second.yields(c"out", WorkingKind::Seal).unwrap_err().to_string();
        assert!(error.contains("another run is at work"), "{error}");
        first.yields(c"out", WorkingKind::Seal).unwrap();
        assert_eq!(names(&parent).unwrap().len(), 1);
    }

    #[test]
    fn a_folder_is_emptied_and_its_links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::create_dir_all(path("old/deep/er")).unwrap();
        std::fs::create_dir(path("victim")).unwrap();
        std::fs::write(path("victim/dear"), b"dear").unwrap();
        std::fs::write(path("old/deep/file"), b"x").unwrap();
        std::fs::write(path("old/kept"), b"x").unwrap();
        symlink(path("victim"), path("old/deep/link")).unwrap();
        let old = DirHandle::open(&path("old")).unwrap();
        empty(old.fd(), Some(c"kept")).unwrap();
        assert_eq!(std::fs::read_dir(path("old")).unwrap().count(), 1);
        empty(old.fd(), None).unwrap();
        assert_eq!(std::fs::read_dir(path("old")).unwrap().count(), 0);
        assert_eq!(std::fs::read(path("victim/dear")).unwrap(), b"dear");
    }
}
