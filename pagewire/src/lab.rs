// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab`: runs an experiment and writes what came out; compares and shows measurement
//! files.
//!
//! An experiment that sends does so in a network namespace of its own: the program replaces itself
//! by `unshare`, which starts it again inside. So terminal, signals and files stay those of the
//! one process the user started.

mod stalls;

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Results, Sink, Transport};

use crate::escape::EscapedLines;
use crate::output;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_flag = true)]
pub(crate) struct Options {
    /// What is no experiment and has options of its own.
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
    /// Only this transport: rtp, udp or tcp; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = transport)]
    transport: Vec<Transport>,
    /// Only this path, cipher, method or memcpy, and the reference; may be given several times.
    #[arg(long, visible_alias = "variant", value_name = "NAME")]
    member: Vec<String>,
    /// Bytes of a datagram, headers of RTP included, of a message, or of a file; may be given
    /// several times.
    #[arg(long, value_name = "BYTES", value_parser = size_bytes())]
    size: Vec<u32>,
    /// Where to send: ifb-software, ifb-device or veth; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = sink)]
    sink: Vec<Sink>,
    /// Sends by this device of the machine, to the address in --to. Takes root.
    #[arg(long, value_name = "DEVICE", requires = "to")]
    interface: Option<String>,
    /// An address behind --interface that bears the load.
    #[arg(long, value_name = "ADDRESS", requires = "interface")]
    to: Option<Ipv4Addr>,
    /// Timed rounds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// The most rounds of `kernel`, which adds blocks of them until every spread is at most 10 %
    /// [default: 20 within 21 minutes, or --rounds where that is given].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds_max: Option<u16>,
    /// Sessions, for `sessions`; may be given several times.
    #[arg(long, value_name = "N")]
    sessions: Vec<usize>,
    /// Seconds of steady streaming, for `sessions`.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Threads, for `seal`; may be given several times, the first for its libraries.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// Where the folders of `seal` are made and removed [default: a file system in memory].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Only this part of `kernel`: memcpy, vectorise, paths, fpu or check; may be given several
    /// times.
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

pub(crate) fn run(options: Options) -> ExitCode {
    if let Some(Form::Stalls(options)) = &options.form {
        return stalls::run(options);
    }
    if options.help {
        return help(options.name.as_deref());
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
            return crate::wrong("lab compare: write two measurement files, the older one first");
        }
        (Some("report"), [file]) => {
            Results::read(file).and_then(|results| options.report(&results))
        }
        (Some("report"), _) => return crate::wrong("lab report: write one measurement file"),
        (Some(name), []) => match lab::find(name) {
            Some(experiment) => options.measure(experiment),
            None => return unknown(name),
        },
        (Some(name), _) => {
            return crate::wrong(&format!("lab {name}: an experiment takes no file"));
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

pub(crate) use stalls::exercised;

/// Exit status 1 or 2, by whose fault it is.
fn failed(error: &measure::Error) -> ExitCode {
    eprintln!("pagewire: lab: {}", crate::Escaped(error));
    ExitCode::from(if matches!(error, measure::Error::Caller { .. }) { 2 } else { 1 })
}

impl Options {
    fn measure(&self, experiment: &lab::Experiment) -> Result<(), measure::Error> {
        if experiment.sends && !self.inside && self.interface.is_none() {
            return Err(enter(std::env::args_os().skip(1)));
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
                found: "not all of it was measured; what was is above".to_owned(),
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
            command: std::env::args().filter(|word| word != INSIDE).collect(),
            stop,
            progress: Some(Arc::new(move |done, of, what: &str| {
                bar.set_length(of as u64);
                bar.set_position(done as u64);
                bar.set_message(what.to_owned());
            })),
        }
    }

    /// The table on the terminal first: no file that cannot be written takes it away.
    fn show(&self, results: &Results) -> Result<(), measure::Error> {
        let shown = match &self.json {
            Some(path) if path.as_os_str() == "-" => output::attempt(results.json()),
            _ => output::attempt(EscapedLines(measure::report::terminal(results))),
        };
        let written = self.write_files(results);
        if written.is_ok() {
            shown.or_end();
        }
        written
    }

    /// The forms that are asked for; the table where none is.
    fn report(&self, results: &Results) -> Result<(), measure::Error> {
        let to_terminal = self.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
        let files = [&self.json, &self.csv, &self.markdown, &self.html];
        match to_terminal || files.iter().all(|file| file.is_none()) {
            true => self.show(results),
            false => self.write_files(results),
        }
    }

    /// All that can be written; the first error. Names go to standard error: standard output may be
    /// a table, or JSON.
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
                eprintln!("wrote {}", crate::Escaped(path.display()));
            }
            first = first.and(written);
        }
        first
    }
}

