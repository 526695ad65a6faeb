// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the program `pagewire`, whose server, clients and recorder some experiments run.
//!
//! It lies beside this program, where one build or one installation puts both; else PATH is
//! searched.
//!
//! Sources: environ(7), "PATH".
//! Does not compare versions; [`measure::HostFacts`] notes the commit of this program.

use std::path::PathBuf;

use measure::Error;

/// The path of `pagewire`.
///
/// # Errors
/// [`Error::Unavailable`] where there is none, with the line that builds it.
pub(crate) fn pagewire() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(Error::host("the path of this program"))?;
    let beside = own.parent().map(|folder| folder.join(NAME));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&paths).map(|folder| folder.join(NAME));
    beside.into_iter().chain(on_path).find(|file| file.is_file()).ok_or_else(|| {
        Error::Unavailable {
            need: "the program pagewire",
            found: format!(
                "it is neither beside {} nor in PATH; cargo build --release --package pagewire",
                own.display()
            ),
        }
    })
}

const NAME: &str = "pagewire";
