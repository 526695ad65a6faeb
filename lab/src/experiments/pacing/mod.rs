// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab pacing`: how even the installed server's streams are, and the CPU cost of it, by
//! pacer and burst.
//!
//! The server plays one asset of 5 Mb/s to N sessions, with each pacer (`--pacing user` and
//! `txtime`) and each burst alternately, round by round; every case has a server of its own. A few
//! sessions are watched: their packets go through a veth pair to sockets that record the kernel's
//! time of arrival. The RTP of the others ends in an ifb device, as in `sessions`. Both devices
//! make the kernel segment before them, so every packet arrives by itself, as from a card without
//! segmentation; both have the queueing discipline `fq` for all cases, where the kernel has it.
//! Without it `txtime` is skipped with the reason.
//!
//! Gaps, bursts and delay factors are pooled over the watched sessions; the longest burst is the
//! most packets of one session in any millisecond.
//!
//! Sources: RFC 4445 §3 (media delivery index); tc-fq(8); docs/measuring.md.
//! Does not model a network; switches and links add delays of their own. A guest's times are not a
//! host's: compare ratios of one run there.

mod smoothness;
mod watch;

use std::time::{Duration, SystemTime};

use self::smoothness::{Burst, INTERVAL, bursts, delay_factors, gaps, quantile};
use self::watch::{Watch, Watched};
use crate::experiments::sessions::load::{Asked, Load};
use crate::experiments::sessions::server::{STREAM, Server};
use measure::Error;
use measure::meter::{Cores, Meter};
use measure::network::{Network, Sink};
use measure::results::{Results, Row};
use measure::statistics::Figure;
use measure::warning::Warning;
use measure::{Options, asset};

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("pacing", options.command.clone());
    if let Some(name) = options.members.iter().find(|name| !MEMBERS.contains(&name.as_str())) {
        let found = format!("no such pacer; write {}", MEMBERS.join(" or "));
        return Err(Error::Caller { what: format!("member {name}"), found });
    }
    let quick = options.quick;
    let seconds = options.seconds.unwrap_or(if quick { 2 } else { 5 }).clamp(1, SECONDS_MAX);
    let usual = if quick { QUICK_SESSIONS } else { SESSIONS };
    let sessions = options.sessions.first().copied().unwrap_or(usual).clamp(1, SESSIONS_MAX);
    let rounds = options.rounds.unwrap_or(if quick { 2 } else { ROUNDS }).max(1);
    let folder = tempfile::tempdir().map_err(Error::host("a temporary folder"))?;
    std::fs::create_dir(folder.path().join(STREAM.folder)).map_err(Error::host("a folder"))?;
    let asset_s = seconds + START_S + (sessions as f64 * RAMP_S).ceil() as u64;
    asset::write(&STREAM.file(folder.path()), BITS_PER_SECOND, asset_s)
        .map_err(Error::host("writing the asset (is the temporary folder full?)"))?;
    let watched = sessions.min(WATCHED);
    let bench = Bench::new(folder, (sessions, watched), seconds)?;
    let others = match sessions - watched {
        0 => String::new(),
        _ => format!(", the RTP of the others into {}", Sink::IfbSoftware.name()),
    };
    results.notes.push(format!(
        "{sessions} sessions of one asset of {:.1} Mb/s, {watched} of them watched behind a veth \
         pair{others}; {rounds} rounds of {seconds} s a case; CPU cost: processor seconds of the \
         server and of kernel threads per 10⁹ bytes",
        BITS_PER_SECOND as f64 / 1e6,
    ));
    results.notes.push(DEFINITIONS.to_owned());
    if results.host.processor.contains(EMULATED) {
        results.notes.push(EMULATION.to_owned());
    }
    let mut cases = cases(options, &mut results, &bench);
    bench.make_image()?;
    results.complete = true;
    for round in 0..rounds {
        let all = cases.len();
        for turn in 0..all {
            let index = measure::schedule::in_turn(round, turn, all);
            let case = &mut cases[index];
            if options.stopped() || case.failed.is_some() {
                continue;
            }
            options.progress(round * all + turn, rounds * all, &case.title());
            match bench.measure(case) {
                Ok(sample) => case.samples.push(sample),
                Err(error) => case.failed = Some(error.to_string()),
            }
        }
    }
    add(&cases, sessions, &mut results);
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

