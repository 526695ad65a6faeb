// SPDX-License-Identifier: MIT OR Apache-2.0
//! Roles of the guest as a child of itself: a workload that needs a second process starts the same
//! program again with `role=NAME` as its first word.
//!
//! So the root folder needs no second program, and a child costs the start of this one.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::workloads::context_switch::TOKEN_BYTES;

/// Path of this program, in any folder.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Runs the role that the words name; returns none when they name none.
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

/// Writes back every token until the input ends.
fn echo() -> io::Result<()> {
    // Bypasses the buffers of the standard library, which would read ahead and write late.
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

/// Replaces this process with the same program `left` times.
fn exec(left: &str) -> io::Result<()> {
    let left: u64 = left.parse().map_err(io::Error::other)?;
    match left.checked_sub(1) {
        None => Ok(()),
        Some(left) => Err(Command::new(SELF).args(["role=exec", &left.to_string()]).exec()),
    }
}
