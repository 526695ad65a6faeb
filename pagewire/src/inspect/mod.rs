// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire inspect`: contents of a file, its suitability for streaming with the reason, and its
//! packet plan in figures.
//!
//! Plans a file as a server does (`serve::plan_file`) and keeps nothing. Costs one read of a
//! transport stream from its beginning to its end. For other files it reads the tables, or the
//! heads of blocks, and then a few bytes per NAL unit of the pictures in the seconds that are laid
//! out: at most `--seconds` of each track, spread evenly, so that a file of 100 GB costs no more
//! reads than one of an hour. Without `--seconds` the layout stops after [`LAY_OUT_TIME`], with
//! fewer seconds, because a file may consist of nothing but NAL units.
//!
//! Exit status: 0 also for a file that is not a stream, which is a finding; 1 where a file could
//! not be read at all (missing, a folder, no permission, a disk error), after all others are shown;
//! 2 for a wrong option.
//!
//! Does not decode, and does not write to the cache.

mod figures;
mod findings;
mod programmes;
mod rates;
mod report;
mod text;
mod tracks;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use media::store::open_regular;

use crate::escape::{Escaped, EscapedLines};
use crate::output;
use report::{Inspected, Unread};

#[derive(Args)]
pub(crate) struct Options {
    /// Files to look into.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Prints an array with an object a file as JSON (docs/index-json.md).
    #[arg(long)]
    json: bool,
    /// Seconds of each track of MP4 and Matroska files whose packets are laid out for the figures,
    /// spread evenly over longer tracks; `all` lays out each. Without it as many as ten seconds of
    /// work suffice for, 3600 at most.
    #[arg(long, value_name = "N", value_parser = seconds)]
    seconds: Option<u32>,
}

/// Limits on the work to lay out a file.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// Chapters of each track.
    chapters: u32,
    /// Time for all tracks; each has at least one chapter even after it.
    time: Option<Duration>,
}

impl Effort {
    fn of(options: &Options) -> Effort {
        match options.seconds {
            Some(chapters) => Effort { chapters, time: None },
            None => Effort { chapters: CHAPTERS, time: Some(LAY_OUT_TIME) },
        }
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    let mut separator = "[\n";
    for path in &options.files {
        let inspected = inspect(path, Effort::of(options));
        if let Err(reason) = &inspected {
            let path = crate::process_title::masked(&path.display().to_string());
            eprintln!("pagewire: inspect: {}: {}", Escaped(path), Escaped(reason));
            status = ExitCode::FAILURE;
        }
        match (&inspected, options.json) {
            (Ok(inspected), false) => output::print(text::of(inspected, output::columns())),
            (Err(_), false) => {}
            (Ok(inspected), true) => print_json(&mut separator, inspected),
            (Err(error), true) => {
                let name = path.to_string_lossy().into_owned();
                print_json(&mut separator, &Unread { name, error: error.clone() });
            }
        }
    }
    if options.json {
        output::print("\n]\n");
    }
    status
}

/// Prints an element of the array as soon as its file has been read.
fn print_json(separator: &mut &str, element: &impl serde::Serialize) {
    let json = serde_json::to_string_pretty(element).expect("plain data");
    output::print(format_args!("{separator}{}", EscapedLines(json)));
    *separator = ",\n";
}

/// # Errors
/// The file cannot be read, with the reason.
fn inspect(path: &Path, effort: Effort) -> Result<Inspected, String> {
    let reason = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        _ => error.to_string(),
    };
    // A link is followed to its file; a pipe or device is refused, not waited for.
    let resolved = path.canonicalize().map_err(reason)?;
    if resolved.is_dir() {
        return Err("it is a folder; name the files in it, as in FOLDER/*.mp4".to_owned());
    }
    let file = open_regular(&resolved).map_err(reason)?;
    report::of(path, &resolved, &file, effort)
}

/// Progress of work that a person waits for: a bar on standard error once it takes longer than a
/// second.
struct Waiting {
    bar: ProgressBar,
    begun: Instant,
}

impl Waiting {
    fn new(file: &File, work: &'static str) -> Waiting {
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} {wide_bar} {percent} %");
        bar.set_style(style.expect("the template is fixed"));
        bar.set_message(work);
        Waiting { bar, begun: Instant::now() }
    }

    /// Records that `done` of `all` is done.
    fn at(&self, done: u64, all: u64) {
        if self.bar.is_hidden() && self.begun.elapsed() > QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(all);
        self.bar.set_position(done);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn seconds(text: &str) -> Result<u32, String> {
    match text {
        "all" => Ok(u32::MAX),
        _ => match text.parse() {
            Ok(seconds @ 1..) => Ok(seconds),
            _ => Err("write a number of seconds from 1 on, or all".to_owned()),
        },
    }
}

/// Default limit on the chapters of each track.
const CHAPTERS: u32 = 3600;
/// Default limit on the layout time: a film takes a second.
const LAY_OUT_TIME: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_secs(1);
