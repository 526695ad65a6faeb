// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other programs, run with a time limit: a program that exceeds it is killed, by its process ID.
//!
//! Their output goes to unnamed files, so no pipe can fill up and block them.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Result of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Outcome {
    /// Returns the standard output of a program that succeeded.
    #[track_caller]
    pub(crate) fn succeeded(self) -> Vec<u8> {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
        self.stdout
    }
}

/// Runs a program to its end. Returns `Err` with the reason where it is not installed.
#[track_caller]
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<Outcome, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (stdout, stderr) = (unnamed_file(), unnamed_file());
    let duplicate = |file: &File| Stdio::from(file.try_clone().expect("a free descriptor"));
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(duplicate(&stdout))
        .stderr(duplicate(&stderr))
        .spawn()
        .map_err(|error| format!("{name}: not installed: {error}"))?;
    let status = wait(&mut child, limit);
    let took = began.elapsed();
    let stderr = String::from_utf8_lossy(&contents(stderr)).into_owned();
    let status = status.unwrap_or_else(|| {
        panic!("{command:?}: killed after {limit:?}; it said: {stderr}");
    });
    Ok(Outcome { status, stdout: contents(stdout), stderr, took })
}

/// Returns the exit status of a child that ends within `limit`; otherwise kills it and returns
/// `None`.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return Some(status);
        }
        if Instant::now() >= deadline {
            // It may end at this very moment.
            let _ = child.kill();
            child.wait().expect("it is our child");
            return None;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Creates a file without a name, which disappears with its last descriptor.
pub(crate) fn unnamed_file() -> File {
    tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary file")
}

/// Returns the whole content of a file that others have written to.
pub(crate) fn contents(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("a file has a beginning");
    file.read_to_end(&mut bytes).expect("what was written can be read");
    bytes
}

const LOOK_EVERY: Duration = Duration::from_millis(20);
