// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens files of the served folder; no request leaves it.
//!
//! A name without symbolic links is opened by one `openat2` with `RESOLVE_BENEATH` and
//! `RESOLVE_NO_SYMLINKS`. A name with links, or any name where `openat2` is missing (before Linux
//! 5.6, or forbidden by a sandbox), is walked here: each component is opened with `O_NOFOLLOW` from
//! the descriptor of the one before, and the target of a link is walked the same way. So every
//! component is checked by its own name, also inside links: an absolute target, a `..` above the
//! folder and a hidden component are refused, and a concurrent rename does not change what was
//! checked. Costs one system call per open without links and one `fstat`; the walk costs one call
//! per component and two per link.
//!
//! Sources: openat2(2), path_resolution(7), symlink(7).
//! Does not have users, passwords or TLS.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileType, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat};
use rustix::io::Errno;
use wire::http::path_bytes;

use crate::error::Error;

/// The served folder, held open: renaming or replacing it does not change what is served.
#[derive(Debug)]
pub(crate) struct Folder {
    root: OwnedFd,
    path: PathBuf,
    beneath: bool,
}

/// Reason why a name was not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Denied {
    /// No such file, or a component of the name is hidden: peers cannot distinguish the two.
    #[error("no such file")]
    Missing,
    /// The name or a symbolic link in it leads out of the folder, or in a circle.
    #[error("leads out of the served folder")]
    Outside,
    /// A folder, device, socket or pipe.
    #[error("not a regular file")]
    NotAFile,
    /// The file exists but may not be read.
    #[error("not readable by the server")]
    Unreadable,
    /// The process has no file descriptor left.
    #[error("no file descriptor left")]
    DescriptorsExhausted,
    /// Any other error of the kernel.
    #[error("{0}")]
    Host(io::Error),
}

impl Folder {
    /// Opens the folder to be served.
    ///
    /// # Errors
    /// [`Error::Folder`] if `path` is not a readable folder.
    pub(crate) fn open(path: &Path) -> Result<Folder, Error> {
        let refuse = |source: io::Error| Error::Folder { path: path.to_owned(), source };
        let path = path.canonicalize().map_err(refuse)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &path, flags, Mode::empty()).map_err(|e| refuse(e.into()))?;
        let probe = openat2(&root, ".", flags, Mode::empty(), ResolveFlags::BENEATH);
        let beneath = !matches!(probe, Err(Errno::NOSYS | Errno::PERM | Errno::INVAL));
        Ok(Folder { root, path, beneath })
    }

    /// Absolute path of the folder, symbolic links resolved.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file or folder, which is not looked at.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(OsStr::from_bytes(&path_bytes(name).unwrap_or_default()))
    }

    /// Returns the type of the file or folder of this name, for a link its own; `None` where it is
    /// not visible.
    pub(super) fn kind_of(&self, name: &str) -> Option<FileType> {
        std::fs::symlink_metadata(self.path_of(name)).ok().map(|it| it.file_type())
    }

    /// Opens the regular file `name`, `/`-separated and relative to the folder: the text of its
    /// path ([`path_text`](wire::http::path_text)), as everywhere.
    ///
    /// # Errors
    /// See [`Denied`]; nothing is opened on error.
    pub(crate) fn file(&self, name: &str) -> Result<(File, Metadata), Denied> {
        let name = checked(name)?;
        let opened = if self.beneath { self.open_at_once(&name) } else { self.walk(&name) };
        regular(opened?)
    }

    /// Does the same as [`Folder::file`] if the kernel can do it from its caches, without waiting
    /// for a disk; `None` if it cannot, and for a name with symbolic links.
    pub(crate) fn file_in_place(&self, name: &str) -> Option<Result<(File, Metadata), Denied>> {
        let name = match checked(name) {
            Ok(name) => name,
            Err(denied) => return Some(Err(denied)),
        };
        if !self.beneath {
            return None;
        }
        let resolve = BENEATH_WITHOUT_LINKS | ResolveFlags::CACHED;
        match openat2(&self.root, &*name, FILE_FLAGS, Mode::empty(), resolve) {
            Ok(opened) => Some(regular(opened)),
            // INVAL: Linux before 5.12.
            Err(Errno::AGAIN | Errno::LOOP | Errno::INVAL) => None,
            Err(errno) => Some(Err(denied(errno))),
        }
    }

    /// Opens the folder `name` below the served one, or that one for the empty name. Follows no
    /// symbolic link, not even one within the folder.
    pub(crate) fn subfolder(&self, name: &str) -> Result<OwnedFd, Errno> {
        let name = if name.is_empty() { "." } else { name };
        let name = path_bytes(name).ok_or(Errno::NOENT)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if self.beneath {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            return openat2(&self.root, &*name, flags, Mode::empty(), resolve);
        }
        let mut at: Option<OwnedFd> = None;
        for component in name.split(|&byte| byte == b'/') {
            let base = at.as_ref().unwrap_or(&self.root);
            at = Some(openat(base, component, flags | OFlags::NOFOLLOW, Mode::empty())?);
        }
        Ok(at.expect("a split has one part at least"))
    }

    fn open_at_once(&self, name: &[u8]) -> Result<OwnedFd, Denied> {
        match openat2(&self.root, name, FILE_FLAGS, Mode::empty(), BENEATH_WITHOUT_LINKS) {
            Err(Errno::LOOP) => self.walk(name),
            other => other.map_err(denied),
        }
    }

    /// Opens `name` one component at a time and follows links the same way.
    fn walk(&self, name: &[u8]) -> Result<OwnedFd, Denied> {
        // Descriptors from the served folder to the present component; `..` returns to the one
        // before.
        let mut above: Vec<OwnedFd> = Vec::new();
        let mut rest: Vec<OsString> = components(OsStr::from_bytes(name));
        let mut links = 0;
        while let Some(component) = rest.pop() {
            let base = above.last().unwrap_or(&self.root);
            if component == ".." {
                above.pop().ok_or(Denied::Outside)?;
                continue;
            }
            if component.as_encoded_bytes().starts_with(b".") {
                return Err(Denied::Missing);
            }
            let flags = if rest.is_empty() { FILE_FLAGS } else { FOLDER_FLAGS };
            match openat(base, &component, flags | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(opened) if rest.is_empty() => return Ok(opened),
                Ok(opened) => above.push(opened),
                Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => {
                    let Ok(target) = readlinkat(base, &component, Vec::new()) else {
                        return Err(denied(errno));
                    };
                    links += 1;
                    let target = OsStr::from_bytes(target.to_bytes());
                    if links > LINKS_MAX || Path::new(target).is_absolute() {
                        return Err(Denied::Outside);
                    }
                    rest.append(&mut components(target));
                }
                Err(errno) => return Err(denied(errno)),
            }
        }
        // The name leads back to a folder.
        Err(Denied::NotAFile)
    }
}

