// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the program `pagewire`, whose server, clients and recorder some experiments run.
//!
//! Sources: [`terminal::installed`].
//! Does not compare versions; [`measure::HostFacts`] notes the commit of this program.

use std::path::PathBuf;

use measure::Error;

/// Returns the path of `pagewire`.
///
/// # Errors
/// [`Error::Unavailable`] where there is none, with the command that builds it.
pub(crate) fn pagewire() -> Result<PathBuf, Error> {
    terminal::installed(NAME).ok_or_else(|| Error::Unavailable {
        need: "the program pagewire",
        found: "it is neither beside this program nor in PATH; cargo build --release --package \
                pagewire"
            .to_owned(),
    })
}

const NAME: &str = "pagewire";
