// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results, wall time and CPU time of a sealing run.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::stage::Stages;
use crate::error::Error;

/// Kind of the works that [`SealOutcome::done`] counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkUnit {
    /// A file of a folder, or a publication.
    #[default]
    File,
    /// A segment of a film; films done before are counted as films.
    Segment,
}

/// Results and times of a sealing run.
#[derive(Debug, Default)]
pub struct SealOutcome {
    /// Number of works done.
    pub done: u64,
    /// Kind of these works.
    pub unit: WorkUnit,
    /// Errors of the works that failed, in no order.
    pub failed: Vec<Error>,
    /// Number of works that an earlier run had done.
    pub skipped: u64,
    /// Files that the form does not seal, with the reason; they are no failures.
    pub passed_over: Vec<Error>,
    /// Remarks for the owner about finished works; they are no failures.
    pub remarks: Vec<Error>,
    /// Bytes of sources that were read.
    pub bytes: u64,
    /// True when the run was stopped from outside: some works may be neither done nor failed.
    pub is_stopped: bool,
    /// Wall time of the run.
    pub wall: Duration,
    /// Processor time of the whole process during the run.
    pub cpu: Duration,
    /// Time of the workers in each stage.
    pub stages: Stages,
    /// Time between the end of the first worker and the end of the last.
    pub tail: Duration,
    /// Average number of messages in the lanes, weighted by bytes: bytes of a round divided by the
    /// bytes of its longest message. 0 when the lanes had nothing to do.
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

/// Counts and times of one worker.
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

/// Returns the processor time of this process, all threads.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
