// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access: the served folder, and the promise that no request leaves it.
//!
//! Every name a peer sends is opened by one `openat2` with `RESOLVE_BENEATH`: the kernel itself
//! refuses `..`, absolute names and symbolic links that point out, with no race between check and
//! use. Where `openat2` is missing (before Linux 5.6, or forbidden by a sandbox) the name is walked
//! a component at a time with `O_NOFOLLOW`, which refuses every symbolic link: stricter, never
//! looser. Costs one system call per open (one per component in the second form) and one `fstat`.
//!
//! Sources: openat2(2), path_resolution(7).
//! Does not do: lists of users, passwords, TLS.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::error::Error;

/// The served folder, held open: renaming or replacing it does not change what is served.
#[derive(Debug)]
pub(crate) struct Folder {
    root: OwnedFd,
    path: PathBuf,
    beneath: bool,
}

/// Why a name was not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Denied {
    /// No such file, or a component of the name is hidden: peers cannot tell the two apart.
    #[error("no such file")]
    Missing,
    /// The name or a symbolic link in it leads out of the folder.
    #[error("leads out of the served folder")]
    Outside,
    /// A folder, device, socket or pipe.
    #[error("not a regular file")]
    NotAFile,
    /// The file is there but may not be read.
    #[error("not readable by the server")]
    Unreadable,
    /// The process has no file descriptor left.
    #[error("no file descriptor left")]
    DescriptorsSpent,
    /// Anything else the kernel said.
    #[error("{0}")]
    Host(io::Error),
}

impl Folder {
    /// Opens the folder to be served.
    ///
    /// # Errors
    /// [`Error::Folder`] if it is not a readable folder.
    pub(crate) fn open(path: &Path) -> Result<Folder, Error> {
        let refuse = |source: io::Error| Error::Folder { path: path.to_owned(), source };
        let path = path.canonicalize().map_err(refuse)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &path, flags, Mode::empty()).map_err(|e| refuse(e.into()))?;
        let probe = openat2(&root, ".", flags, Mode::empty(), ResolveFlags::BENEATH);
        let beneath = !matches!(probe, Err(Errno::NOSYS | Errno::PERM | Errno::INVAL));
        if !beneath {
            tracing::warn!("openat2 is not available: symbolic links are refused altogether");
        }
        Ok(Folder { root, path, beneath })
    }

    /// Absolute path of the folder, symbolic links resolved.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the regular file `name`, `/`-separated and relative to the folder.
    ///
    /// # Errors
    /// See [`Denied`]; nothing is opened then.
    pub(crate) fn file(&self, name: &str) -> Result<(File, Metadata), Denied> {
        let name = name.trim_start_matches('/');
        if name.is_empty() || name.contains('\0') {
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
        let opened = if self.beneath { self.open_beneath(name) } else { self.open_walking(name) };
        let file = File::from(opened.map_err(denied)?);
        let metadata = file.metadata().map_err(Denied::Host)?;
        if !metadata.is_file() {
            return Err(Denied::NotAFile);
        }
        Ok((file, metadata))
    }

    fn open_beneath(&self, name: &str) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..RACES_MAX {
            match openat2(&self.root, name, FILE_FLAGS, Mode::empty(), resolve) {
                // A rename beside the walk: the kernel cannot vouch for the result and says so.
                Err(Errno::AGAIN) => continue,
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    fn open_walking(&self, name: &str) -> Result<OwnedFd, Errno> {
        let (folders, last) = name.rsplit_once('/').unwrap_or(("", name));
        let mut at: Option<OwnedFd> = None;
        for component in folders.split('/').filter(|c| !c.is_empty() && *c != ".") {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let base = at.as_ref().unwrap_or(&self.root);
            at = Some(openat(base, component, flags, Mode::empty())?);
        }
        let base = at.as_ref().unwrap_or(&self.root);
        openat(base, last, FILE_FLAGS | OFlags::NOFOLLOW, Mode::empty())
    }
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
        Errno::MFILE | Errno::NFILE => Denied::DescriptorsSpent,
        other => Denied::Host(other.into()),
    }
}

/// NONBLOCK: opening a named pipe must not wait for its other end.
const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const RACES_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
            assert_eq!(folder.file("in").is_ok(), beneath, "links inside need openat2");
            for bad in ["out", "up/secret", "loop", "../secret", "deep/../../secret"] {
                assert!(
                    matches!(folder.file(bad), Err(Denied::Outside | Denied::Missing)),
                    "{bad}"
                );
            }
            for bad in [".hidden", ".git/config", "none", "", "/", "a.ts/x", "a\0b"] {
                assert!(matches!(folder.file(bad), Err(Denied::Missing)), "{bad:?}");
            }
            assert!(matches!(folder.file("deep"), Err(Denied::NotAFile)));
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
