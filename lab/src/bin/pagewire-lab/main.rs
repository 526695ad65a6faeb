// SPDX-License-Identifier: MIT OR Apache-2.0
//! pagewire-lab, the program of the laboratory: runs an experiment and writes its results; compares
//! and shows measurement files; finds store-forwarding stalls.
//!
//! `pagewire lab ...` starts it with the same arguments. An experiment that sends does so in a
//! network namespace of its own ([`measure::enter`]).
//!
//! Exit status: 0 done, 1 something failed or is incomplete, 2 a wrong option.

#![forbid(unsafe_code)]
// Only one place writes to standard output, which may be a closed pipe.
#![deny(clippy::print_stdout)]

mod help;
mod stalls;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Results, Sink, Transport, Warning};

use terminal::output;
use terminal::{Escaped, EscapedLines};

/// Measures this machine: paths, sessions, copies, ciphers, sealing; compares measurements.
#[derive(Parser)]
#[command(name = "pagewire lab", version, args_conflicts_with_subcommands = true)]
#[command(disable_help_flag = true)]
struct Options {
    /// A command with options of its own.
    #[command(subcommand)]
    form: Option<Form>,
    /// An experiment; or `compare` with two measurement files, or `report` with one. Without a name
    /// the experiments are listed.
    name: Option<String>,
    /// Measurement files, for `compare` and `report`.
    files: Vec<PathBuf>,
    /// Explains the experiment that is named: what it measures, of whom, in which units, for how
    /// long, with an example.
    #[arg(short, long)]
    help: bool,
    /// Lists every figure that `compare` compared, above its verdict.
    #[arg(long)]
    all: bool,
    /// Fewer and shorter runs, with a wider spread.
    #[arg(long)]
    quick: bool,
    /// Only this transport: rtp, udp, tcp or interleaved (sessions, peers: udp, tcp); a list, or
    /// given several times.
    #[arg(long, value_name = "NAME", value_parser = transport, value_delimiter = ',')]
    transport: Vec<Transport>,
    /// Only this path, cipher, method or memcpy, and the reference; may be given several times.
    #[arg(long, visible_alias = "variant", value_name = "NAME")]
    member: Vec<String>,
    /// Bytes of a datagram, headers of RTP included, of a message, or of a file; may be given
    /// several times.
    #[arg(long, value_name = "BYTES", value_parser = size_bytes())]
    size: Vec<u32>,
    /// Sink of the packets: ifb-software, ifb-device or veth; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = sink)]
    sink: Vec<Sink>,
    /// Sends by this device of the machine, to the address in --to. Requires root.
    #[arg(long, value_name = "DEVICE", requires = "to")]
    interface: Option<String>,
    /// An address behind --interface that receives the load.
    #[arg(long, value_name = "ADDRESS", requires = "interface")]
    to: Option<Ipv4Addr>,
    /// Timed rounds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// The most rounds of `kernel`, which adds blocks of them until every spread is at most 10 %
    /// [default: 20 within 21 minutes, or --rounds where that is given].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds_max: Option<u16>,
    /// Sessions, for `sessions`, where it may be given several times, and for `pacing`; connections
    /// for `http`, several times, too.
    #[arg(long, value_name = "N")]
    sessions: Vec<usize>,
    /// Seconds of steady streaming, for `sessions` and `pacing`; of a turn, for `http`.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Threads, for `seal`; may be given several times, the first for its libraries.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// Folder in which `seal` makes and removes its own [default: a file system in memory].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Only this part of `kernel`: memcpy, vectorise, paths, fpu or check; of `http`: small, large,
    /// https or paced; may be given several times.
    #[arg(long, value_name = "NAME")]
    part: Vec<String>,
    /// The checkout whose kernel/ is built and booted [default: that of the working folder].
    #[arg(long, value_name = "FOLDER")]
    tree: Option<PathBuf>,
    /// Cores the server may use, for `sessions` [default: one, then all].
    #[arg(long, value_name = "N")]
    cores: Option<usize>,
    /// Writes a measurement file, - for standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes one row per figure.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Writes tables for a document.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Writes a page with plots, all in one file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Set by the program itself in the namespace it made.
    #[arg(long, hide = true)]
    inside: bool,
}