/// Replaces this process by itself in a network namespace of its own; returns only when that fails.
fn enter(arguments: impl Iterator<Item = std::ffi::OsString>) -> measure::Error {
    let failed = |error: std::io::Error| measure::Error::Host {
        what: "starting again in a network namespace".to_owned(),
        found: error.to_string(),
    };
    match (measure::private(), std::env::current_exe()) {
        (Ok(mut command), Ok(program)) => {
            failed(command.arg(program).args(arguments).arg(INSIDE).exec())
        }
        (Err(error), _) => error,
        (_, Err(error)) => failed(error),
    }
}

/// Runs this program with `arguments` inside and gives what it prints.
pub(crate) fn inside(arguments: &[&str]) -> Result<String, measure::Error> {
    let failed = |found: String| measure::Error::Host {
        what: format!("measuring in a network of its own ({})", arguments.join(" ")),
        found,
    };
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command: Command = measure::private()?;
    command.arg(program).args(arguments).arg(INSIDE);
    command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

/// The bill of the RTP paths, as the demonstration shows it.
pub(crate) fn quick_paths() -> Result<Results, measure::Error> {
    let arguments = ["lab", "paths", "--quick", "--transport", "rtp", "--sink", "ifb-software"];
    let text = inside(&[&arguments[..], &["--json", "-"]].concat())?;
    Results::from_json(&text, "the quick measurement")
}

/// The verdict, below every figure where `all` is asked for.
fn compare(before: &Path, after: &Path, all: bool) -> Result<(), measure::Error> {
    let comparison = measure::compare(&Results::read(before)?, &Results::read(after)?)?;
    if all {
        output::line(EscapedLines(&comparison));
    }
    output::print(EscapedLines(comparison.summary()));
    Ok(())
}

/// Of the experiment, with the options that it looks at; without one, of all of `lab`.
fn help(name: Option<&str>) -> ExitCode {
    let Some(name) = name else {
        output::print(crate::command_of("lab").render_long_help());
        return ExitCode::SUCCESS;
    };
    let (summary, explanation, shared) = match name {
        "compare" => ("what changed between measurement files", &lab::explain::COMPARE, &[][..]),
        "report" => ("a measurement file in other forms", &lab::explain::REPORT, &FILES[..]),
        name => match lab::find(name) {
            Some(found) => (found.summary, found.explanation, &SHARED[..]),
            None => return unknown(name),
        },
    };
    let heading = lab::explain::wrapped(&format!("pagewire lab {name}: {summary}"), HEADING_CHARS);
    let mut text = format!("{}\n\n{explanation}", heading.join("\n"));
    let command = crate::command_of("lab");
    let wanted = |long: &str| explanation.options.contains(&long) || shared.contains(&long);
    let mut lines = String::new();
    for argument in command.get_arguments() {
        let Some(long) = argument.get_long().filter(|long| wanted(long)) else { continue };
        let alias = if long == "member" { ", --variant" } else { "" };
        let value = match argument.get_value_names() {
            Some([value, ..]) if argument.get_action().takes_values() => format!(" {value}"),
            _ => String::new(),
        };
        let about = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let mut head = format!("--{long}{alias}{value}");
        if head.chars().count() >= OPTION_CHARS {
            lines += &format!("  {head}\n");
            head.clear();
        }
        for line in lab::explain::wrapped(&about, ABOUT_CHARS) {
            lines += &format!("  {head:OPTION_CHARS$}{line}\n");
            head.clear();
        }
    }
    if !lines.is_empty() {
        text += &format!("\n{lines}");
    }
    output::print(text);
    ExitCode::SUCCESS
}

fn unknown(name: &str) -> ExitCode {
    let known: Vec<_> = lab::EXPERIMENTS.iter().map(|e| e.name).collect();
    let known = known.join(", ");
    crate::wrong(&format!("lab {name}: write one of {known}, compare, report, stalls"))
}

/// A flag that the first Ctrl-C raises; the second ends the program.
fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let raised = stop.clone();
    let raise = move || raised.store(true, Ordering::Relaxed);
    crate::interrupt::on_interrupt("what was measured is kept", raise);
    stop
}

fn transport(name: &str) -> Result<Transport, String> {
    let found = Transport::ALL.into_iter().find(|transport| transport.name() == name);
    found.ok_or_else(|| "write rtp, udp or tcp".to_owned())
}

/// A byte of payload behind RTP's header, to the largest file of a grid.
fn size_bytes() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(13..=67_108_864)
}

fn sink(name: &str) -> Result<Sink, String> {
    let found = Sink::MADE.into_iter().find(|sink| sink.name() == name);
    found.ok_or_else(|| "write ifb-software, ifb-device or veth; or --interface".to_owned())
}

const INSIDE: &str = "--inside";
/// Widths of the columns of options and of their texts in the help of an experiment.
const HEADING_CHARS: usize = 88;
const OPTION_CHARS: usize = 24;
const ABOUT_CHARS: usize = 62;
/// Options of every experiment, by their long names.
const SHARED: [&str; 6] = ["quick", "rounds", "json", "csv", "markdown", "html"];
/// Of them, those that write.
const FILES: [&str; 4] = ["json", "csv", "markdown", "html"];
