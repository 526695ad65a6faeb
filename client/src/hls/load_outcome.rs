// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result of an HLS load: figures for programs (serde), a short table for people (`Display`).
//!
//! Does not compare loads; the laboratory does.

use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::load::HlsLoad;
use super::viewer::Viewer;
use crate::load::process_meter::ProcessUsage;
use crate::load::{EndReason, LoadClient};
use crate::plural::counted;

/// End of one viewer.
#[derive(Debug, Default)]
pub(super) struct ViewerEnd {
    pub(super) start: Option<Duration>,
    /// Reason of an end other than the end of the presentation or of the load.
    pub(super) reason: Option<String>,
    is_verified: bool,
    stalls: u64,
    stalled: Duration,
    segments: u64,
    missed: u64,
    bytes: u64,
    switches: u64,
    fault_count: u64,
    /// The first fault.
    fault: Option<String>,
}

/// Figures of the measured time.
#[derive(Default)]
pub(super) struct LoadFigures {
    /// Bytes of segments.
    pub(super) bytes: u64,
    pub(super) is_interrupted: bool,
}

/// Percentiles of start times, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StartTimesMs {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// Result of an HLS load.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HlsLoadOutcome {
    /// URL that was played.
    pub url: String,
    /// Viewers requested.
    pub asked: u32,
    /// Viewers whose play started.
    pub started: u32,
    /// Viewers that would not have stalled: they started, never waited for a segment, missed none
    /// and had no fault.
    pub without_stall: u32,
    /// Viewers that stalled.
    pub stalled: u32,
    /// Stalls of all viewers.
    pub stalls: u64,
    /// Length of all stalls, in seconds.
    pub stalled_s: f64,
    /// Time from a viewer's first request to the start of its play.
    pub start_ms: StartTimesMs,
    /// Reasons of ends before the end of the load or of the presentation.
    pub ended: Vec<EndReason>,
    /// Viewers whose segments were checked.
    pub verified: u32,
    /// Faults of all viewers: failed requests, and for verified viewers faults in segments.
    pub faults: u64,
    /// The most frequent first faults, with their number of viewers.
    pub first_faults: Vec<EndReason>,
    /// Complete segments, from the first start.
    pub segments: u64,
    /// Segments that could not be fetched.
    pub missed: u64,
    /// Changes of the variant.
    pub switches: u64,
    /// Bytes of segments, from the first start.
    pub bytes_in_all: u64,
    /// Bytes of segments in the measured time.
    pub bytes: u64,
    /// Bits a second during the measured time.
    pub bit_rate: f64,
    /// The caller stopped the load before its time.
    pub interrupted: bool,
    /// Length of the measured time, in seconds.
    pub seconds: f64,
    /// Length of the ramp, in seconds.
    pub ramp_seconds: f64,
    /// Figures of this program.
    pub client: LoadClient,
    /// CPU seconds of the server for 10⁹ bytes of segments, where its process is visible.
    pub server_cpu_s_per_gb: Option<f64>,
}

impl ViewerEnd {
    pub(super) fn new(viewer: &Viewer<'_>, is_verified: bool, reason: Option<String>) -> ViewerEnd {
        let mut state = viewer.lock();
        if let Some(model) = &mut state.model {
            model.leave(Instant::now());
        }
        let model = state.model.as_ref();
        let (stalls, stalled, _) = model.map(|model| model.stalls()).unwrap_or_default();
        let sum = |of: fn(&super::rendition::RenditionStats) -> u64| -> u64 {
            state.renditions.iter().map(of).sum()
        };
        ViewerEnd {
            start: model.and_then(|model| model.start()),
            reason,
            is_verified,
            stalls,
            stalled,
            segments: sum(|rendition| rendition.segments),
            missed: sum(|rendition| rendition.missed),
            bytes: sum(|rendition| rendition.bytes),
            switches: state.switches,
            fault_count: state.fault_count,
            // Without the address, which differs for each segment.
            fault: state.faults.first().map(|fault| fault.found.clone()),
        }
    }

    fn is_without_stall(&self) -> bool {
        self.start.is_some()
            && self.stalls == 0
            && self.missed == 0
            && self.fault_count == 0
            && self.reason.is_none()
    }
}

impl HlsLoadOutcome {
    pub(super) fn new(
        options: &HlsLoad,
        ends: &[ViewerEnd],
        figures: &LoadFigures,
        usage: &ProcessUsage,
        timers: &Histogram<u64>,
    ) -> HlsLoadOutcome {
        let count = |holds: fn(&ViewerEnd) -> bool| ends.iter().filter(|end| holds(end)).count();
        let sum = |of: fn(&ViewerEnd) -> u64| ends.iter().map(of).sum::<u64>();
        let gigabytes = figures.bytes as f64 / 1e9;
        let server = usage.server_seconds.filter(|_| figures.bytes > 0);
        HlsLoadOutcome {
            url: options.url.clone(),
            asked: options.viewers,
            started: count(|end| end.start.is_some()) as u32,
            without_stall: count(ViewerEnd::is_without_stall) as u32,
            stalled: count(|end| end.stalls > 0) as u32,
            stalls: sum(|end| end.stalls),
            stalled_s: ends.iter().map(|end| end.stalled.as_secs_f64()).sum(),
            start_ms: start_times(ends),
            ended: by_count(ends.iter().filter_map(|end| end.reason.as_deref())),
            verified: count(|end| end.is_verified) as u32,
            faults: sum(|end| end.fault_count),
            first_faults: by_count(ends.iter().filter_map(|end| end.fault.as_deref())),
            segments: sum(|end| end.segments),
            missed: sum(|end| end.missed),
            switches: sum(|end| end.switches),
            bytes_in_all: sum(|end| end.bytes),
            bytes: figures.bytes,
            bit_rate: figures.bytes as f64 * 8.0 / usage.seconds().max(1e-3),
            interrupted: figures.is_interrupted,
            seconds: usage.seconds(),
            ramp_seconds: options.ramp().as_secs_f64(),
            client: usage.client(timers),
            server_cpu_s_per_gb: server.map(|seconds| seconds / gigabytes),
        }
    }

