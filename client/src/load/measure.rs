// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measured time: counters read at its start and at its end, and the outcome.
//!
//! Costs one system call for each counted session at either end (2,500 take about a millisecond),
//! so the counts of the sessions are of the same time within that.
//!
//! Sources: proc_stat(5); clock_gettime(2) CLOCK_PROCESS_CPUTIME_ID.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Load;
use super::bottleneck::{Evidence, bottleneck};
use super::group_book::GroupBook;
use super::group_outcome::GroupOutcome;
use super::load_session::{LoadState, SessionEnd};
use super::outcome::{CountedSessions, LoadClient, LoadOutcome};
use super::sampled_stats::Window;
use super::server_process::ServerProcess;
use super::session_streams::PacketCounter;
use super::session_sums::{ReasonCounts, SessionSum, VerifiedSum};

/// Counters at the start.
pub(super) struct Measurement {
    began: Instant,
    processor_seconds: f64,
    machine: Option<ProcessorTimes>,
    is_local: bool,
    server: Option<ServerProcess>,
    /// Of each counted session, its streams' counters.
    counting: Vec<(Box<[PacketCounter]>, Vec<u32>)>,
}

/// Figures of the measured time.
pub(super) struct MeasuredLoad {
    length: Duration,
    processor_seconds: f64,
    machine_cores: Option<f64>,
    is_local: bool,
    server_cores: Option<f64>,
    /// Packets of each counted session.
    packets: Vec<u64>,
}

/// Times of all processors since boot, in ticks of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessorTimes {
    busy: u64,
    all: u64,
    cores: u32,
}

impl Measurement {
    pub(super) fn begin(shared: &LoadState, window: &Window, is_local: bool) -> Measurement {
        let server = is_local.then(|| ServerProcess::listening_at(shared.server)).flatten();
        let counters = shared.counting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let began = *window.from.get_or_init(Instant::now);
        let count = |counters: Box<[PacketCounter]>| {
            let before = counters.iter().map(|counter| counter.packets().unwrap_or(0)).collect();
            (counters, before)
        };
        let counting = counters.into_iter().map(count).collect();
        let processor_seconds = processor_seconds();
        Measurement { began, processor_seconds, machine: machine(), is_local, server, counting }
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
        let busy = self.machine.zip(machine()).and_then(|(before, now)| now.cores_since(before));
        let length = ended.saturating_duration_since(self.began);
        let server = self.server.as_ref().and_then(ServerProcess::seconds_since);
        MeasuredLoad {
            length,
            is_local: self.is_local,
            server_cores: server.map(|seconds| seconds / length.as_secs_f64().max(1e-3)),
            processor_seconds: processor_seconds() - self.processor_seconds,
            machine_cores: busy,
            packets,
        }
    }
}

impl MeasuredLoad {
    /// Figures of a load without a measured time.
    pub(super) fn nothing(is_local: bool) -> MeasuredLoad {
        MeasuredLoad {
            length: Duration::ZERO,
            processor_seconds: 0.0,
            machine_cores: None,
            is_local,
            server_cores: None,
            packets: Vec::new(),
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.length.as_secs_f64()
    }

    /// Makes the outcome of a load in which every session has ended.
    pub(super) fn outcome(
        &self,
        options: &Load,
        ends: &[SessionEnd],
        groups: Option<Vec<GroupBook>>,
        timers: &Histogram<u64>,
        interrupted: bool,
    ) -> LoadOutcome {
        let client = self.client(timers);
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

    fn client(&self, timers: &Histogram<u64>) -> LoadClient {
        let ms = |us: u64| us as f64 / 1e3;
        LoadClient {
            processor_seconds: self.processor_seconds,
            cores: self.processor_seconds / self.seconds().max(1e-3),
            timers_late_ms_p50: ms(quantile(timers, 0.5)),
            timers_late_ms_p99: ms(quantile(timers, 0.99)),
            timers_late_ms_max: ms(timers.max()),
            machine_cores: self.machine_cores,
            machine_cores_all: machine().map_or(0, |machine| machine.cores),
            server_is_local: self.is_local,
            server_cores: self.server_cores,
        }
    }

    /// Sums over sessions that all behave alike.
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
        // No session is verified and no packet arrives: the packets are meant to go elsewhere.
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

/// Sums that an outcome is made of.
#[derive(Default)]
struct OutcomeSums {
    failed: ReasonCounts,
    ended: ReasonCounts,
    verified: VerifiedSum,
    counted: CountedSessions,
    /// Counted sessions whose sender's count is not known.
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

/// User and system time of this process so far.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn quantile(timers: &Histogram<u64>, quantile: f64) -> u64 {
    if timers.is_empty() { 0 } else { timers.value_at_quantile(quantile) }
}

/// proc_stat(5); none where it cannot be read.
fn machine() -> Option<ProcessorTimes> {
    machine_of(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn machine_of(stat: &str) -> Option<ProcessorTimes> {
    let cores = stat.lines().skip(1).take_while(|line| line.starts_with("cpu")).count();
    let times = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    // user nice system idle iowait irq softirq steal; guests are in user already.
    let times: Vec<u64> = times.take(8).map_while(|word| word.parse().ok()).collect();
    let all: u64 = times.iter().sum();
    let idle = times.get(3)? + times.get(4)?;
    Some(ProcessorTimes { busy: all - idle, all, cores: cores as u32 })
}

impl ProcessorTimes {
    /// Processors that were busy.
    fn cores_since(self, before: ProcessorTimes) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let busy = self.busy.saturating_sub(before.busy);
        Some(busy as f64 / all as f64 * f64::from(self.cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_busy_processors_are_read() {
        let stat = |user, idle| {
            format!(
                "cpu  {user} 0 100 {idle} 50 0 10 5 3 0\ncpu0 1 0 0 0\ncpu1 0 0 0 0\nintr 5 6\n"
            )
        };
        let (before, after) = (machine_of(&stat(100, 500)), machine_of(&stat(250, 550)));
        assert_eq!(before, Some(ProcessorTimes { busy: 215, all: 765, cores: 2 }));
        assert_eq!(after.unwrap().cores_since(before.unwrap()), Some(1.5));
        assert_eq!(before.unwrap().cores_since(before.unwrap()), None);
        assert_eq!(machine_of("nonsense"), None);
    }
}
