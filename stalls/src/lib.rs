// SPDX-License-Identifier: MIT OR Apache-2.0
//! stalls: which loads of a program wait for a store before them, and which store.
//!
//! A narrow store before a wide load of the same bytes stops the load until the store has reached
//! the cache, and no profile by time points at the store. Where the processor counts such loads
//! they are counted by function; everywhere else the program's loads and stores are traced and each
//! load is held against the stores before it (`pairing`). A trace finds the pair, both instructions
//! of it, and needs no hardware: it works in virtual machines and in CI.
//!
//! Each way of watching a program is one file and one line in [`TRACERS`]. What they see goes the
//! same way: `images` knows symbols and lines, `code` the instructions, `cost` what a blocked load
//! takes here, and `report` puts it together. `check` is for kernels
//! that must have none.
//!
//! Sources: Richardson, "Improving Driver Performance: A Worked Example" (2016), for the fault and
//! what it hid in; the sources of `pairing` for the rule.
//!
//! Does not do: other stalls. Addresses that alias at 4 KiB, loads across cache lines and misses
//! are for the counters of `perf stat`.

#![deny(unsafe_code)]

mod check;
mod code;
mod cost;
mod counters;
#[expect(unsafe_code, reason = "volatile loads and stores, the specimens themselves")]
mod forwarding;
pub mod images;
mod lackey;
mod launch;
mod pairing;
mod report;
#[cfg(target_arch = "x86_64")]
mod steps;
#[cfg(not(target_arch = "x86_64"))]
#[path = "steps_elsewhere.rs"]
mod steps;

use std::ffi::OsString;

pub use check::{Check, Exercise, Finding, check};
pub use cost::BlockedLoadCost;
pub use forwarding::{blocked, forwarded};
pub use images::Place;
pub use report::{Pair, Report, Sampled, Touch};

use crate::code::Code;
use crate::counters::Samples;
use crate::images::Images;
use crate::pairing::{Pairing, Reach};
use measure::Error;

/// A way of watching a program.
pub struct Tracer {
    /// The name on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Where what it relies on is written.
    pub sources: &'static [&'static str],
    probe: fn(&StallOptions) -> Result<(), String>,
    run: fn(&StallOptions) -> Result<Seen, Error>,
}

/// All ways, in the order of preference.
pub static TRACERS: &[&Tracer] = &[&counters::TRACER, &lackey::TRACER, &steps::TRACER];

/// What to look at, and how.
#[derive(Clone)]
pub struct StallOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// A tracer's name; the first that can be used here when none.
    pub by: Option<String>,
    /// Only while a function runs whose name contains this.
    pub function: Option<String>,
    /// How many stores may lie between a store and a load that it blocks.
    pub stores: usize,
    /// How many instructions.
    pub instructions: u64,
    /// The most instructions that `steps` steps.
    pub steps: u64,
    /// The program's standard output goes to standard error: ours is for the report.
    pub aside: bool,
    /// The command as it was typed, word by word, for the report.
    pub typed: Vec<String>,
}

impl Default for StallOptions {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            by: None,
            function: None,
            stores: STORES,
            instructions: INSTRUCTIONS,
            steps: STEPS,
            aside: false,
            typed: Vec::new(),
        }
    }
}

impl StallOptions {
    fn name(&self) -> String {
        self.command.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned())
    }

    fn reach(&self) -> Reach {
        Reach { stores: self.stores.max(1), instructions: self.instructions.max(1) }
    }
}

impl Tracer {
    /// Whether it can be used here; else what was found.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn probe(&self, options: &StallOptions) -> Result<(), Error> {
        (self.probe)(options).map_err(|found| Error::Unavailable { need: self.name, found })
    }
}

/// What a tracer saw.
enum Seen {
    Trace(Box<Trace>),
    Samples(Samples),
}

/// A program's loads and stores, judged.
struct Trace {
    pairing: Pairing,
    code: Code,
    images: Images,
    /// Names of the wanted functions; part `n` of the pairs is of number `n - 1`.
    functions: Vec<String>,
    exit: Option<i32>,
    notes: Vec<String>,
}

/// Runs the command under a tracer and reports what it found.
///
/// # Errors
/// [`Error::Caller`] for a command that cannot be run or names that are none,
/// [`Error::Unavailable`] when no tracer can be used, [`Error::Host`] when one fails midway.
pub fn find(options: &StallOptions) -> Result<Report, Error> {
    let options = &StallOptions { command: launch::checked(&options.command)?, ..options.clone() };
    let (tracer, passed) = choose(options)?;
    let seen = (tracer.run)(options)?;
    let mut report = match seen {
        Seen::Trace(trace) => Report::of_trace(tracer, options, *trace)?,
        Seen::Samples(samples) => Report::of_samples(tracer, options, samples),
    };
    report.notes.extend(passed);
    Ok(report)
}

/// The tracer that was asked for, or the first that can be used, and why others cannot.
fn choose(options: &StallOptions) -> Result<(&'static Tracer, Vec<String>), Error> {
    if let Some(name) = &options.by {
        let Some(tracer) = TRACERS.iter().find(|tracer| tracer.name == name) else {
            let known: Vec<_> = TRACERS.iter().map(|tracer| tracer.name).collect();
            return Err(Error::Caller {
                what: format!("tracer {name}"),
                found: format!("no such tracer; write one of {}", known.join(", ")),
            });
        };
        let other = TRACERS
            .iter()
            .find(|other| other.name != tracer.name && (other.probe)(options).is_ok());
        return (tracer.probe)(options).map(|()| (*tracer, Vec::new())).map_err(|found| {
            let cure = other.map(|other| format!("; the tracer {} can be used", other.name));
            let found = format!("{found}{}", cure.unwrap_or_default());
            Error::Unavailable { need: tracer.name, found }
        });
    }
    let mut passed = Vec::new();
    for tracer in TRACERS {
        match (tracer.probe)(options) {
            Ok(()) => return Ok((tracer, passed)),
            Err(found) => passed.push(format!("{} cannot be used here: {found}", tracer.name)),
        }
    }
    Err(Error::Unavailable { need: "a tracer", found: passed.join("; ") })
}

/// Skylake's store buffer; others hold 42 to 112.
const STORES: usize = 56;
/// Between Skylake's reorder buffer of 224 and Zen 4's of 320.
const INSTRUCTIONS: u64 = 256;
/// Half a minute.
const STEPS: u64 = 10_000_000;

#[cfg(test)]
mod tests;
