// SPDX-License-Identifier: MIT OR Apache-2.0
//! First process of both kernel laboratories, User Mode Linux and QEMU: sets the machine up, runs
//! the workloads and checks that the command line names, and switches off.
//!
//! One static program is the whole user space, so that nothing runs beside the measured code and a
//! boot takes a fraction of a second. As a normal program (not process 1) it runs the same
//! workloads on the host, mounts nothing and switches nothing off; tests run it that way.
//!
//! An error is one line `guest: not ok`, after which the machine is switched off without the last
//! line `guest: end`, for which the laboratory waits.
//!
//! Sources: the kernel's `Documentation/admin-guide/init.rst`. `guest/src/protocol.rs` defines the
//! printed lines, `guest/src/request.rs` the words of the command line, `guest/src/settings.rs` its
//! settings.
//!
//! Does not serve a terminal, does not collect processes that are not its own, and ends after the
//! run.
#![forbid(unsafe_code)]

mod error;
mod fixture;
mod fpu;
mod guest_job;
mod jobs;
mod machine;
mod memcpy_sizes;
mod meter;
mod network;
mod paths;
mod program;
mod protocol;
mod request;
mod role;
mod settings;
mod unixbench;
mod verify;
mod workloads;

use std::panic;
use std::process::ExitCode;

use error::Error;
use protocol::ConsoleLine;
use request::{CommandLine, Task};

fn main() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let is_first = machine::is_ours();
    if !is_first && let Some(outcome) = role::play(&words) {
        return outcome;
    }
    // Catches panics: the kernel panics when its first process dies.
    panic::set_hook(Box::new(|panic| ConsoleLine::NotOk(&panic.to_string()).say()));
    let outcome = match panic::catch_unwind(|| run(words, is_first)) {
        Ok(Ok(())) => {
            ConsoleLine::End.say();
            ExitCode::SUCCESS
        }
        Ok(Err(error)) => {
            ConsoleLine::NotOk(&error.to_string()).say();
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    };
    if is_first && let Err(error) = machine::power_off() {
        ConsoleLine::NotOk(&error.to_string()).say();
    }
    outcome
}

fn run(words: Vec<String>, is_first: bool) -> Result<(), Error> {
    let request = CommandLine::parse(words)?;
    let settings = &request.settings;
    if is_first {
        machine::set_up(settings)?;
    }
    for task in &request.tasks {
        match task {
            Task::Workloads(list) => workloads::run(list, settings)?,
            Task::Job(job) => (job.run)(settings)?,
            Task::Program(words) => program::run(words)?,
        }
    }
    Ok(())
}