/// Returns the bytes of the name without leading slashes if it may be opened.
fn checked(name: &str) -> Result<Cow<'_, [u8]>, Denied> {
    let name = name.trim_start_matches('/');
    if name.is_empty() || name.ends_with('/') || name.contains('\0') {
        return Err(Denied::Missing);
    }
    for component in name.split('/') {
        if component == ".." {
            return Err(Denied::Outside);
        }
        if is_hidden(component) {
            return Err(Denied::Missing);
        }
    }
    path_bytes(name).ok_or(Denied::Missing)
}

/// Returns an opened file with its metadata if it is a regular one.
fn regular(opened: OwnedFd) -> Result<(File, Metadata), Denied> {
    let file = File::from(opened);
    let metadata = file.metadata().map_err(Denied::Host)?;
    if !metadata.is_file() {
        return Err(Denied::NotAFile);
    }
    Ok((file, metadata))
}

/// Splits a path into components, the last one first, without empty ones and `.`.
fn components(path: &OsStr) -> Vec<OsString> {
    let parts = path.as_bytes().split(|&byte| byte == b'/').rev();
    let named = parts.filter(|part| !part.is_empty() && *part != b".");
    named.map(|part| OsStr::from_bytes(part).to_owned()).collect()
}

/// True for names that are never served: those that begin with a dot.
pub(crate) fn is_hidden(component: &str) -> bool {
    component.starts_with('.') && component != "."
}

fn denied(errno: Errno) -> Denied {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Denied::Missing,
        Errno::XDEV | Errno::LOOP => Denied::Outside,
        Errno::ACCESS | Errno::PERM => Denied::Unreadable,
        Errno::NXIO => Denied::NotAFile,
        Errno::MFILE | Errno::NFILE => Denied::DescriptorsExhausted,
        other => Denied::Host(other.into()),
    }
}

