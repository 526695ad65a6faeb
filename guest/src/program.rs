// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program of the root folder as a check; its output goes straight to the console.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use crate::error::Error;
use crate::protocol::ConsoleLine;

/// Folders searched for programs: the kernel gives the first process no PATH.
const PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";

/// Returns a command with a PATH and without input.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    if std::env::var_os("PATH").is_none() {
        command.env("PATH", PATH);
    }
    command
}

/// Runs the program to its end; anything but exit status 0 is an error.
pub(crate) fn run(words: &[String]) -> Result<(), Error> {
    let (program, arguments) = words.split_first().expect("the request has a program");
    let status = command(program)
        .args(arguments)
        .status()
        .map_err(Error::host("execve", program.as_str()))?;
    succeeded(&words.join(" "), status)?;
    ConsoleLine::Ok(&format!("run {}", words.join(" "))).say();
    Ok(())
}

/// Returns an error unless the program ended with exit status 0.
pub(crate) fn succeeded(what: &str, status: ExitStatus) -> Result<(), Error> {
    if status.success() {
        return Ok(());
    }
    let found = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "an unknown end".to_owned(),
    };
    Err(Error::Wrong { what: what.to_owned(), expected: "exit status 0".into(), found })
}
