// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts the calling program again in a network namespace of its own.
//!
//! A measurement that sends must not use the machine's network. The program replaces itself
//! ([`enter`]), which keeps terminal, signals and files of the process that the user started; or it
//! runs itself as a child and reads the child's output ([`inside`]). The hidden option [`INSIDE`]
//! informs the program that it runs in the namespace.
//!
//! Sources: unshare(1), network_namespaces(7).
//! Does not make devices; [`crate::network`] does.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::network::private;

/// The option that a program appends when it starts itself in a namespace.
pub const INSIDE: &str = "--inside";

/// Replaces this process by itself, with the same `arguments` and [`INSIDE`], in a network
/// namespace of its own. Returns only when that fails.
pub fn enter(arguments: impl Iterator<Item = OsString>) -> Error {
    let failed = |error: std::io::Error| Error::Host {
        what: "starting again in a network namespace".to_owned(),
        found: error.to_string(),
    };
    match (private(), std::env::current_exe()) {
        (Ok(mut command), Ok(program)) => {
            failed(command.arg(program).args(arguments).arg(INSIDE).exec())
        }
        (Err(error), _) => error,
        (_, Err(error)) => failed(error),
    }
}

/// Runs this program with `arguments` and [`INSIDE`] in a network namespace of its own; returns
/// its standard output.
///
/// # Errors
/// [`Error::Unavailable`] where no namespace can be made, [`Error::Host`] with the program's
/// standard error where it fails.
pub fn inside(arguments: &[&str]) -> Result<String, Error> {
    let failed = |found: String| Error::Host {
        what: format!("measuring in a network of its own ({})", arguments.join(" ")),
        found,
    };
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command: Command = private()?;
    command.arg(program).args(arguments).arg(INSIDE);
    command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}
