// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab`: runs an experiment and prints its table.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

#[derive(Args)]
pub(crate) struct Options {
    /// What to measure; without a name, the experiments are listed.
    experiment: Option<String>,
    /// Fewer and shorter runs: seconds instead of a minute, with a wider spread.
    #[arg(long)]
    quick: bool,
    /// Sessions, for the experiment `sessions`.
    #[arg(long, value_name = "N", default_value_t = 500)]
    sessions: usize,
    /// Seconds of steady streaming, for the experiment `sessions`.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: u64,
    /// Writes the table with all samples to a file, - for standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Set by the program itself in the namespace it made.
    #[arg(long, hide = true)]
    inside: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let Some(name) = &options.experiment else {
        for experiment in lab::EXPERIMENTS {
            println!("{:10} {}", experiment.name, experiment.summary);
        }
        return ExitCode::SUCCESS;
    };
    let Some(experiment) = lab::find(name) else {
        let known: Vec<_> = lab::EXPERIMENTS.iter().map(|e| e.name).collect();
        return crate::wrong(&format!("lab {name}: write one of {}", known.join(", ")));
    };
    let waiting = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{spinner} measuring {msg}, {elapsed}").expect("constant"),
    );
    if !options.inside {
        waiting.set_message(experiment.name);
        waiting.enable_steady_tick(std::time::Duration::from_millis(200));
    }
    let measured = lab::run(experiment, &asked(&options, experiment.name));
    waiting.finish_and_clear();
    match measured {
        Ok(table) => show(&table, options.json.as_deref()),
        Err(error) => {
            eprintln!("pagewire: lab {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn asked(options: &Options, name: &str) -> lab::Options {
    let mut again = vec!["lab".to_owned(), name.to_owned(), "--inside".to_owned()];
    again.extend(["--json".to_owned(), "-".to_owned()]);
    if options.quick {
        again.push("--quick".to_owned());
    }
    lab::Options {
        quick: options.quick,
        sessions: options.sessions,
        seconds: options.seconds,
        again,
        inside: options.inside,
    }
}

/// The bill of the stream paths, as the demonstration shows it.
pub(crate) fn quick_paths() -> Result<lab::Table, lab::Error> {
    let options = Options {
        experiment: None,
        quick: true,
        sessions: 0,
        seconds: 0,
        json: None,
        inside: false,
    };
    let experiment = lab::find("paths").expect("it is a member of the list");
    lab::run(experiment, &asked(&options, experiment.name))
}

fn show(table: &lab::Table, json: Option<&std::path::Path>) -> ExitCode {
    let text = serde_json::to_string_pretty(table).expect("plain data");
    let written = match json {
        None => {
            print!("{table}");
            Ok(())
        }
        Some(path) if path.as_os_str() == "-" => {
            println!("{text}");
            Ok(())
        }
        Some(path) => {
            print!("{table}");
            std::fs::write(path, text)
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let path = json.unwrap_or(std::path::Path::new("-"));
            eprintln!("pagewire: --json {}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
