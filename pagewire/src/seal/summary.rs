// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summary of a run: files, bytes, throughput, time per stage, CPU cost.
//!
//! Prints two lines for a person or one object for a script, with the same figures. The CPU cost is
//! processor time per source byte. The tail is the time at the end in which some cores were idle.
//! The lines of a short run leave out the rates, which would be those of its start.
//!
//! `failures` lists the failures for a person, after this.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;

use seal::counted;
use seal::engine::{SealOutcome, WorkUnit};
use serde::Serialize;

use super::failures;
use super::progress::{Audience, line, size};

/// Writes the summary to standard output: an object for a script, otherwise lines.
pub(super) fn say(audience: Audience, outcome: &SealOutcome) {
    let summary = Summary::of(outcome);
    match audience {
        Audience::Script => line(&summary),
        // A run that could not begin has only its error to report.
        _ if outcome.done + outcome.skipped == 0 && !outcome.failed.is_empty() => {}
        _ => {
            // Ignores a closed standard output.
            let _ = write!(std::io::stdout(), "{summary}");
        }
    }
}

#[derive(Serialize)]
struct Summary {
    event: &'static str,
    /// `done`, `failed` (at least one file) or `stopped`.
    outcome: &'static str,
    /// Unit of `done_files`: `file`, or `segment` of a film.
    unit: &'static str,
    done_files: u64,
    /// Files, or films, done by an earlier run.
    skipped_files: u64,
    failed_files: u64,
    /// Files that the form does not apply to.
    passed_over_files: u64,
    source_bytes: u64,
    seconds: f64,
    bytes_per_second: u64,
    cpu_seconds: f64,
    /// Processor seconds per 10⁹ bytes of source.
    cpu_s_per_gb: f64,
    tail_seconds: f64,
    /// Mean number of messages in the lanes.
    lanes: f64,
    /// Shares of the workers' time.
    stages: BTreeMap<&'static str, f64>,
    failures: Vec<String>,
    passed_over: Vec<String>,
    /// Remarks on files that were done with a limitation, such as a codec that browsers lack.
    notes: Vec<String>,
}

impl Summary {
    fn of(outcome: &SealOutcome) -> Self {
        let seconds = outcome.wall.as_secs_f64();
        let rate = outcome.bytes as f64 / seconds.max(f64::MIN_POSITIVE);
        let state = match (outcome.is_stopped, &outcome.failed[..]) {
            (true, _) => "stopped",
            (false, []) => "done",
            (false, _) => "failed",
        };
        Self {
            event: "result",
            outcome: state,
            unit: match outcome.unit {
                WorkUnit::Segment => SEGMENT,
                _ => "file",
            },
            done_files: outcome.done,
            skipped_files: outcome.skipped,
            failed_files: outcome.failed.len() as u64,
            passed_over_files: outcome.passed_over.len() as u64,
            source_bytes: outcome.bytes,
            seconds,
            bytes_per_second: rate as u64,
            cpu_seconds: outcome.cpu.as_secs_f64(),
            cpu_s_per_gb: if outcome.bytes > 0 { outcome.cpu_s_per_gb() } else { 0.0 },
            tail_seconds: outcome.tail.as_secs_f64(),
            lanes: outcome.lanes,
            stages: outcome.stages.shares().filter(|(_, share)| *share > 0.0).collect(),
            failures: failures::lines(&outcome.failed),
            passed_over: failures::lines(&outcome.passed_over),
            notes: failures::lines(&outcome.remarks),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.outcome == "failed" { "done in part" } else { self.outcome };
        write!(f, "{state}: {}", counted(self.done_files, self.unit))?;
        let source = if self.unit == SEGMENT { "film" } else { "file" };
        if self.source_bytes > 0 {
            write!(f, ", {} in {:.2} s", size(self.source_bytes), self.seconds)?;
        }
        let is_long = self.source_bytes >= RATED_BYTES;
        if is_long {
            write!(f, ", {}/s", size(self.bytes_per_second))?;
        }
        let counts = [
            (self.skipped_files, "done before"),
            (self.failed_files, "failed"),
            (self.passed_over_files, "passed over"),
        ];
        for (count, what) in counts {
            if count > 0 {
                let unit = if what == "passed over" { "file" } else { source };
                write!(f, "; {} {what}", counted(count, unit))?;
            }
        }
        writeln!(f)?;
        if !is_long {
            return Ok(());
        }
        write!(
            f,
            "{:.2} processor seconds a GB; {:.2} s tail",
            self.cpu_s_per_gb, self.tail_seconds
        )?;
        if self.lanes > 0.0 {
            write!(f, "; {:.1} files in the lanes", self.lanes)?;
        }
        let mut stages: Vec<_> = self.stages.iter().collect();
        stages.sort_by(|a, b| b.1.total_cmp(a.1));
        let shown = stages.iter().filter(|(_, share)| **share >= SHARE_SHOWN);
        for (index, (stage, share)) in shown.enumerate() {
            write!(f, "{} {stage} {:.0} %", if index == 0 { ";" } else { "," }, *share * 100.0)?;
        }
        writeln!(f)
    }
}

/// Unit of work of a film.
const SEGMENT: &str = "segment";
/// Minimum of source bytes for rates: a shorter run spends most of its time on starting and on
/// syncing.
const RATED_BYTES: u64 = 100_000_000;
/// Minimum share that is shown: a smaller one would round to 0 %.
const SHARE_SHOWN: f64 = 0.005;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use seal::{Error, FileFault};

