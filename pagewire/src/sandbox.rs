// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire sandbox`: restricts itself and executes a program that decodes untrusted files.
//! `pagewire serve` starts it; it is not listed in `--help`.
//!
//! A process that restricts itself before execve needs no code between fork and exec, which would
//! have to be unsafe.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use ::sandbox::{DecoderLimits, become_decoder};
use clap::Args;

#[derive(Args)]
pub(crate) struct Options {
    /// Process that wants the result; without it there is nothing to do.
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// Processor time that the program may use.
    #[arg(long, value_name = "SECONDS")]
    cpu_seconds: u64,
    /// Address space that the program may use.
    #[arg(long, value_name = "BYTES")]
    memory_bytes: u64,
    /// The program.
    program: PathBuf,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let Options { parent, cpu_seconds: cpu_s, memory_bytes, program, arguments } = options;
    let limits = DecoderLimits { cpu_s: *cpu_s, memory_bytes: *memory_bytes };
    crate::failed(&become_decoder((program, arguments), *parent, limits), false)
}
