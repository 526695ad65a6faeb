// SPDX-License-Identifier: MIT OR Apache-2.0
//! lab: what a data path costs, measured on this machine.
//!
//! Each experiment is one file and one line in [`EXPERIMENTS`]. Runs are interleaved between
//! members, the bytes of every member are verified before its time counts, and figures are medians
//! with their spread. Processor time is that of the measuring process, user and system
//! (CLOCK_PROCESS_CPUTIME_ID): work that the kernel does for it in other contexts is not in it.
//!
//! Does not do: judge. Bars are the reader's.

#![forbid(unsafe_code)]

mod compare;
mod error;
mod host;
mod namespace;
mod paths_experiment;
pub mod report;
mod results;
mod sessions;
mod statistics;
mod table;
mod warning;

pub use compare::{Change, Comparison, Verdict, compare};
pub use error::Error;
pub use host::{COMMIT, HostFacts};
pub use results::{FORMAT, Results, Row, save};
pub use statistics::Figure;
pub use table::Table;
pub use warning::{INSTRUMENT_SHARE_MAX, SAMPLES_MIN, SPREAD_MAX, Warning};

/// Something to measure.
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Whether it must run in a network namespace of its own (the caller need not care: [`run`]
    /// does).
    private_network: bool,
    run: fn(&Options) -> Result<Table, Error>,
}

/// All experiments.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "paths",
        summary: "the bill of every stream path: RTP of 1328 bytes into a device that drops it",
        private_network: true,
        run: paths_experiment::run,
    },
    Experiment {
        name: "sessions",
        summary: "a server with many paced sessions on loopback: bill, lateness, loss, memory",
        private_network: false,
        run: sessions::run,
    },
];

/// What an experiment may be told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Fewer and shorter runs: seconds instead of a minute, wider spread.
    pub quick: bool,
    /// How many sessions, for `sessions`.
    pub sessions: usize,
    /// Seconds of steady streaming, for `sessions`.
    pub seconds: u64,
    /// Arguments that make this same program run this experiment again, in its own namespace.
    pub again: Vec<String>,
    /// True in the process that `again` started.
    pub inside: bool,
}

/// The experiment of that name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}

/// Runs an experiment, in a network namespace of its own where it needs one.
///
/// # Errors
/// [`Error::Unavailable`] names what the host lacks.
pub fn run(experiment: &Experiment, options: &Options) -> Result<Table, Error> {
    if experiment.private_network && !options.inside {
        return namespace::run_again(&options.again);
    }
    (experiment.run)(options)
}