    /// Returns true where no viewer would have stalled, even for a load that was stopped early.
    pub fn is_smooth(&self) -> bool {
        self.without_stall == self.asked
    }
}

fn start_times(ends: &[ViewerEnd]) -> StartTimesMs {
    let mut times: Vec<f64> =
        ends.iter().filter_map(|end| Some(end.start?.as_secs_f64() * 1e3)).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (times.len() as f64 * share).ceil() as usize;
        times.get(index.saturating_sub(1)).copied().unwrap_or_default()
    };
    StartTimesMs { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
}

/// Counts equal reasons; returns the most frequent first.
fn by_count<'a>(reasons: impl Iterator<Item = &'a str>) -> Vec<EndReason> {
    let mut counted = Vec::<EndReason>::new();
    for reason in reasons {
        let known = counted.iter().position(|known| known.reason == reason);
        match known {
            Some(index) => counted[index].sessions += 1,
            None if counted.len() < REASONS_MAX => {
                counted.push(EndReason { sessions: 1, reason: reason.to_owned() });
            }
            None => {
                let last = counted.last_mut().expect("there are some");
                last.sessions += 1;
                last.reason = "other reasons".to_owned();
            }
        }
    }
    counted.sort_by_key(|reason| std::cmp::Reverse(reason.sessions));
    counted
}

/// A short table, each line with its line end.
impl fmt::Display for HlsLoadOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HlsLoadOutcome { url, asked, started, seconds, start_ms, client, .. } = self;
        let stopped = if self.interrupted { ", stopped" } else { "" };
        let viewers = counted((*asked).into(), "viewer", "viewers");
        writeln!(f, "{url}: {viewers} for {seconds:.1} s{stopped}")?;
        writeln!(
            f,
            "  smooth      {} would not have stalled; {started} started, {} stalled: {} times, \
             {:.1} s",
            self.without_stall, self.stalled, self.stalls, self.stalled_s
        )?;
        for EndReason { sessions, reason } in &self.ended {
            writeln!(f, "  ended       {sessions}: {reason}")?;
        }
        for EndReason { sessions, reason } in &self.first_faults {
            writeln!(f, "  fault       {sessions}: {reason}")?;
        }
        let StartTimesMs { p50, p90, p99, max } = start_ms;
        writeln!(f, "  start       p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, max {max:.1} ms")?;
        writeln!(
            f,
            "  segments    {}, {} missed; {} viewers checked theirs, {} faults",
            self.segments, self.missed, self.verified, self.faults
        )?;
        writeln!(
            f,
            "  bytes       {} in the measured time, {:.1} Mb/s; {} in all",
            self.bytes,
            self.bit_rate / 1e6,
            self.bytes_in_all
        )?;
        writeln!(f, "  client      {client}")?;
        match self.server_cpu_s_per_gb {
            Some(cost) => writeln!(f, "  server      {cost:.3} processor seconds a GB"),
            None => Ok(()),
        }
    }
}

const REASONS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_with_any_fault_is_not_smooth() {
        let good = || ViewerEnd { start: Some(Duration::from_millis(5)), ..ViewerEnd::default() };
        assert!(good().is_without_stall());
        assert!(!ViewerEnd::default().is_without_stall());
        assert!(!ViewerEnd { stalls: 1, ..good() }.is_without_stall());
        assert!(!ViewerEnd { missed: 1, ..good() }.is_without_stall());
        assert!(!ViewerEnd { fault_count: 1, ..good() }.is_without_stall());
        assert!(!ViewerEnd { reason: Some("x".to_owned()), ..good() }.is_without_stall());
    }

    #[test]
    fn start_times_are_of_those_that_started() {
        let end = |ms| ViewerEnd { start: Some(Duration::from_millis(ms)), ..ViewerEnd::default() };
        let mut ends: Vec<_> = (1..=100).map(end).collect();
        ends.push(ViewerEnd::default());
        let times = StartTimesMs { p50: 50.0, p90: 90.0, p99: 99.0, max: 100.0 };
        assert_eq!(start_times(&ends), times);
        assert_eq!(start_times(&[]), StartTimesMs::default());
    }

    #[test]
    fn reasons_are_counted_and_few() {
        let reasons: Vec<String> = (0..20).map(|n| (n / 2).to_string()).collect();
        let counted = by_count(reasons.iter().map(String::as_str));
        assert_eq!(counted.len(), REASONS_MAX);
        assert_eq!((counted[0].reason.as_str(), counted[0].sessions), ("other reasons", 6));
        assert_eq!(counted.iter().map(|reason| reason.sessions).sum::<u32>(), 20);
    }
}