/// A pacer with a burst.
struct Case {
    /// [`USER`] or [`TXTIME`].
    member: &'static str,
    burst_ms: u64,
    /// Packets that leave together by `txtime`.
    packets: u32,
    samples: Vec<Sample>,
    failed: Option<String>,
}

impl Case {
    fn new(member: &'static str, burst_ms: u64, packets: u32) -> Case {
        Case { member, burst_ms, packets, samples: Vec::new(), failed: None }
    }

    fn title(&self) -> String {
        format!("{}, burst {} ms", self.pacing(), self.burst_ms)
    }

    /// Value of the server's option.
    fn pacing(&self) -> String {
        match self.member {
            TXTIME => format!("{TXTIME}={}", self.packets),
            member => member.to_owned(),
        }
    }
}

/// Figures of one case in one round.
struct Sample {
    gap_p50: Duration,
    gap_p99: Duration,
    burst_p50: usize,
    burst_p99: usize,
    longest: Burst,
    delay_factor_p50: Duration,
    delay_factor_max: Duration,
    lost: u64,
    cpu_s_per_gb: f64,
    calls_per_packet: f64,
}

/// Returns all cases; notes the omitted ones with the reason.
fn cases(options: &Options, results: &mut Results, bench: &Bench) -> Vec<Case> {
    let is_wanted = |name| options.members.is_empty() || options.members.iter().any(|m| m == name);
    let bursts = if options.quick { QUICK_BURSTS_MS } else { BURSTS_MS };
    let mut cases: Vec<Case> = Vec::new();
    // The reference of the ratios is always measured.
    let user = bursts.iter().filter(|burst| is_wanted(USER) || **burst == REFERENCE_MS);
    cases.extend(user.map(|&burst| Case::new(USER, burst, 1)));
    match &bench.no_queue {
        None if is_wanted(TXTIME) => {
            let txtime = bursts.iter().filter(|burst| !options.quick || **burst == REFERENCE_MS);
            cases.extend(txtime.map(|&burst| Case::new(TXTIME, burst, 1)));
            if !options.quick {
                cases.extend(TOGETHER.iter().map(|&each| Case::new(TXTIME, REFERENCE_MS, each)));
            }
            let note = "fq on all devices, for both pacers";
            results.notes.push(note.to_owned());
        }
        None => {}
        Some(reason) => results.notes.push(format!("skip: {TXTIME}: {reason}")),
    }
    cases
}

struct Bench {
    network: Network,
    folder: tempfile::TempDir,
    sessions: usize,
    watched: usize,
    seconds: u64,
    meter: Meter,
    cores: Cores,
    /// The reason why devices here have no queue that respects departure times.
    no_queue: Option<String>,
}

impl Bench {
    fn new(
        folder: tempfile::TempDir,
        (sessions, watched): (usize, usize),
        seconds: u64,
    ) -> Result<Bench, Error> {
        let (mut network, cores) = (Network::new()?, Cores::allowed());
        network.make(&Sink::Veth)?;
        network.limit_segments(&Sink::Veth, 1)?;
        let mut sinks = vec![Sink::Veth];
        if sessions > watched {
            network.split(RTP_PORT, cores.count())?;
            sinks.push(Sink::IfbSoftware);
        }
        let queued = sinks.iter().try_for_each(|sink| network.set_queue(sink, QUEUE));
        let no_queue = queued.err().map(|error| error.to_string());
        let meter = Meter::of_this_process();
        Ok(Bench { network, folder, sessions, watched, seconds, meter, cores, no_queue })
    }

    fn start(&self, pacing: &str, burst_ms: u64) -> Result<(Server, Cores), Error> {
        let (for_server, for_clients) = self.cores.split(1);
        let burst = burst_ms.to_string();
        let more = ["--pacing", pacing, "--burst", &burst, "--session-timeout", "600"];
        let server = Server::start(self.folder.path(), &STREAM, &for_server, (RTP_PORT, &more))?;
        server.await_plan()?;
        Ok((server, for_clients))
    }

