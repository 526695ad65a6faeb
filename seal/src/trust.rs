// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests whether a file or folder with one of this program's names is this program's own.
//!
//! A user who can write in a folder can plant there, under one of this program's names, a symlink
//! to another user's file, a pipe without a writer, an endless device, or a hard link to a file. So
//! this program opens its files without following symlinks and without blocking, and accepts only a
//! regular file of bounded size. A file that it writes to, or that controls its writing, must also
//! be this user's and have one name.
//!
//! Costs one `openat` and two stat calls a file; these are files of a run or a film, not each
//! sealed file.
//!
//! Sources: open(2) (`O_NOFOLLOW`, `O_NONBLOCK`), link(2), fifo(7). Does not protect against this
//! user and root, who can change everything anyway.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat};
use rustix::io::Errno;

use crate::dir_handle::DirHandle;
use crate::error::{Error, FileFault};
use crate::untrusted::Untrusted;

/// Accepted writers of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Only this user: the file will be written to, or controls what is written.
    User,
    /// Any user: a key checks the content.
    Anybody,
}

/// Opens one of this program's files below `root`; `None` when it does not exist. `flags` are added
/// to the flags that make the opening safe.
pub(crate) fn open(
    root: &DirHandle,
    below: &CStr,
    flags: OFlags,
    writer: Writer,
    limit_bytes: u64,
) -> Result<Option<File>, Error> {
    let planted = |planted| Error::file(&root.shown(below), FileFault::Untrusted(planted));
    // The stat comes first because opening a device may have side effects.
    match root.stat(below) {
        Ok(stat) => file(&stat, writer, limit_bytes).map_err(planted)?,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(root.error("stat", below, errno)),
    }
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = match root.open_below(below, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::LOOP) => return Err(planted(Untrusted::Link)),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(root.error("open", below, errno)),
    };
    let stat = fstat(&fd).map_err(|errno| root.error("fstat", below, errno))?;
    file(&stat, writer, limit_bytes).map_err(planted)?;
    Ok(Some(File::from(fd)))
}

/// Reads the whole file after the tests of [`open`].
pub(crate) fn read(
    root: &DirHandle,
    below: &CStr,
    writer: Writer,
    limit_bytes: u64,
) -> Result<Option<Vec<u8>>, Error> {
    let Some(file) = open(root, below, OFlags::RDONLY, writer, limit_bytes)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    // The file may grow during the reading.
    let read = file.take(limit_bytes).read_to_end(&mut bytes);
    read.map_err(Error::host("read", &root.shown(below)))?;
    Ok(Some(bytes))
}

/// Tests whether a file can be this program's.
fn file(stat: &Stat, writer: Writer, limit_bytes: u64) -> Result<(), Untrusted> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(Untrusted::Link),
        _ => return Err(Untrusted::NoFile),
    }
    let bytes = stat.st_size.unsigned_abs();
    if bytes > limit_bytes {
        return Err(Untrusted::Large { bytes, limit_bytes });
    }
    if writer == Writer::User {
        owner(stat)?;
        if stat.st_nlink > 1 {
            #[allow(clippy::useless_conversion, reason = "the field's type differs by system")]
            return Err(Untrusted::Names { names: stat.st_nlink.into() });
        }
    }
    Ok(())
}

/// Tests whether a folder is this user's and no other user can write in it; returns its stat.
pub(crate) fn folder(fd: impl AsFd) -> Result<Result<Stat, Untrusted>, Errno> {
    let stat = fstat(fd)?;
    Ok(private(&stat).map(|()| stat))
}

fn private(stat: &Stat) -> Result<(), Untrusted> {
    owner(stat)?;
    let mode = stat.st_mode & 0o7777;
    if mode & OTHERS_WRITE == 0 { Ok(()) } else { Err(Untrusted::Writable { mode }) }
}

fn owner(stat: &Stat) -> Result<(), Untrusted> {
    let user = rustix::process::geteuid().as_raw();
    let found = stat.st_uid;
    if found == user { Ok(()) } else { Err(Untrusted::Owner { found, user }) }
}

/// Tests whether a symlink may be followed: its owner must be this user or root.
pub(crate) fn link(stat: &Stat) -> Result<(), Untrusted> {
    if stat.st_uid == 0 { Ok(()) } else { owner(stat) }
}

/// Write permission of the group and of others.
const OTHERS_WRITE: u32 = 0o022;

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, mknodat};

    use super::*;

    fn read_name(root: &DirHandle, name: &str, writer: Writer) -> Result<Option<Vec<u8>>, String> {
        let name = CString::new(name).unwrap();
        read(root, &name, writer, 8).map_err(|error| error.to_string())
    }

    #[test]
    fn only_a_short_regular_file_with_one_name_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("good"), b"12345678").unwrap();
        std::fs::write(at("long"), b"123456789").unwrap();
        std::fs::write(at("one"), b"1").unwrap();
        std::fs::hard_link(at("one"), at("two")).unwrap();
        symlink("good", at("link")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let root = DirHandle::open(folder.path()).unwrap();
        assert_eq!(read_name(&root, "none", Writer::User), Ok(None));
        for writer in [Writer::User, Writer::Anybody] {
            let read = |name| read_name(&root, name, writer);
            assert_eq!(read("good"), Ok(Some(b"12345678".to_vec())));
            for (name, found) in [
                ("long", "9 bytes; this program reads 8"),
                ("link", "a symlink"),
                ("zero", "a symlink"),
                ("pipe", "no regular file"),
                ("folder", "no regular file"),
            ] {
                let error = read(name).unwrap_err();
                assert!(error.contains(&format!("{name}: {found}")), "{error}");
            }
        }
        assert!(read_name(&root, "one", Writer::User).unwrap_err().contains("has 2 names"));
        assert_eq!(read_name(&root, "one", Writer::Anybody), Ok(Some(b"1".to_vec())));
    }

    #[test]
    fn a_folder_of_another_user_or_open_to_others_is_not_taken() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let root = DirHandle::open(folder.path()).unwrap();
        for (mode, is_accepted) in [(0o700, true), (0o755, true), (0o770, false), (0o702, false)] {
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(super::folder(root.fd()).unwrap().is_ok(), is_accepted, "{mode:o}");
        }
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        if std::os::unix::fs::chown(folder.path(), Some(65_534), None).is_err() {
            println!("skip: only root can give a folder to another user");
            return;
        }
        let found = super::folder(root.fd()).unwrap().unwrap_err();
        assert!(matches!(found, Untrusted::Owner { found: 65_534, .. }), "{found}");
    }
}
