// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab kernel`: the effect of changes inside a kernel, measured on any Linux machine
//! without root.
//!
//! Two laboratories are used. *User Mode Linux* is a kernel that runs as a program: its memcpy can
//! be replaced, and its processor time is read from outside. *QEMU* emulates a machine for Debian's
//! own kernel and counts its instructions: the same count every time, on any machine. Both are
//! built, fetched and booted by the scripts of a checkout ([`checkout`], [`program`]) and print
//! lines on their console ([`console`], [`boot`]). The experiment has parts, a file each:
//! [`PARTS`]. A part whose requirements this host lacks is a note `skip: PART: ...` with the reason
//! and the cure; a part that fails is a warning and an exit status of 1. The other parts continue.
//!
//! The first run builds a kernel (some 5 minutes on 2 cores) and fetches another (130 MB); both
//! are kept in a cache folder.
//!
//! Sources: Saito and Oikawa, "Utilization of a SIMD unit in the OS Kernel"; Halvorsen, Dalseng and
//! Griwodz, "Assessment of Data Path Implementations for Download and Streaming".
//! Does not change the kernel of this machine.

mod boot;
mod check;
mod checkout;
mod console;
mod fpu;
mod load;
mod memcpy;
mod paper;
mod paths;
mod profile;
mod program;
mod qemu;
mod uml;
mod vectorise;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use tempfile::TempDir;

use self::checkout::Checkout;
use self::program::Watch;
use measure::Error;
use measure::Options;
use measure::results::Results;
use measure::warning::Warning;

/// A part of the laboratory.
struct Part {
    /// Name of the part in --part.
    name: &'static str,
    /// Description of the part for errors.
    what: &'static str,
    run: fn(&KernelLab<'_>, &mut Results) -> Result<(), Error>,
}

/// All parts.
static PARTS: &[Part] = &[
    Part { name: "memcpy", what: "copies in User Mode Linux", run: memcpy::measure },
    Part { name: "vectorise", what: "loops that the compiler vectorises", run: vectorise::measure },
    Part { name: "paths", what: "instructions a packet under QEMU", run: paths::measure },
    Part { name: "fpu", what: "vector registers in a native kernel", run: fpu::measure },
    Part { name: "check", what: "the check of the engine's module", run: check::measure },
];

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("kernel", options.command.clone());
    let parts = parts(&options.parts)?;
    memcpy::variants(&options.members)?;
    let from = std::env::current_dir().map_err(Error::host("the working folder"))?;
    let checkout = Checkout::find(options.tree.as_deref(), &from)?;
    let lab = KernelLab::new(options, checkout, parts.len())?;
    results.complete = true;
    let (mut first, mut unavailable) = (None, None);
    for part in parts {
        if options.stopped() {
            break;
        }
        lab.part(part.what);
        let began = Instant::now();
        let before = results.rows.len();
        let outcome = (part.run)(&lab, &mut results);
        if let Err(error @ Error::Unavailable { .. }) = outcome {
            results.notes.push(format!("skip: {}: {error}", part.name));
            unavailable.get_or_insert(error);
        } else if let Err(error) = outcome {
            results.complete = false;
            if options.stopped() {
                break;
            }
            let member = format!("{} ({})", part.name, part.what);
            results.warn(Warning::MemberFailed { member, found: error.to_string() });
            first.get_or_insert(error);
        } else if results.rows.len() > before {
            let seconds = began.elapsed().as_secs_f64();
            results.notes.push(format!("{}: {} in {seconds:.0} s", part.name, part.what));
        }
    }
    if options.stopped() {
        results.complete = false;
        results.notes.push("interrupted: what was measured until then is here".to_owned());
    }
    match first.or(unavailable) {
        // Nothing was measured: the obstacle is the only result.
        Some(error) if results.rows.is_empty() => Err(error),
        _ => Ok(results),
    }
}

/// Returns the selected parts, all when none is named.
fn parts(asked: &[String]) -> Result<Vec<&'static Part>, Error> {
    let names = || PARTS.iter().map(|part| part.name);
    if let Some(other) = asked.iter().find(|name| names().all(|known| known != name.as_str())) {
        return Err(Error::Caller {
            what: format!("--part {other}"),
            found: format!("no such part; write one of {}", names().collect::<Vec<_>>().join(", ")),
        });
    }
    let is_asked = |part: &&Part| asked.is_empty() || asked.iter().any(|name| name == part.name);
    Ok(PARTS.iter().filter(is_asked).collect())
}

/// State of a run of the laboratory, shared by its parts.
struct KernelLab<'a> {
    options: &'a Options,
    checkout: Checkout,
    /// Files of this run: root folders of guests.
    scratch: TempDir,
    parts: usize,
    part: AtomicUsize,
    /// Description of the current part, for the progress bar.
    what: Mutex<String>,
}

impl<'a> KernelLab<'a> {
    fn new(options: &'a Options, checkout: Checkout, parts: usize) -> Result<KernelLab<'a>, Error> {
        let scratch = tempfile::tempdir().map_err(Error::host("a folder for guests"))?;
        Ok(KernelLab {
            options,
            checkout,
            scratch,
            parts,
            part: AtomicUsize::new(0),
            what: Mutex::new(String::new()),
        })
    }

    /// Marks the start of the next part.
    fn part(&self, what: &str) {
        self.step(what);
        self.part.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports the current step within the part.
    fn step(&self, what: &str) {
        what.clone_into(&mut self.what());
        self.options.progress(self.done(), self.parts, what);
    }

    /// Counts the parts that are done.
    fn done(&self) -> usize {
        self.part.load(Ordering::Relaxed).saturating_sub(1)
    }

    fn what(&self) -> MutexGuard<'_, String> {
        self.what.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Returns a folder of this run.
    fn folder(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }
}

impl Watch for KernelLab<'_> {
    fn stopped(&self) -> bool {
        self.options.stopped()
    }

    fn progress(&self, line: &str) {
        let what = format!("{}: {line}", self.what());
        self.options.progress(self.done(), self.parts, &what);
    }
}
