// SPDX-License-Identifier: MIT OR Apache-2.0
//! List of the guest's jobs beside the workloads, one line each.
//!
//! A job is named on the command line like a workload, reads its settings, prints its own lines,
//! and ends the run with an error if it fails.

use crate::error::Error;
use crate::request::GuestSettings;

/// A job.
#[derive(Debug)]
pub(crate) struct GuestJob {
    /// The word on the command line.
    pub(crate) name: &'static str,
    /// Runs the job.
    pub(crate) run: fn(&GuestSettings) -> Result<(), Error>,
}

/// All jobs.
pub(crate) static JOBS: &[&GuestJob] = &[
    &crate::memcpy_sizes::BEGIN,
    &crate::memcpy_sizes::SAY,
    &crate::unixbench::JOB,
    &crate::paths::JOB,
    &crate::verify::JOB,
    &crate::fpu::JOB,
];