const BENEATH_WITHOUT_LINKS: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// Folders on the way are traversed and never read.
const FOLDER_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// NONBLOCK: opening a named pipe must not wait for its other end.
const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// As many links in one name as the kernel follows (path_resolution(7)).
const LINKS_MAX: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use wire::http::path_text;

    fn folder() -> (tempfile::TempDir, Folder) {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("served");
        std::fs::create_dir_all(root.join("deep/er")).unwrap();
        std::fs::create_dir_all(root.join(".git")).unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("a.ts"), "a").unwrap();
        std::fs::write(root.join("deep/er/b.ts"), "b").unwrap();
        std::fs::write(root.join(".hidden"), "h").unwrap();
        std::fs::write(root.join(".git/config"), "h").unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink(outside.path(), root.join("up")).unwrap();
        symlink("deep/er/b.ts", root.join("in")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("deep", root.join("sub")).unwrap();
        symlink("../.././deep//er/b.ts", root.join("deep/er/around")).unwrap();
        symlink(root.join("a.ts"), root.join("absolute")).unwrap();
        symlink(".git/config", root.join("to-hidden")).unwrap();
        symlink(".git", root.join("to-folder")).unwrap();
        symlink("../.hidden", root.join("deep/back")).unwrap();
        symlink(".git/../a.ts", root.join("through")).unwrap();
        symlink("to-hidden", root.join("twice")).unwrap();
        let folder = Folder::open(&root).unwrap();
        (outside, folder)
    }

    #[test]
    fn names_inside_open_and_nothing_else_does() {
        let (_keep, mut folder) = folder();
        for beneath in [true, false] {
            if beneath && !folder.beneath {
                eprintln!("skip: openat2 is not available here");
                continue;
            }
            folder.beneath = beneath;
            for good in ["a.ts", "/a.ts", "deep/er/b.ts", "deep//er/./b.ts"] {
                assert!(folder.file(good).is_ok(), "{good} beneath={beneath}");
            }
            for link in ["in", "sub/er/b.ts", "sub/er/around", "deep/er/around"] {
                let (mut file, _) = folder.file(link).expect(link);
                let mut text = String::new();
                io::Read::read_to_string(&mut file, &mut text).unwrap();
                assert_eq!(text, "b", "{link} beneath={beneath}");
            }
            let hidden = ["to-hidden", "to-folder/config", "deep/back", "sub/back", "twice"];
            for link in hidden.into_iter().chain(["through"]) {
                assert!(matches!(folder.file(link), Err(Denied::Missing)), "{link} {beneath}");
            }
            for bad in ["out", "up/secret", "loop", "../secret", "deep/../../secret", "absolute"] {
                assert!(
                    matches!(folder.file(bad), Err(Denied::Outside | Denied::Missing)),
                    "{bad}"
                );
            }
            for bad in [".hidden", ".git/config", "none", "", "/", "a.ts/x", "a\0b"] {
                assert!(matches!(folder.file(bad), Err(Denied::Missing)), "{bad:?}");
            }
            for folders in ["deep", "sub"] {
                assert!(matches!(folder.file(folders), Err(Denied::NotAFile)), "{folders}");
            }
        }
    }

    /// A name of Latin-1, one of UTF-8, and one whose characters stand for bytes elsewhere.
    #[test]
    fn names_of_any_bytes_open_by_their_own_text_alone() {
        let (keep, mut folder) = folder();
        let names = [&b"caf\xe9.ts"[..], "caf\u{e9}.ts".as_bytes(), "\u{10ffe9}.ts".as_bytes()];
        for bytes in names {
            std::fs::write(keep.path().join("served").join(OsStr::from_bytes(bytes)), bytes)
                .unwrap();
        }
        for beneath in [folder.beneath, false] {
            folder.beneath = beneath;
            for bytes in names {
                let (mut file, _) = folder.file(&path_text(bytes)).unwrap();
                let mut read = Vec::new();
                io::Read::read_to_end(&mut file, &mut read).unwrap();
                assert_eq!(read, bytes);
                assert!(folder.path_of(&path_text(bytes)).is_file());
            }
            // The bytes of a character, each as a character; and a name that has no such byte.
            for other in ["caf\u{10ffc3}\u{10ffa9}.ts", "\u{10ffe9}.ts"] {
                assert!(matches!(folder.file(other), Err(Denied::Missing)), "{other:?}");
            }
        }
    }

    #[test]
    fn a_named_pipe_is_refused_without_waiting() {
        let (keep, folder) = folder();
        let pipe = keep.path().join("served/pipe");
        let made = rustix::fs::mknodat(
            CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        );
        assert!(made.is_ok());
        assert!(matches!(folder.file("pipe"), Err(Denied::NotAFile)));
    }
}
