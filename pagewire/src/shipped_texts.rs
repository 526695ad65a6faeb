// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire shipped-texts FOLDER`: man pages and completions, for makers of packages. They are
//! generated from the definition of the command line, so they cannot differ from it.
//!
//! Sources: man-pages(7); the crates `clap_mangen` and `clap_complete`.
//! Does not compress, and installs nothing.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

#[derive(Args)]
pub(crate) struct Options {
    /// Folder that the files are written into; it must be there.
    folder: PathBuf,
}

/// Writes the files for `command`, the whole command line.
pub(crate) fn run(options: &Options, command: clap::Command) -> ExitCode {
    match write(&options.folder, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let folder = options.folder.display();
            crate::failed(
                &format!("writing man pages and completions into {folder}: {error}"),
                false,
            )
        }
    }
}

fn write(folder: &Path, command: clap::Command) -> io::Result<()> {
    let name = command.get_name().to_owned();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command.clone(), &name, folder)?;
    }
    // Debian's bash-completion expects a completion under the name of its program.
    fs::rename(folder.join(format!("{name}.bash")), folder.join(OsString::from(&name)))?;
    clap_mangen::generate_to(command, folder)
}
