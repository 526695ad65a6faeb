// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of access that cannot be used. A client's wrong credentials are a
//! [`crate::AccessVerdict`], never an error.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Reason why a policy cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Caller: an option has an unusable value.
    #[error("{option}: {found}; {cure}")]
    Option {
        /// The option as written on the command line.
        option: &'static str,
        /// Value found.
        found: String,
        /// Value to write.
        cure: String,
    },
}

impl Error {
    pub(crate) fn option(
        option: &'static str,
        found: impl Into<String>,
        cure: impl Into<String>,
    ) -> Error {
        Error::Option { option, found: found.into(), cure: cure.into() }
    }

    /// Fault in a line of a file, which is shown by its number alone: it may hold a secret.
    pub(crate) fn line(
        option: &'static str,
        (path, line): (&Path, usize),
        found: &str,
        cure: impl Into<String>,
    ) -> Error {
        Error::option(option, format!("{}:{line}: {found}", path.display()), cure)
    }
}

/// Reads the text that an option names; `cure` explains how to make such a file.
pub(crate) fn text_of(option: &'static str, path: &Path, cure: &str) -> Result<String, Error> {
    let shown = path.display();
    let is_large = fs::metadata(path).is_ok_and(|found| found.len() > FILE_BYTES_MAX);
    if is_large {
        let found = format!("{shown}: larger than {FILE_BYTES_MAX} bytes");
        return Err(Error::option(option, found, cure));
    }
    let bytes = fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::option(option, format!("{shown}: no such file"), cure),
        ErrorKind::IsADirectory => {
            Error::option(option, format!("{shown}: a folder"), "name the file in it")
        }
        _ => Error::option(option, format!("{shown}: {error}"), "name a file that you can read"),
    })?;
    String::from_utf8(bytes)
        .map_err(|_| Error::option(option, format!("{shown}: text that is not UTF-8"), cure))
}

/// Returns the lines of a file with their numbers, without empty lines and comments.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = (1..).zip(text.lines().map(str::trim));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Room for some hundred thousand users.
const FILE_BYTES_MAX: u64 = 32 << 20;
