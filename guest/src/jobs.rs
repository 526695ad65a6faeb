// SPDX-License-Identifier: MIT OR Apache-2.0
//! List of the guest's jobs beside the workloads, one line each.

use crate::guest_job::GuestJob;

/// All jobs.
pub(crate) static JOBS: &[&GuestJob] = &[
    &crate::memcpy_sizes::BEGIN,
    &crate::memcpy_sizes::SAY,
    &crate::unixbench::JOB,
    &crate::paths::JOB,
    &crate::verify::JOB,
    &crate::fpu::JOB,
];
