// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab stalls`: finds the loads of a program that wait for a store before them; with
//! `--self`, checks that its own kernels have none and that every tracer finds known ones.
//!
//! Exit status: 0 done, with or without findings; 1 something failed, or `--self` found a wrong
//! number; 2 a wrong option; with `--fail`, 3 when a load was found that waits. The program's own
//! status is in the report and changes none of these.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::stalls::{Check, Finding, Report, TRACERS};
use clap::Args;
use lab::specimens::exercise::{EXERCISES, WATCHED};

use terminal::output;

#[derive(Args)]
pub(crate) struct Options {
    /// Prints this help.
    #[arg(short, long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The program to examine and its arguments, behind --.
    #[arg(last = true, value_name = "COMMAND", required_unless_present_any = ["own", "list"])]
    command: Vec<OsString>,
    /// Looks at this program's own kernels, which must have no stall, and at specimens that have
    /// one.
    #[arg(long = "self", conflicts_with_all = ["command", "function", "fail"])]
    own: bool,
    /// Tracer: counters, lackey or steps [default: the first that can be used here].
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Lists the ways to watch, and which can be used here.
    #[arg(long, conflicts_with_all = ["command", "own"])]
    list: bool,
    /// Only while a function runs whose name contains this, with what it calls. `steps` is slow
    /// without it.
    #[arg(long, value_name = "PART")]
    function: Option<String>,
    /// Stores before a load that it is compared with: the capacity of a store buffer.
    #[arg(long, value_name = "STORES", default_value_t = 56,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    window: u32,
    /// Instructions before a load: the capacity of a reorder buffer.
    #[arg(long, value_name = "INSTRUCTIONS", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..))]
    reach: u32,
    /// The most instructions that `steps` looks at; the program then runs on by itself.
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Ends with status 3 when a load was found that waits.
    #[arg(long)]
    fail: bool,
    /// Writes the report as JSON, - for standard output instead of the table; the program's own
    /// output then goes to standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the exercises and returns true when this program was started to be watched. Checked before
/// the command line is parsed, as parsing needs several times as many instructions.
pub(crate) fn exercised() -> bool {
    let asked = std::env::args_os().skip(1).eq(EXERCISE.map(OsString::from));
    if asked {
        lab::specimens::exercise::exercise();
    }
    asked
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let done = match (options.list, options.own) {
        (true, _) => {
            options.list();
            Ok(ExitCode::SUCCESS)
        }
        (_, true) => options.check(),
        _ => options.find(),
    };
    done.unwrap_or_else(|error| crate::failed(&error))
}

impl Options {
    fn asked(&self) -> ::stalls::StallOptions {
        ::stalls::StallOptions {
            command: self.command.clone(),
            by: self.by.clone(),
            function: self.function.clone(),
            stores: self.window as usize,
            instructions: self.reach.into(),
            steps: self.steps,
            aside: self.json_to_stdout(),
            typed: crate::command_line(),
        }
    }

    fn json_to_stdout(&self) -> bool {
        self.json.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }

    fn list(&self) {
        for tracer in TRACERS {
            output::line(format_args!("{:9} {}", tracer.name, tracer.summary));
            if let Err(error) = tracer.probe(&self.asked()) {
                output::line(format_args!("{:9} not here: {error}", ""));
            }
        }
    }

    fn find(&self) -> Result<ExitCode, measure::Error> {
        // Ctrl-C ends the watched program; the report then shows the results so far.
        terminal::interrupt::on_interrupt("what was seen is shown when the program ends", || {});
        let report = ::stalls::find(&self.asked())?;
        self.show(&report.json(), &report.terminal())?;
        let found = self.fail && report.has_stalls();
        Ok(if found { ExitCode::from(STALLS_FOUND) } else { ExitCode::SUCCESS })
    }

    fn check(&self) -> Result<ExitCode, measure::Error> {
        let program = std::env::current_exe().map_err(|error| measure::Error::Host {
            what: "finding this program".to_owned(),
            found: error.to_string(),
        })?;
        let check = ::stalls::check((&program, &EXERCISE), (WATCHED, EXERCISES), &self.asked())?;
        let json = serde_json::to_string_pretty(&check).expect("a check is plain data") + "\n";
        self.show(&json, &table(&check))?;
        Ok(if check.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Writes to the terminal first, as other measurements do.
    fn show(&self, json: &str, text: &str) -> Result<(), measure::Error> {
        let shown = output::attempt(if self.json_to_stdout() { json } else { text });
        let saved = match &self.json {
            Some(path) if path != Path::new("-") => measure::save(path, json),
            _ => Ok(()),
        };
        if saved.is_ok() {
            shown.or_end();
        }
        saved
    }
}

/// Table of each tracer's result on each exercise, with the full reports of wrong ones.
fn table(check: &Check) -> String {
    let mut text = String::new();
    for passed in &check.passed {
        text += &format!("skip: {passed}\n");
    }
    for finding in &check.findings {
        let Finding { tracer, exercise, blocked, expected, once_a_call } = finding;
        let what = match (finding.is_right(), expected) {
            (true, 0) if *once_a_call > 0 => format!("clean; {once_a_call} once a call"),
            (true, 0) => "clean".to_owned(),
            (true, _) => format!("{blocked} blocked loads found, as many as there are"),
            (false, _) => format!("WRONG: {blocked} blocked loads; {expected} expected"),
        };
        text += &format!("{tracer:9} {exercise:14} {what}\n");
    }
    for report in &check.reports {
        let wrong = check
            .findings
            .iter()
            .filter(|finding| finding.tracer == report.tracer && !finding.is_right());
        let names: Vec<_> = wrong.map(|finding| format!("::{}", finding.exercise)).collect();
        if !names.is_empty() {
            let mut shown: Report = report.clone();
            shown.pairs.retain(|pair| {
                let within = pair.within.as_deref().unwrap_or_default();
                names.iter().any(|name| within.ends_with(name))
            });
            text += &format!("\n{}", shown.terminal());
        }
    }
    let (all, each) = (check.findings.len(), EXERCISES.len());
    let right = check.findings.iter().filter(|finding| finding.is_right()).count();
    text + &format!("{right} of {all} as they shall be: {each} exercises\n")
}

/// Arguments of a program that is started to be watched.
const EXERCISE: [&str; 2] = ["stalls", "--exercise"];
const STALLS_FOUND: u8 = 3;
