// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of sealing: a caller's wrong option or key, a failed system call, and faults of a file. A
//! fault of one file stops that file only.

use std::io;
use std::path::{Path, PathBuf};

use crate::epub::BookFault;
use crate::folder::fault::SealedFileFault;
use crate::hls::FilmFault;
use crate::manifest::ManifestDamage;
use crate::plural::counted;
use crate::untrusted::Untrusted;

/// Reason why something was not sealed, unsealed or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: an option, or the key that it names, is refused.
    #[error("{option}: {found}; {cure}")]
    Option {
        /// The option: the name of the options' field, or the caller's name for the source of a
        /// key.
        option: &'static str,
        /// Value found. Never a secret.
        found: String,
        /// Value to write instead.
        cure: String,
    },
    /// Host: a system call failed.
    #[error("{call} {}: {source}{}", object.display(), cure(call, source))]
    Host {
        /// Name of the call.
        call: &'static str,
        /// Path that the call was made on.
        object: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file is refused in its present state.
    #[error("{}: {fault}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The fault, with its cure.
        fault: FileFault,
    },
}

/// Fault of a file, with its cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// The source has changed since it was opened.
    #[error("changed while it was read; seal it again when nothing writes to it")]
    Changed,
    /// The target exists, and this run may not replace it.
    #[error("is there already; replace it by force")]
    Exists,
    /// The target is a symlink, a pipe, a device or a folder; force does not replace it.
    #[error("is there already and is no regular file, which force does not replace; remove it")]
    Obstructed,
    /// This program made the target from an earlier state of the source.
    #[error("was sealed from an earlier state of its source; seal it again by force")]
    Older,
    /// Sealed files of this folder were changed and are sealed again; no failure.
    #[error("{} not as sealed, such as {name}: sealed again", counted(*.count, "file"))]
    Again {
        /// Number of files.
        count: u64,
        /// Name of one of them.
        name: String,
    },
    /// The source is a symlink.
    #[error("a symlink, which is not followed; put what it means in its place")]
    Symlink,
    /// The source is a pipe, a socket or a device.
    #[error("no regular file; keep it elsewhere")]
    Special,
    /// The source has a name that this program reserves.
    #[error("a name of this program's own; rename it, or seal the folder that was sealed here")]
    Reserved,
    /// A file or folder with one of this program's names is not accepted as its own.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The folder's journal is damaged, or not for this run.
    #[error(transparent)]
    Manifest(#[from] ManifestDamage),
    /// A sealed file does not open, or has other content than its record.
    #[error(transparent)]
    Sealed(#[from] SealedFileFault),
    /// Fault of a film, or of its sealed folder.
    #[error(transparent)]
    Stream(#[from] Box<FilmFault>),
    /// The form of protection does not process this file and skips it; no failure.
    #[error("passed over: {reason}")]
    PassedOver {
        /// The reason, with the files that the form processes.
        reason: String,
    },
    /// The source has no file that the form of protection processes.
    #[error("nothing here to be worked on: no {wanted}")]
    Nothing {
        /// Kind of files that was searched for.
        wanted: &'static str,
    },
    /// Fault of a publication.
    #[error(transparent)]
    Book(#[from] BookFault),
}

impl From<FilmFault> for FileFault {
    fn from(fault: FilmFault) -> Self {
        FileFault::Stream(Box::new(fault))
    }
}

impl FileFault {
    /// Returns true for a film that this key does not open.
    pub fn is_other_key(&self) -> bool {
        matches!(self, FileFault::Stream(fault) if **fault == FilmFault::OtherKey)
    }
}

impl Error {
    /// Returns true when the command line is at fault (exit status 2).
    pub fn is_caller(&self) -> bool {
        matches!(self, Error::Option { .. })
    }

    /// Returns the error for a file's fault.
    pub fn file(path: &Path, fault: FileFault) -> Self {
        Error::File { path: path.to_owned(), fault }
    }

    /// Returns a function for `map_err` that makes the error of a failed system call.
    pub fn host(call: &'static str, object: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Error::Host { call, object: object.to_owned(), source }
    }
}

/// Returns the cure of a failed system call; empty when none is known.
fn cure(call: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if call == "mkdir" => "; name a folder where files can be made",
        io::ErrorKind::NotFound => "; name one that is there",
        io::ErrorKind::PermissionDenied => {
            "; give this user the right to it (ls -ld), or run as one who has it"
        }
        io::ErrorKind::NotADirectory => "; name a folder",
        io::ErrorKind::IsADirectory => "; name a file",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room and run the same command again, which goes on from here"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; name a place that can be written to",
        io::ErrorKind::FileTooLarge => "; name a target on a file system for files of that size",
        _ if error.raw_os_error() == Some(EMFILE) => {
            "; allow more open files (ulimit -n) or use fewer threads"
        }
        _ => "",
    }
}

/// Too many open files.
const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();

/// Removes symlinks and special files from `refused` and returns them as passed over: they are
/// reported and are no failures, as no form could have sealed them.
pub(crate) fn passed_over(refused: &mut Vec<Error>) -> Vec<Error> {
    let is_other = |error: &mut Error| {
        matches!(error, Error::File { fault: FileFault::Symlink | FileFault::Special, .. })
    };
    let pass = |error: Error| match error {
        Error::File { path, fault } => {
            Error::File { path, fault: FileFault::PassedOver { reason: fault.to_string() } }
        }
        error => error,
    };
    refused.extract_if(.., is_other).map(pass).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_can_mend_is_said_with_its_cure() {
        for (code, cure) in
            [(2, "name one that is there"), (13, "give this user"), (28, "make room")]
        {
            let error = Error::host("open", Path::new("films"))(io::Error::from_raw_os_error(code));
            let message = error.to_string();
            assert!(
                message.starts_with("open films: ") && message.contains(&format!("; {cure}")),
                "{message}"
            );
        }
        let error = Error::host("read", Path::new("films"))(io::Error::from_raw_os_error(5));
        assert!(error.to_string().ends_with("(os error 5)"), "{error}");
    }

    #[test]
    fn links_and_special_files_are_passed_over_and_what_failed_is_not() {
        let file = |name: &str, fault| Error::file(Path::new(name), fault);
        let mut refused = vec![
            file("a", FileFault::Symlink),
            file("b", FileFault::Changed),
            file("c", FileFault::Special),
            Error::host("list", Path::new("d"))(io::Error::from_raw_os_error(13)),
        ];
        let passed = passed_over(&mut refused);
        let messages: Vec<_> = passed.iter().map(ToString::to_string).collect();
        assert!(messages[0].starts_with("a: passed over: a symlink"), "{messages:?}");
        assert!(messages[1].starts_with("c: passed over: no regular file"), "{messages:?}");
        assert_eq!((messages.len(), refused.len()), (2, 2));
    }
}
