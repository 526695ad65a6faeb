// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job of the guest: work beside the workloads that is named on the command line.
//!
//! A job reads its settings, prints its own lines, and ends the run with an error if it fails. The
//! list is in `jobs.rs`.

use crate::error::Error;
use crate::settings::GuestSettings;

/// A job.
#[derive(Debug)]
pub(crate) struct GuestJob {
    /// The word on the command line.
    pub(crate) name: &'static str,
    /// Runs the job.
    pub(crate) run: fn(&GuestSettings) -> Result<(), Error>,
}
