// SPDX-License-Identifier: MIT OR Apache-2.0
//! Roles of the guest as a child of itself: workloads that need a second process start the same
//! program again with `role=NAME` as its first word.
//!
//! A root folder then needs no second file, and a child costs the start of this program.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::workloads::context_switch::TOKEN_BYTES;

/// This program, wherever it lies.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Runs the role named by the words; none when they name none.
pub(crate) fn play(words: &[String]) -> Option<ExitCode> {
    let role = words.first()?.strip_prefix("role=")?;
    let outcome = match (role, words.get(1)) {
        ("exit", None) => Ok(()),
        ("echo", None) => echo(),
        ("exec", Some(left)) => exec(left),
        _ => Err(io::Error::other("no such role")),
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest: not ok role {role}: {error}");
            ExitCode::FAILURE
        }
    })
}

/// Gives back every token until there are no more.
fn echo() -> io::Result<()> {
    // Unbuffered: the locks of the standard library would read ahead and write late.
    let mut source = io::PipeReader::from(rustix::io::dup(io::stdin())?);
    let mut target = io::PipeWriter::from(rustix::io::dup(io::stdout())?);
    let mut token = [0; TOKEN_BYTES];
    loop {
        match source.read_exact(&mut token) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            outcome => outcome?,
        }
        target.write_all(&token)?;
    }
}

/// Puts the same program into its own place `left` times.
fn exec(left: &str) -> io::Result<()> {
    let left: u64 = left.parse().map_err(io::Error::other)?;
    match left.checked_sub(1) {
        None => Ok(()),
        Some(left) => Err(Command::new(SELF).args(["role=exec", &left.to_string()]).exec()),
    }
}
