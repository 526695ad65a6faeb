// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guest can do beside the workloads: a list, one line each.
//!
//! A job is named on the command line like a workload, reads the settings it wants, says its own
//! lines, and fails the run with an error.

use crate::error::Error;
use crate::request::GuestSettings;

/// One of them.
#[derive(Debug)]
pub(crate) struct GuestJob {
    /// The word on the command line.
    pub(crate) name: &'static str,
    /// Does it.
    pub(crate) run: fn(&GuestSettings) -> Result<(), Error>,
}

/// All of them.
pub(crate) static JOBS: &[&GuestJob] = &[
    &crate::memcpy_sizes::BEGIN,
    &crate::memcpy_sizes::SAY,
    &crate::unixbench::JOB,
    &crate::paths::JOB,
    &crate::verify::JOB,
    &crate::fpu::JOB,
];
