// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `pagewire`: one file and one line of [`Verb`] for each verb.
//!
//! Exit status: 0 done (and on SIGTERM or Ctrl-C), 1 a failure, 2 a wrong option.

#![forbid(unsafe_code)]
// Standard output may be a closed pipe, so the print macros are forbidden.
#![deny(clippy::print_stdout)]

mod config;
mod demo;
mod inspect;
mod laboratory;
mod lcp;
mod load;
mod log;
mod login;
mod passwd;
mod paths;
mod play;
mod process_title;
mod receive;
mod recordings;
mod sandbox;
mod seal;
mod serve;
mod server_trust;
mod shipped_texts;
mod sign;
mod trace;
mod unseal;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use terminal::escape::Escaped;
use terminal::{escape, interrupt, output};

/// Moves bytes from disk to wire with the fewest copies and system calls, and shows the CPU
/// cost.
#[derive(Parser)]
#[command(name = "pagewire", version, arg_required_else_help = true)]
struct Arguments {
    /// Level of the log on standard error: error, warn, info, debug, or a filter such as
    /// serve=debug.
    #[arg(long, global = true, value_name = "LEVEL", default_value = log::LEVEL)]
    log: String,
    /// Form of the log: text for people, json with an object a line for programs.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: log::LogFormat,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serves every file below a folder over HTTP and every playable one as a paced RTSP stream.
    Serve(Box<serve::Options>),
    /// Signs an address, which then opens a film without a password until it expires.
    Sign(sign::Options),
    /// Adds a user to a file of users, or changes a password.
    Passwd(passwd::Options),
    /// Plays a stream and verifies it: loss, order, lateness against its clock.
    Play(play::Options),
    /// Records streams that come in: to files that can be served at once, with figures.
    Receive(receive::Options),
    /// Finds what cameras recorded, and cuts a time out of it.
    #[command(subcommand)]
    Recordings(recordings::Verbs),
    /// Shows what is in files, whether they can be streamed, and their packet plans in figures.
    Inspect(inspect::Options),
    /// Lists the ways from file to socket by what each costs on this machine.
    Paths(paths::Options),
    /// Watches one session of a running server: when its packets were due and sent.
    Trace(trace::Options),
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
    /// Checks configuration files of `serve`, shows effective settings and their origin, and prints
    /// an example and a JSON schema.
    #[command(subcommand)]
    Config(config::Verbs),
    /// Restricts itself and becomes a program.
    #[command(hide = true)]
    Sandbox(sandbox::Options),
    /// All of it in miniature with an embedded clip, in under a minute.
    Demo(demo::Options),
    /// Writes man pages and completions, for packages.
    #[command(hide = true)]
    ShippedTexts(shipped_texts::Options),
}

fn main() -> ExitCode {
    let line: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let concealed = process_title::conceal_passwords(&line);
    // A server has a configuration file and an environment besides its command line.
    if let Some(sources) = config::Sources::of_line(&line, Box::new(|name| std::env::var_os(name)))
    {
        return match sources.load() {
            Ok(loaded) => match log::start(&loaded.log, loaded.log_format) {
                Ok(()) => serve::run(loaded, sources),
                Err(fault) => wrong(&format!("--log {}: {fault}", loaded.log)),
            },
            Err(unusable) => unusable.report(),
        };
    }
    let arguments = match Arguments::try_parse_from(&line) {
        Ok(arguments) => arguments,
        Err(error) => {
            let text = error.render().to_string();
            let masked = process_title::masked(&text);
            if masked == text {
                error.exit();
            }
            eprint!("{masked}");
            return ExitCode::from(2);
        }
    };
    if let Err(fault) = log::start(&arguments.log, arguments.log_format) {
        return wrong(&format!("--log {}: {fault}", arguments.log));
    }
    if let Err(error) = concealed {
        tracing::warn!(
            "/proc/self/mem: {error}; every user of this machine can see passwords on the command \
             line; write them to a file of --credentials"
        );
    }
    match arguments.verb {
        Verb::Serve(_) => wrong("serve: an unusable command line; see pagewire serve --help"),
        Verb::Config(verb) => config::run(&verb),
        Verb::Sign(options) => sign::run(options),
        Verb::Passwd(options) => passwd::run(options),
        Verb::Play(options) => play::run(options),
        Verb::Receive(options) => receive::run(options),
        Verb::Recordings(verb) => recordings::run(&verb),
        Verb::Inspect(options) => inspect::run(&options),
        Verb::Paths(options) => paths::run(options),
        Verb::Load(options) => load::run(options),
        Verb::Trace(options) => trace::run(options),
        Verb::Seal(options) => seal::run(options),
        Verb::Unseal(options) => unseal::run(options),
        Verb::Lab(_) if arguments.log != log::LEVEL => {
            wrong("lab: --log is for the other verbs; leave it out")
        }
        Verb::Lab(options) => laboratory::run(&options),
        Verb::Lcp(options) => lcp::run(options),
        Verb::Sandbox(options) => sandbox::run(&options),
        Verb::Demo(options) => demo::run(options),
        Verb::ShippedTexts(options) => shipped_texts::run(&options, Arguments::command()),
    }
}

/// Reports a wrong command line; exit status 2.
fn wrong(message: &str) -> ExitCode {
    eprintln!("pagewire: {}", Escaped(process_title::masked(message)));
    ExitCode::from(2)
}

/// Reports all faults of a file; exit status 2.
fn all_wrong(faults: &[String]) -> ExitCode {
    for fault in faults {
        wrong(fault);
    }
    ExitCode::from(2)
}

/// Reports an error; exit status 2 where the command line is at fault, otherwise 1.
fn failed(error: &(impl std::fmt::Display + ?Sized), is_caller: bool) -> ExitCode {
    eprintln!("pagewire: {}", Escaped(process_title::masked(&error.to_string())));
    ExitCode::from(if is_caller { 2 } else { 1 })
}

/// Starts a tokio runtime for control work: two threads are enough, because media does not run
/// here.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}
