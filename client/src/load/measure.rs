// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measured time: reads counters at its start and at its end, and computes the outcome.
//!
//! Costs one system call for each counted session at its start and its end. 2,500 calls need about
//! a millisecond, so the counts of all sessions are simultaneous within that.
//!
//! Does not read the CPU counters itself: `process_meter` does.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Load;
use super::bottleneck::{Evidence, bottleneck};
use super::group_book::GroupBook;
use super::group_outcome::GroupOutcome;
use super::load_session::{LoadState, SessionEnd};
use super::outcome::{CountedSessions, LoadOutcome};
use super::process_meter::{ProcessMeter, ProcessUsage, quantile};
use super::sampled_stats::Window;
use super::session_streams::PacketCounter;
use super::session_sums::{ReasonCounts, SessionSum, VerifiedSum};

/// Counters at the start.
pub(super) struct Measurement {
    began: Instant,
    meter: ProcessMeter,
    /// The counters of each counted session's streams, and their values.
    counting: Vec<(Box<[PacketCounter]>, Vec<u32>)>,
}

/// Figures of the measured time.
pub(super) struct MeasuredLoad {
    usage: ProcessUsage,
    /// Packets of each counted session.
    packets: Vec<u64>,
}

impl Measurement {
    pub(super) fn begin(shared: &LoadState, window: &Window, is_local: bool) -> Measurement {
        let counters = shared.counting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let began = *window.from.get_or_init(Instant::now);
        let count = |counters: Box<[PacketCounter]>| {
            let before = counters.iter().map(|counter| counter.packets().unwrap_or(0)).collect();
            (counters, before)
        };
        let counting = counters.into_iter().map(count).collect();
        Measurement { began, meter: ProcessMeter::begin(shared.server, is_local), counting }
    }

    pub(super) fn end(self, window: &Window) -> MeasuredLoad {
        let ended = *window.until.get_or_init(Instant::now);
        let since = |(counter, before): (&PacketCounter, &u32)| {
            let now = counter.packets().unwrap_or(*before);
            u64::from(now.wrapping_sub(*before))
        };
        let of_session = |(counters, before): &(Box<[PacketCounter]>, Vec<u32>)| {
            counters.iter().zip(before).map(since).sum()
        };
        let packets = self.counting.iter().map(of_session).collect();
        let length = ended.saturating_duration_since(self.began);
        MeasuredLoad { usage: self.meter.end(length), packets }
    }
}

impl MeasuredLoad {
    /// Figures of a load without a measured time.
    pub(super) fn nothing(is_local: bool) -> MeasuredLoad {
        MeasuredLoad { usage: ProcessUsage::nothing(is_local), packets: Vec::new() }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.usage.seconds()
    }

    /// Computes the outcome of a load in which every session has ended.
    pub(super) fn outcome(
        &self,
        options: &Load,
        ends: &[SessionEnd],
        groups: Option<Vec<GroupBook>>,
        timers: &Histogram<u64>,
        interrupted: bool,
    ) -> LoadOutcome {
        let client = self.usage.client(timers);
        let mut evidence = Evidence {
            timers_late: Duration::from_micros(quantile(timers, 0.99)),
            cores: client.cores,
            cores_machine: client.machine_cores,
            cores_server: client.server_cores,
            cores_all: client.machine_cores_all,
            is_local: client.server_is_local,
            ..Evidence::default()
        };
        let played = ends.iter().filter(|end| end.is_played).count() as u32;
        let sums = match groups {
            Some(groups) => OutcomeSums::of_groups(groups, options.within()),
            None => self.sums(options, ends),
        };
        evidence.failed = sums.failed.first();
        evidence.ended = sums.ended.first();
        sums.verified.testify(&mut evidence);
        evidence.lost += sums.counted.lost;
        evidence.unaccounted = sums.unaccounted;
        let bottleneck = bottleneck(&evidence);
        LoadOutcome {
            url: options.url.clone(),
            transport: options.transport,
            asked: options.sessions,
            played,
            failed: sums.failed.by_count(),
            ended: sums.ended.by_count(),
            interrupted,
            seconds: self.seconds(),
            ramp_seconds: options.ramp().as_secs_f64(),
            verified: sums.verified.figures(options.within()),
            counted: sums.counted,
            groups: sums.groups,
            client,
            bottleneck_line: bottleneck.to_string(),
            bottleneck,
        }
    }

    /// Sums over sessions with the same behaviour.
    fn sums(&self, options: &Load, ends: &[SessionEnd]) -> OutcomeSums {
        let mut sums = OutcomeSums::default();
        ends.iter().filter_map(|end| end.failed.as_ref()).for_each(|end| sums.failed.add(end));
        ends.iter().filter_map(|end| end.ended.as_ref()).for_each(|end| sums.ended.add(end));
        for end in ends.iter().filter(|end| end.is_verified()) {
            let mut session = SessionSum::default();
            sums.verified.add(end, &mut session);
            sums.verified.judge(session, true);
        }
        let mut counted = CountedSessions {
            packets: self.packets.iter().sum(),
            packets_least: self.packets.iter().min().copied().unwrap_or(0),
            packets_most: self.packets.iter().max().copied().unwrap_or(0),
            ..CountedSessions::default()
        };
        // No session is verified and no packet arrives: the packets are discarded elsewhere on
        // purpose.
        let is_discarded =
            options.sample() == 0 && ends.iter().all(|end| end.counted().unwrap_or(0) == 0);
        for end in ends.iter().filter(|end| end.is_played && !end.is_verified()) {
            counted.sessions += 1;
            counted.packets_in_all += end.counted().unwrap_or(0);
            if let Some(missing) = end.missing().filter(|_| !is_discarded) {
                counted.accounted += 1;
                counted.lost += missing;
            }
        }
        sums.unaccounted = if is_discarded { 0 } else { counted.sessions - counted.accounted };
        sums.counted = counted;
        sums
    }
}

/// Sums for an outcome.
#[derive(Default)]
struct OutcomeSums {
    failed: ReasonCounts,
    ended: ReasonCounts,
    verified: VerifiedSum,
    counted: CountedSessions,
    /// Counted sessions whose sender's count is unknown.
    unaccounted: u32,
    groups: Vec<GroupOutcome>,
}

impl OutcomeSums {
    /// Sums over the judged groups, and the figures of each group.
    fn of_groups(groups: Vec<GroupBook>, within: Duration) -> OutcomeSums {
        let mut sums = OutcomeSums::default();
        for group in groups {
            sums.groups.push(group.outcome(within));
            sums.failed.merge(&group.failed);
            if !group.identity.is_judged {
                continue;
            }
            sums.ended.merge(&group.ended);
            group.add_to(&mut sums.counted);
            sums.unaccounted += group.counted.unaccounted;
            sums.verified.merge(group.verified);
        }
        sums
    }
}