    /// Makes the server lay out the wire image from which all cases of the pacer in user space
    /// send.
    fn make_image(&self) -> Result<(), Error> {
        let (server, cores) = self.start(USER, REFERENCE_MS)?;
        let _watch = Watch::start(&self.network, (&server.stream_url(), 1), &cores)?;
        server.await_image()
    }

    fn measure(&self, case: &Case) -> Result<Sample, Error> {
        let (server, cores) = self.start(&case.pacing(), case.burst_ms)?;
        let url = server.stream_url();
        let watch = Watch::start(&self.network, (&url, self.watched), &cores)?;
        let sunk = self.sessions - self.watched;
        let mut many = None;
        if sunk > 0 {
            let seconds = self.seconds as f64 + 2.0;
            let (source, verified) = (Network::SUNK, false);
            let transport = "udp";
            let asked = Asked { url: &url, sessions: sunk, verified, source, seconds, transport };
            let mut load = Load::start(&self.network, &asked, &cores)?;
            load.await_event("playing")?;
            many = Some(load);
        } else {
            std::thread::sleep(SETTLE);
        }
        let (before, kernel) = (server.facts()?, self.meter.of_kernel_threads());
        let begin = SystemTime::now();
        std::thread::sleep(Duration::from_secs(self.seconds));
        let end = SystemTime::now();
        let (after, kernel_after) = (server.facts()?, self.meter.of_kernel_threads());
        drop(many);
        let expected = if case.member == TXTIME { self.sessions as u64 } else { 0 };
        if after.sessions_txtime != expected {
            let found = format!("{} sessions by txtime of {expected}", after.sessions_txtime);
            return Err(Error::Wrong { member: case.title(), found });
        }
        let watched = watch.finish((begin, end))?;
        let work = after.processor_seconds - before.processor_seconds
            + kernel_after.saturating_sub(kernel).as_secs_f64();
        let bytes = after.bytes.saturating_sub(before.bytes).max(1);
        let packets = after.packets.saturating_sub(before.packets).max(1);
        let calls = after.calls.saturating_sub(before.calls);
        let smooth = Sample::of(&watched, begin, self.seconds as usize);
        let mut sample = smooth.map_err(|found| Error::Wrong { member: case.title(), found })?;
        sample.cpu_s_per_gb = work * 1e9 / bytes as f64;
        sample.calls_per_packet = calls as f64 / packets as f64;
        Ok(sample)
    }
}

impl Sample {
    /// Returns the smoothness of these sessions over `seconds` from `begin` on.
    fn of(watched: &[Watched], begin: SystemTime, seconds: usize) -> Result<Sample, String> {
        let begin = begin.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let intervals = seconds / INTERVAL.as_secs() as usize;
        let mut all_gaps: Vec<Duration> = Vec::new();
        let mut all_bursts: Vec<usize> = Vec::new();
        let (mut factors, mut longest, mut lost) = (Vec::new(), Burst::default(), 0);
        for session in watched {
            let arrivals = &session.arrivals;
            all_gaps.extend(gaps(arrivals));
            all_bursts.extend(bursts(arrivals));
            longest = longest.max(Burst::longest(arrivals));
            factors.extend(delay_factors(arrivals, BITS_PER_SECOND as f64, (begin, intervals)));
            lost += session.lost();
        }
        if all_gaps.is_empty() || factors.is_empty() {
            return Err("no packet of the watched sessions arrived".to_owned());
        }
        all_gaps.sort_unstable();
        all_bursts.sort_unstable();
        factors.sort_unstable();
        Ok(Sample {
            gap_p50: quantile(&all_gaps, 0.5),
            gap_p99: quantile(&all_gaps, 0.99),
            burst_p50: quantile(&all_bursts, 0.5),
            burst_p99: quantile(&all_bursts, 0.99),
            longest,
            delay_factor_p50: quantile(&factors, 0.5),
            delay_factor_max: quantile(&factors, 1.0),
            lost,
            cpu_s_per_gb: 0.0,
            calls_per_packet: 0.0,
        })
    }
}

