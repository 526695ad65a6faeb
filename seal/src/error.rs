// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong, in the kinds of the house: a caller's wrong option or key, a host's refusal,
//! and what a file turned out to hold. A file's error is that file's alone; the others go on.

use std::io;
use std::path::{Path, PathBuf};

use crate::epub::BookFault;
use crate::folder::opener::SealedFileFault;
use crate::manifest::ManifestDamage;
use crate::trust::Untrusted;

/// Why something was not sealed, unsealed or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: a setting, or a key that it names, is refused.
    #[error("{option}: {found}; {cure}")]
    Option {
        /// The setting: a field of the options by its name, or the name that the caller gave to the
        /// source of a key.
        option: &'static str,
        /// What was found. Never a secret.
        found: String,
        /// What to write.
        cure: String,
    },
    /// Host: a system call failed.
    #[error("{call} {}: {source}{}", object.display(), cure(call, source))]
    Host {
        /// The call.
        call: &'static str,
        /// On what.
        object: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file cannot be taken, or not as it is.
    #[error("{}: {fault}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was found and what to do.
        fault: FileFault,
    },
}

/// What is wrong with a file, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// The source is not what it was when it was opened.
    #[error("changed while it was read; seal it again when nothing writes to it")]
    Changed,
    /// The target is there and is not this run's to replace.
    #[error("is there already; replace it by force")]
    Exists,
    /// The target is a symlink, a pipe, a device or a folder, which nothing replaces.
    #[error("is there already and is no regular file, which force does not replace; remove it")]
    Obstructed,
    /// The target is this program's, of what the source was before.
    #[error("was sealed from an earlier state of its source; seal it again by force")]
    Older,
    /// Sealed files of this folder were written to since; no failure.
    #[error("{} not as sealed, such as {name}: sealed again", counted(*.count, "file"))]
    Again {
        /// How many.
        count: u64,
        /// One of them.
        name: String,
    },
    /// A symlink.
    #[error("a symlink, which is not followed; put what it means in its place")]
    Symlink,
    /// A pipe, a socket, a device.
    #[error("no regular file; keep it elsewhere")]
    Special,
    /// A name that this program needs.
    #[error("a name of this program's own; rename it, or seal the folder that was sealed here")]
    Reserved,
    /// A name of this program's that is not what this program made.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// Its journal is damaged, or not for this run.
    #[error(transparent)]
    Manifest(#[from] ManifestDamage),
    /// A sealed file does not open, or to something else.
    #[error(transparent)]
    Sealed(#[from] SealedFileFault),
    /// Of a film, or of what it was made into.
    #[error(transparent)]
    Stream(#[from] Box<crate::hls::FilmFault>),
    /// Not what the form of protection takes, and left alone. No failure.
    #[error("passed over: {reason}")]
    PassedOver {
        /// Why, and what would be taken.
        reason: String,
    },
    /// Nothing that the form of protection takes.
    #[error("nothing here to be worked on: no {wanted}")]
    Nothing {
        /// What was looked for.
        wanted: &'static str,
    },
    /// A publication that cannot be taken.
    #[error(transparent)]
    Book(#[from] BookFault),
}

impl FileFault {
    /// True of a film that the key at hand does not open.
    pub fn is_other_key(&self) -> bool {
        matches!(self, FileFault::Stream(fault) if **fault == crate::hls::FilmFault::OtherKey)
    }
}

impl Error {
    /// True when the command line is at fault (exit status 2).
    pub fn is_caller(&self) -> bool {
        matches!(self, Error::Option { .. })
    }

    /// A file's fault.
    pub fn file(path: &Path, fault: FileFault) -> Self {
        Error::File { path: path.to_owned(), fault }
    }

    /// A system call's failure: for `map_err`.
    pub fn host(call: &'static str, object: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Error::Host { call, object: object.to_owned(), source }
    }
}

/// What to do about a system call's failure; empty where that cannot be said.
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

/// Takes symlinks and special files out of what was found and cannot be worked on: they are named
/// and are no failures, for nothing that could have been done was left undone.
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

/// A count with its noun, such as `1 file` and `2 files`.
pub fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
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
            let said = error.to_string();
            assert!(
                said.starts_with("open films: ") && said.contains(&format!("; {cure}")),
                "{said}"
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
        let said: Vec<_> = passed.iter().map(ToString::to_string).collect();
        assert!(said[0].starts_with("a: passed over: a symlink"), "{said:?}");
        assert!(said[1].starts_with("c: passed over: no regular file"), "{said:?}");
        assert_eq!((said.len(), refused.len()), (2, 2));
    }

    #[test]
    fn one_is_counted_without_an_s() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "file")), ["0 files", "1 file", "2 files"]);
    }
}