    use super::*;

    fn outcome() -> SealOutcome {
        SealOutcome {
            done: 3,
            skipped: 1,
            bytes: 2_000_000_000,
            wall: Duration::from_millis(500),
            cpu: Duration::from_millis(900),
            tail: Duration::from_millis(20),
            lanes: 7.6,
            ..SealOutcome::default()
        }
    }

    #[test]
    fn a_person_reads_size_rate_and_cpu_cost() {
        let text = Summary::of(&outcome()).to_string();
        let expected = "done: 3 files, 2.00 GB in 0.50 s, 4.00 GB/s; 1 file done before\n\
            0.45 processor seconds a GB; 0.02 s tail; 7.6 files in the lanes\n";
        assert_eq!(text, expected);
        let nothing =
            Summary::of(&SealOutcome { skipped: 2, ..SealOutcome::default() }).to_string();
        assert_eq!(nothing, "done: 0 files; 2 files done before\n");
        let failed = vec![Error::file(Path::new("a"), FileFault::Changed)];
        let short = SealOutcome { failed, done: 1, bytes: 14_200, ..outcome() };
        let text = Summary::of(&short).to_string();
        let expected =
            "done in part: 1 file, 14.2 kB in 0.50 s; 1 file done before; 1 file failed\n";
        assert_eq!(text, expected);
        let films = SealOutcome { unit: WorkUnit::Segment, bytes: 14_200, ..outcome() };
        let text = Summary::of(&films).to_string();
        assert_eq!(text, "done: 3 segments, 14.2 kB in 0.50 s; 1 film done before\n");
    }

    #[test]
    fn a_script_reads_the_same_and_every_failure() {
        let failed = vec![Error::file(Path::new("a"), FileFault::Changed)];
        let outcome = SealOutcome { failed, ..outcome() };
        let value = serde_json::to_value(Summary::of(&outcome)).unwrap();
        assert_eq!((&value["event"], &value["outcome"]), (&"result".into(), &"failed".into()));
        assert_eq!((&value["done_files"], &value["cpu_s_per_gb"]), (&3.into(), &0.45.into()));
        assert_eq!(value["failures"].as_array().map(Vec::len), Some(1));
        let stopped = SealOutcome { is_stopped: true, ..outcome };
        assert_eq!(Summary::of(&stopped).outcome, "stopped");
    }
}