fn add(cases: &[Case], sessions: usize, results: &mut Results) {
    let cost = |case: &Case| Figure::of(case.samples.iter().map(|s| s.cpu_s_per_gb).collect());
    let reference = cases
        .iter()
        .find(|case| (case.member, case.burst_ms) == (USER, REFERENCE_MS))
        .filter(|case| !case.samples.is_empty())
        .map(cost);
    for case in cases.iter().filter(|case| !case.samples.is_empty()) {
        let mut push = |metric: &str, unit: &str, figure: Figure| {
            let row = Row::new("pacing", case.member, metric, unit, figure);
            let row = row.with("burst_ms", case.burst_ms).with("sessions", sessions);
            results.rows.push(match case.member {
                TXTIME => row.with("packets", case.packets),
                _ => row,
            });
        };
        let figure =
            |of: &dyn Fn(&Sample) -> f64| Figure::of(case.samples.iter().map(of).collect());
        let (us, ms) = (|time: Duration| time.as_secs_f64() * 1e6, 1e-3);
        push("gap, median", "µs", figure(&|s| us(s.gap_p50)));
        push("gap, 99 %", "µs", figure(&|s| us(s.gap_p99)));
        push("burst, median", "packets", figure(&|s| s.burst_p50 as f64));
        push("burst, 99 %", "packets", figure(&|s| s.burst_p99 as f64));
        push("longest burst", "packets", figure(&|s| s.longest.packets as f64));
        push("longest burst, bytes", "B", figure(&|s| s.longest.bytes as f64));
        push("delay factor, median", "ms", figure(&|s| us(s.delay_factor_p50) * ms));
        push("delay factor, most", "ms", figure(&|s| us(s.delay_factor_max) * ms));
        push("media loss", "packets", figure(&|s| s.lost as f64));
        push("CPU cost", "s/GB", cost(case));
        push("calls", "per packet", figure(&|s| s.calls_per_packet));
        let ratio = reference.as_ref().and_then(|reference| cost(case).relative_to(reference));
        if let Some(ratio) = ratio {
            push("relative to user, 20 ms", "", ratio);
        }
    }
    for case in cases {
        if let Some(found) = &case.failed {
            results.complete = false;
            results.warn(Warning::MemberFailed { member: case.title(), found: found.clone() });
        }
    }
}

const USER: &str = "user";
const TXTIME: &str = "txtime";
pub(crate) const MEMBERS: &[&str] = &[USER, TXTIME];
/// The queueing discipline that respects departure times without rights of the whole host.
const QUEUE: &str = "fq";
const BITS_PER_SECOND: u64 = 5_000_000;
const BURSTS_MS: &[u64] = &[1, 2, 5, 10, 20, 40];
const QUICK_BURSTS_MS: &[u64] = &[1, REFERENCE_MS];
/// The server's own default.
const REFERENCE_MS: u64 = 20;
/// Packets that leave together, beside one, at that burst.
const TOGETHER: &[u32] = &[2, 4];
const SESSIONS: usize = 100;
const QUICK_SESSIONS: usize = 4;
const SESSIONS_MAX: usize = 5000;
const WATCHED: usize = 4;
const ROUNDS: usize = 5;
const SECONDS_MAX: u64 = 300;
/// Media before the measured time: starting, settling, the load's own two seconds.
const START_S: u64 = 30;
/// Spread of the session starts; the load's own default.
const RAMP_S: f64 = 0.002;
const SETTLE: Duration = Duration::from_secs(1);
const RTP_PORT: u16 = 5004;
/// Processor of a guest of QEMU without KVM.
const EMULATED: &str = "QEMU TCG";
const EMULATION: &str = "an emulated processor: times and costs are not those of a machine; \
    compare ratios of this run alone";
const DEFINITIONS: &str = "arrival times are the kernel's (SO_TIMESTAMPNS); gaps of all watched \
    sessions; burst: packets less than 1 ms apart; longest burst: the most packets, \
    and bytes, of one session within any millisecond; \
    delay factor: RFC 4445 over intervals of 1 s at the asset's rate; media loss: packets lost or \
    out of order; a packet has 1,316 bytes and lasts 2.1 ms";
