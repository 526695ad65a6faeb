// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab tracks`: the installed server with N sessions of an MP4 file, beside the same of a
//! transport stream by wire image: CPU cost, packets a call, lateness.
//!
//! Every case is a server of its own on one core, one after the other, round by round: a transport
//! stream of 5 Mb/s by `wire_sendfile`; MP4 with H.264 of the same rate as the server sends it by
//! default; the same with AAC beside it; and the same one packet a call by `mmap_writev`. The RTP
//! of most sessions ends in an ifb device that cannot segment; some go through a veth pair to
//! clients that verify packets, times and frames, as in `sessions`. Sessions with a late packet or
//! a missing one are counted.
//!
//! Sources: RFC 6184, RFC 3640, RFC 2250; docs/measuring.md.
//! Does not decode pictures, and does not search for the largest number of sessions.

mod title;

use std::time::Duration;

use crate::experiments::sessions::load::{Asked, Load};
use crate::experiments::sessions::server::{Facts, Served, Server};
use measure::Error;
use measure::meter::{Cores, Meter};
use measure::network::{Network, Sink};
use measure::results::{Results, Row};
use measure::statistics::Figure;
use measure::warning::Warning;
use measure::{Options, asset};

/// A case of the experiment.
struct Member {
    name: &'static str,
    served: Served,
    /// Sound beside the pictures; unset for a transport stream.
    has_sound: Option<bool>,
}

static MEMBERS: &[Member] = &[
    Member {
        name: REFERENCE,
        served: Served { folder: "ts", asset: "asset.ts", path: "wire_sendfile" },
        has_sound: None,
    },
    Member {
        name: "mp4",
        served: Served { folder: "mp4", asset: "title.mp4", path: "wire_sendfile" },
        has_sound: Some(false),
    },
    Member {
        name: "mp4_sound",
        served: Served { folder: "mp4-sound", asset: "title.mp4", path: "wire_sendfile" },
        has_sound: Some(true),
    },
    Member {
        name: ONE_BY_ONE,
        served: Served { folder: "mp4", asset: "title.mp4", path: "mmap_writev" },
        has_sound: Some(false),
    },
];

/// Names of the members, for `--member` and its help.
pub(crate) fn member_names() -> Vec<&'static str> {
    MEMBERS.iter().map(|member| member.name).collect()
}

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("tracks", options.command.clone());
    let names = member_names();
    if let Some(name) = options.members.iter().find(|name| !names.contains(&name.as_str())) {
        let found = format!("no such case; write one of {}", names.join(", "));
        return Err(Error::Caller { what: format!("member {name}"), found });
    }
    let quick = options.quick;
    let seconds = options.seconds.unwrap_or(if quick { 2 } else { 5 }).clamp(1, SECONDS_MAX);
    let usual = if quick { QUICK_SESSIONS } else { SESSIONS };
    let sessions = options.sessions.first().copied().unwrap_or(usual).clamp(1, SESSIONS_MAX);
    let rounds = options.rounds.unwrap_or(if quick { 2 } else { ROUNDS }).max(1);
    let bench = Bench::new((sessions, seconds))?;
    results.notes.push(format!(
        "{sessions} sessions of one file of {:.1} Mb/s on one core, {} of them verified behind a \
         veth pair, the RTP of the others into {}; {rounds} rounds of {seconds} s a case; CPU \
         cost: processor seconds of the server and of kernel threads per 10⁹ bytes",
        BITS_PER_SECOND as f64 / 1e6,
        bench.verified(),
        Sink::IfbSoftware.name(),
    ));
    let is_wanted = |name: &str| {
        // The references of the ratios are always measured.
        let is_reference = name == REFERENCE || name == ONE_BY_ONE;
        options.members.is_empty() || is_reference || options.members.iter().any(|m| m == name)
    };
    let mut cases: Vec<Case> =
        MEMBERS.iter().filter(|member| is_wanted(member.name)).map(Case::new).collect();
    results.complete = true;
    for round in 0..rounds {
        let all = cases.len();
        for turn in 0..all {
            let index = measure::schedule::in_turn(round, turn, all);
            let case = &mut cases[index];
            if options.stopped() || case.failed.is_some() {
                continue;
            }
            options.progress(round * all + turn, rounds * all, case.member.name);
            match bench.measure(case.member) {
                Ok(sample) => case.samples.push(sample),
                Err(error) => case.failed = Some(error.to_string()),
            }
        }
    }
    add(&cases, sessions, &mut results);
    results.complete = results.complete && !options.stopped();
    Ok(results)
}

