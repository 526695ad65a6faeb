// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the other program of the pair `pagewire` and `pagewire-lab`.
//!
//! The other program is expected beside the running program, where one build or one installation
//! puts both; otherwise PATH is searched. Only absolute folders of PATH are searched, so that no
//! program of the working folder is run.
//!
//! Sources: git(1), whose subcommands are found in the same way; execvp(3), which skips files that
//! cannot be executed; environ(7), "PATH".
//! Does not compare versions.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the absolute path of the program `name`; `None` if it is neither beside this program nor
/// in PATH.
pub fn installed(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_ref().and_then(|own| own.parent()).map(|folder| folder.join(name));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&paths).map(|folder| folder.join(name));
    beside.into_iter().chain(on_path).find(|file| file.is_absolute() && is_program(file))
}

/// True for a regular file with an execute permission bit.
fn is_program(file: &Path) -> bool {
    let found = file.metadata();
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
