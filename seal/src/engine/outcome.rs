// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a run, and what it cost.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::stage::Stages;
use crate::error::Error;

/// What came of a run.
#[derive(Debug, Default)]
pub struct SealOutcome {
    /// Works done.
    pub done: u64,
    /// Why the others were not, in no order.
    pub failed: Vec<Error>,
    /// Works that were done before.
    pub skipped: u64,
    /// Files found that are none of the form's, with the reason; no failures.
    pub passed_over: Vec<Error>,
    /// What was done and is not all that its owner may expect of it; no failures.
    pub remarks: Vec<Error>,
    /// Bytes of sources that were taken.
    pub bytes: u64,
    /// It was stopped from outside: there may be works that are neither done nor failed.
    pub is_stopped: bool,
    /// From beginning to end.
    pub wall: Duration,
    /// Processor time of the whole process meanwhile.
    pub cpu: Duration,
    /// Where the workers' time went.
    pub stages: Stages,
    /// At the end: time in which fewer than all workers had something to do.
    pub tail: Duration,
    /// Messages in the lanes, on average over the bytes enciphered: bytes of a round by the bytes
    /// of its longest message. 0 when the lanes had nothing to do.
    pub lanes: f64,
}

impl SealOutcome {
    /// Processor seconds per 10⁹ bytes of source.
    pub fn cpu_s_per_gb(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.bytes.max(1) as f64 / 1e9)
    }

    pub(super) fn of(reports: Vec<WorkerReport>) -> Self {
        let ends = || reports.iter().map(|report| report.ended);
        let tail = ends().max().zip(ends().min()).map(|(last, first)| last - first);
        let mut outcome = Self { tail: tail.unwrap_or_default(), ..Self::default() };
        let (mut cipher, mut longest) = (0, 0);
        for report in reports {
            outcome.done += report.done;
            outcome.bytes += report.bytes;
            outcome.failed.extend(report.failed);
            outcome.stages.add(&report.stages);
            cipher += report.cipher_bytes;
            longest += report.longest_bytes;
        }
        if longest > 0 {
            outcome.lanes = cipher as f64 / longest as f64;
        }
        outcome
    }
}

/// What a worker says at its end.
#[derive(Debug)]
pub(super) struct WorkerReport {
    pub(super) done: u64,
    pub(super) bytes: u64,
    pub(super) failed: Vec<Error>,
    pub(super) stages: Stages,
    pub(super) cipher_bytes: u64,
    pub(super) longest_bytes: u64,
    pub(super) ended: Instant,
}

/// Processor time of this process, all threads.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