struct Case {
    member: &'static Member,
    samples: Vec<Sample>,
    failed: Option<String>,
}

impl Case {
    fn new(member: &'static Member) -> Case {
        Case { member, samples: Vec::new(), failed: None }
    }
}

/// Figures of one case in one round.
struct Sample {
    cpu_s_per_gb: f64,
    packets_per_call: f64,
    late_p999_ms: f64,
    memory_kib: f64,
    verified: u64,
    timely: u64,
    lost: u64,
    broken: u64,
}

struct Bench {
    network: Network,
    folder: tempfile::TempDir,
    sessions: usize,
    seconds: u64,
    meter: Meter,
    cores: Cores,
}

impl Bench {
    fn new((sessions, seconds): (usize, u64)) -> Result<Bench, Error> {
        let folder = tempfile::tempdir().map_err(Error::host("a temporary folder"))?;
        let file_s = seconds + START_S + (sessions as f64 * RAMP_S).ceil() as u64;
        for member in MEMBERS {
            let path = member.served.file(folder.path());
            if path.exists() {
                continue;
            }
            let written = std::fs::create_dir_all(path.parent().expect("it lies in a folder"))
                .and_then(|()| match member.has_sound {
                    None => asset::write(&path, BITS_PER_SECOND, file_s),
                    Some(sound) => title::write(&path, BITS_PER_SECOND, file_s, sound).map(|_| ()),
                });
            written.map_err(Error::host("writing a title (is the temporary folder full?)"))?;
        }
        let (mut network, cores) = (Network::new()?, Cores::allowed());
        network.split(RTP_PORT, cores.count())?;
        let meter = Meter::of_this_process();
        Ok(Bench { network, folder, sessions, seconds, meter, cores })
    }

    /// Sessions whose every packet is verified.
    fn verified(&self) -> usize {
        (self.sessions / VERIFIED_OF).max(VERIFIED_MIN).min(self.sessions)
    }

    fn measure(&self, member: &Member) -> Result<Sample, Error> {
        let (for_server, for_clients) = self.cores.split(1);
        let server =
            Server::start(self.folder.path(), &member.served, &for_server, (RTP_PORT, &[]))?;
        server.await_plan()?;
        let idle = server.facts()?;
        let url = server.stream_url();
        let sunk = self.sessions - self.verified();
        let ramp_s = (sunk as f64 * RAMP_S).max(1.0);
        let asked = |sessions, is_verified, source, seconds| Asked {
            url: &url,
            sessions,
            verified: is_verified,
            source,
            seconds,
            transport: "udp",
        };
        let whole_s = ramp_s + SETTLE_S + self.seconds as f64;
        let few = asked(self.verified(), true, Network::SAMPLED, whole_s);
        let mut few = Load::start(&self.network, &few, &for_clients)?;
        few.await_event("playing")?;
        if member.has_sound.is_none() {
            server.await_image()?;
        }
        let mut many = None;
        if sunk > 0 {
            let seconds = self.seconds as f64 + 1.0;
            let load = asked(sunk, false, Network::SUNK, seconds);
            let mut load = Load::start(&self.network, &load, &for_clients)?;
            load.await_event("playing")?;
            many = Some(load);
        } else {
            std::thread::sleep(Duration::from_secs_f64(SETTLE_S));
        }
        let before = self.moment(&server)?;
        std::thread::sleep(Duration::from_secs(self.seconds));
        let after = self.moment(&server)?;
        if let Some(many) = &mut many {
            let result = many.await_event("result")?;
            if result["played"] != result["asked"] {
                let found = format!("{} of {} played", result["played"], result["asked"]);
                return Err(Error::Wrong { member: member.name.to_owned(), found });
            }
        }
        let client = few.await_event("result")?;
        Ok(self.sample(&idle, (&before, &after), &client))
    }

    fn moment(&self, server: &Server) -> Result<Moment, Error> {
        let facts = server.facts()?;
        Ok(Moment { facts, kernel: self.meter.of_kernel_threads() })
    }

