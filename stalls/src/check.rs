// SPDX-License-Identifier: MIT OR Apache-2.0
//! The check of the program itself: its kernels have no blocked load, and its specimens those that
//! were put in, as each tracer sees it that can be used here.
//!
//! Two tracers because each sees what the other cannot: `lackey` everything on the processor that
//! valgrind emulates, `steps` the processor's own kernels, those for AVX-512 among them.
//!
//! A kernel's pair that comes once a call is no fault: arguments are stored by words and copied by
//! registers, whoever passes a structure. It costs what a call does, and is told. More often than
//! that, it is in the loop.
//!
//! Sources: the module's own.
//! What it does not do: use the counters; they count what is by chance, too.

use std::ffi::OsString;
use std::path::Path;

use serde::Serialize;

use crate::{Report, StallOptions, TRACERS, find};
use measure::Error;

/// A function that is run to be traced.
pub struct Exercise {
    /// Name of the exercise, and the last part of its function's path.
    pub name: &'static str,
    /// Number of calls in a run.
    pub calls: u64,
    /// Blocked loads that its construction puts into a call; 0 where there must be none.
    pub blocked: u64,
    /// Runs it so many times.
    pub run: fn(u64),
}

/// What one tracer says of one exercise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The tracer.
    pub tracer: &'static str,
    /// The exercise.
    pub exercise: &'static str,
    /// Blocked loads: of a specimen all, of a kernel those that come more than once a call.
    pub blocked: u64,
    /// As many as there shall be.
    pub expected: u64,
    /// Blocked loads that come once a call.
    pub once_a_call: u64,
}

impl Finding {
    /// Whether it is as it shall be.
    pub fn is_right(&self) -> bool {
        self.blocked == self.expected
    }

    fn of(report: &Report, watched: &str, exercise: &Exercise) -> Finding {
        let function = format!("{watched}{}", exercise.name);
        let within = |name: &String| name.ends_with(&function);
        let mut finding = Finding {
            tracer: report.tracer,
            exercise: exercise.name,
            blocked: 0,
            expected: exercise.blocked * exercise.calls,
            once_a_call: 0,
        };
        for pair in &report.pairs {
            if !pair.certain || !pair.within.as_ref().is_some_and(within) {
                continue;
            }
            match exercise.blocked > 0 || pair.count > exercise.calls {
                true => finding.blocked += pair.count,
                false => finding.once_a_call += pair.count,
            }
        }
        finding
    }
}

/// All findings of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// By tracer and exercise.
    pub findings: Vec<Finding>,
    /// What each tracer reported.
    pub reports: Vec<Report>,
    /// Tracers that cannot be used here, and why.
    pub passed: Vec<String>,
}

impl Check {
    /// Whether all is as it shall be.
    pub fn is_right(&self) -> bool {
        self.findings.iter().all(Finding::is_right)
    }
}

/// Runs `program` with `arguments`, which makes it run the exercises and nothing else, under each
/// tracer, or the one asked for. `watched` is the path of the module that has the exercises'
/// functions.
///
/// # Errors
/// As [`find`]; [`Error::Unavailable`] when no tracer can be used.
pub fn check(
    (program, arguments): (&Path, &[&str]),
    (watched, exercises): (&str, &[Exercise]),
    asked: &StallOptions,
) -> Result<Check, Error> {
    let mut command = vec![program.as_os_str().to_owned()];
    command.extend(arguments.iter().map(OsString::from));
    let mut check = Check { findings: Vec::new(), reports: Vec::new(), passed: Vec::new() };
    for name in CHECKING {
        if asked.by.as_ref().is_some_and(|by| by != name) {
            continue;
        }
        let options = StallOptions {
            command: command.clone(),
            by: Some((*name).to_owned()),
            function: Some(watched.to_owned()),
            ..asked.clone()
        };
        let tracer = TRACERS.iter().find(|tracer| tracer.name == *name).expect("a tracer's name");
        if let Err(error) = tracer.probe(&options) {
            check.passed.push(error.to_string());
            continue;
        }
        let report = find(&options)?;
        if report.exit != Some(0) {
            return Err(Error::Host {
                what: format!("the exercises under {name}"),
                found: format!("ended with {:?}", report.exit),
            });
        }
        check
            .findings
            .extend(exercises.iter().map(|exercise| Finding::of(&report, watched, exercise)));
        check.reports.push(report);
    }
    match check.reports.is_empty() {
        false => Ok(check),
        true if check.passed.is_empty() => Err(Error::Caller {
            what: format!("check of the tracer {}", asked.by.as_deref().unwrap_or_default()),
            found: format!("write one of {}", CHECKING.join(", ")),
        }),
        true => Err(Error::Unavailable { need: "lackey or steps", found: check.passed.join("; ") }),
    }
}

const CHECKING: &[&str] = &["lackey", "steps"];
