// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire config check|show|schema|example`.
//!
//! Exit status of `check`: 0 no fault; 1 the file is right and this host is not ready for it (a
//! file that is missing, a certificate that does not load); 2 the file has faults. Of `show`: 0, or
//! 2 for settings that cannot be used.
//!
//! Does not start a server or listen anywhere.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use super::sources::Sources;
use super::{check, example, keys, schema, show};
use crate::output;

#[derive(Subcommand)]
pub(crate) enum Verbs {
    /// Checks a configuration file: every fault with its line and what to write, and what this host
    /// lacks for it. Exit status 0: none; 1: the host lacks something; 2: the file has faults.
    Check {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Shows the settings of `pagewire serve` with these arguments, and where each is from:
    /// default, file with line, environment or command line. The output is a configuration file
    /// again.
    #[command(after_help = SHOW_HELP)]
    Show {
        /// Arguments as of `pagewire serve`; with --json as JSON.
        #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Prints a JSON Schema (draft 2020-12) of the configuration file, for editors.
    Schema,
    /// Prints a configuration file with every setting, its default and its help.
    Example,
}

const SHOW_HELP: &str =
    "Example: pagewire config show --config /etc/pagewire/pagewire.toml --burst 10 --json";

/// Runs one of the verbs.
pub(crate) fn run(verb: &Verbs) -> ExitCode {
    match verb {
        Verbs::Check { file } => {
            let report = check::check(file);
            for line in report.faults.iter().chain(&report.missing) {
                eprintln!("pagewire: {}", crate::Escaped(line));
            }
            for note in &report.notes {
                eprintln!("pagewire: note: {}", crate::Escaped(note));
            }
            match (report.faults.is_empty(), report.missing.is_empty()) {
                (false, _) => ExitCode::from(2),
                (true, false) => ExitCode::from(1),
                (true, true) => print(&format!("{}: no fault\n", file.display())),
            }
        }
        Verbs::Show { arguments } => shown(arguments),
        Verbs::Schema => print(&schema::schema()),
        Verbs::Example => print(&example::example()),
    }
}

/// Prints the settings that these arguments of `serve` result in.
fn shown(arguments: &[OsString]) -> ExitCode {
    let json = clap::Arg::new(JSON).long(JSON).action(clap::ArgAction::SetTrue);
    let globals = keys::loose_globals();
    let command = keys::loose_command("pagewire config show").arg(json).args(globals);
    let line = std::iter::once("pagewire config show".into()).chain(arguments.iter().cloned());
    let matches = match command.try_get_matches_from(line) {
        Ok(matches) => matches,
        Err(error) => error.exit(),
    };
    let environment = Box::new(|name: &str| std::env::var_os(name));
    let mut sources = Sources::of_matches("pagewire".into(), &matches, environment);
    sources.needs_no_folder();
    match sources.load() {
        Ok(loaded) if matches.get_flag(JSON) => print(&show::json(&loaded)),
        Ok(loaded) => print(&show::toml(&loaded)),
        Err(unusable) => unusable.report(),
    }
}

fn print(text: &str) -> ExitCode {
    output::print(text);
    ExitCode::SUCCESS
}

const JSON: &str = "json";
