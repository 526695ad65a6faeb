// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab --help`: help of all verbs, or of one experiment with its options.
//!
//! Sources: [`lab::explain`]; the options' own lines.
//! Does not explain `stalls`; clap does.

use std::process::ExitCode;

use clap::CommandFactory;
use terminal::output;

use crate::{Options, unknown};

/// Prints the help of the experiment, with its options; without a name, the help of `lab`.
pub(crate) fn print(name: Option<&str>) -> ExitCode {
    let Some(name) = name else {
        output::print(Options::command().render_long_help());
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
    let command = Options::command();
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

/// Widths of the help's columns: option and text.
const HEADING_CHARS: usize = 88;
const OPTION_CHARS: usize = 24;
const ABOUT_CHARS: usize = 62;
/// Options of every experiment, by their long names.
const SHARED: [&str; 6] = ["quick", "rounds", "json", "csv", "markdown", "html"];
/// Shared options that write files.
const FILES: [&str; 4] = ["json", "csv", "markdown", "html"];
