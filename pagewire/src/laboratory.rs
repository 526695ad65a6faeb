// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab`: replaces itself with the program `pagewire-lab`, with the same arguments.
//!
//! The laboratory holds a tracer, a disassembler and performance counters, which do not belong in a
//! server's program. Its program is searched for beside this one, where one build puts both, and in
//! PATH.
//!
//! Sources: [`terminal::installed`]; execve(2).
//! Does not parse the arguments.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;

use crate::escape::Escaped;

#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// An experiment and its options; without one the experiments are listed.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Returns only when the program is missing or cannot be started.
pub(crate) fn run(options: &Options) -> ExitCode {
    let Some(program) = terminal::installed(NAME) else {
        eprintln!(
            "pagewire: lab: the laboratory is a program of its own, {NAME}, and is neither beside \
             this program nor in PATH; in the checkout: cargo install --locked --path lab"
        );
        return ExitCode::FAILURE;
    };
    let error = Command::new(&program).args(&options.arguments).exec();
    eprintln!(
        "pagewire: lab: starting {}: {error}; install it again: cargo install --locked --path lab",
        Escaped(program.display())
    );
    ExitCode::FAILURE
}

const NAME: &str = "pagewire-lab";
