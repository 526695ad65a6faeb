// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `pagewire`: one file and one line of [`Verb`] for each verb.
//!
//! Exit status: 0 done (and on SIGTERM or Ctrl-C), 1 something failed, 2 a wrong option.

#![forbid(unsafe_code)]
// Standard output is written in one place: it may be a closed pipe.
#![deny(clippy::print_stdout)]

mod config;
mod demo;
mod inspect;
mod laboratory;
mod lcp;
mod load;
mod log;
mod paths;
mod play;
mod receive;
mod seal;
mod serve;
mod unseal;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use terminal::escape::Escaped;
use terminal::{escape, interrupt, output};
use tracing_subscriber::EnvFilter;

/// Moves bytes from disk to wire with the fewest copies and system calls, and shows the CPU
/// cost.
#[derive(Parser)]
#[command(name = "pagewire", version, arg_required_else_help = true)]
struct Arguments {
    /// Level of the log on standard error: error, warn, info, debug, or a filter such as
    /// serve=debug.
    #[arg(long, global = true, value_name = "LEVEL", default_value = LOG_LEVEL)]
    log: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serves every file below a folder over HTTP and every playable one as a paced RTSP stream.
    Serve(Box<serve::Options>),
    /// Plays a stream and verifies it: loss, order, lateness against its clock.
    Play(play::Options),
    /// Records streams that come in: to files that can be served at once, with figures.
    Receive(receive::Options),
    /// Shows what is in files, whether they can be streamed, and their packet plans in figures.
    Inspect(inspect::Options),
    /// Lists the ways from file to socket by what each costs on this machine.
    Paths(paths::Options),
    /// Plays many sessions at once: how many stay timely, and what breaks first.
    Load(load::Options),
    /// Encrypts a library file by file, at the throughput of the cipher unit.
    Seal(seal::Options),
    /// Opens what was sealed.
    Unseal(unseal::Options),
    /// Measures this machine: paths, sessions, copies, ciphers, sealing; compares measurements.
    Lab(laboratory::Options),
    /// Makes certificates with which a provider of Readium LCP tests sealing.
    Lcp(lcp::Options),
    /// All of it in miniature with an embedded clip, in under a minute.
    Demo(demo::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A file can have mp4_atom write a line a byte, without the file's name; what is wrong with a
    // file is said once, by whoever reads it. A client can have h2 write a warning a frame.
    let wanted = format!("{},mp4_atom=off,h2=error", arguments.log);
    let filter = match EnvFilter::try_new(&wanted) {
        Ok(filter) => filter,
        Err(error) => return wrong(&format!("--log {}: {error}; write warn", arguments.log)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .fmt_fields(log::fields())
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match arguments.verb {
        Verb::Serve(options) => serve::run(*options),
        Verb::Play(options) => play::run(options),
        Verb::Receive(options) => receive::run(options),
        Verb::Inspect(options) => inspect::run(&options),
        Verb::Paths(options) => paths::run(options),
        Verb::Load(options) => load::run(options),
        Verb::Seal(options) => seal::run(options),
        Verb::Unseal(options) => unseal::run(options),
        Verb::Lab(_) if arguments.log != LOG_LEVEL => {
            wrong("lab: --log is for the other verbs; leave it out")
        }
        Verb::Lab(options) => laboratory::run(&options),
        Verb::Lcp(options) => lcp::run(options),
        Verb::Demo(options) => demo::run(options),
    }
}

/// Level of the log where none is asked for.
const LOG_LEVEL: &str = "warn";

/// Reports a wrong command line; exit status 2.
fn wrong(message: &str) -> ExitCode {
    eprintln!("pagewire: {}", Escaped(message));
    ExitCode::from(2)
}

/// Reports an error; exit status 2 where the command line is at fault, else 1.
fn failed(error: &(impl std::fmt::Display + ?Sized), is_caller: bool) -> ExitCode {
    eprintln!("pagewire: {}", Escaped(error));
    ExitCode::from(if is_caller { 2 } else { 1 })
}

/// Starts a tokio runtime for control work: two threads are enough, as media does not run here.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}