#[derive(Subcommand)]
enum Form {
    /// Finds loads that wait for a narrower store before them, in any program.
    Stalls(Box<stalls::Options>),
}

fn main() -> ExitCode {
    if stalls::exercised() {
        return ExitCode::SUCCESS;
    }
    let options = Options::parse();
    if let Some(Form::Stalls(options)) = &options.form {
        return stalls::run(options);
    }
    if options.help {
        return help::print(options.name.as_deref());
    }
    let done = match (options.name.as_deref(), &options.files[..]) {
        (None, _) => {
            for experiment in lab::EXPERIMENTS {
                output::line(format_args!("{:12} {}", experiment.name, experiment.summary));
            }
            output::line(format_args!(
                "{:12} what changed from one measurement file to another",
                "compare"
            ));
            output::line(format_args!(
                "{:12} a measurement file as table, CSV, Markdown or HTML",
                "report"
            ));
            output::line(format_args!(
                "{:12} loads of any program that wait for a store (stalls --help)",
                "stalls"
            ));
            Ok(())
        }
        (Some("compare"), [before, after]) => compare(before, after, options.all),
        (Some("compare"), _) => {
            return wrong("compare: write two measurement files, the older one first");
        }
        (Some("report"), [file]) => {
            Results::read(file).and_then(|results| options.report(&results))
        }
        (Some("report"), _) => return wrong("report: write one measurement file"),
        (Some(name), []) => match lab::find(name) {
            Some(experiment) => options.measure(experiment),
            None => return unknown(name),
        },
        (Some(name), _) => {
            return wrong(&format!("{name}: an experiment takes no file"));
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Returns the command as its user typed it, for the results.
fn command_line() -> Vec<String> {
    let words = std::env::args().skip(1).filter(|word| word != measure::INSIDE);
    ["pagewire", "lab"].map(str::to_owned).into_iter().chain(words).collect()
}

/// Reports a fault of the command line; exit status 2.
fn wrong(message: &str) -> ExitCode {
    eprintln!("pagewire lab: {}", Escaped(message));
    ExitCode::from(2)
}

/// Reports an error; exit status 2 for the caller's errors, 1 for others.
fn failed(error: &measure::Error) -> ExitCode {
    eprintln!("pagewire lab: {}", Escaped(error));
    ExitCode::from(if matches!(error, measure::Error::Caller { .. }) { 2 } else { 1 })
}

impl Options {
    fn measure(&self, experiment: &lab::Experiment) -> Result<(), measure::Error> {
        if experiment.sends && !self.inside && self.interface.is_none() {
            return Err(measure::enter(std::env::args_os().skip(1)));
        }
        let bar = ProgressBar::new(0).with_style(
            ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta}  {msg}").expect("constant"),
        );
        let stop = stop_on_interrupt();
        let results = experiment.run(&self.asked(&bar, stop));
        bar.finish_and_clear();
        let results = results?;
        self.show(&results)?;
        match results.complete {
            true => Ok(()),
            false => Err(measure::Error::Host {
                what: experiment.name.to_owned(),
                found: format!(
                    "not all of it was measured; what was is above{}",
                    failures(&results)
                ),
            }),
        }
    }

    fn asked(&self, bar: &ProgressBar, stop: Arc<AtomicBool>) -> measure::Options {
        let mut sinks = self.sink.clone();
        if let (Some(device), Some(to)) = (&self.interface, self.to) {
            sinks = vec![Sink::Interface(device.clone(), to)];
        }
        let bar = bar.clone();
        measure::Options {
            quick: self.quick,
            transports: self.transport.clone(),
            members: self.member.clone(),
            sizes: self.size.clone(),
            sinks,
            rounds: self.rounds.map(usize::from),
            rounds_max: self.rounds_max.map(usize::from),
            sessions: self.sessions.clone(),
            seconds: self.seconds,
            cores: self.cores,
            threads: self.threads.iter().copied().map(usize::from).collect(),
            folder: self.folder.clone(),
            parts: self.part.clone(),
            tree: self.tree.clone(),
            command: command_line(),
            stop,
            progress: Some(Arc::new(move |done, of, what: &str| {
                bar.set_length(of as u64);
                bar.set_position(done as u64);
                bar.set_message(what.to_owned());
            })),
        }
    }

    /// Shows the table on the terminal first, so that a file that cannot be written does not hide
    /// it.
    fn show(&self, results: &Results) -> Result<(), measure::Error> {
        let shown = match &self.json {
            Some(path) if path.as_os_str() == "-" => output::attempt(EscapedLines(results.json())),
            _ => output::attempt(EscapedLines(measure::report::terminal(results))),
        };
        let written = self.write_files(results).map_err(|error| match error {
            measure::Error::Host { what, found } => measure::Error::Host {
                what,
                found: format!("{found}; the table that was printed holds every figure"),
            },
            error => error,
        });
        if written.is_ok() {
            shown.or_end();
        }
        written
    }

    /// Prints the requested formats; the table when none is requested.
    fn report(&self, results: &Results) -> Result<(), measure::Error> {
        let to_terminal = self.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
        let files = [&self.json, &self.csv, &self.markdown, &self.html];
        match to_terminal || files.iter().all(|file| file.is_none()) {
            true => self.show(results),
            false => self.write_files(results),
        }
    }

    /// Writes all files that can be written; returns the first error. Names go to standard error:
    /// standard output may be a table, or JSON.
    fn write_files(&self, results: &Results) -> Result<(), measure::Error> {
        type Form = fn(&Results) -> String;
        let forms: [(&Option<PathBuf>, Form); 4] = [
            (&self.json, Results::json),
            (&self.csv, measure::report::csv),
            (&self.markdown, measure::report::markdown),
            (&self.html, measure::report::html),
        ];
        let mut first = Ok(());
        for (path, text) in forms {
            let Some(path) = path.as_ref().filter(|path| path.as_os_str() != "-") else { continue };
            let written = measure::save(path, &text(results));
            if written.is_ok() {
                eprintln!("wrote {}", Escaped(path.display()));
            }
            first = first.and(written);
        }
        first
    }
}

/// Prints the verdict; with `all`, every figure above it.
fn compare(before: &Path, after: &Path, all: bool) -> Result<(), measure::Error> {
    let comparison = measure::compare(&Results::read(before)?, &Results::read(after)?)?;
    if all {
        output::line(EscapedLines(&comparison));
    }
    output::print(EscapedLines(comparison.summary()));
    if !all {
        output::line("every figure: --all");
    }
    Ok(())
}

/// Returns the errors of members that failed, for the last line: a log may end before the tables.
fn failures(results: &Results) -> String {
    let mut failed = String::new();
    for warning in &results.warnings {
        if let Warning::MemberFailed { .. } = warning {
            failed.push_str("; ");
            failed.push_str(&warning.to_string());
        }
    }
    failed
}

fn unknown(name: &str) -> ExitCode {
    let known: Vec<_> = lab::EXPERIMENTS.iter().map(|e| e.name).collect();
    let known = known.join(", ");
    wrong(&format!("{name}: write one of {known}, compare, report, stalls"))
}

/// Returns a flag that the first Ctrl-C sets; the second ends the program.
fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let raised = stop.clone();
    let raise = move || raised.store(true, Ordering::Relaxed);
    terminal::interrupt::on_interrupt("what was measured is kept", raise);
    stop
}

fn transport(name: &str) -> Result<Transport, String> {
    let found = Transport::ALL.into_iter().find(|transport| transport.name() == name);
    found.ok_or_else(|| "write rtp, udp, tcp or interleaved".to_owned())
}

/// Parser of sizes, from one byte of payload behind the RTP header to the largest file of a grid.
fn size_bytes() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(13..=67_108_864)
}

fn sink(name: &str) -> Result<Sink, String> {
    let found = Sink::MADE.into_iter().find(|sink| sink.name() == name);
    found.ok_or_else(|| "write ifb-software, ifb-device or veth; or --interface".to_owned())
}
