// SPDX-License-Identifier: MIT OR Apache-2.0
//! The check of the program itself: its kernels must have no blocked load, and its specimens
//! exactly those that were put in. Each tracer that can be used here checks both.
//!
//! Two tracers are used because each traces code that the other cannot: `lackey` traces all
//! accesses on the processor that valgrind emulates, `steps` runs the processor's own kernels,
//! those for AVX-512 among them.
//!
//! A kernel's pair that occurs once a call is no fault: every caller that passes a structure stores
//! its arguments by words, and they are copied by registers. Its cost is that of a call, and it is
//! reported. A pair that occurs more often is in the kernel's loop.
//!
//! Sources: the module's own.
//! Does not use the counters, which also count chance events.

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
    /// Runs the function the given number of times.
    pub run: fn(u64),
}

/// Result of one tracer on one exercise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the tracer.
    pub tracer: &'static str,
    /// Name of the exercise.
    pub exercise: &'static str,
    /// Blocked loads: of a specimen all, of a kernel those that occur more than once a call.
    pub blocked: u64,
    /// Number of blocked loads that must be found.
    pub expected: u64,
    /// Blocked loads that occur once a call.
    pub once_a_call: u64,
}

impl Finding {
    /// True when the number is the expected one.
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
    /// Findings, by tracer and exercise.
    pub findings: Vec<Finding>,
    /// Report of each tracer.
    pub reports: Vec<Report>,
    /// Tracers that cannot be used here, with the reason.
    pub passed: Vec<String>,
}

impl Check {
    /// True when all findings are right.
    pub fn is_right(&self) -> bool {
        self.findings.iter().all(Finding::is_right)
    }
}

/// Runs `program` with `arguments`, which makes it run the exercises and nothing else, under each
/// tracer, or under the requested one. `watched` is the path of the module with the exercises'
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
