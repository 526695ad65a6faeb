// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the loads of a program that wait for a store before them, and that store.
//!
//! A narrow store before a wide load of the same bytes stops the load until the store has reached
//! the cache, and no profile by time points at the store. A processor with an event for such loads
//! counts them by function. Everywhere else the program's loads and stores are traced and each load
//! is compared with the stores before it (`pairing`). A trace finds both instructions of the pair
//! and needs no hardware: it works in virtual machines and in CI.
//!
//! Each way of watching a program is one file and one line in [`TRACERS`]. Their results are
//! processed in one way: `images` finds symbols and lines, `code` decodes the instructions, `cost`
//! measures a blocked load here, and `report` combines them. `check` is for kernels that must have
//! no blocked load.
//!
//! Sources: Richardson, "Improving Driver Performance: A Worked Example" (2016), for the fault and
//! the driver it was found in; the sources of `pairing` for the rule.
//!
//! Does not find other stalls. Addresses that alias at 4 KiB, loads across cache lines and misses
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
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// Documents that the tracer relies on.
    pub sources: &'static [&'static str],
    probe: fn(&StallOptions) -> Result<(), String>,
    run: fn(&StallOptions) -> Result<Seen, Error>,
}

/// All tracers, in the order of preference.
pub static TRACERS: &[&Tracer] = &[&counters::TRACER, &lackey::TRACER, &steps::TRACER];

/// The program to watch, and the limits of the search.
#[derive(Clone)]
pub struct StallOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Name of a tracer; when absent, the first that can be used here.
    pub by: Option<String>,
    /// Watches only while a function runs whose name contains this.
    pub function: Option<String>,
    /// The most stores between a store and a load that it blocks.
    pub stores: usize,
    /// The most instructions between them.
    pub instructions: u64,
    /// The most instructions that `steps` steps.
    pub steps: u64,
    /// True when the program's standard output goes to standard error: ours is for the report.
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
    /// Returns `Ok` when the tracer can be used here.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn probe(&self, options: &StallOptions) -> Result<(), Error> {
        (self.probe)(options).map_err(|found| Error::Unavailable { need: self.name, found })
    }
}

/// Result of a tracer.
enum Seen {
    Trace(Box<Trace>),
    Samples(Samples),
}

/// A program's loads and stores, evaluated.
struct Trace {
    pairing: Pairing,
    code: Code,
    images: Images,
    /// Names of the wanted functions; part `n` of the pairs is of number `n - 1`.
    functions: Vec<String>,
    exit: Option<i32>,
    notes: Vec<String>,
}

/// Runs the command under a tracer and reports its blocked loads.
///
/// # Errors
/// [`Error::Caller`] for a command that cannot be run or unknown names, [`Error::Unavailable`] when
/// no tracer can be used, [`Error::Host`] when one fails midway.
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

/// Returns the requested tracer, or the first that can be used and the reasons against the others.
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

/// Entries of Skylake's store buffer; others hold 42 to 112.
const STORES: usize = 56;
/// Between Skylake's reorder buffer of 224 and Zen 4's of 320.
const INSTRUCTIONS: u64 = 256;
/// Steps of half a minute.
const STEPS: u64 = 10_000_000;

#[cfg(test)]
mod tests;