    fn sample(
        &self,
        idle: &Facts,
        (before, after): (&Moment, &Moment),
        client: &serde_json::Value,
    ) -> Sample {
        let work = after.facts.processor_seconds - before.facts.processor_seconds
            + after.kernel.saturating_sub(before.kernel).as_secs_f64();
        let count = |of: fn(&Facts) -> u64| of(&after.facts).saturating_sub(of(&before.facts));
        let verified = &client["verified"];
        let figure = |name: &str| verified[name].as_u64().unwrap_or(0);
        // A transport stream has none.
        let tracks = verified["tracks"].as_array().into_iter().flatten();
        let broken = tracks.map(|track| track["broken_units"].as_u64().unwrap_or(0)).sum();
        let memory = after.facts.memory_bytes.saturating_sub(idle.memory_bytes) as f64;
        Sample {
            cpu_s_per_gb: work * 1e9 / count(|facts| facts.bytes).max(1) as f64,
            packets_per_call: count(|facts| facts.packets) as f64
                / count(|facts| facts.calls).max(1) as f64,
            late_p999_ms: after.facts.late_p999_us as f64 / 1e3,
            memory_kib: memory / self.sessions as f64 / 1024.0,
            verified: figure("sessions"),
            timely: figure("timely"),
            lost: figure("lost"),
            broken,
        }
    }
}

/// The server's figures at a time.
struct Moment {
    facts: Facts,
    kernel: Duration,
}

fn add(cases: &[Case], sessions: usize, results: &mut Results) {
    for case in cases.iter().filter(|case| !case.samples.is_empty()) {
        let mut push = |metric: &str, unit: &str, figure: Figure| {
            let row = Row::new("tracks", case.member.name, metric, unit, figure);
            results.rows.push(row.with("sessions", sessions).with("path", case.member.served.path));
        };
        let figure = |of: fn(&Sample) -> f64| Figure::of(case.samples.iter().map(of).collect());
        push("CPU cost", "s/GB", figure(|s| s.cpu_s_per_gb));
        for reference in [REFERENCE, ONE_BY_ONE] {
            if let Some(ratios) = ratios(case, cases, reference) {
                push(&format!("CPU cost, of {reference}"), "of 1", Figure::of(ratios));
            }
        }
        push("packets a call", "packets", figure(|s| s.packets_per_call));
        push("late, 99.9 %", "ms", figure(|s| s.late_p999_ms));
        push("memory a session", "KiB", figure(|s| s.memory_kib));
        push("verified sessions", "sessions", figure(|s| s.verified as f64));
        push("of them timely", "sessions", figure(|s| s.timely as f64));
        push("lost", "packets", figure(|s| s.lost as f64));
        push("broken units", "units", figure(|s| s.broken as f64));
    }
    for case in cases {
        if let Some(found) = &case.failed {
            results.complete = false;
            let member = case.member.name.to_owned();
            results.warn(Warning::MemberFailed { member, found: found.clone() });
        }
    }
}

/// Ratio of the CPU cost to that of a reference in each round; none for the reference itself.
fn ratios(case: &Case, cases: &[Case], reference: &str) -> Option<Vec<f64>> {
    let is_other = |other: &&Case| other.member.name == reference;
    let other = cases.iter().find(is_other).filter(|_| case.member.name != reference)?;
    let pairs = case.samples.iter().zip(&other.samples);
    let ratios: Vec<f64> = pairs
        .filter(|(_, other)| other.cpu_s_per_gb > 0.0)
        .map(|(one, other)| one.cpu_s_per_gb / other.cpu_s_per_gb)
        .collect();
    (!ratios.is_empty()).then_some(ratios)
}

/// Transport stream by wire image.
const REFERENCE: &str = "ts";
/// The packets of `mp4`, one a call.
const ONE_BY_ONE: &str = "mp4_one_by_one";
const BITS_PER_SECOND: u64 = 5_000_000;
const SESSIONS: usize = 500;
const QUICK_SESSIONS: usize = 20;
const SESSIONS_MAX: usize = 5000;
/// One session of this many is verified.
const VERIFIED_OF: usize = 50;
const VERIFIED_MIN: usize = 2;
const ROUNDS: usize = 5;
const SECONDS_MAX: u64 = 300;
/// Media before the measured time: starting, settling, the load's own two seconds.
const START_S: u64 = 30;
/// Spread of the session starts; the load's own default.
const RAMP_S: f64 = 0.002;
/// Settling time of the load, two seconds, and some for setting up.
const SETTLE_S: f64 = 3.0;
const RTP_PORT: u16 = 5004;
