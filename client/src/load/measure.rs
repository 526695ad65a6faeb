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
use super::load_session::{LoadState, PacketCounter, SessionEnd};
use super::outcome::{CountedSessions, EndReason, LoadClient, LoadOutcome, VerifiedSessions};
use super::sampled_stats::{SampledStats, Window};
use super::server_process::ServerProcess;
use crate::lateness::Lateness;
use crate::receive_thread::lock;
use crate::verdict::LatenessMs;

/// Counters at the start.
pub(super) struct Measurement {
    began: Instant,
    processor_seconds: f64,
    machine: Option<ProcessorTimes>,
    is_local: bool,
    server: Option<ServerProcess>,
    counting: Vec<(PacketCounter, u32)>,
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
        let count = |counter: PacketCounter| {
            let before = counter.packets().unwrap_or(0);
            (counter, before)
        };
        let counting = counters.into_iter().map(count).collect();
        let processor_seconds = processor_seconds();
        Measurement { began, processor_seconds, machine: machine(), is_local, server, counting }
    }

    pub(super) fn end(self, window: &Window) -> MeasuredLoad {
        let ended = *window.until.get_or_init(Instant::now);
        let since = |(counter, before): &(PacketCounter, u32)| {
            let now = counter.packets().unwrap_or(*before);
            u64::from(now.wrapping_sub(*before))
        };
        let packets = self.counting.iter().map(since).collect();
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
        let (failed, first) = reasons(ends.iter().filter_map(|end| end.failed.as_ref()));
        evidence.failed = first;
        let (ended, first) = reasons(ends.iter().filter_map(|end| end.ended.as_ref()));
        evidence.ended = first;
        let verified = verified(options, ends, &mut evidence);
        let counted = self.counted(options, ends, &mut evidence);
        let bottleneck = bottleneck(&evidence);
        LoadOutcome {
            url: options.url.clone(),
            transport: options.transport,
            asked: options.sessions,
            played: ends.iter().filter(|end| end.is_played).count() as u32,
            failed,
            ended,
            interrupted,
            seconds: self.seconds(),
            ramp_seconds: options.ramp().as_secs_f64(),
            verified,
            counted,
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

    fn counted(
        &self,
        options: &Load,
        ends: &[SessionEnd],
        evidence: &mut Evidence,
    ) -> CountedSessions {
        let mut counted = CountedSessions {
            sessions: 0,
            packets: self.packets.iter().sum(),
            packets_least: self.packets.iter().min().copied().unwrap_or(0),
            packets_most: self.packets.iter().max().copied().unwrap_or(0),
            packets_in_all: 0,
            accounted: 0,
            lost: 0,
        };
        // No session is verified and no packet arrives: the packets are meant to go elsewhere.
        let is_discarded =
            options.sample() == 0 && ends.iter().all(|end| end.counted.unwrap_or(0) == 0);
        for end in ends.iter().filter(|end| end.is_played && end.stats.is_none()) {
            counted.sessions += 1;
            counted.packets_in_all += u64::from(end.counted.unwrap_or(0));
            if let Some((sent, came)) = end.sent.zip(end.counted).filter(|_| !is_discarded) {
                counted.accounted += 1;
                counted.lost += u64::from(missing(sent, came));
            }
        }
        evidence.lost += counted.lost;
        evidence.unaccounted = if is_discarded { 0 } else { counted.sessions - counted.accounted };
        counted
    }
}

/// Packets sent that did not arrive, modulo 2^32. More arrivals than were sent are duplicates or
/// others' datagrams: none is missing.
fn missing(sent: u32, came: u32) -> u32 {
    sent.wrapping_sub(came).cast_signed().max(0).cast_unsigned()
}

/// Figures of the verified sessions.
fn verified(options: &Load, ends: &[SessionEnd], evidence: &mut Evidence) -> VerifiedSessions {
    let mut verified = VerifiedSessions {
        sessions: 0,
        timely: 0,
        packets: 0,
        bytes: 0,
        packets_in_all: 0,
        lost: 0,
        duplicates: 0,
        reordered: 0,
        unexpected_source: 0,
        bad_payload_size: 0,
        different: None,
        dropped: 0,
        lateness_ms: lateness_ms(&Lateness::default(), options.within),
    };
    let mut all = Lateness::default();
    let mut late_tenths: Vec<u32> = Vec::new();
    for end in ends {
        let Some(stats) = &end.stats else { continue };
        let stats = &mut *lock(stats);
        let lost = lost(stats, end.sent);
        let is_late = stats.packets.counted > 0 && !stats.packets.is_punctual();
        verified.sessions += 1;
        verified.timely +=
            u32::from(stats.packets.is_punctual() && lost == 0 && end.ended.is_none());
        verified.packets += stats.packets.counted;
        verified.bytes += stats.packets.bytes;
        verified.packets_in_all += stats.reception().received();
        verified.lost += lost;
        verified.duplicates += stats.reception().duplicates();
        verified.reordered += stats.reception().reordered();
        verified.unexpected_source += stats.packets.unexpected_source;
        verified.bad_payload_size += stats.packets.bad_payload_size;
        if let Some(different) = stats.packets.different() {
            *verified.different.get_or_insert(0) += different;
        }
        verified.dropped += u64::from(stats.packets.dropped);
        evidence.silent += u32::from(stats.reception().received() == 0 && end.ended.is_none());
        if lost > 0 {
            evidence.first_gap = earlier(evidence.first_gap, stats.packets.first_gap);
        }
        evidence.first_drop = earlier(evidence.first_drop, stats.packets.first_drop);
        if is_late {
            evidence.late += 1;
            evidence.first_late = earlier(evidence.first_late, stats.packets.first_late);
            add_tenths(&mut late_tenths, &stats.packets.late_tenths);
        }
        all.merge(std::mem::take(&mut stats.packets.lateness));
    }
    verified.lateness_ms = lateness_ms(&all, options.within);
    evidence.verified = verified.sessions;
    evidence.together = late_tenths.into_iter().max().unwrap_or(0);
    evidence.lost += verified.lost;
    evidence.dropped += verified.dropped;
    evidence.wrong += verified.bad_payload_size + verified.different.unwrap_or(0);
    verified
}

/// Losses by sequence numbers or by the sender's count: the larger one.
fn lost(stats: &SampledStats, sent: Option<u32>) -> u64 {
    let reception = stats.reception();
    // Modulo 2^32, as the sender counts.
    let came = (reception.received() - reception.duplicates()) as u32;
    let missing = sent.map_or(0, |sent| missing(sent, came));
    stats.lost().max(missing.into())
}

fn add_tenths(sessions: &mut Vec<u32>, late: &[u64]) {
    sessions.resize(sessions.len().max(late.len() * 64), 0);
    for (tenth, sessions) in sessions.iter_mut().enumerate().take(late.len() * 64) {
        *sessions += u32::from(late[tenth / 64] >> (tenth % 64) & 1 == 1);
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn lateness_ms(lateness: &Lateness, within: Duration) -> LatenessMs {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let figures = lateness.figures();
    LatenessMs {
        p50: ms(figures.p50),
        p90: ms(figures.p90),
        p99: ms(figures.p99),
        p999: ms(figures.p999),
        max: ms(figures.max),
        late_share: lateness.later_than(within) as f64 / figures.packets.max(1) as f64,
        bound: ms(within),
        drift_ppm: lateness.drift_ppm(),
    }
}

/// Groups the reasons, most frequent first, and finds the earliest with the number of all.
#[allow(clippy::type_complexity, reason = "two results of one pass")]
fn reasons<'a>(
    all: impl Iterator<Item = &'a (Instant, String)>,
) -> (Vec<EndReason>, Option<(Instant, String, u32)>) {
    let mut first: Option<(Instant, String, u32)> = None;
    let mut reasons: Vec<EndReason> = Vec::new();
    for (at, reason) in all {
        match &mut first {
            Some((earliest, _, count)) if *earliest <= *at => *count += 1,
            found => {
                let count = found.as_ref().map_or(0, |(_, _, count)| *count);
                *found = Some((*at, reason.clone(), count + 1));
            }
        }
        let known = reasons.iter().position(|known| known.reason == *reason);
        if known.is_none() && reasons.len() < REASONS_MAX {
            reasons.push(EndReason { sessions: 1, reason: reason.clone() });
            continue;
        }
        let index = known.unwrap_or(REASONS_MAX - 1);
        reasons[index].sessions += 1;
        if known.is_none() {
            reasons[index].reason = "other reasons".to_owned();
        }
    }
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.sessions));
    (reasons, first)
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

/// A server with a reason of its own for each session must not fill the screen.
const REASONS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_sender_and_socket_are_compared_modulo_their_width() {
        assert_eq!(missing(100, 100), 0);
        assert_eq!(missing(100, 97), 3);
        assert_eq!(missing(2, u32::MAX), 3);
        assert_eq!(missing(100, 103), 0);
        assert_eq!(missing(5_000_000, 100), 4_999_900);
    }

    #[test]
    fn reasons_are_gathered_and_bounded() {
        let at = Instant::now();
        let said = |n: u64, text: &str| (at + Duration::from_millis(n), text.to_owned());
        let all = [said(5, "a"), said(2, "b"), said(3, "b")];
        let (gathered, first) = reasons(all.iter());
        let gathered: Vec<_> = gathered.iter().map(|r| (r.sessions, &*r.reason)).collect();
        assert_eq!(gathered, [(2, "b"), (1, "a")]);
        assert_eq!(first, Some((at + Duration::from_millis(2), "b".to_owned(), 3)));
        let many: Vec<_> = (0..100).map(|n| said(n, &n.to_string())).collect();
        let (gathered, _) = reasons(many.iter());
        assert_eq!(gathered.len(), REASONS_MAX);
        assert_eq!(gathered.iter().map(|reason| reason.sessions).sum::<u32>(), 100);
        assert_eq!(gathered[0].reason, "other reasons");
    }

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

    #[test]
    fn sessions_late_together_are_counted_by_the_tenth_of_a_second() {
        let mut sessions = Vec::new();
        add_tenths(&mut sessions, &[0b101, 1]);
        add_tenths(&mut sessions, &[0b100]);
        assert_eq!((sessions[0], sessions[1], sessions[2], sessions[64]), (1, 0, 2, 1));
    }
}
